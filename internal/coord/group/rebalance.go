package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// touchSession gives the member a full session from now.
func (m *Machine) touchSession(now time.Time, g *group, mb *member) {
	m.session(now, g, mb, mb.sessionTimeout)
}

func (m *Machine) session(now time.Time, g *group, mb *member, d time.Duration) {
	if mb.session.fire == nil {
		mb.session.fire = func(now time.Time, e *Effects) { m.sessionExpired(now, g, mb, e) }
	}
	m.timers.set(&mb.session, now.Add(d))
}

// sessionExpired removes a member that was not heard of.
func (m *Machine) sessionExpired(now time.Time, g *group, mb *member, e *Effects) {
	if g.members[mb.id] != mb || mb.alive() {
		return
	}
	m.log.Info("member failed to heartbeat, removed", "group", g.id, "member", mb.id, "generation", g.generation)
	e.touch(g.id)
	m.remove(g, mb, api.UnknownMemberID, e)
	switch g.state {
	case Stable, CompletingRebalance:
		m.prepareRebalance(now, g, "a member's session expired", e)
	case PreparingRebalance:
		if g.allJoined() {
			m.completeJoin(now, g, e)
		}
	default:
	}
}

// pendingExpired forgets a member that never came back with its new id.
func (m *Machine) pendingExpired(now time.Time, g *group, id string, e *Effects) {
	delete(g.pendingJoin, id)
	e.touch(g.id)
	if g.state == PreparingRebalance && g.allJoined() {
		m.completeJoin(now, g, e)
	}
}

// remove takes the member out of the group; what it waits for fails with code.
func (m *Machine) remove(g *group, mb *member, code api.Code, e *Effects) {
	m.answerJoin(g, mb, &kmsg.JoinGroupResponse{ErrorCode: int16(code)}, e)
	m.answerSync(mb, &kmsg.SyncGroupResponse{ErrorCode: int16(code)}, e)
	m.timers.cancel(&mb.session)
	g.drop(mb)
}

// answerJoin ends the member's waiting join, if it has one.
func (m *Machine) answerJoin(g *group, mb *member, r *kmsg.JoinGroupResponse, e *Effects) {
	if mb.join == nil {
		return
	}
	join := mb.join
	mb.join = nil
	g.awaiting--
	e.Replies = append(e.Replies, func(err error) { join(err, r) })
}

// answerSync ends the member's waiting sync, if it has one, and says if it had.
func (m *Machine) answerSync(mb *member, r *kmsg.SyncGroupResponse, e *Effects) bool {
	if mb.sync == nil {
		return false
	}
	sync := mb.sync
	mb.sync = nil
	e.Replies = append(e.Replies, func(err error) { sync(err, r) })
	return true
}

// rebalanceOrComplete begins a rebalance, or ends one that waited only for this.
func (m *Machine) rebalanceOrComplete(now time.Time, g *group, reason string, e *Effects) {
	if g.canRebalance() {
		m.prepareRebalance(now, g, reason, e)
		return
	}
	m.maybeCompleteJoin(now, g, e)
}

// maybeCompleteJoin ends the join phase if everyone is there. The first
// rebalance of a group ends by its timer only.
func (m *Machine) maybeCompleteJoin(now time.Time, g *group, e *Effects) {
	if g.state == PreparingRebalance && g.prev != Empty && g.allJoined() {
		m.completeJoin(now, g, e)
	}
}

// prepareRebalance asks all members to join again and waits for them: up to the
// longest rebalance timeout, or for the initial delay if the group was empty.
func (m *Machine) prepareRebalance(now time.Time, g *group, reason string, e *Effects) {
	if g.state == CompletingRebalance {
		m.failSyncs(now, g, api.RebalanceInProgress, e)
	}
	clear(g.pendingSync)
	m.timers.cancel(&g.syncTimer)

	initial := g.state == Empty
	m.setState(now, g, PreparingRebalance)
	m.log.Info("rebalance begins", "group", g.id, "generation", g.generation, "members", len(g.members), "reason", reason)
	if initial {
		delay := m.cfg().InitialRebalanceDelay
		g.newMember = false
		g.initDelay, g.initRemain = delay, max(g.rebalanceTimeout()-delay, 0)
		m.joinTimer(now, g, delay, m.initialDelayOver)
		return
	}
	if g.allJoined() {
		m.completeJoin(now, g, e)
		return
	}
	m.joinTimer(now, g, g.rebalanceTimeout(), m.completeJoin)
}

// joinTimer (re)starts the wait for joins.
func (m *Machine) joinTimer(now time.Time, g *group, d time.Duration, then func(time.Time, *group, *Effects)) {
	m.timers.cancel(&g.joinTimer)
	g.joinTimer.fire = func(now time.Time, e *Effects) {
		e.touch(g.id)
		then(now, g, e)
	}
	m.timers.set(&g.joinTimer, now.Add(d))
}

// initialDelayOver ends the wait of a new group, or prolongs it as long as
// members keep coming, at most to the rebalance timeout (KIP-134).
func (m *Machine) initialDelayOver(now time.Time, g *group, e *Effects) {
	if !g.newMember || g.initRemain == 0 {
		m.completeJoin(now, g, e)
		return
	}
	g.newMember = false
	delay := min(m.cfg().InitialRebalanceDelay, g.initRemain)
	g.initDelay, g.initRemain = delay, max(g.initRemain-g.initDelay, 0)
	m.joinTimer(now, g, delay, m.initialDelayOver)
}

// completeJoin ends the join phase: dynamic members that didn't join are out,
// the generation goes up, and those who joined are told. A group without members
// becomes empty, which is stored.
func (m *Machine) completeJoin(now time.Time, g *group, e *Effects) {
	m.timers.cancel(&g.joinTimer)
	e.touch(g.id)
	for _, mb := range append([]*member(nil), g.order...) {
		if mb.join == nil && mb.instance == nil {
			m.log.Info("member did not rejoin, removed", "group", g.id, "member", mb.id, "generation", g.generation)
			m.remove(g, mb, api.UnknownMemberID, e)
		}
	}
	if !g.electJoined() && len(g.members) > 0 {
		// Only static members are left and none joined: they stay members until
		// their sessions end.
		m.log.Info("rebalance waits on, no member rejoined", "group", g.id, "generation", g.generation)
		m.joinTimer(now, g, g.rebalanceTimeout(), m.completeJoin)
		return
	}
	g.generation++
	clear(g.pendingSync)
	if len(g.members) == 0 {
		g.protocol, g.hasProtocol = "", false
		g.subscribe()
		m.setState(now, g, Empty)
		m.log.Info("group is empty", "group", g.id, "generation", g.generation)
		e.add(groupRecord(g, nil))
		return
	}
	g.protocol, g.hasProtocol = g.selectProtocol(), true
	g.subscribe()
	m.setState(now, g, CompletingRebalance)
	m.stats.rebalances++
	m.log.Info("generation formed", "group", g.id, "generation", g.generation, "members", len(g.members), "leader", g.leader)
	for _, mb := range g.order {
		m.answerJoin(g, mb, m.joined(g, mb), e)
		m.touchSession(now, g, mb)
		mb.isNew = false
		g.pendingSync[mb.id] = struct{}{}
	}
	m.awaitSyncs(now, g)
}

// joined is the answer to a join of the current generation. The leader gets the
// list of members.
func (m *Machine) joined(g *group, mb *member) *kmsg.JoinGroupResponse {
	r := &kmsg.JoinGroupResponse{MemberID: mb.id, Generation: g.generation, LeaderID: g.leader}
	if g.protocolType != "" {
		r.ProtocolType = new(g.protocolType)
	}
	if g.hasProtocol {
		r.Protocol = new(g.protocol)
	}
	if mb.id == g.leader {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *group) joinMembers() []kmsg.JoinGroupResponseMember {
	out := make([]kmsg.JoinGroupResponseMember, 0, len(g.order))
	for _, mb := range g.order {
		out = append(out, kmsg.JoinGroupResponseMember{
			MemberID:         mb.id,
			InstanceID:       mb.instance,
			ProtocolMetadata: mb.metadata(g.protocol),
		})
	}
	return out
}

// awaitSyncs starts the wait for the generation's syncs.
func (m *Machine) awaitSyncs(now time.Time, g *group) {
	generation := g.generation
	m.timers.cancel(&g.syncTimer)
	g.syncTimer.fire = func(now time.Time, e *Effects) { m.syncsExpired(now, g, generation, e) }
	m.timers.set(&g.syncTimer, now.Add(g.rebalanceTimeout()))
}

// syncsExpired removes the members that joined and never synced.
func (m *Machine) syncsExpired(now time.Time, g *group, generation int32, e *Effects) {
	if generation != g.generation || len(g.pendingSync) == 0 ||
		g.state != CompletingRebalance && g.state != Stable {
		return
	}
	e.touch(g.id)
	for _, mb := range append([]*member(nil), g.order...) {
		if _, missing := g.pendingSync[mb.id]; missing {
			m.log.Info("member did not sync, removed", "group", g.id, "member", mb.id, "generation", g.generation)
			m.remove(g, mb, api.UnknownMemberID, e)
		}
	}
	m.prepareRebalance(now, g, "members did not sync", e)
}

// failSyncs forgets the assignments being made and fails the syncs that wait.
func (m *Machine) failSyncs(now time.Time, g *group, code api.Code, e *Effects) {
	for _, mb := range g.order {
		mb.assignment = nil
		if m.answerSync(mb, &kmsg.SyncGroupResponse{ErrorCode: int16(code)}, e) {
			m.touchSession(now, g, mb)
		}
	}
}
