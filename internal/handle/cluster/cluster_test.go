package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/quorum"
)

const testCluster = "test-cluster"

// loop is a connection to the controller without a network: requests and responses pass
// through their bytes.
type loop struct{ c *Controller }

func (l loop) Close() error { return nil }
func (l loop) Reset()       {}

func (l loop) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	key := api.Key(req.Key())
	row, ok := api.Lookup(key)
	if !ok || !row.Controller {
		return nil, fmt.Errorf("the controller doesn't serve %s", key)
	}
	version := row.Max
	if kmsg.RequestForKey(req.Key()) != nil && req.MaxVersion() <= row.KafkaMax() {
		version = row.KafkaMax() // kmsg doesn't know those that Kafka doesn't have
	}
	req.SetVersion(version)
	body := req.AppendTo(nil)
	resp := req.ResponseKind()
	resp.SetVersion(version)
	var msg kmsg.Response
	if env, ok := req.(*kmsg.EnvelopeRequest); ok {
		if err := env.ReadFrom(body); err != nil {
			return nil, err
		}
		msg = l.c.unwrap(ctx, env)
	} else {
		msg = l.c.apis[key](ctx, &ControllerRequest{Key: key, Version: version, Body: body, Principal: "User:ANONYMOUS", Node: true})
	}
	if msg == nil {
		return nil, errors.New("the controller closed the connection")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	msg.SetVersion(version)
	return resp, resp.ReadFrom(msg.AppendTo(nil))
}

// rules accept every config, but for the key "bad".
type rules struct{}

func (rules) Validate(_ int8, _, key, value string) error {
	if key == "bad" {
		return fmt.Errorf("invalid value %s for bad", value)
	}
	return nil
}
func (rules) ValidateAll(int8, string, map[string]string) error { return nil }
func (rules) Canonical(_ int8, key string) string               { return key }
func (rules) List(_ int8, key string) (string, bool)            { return "delete", key == "cleanup.policy" }

// node is a broker and a controller.
type node struct {
	quorum   *quorum.Node
	service  *controller.Service
	ctl      *Controller
	follower *metafollow.Follower
	session  *metafollow.Session
	broker   *Broker
	stop     func()
}

// startNode starts a node on the disk; it is stopped with the test, or before by stop.
func startNode(t *testing.T, fs disk.FS, edit func(*quorum.Options)) *node {
	t.Helper()
	return startNodeWith(t, fs, edit, func(*controller.Options) {})
}

func startNodeWith(t *testing.T, fs disk.FS, edit func(*quorum.Options), state func(*controller.Options)) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{}
	member := quorum.Member{ID: 1, Directory: ids.UUID{0: 7}}
	qo := quorum.Options{
		FS: fs, Dir: "meta", Self: member, Voters: []quorum.Voter{{Member: member}},
		Fatal:    func(err error) { t.Errorf("quorum: %v", err) },
		Snapshot: nil,
	}
	if edit != nil {
		qo.Snapshot = func(w io.Writer) (int64, error) { return n.service.Snapshot(w) }
		edit(&qo)
	}
	var err error
	if n.quorum, err = quorum.Open(qo); err != nil {
		t.Fatal(err)
	}
	so := controller.Options{
		ClusterID: testCluster, Random: rand.Reader, Configs: rules{}, DeleteTopics: true,
		Defaults:  func(*meta.Image) (int32, int16) { return 2, 1 },
		Bootstrap: []meta.Record{&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 33}},
	}
	state(&so)
	n.service = controller.NewService(controller.ServiceOptions{Node: n.quorum, MaxBatchBytes: 128 << 10, State: so})
	n.ctl = NewController(ControllerOptions{NodeID: 1, ClusterID: testCluster, Service: n.service, Quorum: n.quorum})
	n.follower = metafollow.New(metafollow.Options{NodeID: 1, ClusterID: testCluster, Controller: loop{n.ctl}, MaxWait: 20 * time.Millisecond, Retry: time.Millisecond})
	incarnation, err := ids.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n.session = metafollow.NewSession(metafollow.SessionOptions{
		NodeID: 1, ClusterID: testCluster, Incarnation: incarnation, PreviousEpoch: -1,
		Endpoints:  []meta.Endpoint{{Name: "PLAIN", Host: "one", Port: 9092}},
		Features:   []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}},
		Controller: loop{n.ctl}, Follower: n.follower, Heartbeat: 50 * time.Millisecond, Retry: time.Millisecond,
	})
	n.broker = NewBroker(BrokerOptions{
		NodeID: 1, ClusterID: testCluster, Image: n.follower.Image, WaitOffset: n.follower.WaitOffset,
		Controller: loop{n.ctl}, AutoCreate: func() bool { return true }, ForwardTimeout: 5 * time.Second,
		InternalTopics: map[string]InternalTopic{GroupOffsetsTopic: {Partitions: 5, ReplicationFactor: 3, Configs: map[string]string{"cleanup.policy": "compact"}}},
	})
	done := make(chan struct{}, 3)
	run := func(f func(context.Context) error) {
		go func() { _ = f(ctx); done <- struct{}{} }()
	}
	n.quorum.Start()
	run(n.service.Run)
	run(n.session.Run)
	run(func(ctx context.Context) error {
		select {
		case <-n.session.Registered():
			return n.follower.Run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range 3 {
			<-done
		}
		if err := n.quorum.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(n.stop)
	select {
	case <-n.session.Ready():
	case <-time.After(5 * time.Second):
		t.Fatal("the broker was not unfenced in 5 s")
	}
	return n
}

func (n *node) create(t *testing.T, topic kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsResponseTopic {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	r, err := n.broker.CallController(t.Context(), req, createVersion)
	if err != nil {
		t.Fatal(err)
	}
	resp, ok := r.(*kmsg.CreateTopicsResponse)
	if !ok || len(resp.Topics) != 1 {
		t.Fatalf("CreateTopics answered %+v", r)
	}
	return resp.Topics[0]
}

func creatable(name string, partitions int32) kmsg.CreateTopicsRequestTopic {
	tp := kmsg.NewCreateTopicsRequestTopic()
	tp.Topic, tp.NumPartitions, tp.ReplicationFactor = name, partitions, -1
	return tp
}

// A topic that was created through the broker is in the broker's metadata when the answer
// comes, and is there again after restarts, with a higher leader epoch each time.
func TestCreateTopicThroughTheQuorum(t *testing.T) {
	fs := disk.NewMem(1)
	n := startNode(t, fs, nil)
	got := n.create(t, creatable("orders", 3))
	if got.ErrorCode != 0 || got.NumPartitions != 3 || got.ReplicationFactor != 1 || ids.UUID(got.TopicID).IsZero() {
		t.Fatalf("created %+v", got)
	}
	if got.Configs == nil {
		t.Error("the configs are null, which the Java client fails on")
	}
	topic := n.follower.Image().TopicByName("orders")
	if topic == nil || topic.ID != ids.UUID(got.TopicID) || len(topic.Partitions) != 3 {
		t.Fatalf("the broker's metadata has %+v", topic)
	}
	for _, p := range topic.Partitions {
		if p.Leader != 1 || p.LeaderEpoch != 0 || len(p.ISR) != 1 || p.ISR[0] != 1 {
			t.Errorf("partition %+v, want leader 1, epoch 0, ISR [1]", *p)
		}
	}
	if again := n.create(t, creatable("orders", 3)); again.ErrorCode != int16(api.TopicAlreadyExists) {
		t.Errorf("creating it again answers %d", again.ErrorCode)
	}
	epoch := int32(0)
	for _, clean := range []bool{true, false} {
		if clean {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := n.session.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		n.stop()
		n = startNode(t, fs, nil)
		p := n.follower.Image().Partition("orders", 2)
		if p == nil || p.Leader != 1 || p.LeaderEpoch <= epoch || len(p.ISR) != 1 {
			t.Fatalf("after a restart (clean: %v) partition 2 is %+v, want leader 1 and an epoch above %d", clean, p, epoch)
		}
		epoch = p.LeaderEpoch
	}
	if f := n.follower.Image().Feature(meta.MetadataVersionFeature); f != 33 {
		t.Errorf("metadata.version is %d, want the bootstrap's 33", f)
	}
}

func TestFollowFromASnapshot(t *testing.T) {
	fs := disk.NewMem(1)
	small := func(o *quorum.Options) { o.SnapshotBytes, o.SegmentBytes, o.KeepEntries = 2000, 2000, 1 }
	n := startNode(t, fs, small)
	for i := range 40 {
		if got := n.create(t, creatable(fmt.Sprintf("topic-%d", i), 2)); got.ErrorCode != 0 {
			t.Fatalf("topic %d: code %d", i, got.ErrorCode)
		}
	}
	deadline := time.Now().Add(2 * time.Second)
	for n.quorum.Status().LogStart == 0 && time.Now().Before(deadline) {
		n.create(t, creatable("x", 0)) // refused; passes time
	}
	if st := n.quorum.Status(); st.LogStart == 0 {
		t.Fatalf("no snapshot was made: %+v", st)
	}
	id := n.quorum.Status().Snapshot
	for position, want := range map[int64]api.Code{0: 0, -1: api.PositionOutOfRange, 1 << 40: api.PositionOutOfRange} {
		p := kmsg.NewFetchSnapshotRequestTopicPartition()
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch, p.Position = id.EndOffset, id.Epoch, position
		if got := n.ctl.snapshotPart(p, true, 100); api.Code(got.ErrorCode) != want {
			t.Errorf("position %d: code %d, want %d", position, got.ErrorCode, want)
		}
	}
	late := metafollow.New(metafollow.Options{NodeID: 2, ClusterID: testCluster, Controller: loop{n.ctl}, MaxBytes: 1000})
	var first *meta.Delta
	late.Subscribe(func(d *meta.Delta) {
		if first == nil {
			first = d
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- late.Run(ctx) }()
	want := n.follower.Image()
	if err := late.WaitOffset(ctx, want.Offset); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	if d := meta.Diff(want, late.Image()); late.Image().TopicCount() != 40 || len(d.Topics)+len(d.Brokers)+len(d.Features) > 0 {
		t.Errorf("a follower that began with a snapshot has %d topics and differs by %+v", late.Image().TopicCount(), d)
	}
	n.stop()
	n = startNode(t, fs, small)
	if got := n.follower.Image().TopicCount(); got != 40 {
		t.Errorf("after a restart there are %d topics, want 40", got)
	}
}

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	fs := disk.NewMem(1)
	next := int64(0)
	for range 2 {
		n := startNode(t, fs, nil)
		for range 3 {
			start, length, err := metafollow.AllocateProducerIDs(t.Context(), loop{n.ctl}, 1, n.session.Epoch())
			if err != nil || start != next || length != controller.ProducerIDBlock {
				t.Fatalf("got %d ids from %d, error %v; want %d from %d", length, start, err, controller.ProducerIDBlock, next)
			}
			next += int64(length)
		}
		if _, _, err := metafollow.AllocateProducerIDs(t.Context(), loop{n.ctl}, 1, n.session.Epoch()-1); !errors.Is(err, &api.Error{Code: api.StaleBrokerEpoch}) {
			t.Errorf("with an old broker epoch: %v", err)
		}
		n.stop()
	}
}

func newMem() *disk.Mem { return disk.NewMem(1) }

// A reader that has more than this controller knows of is ahead of it: the log lags, and isn't another one. Only a log that
// goes on with a later epoch has parted from the reader's.
func TestFetchAheadOfTheLog(t *testing.T) {
	n := startNode(t, newMem(), nil)
	status := n.quorum.Status()
	ask := func(offset int64, epoch int32) kmsg.FetchResponseTopicPartition {
		t.Helper()
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaState.ID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 7, 10, 1, 1<<20
		topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		topic.TopicID = ids.MetadataTopic
		part.FetchOffset, part.LastFetchedEpoch, part.PartitionMaxBytes = offset, epoch, 1<<20
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		r, err := loop{n.ctl}.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	}
	for _, epoch := range []int32{status.Epoch, status.Epoch + 3} {
		if p := ask(status.EndOffset+5, epoch); p.ErrorCode != 0 || p.DivergingEpoch.EndOffset != -1 || len(p.RecordBatches) > 0 {
			t.Errorf("five records ahead in epoch %d: %+v", epoch, p)
		}
	}
	if p := ask(status.EndOffset+5, status.Epoch-1); p.DivergingEpoch.EndOffset < 0 {
		t.Errorf("ahead in an epoch that is over: %+v", p)
	}
}
