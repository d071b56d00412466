package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"milena/internal/node/nodetest"
	"milena/internal/peertest"
	"milena/mirroradm"
)

// runAt runs a command against a node and returns what it wrote.
func runAt(t *testing.T, n *testNode, want ExitCode, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	code, out, errs := invoke(stdin, append(args, "--bootstrap-server", n.Addr())...)
	if code != want {
		t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
	}
	return out, errs
}

func testCluster(t *testing.T) *testNode {
	t.Helper()
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

func testClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// "mirrors fence|unfence --topics … sets the topic config milena.write.fence (replicated, shown in describe): client writes are refused
// with POLICY_VIOLATION naming the fence". Reads, commits and other topics go on; DeleteRecords doesn't.
func TestFence(t *testing.T) {
	n := testCluster(t)
	for _, topic := range []string{"orders", "orders-eu", "other"} {
		runAt(t, n, ExitOK, "", "topics", "create", topic)
		runAt(t, n, ExitOK, "one\n", "produce", topic)
	}
	if out, _ := runAt(t, n, ExitOK, "", "mirrors", "fence", "--topics", "orders.*"); out != "Fenced topic orders.\nFenced topic orders-eu.\n" {
		t.Error(out)
	}
	if out, _ := runAt(t, n, ExitOK, "", "topics", "describe", "orders"); !strings.Contains(out, "milena.write.fence=true") {
		t.Error(out)
	}
	const hint = "topic orders is fenced against writes (milena.write.fence=true); milena mirrors unfence --topics orders lifts the fence"
	if _, errs := runAt(t, n, ExitFailed, "two\n", "produce", "orders"); !strings.Contains(errs, hint) {
		t.Error(errs)
	}
	cl := testClient(t, kgo.SeedBrokers(n.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxVersions(nil))
	for _, acks := range []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RequiredAcks(kgo.LeaderAck())} {
		p := testClient(t, kgo.SeedBrokers(n.Addr()), acks, kgo.DisableIdempotentWrite())
		if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
			t.Error(err)
		}
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("idempotent: %v", err)
	}
	adm := kadm.NewClient(cl)
	deleted, err := adm.DeleteRecords(t.Context(), kadm.Offsets{"orders": {0: kadm.Offset{Topic: "orders", At: 1}}})
	if err != nil || !errors.Is(deleted["orders"][0].Err, kerr.PolicyViolation) {
		t.Errorf("%v %v", deleted, err)
	}
	if err := adm.CommitAllOffsets(t.Context(), "g", kadm.Offsets{"orders": {0: kadm.Offset{Topic: "orders", At: 1}}}); err != nil {
		t.Error(err)
	}
	runAt(t, n, ExitOK, "two\n", "produce", "other")
	runAt(t, n, ExitOK, "", "consume", "orders", "--from-beginning", "--max-records", "1")
	// The fence is in the metadata.
	n.Kill()
	if n, err = startNode(n.props); err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	runAt(t, n, ExitFailed, "two\n", "produce", "orders")
	if out, _ := runAt(t, n, ExitOK, "", "mirrors", "unfence", "--topics", "orders", "--json"); out != `{"confirmed":true,"unfenced":[{"topic":"orders"}]}`+"\n" {
		t.Error(out)
	}
	runAt(t, n, ExitOK, "two\n", "produce", "orders")
	runAt(t, n, ExitFailed, "two\n", "produce", "orders-eu")
	if _, errs := runAt(t, n, ExitFailed, "", "mirrors", "fence", "--topics", "orders,none"); !strings.Contains(errs, "no topic that matches none; nothing was changed") {
		t.Error(errs)
	}
	runAt(t, n, ExitOK, "three\n", "produce", "orders")
	runAt(t, n, ExitUsage, "", "mirrors", "fence")
	runAt(t, n, ExitUsage, "", "mirrors", "fence", "--topics", "orders", "--for", "1m")
}

// movable is a bootstrap name that can be made to lead elsewhere.
type movable struct{ to atomic.Pointer[string] }

func (m *movable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr == "bootstrap:9092" {
		addr = *m.to.Load()
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// "fence --redirect also answers Metadata v13 with REBOOTSTRAP_REQUIRED (KIP-1102) and closes connections of older clients, so that
// clients with one re-pointed bootstrap name move without restart."
func TestRedirect(t *testing.T) {
	redirected(t, kgo.MaxVersions(nil), kgo.MaxVersions(kversion.V3_5_0()), kgo.MaxVersions(kversion.V2_1_0()))
}

// FieldCase 63: "Client never goes back to bootstrap": REBOOTSTRAP_REQUIRED (KIP-1102) on a fenced source. Fence S; franz-go moves without
// restart, as a client that takes the error from Metadata v13; Java 4.x: by hand.
func TestFieldCase63(t *testing.T) { redirected(t, kgo.MaxVersions(nil)) }

// FieldCase 65: "REBOOTSTRAP_REQUIRED does not reconnect; old leaders kept": also close connections on fence so older clients move, which
// have never heard of that error.
func TestFieldCase65(t *testing.T) {
	redirected(t, kgo.MaxVersions(kversion.V3_5_0()), kgo.MaxVersions(kversion.V2_1_0()))
}

// redirected moves producers of these versions, and a consumer, from one cluster to another.
func redirected(t *testing.T, versions ...kgo.Opt) {
	old, other := testCluster(t), testCluster(t)
	runAt(t, old, ExitOK, "", "topics", "create", "orders")
	theirs, err := kadm.NewClient(testClient(t, kgo.SeedBrokers(old.Addr()))).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	copies := mirroradm.NewClient(testClient(t, kgo.SeedBrokers(other.Addr()), kgo.MaxVersions(nil)))
	if err := copies.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "orders", SourceID: theirs["orders"].ID, Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	var name movable
	addr := old.Addr()
	name.to.Store(&addr)
	opts := []kgo.Opt{kgo.SeedBrokers("bootstrap:9092"), kgo.Dialer(name.dial), kgo.DefaultProduceTopic("orders"), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}
	var clients []*kgo.Client
	for _, v := range versions {
		cl := testClient(t, append([]kgo.Opt{v}, opts...)...)
		clients = append(clients, cl)
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("before")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	reader := testClient(t, append(append([]kgo.Opt{versions[0]}, opts...), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if fs := reader.PollFetches(t.Context()); fs.Err() != nil || fs.NumRecords() == 0 {
		t.Fatalf("%v", fs.Err())
	}
	addr = other.Addr()
	moved := other.Addr()
	name.to.Store(&moved)
	out, _ := runAt(t, old, ExitOK, "", "mirrors", "fence", "--redirect", "--for", "1m", "--topics", "orders")
	if !regexp.MustCompile(`^Fenced topic orders\.\nClients are sent to their bootstrap servers until 20.*Z\.\n$`).MatchString(out) {
		t.Error(out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i, cl := range clients {
		for { // what was under way may fail once, with the fence's answer
			err := cl.ProduceSync(ctx, kgo.StringRecord("after")).FirstErr()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("client %d: %v", i, err)
			}
		}
		for range 4 { // beyond where the consumer has come: this is no mirror, and the offsets are others
			if err := cl.ProduceSync(ctx, kgo.StringRecord("after")).FirstErr(); err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
		}
	}
	for seen := 0; seen < len(clients); {
		fs := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal("the consumer did not move")
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == "after" {
				seen++
			}
		})
	}
	if _, errs := runAt(t, old, ExitFailed, "x\n", "produce", "orders", "--timeout-ms", "1500"); !strings.Contains(errs, "milena mirrors unfence --redirect ends that") {
		t.Error(errs)
	}
	// The tools reach the old cluster all the same, and end it.
	m := mirroradm.NewClient(testClient(t, kgo.SeedBrokers(old.Addr()), kgo.MaxVersions(nil), mirroradm.Software()))
	if until, err := m.Redirected(t.Context()); err != nil || time.Until(until) < 30*time.Second || time.Until(until) > time.Minute {
		t.Errorf("%v %v", until, err)
	}
	if _, errs := runAt(t, old, ExitOK, "", "mirrors", "unfence", "--topics", "orders"); !strings.Contains(errs, "Clients are still sent") {
		t.Error(errs)
	}
	if out, _ := runAt(t, old, ExitOK, "", "mirrors", "unfence", "--redirect"); out != "Clients are not redirected any more.\n" {
		t.Error(out)
	}
	runAt(t, old, ExitOK, "again\n", "produce", "orders")
}

// A failover does not claim that a topic takes writes that is fenced on this cluster.
func TestFailoverOfFencedTopic(t *testing.T) {
	p := newPair(t)
	runAt(t, p.dst, ExitOK, "", "mirrors", "fence", "--topics", "orders")
	out, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "failover", "dr")
	if !strings.Contains(errs, "topic orders takes no writes, since it is fenced here") || strings.Contains(out, "take writes") || strings.Contains(errs, "payments") {
		t.Errorf("%s%s", out, errs)
	}
	runAt(t, p.dst, ExitOK, "x\n", "produce", "payments")
	runAt(t, p.dst, ExitFailed, "x\n", "produce", "orders")
	runAt(t, p.dst, ExitOK, "", "mirrors", "unfence", "--topics", "orders")
	runAt(t, p.dst, ExitOK, "x\n", "produce", "orders")
}

// When a fence is confirmed nothing that a client wrote is on its way into a log any more, at whichever broker: no log end moves after.
func TestFenceHolds(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	addrs := c.Addrs()
	cl := testClient(t, kgo.SeedBrokers(addrs...))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 6, 3, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	var acked atomic.Int64
	var load sync.WaitGroup
	for range 6 {
		cl := testClient(t, kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		load.Go(func() {
			for cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr() == nil {
				acked.Add(1)
			}
		})
	}
	peertest.Eventually(t, 10*time.Second, func() error {
		if n := acked.Load(); n < 100 {
			return fmt.Errorf("%d records", n)
		}
		return nil
	})
	m := mirroradm.NewClient(testClient(t, kgo.SeedBrokers(addrs...), kgo.MaxVersions(nil)))
	if rs, err := m.Fence(t.Context(), "orders"); err != nil || rs.Error() != nil {
		t.Fatal(err, rs.Error())
	}
	ends := func() map[int32]int64 { // of the logs, beyond what is committed
		t.Helper()
		ts, err := adm.ListTopics(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "orders"
		for _, p := range ts["orders"].Partitions {
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p.Partition, p.LeaderEpoch, p.LeaderEpoch
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		out := map[int32]int64{}
		for _, p := range resp.Topics[0].Partitions {
			out[p.Partition] = p.EndOffset
		}
		return out
	}
	before := ends()
	load.Wait() // each producer's next record is refused
	after := ends()
	var sum int64
	for _, n := range after {
		sum += n
	}
	if !maps.Equal(before, after) || len(after) != 6 || sum < acked.Load() {
		t.Errorf("%v, then %v; %d records were acknowledged", before, after, acked.Load())
	}
}

// A broker that is gone is named, and what is done and what helps: it is not the cluster that can't be reached.
func TestFenceWithABrokerDown(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	active := c.ActiveController()
	var gone, other int32
	for _, id := range c.IDs() {
		if id != active {
			gone, other = id, gone
		}
	}
	at := func(want ExitCode, args ...string) (string, string) {
		t.Helper()
		code, out, errs := invoke("", append(args, "--bootstrap-server", c.Node(other).Addr())...)
		if code != want {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		return out, errs
	}
	at(ExitOK, "topics", "create", "orders")
	c.Kill(gone)
	out, errs := at(ExitFailed, "mirrors", "fence", "--topics", "orders", "--timeout-ms", "1000")
	for _, want := range []string{fmt.Sprintf("broker %d has not confirmed", gone), "the fence is set, and a broker that is down goes by it when it is back", "milena mirrors unfence", "milena cluster unregister"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %s", want, errs)
		}
	}
	if strings.Contains(errs, "cannot reach") || !strings.Contains(out, "which not every broker has confirmed") {
		t.Error(out, errs)
	}
}

// The states of mirrors have a coordinator of their own.
func TestCoordinatorAdvice(t *testing.T) {
	loading := &mirroradm.Error{Code: kerr.CoordinatorLoadInProgress.Code, Name: kerr.CoordinatorLoadInProgress.Message}
	if got := advice(fmt.Errorf("mirror dr: %w", loading)); !strings.Contains(got, "__mirror_state") {
		t.Error(got)
	}
	if got := advice(kerr.CoordinatorLoadInProgress); !strings.Contains(got, "__consumer_offsets") {
		t.Error(got)
	}
}
