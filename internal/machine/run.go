package machine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxCommands bounds how many commands run before a flush, so that commits and
// timers get their turn.
const maxCommands = 512

// Runtime drives a Core with one goroutine. Its methods may be called by any
// goroutine, except After and Cancel.
type Runtime struct {
	core  *Core // owned by the run goroutine once started
	wake  chan struct{}
	ready chan struct{}
	done  chan struct{}
	hw    atomic.Int64 // newest that Committed said
	calls atomic.Int64 // how many were put in urgent since it was last emptied

	mu      sync.Mutex
	queue   []*call
	urgent  []*call
	posted  []func()
	started bool
	loaded  bool
	stop    error // asked to end with this: ErrLost or ErrClosed
	ended   error // what the run goroutine ended with
}

// call is one command and whom to answer.
type call struct {
	cmd      Command
	done     func(any, error)
	answered atomic.Bool
	unwatch  func() bool // stops watching the caller's context
	urgent   bool
}

// answer hands out the answer if the caller still waits for one.
func (c *call) answer(v any, err error) {
	if c.answered.CompareAndSwap(false, true) {
		if c.unwatch != nil {
			c.unwatch()
		}
		c.done(v, err)
	}
}

// New returns a runtime that hasn't started.
func New(o Options) *Runtime {
	rt := &Runtime{
		core:  NewCore(o),
		wake:  make(chan struct{}, 1),
		ready: make(chan struct{}),
		done:  make(chan struct{}),
	}
	rt.core.confirmed = func(id uint64, err error) {
		rt.mu.Lock()
		rt.posted = append(rt.posted, func() { rt.core.Confirmed(id, err) })
		rt.mu.Unlock()
		rt.poke()
	}
	return rt
}

// Start starts the run goroutine, which replays the log first. A second call
// does nothing.
func (rt *Runtime) Start() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.started {
		rt.started = true
		go rt.run()
	}
}

// Ready is closed when the machine is loaded, or lost or closed before it was:
// see Err.
func (rt *Runtime) Ready() <-chan struct{} { return rt.ready }

// Done is closed when the runtime has ended and answered all callers.
func (rt *Runtime) Done() <-chan struct{} { return rt.done }

// Err returns nil while the machine serves, ErrLoading before, and ErrLost or
// ErrClosed (wrapped) after.
func (rt *Runtime) Err() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.errLocked()
}

func (rt *Runtime) errLocked() error {
	switch {
	case rt.ended != nil:
		return rt.ended
	case rt.stop != nil:
		return rt.stop
	case !rt.loaded:
		return ErrLoading
	}
	return nil
}

// Do runs the command and waits for its reply: see Submit.
func (rt *Runtime) Do(ctx context.Context, cmd Command) (any, error) {
	return rt.do(ctx, cmd, false)
}

// DoNow is Do with SubmitNow's rules.
func (rt *Runtime) DoNow(ctx context.Context, cmd Command) (any, error) {
	return rt.do(ctx, cmd, true)
}

func (rt *Runtime) do(ctx context.Context, cmd Command, urgent bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type answer struct {
		v   any
		err error
	}
	got := make(chan answer, 1)
	c := &call{cmd: cmd, urgent: urgent, done: func(v any, err error) { got <- answer{v, err} }}
	rt.enqueue(c)
	select {
	case a := <-got:
		return a.v, a.err
	case <-ctx.Done():
		c.answer(nil, ctx.Err()) // unless the reply was first
		a := <-got
		return a.v, a.err
	}
}

// Submit queues the command; done gets its reply, or ErrLoading, ErrLost,
// ErrClosed, the error of Options.Check, or the context's error. done is called
// exactly once, on any goroutine (the caller's too), and must not block. A
// command whose context has ended before its turn doesn't run.
func (rt *Runtime) Submit(ctx context.Context, cmd Command, done func(any, error)) {
	rt.submit(ctx, &call{cmd: cmd, done: done})
}

// SubmitNow is Submit for commands such as heartbeats: it overtakes queued
// commands and its reply never waits for a commit.
func (rt *Runtime) SubmitNow(ctx context.Context, cmd Command, done func(any, error)) {
	rt.submit(ctx, &call{cmd: cmd, done: done, urgent: true})
}

func (rt *Runtime) submit(ctx context.Context, c *call) {
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			c.done(nil, err)
			return
		}
		// The function gets its own guard: it may run before unwatch is set.
		c.unwatch = context.AfterFunc(ctx, func() {
			if c.answered.CompareAndSwap(false, true) {
				c.done(nil, ctx.Err())
			}
		})
	}
	rt.enqueue(c)
}

func (rt *Runtime) enqueue(c *call) {
	rt.mu.Lock()
	err := rt.errLocked()
	if err == nil {
		if c.urgent {
			rt.urgent = append(rt.urgent, c)
			rt.calls.Add(1)
		} else {
			rt.queue = append(rt.queue, c)
		}
	}
	rt.mu.Unlock()
	if err != nil {
		c.answer(nil, err)
		return
	}
	rt.poke()
}

// Committed tells that every record below hw is committed. It never blocks.
func (rt *Runtime) Committed(hw int64) {
	for {
		old := rt.hw.Load()
		if hw <= old {
			return
		}
		if rt.hw.CompareAndSwap(old, hw) {
			rt.poke()
			return
		}
	}
}

// Lost tells that the leadership is lost: all waiters get ErrLost wrapping
// cause, and the runtime ends. It never blocks.
func (rt *Runtime) Lost(cause error) { rt.end(lost(cause)) }

// Close ends the runtime: all waiters get ErrClosed. It waits for the run
// goroutine, so it must not be called on it (in a command or a done function).
func (rt *Runtime) Close() {
	rt.end(ErrClosed)
	<-rt.done
}

func (rt *Runtime) end(err error) {
	rt.mu.Lock()
	if rt.stop == nil {
		rt.stop = err
	}
	if !rt.started { // there is no goroutine to do it
		rt.started, rt.ended = true, rt.stop
		rt.core.end(rt.stop)
		close(rt.ready)
		close(rt.done)
	}
	rt.mu.Unlock()
	rt.poke()
}

// After implements Timers. Only on the run goroutine.
func (rt *Runtime) After(key string, d time.Duration, cmd Command) { rt.core.After(key, d, cmd) }

// Cancel implements Timers. Only on the run goroutine.
func (rt *Runtime) Cancel(key string) { rt.core.Cancel(key) }

func (rt *Runtime) poke() {
	select {
	case rt.wake <- struct{}{}:
	default:
	}
}

func (rt *Runtime) stopped() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.stop
}

// run is the run goroutine.
func (rt *Runtime) run() {
	defer close(rt.done)
	begin := time.Now()
	records, err := rt.core.Load(begin, rt.stopped)
	if h := rt.core.o.Hooks.Loaded; h != nil && err == nil {
		h(records, time.Since(begin))
	}
	rt.mu.Lock()
	rt.loaded = err == nil
	rt.ended = err
	rt.mu.Unlock()
	close(rt.ready)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for rt.core.Err() == nil {
		if err := rt.stopped(); err != nil {
			rt.core.end(err)
			break
		}
		more := rt.turn()
		if more || rt.core.Err() != nil {
			continue
		}
		var due <-chan time.Time
		if at, ok := rt.core.NextTimer(); ok {
			alarm.Reset(time.Until(at))
			due = alarm.C
		}
		select {
		case <-rt.wake:
		case <-due:
		}
	}
	rt.finish()
}

// turn handles what there is: commits, timers, commands, and one flush. more
// says that commands are left.
func (rt *Runtime) turn() (more bool) {
	rt.mu.Lock()
	posted := rt.posted
	rt.posted = nil
	n := min(len(rt.queue), maxCommands)
	calls := rt.queue[:n:n]
	rt.queue = rt.queue[n:]
	more = len(rt.queue) > 0
	if !more {
		rt.queue = nil
	}
	rt.mu.Unlock()

	now := time.Now()
	rt.core.Committed(now, rt.hw.Load())
	for _, f := range posted {
		f()
	}
	rt.runUrgent(now)
	rt.core.Tick(now)
	for _, c := range calls {
		if rt.calls.Load() > 0 {
			rt.runUrgent(now)
		}
		if !c.answered.Load() {
			rt.core.Exec(now, c.cmd, c.answer)
		}
	}
	_ = rt.core.Flush(now) // the loop looks at Err
	return more
}

func (rt *Runtime) runUrgent(now time.Time) {
	rt.mu.Lock()
	calls := rt.urgent
	rt.urgent = nil
	rt.calls.Store(0)
	rt.mu.Unlock()
	for _, c := range calls {
		if !c.answered.Load() {
			rt.core.ExecNow(now, c.cmd, c.answer)
		}
	}
}

// finish answers everyone who is still queued.
func (rt *Runtime) finish() {
	rt.mu.Lock()
	rt.ended = rt.core.Err()
	calls := slices.Concat(rt.urgent, rt.queue)
	rt.urgent, rt.queue, rt.posted = nil, nil, nil
	err := rt.ended
	rt.mu.Unlock()
	for _, c := range calls {
		c.answer(nil, err)
	}
}
