package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/ids"
	"milena/internal/mirrormsg"
)

// Source is a source cluster as its admin API shows it: who leads what, with which epoch, and what there is. One
// Source serves all partitions of a mirror on this broker. Its methods may be called from any goroutine.
type Source struct {
	conf *client.Config
	cl   *kgo.Client
	adm  *kadm.Client

	mu      sync.Mutex // guards the fields below; not held across a request
	leaders map[tp]Leader
	flight  *refreshCall
}

// tp is a topic partition by name.
type tp struct {
	topic     string
	partition int32
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
}

// OpenSource returns a Source; nothing is dialled before the first request.
func OpenSource(s *Settings, dial client.Dialer, clientID string) (*Source, error) {
	opts := append(s.Client.KgoOpts(dial), kgo.ClientID(clientID), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryTimeout(s.Client.RequestTimeout))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	return &Source{conf: s.Client, cl: cl, adm: kadm.NewClient(cl), leaders: map[tp]Leader{}}, nil
}

// Close closes the connections to the source.
func (s *Source) Close() { s.cl.Close() }

// ClusterID asks the source who it is.
func (s *Source) ClusterID(ctx context.Context) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return "", err
	}
	if resp.ClusterID == nil {
		return "", errors.New("the source does not tell its cluster id")
	}
	return *resp.ClusterID, nil
}

// Leader is what the last refresh said of a partition.
func (s *Source) Leader(topic string, partition int32) (Leader, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leaders[tp{topic, partition}]
	return l, ok
}

// Learn takes over a leader that the source told outside of a refresh (in a fetch answer).
func (s *Source) Learn(topic string, partition int32, l Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.leaders[tp{topic, partition}]; !ok || l.Epoch >= old.Epoch {
		s.leaders[tp{topic, partition}] = l
	}
}

// refreshCall is one refresh under way; those who ask meanwhile for the same topics share it.
type refreshCall struct {
	topics []string
	done   chan struct{}
	found  map[string]*SourceTopic
	err    error
}

// Refresh asks the source for the leaders of the topics and returns what it knows of each; a topic it doesn't know is
// missing in the result.
func (s *Source) Refresh(ctx context.Context, topics []string) (map[string]*SourceTopic, error) {
	slices.Sort(topics)
	topics = slices.Compact(topics)
	s.mu.Lock()
	c := s.flight
	if c == nil || !slices.Equal(c.topics, topics) {
		c = &refreshCall{topics: topics, done: make(chan struct{})}
		s.flight = c
		s.mu.Unlock()
		c.found, c.err = s.metadata(ctx, topics)
		s.mu.Lock()
		if s.flight == c {
			s.flight = nil
		}
		s.mu.Unlock()
		close(c.done)
		return c.found, c.err
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.found, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
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
		resp, err := req.RequestWith(ctx, s.cl)
		if err != nil {
			return nil, err
		}
		if err := s.take(resp, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// take stores the leaders of a metadata answer.
func (s *Source) take(resp *kmsg.MetadataResponse, found map[string]*SourceTopic) error {
	addrs := make(map[int32]string, len(resp.Brokers))
	for _, b := range resp.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case err != nil && len(t.Partitions) == 0:
			return fmt.Errorf("topic %s on the source: %w", *t.Topic, err)
		}
		found[*t.Topic] = &SourceTopic{Name: *t.Topic, ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions))}
		for _, p := range t.Partitions {
			k := tp{*t.Topic, p.Partition}
			if addr, ok := addrs[p.Leader]; ok {
				s.leaders[k] = Leader{Node: p.Leader, Addr: addr, Epoch: p.LeaderEpoch, TopicID: ids.UUID(t.TopicID)}
			} else {
				delete(s.leaders, k)
			}
		}
	}
	return nil
}

// List returns all topics of the source that are not internal.
func (s *Source) List(ctx context.Context) ([]SourceTopic, error) {
	req := kmsg.NewPtrMetadataRequest() // null topics: all
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return nil, err
	}
	var out []SourceTopic
	for _, t := range resp.Topics {
		if t.Topic == nil || t.IsInternal || t.ErrorCode != 0 {
			continue
		}
		out = append(out, SourceTopic{Name: *t.Topic, ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions))})
	}
	slices.SortFunc(out, func(a, b SourceTopic) int { return compareStrings(a.Name, b.Name) })
	return out, nil
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TopicConfigs returns the configs set on each topic itself, by topic.
func (s *Source) TopicConfigs(ctx context.Context, topics []string) (map[string]map[string]string, error) {
	out := make(map[string]map[string]string, len(topics))
	for chunk := range slices.Chunk(topics, refreshBatch) {
		rs, err := s.adm.DescribeTopicConfigs(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r.Err != nil {
				return nil, fmt.Errorf("configs of topic %s on the source: %w", r.Name, r.Err)
			}
			m := map[string]string{}
			for _, c := range r.Configs {
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil {
					m[c.Key] = *c.Value
				}
			}
			out[r.Name] = m
		}
	}
	return out, nil
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
	gs, err := s.adm.ListGroups(ctx)
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

// GroupOffsets returns the committed offsets of the groups, by group.
func (s *Source) GroupOffsets(ctx context.Context, groups []string) (map[string][]GroupOffset, error) {
	out := map[string][]GroupOffset{}
	for chunk := range slices.Chunk(groups, refreshBatch) {
		for g, r := range s.adm.FetchManyOffsets(ctx, chunk...) {
			if r.Err != nil {
				return nil, fmt.Errorf("offsets of group %s on the source: %w", g, r.Err)
			}
			for _, o := range r.Fetched.Sorted() {
				if o.Err != nil {
					return nil, fmt.Errorf("offset of group %s for %s-%d on the source: %w", g, o.Topic, o.Partition, o.Err)
				}
				if o.At >= 0 {
					out[g] = append(out[g], GroupOffset{o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata})
				}
			}
		}
	}
	return out, nil
}

// Serves reports whether the source offers an API, by its number.
func (s *Source) Serves(ctx context.Context, key api.Key) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, s.cl)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(key) }), nil
}

// MirrorsFrom returns the mirrors of the source whose own source is the cluster with that id, with the topics active in
// them. A source without mirroring has none.
func (s *Source) MirrorsFrom(ctx context.Context, clusterID string) ([]mirrormsg.ListedMirror, error) {
	ok, err := s.Serves(ctx, api.ListClusterMirrors)
	if err != nil || !ok {
		return nil, err
	}
	resp, err := s.cl.Request(ctx, &mirrormsg.ListClusterMirrorsRequest{SourceClusterIDFilter: []string{clusterID}})
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.ListClusterMirrorsResponse)
	if r.ErrorCode != 0 {
		return nil, api.Errorf(api.Code(r.ErrorCode), "listing the mirrors of the source: %s", text(r.ErrorMessage))
	}
	return r.Mirrors, nil
}

// lastMirrorEpoch asks the source's mirrors for the last mirror epoch of a partition they hold from this cluster: the
// highest among them. found is false if none was ever captured. A mirror that has not stopped the partition is an error.
func (s *Source) lastMirrorEpoch(ctx context.Context, mirrors []string, t tp, own string) (last int32, found bool, err error) {
	resp, err := s.cl.Request(ctx, &mirrormsg.DescribeClusterMirrorsRequest{
		MirrorNames: mirrors, IncludeMirrorState: true, ClusterID: &own, TimeoutMs: int32(s.conf.RequestTimeout.Milliseconds()),
		TopicPartitions: []mirrormsg.DescribeMirrorTopicFilter{{TopicName: t.topic, Partitions: []int32{t.partition}}},
	})
	if err != nil {
		return -1, false, err
	}
	r := resp.(*mirrormsg.DescribeClusterMirrorsResponse)
	if r.ErrorCode != 0 {
		return -1, false, api.Errorf(api.Code(r.ErrorCode), "%s", text(r.ErrorMessage))
	}
	last = -1
	for _, m := range r.Mirrors {
		if m.ErrorCode != 0 {
			return -1, false, api.Errorf(api.Code(m.ErrorCode), "mirror %s: %s", m.MirrorName, text(m.ErrorMessage))
		}
		for _, mt := range m.Topics {
			for _, mp := range mt.Partitions {
				if mt.TopicName != t.topic || mp.PartitionIndex != t.partition {
					continue
				}
				if mp.StateValue != mirrormsg.Stopped.String() {
					return -1, false, fmt.Errorf("mirror %s there has %s in state %s: stop it first", m.MirrorName, t, mp.StateValue)
				}
				last, found = max(last, mp.LastMirrorEpoch), true
			}
		}
	}
	return last, found, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
