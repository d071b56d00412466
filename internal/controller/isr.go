package controller

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// ISRMember is a replica in a wished ISR.
type ISRMember struct {
	Broker int32
	// Epoch is the broker epoch the leader knows of it, -1 if it doesn't (KIP-903).
	Epoch int64
}

// AlterISR is a leader's wish to change a partition's ISR.
type AlterISR struct {
	Topic          ids.UUID
	Partition      int32
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []ISRMember
	// Recovery is meta.LeaderRecovering until the leader has recovered from an unclean
	// election.
	Recovery int8
	// Cut, if not nil, is an offset that the leader's log was cut to: what replicas outside of
	// the ISR hold from there on isn't the partition's (meta.Unaligned).
	Cut *int64
}

// AlterISRResult is the partition after the change, or why it was refused.
type AlterISRResult struct {
	Err            *api.Error
	Leader         int32
	LeaderEpoch    int32
	ISR            []int32
	Recovery       int8
	PartitionEpoch int32
}

// AlterPartition changes ISRs as their leader, a broker, wishes (KIP-497, KIP-841). The
// reply is an []AlterISRResult in the order of changes. A change that completes a
// reassignment may move the leadership: NEW_LEADER_ELECTED.
func (s *State) AlterPartition(_ time.Time, broker int32, brokerEpoch int64, changes []AlterISR) machine.Result {
	img := s.Image()
	if _, err := checkBroker(img, broker, brokerEpoch); err != nil {
		return machine.Result{Err: err}
	}
	type key struct {
		topic     ids.UUID
		partition int32
	}
	seen := map[key]bool{}
	results := make([]AlterISRResult, len(changes))
	var recs []meta.Record
	for i, ch := range changes {
		if k := (key{ch.Topic, ch.Partition}); seen[k] {
			results[i].Err = api.Errorf(api.InvalidRequest, "partition %d of topic %s is in the request more than once", ch.Partition, ch.Topic)
			continue
		} else {
			seen[k] = true
		}
		rec, res := s.alterISR(img, broker, ch)
		if rec != nil {
			recs = append(recs, rec)
		}
		results[i] = res
	}
	return s.result(results, recs...)
}

func (s *State) alterISR(img *meta.Image, broker int32, ch AlterISR) (*meta.PartitionChangeRecord, AlterISRResult) {
	t := img.TopicByID(ch.Topic)
	p := t.Partition(ch.Partition)
	if err := checkAlterISR(img, t, p, broker, ch); err != nil {
		return nil, AlterISRResult{Err: err}
	}
	c := s.plan(img, t, ch.Partition)
	c.recovery = ch.Recovery
	c.isr = make([]int32, len(ch.ISR))
	for i, m := range ch.ISR {
		c.isr[i] = m.Broker
	}
	c.aligned, c.cut = c.isr, ch.Cut
	rec := c.record()
	after := *p
	if rec != nil {
		after = rec.Change(after)
	}
	res := AlterISRResult{
		Leader: after.Leader, LeaderEpoch: after.LeaderEpoch, ISR: after.ISR, Recovery: after.LeaderRecoveryState, PartitionEpoch: after.PartitionEpoch,
	}
	if after.Leader != broker {
		res.Err = api.Errorf(api.NewLeaderElected, "partition %d of topic %s has its new replicas; broker %d leads it now", ch.Partition, t.Name, after.Leader)
	}
	return rec, res
}

func checkAlterISR(img *meta.Image, t *meta.Topic, p *meta.Partition, broker int32, ch AlterISR) *api.Error {
	switch {
	case t == nil:
		return api.Errorf(api.UnknownTopicID, "there is no topic with id %s", ch.Topic)
	case p == nil:
		return api.Errorf(api.UnknownTopicOrPartition, "topic %s has no partition %d", t.Name, ch.Partition)
	}
	refuse := func(code api.Code, format string, args ...any) *api.Error {
		return api.Errorf(code, "ISR of partition %d of topic %s: "+format, append([]any{ch.Partition, t.Name}, args...)...)
	}
	switch {
	case ch.LeaderEpoch > p.LeaderEpoch || ch.PartitionEpoch > p.PartitionEpoch:
		return refuse(api.NotController, "leader epoch %d and partition epoch %d are newer than %d and %d here, so another controller is active",
			ch.LeaderEpoch, ch.PartitionEpoch, p.LeaderEpoch, p.PartitionEpoch)
	case ch.LeaderEpoch < p.LeaderEpoch:
		return refuse(api.FencedLeaderEpoch, "leader epoch %d is past, it is %d", ch.LeaderEpoch, p.LeaderEpoch)
	case broker != p.Leader:
		return refuse(api.InvalidRequest, "broker %d is not the leader, %d is", broker, p.Leader)
	case ch.PartitionEpoch < p.PartitionEpoch:
		return refuse(api.InvalidUpdateVersion, "partition epoch %d is past, it is %d", ch.PartitionEpoch, p.PartitionEpoch)
	case ch.Recovery == meta.LeaderRecovering && (len(ch.ISR) > 1 || p.LeaderRecoveryState == meta.LeaderRecovered):
		return refuse(api.InvalidRequest, "a leader that recovers is the only member, and one that has recovered does not begin again")
	case ch.Recovery != meta.LeaderRecovering && ch.Recovery != meta.LeaderRecovered:
		return refuse(api.InvalidRequest, "leader recovery state %d is unknown", ch.Recovery)
	case ch.Cut != nil && *ch.Cut < 0:
		return refuse(api.InvalidRequest, "a log can't be cut to offset %d", *ch.Cut)
	case ch.Cut != nil && img.Feature(MirrorFeature) < meta.UnalignedLevel:
		return refuse(api.UnsupportedVersion, "cuts are noted from level %d of feature %s on", meta.UnalignedLevel, MirrorFeature)
	}
	hasLeader := false
	for i, m := range ch.ISR {
		if !slices.Contains(p.Replicas, m.Broker) || slices.ContainsFunc(ch.ISR[:i], func(o ISRMember) bool { return o.Broker == m.Broker }) {
			return refuse(api.InvalidRequest, "broker %d is no replica or is listed twice", m.Broker)
		}
		hasLeader = hasLeader || m.Broker == broker
	}
	if !hasLeader {
		return refuse(api.InvalidRequest, "the leader %d is missing", broker)
	}
	for _, m := range ch.ISR {
		if why := ineligible(img, p, m); why != "" {
			return refuse(api.IneligibleReplica, "broker %d %s", m.Broker, why)
		}
	}
	return nil
}

// ineligible says why a replica may not be in an ISR, "" if it may (KIP-841, KIP-903).
func ineligible(img *meta.Image, p *meta.Partition, m ISRMember) string {
	b := img.Broker(m.Broker)
	i := slices.Index(p.Replicas, m.Broker)
	switch {
	case b == nil:
		return "is not registered"
	case b.Fenced:
		return "is fenced"
	case b.ShuttingDown:
		return "is shutting down"
	case m.Epoch != -1 && m.Epoch != b.Epoch:
		return "has been registered again"
	case i < len(p.Dirs) && !b.HasDir(p.Dirs[i]):
		return "lost the directory of the replica"
	default:
		return ""
	}
}

// dirID is the id of a log directory.
type dirID = ids.UUID

// ElectionKind is what an ElectLeaders request asks for, with the protocol's numbers.
type ElectionKind int8

// Kinds of elections (KIP-460).
const (
	PreferredElection ElectionKind = 0
	UncleanElection   ElectionKind = 1
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// ElectionResult is what became of one election.
type ElectionResult struct {
	TopicPartition
	Err *api.Error
}

// ElectLeaders holds elections in the partitions, or where nil is given in all that need
// one. The reply is an []ElectionResult.
func (s *State) ElectLeaders(_ time.Time, kind ElectionKind, partitions []TopicPartition) machine.Result {
	img := s.Image()
	if kind != PreferredElection && kind != UncleanElection {
		return machine.Result{Err: api.Errorf(api.InvalidRequest, "election type %d is unknown", kind)}
	}
	var recs []meta.Record
	var results []ElectionResult
	one := func(tp TopicPartition, all bool) {
		rec, err := s.electLeader(img, kind, tp)
		if rec != nil {
			recs = append(recs, rec)
		}
		if !all || err == nil || err.Code != api.ElectionNotNeeded {
			results = append(results, ElectionResult{tp, err})
		}
	}
	if partitions == nil {
		for t := range img.Topics() {
			for i := range t.Partitions {
				one(TopicPartition{t.Name, int32(i)}, true)
			}
		}
		return s.result(results, recs...)
	}
	seen := map[TopicPartition]bool{}
	for _, tp := range partitions {
		if !seen[tp] {
			seen[tp] = true
			one(tp, false)
		}
	}
	return s.result(results, recs...)
}

func (s *State) electLeader(img *meta.Image, kind ElectionKind, tp TopicPartition) (*meta.PartitionChangeRecord, *api.Error) {
	t := img.TopicByName(tp.Topic)
	p := t.Partition(tp.Partition)
	switch {
	case p == nil:
		return nil, api.Errorf(api.UnknownTopicOrPartition, "there is no partition %d of topic %s", tp.Partition, tp.Topic)
	case kind == PreferredElection && p.Leader == p.Replicas[0]:
		return nil, api.Errorf(api.ElectionNotNeeded, "the preferred replica %d leads already", p.Leader)
	case kind == UncleanElection && p.Leader != meta.NoLeader:
		return nil, api.Errorf(api.ElectionNotNeeded, "the partition has a leader, %d", p.Leader)
	}
	c := s.plan(img, t, tp.Partition)
	c.election = electPreferred
	if kind == UncleanElection {
		c.election = electUnclean
	}
	rec := c.record()
	switch {
	case kind == PreferredElection && (rec == nil || rec.Leader != p.Replicas[0]):
		return nil, api.Errorf(api.PreferredLeaderNotAvailable, "the preferred replica %d is not in sync, or its broker is away", p.Replicas[0])
	case rec == nil || rec.Leader < 0:
		return nil, api.Errorf(api.EligibleLeadersNotAvailable, "no replica of %v is there to lead", p.Replicas)
	}
	return rec, nil
}
