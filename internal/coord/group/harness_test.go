package group

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/machine"
)

// counter is a random source that counts, so that member ids are the same in
// every run.
type counter struct{ n uint64 }

func (c *counter) Read(p []byte) (int, error) {
	clear(p)
	c.n++
	binary.BigEndian.PutUint64(p[len(p)-8:], c.n)
	return len(p), nil
}

// harness drives a Machine as the runtime does: it applies records at once, and
// hands out replies after that. It notes what was said and stored.
type harness struct {
	t   testing.TB
	cfg Config
	m   *Machine
	now time.Time
	log []machine.Record
	out []string

	short, full map[string]string // names of member ids, and back
	stored      map[string]string // each group as it was last stored
	open        map[string]int    // requests that wait
}

func newHarness(t testing.TB) *harness {
	h := &harness{
		t:      t,
		cfg:    DefaultConfig(),
		now:    time.UnixMilli(1_700_000_000_000).UTC(),
		short:  map[string]string{},
		full:   map[string]string{},
		stored: map[string]string{},
		open:   map[string]int{},
	}
	h.m = h.machine(&counter{})
	h.m.Loaded(h.now)
	return h
}

func (h *harness) machine(c *counter) *Machine {
	return NewMachine(MachineOptions{Config: func() Config { return h.cfg }, Rand: c})
}

func (h *harness) say(format string, args ...any) {
	h.out = append(h.out, fmt.Sprintf(format, args...))
}

// take returns what was said since it was last called.
func (h *harness) take() string {
	s := strings.Join(h.out, "\n")
	h.out = nil
	if s == "" {
		return "-\n"
	}
	return s + "\n"
}

// name returns the short name of a member id.
func (h *harness) name(id string) string {
	if id == "" {
		return "-"
	}
	if h.short[id] == "" {
		n := fmt.Sprintf("m%d", len(h.short)+1)
		h.short[id], h.full[n] = n, id
	}
	return h.short[id]
}

// id is the reverse of name.
func (h *harness) id(name string) string {
	if id, ok := h.full[name]; ok {
		return id
	}
	return name
}

// run applies the effects of a command.
func (h *harness) run(e Effects) {
	for {
		for _, r := range e.Records {
			h.m.Apply(int64(len(h.log)), r)
			h.log = append(h.log, r)
			h.say("  store %s", h.record(r))
			if k := int16(binary.BigEndian.Uint16(r.Key)); k == keyGroup {
				h.note(r)
			}
		}
		for _, reply := range e.Replies {
			reply(nil)
		}
		if e.More == nil {
			return
		}
		e = e.More(h.now, h.m)
	}
}

// note remembers what a replay must give for the group of this record.
func (h *harness) note(r machine.Record) {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(r.Key); err != nil {
		h.t.Fatal(err)
	}
	if r.Value == nil {
		delete(h.stored, k.Group)
		return
	}
	fresh := h.machine(&counter{})
	fresh.Apply(0, r)
	h.stored[k.Group] = membership(fresh.groups[k.Group])
}

// membership is everything of a group but its offsets.
func membership(g *group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "type=%q gen=%d protocol=%q/%v leader=%q", g.protocolType, g.generation, g.protocol, g.hasProtocol, g.leader)
	for _, mb := range g.order {
		inst := "-"
		if mb.instance != nil {
			inst = *mb.instance
		}
		fmt.Fprintf(&b, " (%s %s %v %s %s meta=%q assignment=%q)", mb.id, inst, mb.client, mb.sessionTimeout, mb.rebalanceTimeout,
			mb.metadata(g.protocol), mb.assignment)
	}
	return b.String()
}

// offsetsOf is a group's committed offsets.
func offsetsOf(g *group) string {
	var b strings.Builder
	for _, t := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
			fmt.Fprintf(&b, "%s-%d=%+v ", t, p, g.offsets[t][p])
		}
	}
	return b.String()
}

// replay loads the log into a new machine and compares it with what was stored
// and with the live machine's offsets.
func (h *harness) replay() *Machine {
	h.t.Helper()
	fresh := h.machine(&counter{n: uint64(len(h.short)) + 1000})
	for i, r := range h.log {
		fresh.Apply(int64(i), r)
	}
	for id, want := range h.stored {
		g := fresh.groups[id]
		if g == nil {
			h.t.Fatalf("group %s is not there after a replay", id)
		}
		if got := membership(g); got != want {
			h.t.Fatalf("group %s after a replay:\n%s\nlast stored:\n%s", id, got, want)
		}
	}
	for id, g := range h.m.groups {
		if f := fresh.groups[id]; f == nil {
			h.t.Fatalf("group %s is not there after a replay", id)
		} else if got, want := offsetsOf(f), offsetsOf(g); got != want {
			h.t.Fatalf("offsets of %s after a replay:\n%s\nlive:\n%s", id, got, want)
		}
		if g.state == Stable {
			if got, want := membership(fresh.groups[id]), membership(g); got != want {
				h.t.Fatalf("stable group %s after a replay:\n%s\nlive:\n%s", id, got, want)
			}
		}
	}
	for id := range fresh.groups {
		if h.m.groups[id] == nil {
			h.t.Fatalf("group %s is there after a replay and not live", id)
		}
	}
	if got, want := fresh.stats.offsets, h.m.stats.offsets; got != want {
		h.t.Fatalf("%d offsets counted after a replay, %d live", got, want)
	}
	fresh.Loaded(h.now)
	return fresh
}

// advance moves the clock, stopping at every deadline.
func (h *harness) advance(d time.Duration) {
	end := h.now.Add(d)
	start := h.now
	for {
		at, ok := h.m.NextDeadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(h.now) {
			h.now = at
		}
		n := len(h.out)
		h.run(h.m.Tick(h.now))
		if len(h.out) > n {
			h.out = slices.Insert(h.out, n, fmt.Sprintf("after %s:", h.now.Sub(start)))
		}
	}
	h.now = end
}

func (h *harness) record(r machine.Record) string {
	switch int16(binary.BigEndian.Uint16(r.Key)) {
	case keyOffset:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.Key); err != nil {
			h.t.Fatal(err)
		}
		if r.Value == nil {
			return fmt.Sprintf("no offset %s %s-%d", k.Group, k.Topic, k.Partition)
		}
		var v kmsg.OffsetCommitValue
		if err := v.ReadFrom(r.Value); err != nil {
			h.t.Fatal(err)
		}
		return fmt.Sprintf("offset %s %s-%d v%d offset=%d epoch=%d metadata=%q", k.Group, k.Topic, k.Partition, v.Version, v.Offset, v.LeaderEpoch, v.Metadata)
	case keyGroup:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.Key); err != nil {
			h.t.Fatal(err)
		}
		if r.Value == nil {
			return "no group " + k.Group
		}
		var v kmsg.GroupMetadataValue
		if err := v.ReadFrom(r.Value); err != nil {
			h.t.Fatal(err)
		}
		s := fmt.Sprintf("group %s v%d generation=%d protocol=%s leader=%s", k.Group, v.Version, v.Generation, opt(v.Protocol), h.name(deref(v.Leader)))
		for _, m := range v.Members {
			s += fmt.Sprintf(" %s=%q/%q", h.name(m.MemberID), m.Subscription, m.Assignment)
		}
		return s
	}
	return fmt.Sprintf("%q", r.Key)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func opt(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func codeName(c int16) string {
	if c == 0 {
		return "ok"
	}
	return api.Code(c).Name()
}

func (h *harness) join(tag string, c Client, req *kmsg.JoinGroupRequest) {
	h.open["join "+tag]++
	h.run(h.m.Join(h.now, c, req, func(err error, r *kmsg.JoinGroupResponse) {
		if h.open["join "+tag]--; h.open["join "+tag] < 0 {
			h.t.Fatalf("join %s was answered twice", tag)
		}
		if err != nil {
			h.say("  join %s: %v", tag, err)
			return
		}
		s := fmt.Sprintf("  join %s: %s member=%s", tag, codeName(r.ErrorCode), h.name(r.MemberID))
		if r.ErrorCode == 0 {
			s += fmt.Sprintf(" generation=%d protocol=%s leader=%s skip=%v", r.Generation, opt(r.Protocol), h.name(r.LeaderID), r.SkipAssignment)
			for _, m := range r.Members {
				s += fmt.Sprintf(" [%s %s %q]", h.name(m.MemberID), opt(m.InstanceID), m.ProtocolMetadata)
			}
		}
		h.say("%s", s)
	}))
}

func (h *harness) sync(tag string, req *kmsg.SyncGroupRequest) {
	h.open["sync "+tag]++
	h.run(h.m.Sync(h.now, req, func(err error, r *kmsg.SyncGroupResponse) {
		if h.open["sync "+tag]--; h.open["sync "+tag] < 0 {
			h.t.Fatalf("sync %s was answered twice", tag)
		}
		if err != nil {
			h.say("  sync %s: %v", tag, err)
			return
		}
		s := fmt.Sprintf("  sync %s: %s", tag, codeName(r.ErrorCode))
		if r.ErrorCode == 0 {
			s += fmt.Sprintf(" %s/%s assignment=%q", opt(r.ProtocolType), opt(r.Protocol), r.MemberAssignment)
		}
		h.say("%s", s)
	}))
}
