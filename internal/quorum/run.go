package quorum

import (
	"fmt"
	"runtime/debug"
	"time"
)

// run is the run goroutine.
func (n *Node) run() {
	err := n.loop()
	n.mu.Lock()
	if err != nil {
		n.err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	n.mu.Unlock()
	n.stop()
	if err == nil {
		err = n.driver.saveHardState() // the commit index, so that the next start knows it
	}
	n.jobs.Wait()
	n.release()
	if err != nil {
		n.o.Logger.Error("raft log failed", "error", err)
		n.o.Fatal(fmt.Errorf("quorum: %w", err))
	}
	close(n.done) // last: whoever waits in Close may then take the logger away
}

// spacePoll is how often a write that found the disk full is tried again.
const spacePoll = 100 * time.Millisecond

// awaitSpace waits a little, so that a write to a full disk can be tried again; false when the node
// closes. Nothing else is done meanwhile: the metadata doesn't change, and of several voters
// the others elect one with space.
func (n *Node) awaitSpace(err error) bool {
	if n.spaceless.IsZero() || time.Since(n.spaceless) > time.Minute {
		n.o.Logger.Error("the disk of the raft log is full: the metadata can't change until there is space", "dir", n.o.Dir, "error", err)
		n.spaceless = time.Now()
	}
	<-time.After(spacePoll)
	return n.failure() == nil
}

// loop runs until the node is closed (nil) or fails.
func (n *Node) loop() (err error) {
	d := n.driver
	defer func() {
		// Raft panics where it finds its own log or a message impossible.
		if p := recover(); p != nil {
			err = fmt.Errorf("raft: %v\n%s", p, debug.Stack())
		}
	}()
	d.log.space = n.awaitSpace
	if d.alone() {
		if err := d.raft.Campaign(); err != nil {
			return err
		}
	}
	if err := d.ready(); err != nil {
		return err
	}
	tick := time.NewTicker(n.o.Tick)
	defer tick.Stop()
	defer n.endTurn()
	for n.failure() == nil {
		ticked := false
		select {
		case <-n.wake:
		case <-tick.C:
			ticked = true
		}
		n.beginTurn(d.alone())
		if err := d.turn(n.take(), ticked); err != nil {
			return err
		}
		if n.endTurn() {
			d.publish()
		}
	}
	return nil
}

// finish ends a node without a run goroutine.
func (n *Node) finish() {
	n.release()
	close(n.done)
}

// release closes the files, answers everyone and shows that there is no leader to be seen from here.
func (n *Node) release() {
	if err := n.driver.log.close(); err != nil {
		n.o.Logger.Warn("close raft log", "error", err)
	}
	if err := n.lock.Close(); err != nil {
		n.o.Logger.Warn("unlock raft log", "error", err)
	}
	n.unregister()
	err := n.failure()
	n.driver.failReads(err)
	n.taken.fail(err) // a turn that failed may have left some of its own
	in := n.take()    // nothing is added once err is set
	in.fail(err)
	n.show.Lock()
	defer n.show.Unlock()
	p := n.state.Load()
	closed := *p
	closed.IsLeader, closed.HasLeader = false, false
	closed.next = make(chan struct{})
	n.state.Store(&closed)
	close(p.next)
}

// fail answers who waits for the input and has no answer yet.
func (in *input) fail(err error) {
	for _, p := range in.proposals {
		select {
		case p.done <- proposed{err: err}:
		default: // it has one
		}
	}
	for _, r := range in.reads {
		select {
		case r <- err:
		default:
		}
	}
}
