package replica

import (
	"sync"

	"milena/internal/ids"
)

// FetchKey names a partition in a fetch: by topic id from version 13 on, by
// name before.
type FetchKey struct {
	ID        ids.UUID
	Topic     string
	Partition int32
}

// FetchPart is one partition of a FetchSet. Its exported fields belong to the
// fetch that runs on the set; they are what the client asks for.
type FetchPart struct {
	Key          FetchKey
	Offset       int64
	LogStart     int64 // a follower's log start
	MaxBytes     int32
	CurrentEpoch int32 // -1: not given
	LastFetched  int32 // -1: not given
	// KnownHW is the high watermark that a follower says it knows (KIP-1166);
	// math.MaxInt64: not said, and outside of a session never waited for.
	KnownHW int64

	set       *FetchSet
	p         *Partition
	logEnd    bool // bounded by the log end, not the high watermark: a follower
	committed bool // bounded by the last stable offset
	pos       int  // in p.watches; guarded by p.wmu

	// What an incremental session told the client last.
	toldHW, toldStart int64
	toldTurn          int64 // of Partition.turn, of a follower

	// Guarded by set.mu: the part is in the queue of those to look at.
	queued bool
	next   *FetchPart
	gone   bool // removed from the set
}

// FetchSet is the partitions of a fetch session, or of one fetch without a
// session. Partitions that may have something new are in its queue; a fetch
// looks at those only.
//
// One fetch at a time runs on a set (Sessions sees to that); touches come
// from anywhere.
type FetchSet struct {
	mu         sync.Mutex
	head, tail *FetchPart
	queued     int
	// seen counts the bytes that touches announced since the fetch began to
	// look, urgent says that one asked for a look at once.
	seen   int64
	urgent bool
	wait   *FetchWait // of the fetch that waits, nil if none does
}

// Add puts f in the set, to be looked at by the next fetch.
func (s *FetchSet) Add(f *FetchPart, follower, readCommitted bool) {
	f.set, f.logEnd, f.committed = s, follower, readCommitted
	f.toldHW, f.toldStart, f.toldTurn = -1, -1, 0
	if follower {
		f.toldHW = f.KnownHW
	}
	s.requeue(f)
}

// Remove takes f out of the set for good.
func (s *FetchSet) Remove(f *FetchPart) {
	f.attach(nil)
	s.mu.Lock()
	f.gone = true
	if f.queued {
		s.queued-- // pop drops it
	}
	s.mu.Unlock()
}

// attach makes f watch p, instead of what it watched before.
func (f *FetchPart) attach(p *Partition) {
	if f.p == p {
		return
	}
	if f.p != nil {
		f.p.unwatch(f)
	}
	f.p = p
	if p != nil {
		p.watch(f)
	}
}

// touch tells that f's partition has bytes more to read, or, if urgent, that
// it has to be looked at in any case. Partition.wmu is held.
func (f *FetchPart) touch(bytes int, urgent bool) {
	s := f.set
	s.mu.Lock()
	s.push(f)
	s.seen += int64(bytes)
	s.urgent = s.urgent || urgent
	s.maybeFire()
	s.mu.Unlock()
}

// FetchWait is a fetch's wait for its set.
type FetchWait struct {
	Need int64 // bytes
	// Fire is called, in a goroutine of its own, when the wait is over.
	Fire func()
}

func (s *FetchSet) maybeFire() {
	if w := s.wait; w != nil && (s.urgent || s.seen >= w.Need) {
		s.wait = nil
		go w.Fire()
	}
}

func (s *FetchSet) push(f *FetchPart) {
	if f.queued || f.gone {
		return
	}
	f.queued, f.next = true, nil
	if s.tail == nil {
		s.head = f
	} else {
		s.tail.next = f
	}
	s.tail = f
	s.queued++
}

// requeue makes the next fetch look at f again.
func (s *FetchSet) requeue(f *FetchPart) {
	s.mu.Lock()
	s.push(f)
	s.mu.Unlock()
}

// begin starts a look at the queue: touches count from here. It returns how
// many parts are in it.
func (s *FetchSet) begin() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.urgent = 0, false
	return s.queued
}

// pop takes the first part off the queue, nil if there is none.
func (s *FetchSet) pop() *FetchPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := s.head; f != nil; f = s.head {
		s.head = f.next
		if s.head == nil {
			s.tail = nil
		}
		f.next, f.queued = nil, false
		if !f.gone {
			s.queued--
			return f
		}
	}
	return nil
}

// Wait has w fired once touches have announced w.Need bytes since the last
// Look began, or something that can't wait; that may be at once. Every wait is
// ended by its firing or by StopWaiting.
func (s *FetchSet) Wait(w *FetchWait) {
	s.mu.Lock()
	s.wait = w
	s.maybeFire()
	s.mu.Unlock()
}

// StopWaiting ends the wait w; false means that it is over already.
func (s *FetchSet) StopWaiting(w *FetchWait) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait != w {
		return false
	}
	s.wait = nil
	return true
}

// Limits bound one look at a set.
type Limits struct {
	MaxBytes int
	// ReplicaID is the follower's id, -1 for a consumer.
	ReplicaID int32
	// ReplicaEpoch is the follower's broker epoch, -1 if it isn't given.
	ReplicaEpoch int64
	// AnyReplica is that of ReadParams; with RackAware so is Rack.
	AnyReplica, RackAware bool
	Rack                  string
	// All, if not nil, are the parts to look at instead of the queue, each
	// with a result even when MaxBytes is used up: a response without a
	// session names every partition asked for.
	All []*FetchPart
}

// PartResult is what a look found in one partition.
type PartResult struct {
	Part *FetchPart
	ReadResult
	Err error
}

// Look reads the parts in the queue, in order, up to the limits, and appends
// to out. It returns the bytes found and whether something was found that
// must be answered at once: an error, a diverging epoch, a closer replica, or,
// for a follower, a high watermark it doesn't know. What has data, an
// error, a mark that the client wasn't told (a fetch that goes on waiting
// tells nothing), or was not reached stays in the queue.
func (m *Manager) Look(s *FetchSet, lim Limits, out []PartResult) (_ []PartResult, bytes int, now bool) {
	left := max(lim.MaxBytes, 0)
	look := func(f *FetchPart) {
		r := PartResult{Part: f}
		r.ReadResult, r.Err = m.readPart(f, &lim, min(left, int(f.MaxBytes)), bytes == 0)
		urgent := r.Err != nil || r.Diverges() || r.Preferred >= 0 || f.logEnd && (r.HighWatermark > f.toldHW || r.Turn != f.toldTurn)
		now = now || urgent
		if urgent || r.More || r.HighWatermark != f.toldHW || r.LogStart != f.toldStart {
			s.requeue(f)
		}
		bytes += r.Bytes
		left -= r.Bytes
		out = append(out, r)
	}
	n := s.begin()
	if lim.All != nil {
		for s.pop() != nil {
			continue
		}
		for _, f := range lim.All {
			look(f)
		}
		return out, bytes, now
	}
	for range n {
		if left <= 0 && bytes > 0 {
			break
		}
		f := s.pop()
		if f == nil {
			break
		}
		look(f)
	}
	return out, bytes, now
}

// readPart finds f's partition and reads from it.
func (m *Manager) readPart(f *FetchPart, lim *Limits, maxBytes int, minOne bool) (ReadResult, error) {
	if f.p == nil || f.p.st.Load().gone != nil {
		var p *Partition
		var err error
		if f.Key.Topic != "" {
			p, err = m.Get(f.Key.Topic, f.Key.Partition)
		} else {
			p, err = m.GetByID(f.Key.ID, f.Key.Partition)
		}
		if err != nil {
			f.attach(nil)
			return nothing, err
		}
		f.attach(p)
	}
	rack := lim.Rack
	if !lim.RackAware {
		rack = ""
	}
	return f.p.Read(ReadParams{
		Offset: f.Offset, MaxBytes: max(maxBytes, 0), MinOne: minOne, ReplicaID: lim.ReplicaID, ReplicaStart: f.LogStart,
		ReplicaEpoch: lim.ReplicaEpoch, AnyReplica: lim.AnyReplica, Rack: rack, Committed: f.committed, CurrentEpoch: f.CurrentEpoch, LastFetched: f.LastFetched,
	})
}

// Release releases the spans of results that aren't sent.
func Release(rs []PartResult) {
	for i := range rs {
		rs[i].ReadResult.Release()
	}
}

// Told notes what the client is told of r's partition and reports whether an
// incremental response must name it: it has data, an error, a diverging
// epoch, or a mark the client doesn't know.
func (r *PartResult) Told() bool {
	f := r.Part
	if r.Err != nil {
		f.toldHW = -1
		return true
	}
	if r.Bytes == 0 && !r.Diverges() && r.Preferred < 0 && r.HighWatermark == f.toldHW && r.LogStart == f.toldStart && (!f.logEnd || r.Turn == f.toldTurn) {
		return false
	}
	f.toldHW, f.toldStart, f.toldTurn = r.HighWatermark, r.LogStart, r.Turn
	return true
}

// Kick ends a wait at once.
func (s *FetchSet) Kick() {
	s.mu.Lock()
	s.urgent = true
	s.maybeFire()
	s.mu.Unlock()
}

// close takes every watch of the set's parts off; the parts are given since
// the set keeps none that is not queued.
func (s *FetchSet) close(parts func(yield func(*FetchPart) bool)) {
	for f := range parts {
		s.Remove(f)
	}
}
