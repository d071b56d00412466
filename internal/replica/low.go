package replica

import (
	"slices"

	"milena/internal/api"
)

// lowWaiter waits for the log start of every live replica to reach offset.
type lowWaiter struct {
	offset int64
	fn     func(low int64, err error)
	// low is what has been reached, set when the waiter is taken.
	low  int64
	done bool
}

// lowWaiters is a list of them; Partition.wmu guards the partition's.
type lowWaiters []*lowWaiter

// lowWatermark is the smallest log start of the leader and of the followers
// whose broker is alive: what DeleteRecords waits for and reports.
func (p *Partition) lowWatermark() int64 {
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	low := p.l().StartOffset()
	img := p.m.Image()
	for id, f := range p.followers {
		if img.Alive(id) {
			low = min(low, f.start)
		}
	}
	return low
}

// awaitLow calls fn once when the log start of every live replica is at least
// off, with the lowest of them, or with an error when that can't be seen here
// any more. cancel reports whether fn will not be called.
func (p *Partition) awaitLow(off int64, fn func(low int64, err error)) (cancel func() bool) {
	w := &lowWaiter{offset: off, fn: fn}
	p.wmu.Lock()
	p.lows = append(p.lows, w)
	p.wmu.Unlock()
	p.mu.RLock()
	s := p.st.Load()
	ws := p.takeLow(!s.self || s.gone != nil)
	p.mu.RUnlock()
	ws.tell(p, s)
	return func() bool {
		p.wmu.Lock()
		defer p.wmu.Unlock()
		if w.done {
			return false
		}
		w.done = true
		p.lows = slices.DeleteFunc(p.lows, func(x *lowWaiter) bool { return x == w })
		return true
	}
}

// takeLow removes and returns the waiters whose offset is reached, or all. mu is
// held.
func (p *Partition) takeLow(all bool) lowWaiters {
	p.wmu.Lock()
	none := len(p.lows) == 0
	p.wmu.Unlock()
	if none {
		return nil
	}
	low := int64(-1)
	if !all {
		low = p.lowWatermark()
	}
	p.wmu.Lock()
	defer p.wmu.Unlock()
	var taken lowWaiters
	p.lows = slices.DeleteFunc(p.lows, func(w *lowWaiter) bool {
		if !all && w.offset > low {
			return false
		}
		w.low, w.done = low, true
		taken = append(taken, w)
		return true
	})
	return taken
}

// tell calls the waiters that were taken while the state was s.
func (ws lowWaiters) tell(p *Partition, s *state) {
	for _, w := range ws {
		switch {
		case s.gone != nil:
			w.fn(-1, s.gone)
		case !s.self:
			w.fn(-1, p.errNotLeader())
		default:
			w.fn(w.low, nil)
		}
	}
}

// errLowTimeout is what a DeleteRecords gets whose replicas don't follow in time.
func (p *Partition) errLowTimeout() error {
	return api.Errorf(api.RequestTimedOut, "not every replica of %s has deleted the records yet", p.name())
}
