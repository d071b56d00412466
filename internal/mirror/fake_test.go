package mirror_test

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/record"
	"milena/internal/server"
)

const fakeCluster = "a-fake-source-cluster"

// fake is a source of one broker with one partition, t-0, that answers what a test wants.
type fake struct {
	t    *testing.T
	node int32
	addr string

	mu      sync.Mutex
	leader  *fake // who leads the partition; nil: this broker
	epoch   int32 // the leader epoch
	told    int32 // the leader epoch that Metadata tells, if not 0
	start   int64
	batches []record.Batch
	// fetch, if not nil, changes or replaces the answer to a fetch of the partition; nil answers from the batches.
	fetch func(p *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition
	// session, if not 0, is the error of every fetch.
	session api.Code
	// garbage makes fetch answers end half way.
	garbage bool
	// hang makes Metadata wait until it is closed.
	hang    chan struct{}
	fetches int
}

func newFake(t *testing.T, node int32) *fake {
	t.Helper()
	return newFakeWith(t, node, api.Milena, nil)
}

// newFakeWith is newFake that serves more, mirror APIs by the numbers of points.
func newFakeWith(t *testing.T, node int32, points api.CodePoints, more server.Table) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, node: node, addr: ln.Addr().String(), epoch: 1}
	logs := &logBuffer{}
	table := server.Table{
		api.Metadata: f.metadata, api.Fetch: f.onFetch, api.OffsetForLeaderEpoch: f.epochEnd, api.ListOffsets: f.listOffsets, api.DescribeConfigs: f.configs,
		api.ListGroups: func(_ context.Context, r *server.Request) {
			r.Reply(server.Response{Msg: kmsg.NewPtrListGroupsResponse()})
		},
	}
	maps.Copy(table, more)
	table[api.ApiVersions] = func(_ context.Context, r *server.Request) {
		if r.UnsupportedVersion {
			r.Reply(server.VersionsFallback())
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		// franz-go takes a broker that lists no Produce for one that told no versions, and sends it what it doesn't serve.
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(api.Produce), MaxVersion: 3})
		for _, v := range table.APIs(points) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v.Key, v.Min, v.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		r.Reply(server.Response{Msg: resp})
	}
	srv, err := server.New(server.Options{Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}}, Table: func(string) server.Table { return table }, CodePoints: points,
		Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve()
	}()
	t.Cleanup(func() {
		f.set(func() {
			if f.hang != nil {
				close(f.hang)
				f.hang = nil
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = srv.Shutdown(ctx)
		<-done
		if t.Failed() {
			t.Logf("log of source broker %d:\n%s", node, logs.text())
		}
	})
	return f
}

// set changes what the fake answers.
func (f *fake) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetches
}

// add appends a batch of n records at the end.
func (f *fake) add(epoch int32, n int) {
	f.addBatch(record.BuilderOptions{LeaderEpoch: epoch}, n)
}

func (f *fake) addBatch(o record.BuilderOptions, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.BaseOffset = f.end()
	var rs []record.Record
	for i := range n {
		rs = append(rs, record.Record{Offset: o.BaseOffset + int64(i), Timestamp: 1_700_000_000_000, Value: []byte("v" + strconv.Itoa(i))})
	}
	b, err := record.Build(o, rs...)
	if err != nil {
		f.t.Error(err)
	}
	f.batches = append(f.batches, b)
}

// end needs mu.
func (f *fake) end() int64 {
	if len(f.batches) == 0 {
		return f.start
	}
	return f.batches[len(f.batches)-1].NextOffset()
}

// endOf is the last epoch up to the asked one with the offset behind it; needs mu.
func (f *fake) endOf(epoch int32) (int32, int64) {
	last, end := int32(-1), int64(-1)
	for _, b := range f.batches {
		if b.LeaderEpoch() > epoch {
			break
		}
		last, end = b.LeaderEpoch(), b.NextOffset()
	}
	return last, end
}

func fakeTopic() ids.UUID { return ids.UUID{0: 1, 5: 7} }

func (f *fake) metadata(_ context.Context, r *server.Request) {
	req, resp := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
	if err := r.Decode(req); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	hang, leader := f.hang, f.leader
	f.mu.Unlock()
	if leader == nil {
		leader = f
	}
	id := fakeCluster
	resp.ClusterID = &id
	for _, x := range []*fake{f, leader} {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID = x.node
		host, port, _ := net.SplitHostPort(x.addr)
		n, _ := strconv.Atoi(port)
		b.Host, b.Port = host, int32(n)
		resp.Brokers = append(resp.Brokers, b)
		if x == leader {
			break
		}
	}
	leader.mu.Lock()
	epoch := leader.epoch
	if leader.told != 0 {
		epoch = leader.told
	}
	leader.mu.Unlock()
	if req.Topics == nil || len(req.Topics) > 0 {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = kmsg.StringPtr("t"), fakeTopic()
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.LeaderEpoch = leader.node, epoch
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
	}
	if hang != nil && len(req.Topics) > 0 {
		go func() {
			<-hang
			r.Reply(server.Response{Msg: resp})
		}()
		return
	}
	r.Reply(server.Response{Msg: resp})
}

func (f *fake) configs(_ context.Context, r *server.Request) {
	req, resp := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewPtrDescribeConfigsResponse()
	if err := r.Decode(req); err != nil {
		f.t.Error(err)
	}
	for _, x := range req.Resources {
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName = x.ResourceType, x.ResourceName
		resp.Resources = append(resp.Resources, res)
	}
	r.Reply(server.Response{Msg: resp})
}

func (f *fake) epochEnd(_ context.Context, r *server.Request) {
	req, resp := kmsg.NewPtrOffsetForLeaderEpochRequest(), kmsg.NewPtrOffsetForLeaderEpochResponse()
	if err := r.Decode(req); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = x.Topic
		for _, y := range x.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition = y.Partition
			p.LeaderEpoch, p.EndOffset = f.endOf(y.LeaderEpoch)
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	r.Reply(server.Response{Msg: resp})
}

func (f *fake) listOffsets(_ context.Context, r *server.Request) {
	req, resp := kmsg.NewPtrListOffsetsRequest(), kmsg.NewPtrListOffsetsResponse()
	if err := r.Decode(req); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = x.Topic
		for _, y := range x.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.Offset = y.Partition, f.start
			if y.Timestamp == -1 {
				p.Offset = f.end()
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	r.Reply(server.Response{Msg: resp})
}

// onFetch answers without a fetch session, so that each answer tells of the partition.
func (f *fake) onFetch(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrFetchRequest()
	if err := r.Decode(req); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	f.fetches++
	resp, news := &fetchwire.Response{ErrorCode: f.session}, f.session != 0
	for i := range req.Topics {
		t := fetchwire.ResponseTopic{TopicID: req.Topics[i].TopicID}
		for j := range req.Topics[i].Partitions {
			p := f.answer(&req.Topics[i].Partitions[j])
			news = news || p.ErrorCode != 0 || p.DivergingEpoch != nil || len(p.Records) > 0
			t.Partitions = append(t.Partitions, p)
			if p.CurrentLeader != nil {
				at := f
				if f.leader != nil {
					at = f.leader
				}
				host, port, _ := net.SplitHostPort(at.addr)
				n, _ := strconv.Atoi(port)
				resp.Brokers = []fetchwire.NodeEndpoint{{NodeID: at.node, Host: host, Port: int32(n)}}
			}
		}
		resp.Topics = append(resp.Topics, t)
	}
	garbage := f.garbage
	f.mu.Unlock()
	pieces, err := resp.Pieces(r.Version)
	if err != nil {
		f.t.Error(err)
	}
	if garbage {
		pieces = []fetchwire.Piece{{Bytes: pieces[0].Bytes[:len(pieces[0].Bytes)/2]}}
	}
	reply := func() { r.Reply(server.Response{Pieces: pieces}) }
	if news {
		reply()
		return
	}
	time.AfterFunc(time.Duration(req.MaxWaitMillis)*time.Millisecond, reply)
}

// answer needs mu.
func (f *fake) answer(q *kmsg.FetchRequestTopicPartition) fetchwire.ResponsePartition {
	p := fetchwire.NewResponsePartition(q.Partition)
	if f.fetch != nil {
		if out := f.fetch(q); out != nil {
			return *out
		}
	}
	p.HighWatermark, p.LogStartOffset = f.end(), f.start
	last, end := f.endOf(q.LastFetchedEpoch)
	switch {
	case f.leader != nil:
		p.ErrorCode, p.CurrentLeader = api.NotLeaderOrFollower, &fetchwire.LeaderAndEpoch{LeaderID: f.leader.node, LeaderEpoch: f.leader.epoch}
	case q.CurrentLeaderEpoch >= 0 && q.CurrentLeaderEpoch < f.epoch && f.told == 0:
		p.ErrorCode = api.FencedLeaderEpoch
	case q.FetchOffset < f.start || q.FetchOffset > f.end():
		p.ErrorCode = api.OffsetOutOfRange
	case q.LastFetchedEpoch >= 0 && (last < q.LastFetchedEpoch || end < q.FetchOffset):
		p.DivergingEpoch = &fetchwire.EpochEndOffset{Epoch: last, EndOffset: end}
	default:
		for _, b := range f.batches {
			if b.LastOffset() >= q.FetchOffset {
				p.Records = append(p.Records, record.MemSpan(b))
			}
		}
	}
	return p
}

// mirrorOf makes a cluster that mirrors t from a fake.
func mirrorOf(t *testing.T, f *fake, more ...string) *cluster {
	t.Helper()
	dst := newCluster(t, "destination")
	dst.mirrorAt("m", f.addr, fakeCluster, more...)
	dst.begin("m", "t")
	return dst
}
