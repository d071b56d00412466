package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
	"milena/mirroradm"
)

// topicID is a topic's id.
func (c *cluster) topicID(topic string) kadm.TopicID {
	c.t.Helper()
	ts, err := c.adm.ListTopics(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	return ts[topic].ID
}

// name is a bootstrap name of clients that can be made to lead to another cluster.
type name struct{ to atomic.Pointer[string] }

const nameAddr = "kafka.example:9092"

func (n *name) lead(addr string) { n.to.Store(&addr) }

func (n *name) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr == nameAddr {
		addr = *n.to.Load()
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// client is one that knows no more than the name.
func (n *name) client(t *testing.T, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(nameAddr), kgo.Dialer(n.dial), kgo.DefaultProduceTopic("t"), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.ProducerLinger(0), kgo.DialTimeout(time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// failedOver is a pair after a disaster: the source is gone, the name leads to the destination, which takes writes. What runs between is for
// clients that live through it.
func (n *name) failedOver(t *testing.T, before func(a, b *cluster)) (b *cluster) {
	a, b := pair(t)
	n.lead(a.addr)
	b.mirror("m", a)
	b.begin("m", "t")
	before(a, b)
	b.awaitEnd("t", 0, a.end("t", 0))
	a.kill()
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	n.lead(b.addr)
	return b
}

// FieldCase 67: "Offset not committed when its epoch is missing": accept -1. At the source, by the sync, and here after a failover.
func TestFieldCase67(t *testing.T) {
	var n name
	b := n.failedOver(t, func(a, b *cluster) {
		a.produce("t", 0, 5)
		b.awaitEnd("t", 0, 5)
		a.commit("g", "t", 2, "") // its leader epoch is -1
		b.awaitCommitted("g", "t", 2)
	})
	b.commit("g", "t", 4, "")
	got, err := b.adm.FetchOffsets(t.Context(), "g")
	if o, ok := got.Lookup("t", 0); err != nil || !ok || o.At != 4 || o.LeaderEpoch != -1 {
		t.Errorf("%v: %+v", err, got)
	}
	cl := n.client(t, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.DisableAutoCommit())
	if rs := cl.PollFetches(t.Context()).Records(); len(rs) == 0 || rs[0].Offset != 4 {
		t.Errorf("the group reads on with %d records", len(rs))
	}
}

// FieldCase 68: "Idempotent producer dies with out-of-order after the cluster was down": after failover: one bump, not fatal. An idempotent
// producer through a failover; librdkafka and Java: make interop, client-failover.
func TestFieldCase68(t *testing.T) {
	var n name
	cl := n.client(t)
	acked := 0
	write := func(when string, records int) {
		t.Helper()
		for range records {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(acked))).FirstErr(); err != nil {
				t.Fatalf("%s, record %d: %v", when, acked, err)
			}
			acked++
		}
	}
	var before, after writer
	b := n.failedOver(t, func(a, _ *cluster) {
		write("before", 5)
		before = a.lastProducer()
	})
	write("after the failover", 5)
	var want []string
	for i := range acked {
		want = append(want, fmt.Sprint(i))
	}
	b.holds("t", want...) // each once, in order
	if after = b.lastProducer(); after != before && after.id == before.id && after.epoch != before.epoch+1 {
		t.Errorf("the producer is %+v after %+v: more than a bump", after, before)
	}
	write("later", 2)
	if now := b.lastProducer(); now != after {
		t.Errorf("another bump: %+v after %+v", now, after)
	}
}

// writer is a producer's id and epoch.
type writer struct {
	id    int64
	epoch int16
}

// lastProducer is who wrote the last batch of t-0.
func (c *cluster) lastProducer() (w writer) {
	c.t.Helper()
	data, _ := c.batches("t", 0, 0)
	for b, err := range record.Batches(data) {
		if err != nil {
			c.t.Fatal(err)
		}
		w = writer{b.ProducerID(), b.ProducerEpoch()}
	}
	return w
}

// FieldCase 69: "After a site failover the group waits for a coordinator for ever": FindCoordinator right after the failover, by every broker,
// for groups that were synced and for new ones.
func TestFieldCase69(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t, "offsets.topic.num.partitions", "6")
	a.topic("t", 1)
	a.produce("t", 0, 5)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitLevel("m", "t")
	groups := []string{"g0", "g1", "g2", "g3"}
	for _, g := range groups {
		a.commit(g, "t", 2, "")
		b.awaitCommitted(g, "t", 2)
	}
	a.kill()
	b.stop("m", "t")
	b.awaitStopped("t")
	for i, addr := range b.nodes.Addrs() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = append(groups, fmt.Sprintf("new%d", i))
		resp, err := req.RequestWith(t.Context(), cl.Broker(int(b.nodes.IDs()[i])))
		if err != nil || len(resp.Coordinators) != len(req.CoordinatorKeys) {
			t.Fatal(resp, err)
		}
		for _, c := range resp.Coordinators {
			if c.ErrorCode != 0 { // a client would wait and ask again
				t.Errorf("broker %s is asked for the coordinator of %s: %v", addr, c.Key, kerr.ErrorForCode(c.ErrorCode))
				continue
			}
			of := kmsg.NewPtrOffsetFetchRequest()
			of.Group = c.Key
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group = c.Key
			of.Groups = append(of.Groups, rg)
			got, err := of.RequestWith(t.Context(), cl.Broker(int(c.NodeID)))
			if err != nil || len(got.Groups) != 1 || got.Groups[0].ErrorCode != 0 {
				t.Errorf("broker %d, the coordinator of %s: %+v, %v", c.NodeID, c.Key, got, err)
			} else if c.Key[0] == 'g' && (len(got.Groups[0].Topics) != 1 || got.Groups[0].Topics[0].Partitions[0].Offset != 2) {
				t.Errorf("group %s: %+v", c.Key, got.Groups[0])
			}
		}
	}
}

// awaitStopped waits until partition 0 of a topic is STOPPED, through errors of a cluster in motion.
func (c *trio) awaitStopped(topic string) {
	c.t.Helper()
	c.await("m", topic, 0, func(p mirroradm.Partition) bool { return p.State == "STOPPED" })
}

// FieldCase 70: "Address reused: client writes to two clusters": cluster ids differ; broker checks cluster id where the request has it.
func TestFieldCase70(t *testing.T) {
	var n name
	var source string
	b := n.failedOver(t, func(a, _ *cluster) {
		source = a.n.ClusterID()
		a.produce("t", 0, 1)
	})
	cl := n.client(t, kgo.MaxVersions(nil))
	m, err := kadm.NewClient(cl).BrokerMetadata(t.Context())
	if err != nil || m.Cluster == source || m.Cluster != b.n.ClusterID() {
		t.Errorf("the name leads to cluster %s (%v); the source was %s", m.Cluster, err, source)
	}
	described := kmsg.NewPtrDescribeClusterRequest()
	dc, err := described.RequestWith(t.Context(), cl)
	if err != nil || dc.ClusterID != b.n.ClusterID() {
		t.Errorf("described is cluster %+v, %v", dc, err)
	}
	for _, id := range []string{b.n.ClusterID(), source} {
		req := kmsg.NewPtrFetchRequest()
		req.ClusterID, req.SessionEpoch = &id, -1
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		if got := kerr.ErrorForCode(resp.ErrorCode); (id == source) != errors.Is(got, kerr.InconsistentClusterID) {
			t.Errorf("a fetch for cluster %s of cluster %s: %v", id, b.n.ClusterID(), got)
		}
	}
	// A mirror finds another cluster behind its source's address before it takes anything from it.
	TestAnotherClusterBehindTheAddress(t)
}

// FieldCase 71: LinkedIn patched its client to refuse metadata when the cluster id changes: document that the id changes at failover; test
// both settings, a client that refuses and one that doesn't.
func TestFieldCase71(t *testing.T) {
	var n name
	lenient, strict := n.client(t), n.client(t)
	known := ""
	look := func() error { // as a client does that holds on to the first cluster id
		m, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), strict)
		if err != nil {
			return err
		}
		if known == "" {
			known = *m.ClusterID
		}
		if *m.ClusterID != known {
			return fmt.Errorf("cluster %s is not %s", *m.ClusterID, known)
		}
		return nil
	}
	b := n.failedOver(t, func(*cluster, *cluster) {
		if err := errors.Join(lenient.ProduceSync(t.Context(), kgo.StringRecord("1")).FirstErr(), look()); err != nil {
			t.Fatal(err)
		}
	})
	if err := lenient.ProduceSync(t.Context(), kgo.StringRecord("2")).FirstErr(); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		if err := look(); err == nil || !strings.Contains(err.Error(), b.n.ClusterID()) {
			return fmt.Errorf("the strict client: %w", err)
		}
		return nil
	})
	known = "" // restarted
	if err := look(); err != nil {
		t.Error(err)
	}
	b.holds("t", "1", "2")
}
