package controller

import (
	"cmp"
	"slices"
	"time"

	"milena/internal/machine"
	"milena/internal/meta"
)

// Timers of the periodic tasks, and how often the internal topics are looked at: raiseDelay
// after a broker has come, so that several that come together count together.
const (
	rebalanceTimer = "rebalance"
	uncleanTimer   = "unclean"
	raiseTimer     = "raise"
	raiseInterval  = 10 * time.Second
	raiseDelay     = time.Second
)

// maxElections bounds the elections of one run of a periodic task; what is left follows
// after moreDelay.
const (
	maxElections = 1000
	moreDelay    = time.Second
)

// soon runs a command after a while, instead of the one that waits under the key.
func (s *State) soon(key string, d time.Duration, cmd machine.Command) {
	if s.timers != nil {
		s.timers.After(key, d, cmd)
	}
}

func (s *State) startPeriodic() {
	if s.o.RebalanceInterval > 0 {
		s.soon(rebalanceTimer, s.o.RebalanceInterval, s.rebalance)
	}
	s.soon(uncleanTimer, s.o.UncleanInterval, s.electLeaderless)
	if s.o.InternalTopics != nil {
		s.soon(raiseTimer, raiseDelay, s.raise)
	}
}

func (s *State) rebalance(now time.Time) machine.Result {
	res := s.Rebalance(now)
	s.soon(rebalanceTimer, pause(res, s.o.RebalanceInterval), s.rebalance)
	return res
}

func (s *State) electLeaderless(now time.Time) machine.Result {
	res := s.ElectLeaderless(now)
	s.soon(uncleanTimer, pause(res, s.o.UncleanInterval), s.electLeaderless)
	return res
}

func (s *State) raise(now time.Time) machine.Result {
	if s.o.InternalTopics == nil {
		return machine.Result{}
	}
	s.soon(raiseTimer, raiseInterval, s.raise)
	return s.RaiseInternalTopics(now)
}

// pause is when a task that may have stopped at maxElections runs again.
func pause(res machine.Result, interval time.Duration) time.Duration {
	if len(res.Records) >= maxElections {
		return min(moreDelay, interval)
	}
	return interval
}

// Rebalance moves leaderships back to the preferred replicas, as far as these are in the ISR
// and no reassignment is about to replace them.
func (s *State) Rebalance(time.Time) machine.Result {
	return s.electWhere(s.Image(), electPreferred, func(p *meta.Partition) bool {
		return p.Leader != p.Replicas[0] && len(p.Adding)+len(p.Removing) == 0
	})
}

// ElectLeaderless tries again to elect a leader where there is none: unclean elections may
// have been allowed meanwhile.
func (s *State) ElectLeaderless(time.Time) machine.Result {
	return s.electWhere(s.Image(), electOnline, func(p *meta.Partition) bool { return p.Leader == meta.NoLeader })
}

// electWhere holds up to maxElections elections in the chosen partitions. An election that
// isn't for the preferred replica may be unclean where that is allowed.
func (s *State) electWhere(img *meta.Image, e election, chosen func(p *meta.Partition) bool) machine.Result {
	var recs []meta.Record
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			if !chosen(p) {
				continue
			}
			c := s.plan(img, t, int32(i))
			if e == electPreferred {
				c.election = e
			}
			if r := c.record(); r != nil {
				recs = append(recs, r)
			}
			if len(recs) == maxElections {
				return s.result(nil, recs...)
			}
		}
	}
	return s.result(nil, recs...)
}

// InternalTopic is a topic the cluster keeps its own state in, with the replication factor
// it shall have as soon as there are enough brokers.
type InternalTopic struct {
	Name              string
	ReplicationFactor int16
}

// RaiseInternalTopics adds replicas to the partitions of internal topics that have fewer
// than they shall have, and could have more on the active brokers.
func (s *State) RaiseInternalTopics(time.Time) machine.Result {
	if s.o.InternalTopics == nil {
		return machine.Result{}
	}
	img := s.Image()
	r := raising{img: img, load: map[int32]int{}, first: map[int32]int{}}
	for b := range img.Brokers() {
		if active(img, b.ID) {
			r.brokers = append(r.brokers, b)
		}
	}
	internal := slices.Clone(s.o.InternalTopics(img))
	slices.SortFunc(internal, func(a, b InternalTopic) int { return cmp.Compare(a.Name, b.Name) })
	for _, it := range internal {
		for _, p := range partitions(img.TopicByName(it.Name)) {
			r.count(p.Replicas)
		}
	}
	var recs []meta.Record
	for _, it := range internal {
		t := img.TopicByName(it.Name)
		for i, p := range partitions(t) {
			want := min(int(it.ReplicationFactor), len(r.brokers))
			if len(p.Replicas) >= want || len(p.Adding)+len(p.Removing) > 0 || p.Leader == meta.NoLeader {
				continue
			}
			c := s.plan(img, t, int32(i))
			c.adding = r.choose(p, want-len(p.Replicas))
			c.setReplicas(r.order(p, c.adding), func(b int32) dirID { return directory(img, b) })
			if rec := c.record(); rec != nil {
				recs = append(recs, rec)
			}
		}
	}
	if len(recs) > 0 {
		s.o.Logger.Info("internal topics get more replicas", "partitions", len(recs), "brokers", len(r.brokers))
	}
	return s.result(nil, recs...)
}

func partitions(t *meta.Topic) []*meta.Partition {
	if t == nil {
		return nil
	}
	return t.Partitions
}

// raising is one run of RaiseInternalTopics.
type raising struct {
	img     *meta.Image
	brokers []*meta.Broker
	load    map[int32]int // replicas of internal topics, by broker
	first   map[int32]int // preferred leaderships of those that are raised
}

func (r *raising) count(replicas []int32) {
	for _, b := range replicas {
		r.load[b]++
	}
}

// choose picks n brokers for a partition: other racks first, then the least loaded.
func (r *raising) choose(p *meta.Partition, n int) []int32 {
	var out []int32
	for range n {
		var best *meta.Broker
		worse := func(a, b *meta.Broker) int {
			return cmp.Or(cmp.Compare(r.inRack(a, p.Replicas, out), r.inRack(b, p.Replicas, out)), cmp.Compare(r.load[a.ID], r.load[b.ID]))
		}
		for _, b := range r.brokers {
			if slices.Contains(p.Replicas, b.ID) || slices.Contains(out, b.ID) {
				continue
			}
			if best == nil || worse(best, b) > 0 {
				best = b
			}
		}
		if best == nil {
			break
		}
		out = append(out, best.ID)
		r.load[best.ID]++
	}
	return out
}

// inRack counts the replicas in the broker's rack.
func (r *raising) inRack(b *meta.Broker, lists ...[]int32) int {
	n := 0
	for _, list := range lists {
		for _, id := range list {
			if o := r.img.Broker(id); o != nil && rack(o) == rack(b) {
				n++
			}
		}
	}
	return n
}

// order puts the replica first that is preferred least often so far, since what was made on
// a single broker prefers that one everywhere.
func (r *raising) order(p *meta.Partition, added []int32) []int32 {
	all := slices.Concat(p.Replicas, added)
	at := 0
	for i, b := range all {
		if r.first[b] < r.first[all[at]] {
			at = i
		}
	}
	preferred := all[at]
	r.first[preferred]++
	return append([]int32{preferred}, without(all, preferred)...)
}
