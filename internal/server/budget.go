package server

import "sync"

// budget bounds the bytes of request frames held at once. As in Kafka a frame
// may overdraw it (or a frame larger than the whole budget could never be
// read): one is admitted while anything is left. Waiters are admitted in order.
// A nil budget has no bound.
type budget struct {
	size int64

	mu      sync.Mutex
	free    int64 // negative when overdrawn
	waiting []*budgetWait
}

type budgetWait struct {
	n       int64
	granted chan struct{}
}

func newBudget(size int64) *budget {
	if size <= 0 {
		return nil
	}
	return &budget{size: size, free: size}
}

// tryAcquire takes n bytes if that needs no waiting.
func (b *budget) tryAcquire(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free <= 0 || len(b.waiting) > 0 {
		return false
	}
	b.free -= n
	return true
}

// acquire takes n bytes. It waits while nothing is left, and returns false if
// done was closed first.
func (b *budget) acquire(n int64, done <-chan struct{}) bool {
	if b.tryAcquire(n) {
		return true
	}
	b.mu.Lock()
	w := &budgetWait{n: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.grant()
	b.mu.Unlock()
	select {
	case <-w.granted:
		return true
	case <-done:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.waiting {
		if o == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return false
		}
	}
	// Granted meanwhile: it goes to the next one.
	b.free += n
	b.grant()
	return false
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

// grant admits waiters while something is left; b.mu is held.
func (b *budget) grant() {
	for b.free > 0 && len(b.waiting) > 0 {
		w := b.waiting[0]
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		b.free -= w.n
		close(w.granted)
	}
}

// contended reports whether a frame waits for memory.
func (b *budget) contended() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// use returns how many bytes are taken and left.
func (b *budget) use() (used, left int64) {
	if b == nil {
		return 0, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size - b.free, max(b.free, 0)
}
