package node_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/node"
	"milena/internal/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a node with its data in dir on free ports; props win over the defaults of a test.
func start(t *testing.T, dir string, props map[string]string) *node.Node {
	t.Helper()
	all := map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0", "milena.http.listen": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0",
		"offsets.topic.num.partitions": "3", "mirror.state.topic.num.partitions": "3"}
	for k, v := range props {
		all[k] = v
	}
	conf, notice, err := config.Load(all, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	if len(notice.Unknown) > 0 {
		t.Fatal(notice.Unknown)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: conf, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func dial(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Addr()), kgo.MaxVersions(nil), kgo.RetryTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return c
}

func produce(t *testing.T, cl *kgo.Client, topic string, from, to int) {
	t.Helper()
	var recs []*kgo.Record
	for i := from; i < to; i++ {
		recs = append(recs, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
	}
	if err := cl.ProduceSync(ctx(t), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads want records and returns the values in the order they came.
func consume(t *testing.T, cl *kgo.Client, want int) []string {
	t.Helper()
	var got []string
	c := ctx(t)
	for len(got) < want {
		fs := cl.PollFetches(c)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(got), want, err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// A client finds its records and its group's offsets again after a clean shutdown and after a kill.
func TestRecordsAndOffsetsSurviveRestarts(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, nil)
	cl := dial(t, n)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx(t), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	for round, end := range []func(){func() { stop(t, n) }, func() { n.Kill() }, func() { stop(t, n) }} {
		produce(t, cl, "orders", round*100, round*100+100)
		gc := dial(t, n, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		got := consume(t, gc, 100)
		if want := fmt.Sprintf("v%d", round*100); got[0] != want || len(got) != 100 {
			t.Fatalf("round %d: the group got %d records from %s on, want 100 from %s on", round, len(got), got[0], want)
		}
		if err := gc.CommitUncommittedOffsets(ctx(t)); err != nil {
			t.Fatal(err)
		}
		gc.LeaveGroup()
		gc.Close()
		cl.Close()
		cluster := n.ClusterID()
		end()
		n = start(t, dir, nil)
		if n.ClusterID() != cluster {
			t.Errorf("cluster id %s became %s", cluster, n.ClusterID())
		}
		cl = dial(t, n)
		adm = kadm.NewClient(cl)
		lags, err := adm.Lag(ctx(t), "g")
		if err != nil {
			t.Fatal(err)
		}
		l := lags["g"]
		p, _ := l.Lag.Lookup("orders", 0)
		if p.Commit.At != int64(round*100+100) || p.End.Offset != int64(round*100+100) || p.Lag != 0 {
			t.Errorf("round %d: after the restart committed %d, end %d, lag %d", round, p.Commit.At, p.End.Offset, p.Lag)
		}
	}
	stop(t, n)
}

// A clean shutdown leaves nothing to recover; a kill does.
func TestCleanShutdownMarksTheDirectories(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, ".kafka_cleanshutdown")
	n := start(t, dir, nil)
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a running node's directory is marked clean: %v", err)
	}
	stop(t, n)
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("not marked clean after a clean shutdown: %v", err)
	}
	n = start(t, dir, nil)
	n.Kill()
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("marked clean after a kill: %v", err)
	}
}

// Several nodes run side by side; a second one on a directory is refused and named.
func TestSecondNodeOnADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	a, b := start(t, dir, nil), start(t, t.TempDir(), nil)
	defer stop(t, a)
	defer stop(t, b)
	conf, _, err := config.Load(map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.Start(ctx(t), node.Options{Config: conf})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("the second node: %v, want a refusal that names process %d", err, os.Getpid())
	}
}

func TestConsole(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "milena_build_info", "/debug/pprof/": "goroutine"} {
		resp, err := http.Get("http://" + n.HTTPAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, %v, %.80q", path, resp.StatusCode, err, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop(t, n)
}

// A changed topic config reaches the log at once.
func TestTopicConfigReachesTheLog(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	defer stop(t, n)
	cl := dial(t, n, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordRetries(1))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx(t), 1, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000")}, "small"); err != nil {
		t.Fatal(err)
	}
	big := &kgo.Record{Topic: "small", Value: make([]byte, 4000)}
	if err := cl.ProduceSync(ctx(t), big).FirstErr(); err == nil {
		t.Fatal("a record above max.message.bytes was accepted")
	}
	if _, err := adm.AlterTopicConfigs(ctx(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("100000")}}, "small"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx(t), &kgo.Record{Topic: "small", Value: make([]byte, 4000)}).FirstErr(); err != nil {
		t.Errorf("after max.message.bytes was raised: %v", err)
	}
}

// A group's partitions go over to the other member when one leaves.
func TestGroupRebalances(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	defer stop(t, n)
	cl := dial(t, n)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx(t), 4, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	member := func() *kgo.Client {
		return dial(t, n, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(50*time.Millisecond))
	}
	a, b := member(), member()
	waitFor(t, "both members have partitions", func() bool {
		poll(a)
		poll(b)
		d, err := kadm.NewClient(cl).DescribeGroups(ctx(t), "g")
		return err == nil && d["g"].State == "Stable" && len(d["g"].Members) == 2
	})
	b.LeaveGroup()
	b.Close()
	produce(t, cl, "t", 0, 200)
	if got := consume(t, a, 200); len(got) != 200 {
		t.Errorf("the member that stayed got %d records", len(got))
	}
	a.LeaveGroup()
}

func poll(cl *kgo.Client) {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	cl.PollFetches(c)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// Kafka's own server.properties for one node runs, after storage format --standalone.
func TestKafkasOwnPropertiesForOneNode(t *testing.T) {
	dir := t.TempDir()
	formatFor(t, dir, "4L6g3nShT-eMCtK--X86sw", 1)
	m, err := logdir.ReadMeta(disk.OS(), dir)
	if err == nil {
		err = quorum.Format(disk.OS(), filepath.Join(dir, "quorum"), []quorum.Voter{{Member: quorum.Member{ID: 1, Directory: m.Directory}, Endpoints: []quorum.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, dir, map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.bootstrap.servers": "localhost:9093",
		"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "inter.broker.listener.name": "PLAINTEXT", "controller.listener.names": "CONTROLLER",
		"advertised.listeners":           "PLAINTEXT://127.0.0.1:0,CONTROLLER://localhost:9093",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
	})
	defer stop(t, n)
	produce(t, dial(t, n, kgo.AllowAutoTopicCreation()), "t", 0, 1)
	if n.ClusterID() != "4L6g3nShT-eMCtK--X86sw" {
		t.Errorf("cluster id %s", n.ClusterID())
	}
}

func TestLostMetadataIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, nil)
	adm := kadm.NewClient(dial(t, n))
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	if err := os.RemoveAll(filepath.Join(dir, "quorum")); err != nil {
		t.Fatal(err)
	}
	conf, _, err := config.Load(map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := node.Start(t.Context(), node.Options{Config: conf, Version: "test"}); err == nil {
		n.Kill()
		t.Fatal("began an empty cluster over the logs of another")
	} else if !strings.Contains(err.Error(), "is missing, but the log directories hold 1 partitions") {
		t.Fatal(err)
	}
}

// formatFor formats a directory as `milena storage format` does for a node that joins a cluster.
func formatFor(t *testing.T, dir, cluster string, id int32) {
	t.Helper()
	err := logdir.Format(logdir.FormatOptions{FS: disk.OS(), Dirs: []string{dir}, NodeID: id, ClusterID: cluster,
		NewID: func() (ids.UUID, error) { return ids.New(rand.Reader) }})
	if err != nil {
		t.Fatal(err)
	}
}
