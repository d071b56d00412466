package sim

import (
	"context"
	"runtime"
	"slices"
	"time"

	"milena/internal/mirror"
)

// tasks run what a host's mirror.Manager does beside its callers as coroutines of the event loop: each is a goroutine, but only one of them,
// or the loop, runs at a time, and which one is next is the loop's order. It implements mirror.Tasks.
type tasks struct {
	c    *cores
	h    *host
	list []*task // those that have begun and not ended, in the order of their beginnings
}

type task struct {
	of     *tasks
	resume chan struct{}
	back   chan struct{} // the task waits, or has ended
	over   bool
	killed bool // its host's process has ended

	// While it waits, for what.
	waits bool
	ctx   context.Context
	ch    <-chan struct{}
	until time.Time // zero: for ever
	woken mirror.Woken
}

// Go implements mirror.Tasks.
func (t *tasks) Go(fn func()) {
	t.c.after(0, t.h.live(func() {
		x := &task{of: t, resume: make(chan struct{}), back: make(chan struct{})}
		t.list = append(t.list, x)
		go func() {
			defer func() {
				x.over = true
				x.back <- struct{}{}
			}()
			<-x.resume
			fn()
		}()
		t.run(x)
	}))
}

// run has a task go on until it waits or ends.
func (t *tasks) run(x *task) {
	l := t.c.loop
	before := l.current
	l.current = x
	x.resume <- struct{}{}
	<-x.back
	l.current = before
	if x.over {
		t.list = slices.DeleteFunc(t.list, func(y *task) bool { return x == y })
	}
}

// AfterFunc implements mirror.Tasks.
func (t *tasks) AfterFunc(d time.Duration, fn func()) func() {
	stopped := false
	t.c.after(d, t.h.live(func() {
		if !stopped {
			fn()
		}
	}))
	return func() { stopped = true }
}

// Wait implements mirror.Tasks.
func (t *tasks) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) mirror.Woken {
	x := t.c.current
	if x == nil || x.of != t {
		panic("sim: a wait outside of the host's tasks")
	}
	x.ctx, x.ch, x.until = ctx, ch, time.Time{}
	if d >= 0 {
		x.until = time.Now().Add(d)
	}
	if x.killed {
		runtime.Goexit()
	}
	if x.ready() {
		return x.woken
	}
	if d >= 0 {
		t.c.after(d, t.h.live(func() {}))
	}
	if end, ok := ctx.Deadline(); ok && (d < 0 || end.Before(x.until)) {
		t.c.after(time.Until(end), t.h.live(func() {}))
	}
	x.waits = true
	x.back <- struct{}{}
	<-x.resume
	x.waits = false
	if x.killed {
		runtime.Goexit()
	}
	return x.woken
}

// ready says whether what a task waits for has come.
func (x *task) ready() bool {
	select {
	case <-x.ch:
		x.woken = mirror.WokenSignal
		return true
	default:
	}
	switch {
	case x.ctx.Err() != nil:
		x.woken = mirror.WokenEnd
	case !x.until.IsZero() && !time.Now().Before(x.until):
		x.woken = mirror.WokenTime
	default:
		return false
	}
	return true
}

// settle has the tasks go on that can.
func (t *tasks) settle() {
	for t.h.touched {
		t.h.touched = false
		for _, x := range slices.Clone(t.list) {
			if x.waits && !x.over && x.ready() {
				t.h.touched = true
				t.run(x)
			}
		}
	}
}

// end ends all tasks at once, as the end of a process does: of what they deferred only what they hold in memory is given back.
func (t *tasks) end() {
	for _, x := range slices.Clone(t.list) {
		if x.killed = true; x != t.c.current {
			t.run(x)
		}
	}
}

// await has a task wait for an answer.
func await[T any](t *tasks, ctx context.Context, start func(done func(T, error))) (T, error) {
	var v, none T
	var err error
	answered, came := make(chan struct{}), false
	start(func(x T, e error) {
		if !came {
			came, v, err = true, x, e
			close(answered)
		}
	})
	if t.Wait(ctx, -1, answered) == mirror.WokenEnd {
		return none, ctx.Err()
	}
	return v, err
}
