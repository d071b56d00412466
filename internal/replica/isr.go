package replica

import (
	"slices"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/meta"
)

// follower is what a leader knows of another replica. Partition.hwMu guards it.
type follower struct {
	end      int64     // its log end: the offset of its last fetch, -1 before the first
	start    int64     // its log start, -1 before the first fetch
	caughtUp time.Time // when it last had everything
	// lastEnd and lastFetch are the leader's log end and the time at the last
	// fetch: a fetch at or above lastEnd was caught up at lastFetch.
	lastEnd     int64
	lastFetch   time.Time
	brokerEpoch int64 // of its last fetch (KIP-903), -1: not known
	// cutTo is where the leader's log was cut to, until the follower has shown that its own doesn't go beyond; -1: it needn't.
	cutTo int64
	// heard is when its broker last fetched anything here: a fetch of a session
	// names only what changed.
	heard *heard
}

// mustCut has the follower cut its log if the metadata says that it has to.
func (f *follower) mustCut(unaligned []meta.Unaligned, id int32) {
	if to, ok := meta.UnalignedAt(unaligned, id); ok && (f.cutTo < 0 || to < f.cutTo) {
		f.cutTo = to
	}
}

// inSync reports whether the follower has everything, or had it no longer ago
// than maxLag.
func (f *follower) inSync(leaderEnd int64, now time.Time, maxLag time.Duration) bool {
	return f.end == leaderEnd || now.Sub(f.caughtUp) <= maxLag
}

// fetched notes a fetch at offset while the leader's log ends at end.
func (f *follower) fetched(offset, start, end int64, now time.Time) {
	switch {
	case offset >= end:
		f.caughtUp = now
	case f.lastEnd >= 0 && offset >= f.lastEnd && f.lastFetch.After(f.caughtUp):
		f.caughtUp = f.lastFetch
	}
	f.end, f.start, f.lastEnd, f.lastFetch = offset, start, end, now
}

// outgrown notes that the leader appended to a log that ended at end: a
// follower that had all of it was caught up when its broker last fetched. began is
// when the manager began, which fetches are timed from.
func (f *follower) outgrown(end int64, began time.Time) {
	if f.end < end {
		return
	}
	if at := began.Add(time.Duration(f.heard.at.Load())); at.After(f.caughtUp) {
		f.caughtUp = at
	}
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

// syncFollowers keeps an entry for each other replica while leading. With a
// new leader epoch those in the ISR count as caught up now, and nothing is known of
// their logs: another may have led between two epochs of this one, and had them cut.
// mu is held alone.
func (p *Partition) syncFollowers(s, old *state, now time.Time) {
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
		f := p.followers[id]
		switch {
		case f == nil || !old.self:
			f = &follower{end: -1, start: -1, lastEnd: -1, cutTo: -1, brokerEpoch: -1, heard: p.m.heardOf(id)}
			f.mustCut(s.unaligned, id)
		case s.epoch != old.epoch:
			f.end, f.lastEnd = -1, -1
			if s.version != old.version+1 { // else only the epoch was raised
				f.mustCut(s.unaligned, id)
			}
		}
		if slices.Contains(s.isr, id) && (!old.self || s.epoch != old.epoch || !slices.Contains(old.isr, id)) {
			f.caughtUp = now
		}
		next[id] = f
	}
	p.followers = next
}

// FollowerFetch is what a follower's fetch says of its replica.
type FollowerFetch struct {
	Broker      int32
	Epoch       int32 // leader epoch in which the fetch was admitted
	BrokerEpoch int64 // -1: not said
	Offset      int64 // the replica's log end
	LogStart    int64
}

// Followed notes a follower's fetch: it has everything below its offset. The
// error is NOT_LEADER_OR_FOLLOWER if the broker has no replica, or if the fetch
// comes from an earlier incarnation of it (KIP-903); FENCED_LEADER_EPOCH if
// another leadership has begun since it was admitted: the one between may have had
// the follower's log cut.
func (p *Partition) Followed(ff FollowerFetch, now time.Time) error {
	p.mu.RLock()
	s := p.st.Load()
	p.hwMu.Lock()
	f := p.followers[ff.Broker]
	_, err := p.leading(ff.Epoch)
	if err == nil {
		err = p.checkFollower(f, ff)
	}
	aligned := false
	if err == nil {
		aligned, err = p.aligned(f, ff.Offset)
	}
	if err != nil {
		p.hwMu.Unlock()
		p.mu.RUnlock()
		return err
	}
	low := ff.LogStart > f.start
	f.brokerEpoch = ff.BrokerEpoch
	f.fetched(ff.Offset, ff.LogStart, p.l().EndOffset(), now)
	p.hwMu.Unlock()
	mv := p.advance(s, 0)
	p.expand(s, now, ff.Broker, true)
	var lows lowWaiters
	if low {
		lows = p.takeLow(false)
	}
	p.mu.RUnlock()
	p.announce(mv)
	lows.tell(p, s)
	if fn := p.onAligned.Load(); aligned && fn != nil {
		(*fn)()
	}
	return nil
}

// checkFollower says whether a fetch may count. hwMu is held.
func (p *Partition) checkFollower(f *follower, ff FollowerFetch) error {
	if f == nil {
		return api.Errorf(api.NotLeaderOrFollower, "broker %d has no replica of %s", ff.Broker, p.name())
	}
	if ff.BrokerEpoch < 0 {
		return nil
	}
	known := f.brokerEpoch
	if b := p.m.Image().Broker(ff.Broker); b != nil {
		known = max(known, b.Epoch)
	}
	if ff.BrokerEpoch < known {
		return api.Errorf(api.NotLeaderOrFollower, "fetch of %s by broker %d with epoch %d, it has registered with epoch %d since", p.name(), ff.Broker, ff.BrokerEpoch, known)
	}
	return nil
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
//
// While a change of the ISR is under way every replica of the old and the new
// one counts. With fewer in-sync replicas than min.insync.replicas nothing
// commits (KIP-966).
func (p *Partition) advance(s *state, appended int) moved {
	if !s.self || s.gone != nil {
		return moved{hw: -1}
	}
	p.hwMu.Lock()
	p.unseen += appended
	set := p.settings.Load()
	if underMinISR(s, set.MinISR) {
		p.hwMu.Unlock()
		return moved{hw: -1}
	}
	end := p.l().EndOffset()
	if set.durable() {
		end = min(end, p.l().RecoveryPoint())
	}
	old := p.hw.Load()
	hw := committed(p.m.opts.NodeID, end, s.isr, p.followers)
	if len(s.isr) < len(s.replicas) {
		hw = p.joining(s, hw)
	}
	if mutant == "shrink" && p.proposal != nil {
		hw = committed(p.m.opts.NodeID, end, p.proposal.isr, p.followers)
	}
	if hw <= old {
		p.hwMu.Unlock()
		return moved{hw: -1}
	}
	// A transaction that was open below the old mark may end with this step,
	// and then more becomes readable than was appended.
	mv := moved{hw: hw, grown: p.unseen, held: p.l().LastStableOffset(old) < old}
	p.unseen = 0
	p.hw.Store(hw)
	p.l().UpdateHighWatermark(hw)
	p.hwMu.Unlock()
	mv.woken = p.takeWaiters(func(w *waiter) bool { return w.offset <= hw })
	return mv
}

// joining bounds the high watermark hw by the followers outside of the ISR that
// count all the same: those the controller is asked to add, and those that are
// about to catch up, which a leader alone would else run away from. hwMu is held.
func (p *Partition) joining(s *state, hw int64) int64 {
	var now time.Time
	for id, f := range p.followers {
		if f.end >= hw || slices.Contains(s.isr, id) {
			continue
		}
		if p.proposal == nil || !slices.Contains(p.proposal.isr, id) {
			if now.IsZero() {
				now = time.Now()
			}
			if !f.inSync(p.l().EndOffset(), now, p.m.opts.LagTimeMax) || !p.eligible(id, f.brokerEpoch) {
				continue
			}
		}
		hw = f.end
	}
	return hw
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
func (p *Partition) CheckMinISR() error { return p.checkMinISR(p.st.Load()) }

func (p *Partition) checkMinISR(s *state) error {
	if minISR := p.settings.Load().MinISR; underMinISR(s, minISR) {
		return api.Errorf(api.NotEnoughReplicasAfterAppend, "%s has %d in-sync replicas, min.insync.replicas is %d; the records are in its log", p.name(), len(s.isr), minISR)
	}
	return nil
}
