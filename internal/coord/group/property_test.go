package group

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"milena/internal/api"
)

// TestProperties runs random members against one machine and checks after each
// step what must always hold (the package comment's invariants).
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"join":      w.join,
			"sync":      w.sync,
			"heartbeat": w.heartbeat,
			"leave":     w.leave,
			"commit":    w.commit,
			"admin":     w.admin,
			"advance":   w.advance,
			"reload":    w.reload,
			"":          w.check,
		})
	})
}

// player is a client that may be a member of the one group.
type player struct {
	name       string
	instance   *string
	id         string // "": none
	generation int32
	leader     bool
	others     []string // of the generation it leads
	version    int16
	joining    bool
	syncing    bool
}

// told is what the members of a generation are told.
type told struct{ leader, protocol string }

type world struct {
	t       *rapid.T
	h       *harness
	players []*player
	last    int32          // newest generation seen since the coordinator loaded
	stored  int32          // newest generation that was stored
	told    map[int32]told // by generation, since the coordinator loaded
	offsets map[int32]int64
	steps   int
	seen    int // records of the log looked at
}

// rapidTB lets the harness fail a rapid test.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Fatal(a ...any)            { r.t.Fatal(a...) }
func (r rapidTB) Fatalf(f string, a ...any) { r.t.Fatalf(f, a...) }
func (r rapidTB) Helper()                   {}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, h: newHarness(rapidTB{t: t}), told: map[int32]told{}, offsets: map[int32]int64{}}
	w.h.cfg.MaxSize = rapid.IntRange(1, 6).Draw(t, "max size")
	w.h.cfg.InitialRebalanceDelay = time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second
	for i := range 5 {
		p := &player{name: fmt.Sprintf("p%d", i), version: int16(3 + 3*(i%3))}
		if i%2 == 1 {
			inst := fmt.Sprintf("i%d", i/2)
			p.instance = &inst
		}
		w.players = append(w.players, p)
	}
	return w
}

func (w *world) player(t *rapid.T) *player { return rapid.SampledFrom(w.players).Draw(t, "player") }

func (w *world) join(t *rapid.T) {
	p := w.player(t)
	if p.joining {
		return // a client waits for its answer
	}
	offers := rapid.SampledFrom([][]string{{"a"}, {"b", "a"}, {"a", "b"}, {"b"}}).Draw(t, "protocols")
	req := &kmsg.JoinGroupRequest{
		Version: p.version, Group: "g", MemberID: p.id, InstanceID: p.instance,
		SessionTimeoutMillis: 10_000, RebalanceTimeoutMillis: 20_000, ProtocolType: consumerType,
	}
	for _, o := range offers {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: o, Metadata: consumerMetadata("t" + p.name)})
	}
	p.joining, p.syncing = true, false
	w.h.run(w.h.m.Join(w.h.now, Client{p.name, "/h"}, req, func(err error, r *kmsg.JoinGroupResponse) {
		if !p.joining {
			t.Fatalf("%s: a join was answered twice", p.name)
		}
		p.joining = false
		if err != nil {
			p.generation = -1
			return
		}
		w.joined(p, r)
	}))
}

func (w *world) joined(p *player, r *kmsg.JoinGroupResponse) {
	p.generation = -1
	switch api.Code(r.ErrorCode) {
	case api.NoError:
	case api.MemberIDRequired:
		if r.MemberID == "" || p.version < joinRequiresMemberID || p.instance != nil {
			w.t.Fatalf("%s: a detour for an id that isn't needed: %+v", p.name, r)
		}
		p.id = r.MemberID
		return
	case api.UnknownMemberID, api.FencedInstanceID, api.GroupMaxSizeReached:
		p.id = ""
		return
	case api.InconsistentGroupProtocol, api.RebalanceInProgress:
		return
	default:
		w.t.Fatalf("%s: join failed with %s", p.name, codeName(r.ErrorCode))
	}
	p.id, p.generation, p.leader, p.others = r.MemberID, r.Generation, len(r.Members) > 0 && !r.SkipAssignment, nil
	for _, m := range r.Members {
		p.others = append(p.others, m.MemberID)
	}
	if r.Generation < w.last || r.Generation <= w.stored && r.Generation != w.last {
		w.t.Fatalf("%s: generation %d after %d (stored %d)", p.name, r.Generation, w.last, w.stored)
	}
	w.last = r.Generation
	now := told{r.LeaderID, deref(r.Protocol)}
	was, ok := w.told[r.Generation]
	switch {
	case !ok:
		w.told[r.Generation] = now
	case was.protocol != now.protocol:
		w.t.Fatalf("generation %d: protocol %s and %s", r.Generation, was.protocol, now.protocol)
	case was.leader != now.leader && p.instance == nil:
		// A leader's new incarnation (static members) is the one exception.
		if g := w.h.m.groups["g"]; g == nil || g.members[now.leader] == nil || g.members[now.leader].instance == nil {
			w.t.Fatalf("generation %d: leaders %s and %s", r.Generation, was.leader, now.leader)
		}
	}
	if p.leader {
		g := w.h.m.groups["g"]
		for _, mb := range g.order {
			if _, ok := mb.vote(map[string]int{now.protocol: 1}, 1); !ok {
				w.t.Fatalf("generation %d: protocol %s isn't %s's", r.Generation, now.protocol, mb.id)
			}
		}
	}
}

func (w *world) sync(t *rapid.T) {
	p := w.player(t)
	if p.joining || p.syncing || p.generation < 0 || p.id == "" {
		return
	}
	req := &kmsg.SyncGroupRequest{Group: "g", MemberID: p.id, InstanceID: p.instance, Generation: p.generation}
	if p.leader {
		for _, o := range p.others {
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
				MemberID: o, MemberAssignment: fmt.Appendf(nil, "%d", p.generation),
			})
		}
	}
	p.syncing = true
	generation := p.generation
	w.h.run(w.h.m.Sync(w.h.now, req, func(err error, r *kmsg.SyncGroupResponse) {
		if p.generation == generation {
			p.syncing = false
		}
		if err == nil && r.ErrorCode == 0 && len(r.MemberAssignment) > 0 && string(r.MemberAssignment) != fmt.Sprint(generation) {
			t.Fatalf("%s: assignment of generation %s in generation %d", p.name, r.MemberAssignment, generation)
		}
	}))
}

func (w *world) heartbeat(t *rapid.T) {
	p := w.player(t)
	if p.id == "" || p.generation < 0 {
		return
	}
	w.h.m.Heartbeat(w.h.now, &kmsg.HeartbeatRequest{Group: "g", MemberID: p.id, InstanceID: p.instance, Generation: p.generation})
}

func (w *world) leave(t *rapid.T) {
	p := w.player(t)
	if p.id == "" || p.joining {
		return
	}
	w.h.run(w.h.m.Leave(w.h.now, "g", []kmsg.LeaveGroupRequestMember{{MemberID: p.id, InstanceID: p.instance}}, func(error, []api.Code) {}))
	p.id, p.generation, p.syncing = "", -1, false
}

// commitAt commits an offset above all earlier ones for a partition.
func (w *world) commitAt(t *rapid.T, req *CommitRequest) {
	part := rapid.Int32Range(0, 3).Draw(t, "partition")
	next := w.offsets[part] + rapid.Int64Range(1, 5).Draw(t, "more")
	req.Version, req.Group, req.RetentionMs = 9, "g", -1
	req.Topics = []CommitTopic{{TopicRef{Name: "t"}, []CommitPartition{{Partition: part, Offset: next}}}}
	w.h.run(w.h.m.Commit(w.h.now, req, func(error) {
		if req.Topics[0].Partitions[0].Code == api.NoError {
			w.offsets[part] = next
		}
	}))
}

func (w *world) commit(t *rapid.T) {
	p := w.player(t)
	if p.id != "" && p.generation >= 0 {
		w.commitAt(t, &CommitRequest{Generation: p.generation, MemberID: p.id, InstanceID: p.instance})
	}
}

func (w *world) admin(t *rapid.T) {
	empty := true
	if g := w.h.m.groups["g"]; g != nil {
		empty = g.state == Empty
	}
	req := &CommitRequest{Generation: -1}
	w.commitAt(t, req)
	if ok := req.Topics[0].Partitions[0].Code == api.NoError; ok != empty {
		t.Fatalf("administrative commit: %v, group empty: %v", req.Topics[0].Partitions[0].Code, empty)
	}
}

func (w *world) advance(t *rapid.T) {
	w.h.advance(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second)
}

// reload moves the group to a new coordinator.
func (w *world) reload(t *rapid.T) {
	for _, reply := range w.h.m.Drain() {
		reply(errTimeout)
	}
	w.h.m = w.h.replay()
	// What wasn't stored is forgotten: a generation may be made again.
	w.last, w.told = w.stored, map[int32]told{}
	for _, p := range w.players {
		if p.joining {
			t.Fatalf("%s: a join was left without an answer", p.name)
		}
		p.syncing = false
	}
}

// check looks at the machine's own invariants, and replays the log.
func (w *world) check(t *rapid.T) {
	if w.steps++; w.steps%8 == 0 {
		w.h.replay()
	}
	w.h.take()
	fresh := w.h.log[w.seen:]
	w.seen = len(w.h.log)
	for _, r := range fresh {
		if int16(binary.BigEndian.Uint16(r.Key)) == keyGroup && r.Value != nil {
			var v kmsg.GroupMetadataValue
			if err := v.ReadFrom(r.Value); err != nil {
				t.Fatal(err)
			}
			w.stored = max(w.stored, v.Generation)
		}
	}
	g := w.h.m.groups["g"]
	if g == nil {
		return
	}
	for part, off := range w.offsets {
		if got := g.offsets["t"][part].offset; got != off {
			t.Fatalf("offset of partition %d is %d, %d was committed", part, got, off)
		}
	}
	checkGroup(t, g)
	if len(g.members) > w.h.cfg.MaxSize && g.state != PreparingRebalance {
		t.Fatalf("%d members in state %s, at most %d", len(g.members), g.state, w.h.cfg.MaxSize)
	}
	// Whoever waits has a deadline or someone else's.
	if at, ok := w.h.m.NextDeadline(); !ok || at.Sub(w.h.now) > time.Hour {
		t.Fatalf("no deadline is set (%v, %v)", at, ok)
	}
}

func checkGroup(t *rapid.T, g *group) {
	awaiting := 0
	supports := map[string]int{}
	for _, mb := range g.order {
		if g.members[mb.id] != mb {
			t.Fatalf("%s is in the order and not a member", mb.id)
		}
		if mb.join != nil {
			awaiting++
		}
		for _, p := range mb.protocols {
			supports[p.name]++
		}
		if mb.instance != nil && g.static[*mb.instance] != mb.id {
			t.Fatalf("%s isn't the bearer of %s", mb.id, *mb.instance)
		}
		if !mb.session.armed && !mb.alive() {
			t.Fatalf("%s has no session deadline (state %s)", mb.id, g.state)
		}
		if mb.sync != nil && g.state != CompletingRebalance {
			t.Fatalf("%s waits for an assignment in state %s", mb.id, g.state)
		}
		if mb.join != nil && g.state != PreparingRebalance {
			t.Fatalf("%s waits in a join in state %s", mb.id, g.state)
		}
	}
	switch {
	case len(g.order) != len(g.members):
		t.Fatalf("%d in order, %d members", len(g.order), len(g.members))
	case awaiting != g.awaiting:
		t.Fatalf("%d wait in a join, %d counted", awaiting, g.awaiting)
	case fmt.Sprint(supports) != fmt.Sprint(g.supports):
		t.Fatalf("protocols %v, counted %v", supports, g.supports)
	case len(g.members) > 0 && g.members[g.leader] == nil:
		t.Fatalf("leader %q is no member", g.leader)
	case len(g.members) == 0 && (g.state == Stable || g.state == CompletingRebalance):
		t.Fatalf("no members in state %s", g.state)
	case len(g.members) > 0 && g.state == Empty:
		t.Fatal("an empty group has members")
	case g.state == PreparingRebalance && !g.joinTimer.armed:
		t.Fatal("a rebalance has no deadline")
	case g.state == CompletingRebalance && !g.syncTimer.armed && len(g.pendingSync) > 0:
		t.Fatal("the wait for syncs has no deadline")
	}
	if len(g.members) > 0 && !slices.ContainsFunc(g.order, func(*member) bool {
		for _, n := range g.supports {
			if n == len(g.members) {
				return true
			}
		}
		return false
	}) {
		t.Fatalf("no protocol is everyone's: %v of %d", g.supports, len(g.members))
	}
}

// The hashes and lengths are what Java (String.hashCode, String.length) says.
func TestPartitionOf(t *testing.T) {
	for _, c := range []struct {
		group  string
		length int
		hash   int32
		of50   int32
	}{
		{"", 0, 0, 0},
		{"a", 1, 97, 47},
		{"my-group", 8, -1906497762, 12},
		{"console-consumer-12345", 22, 158455506, 6},
		{"polygenelubricants", 18, -2147483648, 0},
		{"\u00e9\U0001F600", 3, 1996812, 12},
		{"test-consumer-group", 19, -1793216381, 31},
	} {
		if n := javaLength(c.group); n != c.length {
			t.Errorf("length of %q is %d, want %d", c.group, n, c.length)
		}
		if h := javaHash(c.group); h != c.hash {
			t.Errorf("hash of %q is %d, want %d", c.group, h, c.hash)
		}
		if p := PartitionOf(c.group, 50); p != c.of50 {
			t.Errorf("partition of %q is %d, want %d", c.group, p, c.of50)
		}
	}
}
