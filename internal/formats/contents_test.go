package formats

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/mirrormsg"
	"milena/internal/node"
	"milena/internal/peertest"
)

// settle bounds how long a test waits for what happens in the background.
const settle = time.Minute

// contents is what a data directory holds, read through a node.
type contents struct {
	ClusterID string            `json:"cluster_id"`
	Topics    map[string]*topic `json:"topics"`
	// Offsets are committed offsets by group and topic-partition.
	Offsets map[string]map[string]string `json:"offsets"`
	// Mirrors are the mirrors with each topic's last mirror epoch and offset.
	Mirrors map[string]*mirror `json:"mirrors"`
	Broker  map[string]string  `json:"broker_configs"`
}

type topic struct {
	ID         string            `json:"id"`
	Configs    map[string]string `json:"configs"`
	Partitions []*partition      `json:"partitions"`
}

type partition struct {
	Start   int64    `json:"start"`
	End     int64    `json:"end"`
	Records []string `json:"records"`
}

type mirror struct {
	Source string `json:"source"`
	// Topics are the topics that are to be mirrored; Stopped are those that were, with their last mirror epoch and offset.
	Topics  []string          `json:"topics"`
	Stopped map[string]string `json:"stopped"`
}

// settings of a node that leaves what it finds as it is.
func settings(dir string, more map[string]string) map[string]string {
	m := map[string]string{
		"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0", "milena.http.listen": "off", "log.cleaner.enable": "false",
		"offsets.retention.minutes": "2147483647", "offsets.topic.num.partitions": "1", "mirror.state.topic.num.partitions": "1",
		"group.initial.rebalance.delay.ms": "0", "mirror.metadata.refresh.interval.ms": "1000",
	}
	maps.Copy(m, more)
	return m
}

// rig is a running node with clients.
type rig struct {
	n   *node.Node
	cl  *kgo.Client
	adm *kadm.Client
}

func start(t *testing.T, fsys disk.FS, props map[string]string) *rig {
	t.Helper()
	r, err := tryStart(t, fsys, props, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryStart(t *testing.T, fsys disk.FS, props map[string]string, log *slog.Logger) (*rig, error) {
	t.Helper()
	conf, _, err := config.Load(props, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	o := node.Options{Config: conf, FS: fsys, Version: "test", Logger: log}
	if props["mirrors"] == "cut off" {
		o.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("this test has no network")
		}
	}
	n, err := node.Start(t.Context(), o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(n.Kill)
	cl := client(t, n)
	return &rig{n, cl, kadm.NewClient(cl)}, nil
}

func client(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.Addr()), kgo.MaxVersions(nil), kgo.MetadataMinAge(10 * time.Millisecond), kgo.ProducerLinger(0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// read reads everything that clients can read.
func (r *rig) read(t *testing.T) *contents {
	t.Helper()
	ctx := t.Context()
	c := &contents{ClusterID: r.n.ClusterID(), Topics: map[string]*topic{}, Offsets: map[string]map[string]string{}, Mirrors: map[string]*mirror{}}
	topics, err := r.adm.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range topics.Sorted() {
		x := &topic{ID: base64.RawURLEncoding.EncodeToString(d.ID[:]), Configs: r.configs(t, d.Topic)}
		c.Topics[d.Topic] = x
		for _, p := range d.Partitions.Sorted() {
			x.Partitions = append(x.Partitions, r.records(t, d.Topic, p.Partition))
		}
	}
	groups, err := r.adm.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups() {
		offsets, err := r.adm.FetchOffsets(ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		c.Offsets[g] = map[string]string{}
		offsets.Each(func(o kadm.OffsetResponse) {
			c.Offsets[g][fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = fmt.Sprintf("offset %d epoch %d metadata %q", o.At, o.LeaderEpoch, o.Metadata)
		})
	}
	brokers, err := r.adm.DescribeBrokerConfigs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Broker = overridden(t, brokers)
	r.mirrors(t, c)
	return c
}

func overridden(t *testing.T, rs kadm.ResourceConfigs) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, rc := range rs {
		if rc.Err != nil {
			t.Fatal(rc.Err)
		}
		for _, k := range rc.Configs {
			switch k.Source {
			case kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig:
				out[k.Key] = k.MaybeValue()
			}
		}
	}
	return out
}

func (r *rig) configs(t *testing.T, topic string) map[string]string {
	t.Helper()
	rs, err := r.adm.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return overridden(t, rs)
}

// records reads a partition, control records included. Internal topics are left out by the listing: what is in them shows in
// what their coordinators know.
func (r *rig) records(t *testing.T, topic string, index int32) *partition {
	t.Helper()
	ctx := t.Context()
	offset := func(f func(context.Context, ...string) (kadm.ListedOffsets, error)) int64 {
		l, err := f(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := l.Lookup(topic, index)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o.Offset
	}
	p := &partition{Start: offset(r.adm.ListStartOffsets), End: offset(r.adm.ListEndOffsets)}
	if p.Start == p.End {
		return p
	}
	cl := client(t, r.n, kgo.KeepControlRecords(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {index: kgo.NewOffset().At(p.Start)}}))
	for next := p.Start; next < p.End; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(rec *kgo.Record) {
			p.Records = append(p.Records, line(rec))
			next = rec.Offset + 1
		})
	}
	return p
}

func line(r *kgo.Record) string {
	text := func(b []byte) string {
		switch {
		case b == nil:
			return "null"
		case len(b) > 40:
			return fmt.Sprintf("%d bytes with CRC %08x", len(b), crc32.ChecksumIEEE(b))
		}
		return fmt.Sprintf("%q", b)
	}
	codec := []string{"none", "gzip", "snappy", "lz4", "zstd"}[r.Attrs.CompressionType()]
	s := fmt.Sprintf("%d epoch %d time %d %s key %s value %s", r.Offset, r.LeaderEpoch, r.Timestamp.UnixMilli(), codec, text(r.Key), text(r.Value))
	for _, h := range r.Headers {
		s += fmt.Sprintf(" header %q=%s", h.Key, text(h.Value))
	}
	if r.Attrs.IsControl() {
		s += " control"
	}
	if r.ProducerID >= 0 {
		s += fmt.Sprintf(" producer %d/%d", r.ProducerID, r.ProducerEpoch)
	}
	return s
}

func (r *rig) mirrors(t *testing.T, c *contents) {
	t.Helper()
	resp, err := r.cl.Request(t.Context(), &mirrormsg.ListClusterMirrorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range resp.(*mirrormsg.ListClusterMirrorsResponse).Mirrors {
		m := &mirror{Source: l.SourceClusterID, Topics: l.TopicNames, Stopped: map[string]string{}}
		c.Mirrors[l.MirrorName] = m
		req := &mirrormsg.DescribeClusterMirrorsRequest{MirrorNames: []string{l.MirrorName}, IncludeMirrorState: true, ClusterID: &l.SourceClusterID, TimeoutMs: 10_000}
		for _, d := range r.describe(t, req) {
			if d.ErrorCode != 0 {
				t.Fatalf("mirror %s: error %d, %s", d.MirrorName, d.ErrorCode, *d.ErrorMessage)
			}
			for _, dt := range d.Topics {
				if slices.Contains(m.Topics, dt.TopicName) {
					continue
				}
				for _, p := range dt.Partitions {
					m.Stopped[fmt.Sprintf("%s-%d", dt.TopicName, p.PartitionIndex)] = fmt.Sprintf("%s last mirror epoch %d offset %d", p.StateValue, p.LastMirrorEpoch, p.LastMirrorOffset)
				}
			}
		}
	}
}

// describe asks again while the answer of a mirror is a retriable error: right after a start its coordinator may still be loading, and
// an unknown last mirror epoch is told as that, never as none.
func (r *rig) describe(t *testing.T, req *mirrormsg.DescribeClusterMirrorsRequest) []mirrormsg.DescribedMirror {
	t.Helper()
	var mirrors []mirrormsg.DescribedMirror
	peertest.Eventually(t, settle, func() error {
		resp, err := r.cl.Request(t.Context(), req)
		if err != nil {
			return err
		}
		mirrors = resp.(*mirrormsg.DescribeClusterMirrorsResponse).Mirrors
		for _, d := range mirrors {
			if err := kerr.ErrorForCode(d.ErrorCode); kerr.IsRetriable(err) {
				return err
			}
		}
		return nil
	})
	return mirrors
}
