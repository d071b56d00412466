package group

import (
	"container/heap"
	"time"
)

// timer is one deadline. Its owner embeds it; the zero value is not armed.
type timer struct {
	fire  func(now time.Time, e *Effects)
	at    time.Time // its place in the heap
	due   time.Time // when it fires: at or later
	seq   uint64    // orders timers of one instant by when they were armed
	index int
	armed bool
}

// timers is the heap of all deadlines of a machine. Moving a deadline away, as
// every heartbeat does, only notes the new time: the heap is put right when the
// old one comes.
type timers struct {
	heap timerHeap
	seq  uint64
}

// set arms t for at, or moves it there.
func (ts *timers) set(t *timer, at time.Time) {
	t.due = at
	if t.armed && !at.Before(t.at) {
		return
	}
	ts.seq++
	t.seq, t.at = ts.seq, at
	if t.armed {
		heap.Fix(&ts.heap, t.index)
		return
	}
	t.armed = true
	heap.Push(&ts.heap, t)
}

// cancel disarms t.
func (ts *timers) cancel(t *timer) {
	if t.armed {
		heap.Remove(&ts.heap, t.index)
	}
}

// next returns when to look again, false if nothing is armed.
func (ts *timers) next() (time.Time, bool) {
	if len(ts.heap) == 0 {
		return time.Time{}, false
	}
	return ts.heap[0].at, true
}

// pop disarms and returns a timer that is due, nil if there is none.
func (ts *timers) pop(now time.Time) *timer {
	for len(ts.heap) > 0 {
		t := ts.heap[0]
		if t.at.After(now) {
			return nil
		}
		if t.due.After(t.at) {
			ts.seq++
			t.at, t.seq = t.due, ts.seq
			heap.Fix(&ts.heap, 0)
			continue
		}
		heap.Pop(&ts.heap)
		return t
	}
	return nil
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
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.armed = false
	return t
}
