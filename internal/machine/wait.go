package machine

import (
	"container/heap"
	"time"
)

// writes knows the last uncommitted write of each entity. All offsets are
// exclusive ends: a write is committed once the commit point reaches its end.
type writes struct {
	last    int64 // end of the last write of all
	barrier int64 // end of the last write that named no entity
	entity  map[string]int64
	// pending lists the entries of entity in the order of their ends, to drop
	// them when they are committed. An entity written again has several.
	pending []write
}

type write struct {
	end    int64
	entity string
}

// seen returns the end of the last write that a command with this result has
// seen.
func (w *writes) seen(res Result) int64 {
	if res.Entity == "" && len(res.Entities) == 0 {
		return w.last
	}
	seen := w.barrier
	if res.Entity != "" {
		seen = max(seen, w.entity[res.Entity])
	}
	for _, e := range res.Entities {
		seen = max(seen, w.entity[e])
	}
	return seen
}

// add notes a command's write that ends at the offset end.
func (w *writes) add(res Result, end int64) {
	w.last = end
	if res.Entity == "" && len(res.Entities) == 0 {
		w.barrier = end
		return
	}
	if w.entity == nil {
		w.entity = map[string]int64{}
	}
	if res.Entity != "" {
		w.note(res.Entity, end)
	}
	for _, e := range res.Entities {
		w.note(e, end)
	}
}

func (w *writes) note(entity string, end int64) {
	w.entity[entity] = end
	w.pending = append(w.pending, write{end: end, entity: entity})
}

// commit drops what is committed at hw.
func (w *writes) commit(hw int64) {
	n := 0
	for ; n < len(w.pending) && w.pending[n].end <= hw; n++ {
		if p := w.pending[n]; w.entity[p.entity] == p.end {
			delete(w.entity, p.entity)
		}
	}
	w.pending = w.pending[n:]
	if len(w.pending) == 0 {
		w.pending = nil
	}
}

// waiter is a reply that waits for the commit point to reach end.
type waiter struct {
	reply
	end   int64
	seq   uint64
	since time.Time
}

// waiters is a heap of waiters by end, then seq.
type waiters struct{ h waiterHeap }

func (w *waiters) push(x waiter) { heap.Push(&w.h, x) }

// pop takes the first waiter if its end is not above hw.
func (w *waiters) pop(hw int64) (waiter, bool) {
	if len(w.h) == 0 || w.h[0].end > hw {
		return waiter{}, false
	}
	return heap.Pop(&w.h).(waiter), true
}

type waiterHeap []waiter

func (h waiterHeap) Len() int { return len(h) }
func (h waiterHeap) Less(i, j int) bool {
	if h[i].end != h[j].end {
		return h[i].end < h[j].end
	}
	return h[i].seq < h[j].seq
}
func (h waiterHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *waiterHeap) Push(x any)   { *h = append(*h, x.(waiter)) }
func (h *waiterHeap) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	old[n] = waiter{}
	*h = old[:n]
	return x
}
