package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/node/nodetest"
	"milena/internal/replica"
	"milena/mirroradm"
)

// trio is a cluster of three nodes, with links between them that can be cut.
type trio struct {
	*cluster
	nodes *nodetest.Cluster

	mu    sync.Mutex
	deaf  map[string]bool // addresses that no node reaches
	conns map[string][]net.Conn
	// lose says what becomes of a write of a mirror state between brokers; nil: nothing is lost.
	lose func(*mirrormsg.WriteMirrorStatesPartition) loss
	lost int
}

// newTrio starts one; extra are configs as key, value, ...
func newTrio(t *testing.T, extra ...string) *trio {
	t.Helper()
	props := map[string]string{
		"mirror.metadata.refresh.interval.ms": "100", "mirror.failed.retry.initial.backoff.ms": "20", "mirror.failed.retry.max.backoff.ms": "100",
		"request.timeout.ms": "5000", "log.dir.reserve.bytes": "0", "replica.lag.time.max.ms": "20000",
	}
	for i := 0; i < len(extra); i += 2 {
		props[extra[i]] = extra[i+1]
	}
	c := &trio{deaf: map[string]bool{}, conns: map[string][]net.Conn{}}
	logs := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			logs.mu.Lock()
			defer logs.mu.Unlock()
			t.Logf("log of the three nodes:\n%s", logs.buf.String())
		}
	})
	c.nodes = nodetest.Start(t, nodetest.Options{
		Props: props, Dial: func(int32) client.Dialer { return c.dial },
		Logger: func(id int32) *slog.Logger { return slog.New(slog.NewTextHandler(logs, nil)).With("node", id) },
	})
	c.cluster = clientsOf(t, c.nodes, logs)
	return c
}

// clientsOf are clients of several nodes, which it doesn't run.
func clientsOf(t *testing.T, nodes *nodetest.Cluster, logs *logBuffer) *cluster {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(nodes.Addrs()...), kgo.MaxVersions(nil), kgo.MetadataMinAge(10*time.Millisecond), kgo.ProducerLinger(10*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(20*time.Second), kgo.RequestRetries(1000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c := &cluster{t: t, cl: cl, adm: kadm.NewClient(cl), mir: mirroradm.NewClient(cl), logs: logs}
	c.adm.SetTimeoutMillis(5000)
	return c
}

func (c *trio) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	deaf := c.deaf[addr]
	c.mu.Unlock()
	if deaf {
		return nil, errors.New("no route")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err == nil {
		c.mu.Lock()
		c.conns[addr] = append(c.conns[addr], conn)
		c.mu.Unlock()
		conn = &lossyConn{Conn: conn, on: c}
	}
	return conn, err
}

// isolate cuts the other nodes off the broker on a node, or reconnects them.
func (c *trio) isolate(id int32, on bool) {
	addr := c.nodes.Node(id).Addr()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf[addr] = on
	for _, conn := range c.conns[addr] {
		_ = conn.Close()
	}
	c.conns[addr] = nil
}

// leader is the node that leads partition 0 of a topic, known to all nodes that run.
func (c *trio) leader(topic string) (id int32) {
	c.t.Helper()
	eventually(c.t, func() error {
		id = -1
		for _, n := range c.nodes.IDs() {
			nd := c.nodes.Node(n)
			if nd == nil {
				continue
			}
			p := nd.Image().Partition(topic, 0)
			if p == nil || p.Leader < 0 || id >= 0 && p.Leader != id || c.nodes.Node(p.Leader) == nil {
				return fmt.Errorf("no leader of %s that all agree on", topic)
			}
			id = p.Leader
		}
		return nil
	})
	return id
}

// replica is a node's replica of partition 0.
func (c *trio) replica(id int32, topic string) *replica.Partition {
	c.t.Helper()
	p, err := c.nodes.Node(id).Replicas().Get(topic, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// content are the bytes of a replica's log, and where its batches begin.
func content(p *replica.Partition) (string, error) {
	l := p.Log()
	info, err := l.Read(l.StartOffset(), 64<<20, l.EndOffset(), true)
	if err != nil {
		return "", err
	}
	defer info.Release()
	var out strings.Builder
	for _, s := range info.Spans {
		buf, err := s.Bytes()
		if err != nil {
			return "", err
		}
		out.Write(buf)
	}
	return out.String(), nil
}

// awaitSame waits until every node's replica of partition 0 holds what the other cluster's does, committed.
func (c *trio) awaitSame(other *cluster, topic string) {
	c.t.Helper()
	eventually(c.t, func() error {
		o, err := other.n.Replicas().Get(topic, 0)
		if err != nil {
			return err
		}
		want, err := content(o)
		if err != nil {
			return err
		}
		for _, id := range c.nodes.IDs() {
			p := c.replica(id, topic)
			got, err := content(p)
			if err != nil || got != want || p.HighWatermark() != o.LogEndOffset() {
				return fmt.Errorf("node %d has %d bytes, high watermark %d; the source %d bytes up to %d (%v)", id, len(got), p.HighWatermark(), len(want), o.LogEndOffset(), err)
			}
		}
		return nil
	})
}

// cuts are the files that a node has set aside.
func (c *trio) cuts(id int32) []string {
	c.t.Helper()
	ents, err := c.nodes.FS(id).ReadDir(filepath.Join(c.nodes.Dir(id), "cut"))
	if err != nil {
		return nil // there is no such directory
	}
	var out []string
	for _, e := range ents {
		if strings.HasSuffix(e.Name(), ".log") {
			out = append(out, e.Name())
		}
	}
	return out
}

// lead has the node lead partition 0 that doesn't now and is not other, with the next leader epoch.
func (c *trio) lead(topic string, other int32) {
	c.t.Helper()
	leader := c.leader(topic)
	third := 6 - leader - other // of nodes 1, 2 and 3
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(topic, 0, []int32{third, leader, other})
	rs, err := c.adm.AlterPartitionAssignments(c.t.Context(), req)
	if err == nil {
		err = rs.Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	eventually(c.t, func() error {
		if _, err := c.adm.ElectLeaders(c.t.Context(), kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		if l := c.leader(topic); l != third {
			return fmt.Errorf("node %d leads still", l)
		}
		return nil
	})
}

// failedOver makes a topic on the trio, mirrors it to b, stops there, and has both write on under the same leader epoch: up to 6 they
// agree, the trio has 3 more records. A mirror named back leads from b to the trio; who leads the topic doesn't coordinate it there.
func (c *trio) failedOver(b *cluster) (topic string) {
	c.t.Helper()
	c.mirror("back", b)
	var coordinator int32
	for i := 0; ; i++ {
		topic = fmt.Sprintf("t%d", i)
		if _, err := c.adm.CreateTopic(c.t.Context(), 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, topic); err != nil {
			c.t.Fatal(err)
		}
		leader := c.leader(topic)
		img := c.nodes.Node(leader).Image()
		states := img.TopicByName(mirrorstate.Topic)
		slot := mirrormsg.Slot(mirrorstate.Key{Mirror: "back", TopicID: img.TopicByName(topic).ID}.Slot(), int32(len(states.Partitions)))
		if coordinator = states.Partitions[slot].Leader; coordinator != leader {
			break
		}
	}
	c.produce(topic, 0, 6)
	b.mirrorAt("m", c.nodes.Addrs()[0], c.nodes.ID)
	b.begin("m", topic)
	b.awaitEnd(topic, 0, 6)
	b.stop("m", topic)
	b.awaitState("m", topic, "STOPPED")
	c.lead(topic, coordinator)
	c.raise(topic, b.n.Image().Partition(topic, 0).LeaderEpoch)
	c.produce(topic, 0, 3)
	b.produce(topic, 0, 2)
	eventually(c.t, func() error {
		for _, id := range c.nodes.IDs() {
			if p := c.replica(id, topic); p.LogEndOffset() != 9 {
				return fmt.Errorf("node %d has %d records", id, p.LogEndOffset())
			}
		}
		return nil
	})
	return topic
}

// readFollower is what a consumer that may read from a follower is answered there.
func readFollower(p *replica.Partition, offset int64) error {
	r, err := p.Read(replica.ReadParams{Offset: offset, MaxBytes: 100, MinOne: true, ReplicaID: -1, AnyReplica: true, CurrentEpoch: -1, LastFetched: -1})
	r.Release()
	return err
}

// A failback to a cluster of three nodes: all replicas are cut, one sets aside what goes (D4, D5).
func TestFailbackCutsFollowers(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "standby")
	topic := a.failedOver(b)
	leader := a.leader(topic)
	a.begin("back", topic)
	a.await("back", topic, 0, level)
	a.awaitSame(b, topic)
	for _, id := range a.nodes.IDs() {
		if files := a.cuts(id); (len(files) == 1) != (id == leader) {
			t.Errorf("node %d, leader is %d, has set aside %v", id, leader, files)
		}
		if id != leader {
			eventually(t, func() error { return readFollower(a.replica(id, topic), 0) })
		}
	}
}

// The leader cuts and dies before its followers have cut: nothing is fetched before they have, they serve nobody meanwhile, and who
// leads next begins again (D5).
func TestLeaderDiesInACut(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "standby")
	topic := a.failedOver(b)
	first := a.leader(topic)
	a.isolate(first, true) // its followers stay in sync for a while
	a.begin("back", topic)
	p := a.replica(first, topic)
	eventually(t, func() error {
		if end, hw := p.LogEndOffset(), p.HighWatermark(); end != 6 || hw != 6 {
			s, err := a.state("back", topic, 0)
			return fmt.Errorf("the leader ends at %d, high watermark %d: %+v, %v", end, hw, s, err)
		}
		return nil
	})
	if got := p.Unaligned(false); len(got) != 2 {
		t.Errorf("the leader waits for %v", got)
	}
	for _, id := range a.nodes.IDs() {
		if id == first {
			continue
		}
		if end := a.replica(id, topic).LogEndOffset(); end != 9 {
			t.Errorf("node %d ends at %d: nobody told it to cut", id, end)
		}
	}
	a.nodes.Kill(first)
	second := a.leader(topic)
	a.awaitLevel("back", topic)
	a.nodes.StartNodes(first)
	a.isolate(first, false)
	a.awaitSame(b, topic)
	with := 0
	for _, id := range a.nodes.IDs() {
		if n := len(a.cuts(id)); n > 1 {
			t.Errorf("node %d has set aside %d times", id, n)
		} else {
			with += n
		}
	}
	if with != 2 || len(a.cuts(first)) != 1 || len(a.cuts(second)) != 1 {
		t.Errorf("set aside on %d nodes, want on the leaders %d and %d", with, first, second)
	}
}

// awaitLevel waits for MIRRORING without lag, through errors of a cluster in motion.
func (c *trio) awaitLevel(mirror, topic string) {
	c.t.Helper()
	eventually(c.t, func() error {
		p, err := c.state(mirror, topic, 0)
		if err == nil && !level(p) {
			err = fmt.Errorf("partition is %+v", p)
		}
		return err
	})
}
