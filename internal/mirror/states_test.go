package mirror_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
	"milena/internal/node/nodetest"
	"milena/mirroradm"
)

// 139. Source epoch overtakes while B's controller is unavailable: partition waits in EPOCH_FENCING without data loss and with a bounded wait.
func TestScenario139(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 3)
	logs := &logBuffer{}
	nodes := nodetest.Start(t, nodetest.Options{Controllers: 1, Brokers: 1, Props: map[string]string{
		"mirror.metadata.refresh.interval.ms": "100", "mirror.failed.retry.initial.backoff.ms": "20", "mirror.failed.retry.max.backoff.ms": "100", "log.dir.reserve.bytes": "0",
		"default.replication.factor": "1", "min.insync.replicas": "1", "broker.session.timeout.ms": "30000",
	}, Logger: func(int32) *slog.Logger { return slog.New(slog.NewTextHandler(logs, nil)) }})
	b := clientsOf(t, nodes, logs)
	b.mirrorAt("m", f.addr, fakeCluster, "request.timeout.ms", "200")
	b.begin("m", "t")
	b.awaitEnd("t", 0, 3)
	b.awaitTopic("m", "t")
	nodes.Kill(101)
	f.set(func() { f.epoch = 50 })
	f.add(50, 2)
	eventually(t, func() error { // it waits, for a while each time
		if !strings.Contains(logs.text(), "to=EPOCH_FENCING") || !strings.Contains(logs.text(), "raising the leader epoch above 60") {
			return errors.New("the partition did not ask for a higher leader epoch")
		}
		return nil
	})
	p, err := nodes.Node(201).Replicas().Get("t", 0)
	if err != nil || p.LogEndOffset() != 3 {
		t.Errorf("the log ends at %d, %v", p.LogEndOffset(), err)
	}
	nodes.StartNodes(101)
	b.awaitEnd("t", 0, 5)
	b.awaitTopic("m", "t")
	text, err := content(p)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, x := range f.batches {
		want += string(x)
	}
	if text != want {
		t.Error("the log is not the source's")
	}
}

// write writes a state as another broker does.
func (c *cluster) write(topic string, edit func(*mirrormsg.WriteMirrorStatesPartition)) {
	c.t.Helper()
	eventually(c.t, func() error { // the coordinator may be loading
		p := mirrormsg.NewWriteMirrorStatesPartition()
		edit(&p)
		r := request[*mirrormsg.WriteMirrorStatesResponse](c, &mirrormsg.WriteMirrorStatesRequest{MirrorName: "m",
			Topics: []mirrormsg.WriteMirrorStatesTopic{{TopicName: topic, Partitions: []mirrormsg.WriteMirrorStatesPartition{p}}}})
		if code := r.Topics[0].Partitions[0].ErrorCode; code != 0 {
			return fmt.Errorf("state write: %d", code)
		}
		return nil
	})
}

// 159. FAILED whose previous state was EPOCH_FENCING, PAUSING or STOPPING: retry continues in that state.
func TestScenario159(t *testing.T) {
	t.Run("EPOCH_FENCING", func(t *testing.T) {
		f := newFake(t, 1)
		f.add(1, 2)
		b := mirrorOf(t, f, "request.timeout.ms", "100")
		b.awaitEnd("t", 0, 2)
		f.overtake(90)
		b.awaitState("m", "t", "FAILED")
		f.set(func() {
			close(f.hang)
			f.hang = nil
		})
		b.awaitEnd("t", 0, 3)
		b.awaitTopic("m", "t")
		if !strings.Contains(b.logs.text(), "from=FAILED to=EPOCH_FENCING") {
			t.Error("the retry did not go on where it had failed")
		}
	})
	// States that fail only where somebody else says so. The wish comes while no broker is there to follow it.
	for previous, want := range map[mirrormsg.State]string{mirrormsg.Pausing: "PAUSED", mirrormsg.Stopping: "STOPPED"} {
		t.Run(previous.String(), func(t *testing.T) {
			a, b := pair(t)
			a.say("t", "1", "2")
			b.mirror("m", a)
			b.begin("m", "t")
			b.awaitEnd("t", 0, 2)
			b.awaitTopic("m", "t")
			if previous == mirrormsg.Pausing {
				b.pause("m", "t")
			} else {
				b.stop("m", "t")
			}
			b.awaitState("m", "t", want)
			why := "no memory"
			path := []mirrormsg.State{mirrormsg.Failed, mirrormsg.Mirroring, previous, mirrormsg.Failed}
			for _, s := range path { // as a leader leaves it that failed there
				b.write("t", func(p *mirrormsg.WriteMirrorStatesPartition) {
					if p.State = int8(s); s == mirrormsg.Failed {
						p.ErrorMessage = &why
					}
				})
			}
			before := len(b.logs.text())
			b.kill()
			b.start()
			b.awaitState("m", "t", want)
			if !strings.Contains(b.logs.text()[before:], "from=FAILED to="+previous.String()) {
				t.Error("the retry did not go on where it had failed")
			}
			b.holds("t", "1", "2")
		})
	}
}

// 152. Describe with one coordinator down: partial answer in time; LME lookup in the same situation: error, never "no LME".
func TestScenario152(t *testing.T) {
	// With one replica nobody takes over from the coordinator that is down.
	a, b := newCluster(t, "source"), newTrio(t, "mirror.state.topic.replication.factor", "1")
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	b.stop("m", topic)
	b.awaitState("m", topic, "STOPPED")
	coordinator := b.coordinator("m", topic)
	asked := b.nodes.Node(b.others(coordinator)[0]).Addr()
	b.nodes.Kill(coordinator)
	one := &cluster{t: t, addr: asked}
	one.connect()
	defer one.cl.Close()
	p, err := one.state("m", topic, 0)
	if err != nil || p.State != "UNKNOWN" || p.LastError == "" {
		t.Errorf("described: %+v, %v", p, err)
	}
	ds, err := one.mir.DescribeWith(t.Context(), mirroradm.DescribeOptions{SourceClusterID: a.n.ClusterID(), State: true})
	if err != nil || len(ds) != 1 || ds[0].Err == nil {
		t.Errorf("last mirror epochs: %+v, %v", ds, err)
	}
	a.say(topic, "lost")
	a.mirrorAt("back", asked, b.nodes.ID)
	a.begin("back", topic)
	f := a.await("back", topic, 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" })
	if f.RetryAttempt < 1 || !strings.Contains(f.LastError, "last mirror epochs of the source") {
		t.Errorf("failback: %+v", f)
	}
	a.holds(topic, a.values(topic)...)
	if cuts := a.cutRecords(mirroradm.CutFilter{}); len(cuts) > 0 {
		t.Errorf("set aside: %v", cuts)
	}
	b.nodes.StartNodes(coordinator)
	a.awaitTopic("back", topic)
	b.awaitSame(a, topic)
	if cuts := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(cuts) != "[6:lost]" {
		t.Errorf("set aside: %v", cuts)
	}
}

// 151. mirror.version lowered with existing mirrors: refused, or mirror topics stay read-only.
func TestScenario151(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	lower := func() int16 {
		t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = "mirror.version", 0, 2, true
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, err := req.RequestWith(t.Context(), b.cl)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.Results {
			if r.ErrorCode != 0 {
				return r.ErrorCode
			}
		}
		return resp.ErrorCode
	}
	if code := lower(); code == 0 {
		t.Error("mirror.version was lowered with a mirror present")
	}
	b.refuses("t")
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	if code := lower(); code == 0 {
		t.Error("mirror.version was lowered with a stopped mirror present")
	}
	if err := b.mir.Delete(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if code := lower(); code != 0 {
		t.Errorf("without mirrors: %d", code)
	}
	b.say("t", "an ordinary topic")
}
