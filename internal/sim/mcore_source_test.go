package sim

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/fetchwire"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
	"milena/internal/peer"
	"milena/internal/record"
	"milena/internal/replica"
)

// The line to the source: what franz-go and package peer are to a node.

// Cluster implements mirror.Links.
func (m *mirrorHost) Cluster(*mirror.Settings, string) (mirror.ClusterLink, error) {
	return clusterLink{m, m.c.mirroring.other(m.c)}, nil
}

// clusterLink reaches the source's brokers, one after the other until one answers.
type clusterLink struct {
	m   *mirrorHost
	src *cores
}

func (clusterLink) Close() {}

// patience is how long a request to the source is tried, as franz-go does by its own.
const patience = 2 * time.Second

// anyBroker asks brokers of the source until one answers.
func anyBroker[T any](ctx context.Context, k clusterLink, serve func(b *broker, reply func(T, error))) (T, error) {
	for began := time.Now(); ; {
		to := pick(k.m.c.loop, k.src.hosts)
		v, err := await(k.m.tasks, ctx, func(done func(T, error)) {
			call(k.m.c.mirroring.line, k.m.h, to, rpcTimeout/2, func(reply func(T, error)) {
				if to.brk.img.Offset < 0 {
					reply(*new(T), errNet) // it doesn't serve yet
					return
				}
				serve(to.brk, reply)
			}, done)
		})
		if err == nil || ctx.Err() != nil || time.Since(began) > patience {
			return v, err
		}
		if k.m.Wait(ctx, 100*time.Millisecond, nil) == mirror.WokenEnd {
			return v, ctx.Err()
		}
	}
}

// Request implements mirror.ClusterLink.
func (k clusterLink) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return anyBroker(ctx, k, func(b *broker, reply func(kmsg.Response, error)) { b.serveClient(req, reply) })
}

// DescribeTopicConfigs implements mirror.ClusterLink.
func (k clusterLink) DescribeTopicConfigs(ctx context.Context, topics ...string) (kadm.ResourceConfigs, error) {
	return anyBroker(ctx, k, func(b *broker, reply func(kadm.ResourceConfigs, error)) { reply(b.topicConfigs(topics), nil) })
}

// ListGroups implements mirror.ClusterLink.
func (k clusterLink) ListGroups(ctx context.Context, _ ...string) (kadm.ListedGroups, error) {
	return anyBroker(ctx, k, func(_ *broker, reply func(kadm.ListedGroups, error)) {
		reply(kadm.ListedGroups{mirrorGroup: {Group: mirrorGroup, ProtocolType: "consumer"}}, nil)
	})
}

// FetchManyOffsets implements mirror.ClusterLink.
func (k clusterLink) FetchManyOffsets(ctx context.Context, groups ...string) kadm.FetchOffsetsResponses {
	out := kadm.FetchOffsetsResponses{}
	for _, g := range groups {
		os, err := fetchOffsets(k.m.tasks, ctx, k.m.c.mirroring.line, k.src, g)
		out[g] = kadm.FetchOffsetsResponse{Group: g, Fetched: os, Err: err}
	}
	return out
}

// Broker implements mirror.Links.
func (m *mirrorHost) Broker(ctx context.Context, _ *mirror.Settings, addr string) (mirror.BrokerLink, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	k := &brokerLink{m: m, to: m.c.mirroring.other(m.c).hosts[n-9000]}
	_, err = k.Call(ctx, kmsg.NewPtrApiVersionsRequest())
	return k, err
}

// brokerLink is a connection to a broker of the source, until its process ends.
type brokerLink struct {
	m   *mirrorHost
	to  *host
	gen int // of the process; 0: not connected yet
}

func (k *brokerLink) Close() error { return nil }

func (k *brokerLink) MaxVersion(_, _, high int16) (int16, error) { return high, nil }

// overLine sends a request over a connection.
func overLine[T any](k *brokerLink, serve func(b *broker, reply func(T, error)), done func(T, error)) {
	call(k.m.c.mirroring.line, k.m.h, k.to, rpcTimeout, func(reply func(T, error)) {
		switch {
		case k.to.brk.img.Offset < 0, k.gen != 0 && k.gen != k.to.gen:
			reply(*new(T), errNet)
		default:
			k.gen = k.to.gen
			serve(k.to.brk, reply)
		}
	}, done)
}

func (k *brokerLink) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return await(k.m.tasks, ctx, func(done func(kmsg.Response, error)) {
		overLine(k, func(b *broker, reply func(kmsg.Response, error)) { b.serveClient(req, reply) }, done)
	})
}

// fetchAnswer implements mirror.Answer.
type fetchAnswer struct {
	m    *mirrorHost
	sent time.Time
	came chan struct{}
	took time.Duration
	body []byte
	err  error
}

func (k *brokerLink) Fetch(_ context.Context, version int16, req *fetchwire.Request) (mirror.Answer, error) {
	a := &fetchAnswer{m: k.m, sent: time.Now(), came: make(chan struct{})}
	sent := *req
	sent.Topics = slices.Clone(req.Topics)
	overLine(k, func(b *broker, reply func([]byte, error)) { b.serveConsumer(&sent, version, time.Now(), reply) }, func(body []byte, err error) {
		a.body, a.err, a.took = body, err, time.Since(a.sent)
		close(a.came)
	})
	return a, nil
}

func (a *fetchAnswer) WaitPooled(ctx context.Context) (peer.Pooled, error) {
	if a.m.Wait(ctx, -1, a.came) == mirror.WokenEnd {
		return peer.Pooled{}, ctx.Err()
	}
	return peer.Pooled{Body: a.body, Latency: a.took}, a.err
}

func (a *fetchAnswer) Abandon() {}

// serveClient answers requests of another cluster.
func (b *broker) serveClient(req kmsg.Request, reply func(kmsg.Response, error)) {
	switch api.Key(req.Key()) {
	case api.ApiVersions:
		resp := kmsg.NewPtrApiVersionsResponse()
		for _, k := range []api.Key{api.StartMirrorTopics, api.StopMirrorTopics, api.ListClusterMirrors, api.DescribeClusterMirrors} {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: api.Milena.WireKey(k)})
		}
		reply(resp, nil)
	case api.Metadata:
		reply(b.metadata(req.(*kmsg.MetadataRequest)), nil)
	case api.OffsetForLeaderEpoch:
		reply(b.epochEnds(req.(*kmsg.OffsetForLeaderEpochRequest)), nil)
	case api.ListOffsets:
		reply(b.listOffsets(req.(*kmsg.ListOffsetsRequest)), nil)
	case api.ListClusterMirrors:
		x := &mirrormsg.ListClusterMirrorsRequest{}
		reply(b.listMirrors(x, x.ReadFrom(req.AppendTo(nil))))
	case api.DescribeClusterMirrors:
		x := &mirrormsg.DescribeClusterMirrorsRequest{}
		if err := x.ReadFrom(req.AppendTo(nil)); err != nil {
			reply(nil, err)
			return
		}
		b.mirrors.Go(func() { reply(b.mirrors.describeStops(x), nil) })
	default:
		reply(nil, fmt.Errorf("sim: no broker answers %T to clients", req))
	}
}

func (b *broker) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ClusterID = &b.c.clusterID
	for x := range b.img.Brokers() {
		if !x.Fenced {
			mb := kmsg.NewMetadataResponseBroker()
			mb.NodeID, mb.Host, mb.Port = x.ID, "sim", 9000+x.ID
			resp.Brokers = append(resp.Brokers, mb)
		}
	}
	var topics []*meta.Topic
	for t := range b.img.Topics() {
		if req.Topics == nil || slices.ContainsFunc(req.Topics, func(x kmsg.MetadataRequestTopic) bool { return *x.Topic == t.Name }) {
			topics = append(topics, t)
		}
	}
	for _, t := range topics {
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID, mt.IsInternal = &t.Name, t.ID, t.Name == group.Topic || t.Name == mirrorstate.Topic
		for i, p := range t.Partitions {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch, mp.Replicas, mp.ISR = int32(i), p.Leader, p.LeaderEpoch, p.Replicas, p.ISR
			mt.Partitions = append(mt.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

// topicConfigs are the configs of topics, as far as mirrors ask.
func (b *broker) topicConfigs(topics []string) (out kadm.ResourceConfigs) {
	for _, name := range topics {
		own := b.img.Config(meta.ResourceTopic, name)
		r := kadm.ResourceConfig{Name: name}
		for k, v := range own {
			r.Configs = append(r.Configs, kadm.Config{Key: k, Value: &v, Source: kmsg.ConfigSourceDynamicTopicConfig})
		}
		slices.SortFunc(r.Configs, func(x, y kadm.Config) int { return cmp.Compare(x.Key, y.Key) })
		if own[minISRKey] == "" {
			n := strconv.Itoa(b.c.minISR())
			r.Configs = append(r.Configs, kadm.Config{Key: minISRKey, Value: &n, Source: kmsg.ConfigSourceStaticBrokerConfig})
		}
		out = append(out, r)
	}
	return out
}

func (b *broker) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			x, err := b.mgr.Get(t.Topic, p.Partition)
			if err == nil {
				rp.LeaderEpoch, rp.EndOffset, err = x.EpochEnd(p.CurrentLeaderEpoch, p.LeaderEpoch)
			}
			rp.ErrorCode, _ = codeOf(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// offsetAt finds an offset of a partition led here.
func (b *broker) offsetAt(tp topicPartition, current int32, at int64, iso replica.Isolation) (offsetAt, error) {
	p, err := b.replica(tp)
	if err != nil {
		return offsetAt{-1, -1}, err
	}
	o, err := p.FindOffset(current, at, iso)
	return offsetAt{o.Offset, o.Epoch}, err
}

func (b *broker) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			o, err := b.offsetAt(topicPartition{topic: t.Topic, partition: p.Partition}, p.CurrentLeaderEpoch, p.Timestamp, replica.ReadUncommitted)
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, o.offset, o.epoch
			rp.ErrorCode, _ = codeOf(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// listMirrors is what ListClusterMirrors answers.
func (b *broker) listMirrors(req *mirrormsg.ListClusterMirrorsRequest, err error) (kmsg.Response, error) {
	resp := &mirrormsg.ListClusterMirrorsResponse{}
	for name, own := range b.img.Configs(meta.ResourceClusterMirror) {
		if !slices.Contains(req.SourceClusterIDFilter, own[sourceIDKey]) {
			continue
		}
		x := mirrormsg.ListedMirror{MirrorName: name, SourceClusterID: own[sourceIDKey], TopicNames: []string{}}
		for t := range b.img.Topics() {
			if s := mirrormsg.State(t.MirrorDesired); t.MirrorName == name && (s == mirrormsg.Mirroring || s == mirrormsg.Paused) {
				x.TopicNames = append(x.TopicNames, t.Name)
			}
		}
		resp.Mirrors = append(resp.Mirrors, x)
	}
	return resp, err
}

const sourceIDKey = "mirror.source.cluster.id"

// describeStops is what DescribeClusterMirrors answers a cluster that wants to mirror back.
func (m *mirrorHost) describeStops(req *mirrormsg.DescribeClusterMirrorsRequest) *mirrormsg.DescribeClusterMirrorsResponse {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	resp := &mirrormsg.DescribeClusterMirrorsResponse{}
	for _, name := range req.MirrorNames {
		x := mirrormsg.NewDescribedMirror()
		x.MirrorName = name
		for _, f := range req.TopicPartitions {
			t := m.b.img.TopicByName(f.TopicName)
			if t == nil || t.MirrorName != name {
				continue
			}
			var keys []mirrorstate.Key
			for i := range t.Partitions {
				keys = append(keys, mirrorstate.Key{Mirror: name, TopicID: t.ID, Partition: int32(i)})
			}
			dt := mirrormsg.DescribedMirrorTopic{TopicName: t.Name}
			for i, st := range m.cluster.ReadAll(ctx, name, keys) {
				if st.Err != nil {
					x.ErrorCode, x.ErrorMessage = codeOf(st.Err)
				}
				p := mirrormsg.NewDescribedMirrorPartition()
				p.PartitionIndex, p.StateValue, p.LastMirrorEpoch, p.LastMirrorOffset = int32(i), st.State.String(), st.LastMirrorEpoch, st.LastMirrorOffset
				dt.Partitions = append(dt.Partitions, p)
			}
			x.Topics = append(x.Topics, dt)
		}
		if x.ErrorCode != 0 {
			x.Topics = nil
		}
		resp.Mirrors = append(resp.Mirrors, x)
	}
	return resp
}

// serveConsumer answers a consumer's fetch once there is data, or after a while.
func (b *broker) serveConsumer(req *fetchwire.Request, version int16, since time.Time, reply func([]byte, error)) {
	resp, data := b.readForConsumer(req)
	if !data && time.Since(since) < time.Duration(req.MaxWaitMillis)*time.Millisecond {
		b.after(15*time.Millisecond, func() { b.serveConsumer(req, version, since, reply) })
		return
	}
	pieces, err := resp.Pieces(version)
	var body []byte
	for _, p := range pieces {
		if p.Bytes != nil {
			body = append(body, p.Bytes...)
			continue
		}
		raw, bad := p.Span.Bytes()
		err = cmp.Or(err, bad)
		body = append(body, raw...)
	}
	reply(body, err)
}

func (b *broker) readForConsumer(req *fetchwire.Request) (resp *fetchwire.Response, data bool) {
	resp = &fetchwire.Response{}
	for _, t := range req.Topics {
		rt := fetchwire.ResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for i := range t.Partitions {
			f := &t.Partitions[i]
			out := fetchwire.NewResponsePartition(f.Partition)
			p, err := b.mgr.GetByID(t.TopicID, f.Partition)
			var r replica.ReadResult
			if err == nil {
				r, err = p.Read(replica.ReadParams{
					Offset: f.FetchOffset, MaxBytes: int(f.MaxBytes), MinOne: true, ReplicaID: -1, CurrentEpoch: f.CurrentLeaderEpoch, LastFetched: f.LastFetchedEpoch,
				})
			}
			if err != nil {
				out.ErrorCode, _ = api.CodeOf(err)
				b.nameLeader(resp, &out, &t, err)
				data = true
			} else {
				out.HighWatermark, out.LogStartOffset = r.HighWatermark, r.LogStart
				if r.Diverges() {
					out.DivergingEpoch = &fetchwire.EpochEndOffset{Epoch: r.DivergingEpoch, EndOffset: r.DivergingEnd}
				}
				if raw := spanBytes(b.c, r.Spans); len(raw) > 0 {
					out.Records = []record.Span{record.MemSpan(raw)}
				}
				r.Release()
				data = data || len(out.Records) > 0 || out.DivergingEpoch != nil
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, data
}

// nameLeader adds who leads a partition that this broker doesn't (KIP-951).
func (b *broker) nameLeader(resp *fetchwire.Response, out *fetchwire.ResponsePartition, t *fetchwire.RequestTopic, err error) {
	mt := b.img.TopicByID(t.TopicID)
	if mt == nil || !isCode(err, api.NotLeaderOrFollower) && !isCode(err, api.FencedLeaderEpoch) {
		return
	}
	p := mt.Partitions[out.Partition]
	out.CurrentLeader = &fetchwire.LeaderAndEpoch{LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch}
	if p.Leader >= 0 && !slices.ContainsFunc(resp.Brokers, func(n fetchwire.NodeEndpoint) bool { return n.NodeID == p.Leader }) {
		resp.Brokers = append(resp.Brokers, fetchwire.NodeEndpoint{NodeID: p.Leader, Host: "sim", Port: 9000 + p.Leader})
	}
}
