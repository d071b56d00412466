package group

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
)

// consumerType is the protocol type of consumers. Of these groups the
// coordinator reads the subscriptions, to know which offsets are in use.
const consumerType = "consumer"

// group is one classic group. Owned by the Machine.
//
// Invariants: members and order hold the same members; awaiting counts those
// with a waiting join; supports counts, for each protocol, the members that
// offer it; static maps the instance ids of members to their ids; leader is a
// member's id or empty; the sync timer is armed only while syncs are missing.
type group struct {
	id           string
	state, prev  State
	stateMs      int64 // when state was entered, -1: unknown
	generation   int32
	protocolType string // empty for a group that only stores offsets
	protocol     string
	hasProtocol  bool
	leader       string

	members  map[string]*member
	order    []*member // in the order they joined
	static   map[string]string
	supports map[string]int
	awaiting int

	// pendingJoin are members that were given an id and haven't joined with it.
	pendingJoin map[string]*timer
	pendingSync map[string]struct{}

	// The initial delay: how long the next wait is, and how much may still follow.
	newMember             bool
	initDelay, initRemain time.Duration

	// topics are those the members subscribe to; nil if that isn't known.
	topics map[string]struct{}

	offsets map[string]map[int32]committed

	joinTimer, syncTimer timer
}

// committed is a committed offset.
type committed struct {
	offset   int64
	epoch    int32 // -1: none
	metadata string
	commitMs int64
	expireMs int64 // -1: by the retention
	topicID  ids.UUID
}

func newGroup(id string, nowMs int64) *group {
	return &group{
		id:          id,
		stateMs:     nowMs,
		members:     map[string]*member{},
		static:      map[string]string{},
		supports:    map[string]int{},
		pendingJoin: map[string]*timer{},
		pendingSync: map[string]struct{}{},
		offsets:     map[string]map[int32]committed{},
	}
}

// isConsumer reports whether the group's members are consumers.
func (g *group) isConsumer() bool { return g.protocolType == consumerType }

// allJoined reports whether nobody is waited for.
func (g *group) allJoined() bool {
	return len(g.members) == g.awaiting && len(g.pendingJoin) == 0
}

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, mb := range g.order {
		d = max(d, mb.rebalanceTimeout)
	}
	return d
}

// canRebalance reports whether a rebalance may begin in this state.
func (g *group) canRebalance() bool {
	return g.state == Stable || g.state == CompletingRebalance || g.state == Empty
}

// supportsProtocols reports whether a member with these protocols could be in
// the group: its type is the group's, and one of its protocols is offered by
// every member.
func (g *group) supportsProtocols(protocolType string, ps []protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(ps) > 0
	}
	if g.protocolType == "" || g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(ps, func(p protocol) bool { return g.supports[p.name] == len(g.members) })
}

// validate checks that the member is in the group and not fenced by a newer
// bearer of its instance id (KIP-345).
func (g *group) validate(memberID string, instance *string) api.Code {
	if instance != nil {
		owner, ok := g.static[*instance]
		if !ok {
			return api.UnknownMemberID
		}
		if owner != memberID {
			return api.FencedInstanceID
		}
	}
	if g.members[memberID] == nil {
		return api.UnknownMemberID
	}
	return api.NoError
}

// add puts the member into the group. Its protocols must be supported.
func (g *group) add(mb *member) {
	if mb.instance != nil {
		g.static[*mb.instance] = mb.id
	}
	if len(g.members) == 0 {
		g.protocolType = mb.protocolType
	}
	if g.leader == "" {
		g.leader = mb.id
	}
	g.members[mb.id] = mb
	g.order = append(g.order, mb)
	g.count(mb, +1)
	if mb.join != nil {
		g.awaiting++
	}
}

// count adds n to the count of each protocol the member offers.
func (g *group) count(mb *member, n int) {
	for _, p := range mb.protocols {
		if g.supports[p.name] += n; g.supports[p.name] == 0 {
			delete(g.supports, p.name)
		}
	}
}

// drop takes the member out of the group. A leader is followed by the eldest.
// Its timers and waiting requests are the caller's to end.
func (g *group) drop(mb *member) {
	delete(g.members, mb.id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == mb })
	g.count(mb, -1)
	if mb.join != nil {
		g.awaiting--
	}
	if mb.instance != nil && g.static[*mb.instance] == mb.id {
		delete(g.static, *mb.instance)
	}
	if g.leader == mb.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
	delete(g.pendingSync, mb.id)
}

// electJoined makes sure that the leader is among those who joined, and reports
// whether there is such a leader.
func (g *group) electJoined() bool {
	if g.leader == "" {
		return false
	}
	if g.members[g.leader].join != nil {
		return true
	}
	for _, mb := range g.order {
		if mb.join != nil {
			g.leader = mb.id
			return true
		}
	}
	return false
}

// selectProtocol lets each member vote for the first of its protocols that all
// support. The one with most votes wins, of several the one voted for first.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	var names []string
	for _, mb := range g.order {
		name, ok := mb.vote(g.supports, len(g.members))
		if !ok {
			continue
		}
		if votes[name]++; votes[name] == 1 {
			names = append(names, name)
		}
	}
	best := ""
	for _, n := range names {
		if votes[n] > votes[best] {
			best = n
		}
	}
	return best
}

// subscribe finds out which topics the members subscribe to.
func (g *group) subscribe() {
	g.topics = nil
	switch {
	case !g.isConsumer():
	case len(g.members) == 0:
		g.topics = map[string]struct{}{}
	case g.hasProtocol:
		topics := map[string]struct{}{}
		for _, mb := range g.order {
			if !subscription(mb.metadata(g.protocol), topics) {
				return
			}
		}
		g.topics = topics
	}
}

// subscribedTo reports whether a member uses the topic. If the subscriptions of
// consumers can't be read, every topic counts as used.
func (g *group) subscribedTo(topic string) bool {
	if g.topics == nil {
		return g.isConsumer()
	}
	_, ok := g.topics[topic]
	return ok
}

// subscription adds the topics of a consumer's subscription. It reads version 0
// of the consumer protocol, with which every version begins:
//
//	int16 version, int32 n, n * (int16 length, topic), int32 length, user data
func subscription(b []byte, topics map[string]struct{}) bool {
	r := reader{b: b}
	if r.int(2) < 0 {
		return false
	}
	for n := r.int(4); n > 0 && r.ok(); n-- {
		if name := r.take(r.int(2)); r.ok() {
			topics[string(name)] = struct{}{}
		}
	}
	if n := r.int(4); n >= 0 {
		r.take(n)
	}
	return r.ok()
}

// reader reads big-endian numbers and bytes, and notes when they are missing.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) ok() bool { return !r.bad }

// int reads a signed number of 2 or 4 bytes.
func (r *reader) int(size int) int {
	b := r.take(size)
	switch len(b) {
	case 2:
		return int(int16(b[0])<<8 | int16(b[1]))
	case 4:
		return int(int32(b[0])<<24 | int32(b[1])<<16 | int32(b[2])<<8 | int32(b[3]))
	}
	return -1
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}
