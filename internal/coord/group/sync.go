package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// SyncDone is told the outcome of a sync: an error if the coordinator was lost,
// else the response.
type SyncDone func(error, *kmsg.SyncGroupResponse)

// Sync gives a member its assignment: from the leader's sync, which may be this
// one, or still to come. The machine keeps req's byte slices.
func (m *Machine) Sync(now time.Time, req *kmsg.SyncGroupRequest, done SyncDone) Effects {
	e := Effects{Groups: []string{req.Group}}
	g := m.groups[req.Group]
	code := m.checkSync(g, req)
	if code != api.NoError {
		e.Replies = append(e.Replies, func(err error) { done(err, &kmsg.SyncGroupResponse{ErrorCode: int16(code)}) })
		return e
	}
	mb := g.members[req.MemberID]
	// A sync that the member had waiting has lost its client.
	m.answerSync(mb, &kmsg.SyncGroupResponse{ErrorCode: int16(api.RebalanceInProgress)}, &e)
	mb.sync = done
	if delete(g.pendingSync, mb.id); len(g.pendingSync) == 0 {
		m.timers.cancel(&g.syncTimer)
	}
	switch {
	case g.state == Stable:
		m.answerSync(mb, g.synced(mb), &e)
	case mb.id == g.leader:
		m.assign(now, g, req.GroupAssignment, &e)
	}
	return e
}

func (m *Machine) checkSync(g *group, req *kmsg.SyncGroupRequest) api.Code {
	if g == nil || g.state == Empty {
		return api.UnknownMemberID
	}
	if code := g.validate(req.MemberID, req.InstanceID); code != api.NoError {
		return code
	}
	switch {
	case req.Generation != g.generation:
		return api.IllegalGeneration
	case req.ProtocolType != nil && g.protocolType != "" && *req.ProtocolType != g.protocolType,
		req.Protocol != nil && g.hasProtocol && *req.Protocol != g.protocol:
		return api.InconsistentGroupProtocol
	case g.state == PreparingRebalance:
		return api.RebalanceInProgress
	}
	return api.NoError
}

// synced is the answer to a sync of the current generation.
func (g *group) synced(mb *member) *kmsg.SyncGroupResponse {
	r := &kmsg.SyncGroupResponse{MemberAssignment: mb.assignment}
	if g.protocolType != "" {
		r.ProtocolType = new(g.protocolType)
	}
	if g.hasProtocol {
		r.Protocol = new(g.protocol)
	}
	return r
}

// assign stores what the leader assigned and hands it to all who wait. Members
// the leader left out get an empty assignment.
func (m *Machine) assign(now time.Time, g *group, in []kmsg.SyncGroupRequestGroupAssignment, e *Effects) {
	assignment := make(map[string][]byte, len(in))
	for _, a := range in {
		assignment[a.MemberID] = a.MemberAssignment
	}
	rec := groupRecord(g, func(mb *member) []byte { return assignment[mb.id] })
	if size := len(rec.Key) + len(rec.Value); size > m.cfg().maxRecordBytes() {
		m.log.Warn("a group's assignment is too large to store: raise max.message.bytes of __consumer_offsets",
			"group", g.id, "generation", g.generation, "bytes", size)
		m.failSyncs(now, g, api.UnknownServerError, e)
		m.prepareRebalance(now, g, "the assignment is too large to store", e)
		return
	}
	e.add(rec)
	m.setState(now, g, Stable)
	m.log.Info("group is stable", "group", g.id, "generation", g.generation, "members", len(g.members))
	for _, mb := range g.order {
		mb.assignment = assignment[mb.id]
		if m.answerSync(mb, g.synced(mb), e) {
			// Its session may have ended unnoticed while it waited.
			m.touchSession(now, g, mb)
		}
	}
}
