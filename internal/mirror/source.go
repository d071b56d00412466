package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/controller/mirrors"
	"milena/internal/ids"
	"milena/internal/mirrormsg"
)

// Source is a source cluster as its admin API shows it: who leads what, with which epoch, and what there is. One
// Source serves all partitions of a mirror on this broker. Its methods may be called from any goroutine.
type Source struct {
	conf *client.Config
	// clusterID is the cluster id that the source must have; nothing is taken from another.
	clusterID string
	// points are the numbers of mirror requests where the source doesn't offer Milena's own.
	points api.CodePoints
	cl     *kgo.Client // nil where Options.Links reach the source
	link   ClusterLink
	ctx    context.Context
	stop   context.CancelFunc
	work   crew

	mu         sync.Mutex             // guards the fields below; not held across a request
	flights    map[string]*flightCall // the same question, asked by many partitions at once
	leaders    map[string]map[int32]Leader
	gathering  *refreshCall // the topics that the next refresh asks for; nil if there are none
	refreshing bool
	strength   map[string]mirrors.Strength
	left       map[string][]string // configs that aren't carried, by topic
}

// tp is a topic partition by name.
type tp struct {
	topic     string
	partition int32
}

func (t tp) compare(o tp) int {
	return cmp.Or(strings.Compare(t.topic, o.topic), cmp.Compare(t.partition, o.partition))
}

func (t tp) String() string { return t.topic + "-" + strconv.Itoa(int(t.partition)) }

// Leader is a source partition's leader as the source's metadata says.
type Leader struct {
	Node int32
	Addr string // host:port
	// Epoch is the source leader epoch, -1 where the source is too old to say.
	Epoch int32
	// TopicID is the topic's id on the source, zero where the source has none (before 2.8).
	TopicID ids.UUID
}

// SourceTopic is a topic of the source.
type SourceTopic struct {
	Name       string
	ID         ids.UUID // zero where the source has no topic ids (before 2.8)
	Partitions int32
	// Err is what the source answered instead, such as a missing permission.
	Err error
}

// errSourceIdentity says that the address leads to another cluster than the mirror was made for.
var errSourceIdentity = errors.New("the source cluster is another one than the mirror was made for")

func checkClusterID(got *string, want string) error {
	switch {
	case got == nil:
		return errors.New("the source does not tell its cluster id")
	case *got != want:
		return fmt.Errorf("%w: its cluster id is %s, mirror.source.cluster.id is %s; set the mirror's bootstrap.servers to the cluster that it was made for, then milena mirrors recover", errSourceIdentity, *got, want)
	}
	return nil
}

// OpenSource returns a Source; nothing is dialled before the first request.
func OpenSource(s *Settings, dial client.Dialer, clientID string) (*Source, error) {
	return openSource(s, dial, nil, nil, clientID)
}

// openSource is OpenSource with links and tasks other than the network and goroutines, if they aren't nil.
func openSource(s *Settings, dial client.Dialer, links Links, tasks Tasks, clientID string) (*Source, error) {
	src := &Source{conf: s.Client, clusterID: s.SourceClusterID, points: s.SourcePoints, work: crew{tasks: tasks}, flights: map[string]*flightCall{},
		leaders: map[string]map[int32]Leader{}, strength: map[string]mirrors.Strength{}, left: map[string][]string{}}
	var err error
	if links != nil {
		src.link, err = links.Cluster(s, clientID)
	} else if src.cl, err = newClient(s, dial, clientID); err == nil {
		src.link = kafkaCluster{kadm.NewClient(src.cl), src.cl}
	}
	if err != nil {
		return nil, err
	}
	src.ctx, src.stop = context.WithCancel(context.Background())
	return src, nil
}

func newClient(s *Settings, dial client.Dialer, clientID string) (*kgo.Client, error) {
	opts := append(s.Client.KgoOpts(dial), kgo.ClientID(clientID), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryTimeout(s.Client.RequestTimeout), client.OwnSoftware())
	return kgo.NewClient(opts...)
}

// Close closes the connections to the source and waits for what is under way.
func (s *Source) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.link.Close()
	s.work.Wait()
}

// Verify asks the source who it is; errSourceIdentity is in the error if it is another cluster than the mirror's.
func (s *Source) Verify(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.link)
	if err != nil {
		return err
	}
	return checkClusterID(resp.ClusterID, s.clusterID)
}

// flightCall is a question under way.
type flightCall struct {
	done chan struct{}
	val  any
	err  error
}

// once runs fn, or waits for the one that runs under the same key already. fn's context outlives the caller's, for the others.
func (s *Source) once(ctx context.Context, key string, fn func(context.Context) (any, error)) (any, error) {
	s.mu.Lock()
	if err := s.ctx.Err(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	c := s.flights[key]
	if c == nil {
		c = &flightCall{done: make(chan struct{})}
		s.flights[key] = c
		s.work.Go(func() { // under the lock: not after Close began to wait
			ctx, cancel := context.WithTimeout(s.ctx, s.conf.RequestTimeout)
			defer cancel()
			c.val, c.err = fn(ctx)
			s.mu.Lock()
			delete(s.flights, key)
			s.mu.Unlock()
			close(c.done)
		})
	}
	s.mu.Unlock()
	if !s.await(ctx, c.done) {
		return nil, ctx.Err()
	}
	return c.val, c.err
}

// await waits until done is closed; false if ctx has ended before.
func (s *Source) await(ctx context.Context, done <-chan struct{}) bool {
	return orGoroutines(s.work.tasks).Wait(ctx, -1, done) == WokenSignal
}

// Leader is what the last refresh said of a partition.
func (s *Source) Leader(topic string, partition int32) (Leader, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leaders[topic][partition]
	return l, ok
}

// Learn takes over a leader that the source told outside of a refresh (in a fetch answer).
func (s *Source) Learn(topic string, partition int32, l Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.leaders[topic][partition]; !ok || l.Epoch >= old.Epoch {
		s.setLeader(topic, partition, l)
	}
}

// setLeader needs mu.
func (s *Source) setLeader(topic string, partition int32, l Leader) {
	if s.leaders[topic] == nil {
		s.leaders[topic] = map[int32]Leader{}
	}
	s.leaders[topic][partition] = l
}

// refreshCall is one refresh for all who asked while the one before was under way.
type refreshCall struct {
	topics map[string]bool
	done   chan struct{}
	found  map[string]*SourceTopic
	err    error
}

// Refresh asks the source for the leaders of the topics and returns what it knows of each; a topic it doesn't know is
// missing in the result. One request at a time is under way: those who ask meanwhile share the next, so that thousands of
// partitions that lose their source together ask twice.
func (s *Source) Refresh(ctx context.Context, topics []string) (map[string]*SourceTopic, error) {
	s.mu.Lock()
	if err := s.ctx.Err(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	c := s.gathering
	if c == nil {
		c = &refreshCall{topics: map[string]bool{}, done: make(chan struct{})}
		s.gathering = c
	}
	for _, t := range topics {
		c.topics[t] = true
	}
	if !s.refreshing {
		s.refreshing = true
		s.work.Go(s.refresh)
	}
	s.mu.Unlock()
	if !s.await(ctx, c.done) {
		return nil, ctx.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	found := make(map[string]*SourceTopic, len(topics))
	for _, t := range topics {
		if x := c.found[t]; x != nil {
			found[t] = x
		}
	}
	return found, nil
}

// refresh does the refreshes that are asked for, one after the other.
func (s *Source) refresh() {
	for {
		s.mu.Lock()
		c := s.gathering
		s.gathering = nil
		if c == nil {
			s.refreshing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, s.conf.RequestTimeout)
		c.found, c.err = s.metadata(ctx, slices.Sorted(maps.Keys(c.topics)))
		cancel()
		close(c.done)
	}
}

// refreshBatch is how many topics one metadata request asks for.
const refreshBatch = 1000

func (s *Source) metadata(ctx context.Context, topics []string) (map[string]*SourceTopic, error) {
	found := map[string]*SourceTopic{}
	for chunk := range slices.Chunk(topics, refreshBatch) {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = false
		for _, t := range chunk {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(t)
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(ctx, s.link)
		if err != nil {
			return nil, err
		}
		if err := checkClusterID(resp.ClusterID, s.clusterID); err != nil {
			return nil, err
		}
		s.take(resp, chunk, found)
	}
	return found, nil
}

// take stores the leaders of a metadata answer for the topics that were asked for.
func (s *Source) take(resp *kmsg.MetadataResponse, asked []string, found map[string]*SourceTopic) {
	addrs := make(map[int32]string, len(resp.Brokers))
	for _, b := range resp.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range asked {
		delete(s.leaders, t)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		name := *t.Topic
		err := kerr.ErrorForCode(t.ErrorCode)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		found[name] = &SourceTopic{Name: name, ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions))}
		if err != nil && len(t.Partitions) == 0 {
			found[name].Err = fmt.Errorf("topic %s on the source: %w", name, err)
		}
		factor := 0
		for _, p := range t.Partitions {
			if factor == 0 || len(p.Replicas) < factor {
				factor = len(p.Replicas)
			}
			x := s.strength[name]
			x.ReplicationFactor = strconv.Itoa(factor)
			s.strength[name] = x
			if addr, ok := addrs[p.Leader]; ok {
				s.setLeader(name, p.Partition, Leader{Node: p.Leader, Addr: addr, Epoch: p.LeaderEpoch, TopicID: ids.UUID(t.TopicID)})
			}
		}
	}
}

// List returns all topics of the source that are not internal.
func (s *Source) List(ctx context.Context) ([]SourceTopic, error) {
	req := kmsg.NewPtrMetadataRequest() // null topics: all
	resp, err := req.RequestWith(ctx, s.link)
	if err != nil {
		return nil, err
	}
	if err := checkClusterID(resp.ClusterID, s.clusterID); err != nil {
		return nil, err
	}
	var out []SourceTopic
	for _, t := range resp.Topics {
		if t.Topic == nil || t.IsInternal || t.ErrorCode != 0 {
			continue
		}
		out = append(out, SourceTopic{Name: *t.Topic, ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions))})
	}
	slices.SortFunc(out, func(a, b SourceTopic) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// TopicConfigs returns the configs set on each topic itself, by topic. Topics that the source answers with an error are
// missing, and in the error, which leaves the others valid.
func (s *Source) TopicConfigs(ctx context.Context, topics []string) (map[string]map[string]string, error) {
	out := make(map[string]map[string]string, len(topics))
	var errs []error
	for chunk := range slices.Chunk(topics, refreshBatch) {
		rs, err := s.link.DescribeTopicConfigs(ctx, chunk...)
		if err != nil { // of some of the source's brokers, at least
			errs = append(errs, err)
		}
		for _, r := range rs {
			if r.Err != nil {
				errs = append(errs, fmt.Errorf("configs of topic %s on the source: %w", r.Name, r.Err))
				continue
			}
			m := map[string]string{}
			s.strengthen(r.Name, func(x *mirrors.Strength) { x.MinISR, x.Unclean = "", "" })
			for _, c := range r.Configs {
				switch c.Key {
				case minISRKey:
					s.strengthen(r.Name, func(x *mirrors.Strength) { x.MinISR = c.MaybeValue() })
				case uncleanKey:
					s.strengthen(r.Name, func(x *mirrors.Strength) { x.Unclean = c.MaybeValue() })
				}
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil {
					m[c.Key] = *c.Value
				}
			}
			s.leave(r.Name, m)
			out[r.Name] = m
		}
	}
	return out, errors.Join(errs...)
}

// leave notes which of a topic's configs aren't carried.
func (s *Source) leave(topic string, set map[string]string) {
	var left []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if !mirrors.Carried(k) && k != "milena.write.fence" {
			left = append(left, k)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[topic] = left
}

// GroupOffset is a committed offset of a group of the source.
type GroupOffset struct {
	Topic     string
	Partition int32
	Offset    int64
	Epoch     int32
	Metadata  string
}

// Groups lists the groups of the source that commit offsets, by name.
func (s *Source) Groups(ctx context.Context) ([]string, error) {
	gs, err := s.link.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, g := range gs.Sorted() {
		if g.ProtocolType == "" || g.ProtocolType == "consumer" {
			out = append(out, g.Group)
		}
	}
	return out, nil
}

// GroupOffsets returns the committed offsets of the groups, by group. Groups that the source answers with an error are
// missing, and in the error, which leaves the others valid.
func (s *Source) GroupOffsets(ctx context.Context, groups []string) (map[string][]GroupOffset, error) {
	out := map[string][]GroupOffset{}
	var errs []error
	for chunk := range slices.Chunk(groups, refreshBatch) {
		for g, r := range s.link.FetchManyOffsets(ctx, chunk...) {
			err := r.Err
			offsets := []GroupOffset{}
			for _, o := range r.Fetched.Sorted() {
				if o.Err != nil {
					err = fmt.Errorf("%s-%d: %w", o.Topic, o.Partition, o.Err)
				} else if o.At >= 0 {
					offsets = append(offsets, GroupOffset{o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata})
				}
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("offsets of group %s on the source: %w", g, err))
				continue
			}
			out[g] = offsets
		}
	}
	return out, errors.Join(errs...)
}

// offered is what a source says of an API.
type offered struct {
	served bool
	max    int16
}

func (s *Source) apis(ctx context.Context) (map[int16]offered, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, s.link)
	if err != nil {
		return nil, err
	}
	out := make(map[int16]offered, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		out[k.ApiKey] = offered{true, k.MaxVersion}
	}
	return out, nil
}

// mirrorNumbers says by which numbers the source mirrors, and whether it does at all (spec D11): Milena's own where it has them, the
// prototype's if the mirror is told so. What may be mirroring by numbers that don't match is an error, never "no mirroring" (spec D3).
func (s *Source) mirrorNumbers(ctx context.Context) (points api.CodePoints, mirrors bool, err error) {
	served, err := s.apis(ctx)
	if err != nil {
		return api.Milena, false, err
	}
	has := func(p api.CodePoints) bool {
		for _, k := range []api.Key{api.StartMirrorTopics, api.StopMirrorTopics, api.ListClusterMirrors, api.DescribeClusterMirrors} {
			if x := served[p.WireKey(k)]; !x.served || p == api.Prototype && x.max > 0 {
				return false
			}
		}
		return true
	}
	switch {
	case has(api.Milena):
		return api.Milena, true, nil
	case !has(api.Prototype):
		return api.Milena, false, nil
	case s.points == api.Prototype:
		return api.Prototype, true, nil
	}
	return api.Milena, false, errors.New("the source seems to mirror by the numbers of KIP-1279's prototype: set mirror.source.code.points=prototype to ask it")
}

// numbered is a mirror request by the prototype's number.
type numbered struct {
	kmsg.Request
	key int16
}

func (r numbered) Key() int16 { return r.key }

func (s *Source) ask(ctx context.Context, points api.CodePoints, req kmsg.Request) (kmsg.Response, error) {
	return s.link.Request(ctx, numbered{req, points.WireKey(api.Key(req.Key()))})
}

// mirrorsHere are the mirrors of the source whose own source is a cluster, and the numbers to ask for more.
type mirrorsHere struct {
	points  api.CodePoints
	mirrors []mirrormsg.ListedMirror
}

// mirrorsFrom returns the mirrors of the source whose own source is the cluster with that id, with the topics active in
// them. A source without mirroring has none.
func (s *Source) mirrorsFrom(ctx context.Context, clusterID string) (mirrorsHere, error) {
	out, err := s.once(ctx, "mirrors from "+clusterID, func(ctx context.Context) (any, error) { return s.listMirrors(ctx, clusterID) })
	if err != nil {
		return mirrorsHere{}, err
	}
	return out.(mirrorsHere), nil
}

func (s *Source) listMirrors(ctx context.Context, clusterID string) (mirrorsHere, error) {
	if err := s.Verify(ctx); err != nil {
		return mirrorsHere{}, err
	}
	points, ok, err := s.mirrorNumbers(ctx)
	if err != nil || !ok {
		return mirrorsHere{}, err
	}
	resp, err := s.ask(ctx, points, &mirrormsg.ListClusterMirrorsRequest{SourceClusterIDFilter: []string{clusterID}})
	if err != nil {
		return mirrorsHere{}, err
	}
	r := resp.(*mirrormsg.ListClusterMirrorsResponse)
	if r.ErrorCode != 0 {
		return mirrorsHere{}, api.Errorf(points.Code(r.ErrorCode), "listing the mirrors of the source: %s", text(r.ErrorMessage))
	}
	return mirrorsHere{points, r.Mirrors}, nil
}

// lastMirrorEpoch asks the source's mirrors for the last mirror epoch of a partition they hold from this cluster: the
// highest among them. found is false if none was ever captured. A mirror that has not stopped the partition is an error. The partitions
// of a topic that ask at the same time share one request.
func (s *Source) lastMirrorEpoch(ctx context.Context, from mirrorsHere, t tp, own string) (last int32, offset int64, found bool, err error) {
	out, err := s.once(ctx, "last mirror epochs of "+t.topic, func(ctx context.Context) (any, error) { return s.describeStops(ctx, from, t.topic, own) })
	if err != nil {
		return -1, -1, false, err
	}
	last, offset = -1, -1
	for _, m := range out.([]mirrormsg.DescribedMirror) {
		if m.ErrorCode != 0 {
			return -1, -1, false, api.Errorf(from.points.Code(m.ErrorCode), "mirror %s: %s", m.MirrorName, text(m.ErrorMessage))
		}
		for _, mt := range m.Topics {
			for _, mp := range mt.Partitions {
				if mt.TopicName != t.topic || mp.PartitionIndex != t.partition {
					continue
				}
				if mp.StateValue != mirrormsg.Stopped.String() {
					return -1, -1, false, fmt.Errorf("mirror %s there has %s in state %s: stop it first", m.MirrorName, t, mp.StateValue)
				}
				if mp.LastMirrorEpoch < 0 && mp.LastMirrorOffset < 0 {
					continue // the stop captured nothing
				}
				if !found || laterStop(mp.LastMirrorEpoch, mp.LastMirrorOffset, last, offset) {
					last, offset, found = mp.LastMirrorEpoch, mp.LastMirrorOffset, true
				}
			}
		}
	}
	return last, offset, found, nil
}

// describeStops asks the source's mirrors for what their stops of a topic have stored.
func (s *Source) describeStops(ctx context.Context, from mirrorsHere, topic, own string) ([]mirrormsg.DescribedMirror, error) {
	names := make([]string, len(from.mirrors))
	for i, m := range from.mirrors {
		names[i] = m.MirrorName
	}
	resp, err := s.ask(ctx, from.points, &mirrormsg.DescribeClusterMirrorsRequest{
		MirrorNames: names, IncludeMirrorState: true, ClusterID: &own, TimeoutMs: int32(s.conf.RequestTimeout.Milliseconds()),
		TopicPartitions: []mirrormsg.DescribeMirrorTopicFilter{{TopicName: topic}},
	})
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.DescribeClusterMirrorsResponse)
	if r.ErrorCode != 0 {
		return nil, api.Errorf(from.points.Code(r.ErrorCode), "%s", text(r.ErrorMessage))
	}
	return r.Mirrors, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
