package mirror

import (
	"context"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/handle/data"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
	"milena/internal/server"
)

const virtualCluster = "virtual-source-cluster"

// virtual runs a test in virtual time, which all that is below needs.
func virtual(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// broker has the replicas of one broker, on a disk in memory.
type broker struct {
	t     testing.TB
	fs    *disk.Mem
	dirs  *logdir.Set
	m     *replica.Manager
	topic *meta.Topic
	stop  context.CancelFunc
}

// newBroker leads all partitions of topic t with a leader epoch.
func newBroker(t testing.TB, partitions int, epoch int32, tune func(*replica.Settings)) *broker {
	t.Helper()
	b := &broker{t: t, fs: disk.NewMem(1)}
	id, log := ids.UUID{1, 15: 1}, slog.New(slog.DiscardHandler)
	err := logdir.Format(logdir.FormatOptions{FS: b.fs, Dirs: []string{"/data"}, NodeID: 1, ClusterID: virtualCluster, NewID: func() (ids.UUID, error) { return ids.UUID{7, 15: 1}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if b.dirs, err = logdir.Open(logdir.Options{FS: b.fs, Dirs: []string{"/data"}, NodeID: 1, Logger: log, FlushCheckpointInterval: time.Second, SpaceInterval: time.Second}); err != nil {
		t.Fatal(err)
	}
	b.m, err = replica.New(replica.Options{NodeID: 1, Dirs: b.dirs, Logger: log, CheckpointInterval: time.Second, Settings: func(*meta.Image, string) replica.Settings {
		s := replica.Settings{Log: partlog.DefaultConfig(), MinISR: 1}
		if tune != nil {
			tune(&s)
		}
		return s
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetThrottles(math.MaxInt64, math.MaxInt64, math.MaxInt64)
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.dirs.Start(ctx)
	b.m.Start(ctx)
	draft := meta.Empty(virtualCluster).Draft()
	recs := []meta.Record{&meta.TopicRecord{TopicName: "t", TopicID: id}}
	for i := range partitions {
		recs = append(recs, &meta.PartitionRecord{PartitionID: int32(i), TopicID: id, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, LeaderEpoch: epoch, Directories: make([]ids.UUID, 1)})
	}
	for i, rec := range recs {
		if err := draft.Apply(int64(i), 1, rec); err != nil {
			t.Fatal(err)
		}
	}
	d := draft.Delta()
	b.topic = d.Next.TopicByName("t")
	b.m.Apply(d)
	return b
}

func (b *broker) close() {
	b.stop()
	if err := b.m.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.dirs.Close(context.Background(), false, -1); err != nil {
		b.t.Error(err)
	}
}

func (b *broker) part(i int32) *replica.Partition {
	b.t.Helper()
	p, err := b.m.Get("t", i)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// fill appends n batches of about size bytes.
func (b *broker) fill(partition int32, n, size int) {
	b.t.Helper()
	batch, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: 1, Value: make([]byte, size)})
	if err != nil {
		b.t.Fatal(err)
	}
	for range n {
		if _, err := b.part(partition).Append(slices.Clone(batch), replica.AppendOptions{Epoch: replica.AnyEpoch, Origin: partlog.OriginClient}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// link is a line with a delay each way and a bandwidth in bytes a second (0: unlimited).
type link struct {
	delay     time.Duration
	bandwidth float64
	bytes     atomic.Int64 // delivered to the dialling side
}

// carry moves bytes one way until either end closes.
func (l *link) carry(from, to net.Conn, count *atomic.Int64) {
	type chunk struct {
		at time.Time
		b  []byte
	}
	chunks := make(chan chunk, 1<<14)
	var wg sync.WaitGroup
	wg.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.at))
			if _, err := to.Write(c.b); err != nil {
				_ = from.Close()
			}
			if count != nil {
				count.Add(int64(len(c.b)))
			}
		}
		_ = to.Close()
	})
	for free := time.Now(); ; {
		buf := make([]byte, 64<<10)
		n, err := from.Read(buf)
		if n > 0 {
			now := time.Now()
			if free.Before(now) {
				free = now
			}
			if l.bandwidth > 0 {
				free = free.Add(time.Duration(float64(n) / l.bandwidth * float64(time.Second)))
			}
			chunks <- chunk{free.Add(l.delay), buf[:n]}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	wg.Wait()
}

// source serves a broker's data over a link.
type source struct {
	*broker
	link    link
	srv     *server.Server
	dial    func(context.Context) (net.Conn, error)
	wg      sync.WaitGroup
	fetches atomic.Int64
	// onFetch sees each Fetch request; false: it is never answered.
	onFetch func(*kmsg.FetchRequest) bool
}

func newSource(t *testing.T, partitions int, l *link) *source {
	t.Helper()
	s := &source{broker: newBroker(t, partitions, 0, nil), link: link{delay: l.delay, bandwidth: l.bandwidth}}
	h := data.New(data.Options{Replicas: s.m, Dirs: s.dirs, Image: s.m.Image, Logger: slog.New(slog.DiscardHandler)})
	table := server.Table{}
	h.Register(table)
	fetch := table[api.Fetch]
	table[api.Fetch] = func(ctx context.Context, r *server.Request) {
		s.fetches.Add(1)
		if s.onFetch != nil {
			req := kmsg.NewPtrFetchRequest()
			if err := r.Decode(req); err != nil {
				t.Error(err)
			}
			if !s.onFetch(req) {
				return
			}
		}
		fetch(ctx, r)
	}
	table[api.Metadata] = func(_ context.Context, r *server.Request) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = r.Version
		resp.ClusterID = kmsg.StringPtr(virtualCluster)
		r.Reply(server.Response{Msg: resp})
	}
	table[api.ApiVersions] = func(_ context.Context, r *server.Request) {
		if r.UnsupportedVersion {
			r.Reply(server.VersionsFallback())
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = r.Version
		for _, v := range table.APIs(api.Milena) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v.Key, v.Min, v.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		r.Reply(server.Response{Msg: resp})
	}
	ln, dial := server.NewMemListener()
	s.dial = dial
	var err error
	s.srv, err = server.New(server.Options{Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}},
		Table: func(string) server.Table { return table }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.wg.Go(func() { _ = s.srv.Serve() })
	return s
}

func (s *source) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.srv.Shutdown(ctx) // what is open ends with it
	s.wg.Wait()
	s.broker.close()
}

// connect dials the source over the link.
func (s *source) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	far, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	ln, dial := server.NewMemListener()
	defer func() { _ = ln.Close() }() // ends Accept where the dial was given up
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	near, err := dial(ctx)
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	mid := <-accepted
	s.wg.Go(func() { s.link.carry(mid, far, nil) })
	s.wg.Go(func() { s.link.carry(far, mid, &s.link.bytes) })
	return near, nil
}

// destination mirrors a source: the fetchers and replicas are real, what leads to MIRRORING and away from it is left out.
type destination struct {
	*broker
	mgr   *Manager
	mi    *mirror
	parts []*Partition
	reg   *prometheus.Registry
	count atomic.Int32 // mirror.num.replica.fetchers
}

// newDestination mirrors the source; o is changed by tune, configs are the mirror's as key, value, ...
func newDestination(t *testing.T, s *source, tune func(*Options, *replica.Settings), configs ...string) *destination {
	t.Helper()
	o := Options{NodeID: 1, ClusterID: "virtual-destination", FetchMemory: 256 << 20, Logger: slog.New(slog.DiscardHandler), LogDirs: []string{"/data"}, Dial: s.connect}
	d := &destination{reg: prometheus.NewRegistry()}
	d.count.Store(1)
	o.Fetchers = func() int { return int(d.count.Load()) }
	if tune == nil {
		tune = func(*Options, *replica.Settings) {}
	}
	d.broker = newBroker(t, len(s.topic.Partitions), 10, func(set *replica.Settings) { tune(&o, set) })
	o.Replicas, o.FS, o.Registerer = d.m, d.fs, d.reg
	var err error
	if d.mgr, err = New(o); err != nil {
		t.Fatal(err)
	}
	own := map[string]string{"bootstrap.servers": "source:9092", "mirror.source.cluster.id": virtualCluster}
	for i := 0; i < len(configs); i += 2 {
		own[configs[i]] = configs[i+1]
	}
	set, err := ParseSettings(own)
	if err != nil {
		t.Fatal(err)
	}
	nobody, cancel := context.WithCancel(context.Background())
	cancel()
	d.mi = &mirror{mgr: d.mgr, name: "m", log: o.Logger, own: own, wake: make(chan struct{}, 1), fetchers: map[fetcherKey]*fetcher{},
		source: &Source{ctx: nobody, leaders: map[string]map[int32]Leader{}}}
	d.mi.ctx, d.mi.stop = context.WithCancel(d.mgr.ctx)
	d.mi.settings.Store(set)
	d.mgr.mirrors["m"] = d.mi
	for i := range s.topic.Partitions {
		p := newPartition(d.mgr, "m", d.topic, int32(i), d.part(int32(i)), nil)
		p.running = true // nobody drives it
		d.parts = append(d.parts, p)
		d.fetch(p)
	}
	return d
}

// follow does what the partitions' drivers do when a target has to go to another fetcher.
func (d *destination) follow() {
	for _, p := range d.parts {
		t := p.target.Load()
		if t == nil {
			continue // it ended
		}
		if gone, o := t.ended(); gone && o != nil && o.kind == outcomeMoved {
			d.fetch(p)
		}
	}
}

// fetch hands a partition to its fetcher.
func (d *destination) fetch(p *Partition) *target {
	t := &target{p: p, rep: p.rep, key: p.tp, topicID: d.topic.ID, sle: 0}
	p.target.Store(t)
	d.mi.fetch("source:9092", t)
	return t
}

func (d *destination) close() {
	d.mgr.stop()
	d.mi.stop()
	d.mi.work.Wait()
	for _, p := range d.parts {
		p.end()
	}
	if held := d.mgr.held.Load(); held != 0 {
		d.t.Errorf("%d bytes of fetch memory are not given back", held)
	}
	d.broker.close()
}

// until waits in virtual time until ok, at most for the time, and says how long it took.
func until(t testing.TB, most time.Duration, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > most {
			t.Fatalf("not after %s", most)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

// level waits until a partition has all of the source's, and says how long it took.
func (d *destination) level(s *source, partition int32, most time.Duration) time.Duration {
	d.t.Helper()
	return until(d.t, most, func() bool { return d.part(partition).LogEndOffset() == s.part(partition).LogEndOffset() })
}

// gauge reads a metric without labels.
func (d *destination) gauge(name string) float64 {
	d.t.Helper()
	fs, err := d.reg.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range fs {
		if f.GetName() == name && len(f.Metric) == 1 {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	d.t.Fatalf("there is no %s", name)
	return 0
}
