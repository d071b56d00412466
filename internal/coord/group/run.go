package group

import (
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/coord"
	"milena/internal/machine"
)

// serving is the machine that the runtime sees: Machine, and its deadlines as
// one timer of the runtime.
type serving struct {
	m     *Machine
	s     *Service
	stats atomic.Pointer[stats] // as of the last command

	// Owned by the runtime's goroutine.
	armed   time.Time // when the runtime's timer will call tick; zero: it is not set
	counted stats     // what the metrics know
	timers  machine.Timers
}

// Bind implements machine.Binder.
func (sv *serving) Bind(t machine.Timers) { sv.timers = t }

// Vet implements machine.Vetter.
func (sv *serving) Vet(r machine.Record) error { return sv.m.Vet(r) }

// Apply implements machine.Machine.
func (sv *serving) Apply(offset int64, r machine.Record) { sv.m.Apply(offset, r) }

// Loaded implements machine.Machine.
func (sv *serving) Loaded(now time.Time) {
	sv.m.Loaded(now)
	sv.m.stats.deleted = 0 // those of the replay were counted when they happened
	sv.after(now)
}

// after follows every command: it sees to the next deadline and the counts.
func (sv *serving) after(now time.Time) {
	if st := sv.m.stats; st != sv.counted {
		sv.s.metrics.count(&sv.counted, &st)
		sv.counted = st
		sv.stats.Store(&st)
	}
	next, ok := sv.m.NextDeadline()
	if !ok || !sv.armed.IsZero() && !next.Before(sv.armed) {
		return
	}
	sv.armed = next
	sv.timers.After("deadline", max(next.Sub(now), 0), sv.tick)
}

func (sv *serving) tick(now time.Time) machine.Result {
	sv.armed = time.Time{}
	e := sv.m.Tick(now)
	sv.after(now)
	// The replies of a deadline go to joins and syncs that end without a new
	// record; what they tell is not stored before the leader's sync.
	for _, reply := range e.Replies {
		reply(nil)
	}
	return result(e)
}

func result(e Effects) machine.Result {
	if len(e.Groups) == 0 && len(e.Records) == 0 && !e.All {
		return machine.Result{NoWait: true}
	}
	return machine.Result{Records: e.Records, Entities: e.Groups}
}

// command is a request under way on a shard.
type command struct {
	mu      sync.Mutex
	ran     bool
	timer   *time.Timer
	replies []func(error)
}

// took notes what the command's run produced.
func (c *command) took(replies []func(error), timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran, c.replies = true, replies
	if len(replies) > 0 && timeout > 0 {
		c.timer = time.AfterFunc(timeout, func() { c.finish(errTimeout) })
	}
}

// finish answers the callers, once.
func (c *command) finish(err error) {
	c.mu.Lock()
	replies := c.replies
	c.replies = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	for _, reply := range replies {
		reply(err)
	}
}

// submit runs a command on a shard's machine. Its replies get what became of its
// records, at the latest after the commit timeout; fail is called instead if it
// never ran.
func (s *Service) submit(sh *coord.Shard[*serving], run func(time.Time, *Machine) Effects, fail func(error)) {
	var c command
	var more func(time.Time, *Machine) Effects
	sh.Submit(func(sv *serving) machine.Command {
		return func(now time.Time) machine.Result {
			e := run(now, sv.m)
			sv.after(now)
			more = e.More
			c.took(e.Replies, s.o.Config().CommitTimeout)
			return result(e)
		}
	}, func(_ any, err error) {
		switch {
		case !c.ran:
			fail(err)
		case more == nil:
			c.finish(err)
		case err != nil:
			fail(err)
		default:
			s.submit(sh, more, fail)
		}
	})
}

// submitNow runs a command that writes nothing and waits for nothing.
func submitNow(sh *coord.Shard[*serving], run func(time.Time, *Machine), done func(error)) {
	sh.SubmitNow(func(sv *serving) machine.Command {
		return func(now time.Time) machine.Result {
			run(now, sv.m)
			sv.after(now)
			return machine.Result{}
		}
	}, func(_ any, err error) { done(err) })
}
