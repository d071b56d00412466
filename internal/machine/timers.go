package machine

import (
	"container/heap"
	"time"
)

// After implements Timers.
func (c *Core) After(key string, d time.Duration, cmd Command) {
	if c.load != stateEnded {
		c.timers.set(key, c.now.Add(d), cmd)
	}
}

// Cancel implements Timers.
func (c *Core) Cancel(key string) { c.timers.cancel(key) }

// NextTimer returns when Tick has something to do; false if no timer is set.
func (c *Core) NextTimer() (time.Time, bool) {
	if len(c.timers.h) == 0 {
		return time.Time{}, false
	}
	return c.timers.h[0].at, true
}

// Tick runs the timers that are due, in the order of their times. Timers that
// these set for now are left to the next Tick.
func (c *Core) Tick(now time.Time) {
	c.now = now
	if c.load != stateServing {
		return
	}
	limit := c.timers.seq
	for {
		t := c.timers.due(now, limit)
		if t == nil {
			return
		}
		if c.o.Check != nil {
			if err := c.o.Check(); err != nil {
				c.timers.set(t.key, now.Add(c.o.CheckRetry), t.cmd)
				continue
			}
		}
		c.exec(now, t.cmd, func(_ any, err error) {
			if err != nil {
				c.o.Logger.Debug("timer failed", "timer", t.key, "error", err)
			}
		}, false)
	}
}

// timers are keyed commands ordered by time, then by when they were set.
type timers struct {
	h   timerHeap
	key map[string]*timer
	seq uint64
}

type timer struct {
	key string
	at  time.Time
	seq uint64
	cmd Command
	pos int // in the heap
}

func (t *timers) init() { t.h, t.key = nil, map[string]*timer{} }

func (t *timers) set(key string, at time.Time, cmd Command) {
	t.cancel(key)
	t.seq++
	x := &timer{key: key, at: at, seq: t.seq, cmd: cmd}
	t.key[key] = x
	heap.Push(&t.h, x)
}

func (t *timers) cancel(key string) {
	if x := t.key[key]; x != nil {
		delete(t.key, key)
		heap.Remove(&t.h, x.pos)
	}
}

// due takes the first timer due at now, among those set no later than the one
// numbered limit.
func (t *timers) due(now time.Time, limit uint64) *timer {
	if len(t.h) == 0 || t.h[0].at.After(now) || t.h[0].seq > limit {
		return nil
	}
	x := t.h[0]
	t.cancel(x.key)
	return x
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.pos = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	n := len(old) - 1
	t := old[n]
	old[n] = nil
	*h = old[:n]
	return t
}
