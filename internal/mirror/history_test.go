package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/mirrormsg"
	"milena/internal/server"
	"milena/mirroradm"
)

// raise restarts a node until it leads t-0 with an epoch of at least that.
func (c *cluster) raise(epoch int32) {
	c.t.Helper()
	for c.leaderEpoch() < epoch {
		c.restart()
	}
}

// failedOverTo has b mirror the records of t on a, of two epochs, and stop.
func (c *cluster) failedOverTo(b *cluster) {
	c.t.Helper()
	c.say("t", some("a", 3)...)
	c.restart()
	c.say("t", some("b", 3)...)
	b.mirror("m", c)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 6)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
}

// 162. The old source's last election left an epoch without any batch, and the standby's bump reaches the same number with data: failback
// finds the divergence, both logs end identical.
func TestScenario162(t *testing.T) {
	a, b := pair(t)
	a.failedOverTo(b)
	a.say("t", "lost 1", "lost 2")
	b.say("t", "new 1")
	a.raise(b.lastEpoch("t"))
	if a.lastEpoch("t") >= b.lastEpoch("t") {
		t.Fatalf("an election left epoch %d in a log without a batch of it", a.lastEpoch("t"))
	}
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.same(b, "t", 0, 0)
	if got := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[6:lost 1 7:lost 2]" {
		t.Errorf("set aside: %v", got)
	}
}

// 163. The old source lost its newest epochs by an unclean election, so that the LME is above all its local epochs, then fails back: nothing
// is cut by LME, the first fetch finds the true point, only the difference is copied.
func TestScenario163(t *testing.T) {
	for name, own := range map[string][]string{"idle": nil, "written on": {"own 1", "own 2"}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			a.failedOverTo(b)
			b.say("t", "new 1")
			a.cutSource("t", 3)
			if last := b.lastMirror(a.n.ClusterID(), "t").LastMirrorEpoch; a.lastEpoch("t") >= last {
				t.Fatalf("last mirror epoch %d, the old source still has %d", last, a.lastEpoch("t"))
			}
			var want []string
			if own != nil { // by the leader of the unclean election
				a.restart()
				a.say("t", own...)
				for i, v := range own {
					want = append(want, fmt.Sprintf("%d:%s", 3+i, v))
				}
			}
			a.mirror("back", b)
			a.begin("back", "t")
			a.awaitTopic("back", "t")
			a.awaitEnd("t", 0, b.end("t", 0))
			a.same(b, "t", 0, 0)
			if got := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("set aside: %v, want %v", got, want)
			}
		})
	}
}

// 164. First start onto a destination topic that has data and no history with this source: FAILED, non-retryable, with the number of records;
// nothing cut; after consent it is set aside, cut and mirrored.
func TestScenario164(t *testing.T) { foreignData(t) }

// 156. Destination topic with foreign data, first start: refused or truncated by explicit consent.
func TestScenario156(t *testing.T) { foreignData(t) }

func foreignData(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("a", 3)...)
	ts, err := a.adm.ListTopics(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: ts["t"].ID, Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	b.say("t", some("own", 5)...)
	b.mirror("m", a)
	b.begin("m", "t")
	refused := func() {
		t.Helper()
		p := b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
		if !strings.Contains(p.LastError, "holds 5 records") {
			t.Errorf("reason: %s", p.LastError)
		}
		b.holds("t", some("own", 5)...)
	}
	refused()
	b.restart()
	refused()
	if _, err := b.mir.Recover(t.Context(), "m", []string{"t"}); err != nil { // which is no consent
		t.Fatal(err)
	}
	refused()
	if err := b.mir.AlterConfigs(t.Context(), "m", map[string]string{"mirror.truncate.unrelated.topics": "t"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the config is known everywhere a moment later
		if _, err := b.mir.Recover(t.Context(), "m", []string{"t"}); err != nil {
			return err
		}
		p, err := b.state("m", "t", 0)
		if err == nil && !level(p) {
			err = fmt.Errorf("partition is %+v", p)
		}
		return err
	})
	b.same(a, "t", 0, 0)
	if got := b.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[0:own0 1:own1 2:own2 3:own3 4:own4]" {
		t.Errorf("set aside: %v", got)
	}
}

// mirrorAPIs are a source's mirror APIs that answer with fn.
func mirrorAPIs(fn server.Handler) server.Table {
	t := server.Table{}
	for _, k := range []api.Key{api.StartMirrorTopics, api.StopMirrorTopics, api.ListClusterMirrors, api.DescribeClusterMirrors} {
		t[k] = fn
	}
	return t
}

func answer(r *server.Request, resp kmsg.Response) { r.Reply(server.Response{Msg: resp}) }

// 165. LME lookup answered by a time-out, a missing right, or a source with other code points: FAILED, retryable, nothing cut.
func TestScenario165(t *testing.T) {
	hold := make(chan struct{})
	listed := &mirrormsg.ListClusterMirrorsResponse{Mirrors: []mirrormsg.ListedMirror{{MirrorName: "m", TopicNames: []string{}}}}
	denied := int16(api.ClusterMirrorAuthorizationFailed)
	for name, tc := range map[string]struct {
		points api.CodePoints
		apis   server.Handler
		want   string
	}{
		"time-out of the list": {api.Milena, func(context.Context, *server.Request) { <-hold }, "mirrors of the source"},
		"time-out of the epochs": {api.Milena, func(_ context.Context, r *server.Request) {
			if r.Key == api.ListClusterMirrors {
				answer(r, listed)
				return
			}
			<-hold
		}, "last mirror epochs of the source"},
		"no right to list": {api.Milena, func(_ context.Context, r *server.Request) {
			answer(r, &mirrormsg.ListClusterMirrorsResponse{ErrorCode: denied})
		}, "CLUSTER_MIRROR_AUTHORIZATION_FAILED"},
		"no right to the mirror": {api.Milena, func(_ context.Context, r *server.Request) {
			if r.Key == api.ListClusterMirrors {
				answer(r, listed)
				return
			}
			m := mirrormsg.NewDescribedMirror()
			m.MirrorName, m.ErrorCode = "m", denied
			answer(r, &mirrormsg.DescribeClusterMirrorsResponse{Mirrors: []mirrormsg.DescribedMirror{m}})
		}, "CLUSTER_MIRROR_AUTHORIZATION_FAILED"},
		"other code points": {api.Prototype, func(_ context.Context, r *server.Request) {
			t.Errorf("the source was asked by the prototype's numbers: %s", r.Key)
		}, "set mirror.source.code.points=prototype"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWith(t, 1, tc.points, mirrorAPIs(tc.apis))
			f.add(1, 3)
			b := newCluster(t, "destination")
			// A source that can't be told from one that lost what it mirrored from here.
			if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: kadm.TopicID(fakeTopic()), Partitions: 1, ReplicationFactor: 1}); err != nil {
				t.Fatal(err)
			}
			b.say("t", some("own", 5)...)
			b.mirrorAt("m", f.addr, fakeCluster, "request.timeout.ms", "100", "mirror.truncate.unrelated.topics", "t")
			b.begin("m", "t")
			p := b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt >= 2 })
			if !strings.Contains(p.LastError, tc.want) {
				t.Errorf("reason: %s", p.LastError)
			}
			b.holds("t", some("own", 5)...)
		})
	}
	close(hold)
}

// D11: "Milena's own if they are there, the prototype's only if the mirror-level config mirror.source.code.points=prototype says so": what
// the source holds of this cluster is found by either.
func TestSourceWithThePrototypesNumbers(t *testing.T) {
	a, b := pair(t)
	a.failedOverTo(b)
	a.say("t", "lost")
	b.say("t", "new")
	b.conf["mirror.code.points"] = "prototype"
	b.restart()
	a.mirror("back", b)
	a.begin("back", "t")
	p := a.await("back", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt > 0 })
	if !strings.Contains(p.LastError, "set mirror.source.code.points=prototype") {
		t.Errorf("reason: %s", p.LastError)
	}
	if err := a.mir.AlterConfigs(t.Context(), "back", map[string]string{"mirror.source.code.points": "prototype"}); err != nil {
		t.Fatal(err)
	}
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.same(b, "t", 0, 0)
	if got := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[6:lost]" {
		t.Errorf("set aside: %v", got)
	}
}

// A mirror that takes a topic over and is stopped before it aligned the log hands on what the mirror before it had captured: without
// it a failback would find no shared history.
func TestLastMirrorEpochOutlivesATakeover(t *testing.T) {
	a, b := pair(t)
	a.failedOverTo(b)
	want := b.lastMirror(a.n.ClusterID(), "t")
	b.mirrorAt("m2", "127.0.0.1:1", a.n.ClusterID(), "request.timeout.ms", "100")
	b.begin("m2", "t")
	b.awaitState("m2", "t", "FAILED")
	b.stop("m2", "t")
	b.awaitState("m2", "t", "STOPPED")
	if got := b.lastMirror(a.n.ClusterID(), "t"); got.LastMirrorEpoch != want.LastMirrorEpoch || got.LastMirrorOffset != want.LastMirrorOffset {
		t.Errorf("the second mirror tells %d, %d, the first did %d, %d", got.LastMirrorEpoch, got.LastMirrorOffset, want.LastMirrorEpoch, want.LastMirrorOffset)
	}
	a.say("t", "lost")
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.same(b, "t", 0, 0)
}

// What the old source wrote behind the stop under the epoch of before it is cut with the alignment, by the offset of the stop: were it
// left to the first fetch, a partition that is MIRRORING would show it, and a stop in between would count it as mirrored.
func TestAlignmentCutsBehindTheStop(t *testing.T) {
	l := &line{asked: map[api.Key]int{}}
	a, b := newClusterOn(t, "source", l.dial), newCluster(t, "destination")
	l.source = b.addr
	a.topic("t", 1)
	a.say("t", some("a", 6)...)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 6)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	a.say("t", "late 1", "late 2")
	if p := b.lastMirror(a.n.ClusterID(), "t"); a.lastEpoch("t") != p.LastMirrorEpoch {
		t.Fatalf("the late records have epoch %d, the stop stored %d", a.lastEpoch("t"), p.LastMirrorEpoch)
	}
	l.refuses(api.Fetch, api.OffsetForLeaderEpoch)
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitState("back", "t", "MIRRORING")
	if end := a.end("t", 0); end != 6 {
		t.Errorf("the log ends at %d before the first fetch", end)
	}
	a.stop("back", "t")
	a.awaitState("back", "t", "STOPPED")
	if p := a.lastMirror(b.n.ClusterID(), "t"); p.LastMirrorOffset != 6 {
		t.Errorf("%d offsets count as mirrored", p.LastMirrorOffset)
	}
	l.refuses()
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.same(b, "t", 0, 0)
	if got := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[6:late 1 7:late 2]" {
		t.Errorf("set aside: %v", got)
	}
}
