package quorum

import (
	"context"
	"fmt"
	"runtime/debug"
)

// Manual drives a Node without its goroutine, for simulations: one turn after another
// on the caller's goroutine, so that the same messages and ticks give the same node. What
// else would run beside it (writing and fetching snapshots) runs inside the turn.
//
// Step, Status, ReadCommitted and so on are called on the Node as usual; Propose and the
// methods of MachineLog take a turn by themselves. MachineLog.Watch and ReadIndex must not be
// used: look at Status after each turn, and use Confirm.
type Manual struct{ n *Node }

// Manual starts the node as one that is driven by hand. It takes the place of Start.
func (n *Node) Manual() (*Manual, error) {
	n.mu.Lock()
	n.started, n.manual = true, true
	n.mu.Unlock()
	m := &Manual{n}
	if n.driver.alone() {
		if err := n.driver.raft.Campaign(); err != nil {
			return nil, err
		}
	}
	return m, m.Turn(false)
}

// Turn handles what came in since the last turn, after a tick if ticked. An error is final, as
// is what Options.Fatal would be told.
func (m *Manual) Turn(ticked bool) (err error) {
	if err := m.n.failure(); err != nil {
		return err
	}
	defer func() {
		// Raft panics where it finds its own log or a message impossible.
		if p := recover(); p != nil {
			err = fmt.Errorf("raft: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			m.n.mu.Lock()
			m.n.err = fmt.Errorf("%w: %w", ErrClosed, err)
			m.n.mu.Unlock()
			m.n.stop()
			m.n.finish()
		}
	}()
	for {
		if err := m.n.driver.turn(m.n.take(), ticked); err != nil {
			return err
		}
		if !m.n.waiting() {
			return nil
		}
		ticked = false
	}
}

// Confirm asks for what ReadIndex answers; the channel gets one answer in some later turn.
func (m *Manual) Confirm() (<-chan error, error) {
	done := make(chan error, 1)
	err := m.n.send(func(in *input) { in.reads = append(in.reads, done) })
	return done, err
}

// AddVoter asks for what AddVoter of the Node does, and RemoveVoter likewise; the channel gets one answer in some later turn. The
// change is given up when ctx ends.
func (m *Manual) AddVoter(ctx context.Context, v Voter) (<-chan error, error) {
	return m.change(&change{kind: addVoter, voter: v, ack: true, ctx: ctx})
}

// RemoveVoter asks for what RemoveVoter of the Node does: see AddVoter.
func (m *Manual) RemoveVoter(ctx context.Context, v Member) (<-chan error, error) {
	return m.change(&change{kind: removeVoter, voter: Voter{Member: v}, ack: true, ctx: ctx})
}

func (m *Manual) change(c *change) (<-chan error, error) {
	c.done = make(chan error, 1)
	return c.done, m.n.send(func(in *input) {
		in.calls = append(in.calls, func() error { m.n.driver.beginChange(c); return nil })
	})
}

// Close stops the node in order: the commit index is saved, the files are closed. A crash is
// not closing it.
func (m *Manual) Close() error {
	n := m.n
	n.mu.Lock()
	if n.err != nil { // it failed, and is finished
		n.mu.Unlock()
		return n.err
	}
	n.err = ErrClosed
	n.mu.Unlock()
	n.stop()
	err := n.driver.saveHardState()
	n.finish()
	return err
}

// waiting says whether the last turn left something for a next one.
func (n *Node) waiting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := &n.in
	return len(in.messages)+len(in.proposals)+len(in.reads)+len(in.calls) > 0
}

// job runs f beside the run goroutine, or at once in a node driven by hand.
func (n *Node) job(f func()) {
	if n.manual {
		f()
		return
	}
	n.jobs.Go(f)
}

// turnByHand takes a turn if the node is driven by hand.
func (n *Node) turnByHand() {
	if n.manual {
		_ = (&Manual{n}).Turn(false) // the next turn says it again
	}
}
