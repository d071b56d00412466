package quorum

import (
	"slices"
	"time"
)

// stallLimit is how long the run goroutine may be busy with one thing, such as a write to a disk that hangs, before this node
// stops to count as the leader: two election timeouts. By then every other voter has begun an election, so nothing is lost by
// it; and a new leader waits that long before it takes a broker for gone that it hasn't heard of, so no broker is kept going by
// the old one's answers to heartbeats after the new one has given away what it leads.
func (n *Node) stallLimit() time.Duration {
	return 2 * n.o.Tick * time.Duration(n.o.ElectionTicks)
}

// beginTurn begins to watch the run goroutine. The only voter isn't watched: nobody can take its place.
func (n *Node) beginTurn(alone bool) {
	if alone {
		return
	}
	n.show.Lock()
	defer n.show.Unlock()
	n.turning = true
	if n.watch == nil {
		n.watch = time.AfterFunc(n.stallLimit(), n.stall)
		return
	}
	n.watch.Reset(n.stallLimit())
}

// endTurn ends the watch, and reports whether the state has to be shown again, since it says that the run goroutine hangs.
func (n *Node) endTurn() (stalled bool) {
	n.show.Lock()
	defer n.show.Unlock()
	if n.watch != nil {
		n.watch.Stop()
	}
	stalled = n.stalled
	n.turning, n.stalled = false, false
	return stalled
}

// stall takes the leadership from what this node shows of itself while its run goroutine hangs: nothing that it is asked as the
// leader would be answered in time, and what needs no commit, such as heartbeats, must be answered by the next leader.
func (n *Node) stall() {
	n.show.Lock()
	defer n.show.Unlock()
	p := n.state.Load()
	if !n.turning || !p.IsLeader {
		return
	}
	n.stalled = true
	hung := *p
	hung.IsLeader, hung.HasLeader, hung.Leader, hung.leader = false, false, Member{ID: -1}, Voter{}
	hung.next = make(chan struct{})
	n.state.Store(&hung)
	close(p.next)
	n.o.Logger.Warn("the raft log's disk hangs: this node leads the metadata quorum no longer, until it is written to again",
		"epoch", p.Epoch, "dir", n.o.Dir, "after", n.stallLimit())
}

// replace shows a newer state, and returns the one it took the place of: nil if there was none, or none that differs.
func (n *Node) replace(p *published) (old *published) {
	n.show.Lock()
	defer n.show.Unlock()
	old = n.state.Load()
	if old != nil && old.Status == p.Status && old.leader.Equal(p.leader) && slices.EqualFunc(old.voters, p.voters, Voter.Equal) {
		return nil
	}
	n.state.Store(p)
	if old != nil {
		close(old.next)
	}
	n.stalled = false
	if n.turning {
		n.watch.Reset(n.stallLimit()) // it goes on
	}
	return old
}
