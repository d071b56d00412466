package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A change of the voters goes on as far as it can each time the run goroutine has done
// its work. A new voter is a learner of raft's first, which is fed the log and has no
// vote, until it keeps up. The membership of raft changes by one member at a time, so any
// majority of the old voters meets any of the new ones.

type changeKind int

const (
	addVoter changeKind = iota
	removeVoter
	updateVoter
	dropLearner
)

type changePhase int

const (
	changeAsked    changePhase = iota // nothing is proposed yet
	changeLearning                    // it is proposed that the voter learns
	changeCatchUp                     // the voter is fed the log
	changeLast                        // the change itself is proposed
	changeTakeBack                    // it is proposed that the learner goes
)

// change is a change of the voters. Owned by the run goroutine.
type change struct {
	kind  changeKind
	voter Voter
	ack   bool            // answer when it is committed, else when it is written
	ctx   context.Context //nolint:containedctx // the caller's: the change is his until then
	done  chan error      // with room for one
	told  bool

	phase  changePhase
	term   uint64 // of the leader
	index  uint64 // of the proposal
	target uint64 // the voter has caught up when it is here
	ticks  int    // of this round
	silent int    // ticks since the new voter answered
}

// Prober is implemented by Transports that can look at a node before it is made a voter.
type Prober interface {
	// Probe asks the node at v's endpoints whether it is v, and could be a voter of the quorum that this
	// node leads. The error says what is wrong, and wraps ErrNotReady if asking again may help.
	Probe(ctx context.Context, v Voter) error
}

// add asks for a change that adds a voter, once the voter was looked at.
func (n *Node) add(ctx context.Context, c *change) error {
	prober, ok := n.o.Transport.(Prober)
	if !ok {
		return n.change(ctx, c)
	}
	var refusal error
	if err := n.call(func() { refusal = n.driver.refuseAdd(c) }); err != nil {
		return err
	}
	if refusal != nil {
		return refusal
	}
	if err := prober.Probe(ctx, c.voter); err != nil {
		return err
	}
	return n.change(ctx, c)
}

// refuseAdd is why a voter can't be added whoever it is.
func (d *driver) refuseAdd(c *change) error {
	conf, _ := d.conf()
	switch {
	case d.n.static:
		return ErrStatic
	case d.role != raft.StateLeader:
		return ErrNotLeader
	}
	return duplicate(conf.voters(), c.voter)
}

// duplicate is ErrDuplicateVoter if the node is a voter.
func duplicate(voters []Voter, v Voter) error {
	if i := slices.IndexFunc(voters, func(o Voter) bool { return o.ID == v.ID }); i >= 0 {
		return fmt.Errorf("%w: node %d is in the voter set as %s: remove that one first if its disk is gone", ErrDuplicateVoter, v.ID, voters[i].Member)
	}
	return nil
}

// change asks for a change and waits for its end.
func (n *Node) change(ctx context.Context, c *change) error {
	c.ctx, c.done = ctx, make(chan error, 1)
	err := n.send(func(in *input) {
		in.calls = append(in.calls, func() error { n.driver.beginChange(c); return nil })
	})
	if err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		n.poke()
		return fmt.Errorf("quorum: the change of the voters took too long: %w", ctx.Err())
	case <-n.done:
		return n.failure()
	}
}

// tell answers the caller, once.
func (c *change) tell(err error) {
	if !c.told {
		c.told = true
		c.done <- err
	}
}

func (d *driver) beginChange(c *change) {
	switch {
	case d.n.static:
		c.tell(ErrStatic)
	case d.role != raft.StateLeader:
		c.tell(ErrNotLeader)
	case d.change != nil && d.change.kind != dropLearner:
		c.tell(ErrChangePending)
	case d.change != nil:
		c.tell(fmt.Errorf("%w: a voter that never caught up is being dropped", ErrChangePending))
	default:
		c.term = d.term
		d.change = c
	}
}

// endChange ends the change under way.
func (d *driver) endChange(err error) {
	d.change.tell(err)
	d.change, d.idle = nil, 0
}

// advance moves the change under way on, and says whether it proposed something.
func (d *driver) advance() bool {
	proposed := false
	for d.change != nil {
		before := d.change.phase
		proposed = d.advanceOne() || proposed
		if d.change == nil || d.change.phase == before {
			break
		}
	}
	return proposed
}

func (d *driver) advanceOne() (proposed bool) {
	c := d.change
	if c.index > 0 && d.store.applied >= c.index {
		if term, err := d.store.Term(c.index); err != nil || term != c.term {
			d.endChange(fmt.Errorf("%w of epoch %d any more", ErrNotLeader, c.term))
			return false
		}
	} else if d.role != raft.StateLeader || d.term != c.term {
		d.endChange(fmt.Errorf("%w of epoch %d any more: whether the voters were changed will be seen", ErrNotLeader, c.term))
		return false
	}
	switch c.phase {
	case changeAsked:
		return d.ask(c)
	case changeLearning:
		if d.store.applied >= c.index {
			c.phase, c.target, c.ticks = changeCatchUp, d.store.lastIndex(), 0
		}
	case changeCatchUp:
		return d.catchUp(c)
	case changeLast:
		if d.store.applied >= c.index {
			d.endChange(d.verify(c))
		}
	case changeTakeBack:
		if d.store.applied >= c.index {
			d.endChange(nil) // the caller was told before
		}
	}
	return false
}

// ask checks the change against the membership and makes its first proposal, as soon as
// an entry of this leader's is committed: before that, raft takes no change.
func (d *driver) ask(c *change) bool {
	if err := c.ctx.Err(); err != nil {
		d.endChange(err)
		return false
	}
	if term, err := d.store.Term(d.store.applied); err != nil || term != d.term {
		return false
	}
	conf, _ := d.conf()
	voters, id := conf.voters(), raftID(c.voter.Member)
	at := slices.IndexFunc(voters, func(v Voter) bool { return v.Member == c.voter.Member })
	switch c.kind {
	case addVoter:
		if err := duplicate(voters, c.voter); err != nil {
			d.endChange(err)
			return false
		}
		if l, ok := conf.learner(id); ok && l.Equal(c.voter) {
			c.phase, c.target = changeCatchUp, d.store.lastIndex()
			return false
		}
		return d.proposeChange(c, changeLearning, pb.ConfChangeAddLearnerNode)
	case removeVoter:
		if at < 0 {
			d.endChange(fmt.Errorf("%w: %s is not in the voter set", ErrVoterNotFound, c.voter.Member))
			return false
		}
		if len(voters) == 1 {
			d.endChange(fmt.Errorf("%w: %s", ErrLastVoter, c.voter.Member))
			return false
		}
		if err := d.majorityWithout(voters, c.voter.Member); err != nil {
			if c.ticks > 2*d.n.o.ElectionTicks { // a new leader may not have heard of all yet
				d.endChange(err)
			}
			return false
		}
		return d.proposeChange(c, changeLast, pb.ConfChangeRemoveNode)
	case updateVoter:
		if at < 0 {
			d.endChange(fmt.Errorf("%w: %s is not in the voter set", ErrVoterNotFound, c.voter.Member))
			return false
		}
		if voters[at].Equal(c.voter) {
			d.endChange(nil)
			return false
		}
		return d.proposeChange(c, changeLast, pb.ConfChangeUpdateNode)
	case dropLearner:
		if _, ok := conf.learner(id); !ok {
			d.endChange(nil)
			return false
		}
		return d.proposeChange(c, changeLast, pb.ConfChangeRemoveNode)
	}
	return false
}

// majorityWithout checks that the voters that answer are a majority when m has gone: else nothing could be
// committed any more, not even the way back.
func (d *driver) majorityWithout(voters []Voter, m Member) error {
	var silent []Voter
	left := 0
	for _, v := range voters {
		if v.Member == m {
			continue
		}
		left++
		f := d.follows[raftID(v.Member)]
		if v.Member != d.n.o.Self && (f == nil || time.Since(f.lastFetch) > 2*d.n.electionTimeout()) {
			silent = append(silent, v)
		}
	}
	if left-len(silent) > left/2 {
		return nil
	}
	return fmt.Errorf("%w without %s, since these voters don't answer: %s. Start them first", ErrNoMajority, m, nodeIDs(silent))
}

// electionTimeout is how long a voter waits for word from the leader.
func (n *Node) electionTimeout() time.Duration {
	return time.Duration(n.o.ElectionTicks) * n.o.Tick
}

// silentElections is how many election timeouts a new voter may be silent while it is fed the log. It has
// answered before, so this is no matter of an address; the change must not hold up others for long.
const silentElections = 20

// catchUp makes the learner a voter once it keeps up: it got, within an election
// timeout, all that was in the log when that began.
func (d *driver) catchUp(c *change) bool {
	if c.ctx.Err() != nil {
		c.tell(fmt.Errorf("quorum: %s has not caught up in time: %w", c.voter.Member, c.ctx.Err()))
		return d.proposeChange(c, changeTakeBack, pb.ConfChangeRemoveNode)
	}
	if c.silent > silentElections*d.n.o.ElectionTicks {
		c.tell(fmt.Errorf("%w: %s has not answered for %v: look at its log, and whether it is reached at its endpoints",
			ErrNotReady, c.voter.Member, silentElections*d.n.electionTimeout()))
		return d.proposeChange(c, changeTakeBack, pb.ConfChangeRemoveNode)
	}
	match, fed := uint64(0), false
	d.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == raftID(c.voter.Member) {
			match, fed = pr.Match, pr.State == tracker.StateReplicate
		}
	})
	if !fed || match < c.target {
		return false
	}
	if c.ticks > d.n.o.ElectionTicks {
		c.target, c.ticks = d.store.lastIndex(), 0 // a round more
		return false
	}
	proposed := d.proposeChange(c, changeLast, pb.ConfChangeAddNode)
	if proposed && !c.ack {
		c.tell(nil)
	}
	return proposed
}

// proposeChange proposes one step and moves the change to the phase in which it is
// waited for. When raft can't take it now, the phase stays. Nothing is unsaved now, so
// the proposal becomes the next entry.
func (d *driver) proposeChange(c *change, next changePhase, t pb.ConfChangeType) bool {
	cc := &pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: t.Enum(), NodeId: new(raftID(c.voter.Member))}},
		Context: appendChange(nil, []Voter{c.voter}), // of a removal for those who read the log
	}
	index := d.store.lastIndex() + 1
	if err := d.raft.ProposeConfChange(cc); err != nil {
		if !errors.Is(err, raft.ErrProposalDropped) {
			d.endChange(err)
		}
		return false
	}
	c.index, c.phase = index, next
	return true
}

// verify checks that raft took the change.
func (d *driver) verify(c *change) error {
	conf, _ := d.conf()
	there := slices.ContainsFunc(conf.voters(), func(v Voter) bool { return v.Member == c.voter.Member })
	if wanted := c.kind == addVoter || c.kind == updateVoter; there != wanted {
		return fmt.Errorf("%w: raft refused it", ErrChangePending)
	}
	d.n.o.Logger.Info("metadata quorum voters changed", "voter", c.voter.String(), "voters", nodeIDs(conf.voters()))
	return nil
}

// idleLearnerTicks is how many election timeouts a learner stays that nobody makes a
// voter: the leader that began it is gone.
const idleLearnerTicks = 30

// dropIdleLearners removes learners that a change which was broken off left behind.
func (d *driver) dropIdleLearners() {
	if d.change != nil {
		d.change.ticks++
		d.change.silent++
	}
	conf, _ := d.conf()
	if d.role != raft.StateLeader || d.change != nil || len(conf.conf.GetLearners()) == 0 {
		d.idle = 0
		return
	}
	if d.idle++; d.idle < idleLearnerTicks*d.n.o.ElectionTicks {
		return
	}
	d.idle = 0
	if l, ok := conf.learner(conf.conf.GetLearners()[0]); ok {
		d.beginChange(&change{kind: dropLearner, voter: l, ctx: d.n.ctx, done: make(chan error, 1)})
	}
}

// resign asks raft to hand over the leadership.
func (n *Node) resign(ctx context.Context) error {
	s, changed := n.changed()
	if !s.IsLeader {
		return nil
	}
	epoch := s.Epoch
	asked := false
	for {
		if !asked {
			if err := n.call(func() { asked = n.driver.handOver() }); err != nil {
				return err
			}
			if !asked {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		if s, changed = n.changed(); !s.IsLeader || s.Epoch != epoch {
			return nil
		}
	}
}

// handOver picks the voter with the longest log that was heard of lately.
func (d *driver) handOver() bool {
	best, match := uint64(0), uint64(0)
	d.raft.WithProgress(func(id uint64, t raft.ProgressType, pr tracker.Progress) {
		if id != d.n.id && t == raft.ProgressTypePeer && pr.RecentActive && pr.Match > match {
			best, match = id, pr.Match
		}
	})
	if best == 0 || d.role != raft.StateLeader {
		return false
	}
	d.raft.TransferLeader(best)
	return true
}
