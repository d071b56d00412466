package replica

import (
	"strconv"
	"time"

	"milena/internal/api"
)

// follower is what a leader knows of another replica.
type follower struct {
	end      int64     // its log end: the offset of its last fetch
	start    int64     // its log start
	caughtUp time.Time // when it last had everything
	// lastEnd and lastFetch are the leader's log end and the time at the last
	// fetch: a fetch at or above lastEnd was caught up at lastFetch.
	lastEnd   int64
	lastFetch time.Time
}

// committed is the high watermark by ISR arithmetic: the smallest log end of
// the in-sync replicas. A replica that hasn't fetched in this leadership
// counts as at -1, so that nothing commits before it is known.
func committed(self int32, selfEnd int64, isr []int32, followers map[int32]*follower) int64 {
	hw := selfEnd
	for _, id := range isr {
		if id == self {
			continue
		}
		f := followers[id]
		if f == nil {
			return -1
		}
		hw = min(hw, f.end)
	}
	return hw
}

// syncFollowers keeps an entry for each other replica while leading. mu is
// held alone.
func (p *Partition) syncFollowers(s *state) {
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	if !s.self || s.gone != nil || len(s.replicas) <= 1 {
		p.followers = nil
		return
	}
	next := make(map[int32]*follower, len(s.replicas)-1)
	for _, id := range s.replicas {
		if id == p.m.opts.NodeID {
			continue
		}
		if f := p.followers[id]; f != nil {
			next[id] = f
		} else {
			next[id] = &follower{end: -1, start: -1, lastEnd: -1}
		}
	}
	p.followers = next
}

// Followed notes a follower's fetch at offset: it has everything below. It
// reports whether id is a replica.
func (p *Partition) Followed(id int32, offset, start int64, now time.Time) bool {
	p.mu.RLock()
	p.hwMu.Lock()
	f := p.followers[id]
	if f != nil {
		end := p.log.EndOffset()
		switch {
		case offset >= end:
			f.caughtUp = now
		case f.lastEnd >= 0 && offset >= f.lastEnd:
			f.caughtUp = f.lastFetch
		}
		f.end, f.start, f.lastEnd, f.lastFetch = offset, start, end, now
	}
	p.hwMu.Unlock()
	mv := p.advance(p.st.Load(), 0)
	p.mu.RUnlock()
	p.announce(mv)
	return f != nil
}

// moved is a step of the high watermark, to be announced without locks.
type moved struct {
	hw    int64 // -1: it didn't move
	grown int   // bytes appended since the step before
	held  bool  // a transaction was open below the old mark
	woken []*waiter
}

// advance moves the high watermark as far as the in-sync replicas allow,
// after an append of that many bytes. mu is held, shared or alone, and s is
// the current state; the caller announces the step after it has released mu.
func (p *Partition) advance(s *state, appended int) moved {
	if !s.self || s.gone != nil {
		return moved{hw: -1}
	}
	p.hwMu.Lock()
	p.unseen += appended
	end := p.log.EndOffset()
	if p.settings.Load().durable() {
		end = min(end, p.log.RecoveryPoint())
	}
	old := p.hw.Load()
	hw := committed(p.m.opts.NodeID, end, s.isr, p.followers)
	if hw <= old {
		p.hwMu.Unlock()
		return moved{hw: -1}
	}
	// A transaction that was open below the old mark may end with this step,
	// and then more becomes readable than was appended.
	mv := moved{hw: hw, grown: p.unseen, held: p.log.LastStableOffset(old) < old}
	p.unseen = 0
	p.hw.Store(hw)
	p.log.UpdateHighWatermark(hw)
	p.hwMu.Unlock()
	mv.woken = p.takeWaiters(func(w *waiter) bool { return w.offset <= hw })
	return mv
}

// announce wakes those who wait for the high watermark.
func (p *Partition) announce(mv moved) {
	if mv.hw < 0 {
		return
	}
	for _, w := range mv.woken {
		w.fn(nil)
	}
	p.touchCommitted(mv.grown, mv.held, mv.hw)
}

// lowWatermark is the smallest log start of the replicas: what DeleteRecords
// reports. hwMu is held.
func lowWatermark(self int64, followers map[int32]*follower) int64 {
	low := self
	for _, f := range followers {
		low = min(low, f.start)
	}
	return low
}

// underMinISR reports whether the in-sync replicas are fewer than
// min.insync.replicas asks for. A topic with fewer replicas than that needs
// all of them.
func underMinISR(s *state, minISR int) bool {
	return len(s.isr) < min(minISR, max(1, len(s.replicas)))
}

// name is the partition as Kafka writes it.
func (p *Partition) name() string { return p.topic.name + "-" + strconv.Itoa(int(p.index)) }

// CheckMinISR says whether what the high watermark has passed counts for a
// produce with acks=all: NOT_ENOUGH_REPLICAS_AFTER_APPEND if the in-sync
// replicas are too few by now.
func (p *Partition) CheckMinISR() error {
	s := p.st.Load()
	if minISR := p.settings.Load().MinISR; underMinISR(s, minISR) {
		return api.Errorf(api.NotEnoughReplicasAfterAppend, "%s has %d in-sync replicas, min.insync.replicas is %d; the records are in its log", p.name(), len(s.isr), minISR)
	}
	return nil
}
