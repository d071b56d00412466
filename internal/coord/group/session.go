package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// Heartbeat keeps a member's session, and tells it of a rebalance.
func (m *Machine) Heartbeat(now time.Time, req *kmsg.HeartbeatRequest) api.Code {
	g := m.groups[req.Group]
	if g == nil {
		return api.UnknownMemberID
	}
	if code := g.validate(req.MemberID, req.InstanceID); code != api.NoError {
		return code
	}
	if req.Generation != g.generation {
		return api.IllegalGeneration
	}
	m.touchSession(now, g, g.members[req.MemberID])
	if g.state == PreparingRebalance {
		return api.RebalanceInProgress
	}
	return api.NoError
}

// LeaveDone is told the outcome of a leave: an error if the coordinator was
// lost, else the code of each member, in the order of the request.
type LeaveDone func(error, []api.Code)

// Leave removes members. A member without an id is removed by its instance id:
// the administrative form (KIP-345).
func (m *Machine) Leave(now time.Time, group string, members []kmsg.LeaveGroupRequestMember, done LeaveDone) Effects {
	e := Effects{Groups: []string{group}}
	codes := make([]api.Code, len(members))
	e.Replies = append(e.Replies, func(err error) { done(err, codes) })
	g := m.groups[group]
	left := false
	for i, who := range members {
		if g == nil {
			codes[i] = api.UnknownMemberID
			continue
		}
		codes[i] = m.leaveOne(g, who, &e)
		left = left || codes[i] == api.NoError
	}
	if !left {
		return e
	}
	switch g.state {
	case Stable, CompletingRebalance:
		m.prepareRebalance(now, g, "members left", &e)
	case PreparingRebalance:
		m.maybeCompleteJoin(now, g, &e)
	default:
	}
	return e
}

func (m *Machine) leaveOne(g *group, who kmsg.LeaveGroupRequestMember, e *Effects) api.Code {
	id := who.MemberID
	switch {
	case id == "":
		if who.InstanceID != nil {
			id = g.static[*who.InstanceID]
		}
		if id == "" {
			return api.UnknownMemberID
		}
	case m.dropPending(g, id):
		return api.NoError
	default:
		if code := g.validate(id, who.InstanceID); code != api.NoError {
			return code
		}
	}
	reason := "not given"
	if who.Reason != nil {
		reason = *who.Reason
	}
	m.log.Info("member left", "group", g.id, "member", id, "generation", g.generation, "reason", reason)
	m.remove(g, g.members[id], api.UnknownMemberID, e)
	return api.NoError
}
