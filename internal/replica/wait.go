package replica

import (
	"slices"
	"sort"
)

// waiter waits for the high watermark to reach offset.
type waiter struct {
	offset int64
	fn     func(error)
	// gone says that the waiter was taken out of the list: to be called, or
	// cancelled. Guarded by Partition.wmu.
	gone bool
}

// AwaitHW calls fn once when the high watermark is at least off while this
// broker leads at epoch, or with an error when that can't be seen here any more
// (leader change, truncation, too small an ISR, deletion, failed directory,
// close): what was appended at epoch is committed, or nobody can say. If it is
// reached already, or can't be, fn is called before AwaitHW returns. fn must
// not block. cancel reports whether fn will not be called.
func (p *Partition) AwaitHW(epoch int32, off int64, fn func(error)) (cancel func() bool) {
	if p.Committed(epoch, off) || mutant == "ack" {
		fn(nil)
		return never
	}
	w := &waiter{offset: off, fn: fn}
	p.wmu.Lock()
	i := sort.Search(len(p.waiters), func(i int) bool { return p.waiters[i].offset > off })
	p.waiters = slices.Insert(p.waiters, i, w)
	p.wmu.Unlock()
	// Whoever moves the mark or the state takes the waiters afterwards: either
	// it finds w there, or what it did is seen here.
	done := p.Committed(epoch, off)
	s := p.st.Load()
	err := p.waitError(s)
	switch {
	case done:
		err = nil // although there may be too few in-sync replicas by now
	case err == nil && s.epoch != epoch:
		err = p.errNotLeader()
	case err == nil:
		return func() bool { return p.cancel(w) }
	}
	if p.cancel(w) {
		fn(err)
		return never
	}
	return func() bool { return p.cancel(w) }
}

// Committed reports whether what was appended below off at a leader epoch is
// committed, and this broker still leads at it.
func (p *Partition) Committed(epoch int32, off int64) bool {
	hw := p.hw.Load() // first: a mark of a later leadership is seen with its state
	s := p.st.Load()
	return hw >= off && s.self && s.gone == nil && s.epoch == epoch
}

func never() bool { return false }

func (p *Partition) cancel(w *waiter) bool {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if w.gone {
		return false
	}
	w.gone = true
	p.waiters = slices.DeleteFunc(p.waiters, func(x *waiter) bool { return x == w })
	return true
}

// takeWaiters removes and returns the waiters that match, in offset order.
func (p *Partition) takeWaiters(match func(*waiter) bool) []*waiter {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if len(p.waiters) == 0 {
		return nil
	}
	var taken []*waiter
	kept := p.waiters[:0]
	for _, w := range p.waiters {
		if match(w) {
			w.gone = true
			taken = append(taken, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(p.waiters[len(kept):])
	p.waiters = kept
	return taken
}

func fail(ws []*waiter, err error) {
	for _, w := range ws {
		w.fn(err)
	}
}

// touchCommitted tells those who wait for committed data that grown bytes
// were committed; held says that a transaction was open before, so that
// read_committed fetches may see more than grown.
func (p *Partition) touchCommitted(grown int, held bool, hw int64) {
	p.wmu.Lock()
	for _, w := range p.watches {
		if w.logEnd {
			w.touch(0, true) // a follower's consumers wait for the mark too
		} else {
			w.touch(grown, held && w.committed)
		}
	}
	ls := p.listeners
	p.wmu.Unlock()
	for _, l := range ls {
		l.onCommitted(hw)
	}
}

// touchAppended tells followers' fetches that grown bytes were appended.
func (p *Partition) touchAppended(grown int) {
	p.wmu.Lock()
	for _, w := range p.watches {
		if w.logEnd {
			w.touch(grown, false)
		}
	}
	p.wmu.Unlock()
}

// touchStart has sessions tell of a new log start: consumers with their next
// response, followers at once, since DeleteRecords waits for them.
func (p *Partition) touchStart() {
	p.wmu.Lock()
	for _, w := range p.watches {
		w.touch(0, w.logEnd)
	}
	p.wmu.Unlock()
}

// touchAll makes every fetch look at the partition again at once.
func (p *Partition) touchAll() {
	p.wmu.Lock()
	for _, w := range p.watches {
		w.touch(0, true)
	}
	p.wmu.Unlock()
}

// watch registers w with p. It is touched from then on.
func (p *Partition) watch(w *FetchPart) {
	p.wmu.Lock()
	w.pos = len(p.watches)
	p.watches = append(p.watches, w)
	p.wmu.Unlock()
}

// unwatch undoes watch. When it returns w isn't touched any more.
func (p *Partition) unwatch(w *FetchPart) {
	p.wmu.Lock()
	last := len(p.watches) - 1
	p.watches[w.pos] = p.watches[last]
	p.watches[w.pos].pos = w.pos
	p.watches[last] = nil
	p.watches = p.watches[:last]
	p.wmu.Unlock()
}

// Watches is how many fetches the partition would wake.
func (p *Partition) Watches() int {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	return len(p.watches)
}
