package group

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"milena/internal/machine"
)

// Machine is one shard of the group coordinator: the groups of one partition of
// __consumer_offsets. It is a plain struct owned by one goroutine.
//
// Its commands change what isn't in the log (members that wait, deadlines) at
// once, and return the records for the rest; whoever drives it applies those
// with Apply, appends them, and answers Effects.Replies when they are committed.
type Machine struct {
	cfg     func() Config
	log     *slog.Logger
	rand    io.Reader
	held    func(group string, t TopicRef, partition int32) bool
	groups  map[string]*group
	timers  timers
	loading bool

	expiry   timer
	expiring []string // groups still to visit in this round of expiry

	stats stats
}

// stats counts what the machine holds.
type stats struct {
	groups  [numStates]int
	offsets int
	// Totals since the machine began.
	rebalances, commits, expired, deleted int
}

// MachineOptions configure a Machine.
type MachineOptions struct {
	Config func() Config // asked at each use; nil: the defaults
	Logger *slog.Logger  // nil: discards
	Rand   io.Reader     // for member ids; nil: crypto/rand
	// Held, if not nil, says that a committed offset must not expire.
	Held func(group string, t TopicRef, partition int32) bool
}

// NewMachine returns a machine that expects the replay of its log.
func NewMachine(o MachineOptions) *Machine {
	if o.Config == nil {
		o.Config = DefaultConfig
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	m := &Machine{
		cfg:     o.Config,
		log:     o.Logger,
		rand:    o.Rand,
		held:    o.Held,
		groups:  map[string]*group{},
		loading: true,
	}
	m.expiry.fire = m.expire
	return m
}

var _ machine.Machine = (*Machine)(nil)

// Loaded implements machine.Machine: every member gets a full session from now.
func (m *Machine) Loaded(now time.Time) {
	m.loading = false
	m.timers.set(&m.expiry, now.Add(m.cfg().RetentionCheck))
	var none Effects
	for _, id := range m.ids() {
		g := m.groups[id]
		for _, mb := range g.order {
			m.touchSession(now, g, mb)
		}
		if len(g.members) > m.cfg().MaxSize {
			m.prepareRebalance(now, g, "loaded with more members than group.max.size", &none)
		}
	}
	// A loaded group has no waiting members: nothing was completed, so there is
	// nothing to write.
}

// ids returns the ids of all groups, sorted.
func (m *Machine) ids() []string {
	out := make([]string, 0, len(m.groups))
	for id := range m.groups {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// NextDeadline returns when Tick has something to do, false if never.
func (m *Machine) NextDeadline() (time.Time, bool) { return m.timers.next() }

// Tick does what is due. If it leaves something over, to keep its records in one
// batch, NextDeadline says so.
func (m *Machine) Tick(now time.Time) Effects {
	var e Effects
	for e.bytes < m.budget() {
		t := m.timers.pop(now)
		if t == nil {
			break
		}
		t.fire(now, &e)
	}
	return e
}

// budget is how many bytes of records a command writes before it leaves the
// rest to a next one. A single record may be larger.
func (m *Machine) budget() int { return m.cfg().MaxBatchBytes / 2 }

// Drain takes the joins and syncs that wait. It is called when the machine is
// given up, after its last command.
func (m *Machine) Drain() []func(error) {
	var out []func(error)
	for _, id := range m.ids() {
		for _, mb := range m.groups[id].order {
			if join := mb.join; join != nil {
				out = append(out, func(err error) { join(err, nil) })
			}
			if sync := mb.sync; sync != nil {
				out = append(out, func(err error) { sync(err, nil) })
			}
			mb.join, mb.sync = nil, nil
		}
	}
	return out
}

// setState moves the group on.
func (m *Machine) setState(now time.Time, g *group, s State) {
	m.count(g, -1)
	g.prev, g.state, g.stateMs = g.state, s, now.UnixMilli()
	m.count(g, +1)
}

func (m *Machine) count(g *group, n int) { m.stats.groups[g.state] += n }

// create adds a group without members.
func (m *Machine) create(id string, nowMs int64) *group {
	g := newGroup(id, nowMs)
	m.groups[id] = g
	m.count(g, +1)
	return g
}

// removeGroup makes the group be gone. Offsets that are still there keep a
// group that only stores offsets.
func (m *Machine) removeGroup(g *group) {
	m.timers.cancel(&g.joinTimer)
	m.timers.cancel(&g.syncTimer)
	for _, t := range g.pendingJoin {
		m.timers.cancel(t)
	}
	for _, mb := range g.order {
		m.timers.cancel(&mb.session)
	}
	m.count(g, -1)
	delete(m.groups, g.id)
	if len(g.offsets) > 0 {
		m.create(g.id, -1).offsets = g.offsets
		return
	}
	m.stats.deleted++
}

// newMemberID returns prefix-uuid, as Kafka makes member ids.
func (m *Machine) newMemberID(prefix string) (string, error) {
	var u [16]byte
	if _, err := io.ReadFull(m.rand, u[:]); err != nil {
		return "", fmt.Errorf("random member id: %w", err)
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}
