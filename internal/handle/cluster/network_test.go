package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/peer"
	"milena/internal/server"
)

// serve serves a table, with ApiVersions added, until the test ends.
func serve(t *testing.T, name string, l net.Listener, table server.Table) {
	t.Helper()
	table[api.ApiVersions] = func(_ context.Context, r *server.Request) {
		if r.UnsupportedVersion {
			r.Reply(server.VersionsFallback())
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		for _, v := range table.APIs(api.Milena) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v.Key, v.Min, v.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		r.Reply(server.Response{Msg: resp})
	}
	s, err := server.New(server.Options{
		Listeners: []server.Listener{{Name: name, Listener: l, Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return table },
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
		<-done
	})
}

// All the way: a client by TCP to a broker, which forwards to the controller by an
// in-process connection, and follows its metadata by another.
func TestAClientCreatesTopicsThroughABroker(t *testing.T) {
	n := startNode(t, newMem(), nil)
	inProcess, dial := server.NewMemListener()
	controllerTable := server.Table{}
	n.ctl.Register(controllerTable)
	serve(t, "CONTROLLER", inProcess, controllerTable)
	link := func() *metafollow.Link {
		l := metafollow.NewLink(func(ctx context.Context) (metafollow.Conn, error) {
			return peer.Dial(ctx, peer.Options{
				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
				Addr: "controller:0", ClientID: "broker-2",
			})
		})
		t.Cleanup(func() { _ = l.Close() })
		return l
	}

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, portText, _ := net.SplitHostPort(tcp.Addr().String())
	port, _ := strconv.Atoi(portText)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	follower := metafollow.New(metafollow.Options{NodeID: 2, ClusterID: testCluster, Controller: link(), MaxWait: 50 * time.Millisecond})
	session := metafollow.NewSession(metafollow.SessionOptions{
		NodeID: 2, ClusterID: testCluster, Incarnation: ids.UUID{0: 5, 15: 2}, PreviousEpoch: -1,
		Endpoints:  []meta.Endpoint{{Name: "PLAIN", Host: "127.0.0.1", Port: uint16(port)}},
		Features:   []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}},
		Controller: link(), Follower: follower, Heartbeat: 50 * time.Millisecond,
	})
	running, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = follower.Run(running); done <- struct{}{} }()
	go func() { _ = session.Run(running); done <- struct{}{} }()
	t.Cleanup(func() {
		stop()
		<-done
		<-done
	})
	broker := NewBroker(BrokerOptions{
		NodeID: 2, ClusterID: testCluster, Image: follower.Image, WaitOffset: follower.WaitOffset, Controller: link(),
		AutoCreate: func() bool { return true },
	})
	table := server.Table{}
	broker.Register(table)
	serve(t, "PLAIN", tcp, table)
	select {
	case <-session.Ready():
	case <-ctx.Done():
		t.Fatal("the broker is not unfenced")
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(tcp.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	// Broker 1 has no socket; assignments keep the client with broker 2.
	for i := range 3 {
		req := kmsg.NewPtrCreateTopicsRequest()
		tp := kmsg.NewCreateTopicsRequestTopic()
		tp.Topic, tp.NumPartitions, tp.ReplicationFactor = fmt.Sprintf("t%d", i), -1, -1
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Replicas = []int32{2}
		tp.ReplicaAssignment = append(tp.ReplicaAssignment, a)
		req.Topics = append(req.Topics, tp)
		resp, err := req.RequestWith(ctx, client)
		if err != nil || resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("create: %v, %+v", err, resp)
		}
		topics, err := admin.ListTopics(ctx, tp.Topic) // what was created is seen at once
		if err != nil || topics[tp.Topic].Err != nil || topics[tp.Topic].Partitions[0].Leader != 2 {
			t.Fatalf("list: %v, %+v", err, topics)
		}
	}
	if _, err := admin.DeleteTopics(ctx, "t1"); err != nil {
		t.Fatal(err)
	}
	meta, err := admin.Metadata(ctx)
	if err != nil || len(meta.Topics) != 2 || meta.Cluster != testCluster || len(meta.Brokers) != 2 {
		t.Fatalf("metadata: %v, %+v", err, meta)
	}
}
