package replica

import (
	"iter"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"milena/internal/api"
)

// sessionEvictionAge is how long a session has to be idle, or old, before
// another may take its slot (Kafka's min.incremental.fetch.session.eviction.ms).
const sessionEvictionAge = 2 * time.Minute

// partsPerSlot bounds the partitions of all sessions together, by the number
// of slots, so that no client fills the memory with them.
const partsPerSlot = 1000

// Sessions is the cache of incremental fetch sessions (KIP-227).
type Sessions struct {
	slots  int
	random func() uint32

	mu      sync.Mutex
	byID    map[int32]*Session
	parts   int
	evicted int64
}

// NewSessions returns a cache with the given number of slots.
func NewSessions(slots int, random func() uint32) *Sessions {
	if random == nil {
		random = rand.Uint32
	}
	return &Sessions{slots: slots, random: random, byID: map[int32]*Session{}}
}

// Session is an incremental fetch session: what one client fetches.
type Session struct {
	ID       int32
	byID     bool // topic ids are used
	follower bool
	created  time.Time

	cache *Sessions
	// lastUsed and size are guarded by cache.mu.
	lastUsed time.Time
	size     int

	// run is held by the fetch that looks at the set, never while it waits.
	run    sync.Mutex
	epoch  int32 // of the next request
	parts  map[FetchKey]*FetchPart
	set    FetchSet
	closed bool
}

// FetchRequest is the part of a fetch request that sessions decide on.
type FetchRequest struct {
	SessionID int32
	Epoch     int32
	ByID      bool // topic ids are used: version 13 and later
	ReplicaID int32
	Committed bool // read_committed
	Parts     []FetchPart
	Forgotten []FetchKey
}

// Epochs of a fetch request that begin a session and that want none.
const (
	SessionInitial int32 = 0
	SessionFinal   int32 = -1
)

// Fetch is one fetch request on its set.
type Fetch struct {
	Session *Session // nil: none, the response names every partition
	Set     *FetchSet
	// All are the partitions of a full response, nil for an incremental one.
	All   []*FetchPart
	epoch int32 // the session's when this fetch began
}

// Begin finds or creates the session of a request and brings it up to date.
// The error is FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
// FETCH_SESSION_TOPIC_ID_ERROR, for the whole request.
func (c *Sessions) Begin(r *FetchRequest, now time.Time) (*Fetch, error) {
	if r.Epoch == SessionInitial || r.Epoch == SessionFinal {
		if r.SessionID != 0 {
			c.remove(r.SessionID)
		}
		f := fullFetch(r)
		if r.Epoch == SessionInitial && len(f.All) > 0 {
			f.Session = c.create(r, f, now)
		}
		return f, nil
	}
	c.mu.Lock()
	s := c.byID[r.SessionID]
	full := c.parts+len(r.Parts) > c.slots*partsPerSlot
	c.mu.Unlock()
	if s != nil && full && len(r.Parts) > 0 {
		c.remove(r.SessionID)
		s = nil
	}
	if s == nil {
		return nil, api.Errorf(api.FetchSessionIDNotFound, "no fetch session %d; begin a new one", r.SessionID)
	}
	s.run.Lock()
	defer s.run.Unlock()
	switch {
	case s.closed:
		return nil, api.Errorf(api.FetchSessionIDNotFound, "no fetch session %d; begin a new one", r.SessionID)
	case s.byID != r.ByID:
		return nil, api.Errorf(api.FetchSessionTopicIDError, "fetch session %d mixes topic ids and names", r.SessionID)
	case s.epoch != r.Epoch:
		return nil, api.Errorf(api.InvalidFetchSessionEpoch, "fetch session %d expects epoch %d, not %d", r.SessionID, s.epoch, r.Epoch)
	}
	s.update(r)
	if len(s.parts) == 0 {
		s.closeLocked()
		c.drop(s)
		return fullFetch(r), nil
	}
	s.epoch = nextEpoch(s.epoch)
	// Only now: the fetch that waits may look again and go on waiting before the lock is ours, and nobody would wake it later.
	s.wake()
	c.used(s, now)
	return &Fetch{Session: s, Set: &s.set, epoch: s.epoch}, nil
}

// fullFetch is a fetch of what the request names, without a session.
func fullFetch(r *FetchRequest) *Fetch {
	f := &Fetch{Set: &FetchSet{}, All: make([]*FetchPart, len(r.Parts))}
	for i := range r.Parts {
		f.All[i] = &r.Parts[i]
		f.Set.Add(f.All[i], r.ReplicaID >= 0, r.Committed)
	}
	return f
}

// update takes over the request's changes. run is held.
func (s *Session) update(r *FetchRequest) {
	for i := range r.Parts {
		n := &r.Parts[i]
		if f := s.parts[n.Key]; f != nil {
			f.Offset, f.LogStart, f.MaxBytes = n.Offset, n.LogStart, n.MaxBytes
			f.CurrentEpoch, f.LastFetched = n.CurrentEpoch, n.LastFetched
			if s.follower && n.KnownHW != math.MaxInt64 {
				f.toldHW = n.KnownHW
			}
			s.set.requeue(f)
			continue
		}
		// A copy: the request's array would stay alive for one partition.
		f := &FetchPart{
			Key: n.Key, Offset: n.Offset, LogStart: n.LogStart, MaxBytes: n.MaxBytes,
			CurrentEpoch: n.CurrentEpoch, LastFetched: n.LastFetched, KnownHW: n.sessionHW(), toldHW: -1, // the client knows nothing of it
		}
		s.parts[f.Key] = f
		s.set.Add(f, s.follower, r.Committed)
	}
	for _, k := range r.Forgotten {
		if f := s.parts[k]; f != nil {
			delete(s.parts, k)
			s.set.Remove(f)
		}
	}
}

// create makes a session of a full fetch if there is a slot. The fetch itself
// then runs on the session's set.
func (c *Sessions) create(r *FetchRequest, f *Fetch, now time.Time) *Session {
	s := &Session{byID: r.ByID, follower: r.ReplicaID >= 0, created: now, cache: c, lastUsed: now, epoch: 1}
	keys := make(map[FetchKey]struct{}, len(f.All))
	for _, p := range f.All {
		keys[p.Key] = struct{}{}
	}
	s.size = len(keys)
	c.mu.Lock()
	if c.parts+s.size > c.slots*partsPerSlot {
		c.mu.Unlock()
		return nil
	}
	if len(c.byID) >= c.slots {
		victim := c.victim(s, now)
		if victim == nil {
			c.mu.Unlock()
			return nil
		}
		c.forget(victim)
		c.evicted++
		// The victim's own goroutine may hold run for a look: close it there.
		defer victim.close()
	}
	for s.ID == 0 || c.byID[s.ID] != nil {
		s.ID = int32(c.random() & math.MaxInt32)
	}
	c.byID[s.ID] = s
	c.parts += s.size
	c.mu.Unlock()

	s.parts = make(map[FetchKey]*FetchPart, len(f.All))
	all := make([]*FetchPart, 0, len(f.All))
	for _, p := range f.All {
		if s.parts[p.Key] != nil {
			continue // named twice: the first counts
		}
		n := &FetchPart{
			Key: p.Key, Offset: p.Offset, LogStart: p.LogStart, MaxBytes: p.MaxBytes,
			CurrentEpoch: p.CurrentEpoch, LastFetched: p.LastFetched, KnownHW: p.sessionHW(),
		}
		s.parts[n.Key] = n
		s.set.Add(n, s.follower, r.Committed)
		all = append(all, n)
	}
	f.Set, f.All, f.epoch = &s.set, all, s.epoch
	return s
}

// sessionHW is the high watermark that a follower is taken to know when its
// part enters a session.
func (f *FetchPart) sessionHW() int64 {
	if f.KnownHW == math.MaxInt64 {
		return -1
	}
	return f.KnownHW
}

// victim chooses the session to evict for s: one idle for long, else the
// least valuable that had its time, if it is worth less than s. Followers'
// sessions are worth more than consumers', larger ones more than smaller.
// c.mu is held.
func (c *Sessions) victim(s *Session, now time.Time) *Session {
	var oldest, least *Session
	for _, o := range c.byID {
		if oldest == nil || o.lastUsed.Before(oldest.lastUsed) || o.lastUsed.Equal(oldest.lastUsed) && o.ID < oldest.ID {
			oldest = o
		}
		aged := now.Sub(o.created) > sessionEvictionAge
		if aged || s.follower && !o.follower {
			if least == nil || less(o, least) {
				least = o
			}
		}
	}
	if oldest != nil && now.Sub(oldest.lastUsed) > sessionEvictionAge {
		return oldest
	}
	if least != nil && less(least, s) {
		return least
	}
	return nil
}

// less orders sessions by worth.
func less(a, b *Session) bool {
	if a.follower != b.follower {
		return !a.follower
	}
	if a.size != b.size {
		return a.size < b.size
	}
	return a.ID < b.ID
}

func (c *Sessions) used(s *Session, now time.Time) {
	c.mu.Lock()
	if c.byID[s.ID] == s {
		c.parts += len(s.parts) - s.size
		s.size = len(s.parts)
		s.lastUsed = now
	}
	c.mu.Unlock()
}

// forget takes s out of the cache. c.mu is held.
func (c *Sessions) forget(s *Session) {
	if c.byID[s.ID] == s {
		delete(c.byID, s.ID)
		c.parts -= s.size
	}
}

func (c *Sessions) drop(s *Session) {
	c.mu.Lock()
	c.forget(s)
	c.mu.Unlock()
}

func (c *Sessions) remove(id int32) {
	c.mu.Lock()
	s := c.byID[id]
	if s != nil {
		c.forget(s)
	}
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Stats are the cache's numbers for the metrics.
func (c *Sessions) Stats() (sessions, partitions int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID), c.parts, c.evicted
}

func (s *Session) close() {
	s.run.Lock()
	s.closeLocked()
	s.run.Unlock()
}

func (s *Session) closeLocked() {
	if s.closed {
		return
	}
	s.closed = true
	s.set.close(s.all())
	s.parts = nil
	s.wake()
}

func (s *Session) all() iter.Seq[*FetchPart] {
	return func(yield func(*FetchPart) bool) {
		for _, f := range s.parts {
			if !yield(f) {
				return
			}
		}
	}
}

// wake ends the wait of the fetch under way.
func (s *Session) wake() { s.set.Kick() }

// Run calls fn while no other fetch and no change runs on the set. last says
// that the fetch must not wait any longer, because the session's next request
// is here already. Run returns false, without calling fn, if the session was
// closed in the meantime.
func (f *Fetch) Run(fn func(last bool)) bool {
	if f.Session == nil {
		fn(false)
		return true
	}
	f.Session.run.Lock()
	defer f.Session.run.Unlock()
	if f.Session.closed {
		return false
	}
	fn(f.epoch != f.Session.epoch)
	return true
}

// End takes the watches of a fetch without a session off its partitions.
func (f *Fetch) End() {
	if f.Session != nil {
		return
	}
	for _, p := range f.All {
		f.Set.Remove(p)
	}
}

// nextEpoch is the epoch after e; it wraps to 1.
func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}
