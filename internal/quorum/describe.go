package quorum

import (
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Replica is what is known of somebody who copies the log.
type Replica struct {
	Member
	EndOffset    int64     // of its log; -1 if unknown
	LastFetch    time.Time // when it was last heard of; zero if unknown
	LastCaughtUp time.Time // up to when it is known to have had everything; zero if unknown
}

// Description tells how far everybody is.
type Description struct {
	Status
	VoterSet  []Voter
	Voters    []Replica
	Observers []Replica // voters that are being added, brokers and other readers
}

// follower is what the leader has seen of a member. The times are the leader's.
type follower struct {
	lastFetch time.Time
	lastEnd   uint64 // the log's end at that time, as an index
	caughtUp  time.Time
}

// heardFrom notes a reply of a follower.
func (d *driver) heardFrom(id uint64) {
	match, ok := uint64(0), false
	d.raft.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			match, ok = pr.Match, true
		}
	})
	if !ok {
		return
	}
	if d.change != nil && raftID(d.change.voter.Member) == id {
		d.change.silent = 0
	}
	f := d.follows[id]
	if f == nil {
		f = &follower{}
		d.follows[id] = f
	}
	now, end := time.Now(), d.store.lastIndex()
	switch {
	case match >= end:
		f.caughtUp = now
	case match >= f.lastEnd && !f.lastFetch.IsZero():
		f.caughtUp = f.lastFetch
	}
	f.lastFetch, f.lastEnd = now, end
}

func (n *Node) describe() (Description, error) {
	var out Description
	err := n.call(func() { out = n.driver.describe() })
	return out, err
}

func (d *driver) describe() Description {
	p := d.n.state.Load()
	out := Description{Status: p.Status, VoterSet: slices.Clone(p.voters)}
	match := map[uint64]uint64{}
	d.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { match[id] = pr.Match })
	replica := func(v Voter) Replica {
		r := Replica{Member: v.Member, EndOffset: -1}
		id := raftID(v.Member)
		if id == d.n.id {
			r.EndOffset, r.LastFetch, r.LastCaughtUp = p.EndOffset, time.Now(), time.Now()
			return r
		}
		if f := d.follows[id]; p.IsLeader && f != nil {
			r.EndOffset, r.LastFetch, r.LastCaughtUp = d.store.offsetAfter(match[id]), f.lastFetch, f.caughtUp
		}
		return r
	}
	conf, _ := d.conf()
	for _, m := range conf.members {
		if _, learns := conf.learner(raftID(m.Member)); learns {
			out.Observers = append(out.Observers, replica(m))
		} else {
			out.Voters = append(out.Voters, replica(m))
		}
	}
	for _, o := range d.n.observers.list(time.Now()) {
		known := slices.ContainsFunc(conf.members, func(v Voter) bool {
			return v.Member == o.Member || v.ID == o.ID && o.Directory.IsZero()
		})
		if !known {
			out.Observers = append(out.Observers, o)
		}
	}
	return out
}

// offsetAfter returns the metadata offset after an entry, -1 if that is not known any more.
func (s *store) offsetAfter(index uint64) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	base := s.entries[0].GetIndex()
	if index < base || index-base >= uint64(len(s.ends)) {
		return -1
	}
	return s.ends[index-base]
}

const (
	// observerLife is how long an sighting stays that doesn't fetch any more.
	observerLife = 5 * time.Minute
	// maxObservers bounds how many are remembered.
	maxObservers = 10_000
)

// observers are the readers of the log that have no vote.
type observers struct {
	mu   sync.Mutex
	seen map[Member]*sighting
}

type sighting struct {
	offset       int64
	lastFetch    time.Time
	lastEnd      int64 // the log's end then
	lastCaughtUp time.Time
}

// fetched notes a fetch from offset on, when the log ended at end.
func (o *observers) fetched(m Member, offset, end int64) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.get(m, now)
	if s == nil {
		return
	}
	switch {
	case offset >= end:
		s.lastCaughtUp = now
	case offset >= s.lastEnd && !s.lastFetch.IsZero():
		s.lastCaughtUp = s.lastFetch
	}
	s.offset, s.lastFetch, s.lastEnd = offset, now, end
}

// learn takes in what another controller has seen.
func (o *observers) learn(list []Replica) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range list {
		s := o.get(r.Member, now)
		if s == nil || !r.LastFetch.After(s.lastFetch) {
			continue
		}
		s.offset, s.lastFetch, s.lastEnd = r.EndOffset, r.LastFetch, r.EndOffset
		if r.LastCaughtUp.After(s.lastCaughtUp) {
			s.lastCaughtUp = r.LastCaughtUp
		}
	}
}

// get returns the sighting, nil if there is no room for one more.
func (o *observers) get(m Member, now time.Time) *sighting {
	if s := o.seen[m]; s != nil {
		return s
	}
	if len(o.seen) >= maxObservers {
		o.expire(now)
	}
	if len(o.seen) >= maxObservers {
		return nil
	}
	if o.seen == nil {
		o.seen = map[Member]*sighting{}
	}
	s := &sighting{}
	o.seen[m] = s
	return s
}

func (o *observers) expire(now time.Time) {
	for m, s := range o.seen {
		if now.Sub(s.lastFetch) > observerLife {
			delete(o.seen, m)
		}
	}
}

// list returns the observers in the order of their ids.
func (o *observers) list(now time.Time) []Replica {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire(now)
	var out []Replica
	for m, s := range o.seen {
		out = append(out, Replica{Member: m, EndOffset: s.offset, LastFetch: s.lastFetch, LastCaughtUp: s.lastCaughtUp})
	}
	slices.SortFunc(out, func(a, b Replica) int { return compareMembers(a.Member, b.Member) })
	return out
}

// Observers returns those that have fetched from this node lately. Times are this node's.
func (n *Node) Observers() []Replica { return n.observers.list(time.Now()) }

// LearnObservers takes in the observers of another controller, with this node's times.
func (n *Node) LearnObservers(list []Replica) { n.observers.learn(list) }

const (
	defaultElectionTimeout = 500 * time.Millisecond
	defaultElectionTicks   = 10
)

// Ticks returns Options.Tick and Options.ElectionTicks for the settings
// controller.quorum.fetch.timeout.ms (how long a voter waits for word from the leader)
// and controller.quorum.election.timeout.ms (how long a candidate waits for votes). Raft
// has one time for both: the longer one. Zero or less is the default of 500 ms.
func Ticks(fetchTimeout, electionTimeout time.Duration) (tick time.Duration, electionTicks int) {
	t := max(fetchTimeout, electionTimeout)
	if t <= 0 {
		t = defaultElectionTimeout
	}
	return max(t/defaultElectionTicks, time.Millisecond), defaultElectionTicks
}
