package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/node/nodetest"
	"milena/internal/peer"
)

// One controller and two brokers: the brokers serve, wait for a controller that is gone, and go on when it is back.
func TestSplitRoles(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{Controllers: 1, Brokers: 2, Each: func(id int32) map[string]string {
		p := map[string]string{"default.replication.factor": "2", "min.insync.replicas": "1"}
		if id > 100 {
			p["milena.http.listen"] = "127.0.0.1:0"
		}
		return p
	}})
	ctl := c.Node(101)
	if ctl.Addr() != ctl.ControllerAddr() || ctl.Replicas() != nil {
		t.Errorf("the controller alone is reached at %s and %s", ctl.Addr(), ctl.ControllerAddr())
	}
	conn, err := peer.Dial(t.Context(), peer.Options{Addr: ctl.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, ok := conn.Versions()[int16(api.Metadata)]; ok {
		t.Error("a controller's listener serves Metadata")
	}
	if _, ok := conn.Versions()[int16(api.BrokerHeartbeat)]; !ok {
		t.Error("a controller's listener doesn't serve BrokerHeartbeat")
	}
	if got := httpGet(t, ctl.HTTPAddr(), "/readyz"); got != "200 ok" {
		t.Errorf("/readyz of the controller: %s", got)
	}
	if got := httpGet(t, ctl.HTTPAddr(), "/metrics"); !strings.Contains(got, "kafka_controller_kafkacontroller_activecontrollercount 1") {
		t.Error("/metrics of the controller don't say that it is the active one")
	}
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 2, 2)
	produce(t, cl, "t", 0, 20)
	observersHaveDirectories(t, c, cl)
	c.Kill(101)
	nodetest.Eventually(t, 20*time.Second, func() error {
		for _, id := range []int32{201, 202} {
			if got := httpGet(t, c.Node(id).HTTPAddr(), "/readyz"); !strings.Contains(got, "503 no heartbeat was answered by a controller for 1s") {
				return fmt.Errorf("/readyz of broker %d without a controller: %s", id, got)
			}
		}
		return nil
	})
	nodetest.Eventually(t, 20*time.Second, func() error {
		if err := askLeader(t, c, 201, "t"); !errors.Is(err, &api.Error{Code: api.NotLeaderOrFollower}) {
			return fmt.Errorf("a broker that no controller answers leads: %w", err)
		}
		return nil
	})
	c.StartNodes(101)
	produce(t, cl, "t", 20, 40)
	replicasEqual(t, c, "t")
}

// observersHaveDirectories checks that brokers are seen reading the metadata with the id of their directory (KIP-853).
func observersHaveDirectories(t *testing.T, c *nodetest.Cluster, cl *kgo.Client) {
	t.Helper()
	q, err := describeQuorum(t, cl)
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[int32]ids.UUID{}, map[int32]ids.UUID{}
	for _, o := range q.Observers {
		got[o.ReplicaID] = o.ReplicaDirectoryID
	}
	for _, id := range []int32{201, 202} {
		m, err := logdir.ReadMeta(c.FS(id), c.Dir(id))
		if err != nil {
			t.Fatal(err)
		}
		want[id] = m.Directory
	}
	if !maps.Equal(got, want) {
		t.Errorf("observers %v, want %v", got, want)
	}
}

// askLeader asks one broker for the end of a partition that it leads by the metadata.
func askLeader(t *testing.T, c *nodetest.Cluster, id int32, topic string) error {
	t.Helper()
	cl := clusterClient(t, c)
	mt := c.Node(id).Image().TopicByName(topic)
	for i, p := range mt.Partitions {
		if p.Leader != id {
			continue
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = int32(i), -1, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := cl.Broker(int(id)).Request(within(t, 10*time.Second), req)
		if err != nil {
			return err
		}
		if code := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
			return &api.Error{Code: api.Code(code)}
		}
		return nil
	}
	return fmt.Errorf("broker %d leads no partition of %s", id, topic)
}

func httpGet(t *testing.T, addr, path string) string {
	t.Helper()
	hc := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := hc.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(b)))
}

// cutter is a dialer whose connections to some addresses can be cut.
type cutter struct {
	mu    sync.Mutex
	cut   map[string]bool
	conns map[string][]net.Conn
}

func (k *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	k.mu.Lock()
	gone := k.cut[addr]
	k.mu.Unlock()
	if gone {
		return nil, errors.New("cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[addr] = append(k.conns[addr], conn)
	return conn, nil
}

func (k *cutter) set(addr string, cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut[addr] = cut
	if cut {
		for _, c := range k.conns[addr] {
			_ = c.Close()
		}
		delete(k.conns, addr)
	}
}

// A broker that no controller answers stops leading by itself and hands on to others; it leads again when it is heard.
func TestBrokerCutOffFromTheController(t *testing.T) {
	cut := &cutter{cut: map[string]bool{}, conns: map[string][]net.Conn{}}
	c := nodetest.Start(t, nodetest.Options{Controllers: 1, Brokers: 2, Props: map[string]string{"default.replication.factor": "2", "min.insync.replicas": "1"},
		Dial: func(id int32) client.Dialer {
			if id == 201 {
				return cut.dial
			}
			return (&net.Dialer{}).DialContext
		}})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 2, 2)
	produce(t, cl, "t", 0, 20)
	addr := c.Node(101).ControllerAddr()
	cut.set(addr, true)
	nodetest.Eventually(t, 20*time.Second, func() error {
		if err := askLeader(t, c, 201, "t"); !errors.Is(err, &api.Error{Code: api.NotLeaderOrFollower}) {
			return fmt.Errorf("the broker that is cut off leads: %w", err)
		}
		return nil
	})
	produce(t, cl, "t", 20, 40)
	if p := c.Node(202).Image().Partition("t", 0); p.Leader != 202 {
		t.Errorf("t-0 is led by %d, and 201 is cut off", p.Leader)
	}
	cut.set(addr, false)
	nodetest.Eventually(t, 20*time.Second, func() error {
		for i := range int32(2) {
			if p := c.Node(202).Image().Partition("t", i); len(p.ISR) != 2 {
				return fmt.Errorf("t-%d has the ISR %v after broker 201 is back", i, p.ISR)
			}
		}
		return nil
	})
	produce(t, cl, "t", 40, 60)
	replicasEqual(t, c, "t")
}

// Clients notice nothing of nodes that are stopped cleanly and started again one after another.
func TestRollingRestart(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 3, 3)
	produce(t, cl, "t", 0, 10)
	var sent atomic.Int64
	stopped, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stopped:
				done <- nil
				return
			default:
			}
			n := sent.Add(1)
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "r%d", n)}).FirstErr(); err != nil {
				done <- err
				return
			}
		}
	}()
	for _, id := range c.IDs() {
		c.Stop(id)
		c.StartNodes(id)
		nodetest.Eventually(t, 20*time.Second, func() error {
			for i, p := range c.Node(id).Image().TopicByName("t").Partitions {
				if len(p.ISR) != 3 {
					return fmt.Errorf("after the restart of node %d t-%d has the ISR %v", id, i, p.ISR)
				}
			}
			return nil
		})
	}
	close(stopped)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := consume(t, clusterClient(t, c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 10+int(sent.Load()))
	seen := map[string]bool{}
	for _, v := range got {
		if seen[v] {
			t.Errorf("%s was read twice", v)
		}
		seen[v] = true
	}
	replicasEqual(t, c, "t")
}

// A default single node is grown: it is given a controller listener, then a second voter is added.
func TestDefaultNodeGrows(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, nil)
	cl := dial(t, n)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "t", 0, 10)
	cl.Close()
	stop(t, n)
	n = start(t, dir, map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names": "CONTROLLER", "broker.heartbeat.interval.ms": "50"})
	defer n.Kill()
	second := t.TempDir()
	formatFor(t, second, n.ClusterID(), 2)
	n2 := start(t, second, map[string]string{
		"node.id": "2", "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names": "CONTROLLER",
		"controller.quorum.bootstrap.servers": n.ControllerAddr(), "controller.quorum.auto.join.enable": "true", "broker.heartbeat.interval.ms": "50",
	})
	defer n2.Kill()
	cl = dial(t, n2)
	adm := kadm.NewClient(cl)
	nodetest.Eventually(t, 20*time.Second, func() error {
		q, err := describeQuorum(t, cl)
		if err != nil {
			return err
		}
		if len(q.CurrentVoters) != 2 {
			return fmt.Errorf("the quorum has the voters %v", q.CurrentVoters)
		}
		return nil
	})
	if _, err := adm.CreateTopic(ctx(t), 1, 2, nil, "both"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "both", 0, 10)
	got := consume(t, dial(t, n2, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 10)
	if got[0] != "v0" || got[9] != "v9" {
		t.Errorf("the first node's records are %v", got)
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		if p := n.Image().Partition("both", 0); len(p.ISR) != 2 {
			return fmt.Errorf("both-0 has the ISR %v", p.ISR)
		}
		return nil
	})
}

func describeQuorum(t *testing.T, cl *kgo.Client) (*kmsg.DescribeQuorumResponseTopicPartition, error) {
	t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic = "__cluster_metadata"
	rt.Partitions = append(rt.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx(t), cl)
	switch {
	case err != nil:
		return nil, err
	case resp.ErrorCode != 0:
		return nil, &api.Error{Code: api.Code(resp.ErrorCode)}
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return nil, errors.New("DescribeQuorum has no partition")
	}
	p := &resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return nil, &api.Error{Code: api.Code(p.ErrorCode)}
	}
	return p, nil
}

// What other nodes ask of a combined node's controller counts like what clients ask of its broker (RequestMetrics).
func TestControllerListenersHaveRequestMetrics(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{Combined: 1, Brokers: 1, Props: map[string]string{"milena.http.listen": "127.0.0.1:0", "default.replication.factor": "1"}})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 1, 1)
	got := httpGet(t, c.Node(1).HTTPAddr(), "/metrics")
	for _, want := range []string{
		`kafka_network_requestmetrics_requests_total{request="BrokerHeartbeat"`, `kafka_network_requestmetrics_totaltimems_count{request="Envelope"}`,
		`kafka_network_requestmetrics_errors_total{error="NONE",request="BrokerRegistration"}`,
		`kafka_server_socket_server_metrics_connection_count{listener="CONTROLLER"}`, `kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("/metrics lack %s", want)
		}
	}
}

// Internal topics are made with as many replicas as there are brokers, and get the rest when brokers join.
func TestInternalTopicsGrow(t *testing.T) {
	c := nodetest.New(t, nodetest.Options{Each: func(int32) map[string]string {
		return map[string]string{"milena.http.listen": "127.0.0.1:0", "min.insync.replicas": "1"}
	}})
	c.StartNodes(1, 2)
	cl := clusterClient(t, c)
	createTopic(t, cl, "orders", 1, 2)
	produce(t, cl, "orders", 0, 5)
	group := clusterClient(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	consumeGroup(t, group, 5)
	if err := group.CommitUncommittedOffsets(ctx(t)); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, 10*time.Second, func() error {
		if got := httpGet(t, c.Node(1).HTTPAddr(), "/readyz"); got != "200 ok\ndegraded: __consumer_offsets has 2 of 3 replicas: more are made when brokers join" {
			return errors.New(got)
		}
		return nil
	})
	c.StartNodes(3)
	nodetest.Eventually(t, 20*time.Second, func() error {
		for i, p := range c.Node(1).Image().TopicByName("__consumer_offsets").Partitions {
			if len(p.Replicas) != 3 || len(p.ISR) != 3 {
				return fmt.Errorf("__consumer_offsets-%d has replicas %v, ISR %v", i, p.Replicas, p.ISR)
			}
		}
		if got := httpGet(t, c.Node(1).HTTPAddr(), "/readyz"); got != "200 ok" {
			return errors.New(got)
		}
		return nil
	})
	replicasEqual(t, c, "__consumer_offsets")
}
