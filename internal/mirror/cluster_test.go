package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"milena/internal/client"
	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/node"
	"milena/internal/peertest"
	"milena/internal/record"
	"milena/mirroradm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a one-node Milena cluster in this process, on a disk in memory.
type cluster struct {
	t    *testing.T
	mem  *disk.Mem
	fs   disk.FS // what the node sees of mem
	conf map[string]string
	addr string // host:port, the same over restarts
	logs *logBuffer
	dial client.Dialer // nil: the network's
	reg  *prometheus.Registry

	n   *node.Node
	cl  *kgo.Client
	adm *kadm.Client
	mir *mirroradm.Client
}

// logBuffer keeps what a node logs, for tests that failed.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newCluster makes a node with quick retries; extra are configs as key, value, ...
func newCluster(t *testing.T, name string, extra ...string) *cluster {
	t.Helper()
	return newClusterOn(t, name, nil, extra...)
}

// newClusterOn is newCluster that dials with dial.
func newClusterOn(t *testing.T, name string, dial client.Dialer, extra ...string) *cluster {
	t.Helper()
	mem := disk.NewMem(1)
	c := &cluster{t: t, mem: mem, fs: mem, logs: &logBuffer{}, dial: dial, conf: map[string]string{
		"log.dirs": "/data", "milena.http.listen": "off", "log.dir.reserve.bytes": "0",
		"offsets.topic.num.partitions": "1", "mirror.state.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0",
		"mirror.metadata.refresh.interval.ms": "100", "mirror.failed.retry.initial.backoff.ms": "20", "mirror.failed.retry.max.backoff.ms": "100",
		"request.timeout.ms": "5000",
	}}
	for i := 0; i < len(extra); i += 2 {
		c.conf[extra[i]] = extra[i+1]
	}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, c.logs.text())
		}
	})
	c.start()
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	addr := c.addr
	if addr == "" { // kept through restarts, while others dial it
		ports, err := peertest.FreePorts(1)
		if err != nil {
			c.t.Fatal(err)
		}
		addr = peertest.Loopback(ports[0])
	}
	props := maps.Clone(c.conf)
	props["listeners"] = "PLAINTEXT://" + addr
	conf, _, err := config.Load(props, config.Env{Hostname: os.Hostname})
	if err != nil {
		c.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(c.logs, &slog.HandlerOptions{Level: slog.LevelInfo}))
	c.reg = prometheus.NewRegistry()
	c.n, err = node.Start(c.t.Context(), node.Options{Config: conf, FS: c.fs, Logger: log, Dial: c.dial, Registry: c.reg})
	if err != nil {
		c.t.Fatal(err)
	}
	c.addr = c.n.Addr()
	c.connect()
}

// connect makes clients of the node at addr.
func (c *cluster) connect() {
	c.t.Helper()
	var err error
	c.cl, err = kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.MaxVersions(nil), kgo.MetadataMinAge(10*time.Millisecond), kgo.ProducerLinger(10*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequestRetries(3), kgo.RecordRetries(10), kgo.ProducerBatchMaxBytes(32<<20))
	if err != nil {
		c.t.Fatal(err)
	}
	c.adm, c.mir = kadm.NewClient(c.cl), mirroradm.NewClient(c.cl)
	c.adm.SetTimeoutMillis(5000)
}

// kill ends the node as a crash does: nothing is marked clean.
func (c *cluster) kill() {
	if c.n == nil {
		return
	}
	c.cl.Close()
	c.n.Kill()
	c.n = nil
}

// crash kills the node and starts it on what was durable.
func (c *cluster) crash() {
	c.t.Helper()
	c.kill()
	c.mem.Crash()
	c.start()
}

// restart stops the node cleanly and starts it again.
func (c *cluster) restart() {
	c.t.Helper()
	c.cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.n.Shutdown(ctx); err != nil {
		c.t.Fatal(err)
	}
	c.n = nil
	c.start()
}

func (c *cluster) topic(name string, partitions int32, configs ...string) {
	c.t.Helper()
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if _, err := c.adm.CreateTopic(c.t.Context(), partitions, 1, m, name); err != nil {
		c.t.Fatal(err)
	}
}

// produce writes n records to a partition, in one batch but for bad luck.
func (c *cluster) produce(topic string, partition int32, n int) {
	c.t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d", i)})
	}
	if err := c.cl.ProduceSync(c.t.Context(), rs...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// mirror creates a mirror of src on c with quick fetches; more are its configs as key, value, ...
func (c *cluster) mirror(name string, src *cluster, more ...string) {
	c.t.Helper()
	c.mirrorAt(name, src.addr, src.n.ClusterID(), more...)
}

func (c *cluster) mirrorAt(name, addr, id string, more ...string) {
	c.t.Helper()
	m := map[string]string{
		"bootstrap.servers": addr, "mirror.source.cluster.id": id, "mirror.fetch.wait.max.ms": "50", "mirror.fetch.backoff.ms": "20",
		"mirror.groups.sync.interval.ms": "50", "request.timeout.ms": "3000", "mirror.socket.timeout.ms": "3000",
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	if err := c.mir.Create(c.t.Context(), name, m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) begin(mirror string, topics ...string) {
	c.t.Helper()
	var ts []mirroradm.StartTopic
	for _, n := range topics {
		ts = append(ts, mirroradm.StartTopic{Name: n})
	}
	if _, err := c.mir.Start(c.t.Context(), mirror, ts, nil, nil); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) stop(mirror string, topics ...string) {
	c.t.Helper()
	rs, err := c.mir.Stop(c.t.Context(), mirror, topics, nil)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// state is how describe shows a partition.
func (c *cluster) state(mirror, topic string, partition int32) (mirroradm.Partition, error) {
	ds, err := c.mir.Describe(c.t.Context(), mirror)
	if err != nil {
		return mirroradm.Partition{}, err
	}
	for _, d := range ds {
		if d.Err != nil {
			return mirroradm.Partition{}, d.Err
		}
		for _, p := range d.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p, nil
			}
		}
	}
	return mirroradm.Partition{}, fmt.Errorf("describe does not show %s-%d", topic, partition)
}

// await waits until describe shows a partition as ok wants it.
func (c *cluster) await(mirror, topic string, partition int32, ok func(mirroradm.Partition) bool) mirroradm.Partition {
	c.t.Helper()
	var out mirroradm.Partition
	eventually(c.t, func() error {
		p, err := c.state(mirror, topic, partition)
		if err == nil && !ok(p) {
			err = fmt.Errorf("partition is %+v", p)
		}
		out = p
		return err
	})
	return out
}

func (c *cluster) awaitState(mirror, topic string, want string) mirroradm.Partition {
	c.t.Helper()
	return c.await(mirror, topic, 0, func(p mirroradm.Partition) bool { return p.State == want })
}

// end is a partition's log end as its own cluster says.
func (c *cluster) end(topic string, partition int32) int64 {
	c.t.Helper()
	o, err := c.adm.ListEndOffsets(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	e, _ := o.Lookup(topic, partition)
	return e.Offset
}

// awaitEnd waits for a partition's high watermark.
func (c *cluster) awaitEnd(topic string, partition int32, want int64) {
	c.t.Helper()
	eventually(c.t, func() error {
		o, err := c.adm.ListEndOffsets(c.t.Context(), topic)
		if err != nil {
			return err
		}
		if e, _ := o.Lookup(topic, partition); e.Err != nil || e.Offset != want {
			return fmt.Errorf("%s-%d ends at %d, want %d (%v)", topic, partition, e.Offset, want, e.Err)
		}
		return nil
	})
}

// batches are all bytes of a partition's segment files from an offset on, and the offsets of their batches.
func (c *cluster) batches(topic string, partition int32, from int64) (all []byte, bases []int64) {
	c.t.Helper()
	dir := fmt.Sprintf("/data/%s-%d", topic, partition)
	ents, err := c.mem.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range ents {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		data, err := disk.ReadFile(c.mem, filepath.Join(dir, e.Name()))
		if err != nil {
			c.t.Fatal(err)
		}
		for b, err := range record.Batches(data) {
			if err != nil {
				c.t.Fatal(err)
			}
			if b.BaseOffset() >= from {
				all, bases = append(all, b...), append(bases, b.BaseOffset())
			}
		}
	}
	return all, bases
}

// same checks that the partition's batches are those of the other cluster, byte for byte.
func (c *cluster) same(other *cluster, topic string, partition int32, from int64) {
	c.t.Helper()
	a, at := c.batches(topic, partition, from)
	b, bt := other.batches(topic, partition, from)
	if !bytes.Equal(a, b) {
		c.t.Fatalf("%s-%d differs: batches at %v and %v", topic, partition, at, bt)
	}
}

// alterMirror changes configs of a mirror.
func (c *cluster) alterMirror(name string, cs ...kadm.AlterConfig) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = 64, name
	for _, x := range cs {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = x.Name, kmsg.IncrementalAlterConfigOp(x.Op), x.Value
		res.Configs = append(res.Configs, e)
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(c.t.Context(), c.cl)
	if err != nil {
		c.t.Fatal(err)
	}
	if r := resp.Resources[0]; r.ErrorCode != 0 {
		c.t.Fatalf("configs of mirror %s: %d", name, r.ErrorCode)
	}
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	peertest.Eventually(t, 30*time.Second, f)
}

func hasCode(err error, name string) bool {
	var e *mirroradm.Error
	return errors.As(err, &e) && e.Name == name
}

func topicCode(rs []mirroradm.TopicResult, topic string) string {
	i := slices.IndexFunc(rs, func(r mirroradm.TopicResult) bool { return r.Topic == topic })
	var e *mirroradm.Error
	if i < 0 || !errors.As(rs[i].Err, &e) {
		return ""
	}
	return e.Name
}
