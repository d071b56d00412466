package group

import (
	"slices"
	"time"

	"milena/internal/api"
)

// expire removes offsets whose retention has passed, and empty groups that have
// none left (KIP-211). It goes on with the next groups when it is called again.
//
//	group                      what counts
//	no protocol type           the age of each commit
//	empty                      how long it has been empty
//	stable, of consumers       the age of each commit, for topics not subscribed to
//	any other                  nothing expires
//
// An offset committed with a retention of its own expires by that.
func (m *Machine) expire(now time.Time, e *Effects) {
	if m.expiring == nil {
		m.expiring = m.ids()
	}
	for len(m.expiring) > 0 {
		id := m.expiring[0]
		if g := m.groups[id]; g != nil && !m.expireGroup(now, g, e) {
			m.timers.set(&m.expiry, now) // the same group once more, in the next batch
			return
		}
		m.expiring = m.expiring[1:]
	}
	m.expiring = nil
	m.timers.set(&m.expiry, now.Add(m.cfg().RetentionCheck))
}

// expireGroup reports whether it could write all there was to write.
func (m *Machine) expireGroup(now time.Time, g *group, e *Effects) bool {
	keeps := false
	due := func(topic string, partition int32) bool {
		if m.offsetDue(now, g, topic, partition) {
			return true
		}
		keeps = true
		return false
	}
	n := len(e.Records)
	all := m.tombstones(g, due, e)
	m.stats.expired += len(e.Records) - n
	if len(e.Records) > n {
		e.touch(g.id)
	}
	if !all {
		return false
	}
	if keeps || g.state != Empty || len(g.pendingJoin) > 0 {
		return true
	}
	e.touch(g.id)
	e.add(groupTombstone(g.id))
	m.log.Info("group expired", "group", g.id, "generation", g.generation)
	return true
}

func (m *Machine) offsetDue(now time.Time, g *group, topic string, partition int32) bool {
	c := g.offsets[topic][partition]
	since := c.commitMs
	switch {
	case g.protocolType == "":
	case g.state == Empty:
		if g.stateMs != -1 {
			since = g.stateMs
		}
	case g.isConsumer() && g.topics != nil && g.state == Stable:
	default:
		return false
	}
	if g.subscribedTo(topic) {
		return false
	}
	nowMs := now.UnixMilli()
	if c.expireMs != -1 {
		if nowMs < c.expireMs {
			return false
		}
	} else if nowMs-since < m.cfg().Retention.Milliseconds() {
		return false
	}
	return m.held == nil || !m.held(g.id, TopicRef{topic, c.topicID}, partition)
}

// Describe returns the group as DescribeGroups shows it; GROUP_ID_NOT_FOUND and
// Dead for a group that doesn't exist.
func (m *Machine) Describe(id string) Description {
	g := m.groups[id]
	if g == nil {
		return Description{Group: id, Code: api.GroupIDNotFound, State: Dead}
	}
	d := Description{Group: id, State: g.state, ProtocolType: g.protocolType}
	stable := g.state == Stable
	if stable {
		d.Protocol = g.protocol
	}
	for _, mb := range g.order {
		v := MemberDescription{
			ID:         mb.id,
			InstanceID: mb.instance,
			Client:     mb.client,
			Assignment: mb.assignment,
		}
		if stable {
			v.Metadata = mb.metadata(g.protocol)
		}
		d.Members = append(d.Members, v)
	}
	return d
}

// Description is a group as DescribeGroups shows it. Its byte slices must not be
// changed.
type Description struct {
	Group        string
	Code         api.Code
	State        State
	ProtocolType string
	Protocol     string // of a stable group
	Members      []MemberDescription
}

// MemberDescription is a member of a Description.
type MemberDescription struct {
	ID         string
	InstanceID *string
	Client
	Metadata   []byte // of a stable group
	Assignment []byte
}

// Listed is a group as ListGroups shows it.
type Listed struct {
	Group        string
	ProtocolType string
	State        State
}

// list returns the groups that the filter admits, by id.
func (m *Machine) list(f listFilter) []Listed {
	var out []Listed
	for _, id := range m.ids() {
		if g := m.groups[id]; f.admits(g.state) {
			out = append(out, Listed{id, g.protocolType, g.state})
		}
	}
	return out
}

// Views returns all groups with their committed offsets, by id.
func (m *Machine) Views() []View {
	out := make([]View, 0, len(m.groups))
	for _, id := range m.ids() {
		g := m.groups[id]
		v := View{Group: id, State: g.state, ProtocolType: g.protocolType, Members: len(g.members), Generation: g.generation}
		for _, t := range g.allOffsets() {
			for _, p := range t.Partitions {
				c := g.offsets[t.Name][p.Partition]
				v.Offsets = append(v.Offsets, OffsetView{TopicRef{t.Name, c.topicID}, p.Partition, c.offset, c.epoch, c.commitMs})
			}
		}
		v.Offsets = slices.Clip(v.Offsets)
		out = append(out, v)
	}
	return out
}
