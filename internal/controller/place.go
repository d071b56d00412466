package controller

import (
	"cmp"
	"slices"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// placement puts new replicas on brokers: leaders go round robin over the active brokers,
// and the replicas of a partition go to different racks as long as there are enough.
type placement struct {
	brokers []*meta.Broker // rack after rack in turn, so neighbours differ in rack
	active  int            // how many of them, at the front, are active
	start   int
}

// placer prepares a placement with the replication factor rf. Fenced brokers are used only
// if there are too few active ones, and never for the first replica.
func (s *State) placer(img *meta.Image, rf int, activeOnly bool) (*placement, *api.Error) {
	var up, down []*meta.Broker
	for b := range img.Brokers() {
		if active(img, b.ID) {
			up = append(up, b)
		} else {
			down = append(down, b)
		}
	}
	n := len(up)
	all := interleave(up)
	if n < rf && !activeOnly {
		all = append(all, interleave(down)...)
	}
	switch {
	case len(up) == 0 && len(down) > 0:
		return nil, api.Errorf(api.InvalidReplicationFactor,
			"no replica can be placed: all brokers are fenced or shutting down")
	case len(all) < rf:
		return nil, api.Errorf(api.InvalidReplicationFactor,
			"the replication factor %d can't be reached: there are only %d usable broker(s)", rf, len(all))
	}
	start, err := s.random(n)
	if err != nil {
		return nil, api.Errorf(api.UnknownServerError, "%w", err)
	}
	return &placement{brokers: all, active: n, start: start}, nil
}

// interleave orders brokers so that racks take turns.
func interleave(brokers []*meta.Broker) []*meta.Broker {
	byRack := map[string][]*meta.Broker{}
	var racks []string
	for _, b := range brokers {
		r := rack(b)
		if byRack[r] == nil {
			racks = append(racks, r)
		}
		byRack[r] = append(byRack[r], b)
	}
	slices.SortFunc(racks, cmp.Compare[string])
	out := make([]*meta.Broker, 0, len(brokers))
	for i := 0; len(out) < len(brokers); i++ {
		for _, r := range racks {
			if i < len(byRack[r]) {
				out = append(out, byRack[r][i])
			}
		}
	}
	return out
}

func rack(b *meta.Broker) string {
	if b.Rack == nil {
		return ""
	}
	return *b.Rack
}

// replicas places partition number i.
func (p *placement) replicas(i, rf int) []int32 {
	first := (p.start + i) % p.active
	shift := (i / p.active) % len(p.brokers) // so that the followers of one leader vary
	out := []int32{p.brokers[first].ID}
	racks := map[string]bool{rack(p.brokers[first]): true}
	for _, newRack := range []bool{true, false} {
		for k := 1; k < len(p.brokers) && len(out) < rf; k++ {
			b := p.brokers[(first+1+(k-1+shift)%(len(p.brokers)-1))%len(p.brokers)]
			if newRack && racks[rack(b)] || slices.Contains(out, b.ID) {
				continue
			}
			racks[rack(b)] = true
			out = append(out, b.ID)
		}
	}
	return out
}

// directory is where a new replica goes: the broker's only directory, or unassigned so
// that the broker chooses.
func directory(img *meta.Image, broker int32) ids.UUID {
	if b := img.Broker(broker); b != nil && len(b.LogDirs) == 1 {
		return b.LogDirs[0]
	}
	return ids.UnassignedDir
}

// newPartition is the record of a new partition: its ISR are the active replicas, the
// first of them leads.
func newPartition(img *meta.Image, topic ids.UUID, partition int32, replicas []int32) *meta.PartitionRecord {
	r := &meta.PartitionRecord{PartitionID: partition, TopicID: topic, Replicas: replicas, Leader: meta.NoLeader}
	for _, b := range replicas {
		r.Directories = append(r.Directories, directory(img, b))
		if active(img, b) {
			r.ISR = append(r.ISR, b)
		}
	}
	if len(r.ISR) > 0 {
		r.Leader = r.ISR[0]
	}
	return r
}

// checkAssignment checks a list of brokers that a client chose for a partition; rf is how
// many there must be, or 0.
func checkAssignment(img *meta.Image, partition int, replicas []int32, rf int) *api.Error {
	if len(replicas) == 0 {
		return api.Errorf(api.InvalidReplicaAssignment, "the assignment of partition %d has no replica", partition)
	}
	anyActive := false
	for i, b := range replicas {
		switch {
		case slices.Contains(replicas[:i], b):
			return api.Errorf(api.InvalidReplicaAssignment, "the assignment of partition %d has broker %d twice", partition, b)
		case img.Broker(b) == nil:
			return api.Errorf(api.InvalidReplicaAssignment, "the assignment of partition %d has broker %d, which is not registered", partition, b)
		}
		anyActive = anyActive || active(img, b)
	}
	switch {
	case rf != 0 && rf != len(replicas):
		return api.Errorf(api.InvalidReplicaAssignment, "the assignment of partition %d has %d replicas, those before have %d",
			partition, len(replicas), rf)
	case !anyActive:
		return api.Errorf(api.InvalidReplicaAssignment,
			"all brokers in the assignment of partition %d are fenced or shutting down", partition)
	}
	return nil
}
