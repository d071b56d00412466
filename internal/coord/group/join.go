package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// JoinDone is told the outcome of a join: an error if the coordinator was lost,
// else the response.
type JoinDone func(error, *kmsg.JoinGroupResponse)

// Versions of JoinGroup from which something holds.
const (
	joinRequiresMemberID = 4 // KIP-394
	joinSkipsAssignment  = 9 // KIP-814
)

// checkJoin checks what doesn't depend on the group.
func checkJoin(cfg Config, req *kmsg.JoinGroupRequest) api.Code {
	if req.Group == "" {
		return api.InvalidGroupID
	}
	if d := millis(req.SessionTimeoutMillis); d < cfg.MinSessionTimeout || d > cfg.MaxSessionTimeout {
		return api.InvalidSessionTimeout
	}
	return api.NoError
}

func joinError(code api.Code, memberID string) *kmsg.JoinGroupResponse {
	return &kmsg.JoinGroupResponse{ErrorCode: int16(code), MemberID: memberID, Generation: -1}
}

// join is one join request under way.
type join struct {
	now       time.Time
	client    Client
	req       *kmsg.JoinGroupRequest
	protocols []protocol
	done      JoinDone
	e         *Effects
}

func (j *join) reply(r *kmsg.JoinGroupResponse) {
	j.e.Replies = append(j.e.Replies, func(err error) { j.done(err, r) })
}

func (j *join) fail(code api.Code, memberID string) { j.reply(joinError(code, memberID)) }

// Join adds a member to the group, or lets a member rejoin. done is called when
// the join phase ends. The machine keeps req's byte slices.
func (m *Machine) Join(now time.Time, c Client, req *kmsg.JoinGroupRequest, done JoinDone) Effects {
	e := Effects{Groups: []string{req.Group}}
	j := &join{now: now, client: c, req: req, protocols: protocolsOf(req.Protocols), done: done, e: &e}
	g := m.groups[req.Group]
	isNew := g == nil
	if isNew {
		// A new group begins with a member that has no id yet, and offers something.
		switch {
		case req.MemberID != "":
			j.fail(api.UnknownMemberID, req.MemberID)
			return e
		case req.ProtocolType == "" || len(j.protocols) == 0:
			j.fail(api.InconsistentGroupProtocol, "")
			return e
		}
		g = m.create(req.Group, now.UnixMilli())
	}
	switch {
	case !m.hasRoom(g, req.MemberID):
		m.turnAway(g, req.MemberID, j)
	case req.MemberID == "":
		m.joinNew(g, j)
	default:
		m.joinKnown(g, j)
	}
	if isNew && len(e.Records) == 0 {
		e.add(newGroupRecord(g))
	}
	return e
}

// hasRoom checks group.max.size. While the group rebalances, those who have
// joined count: so a group that is too large shrinks by who comes last.
func (m *Machine) hasRoom(g *group, memberID string) bool {
	mb := g.members[memberID]
	switch g.state {
	case PreparingRebalance:
		return mb != nil && mb.join != nil || g.awaiting < m.cfg().MaxSize
	case CompletingRebalance, Stable:
		return mb != nil || len(g.members) < m.cfg().MaxSize
	default:
		return true
	}
}

func (m *Machine) turnAway(g *group, memberID string, j *join) {
	if mb := g.members[memberID]; mb != nil {
		m.remove(g, mb, api.GroupMaxSizeReached, j.e)
	}
	m.dropPending(g, memberID)
	j.fail(api.GroupMaxSizeReached, "")
}

func (m *Machine) dropPending(g *group, memberID string) bool {
	t := g.pendingJoin[memberID]
	if t == nil {
		return false
	}
	m.timers.cancel(t)
	delete(g.pendingJoin, memberID)
	return true
}

// joinNew lets a member join that has no id yet.
func (m *Machine) joinNew(g *group, j *join) {
	if !g.supportsProtocols(j.req.ProtocolType, j.protocols) {
		j.fail(api.InconsistentGroupProtocol, "")
		return
	}
	prefix := j.client.ID
	if j.req.InstanceID != nil {
		prefix = *j.req.InstanceID
	}
	id, err := m.newMemberID(prefix)
	if err != nil {
		m.log.Error("join refused", "group", g.id, "error", err)
		j.fail(api.UnknownServerError, "")
		return
	}
	switch {
	case j.req.InstanceID != nil:
		if old := g.static[*j.req.InstanceID]; old != "" {
			m.replaceStatic(g, g.members[old], id, j)
			return
		}
		m.addMember(g, id, j)
	case j.req.Version >= joinRequiresMemberID:
		t := &timer{fire: func(now time.Time, e *Effects) { m.pendingExpired(now, g, id, e) }}
		g.pendingJoin[id] = t
		m.timers.set(t, j.now.Add(millis(j.req.SessionTimeoutMillis)))
		j.fail(api.MemberIDRequired, id)
	default:
		m.addMember(g, id, j)
	}
}

// joinKnown lets a member join with the id it was given.
func (m *Machine) joinKnown(g *group, j *join) {
	id := j.req.MemberID
	if !g.supportsProtocols(j.req.ProtocolType, j.protocols) {
		j.fail(api.InconsistentGroupProtocol, id)
		return
	}
	if g.pendingJoin[id] != nil {
		if j.req.InstanceID != nil {
			j.fail(api.UnknownServerError, id) // no static member is ever pending
			return
		}
		m.addMember(g, id, j)
		return
	}
	if code := g.validate(id, j.req.InstanceID); code != api.NoError {
		j.fail(code, id)
		return
	}
	mb := g.members[id]
	switch g.state {
	case PreparingRebalance:
		m.rejoin(g, mb, "member rejoins", j)
	case CompletingRebalance:
		if mb.matches(j.protocols) {
			// It may not have got the answer to its join.
			j.reply(m.joined(g, mb))
			return
		}
		m.rejoin(g, mb, "a member's metadata changed", j)
	case Stable:
		switch {
		case id == g.leader:
			// The leader may know of changes that the protocols don't show, such
			// as new partitions.
			m.rejoin(g, mb, "the leader rejoins", j)
		case !mb.matches(j.protocols):
			m.rejoin(g, mb, "a member's metadata changed", j)
		default:
			j.reply(m.joined(g, mb))
		}
	default:
		j.fail(api.UnknownMemberID, id)
	}
}

// addMember adds a member and begins a rebalance.
func (m *Machine) addMember(g *group, id string, j *join) {
	mb := &member{
		id:               id,
		instance:         j.req.InstanceID,
		client:           j.client,
		sessionTimeout:   millis(j.req.SessionTimeoutMillis),
		rebalanceTimeout: millis(j.req.RebalanceTimeoutMillis),
		protocolType:     j.req.ProtocolType,
		protocols:        j.protocols,
		isNew:            true,
		join:             j.done,
	}
	if g.state == PreparingRebalance && g.prev == Empty {
		g.newMember = true
	}
	m.dropPending(g, id)
	g.add(mb)
	m.session(j.now, g, mb, newMemberJoinTimeout)
	m.rebalanceOrComplete(j.now, g, "a member joins", j.e)
}

// rejoin takes over what the member says now and begins, or goes on with, a
// rebalance.
func (m *Machine) rejoin(g *group, mb *member, reason string, j *join) {
	m.update(g, mb, j)
	m.rebalanceOrComplete(j.now, g, reason, j.e)
}

// update lets the member wait in this join, with what it says now. A join that
// it had waiting has lost its client; it is told to rejoin.
func (m *Machine) update(g *group, mb *member, j *join) {
	m.answerJoin(g, mb, joinError(api.RebalanceInProgress, mb.id), j.e)
	g.count(mb, -1)
	mb.protocols = j.protocols
	g.count(mb, +1)
	mb.rebalanceTimeout = millis(j.req.RebalanceTimeoutMillis)
	mb.sessionTimeout = millis(j.req.SessionTimeoutMillis)
	mb.join = j.done
	g.awaiting++
}

// replaceStatic gives the place of a static member to its new incarnation, which
// fences the old one (KIP-345). In a stable group whose protocol stays the same
// nothing else changes: the new member gets the old one's assignment at its sync.
func (m *Machine) replaceStatic(g *group, old *member, id string, j *join) {
	oldLeader := g.leader
	m.answerJoin(g, old, joinError(api.FencedInstanceID, old.id), j.e)
	m.answerSync(old, &kmsg.SyncGroupResponse{ErrorCode: int16(api.FencedInstanceID)}, j.e)
	m.timers.cancel(&old.session)
	m.log.Info("static member replaced", "group", g.id, "member", id, "old", old.id, "generation", g.generation)

	mb := *old
	mb.id, mb.session, mb.client = id, timer{}, j.client
	g.rename(old, &mb)
	m.update(g, &mb, j)
	m.touchSession(j.now, g, &mb)

	switch g.state {
	case Stable:
		m.replacedInStable(g, &mb, oldLeader, j)
	case CompletingRebalance:
		// The leader may be assigning to the old id.
		m.prepareRebalance(j.now, g, "a static member was replaced", j.e)
	default:
		m.maybeCompleteJoin(j.now, g, j.e)
	}
}

func (m *Machine) replacedInStable(g *group, mb *member, oldLeader string, j *join) {
	if g.selectProtocol() != g.protocol {
		m.rebalanceOrComplete(j.now, g, "a static member was replaced with other protocols", j.e)
		return
	}
	rec := groupRecord(g, func(mb *member) []byte { return mb.assignment })
	if len(rec.Key)+len(rec.Value) > m.cfg().maxRecordBytes() {
		m.rebalanceOrComplete(j.now, g, "the group's metadata is too large to store", j.e)
		return
	}
	j.e.add(rec)
	r := m.joined(g, mb)
	if j.req.Version >= joinSkipsAssignment {
		r.SkipAssignment = mb.id == g.leader
	} else {
		// Before v9 a client that finds itself the leader must assign: it is told
		// that the old one leads.
		r.LeaderID, r.Members = oldLeader, nil
	}
	m.answerJoin(g, mb, r, j.e)
}

// rename puts the new member in the old one's place.
func (g *group) rename(old, mb *member) {
	delete(g.members, old.id)
	g.members[mb.id] = mb
	for i := range g.order {
		if g.order[i] == old {
			g.order[i] = mb
		}
	}
	g.static[*mb.instance] = mb.id
	if g.leader == old.id {
		g.leader = mb.id
	}
	if _, ok := g.pendingSync[old.id]; ok {
		delete(g.pendingSync, old.id)
		g.pendingSync[mb.id] = struct{}{}
	}
}
