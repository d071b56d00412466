package controller

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// Reassignment asks for other replicas of a partition (KIP-455).
type Reassignment struct {
	TopicPartition
	// Replicas are the wished ones, the preferred leader first; nil takes back a reassignment
	// that is under way.
	Replicas []int32
}

// AlterReassignments begins, replaces and cancels reassignments. The reply is an
// []*api.Error in the order of changes. Without allowFactorChange, one that would give a
// partition another number of replicas is refused (KIP-860).
func (s *State) AlterReassignments(_ time.Time, changes []Reassignment, allowFactorChange bool) machine.Result {
	img := s.Image()
	errs := make([]*api.Error, len(changes))
	seen := map[TopicPartition]bool{}
	var recs []meta.Record
	for i, ch := range changes {
		if seen[ch.TopicPartition] {
			errs[i] = api.Errorf(api.InvalidRequest, "partition %d of topic %s is in the request more than once", ch.Partition, ch.Topic)
			continue
		}
		seen[ch.TopicPartition] = true
		rec, err := s.reassign(img, ch, allowFactorChange)
		if errs[i] = err; rec != nil {
			recs = append(recs, rec)
		}
	}
	return s.result(errs, recs...)
}

func (s *State) reassign(img *meta.Image, ch Reassignment, allowFactorChange bool) (*meta.PartitionChangeRecord, *api.Error) {
	t := img.TopicByName(ch.Topic)
	p := t.Partition(ch.Partition)
	if p == nil {
		return nil, api.Errorf(api.UnknownTopicOrPartition, "there is no partition %d of topic %s", ch.Partition, ch.Topic)
	}
	c := s.plan(img, t, ch.Partition)
	if ch.Replicas == nil {
		if err := s.cancelReassignment(c); err != nil {
			return nil, err
		}
		return c.record(), nil
	}
	if err := checkReassignment(img, p, ch, allowFactorChange); err != nil {
		return nil, err
	}
	c.reassignTo(ch.Replicas, func(b int32) ids.UUID { return directory(img, b) })
	return c.record(), nil
}

// original are the replicas from before the reassignment under way, in their present order.
func original(p *meta.Partition) []int32 {
	return filter(p.Replicas, func(r int32) bool { return !slices.Contains(p.Adding, r) })
}

func checkReassignment(img *meta.Image, p *meta.Partition, ch Reassignment, allowFactorChange bool) *api.Error {
	if len(ch.Replicas) == 0 {
		return api.Errorf(api.InvalidReplicaAssignment, "partition %d of topic %s: the list of replicas is empty", ch.Partition, ch.Topic)
	}
	for i, b := range ch.Replicas {
		switch {
		case slices.Contains(ch.Replicas[:i], b):
			return api.Errorf(api.InvalidReplicaAssignment, "partition %d of topic %s: broker %d is listed twice", ch.Partition, ch.Topic, b)
		case b < 0:
			return api.Errorf(api.InvalidReplicaAssignment, "partition %d of topic %s: broker id %d is negative", ch.Partition, ch.Topic, b)
		case img.Broker(b) == nil && !slices.Contains(p.Replicas, b):
			return api.Errorf(api.InvalidReplicaAssignment, "partition %d of topic %s: broker %d is not registered", ch.Partition, ch.Topic, b)
		}
	}
	if had := len(original(p)); !allowFactorChange && len(ch.Replicas) != had {
		return api.Errorf(api.InvalidReplicationFactor, "partition %d of topic %s has %d replicas, the reassignment has %d; allow a change of the replication factor to do this",
			ch.Partition, ch.Topic, had, len(ch.Replicas))
	}
	return nil
}

// reassignTo lets the plan's partition move to other replicas. What an earlier reassignment
// was adding and this one doesn't want goes at once, unless the partition would be left
// without anybody who is or was in sync; then it stays until this one is complete.
func (c *plan) reassignTo(target []int32, place func(broker int32) ids.UUID) {
	in := func(list []int32) func(int32) bool {
		return func(r int32) bool { return slices.Contains(list, r) }
	}
	before := original(c.old)
	keep := func(r int32) bool { return slices.Contains(target, r) || slices.Contains(before, r) }
	stay := filter(c.old.Replicas, keep)
	if !c.survives(stay) {
		stay = c.old.Replicas
	}
	c.adding = filter(target, func(r int32) bool { return !in(before)(r) })
	c.removing = filter(stay, func(r int32) bool { return !in(target)(r) })
	c.setReplicas(slices.Concat(target, c.removing), place)
}

// survives reports whether a partition with only these of its replicas is as well off: it
// keeps a member of the ISR that may lead, or if it has no leader, all that it may come
// back by.
func (c *plan) survives(replicas []int32) bool {
	has := func(r int32) bool { return slices.Contains(replicas, r) }
	if c.old.Leader != meta.NoLeader {
		return slices.ContainsFunc(c.old.ISR, func(r int32) bool { return has(r) && c.candidate(r) })
	}
	for _, list := range [][]int32{c.old.ISR, c.old.ELR, c.old.LastKnownELR} {
		for _, r := range list {
			if !has(r) {
				return false
			}
		}
	}
	return true
}

// cancelReassignment takes back what a reassignment was adding.
func (s *State) cancelReassignment(c *plan) *api.Error {
	p := c.old
	if len(p.Adding)+len(p.Removing) == 0 {
		return api.Errorf(api.NoReassignmentInProgress, "partition %d of topic %s is not being reassigned", c.partition, c.topic.Name)
	}
	before := original(p)
	if !c.survives(before) && (c.election != electUnclean || !slices.ContainsFunc(before, c.candidate)) {
		return api.Errorf(api.InvalidReplicaAssignment,
			"partition %d of topic %s: the replicas from before, %v, are not in sync; the reassignment can be taken back when one is, or where unclean elections are allowed",
			c.partition, c.topic.Name, before)
	}
	c.adding, c.removing = nil, nil
	c.setReplicas(before, func(int32) ids.UUID { return ids.UnassignedDir })
	return nil
}

// Reassigning is a partition that is being reassigned.
type Reassigning struct {
	TopicPartition
	Replicas, Adding, Removing []int32
}

// ListReassignments lists those of the partitions that are being reassigned; nil stands for
// all. The reply is a []Reassigning.
func (s *State) ListReassignments(_ time.Time, partitions []TopicPartition) machine.Result {
	img := s.Image()
	var out []Reassigning
	add := func(tp TopicPartition, p *meta.Partition) {
		if p != nil && len(p.Adding)+len(p.Removing) > 0 {
			out = append(out, Reassigning{tp, p.Replicas, p.Adding, p.Removing})
		}
	}
	if partitions == nil {
		for t := range img.Topics() {
			for i, p := range t.Partitions {
				add(TopicPartition{t.Name, int32(i)}, p)
			}
		}
	}
	for _, tp := range partitions {
		add(tp, img.Partition(tp.Topic, tp.Partition))
	}
	return s.result(out)
}
