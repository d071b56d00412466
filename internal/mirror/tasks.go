package mirror

import (
	"context"
	"sync"
	"time"
)

// Tasks run the work of a Manager that goes on beside its callers, and suspend it. They are goroutines that wait for channels and the clock
// unless Options.Tasks says otherwise: a simulation runs one piece of work at a time, in an order that repeats.
type Tasks interface {
	// Go runs fn beside the caller.
	Go(fn func())
	// AfterFunc runs fn, which must not wait, after d, unless stop is called before.
	AfterFunc(d time.Duration, fn func()) (stop func())
	// Wait suspends the caller, which Go has started, until ch is closed or holds a value, which is taken, or ctx has ended, or d has passed;
	// a negative d is for ever, a nil ch is never ready. It says which of them came.
	Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) Woken
}

// Woken says what ended a Wait.
type Woken int

const (
	// WokenEnd: the context has ended.
	WokenEnd Woken = iota
	// WokenSignal: the channel was ready.
	WokenSignal
	// WokenTime: the time has passed.
	WokenTime
)

// goroutines are the Tasks of a process.
type goroutines struct{}

func (goroutines) Go(fn func()) { go fn() }

func (goroutines) AfterFunc(d time.Duration, fn func()) func() {
	t := time.AfterFunc(d, fn)
	return func() { t.Stop() }
}

func (goroutines) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) Woken {
	var passed <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-ctx.Done():
		return WokenEnd
	case <-ch:
		return WokenSignal
	case <-passed:
		return WokenTime
	}
}

// orGoroutines is t, or goroutines if it is nil.
func orGoroutines(t Tasks) Tasks {
	if t == nil {
		return goroutines{}
	}
	return t
}

// crew is work under way that is waited for, as with a sync.WaitGroup. Its zero value runs goroutines.
type crew struct {
	tasks Tasks

	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n becomes 0; nil if nobody waits
}

// Go runs fn as one of the crew.
func (c *crew) Go(fn func()) {
	c.add()
	orGoroutines(c.tasks).Go(func() {
		defer c.done()
		fn()
	})
}

func (c *crew) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *crew) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Wait waits until nobody of the crew is at work.
func (c *crew) Wait() {
	for {
		c.mu.Lock()
		if c.n == 0 {
			c.mu.Unlock()
			return
		}
		if c.idle == nil {
			c.idle = make(chan struct{})
		}
		idle := c.idle
		c.mu.Unlock()
		orGoroutines(c.tasks).Wait(context.Background(), -1, idle)
	}
}
