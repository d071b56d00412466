package mirror_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/cli"
	"milena/internal/server"
	"milena/mirroradm"
)

// withoutGroups is a source that doesn't serve what the sync of groups asks.
func withoutGroups(t *testing.T) *fake {
	f := newFakeWith(t, 1, api.Milena, server.Table{api.ListGroups: func(_ context.Context, r *server.Request) {
		resp := kmsg.NewPtrListGroupsResponse()
		resp.ErrorCode = int16(api.UnsupportedVersion)
		r.Reply(server.Response{Msg: resp})
	}})
	f.add(1, 3)
	return f
}

// FieldCase 47: "Mixed versions: a new sync task misbehaves; a source without the feature wedges it": gated by feature level; unsupported =
// parked with a reason.
func TestFieldCase47(t *testing.T) {
	f := withoutGroups(t)
	b := newCluster(t, "destination")
	level := func(verb, to string) {
		t.Helper()
		if code, out, errs := b.command("features", verb, "mirror.version="+to); code != cli.ExitOK {
			t.Fatal(out, errs)
		}
	}
	level("downgrade", "0")
	err := b.mir.Create(t.Context(), "m", map[string]string{"bootstrap.servers": f.addr, "mirror.source.cluster.id": fakeCluster})
	if !hasCode(err, "UNSUPPORTED_VERSION") || !strings.Contains(err.Error(), "mirror.version") {
		t.Errorf("a mirror below the feature's level: %v", err)
	}
	b.topic("own", 1) // all else goes on
	b.say("own", "1")
	level("upgrade", "2")
	b.mirrorAt("m", f.addr, fakeCluster)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 3)
	b.awaitTopic("m", "t") // the task that can't be done leaves the others alone
	eventually(t, func() error {
		if n, _ := b.metric("kafka_server_mirror_sync_errors_total", "mirror", "m", "sync", "groups"); n < 2 {
			return fmt.Errorf("%g failed runs", n)
		}
		return nil
	})
	f.add(1, 2)
	b.awaitEnd("t", 0, 5)
	b.shows(`^Problem: mirror m: groups: .*UNSUPPORTED_VERSION`, "mirrors", "describe", "m")
}

// FieldCase 48: "Users without log access cannot tell what is wrong": status answer alone is enough to diagnose. Blind drill: faults, only
// describe.
func TestFieldCase48(t *testing.T) {
	unreachable := func(t *testing.T) *cluster {
		b := newCluster(t, "destination")
		if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: fakeTopic(), Partitions: 1, ReplicationFactor: 1}); err != nil {
			t.Fatal(err)
		}
		b.mirrorAt("m", "127.0.0.1:1", "nowhere", "request.timeout.ms", "100")
		b.begin("m", "t")
		return b
	}
	mirrored := func(t *testing.T, more ...string) (a, b *cluster) {
		a, b = newCluster(t, "source"), newCluster(t, "destination", more...)
		a.topic("t", 1)
		a.produce("t", 0, 3)
		b.mirror("m", a)
		b.begin("m", "t")
		b.awaitEnd("t", 0, 3)
		b.awaitTopic("m", "t")
		return a, b
	}
	for fault, c := range map[string]struct {
		make func(t *testing.T) *cluster
		want string
	}{
		"the source can't be reached": {unreachable, `^m +t +0 +FAILED +- .*127\.0\.0\.1:1.*refused`},
		"its topic is gone": {func(t *testing.T) *cluster {
			a, b := mirrored(t)
			if _, err := a.adm.DeleteTopics(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			return b
		}, `^m +t +0 +FAILED .*deleted`},
		"another cluster is at its address": {func(t *testing.T) *cluster {
			_, b := mirrored(t)
			other := newCluster(t, "other")
			b.alterMirror("m", kadm.AlterConfig{Op: kadm.SetConfig, Name: "bootstrap.servers", Value: &other.addr})
			return b
		}, `^m +t +0 +FAILED .*cluster id is \S+, mirror\.source\.cluster\.id is `},
		"records of its own are in the way": {func(t *testing.T) *cluster {
			a, b := pair(t)
			if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: a.topicID("t"), Partitions: 1, ReplicationFactor: 1}); err != nil {
				t.Fatal(err)
			}
			b.say("t", "own")
			b.mirror("m", a)
			b.begin("m", "t")
			return b
		}, `^m +t +0 +FAILED .*holds 1 records here that do not come from this source.*mirror\.truncate\.unrelated\.topics`},
		"a batch is damaged": {func(t *testing.T) *cluster {
			a, b := pair(t)
			a.produce("t", 0, 3)
			t.Cleanup(a.damage("t"))
			b.mirror("m", a)
			b.begin("m", "t")
			return b
		}, `^m +t +0 +FAILED .*batch at offset 0 of the source failed its check in 3 fetches`},
		"the disk is full": {func(t *testing.T) *cluster {
			a, b := mirrored(t, "log.dir.reserve.bytes", "4194304")
			b.fill()
			eventually(t, func() error { // it is noticed by and by
				a.produce("t", 0, 1)
				if p, err := b.state("m", "t", 0); err != nil || p.LastError == "" {
					return fmt.Errorf("partition is %+v, %w", p, err)
				}
				return nil
			})
			return b
		}, `^m +t +0 +MIRRORING .*space`},
		"groups can't be read": {func(t *testing.T) *cluster {
			f := withoutGroups(t)
			b := mirrorOf(t, f)
			return b
		}, `^Problem: mirror m: groups: .*UNSUPPORTED_VERSION`},
		"nothing was found yet, and the source can't be reached": {func(t *testing.T) *cluster {
			b := newCluster(t, "destination")
			b.mirrorAt("m", "127.0.0.1:1", "nowhere", "request.timeout.ms", "100", "mirror.topics.include", ".*")
			return b
		}, `^Problem: mirror m: refresh: .*127\.0\.0\.1:1`},
	} {
		t.Run(fault, func(t *testing.T) { c.make(t).shows(c.want, "mirrors", "describe", "m") })
	}
}

// FieldCase 54: "Prefix naming surprises": name shown before creation (dry run). A copy has its source's name.
func TestFieldCase54(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	names := []string{"a.orders", "orders", "orders.a", "source.orders"}
	for _, n := range names {
		a.topic(n, 1)
	}
	code, out, errs := b.command("mirrors", "create", "source", "--source", a.addr, "--topics", ".*orders.*", "--dry-run")
	if code != cli.ExitOK {
		t.Fatal(out, errs)
	}
	var shown []string
	for _, m := range regexp.MustCompile(`(?m)^(\S+) +1 +\S+ +\S+ +yes$`).FindAllStringSubmatch(out, -1) {
		shown = append(shown, m[1])
	}
	if got := b.topics(); !slices.Equal(shown, names) || len(got) != 0 {
		t.Errorf("the dry run shows %v, and there are topics %v:\n%s", shown, got, out)
	}
	b.mirror("source", a, "mirror.topics.include", ".*orders.*")
	for _, n := range names {
		b.awaitTopic("source", n)
	}
	if got := b.topics(); !slices.Equal(got, shown) {
		t.Errorf("topics %v, the dry run showed %v", got, shown)
	}
}

// FieldCase 55: "Records before topic detection lost in the default mode": as case 10. By a pattern that is started, and for a topic that had
// records before there was a mirror.
func TestFieldCase55(t *testing.T) {
	a, b := pair(t)
	a.say("t", "1", "2")
	b.mirror("m", a)
	b.startWith("m", []string{".*"}, nil)
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 2)
	b.holds("t", "1", "2")
	a.topic("new", 1)
	a.say("new", "1", "2", "3") // before it is found, or not: both is right
	b.awaitTopic("m", "new")
	a.say("new", "4")
	b.awaitEnd("new", 0, 4)
	b.holds("new", "1", "2", "3", "4")
}

// FieldCase 58: "Changing the topic list fails or forces a new link; plans never settle": declared state applied twice is a no-op; every
// filter editable live.
func TestFieldCase58(t *testing.T) {
	a, b := pair(t)
	for _, n := range []string{"in", "later", "out"} {
		a.topic(n, 1)
		a.say(n, "1")
	}
	a.setTopic("t", "retention.ms", "7200000")
	a.setTopic("t", "segment.ms", "3600000")
	b.mirror("m", a, "mirror.topics.include", "t,in,out", "mirror.topic.properties.exclude", "segment.ms")
	for _, n := range []string{"t", "in", "out"} {
		b.awaitTopic("m", n)
	}
	declared := map[string]string{
		"mirror.topics.include": "t,in,later", "mirror.topics.exclude": "__.*,out", "mirror.groups.include": "app-.*", "mirror.groups.exclude": "app-2",
		"mirror.topic.properties.exclude": "retention.bytes",
	}
	apply := func() {
		t.Helper()
		if err := b.mir.AlterConfigs(t.Context(), "m", declared); err != nil {
			t.Fatal(err)
		}
		b.startWith("m", []string{"t", "in", "later"}, []string{"__.*", "out"})
	}
	apply()
	b.awaitTopic("m", "later")
	b.awaitState("m", "out", "STOPPED")
	for _, g := range []string{"app-2", "other", "app-1"} {
		a.commit(g, "t", 0, "")
	}
	b.awaitCommitted("app-1", "t", 0)
	for _, g := range []string{"app-2", "other"} {
		if at, _ := b.committed(g, "t"); at != -1 {
			t.Errorf("group %s is at %d", g, at)
		}
	}
	eventually(t, func() error {
		if got := b.config("t", "segment.ms"); got != "3600000" {
			return fmt.Errorf("segment.ms is %q", got)
		}
		return nil
	})
	settled := func() map[string]string {
		t.Helper()
		cs, err := b.mir.Configs(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, x := range cs {
			if _, ok := declared[x.Key]; ok && x.Value != nil {
				out[x.Key] = *x.Value
			}
		}
		return out
	}
	for k, want := range declared { // as it was declared, so that a plan finds nothing to do
		if got := settled()[k]; got != want {
			t.Errorf("%s is %q, declared was %q", k, got, want)
		}
	}
	before, wishes := settled(), b.mirrors()
	at := changes(b)
	apply()
	if after := settled(); fmt.Sprint(after) != fmt.Sprint(before) || !slices.Equal(b.mirrors(), wishes) || changes(b) != at {
		t.Errorf("applied twice, %v became %v, and %v topics %v", before, after, at, changes(b))
	}
	for _, n := range []string{"t", "in", "later"} {
		b.awaitTopic("m", n)
	}
	b.awaitState("m", "out", "STOPPED")
}

// changes are the metadata offsets of the last change of each topic's wish.
func changes(c *cluster) string {
	var out []string
	for t := range c.n.Image().Topics() {
		out = append(out, fmt.Sprintf("%s %s %d@%d", t.Name, t.MirrorName, t.MirrorDesired, t.MirrorChangeOffset))
	}
	return strings.Join(out, ", ")
}
