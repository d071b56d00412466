package mirror_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/node/nodetest"
	"milena/internal/record"
	"milena/internal/server"
	"milena/mirroradm"
)

// 4. Mirror config update: topic RF1 mirroring; alter with unknown key invalid.config; then alter bootstrap.servers to the second A broker;
// unknown key is refused; after the second alter the fetchers reconnect, state MIRRORING, 3 new records arrive.
func TestScenario4(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "destination")
	if _, err := a.adm.CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	leader := a.leader("t")
	others := a.others(leader)
	a.produce("t", 0, 3)
	b.mirrorAt("m", a.nodes.Node(others[0]).Addr(), a.nodes.ID)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 3)
	if err := b.mir.AlterConfigs(t.Context(), "m", map[string]string{"invalid.config": "x"}); err == nil || !strings.Contains(err.Error(), "INVALID_CONFIG") || !strings.Contains(err.Error(), "invalid.config") {
		t.Errorf("an unknown key: %v", err)
	}
	second := a.nodes.Node(others[1]).Addr()
	a.nodes.Kill(others[0])
	if err := b.mir.AlterConfigs(t.Context(), "m", map[string]string{"bootstrap.servers": second}); err != nil {
		t.Fatal(err)
	}
	a.produce("t", 0, 3)
	b.awaitEnd("t", 0, 6)
	b.awaitTopic("m", "t")
	if text, err := content(a.replica(leader, "t")); err != nil {
		t.Fatal(err)
	} else if got, _ := b.batches("t", 0, 0); string(got) != text {
		t.Error("the batches are not the source's")
	}
}

// 14. Log convergence: three topics (3P, 2P, 1P) with 100 records each, A restarted before; two mirrors, both MIRRORING; background producers on
// A while brokers are bounced in the order B0, B1, A1, B0, A0, B1; kill producers; lag 0 for both mirrors and all segment hashes converge on
// all replicas.
func TestScenario14(t *testing.T) {
	a, b := newTrio(t), newTrio(t)
	topics := map[string]int32{"three": 3, "two": 2, "one": 1}
	for name, n := range topics {
		if _, err := a.adm.CreateTopic(t.Context(), n, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}, name); err != nil {
			t.Fatal(err)
		}
		for p := range n {
			a.produce(name, p, 100)
		}
	}
	ids := a.nodes.IDs()
	a.nodes.Stop(ids[2])
	a.nodes.StartNodes(ids[2])
	b.mirrorAt("m1", strings.Join(a.nodes.Addrs(), ","), a.nodes.ID)
	b.mirrorAt("m2", strings.Join(a.nodes.Addrs(), ","), a.nodes.ID)
	b.begin("m1", "three", "one")
	b.begin("m2", "two")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			for name, n := range topics {
				r := &kgo.Record{Topic: name, Partition: int32(i) % n, Value: fmt.Appendf(nil, "background %d", i)}
				_ = a.cl.ProduceSync(ctx, r).FirstErr() // what isn't acknowledged may be there or not
			}
		}
	}()
	for _, x := range []struct {
		on *trio
		id int32
	}{{b, ids[0]}, {b, ids[1]}, {a, ids[1]}, {b, ids[0]}, {a, ids[0]}, {b, ids[1]}} {
		x.on.nodes.Stop(x.id)
		x.on.nodes.StartNodes(x.id)
	}
	stop()
	<-done
	for name, n := range topics {
		for p := range n {
			eventually(t, func() error { return converged(a, b, name, p) })
		}
	}
	for mirror, topic := range map[string]string{"m1": "three", "m2": "two"} {
		b.awaitLevel(mirror, topic)
	}
}

// converged compares all replicas of a partition on both sides.
func converged(a, b *trio, topic string, partition int32) error {
	var want string
	for i, side := range []*trio{a, b} {
		for _, id := range side.nodes.IDs() {
			p, err := side.nodes.Node(id).Replicas().Get(topic, partition)
			if err != nil {
				return err
			}
			got, err := content(p)
			if err != nil {
				return err
			}
			if want == "" {
				want = got
			}
			if got != want || p.HighWatermark() != p.LogEndOffset() {
				return fmt.Errorf("%s-%d on node %d of side %d: %d bytes up to %d, the first replica has %d", topic, partition, id, i, len(got), p.LogEndOffset(), len(want))
			}
		}
	}
	return nil
}

// 57. Delete mirror: mirror topic, one CLUSTER_MIRROR config resource listed; stop, STOPPED, delete; mirror not listed, no config resource, and
// the last batch of the owning __mirror_state partition holds exactly two records: tombstone of the partition state, then tombstone of the
// last mirror epoch.
func TestScenario57(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	resources := func() (names []string) {
		t.Helper()
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = []int8{64}
		resp, err := req.RequestWith(t.Context(), b.cl)
		if err != nil || resp.ErrorCode != 0 {
			t.Fatal(resp, err)
		}
		for _, r := range resp.ConfigResources {
			names = append(names, r.Name)
		}
		return names
	}
	if got := resources(); !slices.Equal(got, []string{"m"}) {
		t.Errorf("config resources: %v", got)
	}
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	img := b.n.Image()
	k := mirrorstate.Key{Mirror: "m", TopicID: img.TopicByName("t").ID}
	slot := mirrormsg.Slot(k.Slot(), int32(len(img.TopicByName(mirrorstate.Topic).Partitions)))
	if err := b.mir.Delete(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if got, names := b.mirrors(), resources(); len(got)+len(names) > 0 {
		t.Errorf("after the deletion there are mirrors %v and configs %v", got, names)
	}
	eventually(t, func() error {
		data, _ := b.batches(mirrorstate.Topic, slot, 0)
		var last record.Batch
		for x, err := range record.Batches(data) {
			if err != nil {
				return err
			}
			last = x
		}
		var kinds []int16
		for r, err := range last.Records(1 << 20) {
			if err != nil {
				return err
			}
			if r.Value != nil {
				return fmt.Errorf("the last batch has a record with a value")
			}
			kinds = append(kinds, int16(binary.BigEndian.Uint16(r.Key)))
		}
		if !slices.Equal(kinds, []int16{mirrormsg.MirrorPartitionStateType, mirrormsg.LastMirrorEpochsType}) {
			return fmt.Errorf("the last batch has tombstones of types %v", kinds)
		}
		return nil
	})
}

// 70. Tiered storage on the destination: topic MIRRORING; switch remote.storage.enable on for B's topic: refused by name, with a message that
// says tiered storage is not supported here; mirroring goes on.
func TestScenario70(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	rs, err := b.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "remote.storage.enable", Value: kadm.StringPtr("true")}}, "t")
	if err != nil || rs[0].Err == nil || !strings.Contains(rs[0].ErrMessage, "remote.storage.enable") || !strings.Contains(rs[0].ErrMessage, "tiered storage") {
		t.Errorf("tiered storage: %+v, %v", rs, err)
	}
	a.say("t", "1")
	b.awaitEnd("t", 0, 1)
	b.awaitTopic("m", "t")
}

// 167. Dead source from the beginning: lag is unknown in describe, in JSON (-1) and absent in metrics, never 0.
func TestScenario167(t *testing.T) {
	b := newCluster(t, "destination")
	if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: fakeTopic(), Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	b.mirrorAt("m", "127.0.0.1:1", "nowhere", "request.timeout.ms", "100")
	b.begin("m", "t")
	p := b.awaitState("m", "t", "FAILED")
	if lag, known := p.Lag(); known || p.SourceOffset != -1 || p.LastSourceOffset != -1 {
		t.Errorf("lag %d (%t): %+v", lag, known, p)
	}
	for _, name := range []string{"kafka_server_mirror_lag_offsets", "kafka_server_mirror_lag_seconds"} {
		if v, ok := b.metric(name, "mirror", "m"); ok {
			t.Errorf("%s is %g", name, v)
		}
	}
}

// 168. A tiered source topic (remote.storage.enable=true): mirrors; the key is listed as not carried.
func TestScenario168(t *testing.T) {
	f := newFakeWith(t, 1, api.Milena, server.Table{api.DescribeConfigs: func(_ context.Context, r *server.Request) {
		req, resp := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewPtrDescribeConfigsResponse()
		if err := r.Decode(req); err != nil {
			t.Error(err)
		}
		for _, x := range req.Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName = x.ResourceType, x.ResourceName
			for k, v := range map[string]string{"remote.storage.enable": "true", "local.retention.ms": "1", "retention.ms": "7200000", "of.a.later.release": "x"} {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value, c.Source = k, &v, kmsg.ConfigSourceDynamicTopicConfig
				res.Configs = append(res.Configs, c)
			}
			resp.Resources = append(resp.Resources, res)
		}
		r.Reply(server.Response{Msg: resp})
	}})
	f.add(1, 3)
	b := mirrorOf(t, f)
	b.awaitEnd("t", 0, 3)
	b.awaitTopic("m", "t")
	if got := b.config("t", "retention.ms"); got != "7200000" {
		t.Errorf("retention.ms is %q", got)
	}
	for _, k := range []string{"remote.storage.enable", "local.retention.ms", "of.a.later.release"} {
		if got := b.config("t", k); got != "" {
			t.Errorf("%s=%s is carried", k, got)
		}
	}
	eventually(t, func() error {
		ds, err := b.mir.Describe(t.Context(), "m")
		if err != nil {
			return err
		}
		for _, k := range []string{"remote.storage.enable", "local.retention.ms", "of.a.later.release"} {
			if !slices.Contains(ds[0].Weaker, "t: "+k+" is not carried") {
				return fmt.Errorf("%s is not listed: %v", k, ds[0].Weaker)
			}
		}
		return nil
	})
}

// 169. Compacted topic with keys older than the default retention: between creation and first config sync no record is removed.
func TestScenario169(t *testing.T) { compactedAndOld(t) }

// FieldCase 6: "Topic created with default settings first, S's settings later: wrong cleanup policy deletes data in between": settings set in
// the same step as creation. Compacted topic with old keys; pause right after creation; no record removed.
func TestFieldCase6(t *testing.T) { compactedAndOld(t) }

func compactedAndOld(t *testing.T) {
	a := newCluster(t, "source")
	b := newCluster(t, "destination", "log.retention.check.interval.ms", "10", "log.retention.ms", "1000", "log.cleaner.backoff.ms", "10")
	a.topic("t", 1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "1")
	old := time.Now().AddDate(-2, 0, 0)
	for i := range 4 {
		r := &kgo.Record{Topic: "t", Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte("x"), 600<<10), Timestamp: old}
		if err := a.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.mirror("m", a)
	b.begin("m", "t")
	switch rs, err := b.mir.Pause(t.Context(), "m", []string{"t"}); {
	case err == nil: // a resume is refused until the pause has come about
		eventually(t, func() error {
			_, err := b.mir.Resume(t.Context(), "m", []string{"t"})
			return err
		})
	case !hasCode(err, "INVALID_CLUSTER_MIRROR_STATES"): // it may not mirror yet
		t.Fatal(rs, err)
	}
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 4)
	if got := b.config("t", "cleanup.policy"); got != "compact" {
		t.Errorf("cleanup.policy is %q", got)
	}
	b.restart() // retention looks at everything once more
	b.awaitTopic("m", "t")
	b.same(a, "t", 0, 0)
	if at := b.first("t"); at != 0 {
		t.Errorf("retention took records up to %d", at)
	}
}

// 170. An idle group's offset synced once is still there after offsets.retention.minutes (shortened) while the mirror exists.
func TestScenario170(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination", "offsets.retention.check.interval.ms", "10")
	a.topic("t", 1)
	a.produce("t", 0, 5)
	b.topic("own", 1)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.commit("g", "t", 3, "")
	b.awaitCommitted("g", "t", 3)
	// The retention of a commit can be asked for up to version 4: a moment.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(api.OffsetCommit), 4)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.MaxVersions(versions))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	brief := func(group, topic string) {
		t.Helper()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.RetentionTimeMillis, req.Generation = group, 1, -1
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = 3
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatal(resp, err)
		}
	}
	expires := func(group, topic string) {
		t.Helper()
		eventually(t, func() error {
			have, err := b.adm.FetchOffsets(t.Context(), group)
			if err != nil {
				return err
			}
			if o, ok := have.Lookup(topic, 0); ok && o.At >= 0 {
				return errors.New("the offset of group " + group + " is still there")
			}
			return nil
		})
	}
	brief("g", "t")
	brief("idle", "own") // as old, and expired: so has every other that may
	expires("idle", "own")
	if at, _ := b.committed("g", "t"); at != 3 {
		t.Errorf("the synced group is at %d", at)
	}
	// After a failover the old commits are all that consumers have.
	a.kill()
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	brief("idle", "own")
	expires("idle", "own")
	if at, _ := b.committed("g", "t"); at != 3 {
		t.Errorf("after the failover the synced group is at %d", at)
	}
	if err := b.mir.Delete(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	brief("g", "t")
	expires("g", "t")
}

// 172. Fresh single node, default settings: a mirror can be made at once (feature level, internal topic); when two more brokers join,
// __mirror_state is raised to three replicas.
func TestScenario172(t *testing.T) {
	a := newCluster(t, "source")
	a.topic("t", 1)
	a.produce("t", 0, 3)
	nodes := nodetest.Start(t, nodetest.Options{Combined: 1, Props: map[string]string{"default.replication.factor": "1", "min.insync.replicas": "1"}})
	b := clientsOf(t, nodes, &logBuffer{})
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 3)
	factor := func(want int) {
		t.Helper()
		eventually(t, func() error {
			states := nodes.Node(1).Image().TopicByName(mirrorstate.Topic)
			for i, p := range states.Partitions {
				if len(p.Replicas) != want || len(p.ISR) != want {
					return fmt.Errorf("%s-%d has replicas %v, in sync %v, want %d", mirrorstate.Topic, i, p.Replicas, p.ISR, want)
				}
			}
			return nil
		})
	}
	factor(1)
	nodes.AddController(2)
	nodes.AddController(3)
	nodes.StartNodes(2, 3)
	factor(3)
	a.produce("t", 0, 2)
	b.awaitEnd("t", 0, 5)
}
