package follow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/handle/data"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/peer"
	"milena/internal/record"
	"milena/internal/replica"
	"milena/internal/replica/follow"
	"milena/internal/server"
)

const clusterID = "cluster-of-the-tests00"

// cluster is several brokers in one process, on disks in memory, with a
// controller that answers at once and whose log is never lost.
type cluster struct {
	t     testing.TB
	log   *slog.Logger
	seed  uint64
	tune  func(id int32, s *replica.Settings)
	racks map[int32]string
	dirs  []string
	lag   time.Duration
	rate  int64 // of throttled replication with which nodes start, 0: none

	mu    sync.Mutex
	ctl   *controller.State
	off   int64
	draft *meta.Draft
	img   atomic.Pointer[meta.Image]
	nodes map[int32]*node
	// refuse, if set, answers AlterPartition instead of the controller.
	refuse func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
}

type noRules struct{}

func (noRules) Validate(int8, string, string, string) error       { return nil }
func (noRules) ValidateAll(int8, string, map[string]string) error { return nil }
func (noRules) Canonical(_ int8, key string) string               { return key }
func (noRules) List(int8, string) (string, bool)                  { return "", false }
func (*cluster) After(string, time.Duration, machine.Command)     {}
func (*cluster) Cancel(string)                                    {}

func newCluster(t testing.TB, minISR int, edit func(*cluster)) *cluster {
	t.Helper()
	c := &cluster{t: t, log: slog.New(slog.DiscardHandler), nodes: map[int32]*node{}, dirs: []string{"/data"}, lag: 2 * time.Second}
	if os.Getenv("FOLLOW_LOG") != "" {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if edit != nil {
		edit(c)
	}
	c.ctl = controller.New(controller.Options{
		ClusterID: clusterID, Random: rand.NewChaCha8([32]byte{1}), Configs: noRules{}, MinISR: minISR, DeleteTopics: true,
		Defaults:  func(*meta.Image) (int32, int16) { return 1, 3 },
		Bootstrap: controller.Bootstrap(),
	})
	c.ctl.Bind(c)
	c.draft = meta.Empty(clusterID).Draft()
	c.img.Store(c.draft.Image())
	tune := c.tune
	c.tune = func(id int32, s *replica.Settings) {
		s.MinISR = minISR
		if tune != nil {
			tune(id, s)
		}
	}
	if _, err := c.do(func(s *controller.State) machine.Result { return s.Activate(time.Now()) }); err != nil {
		t.Fatal(err)
	}
	return c
}

// do runs a command of the controller; its records are committed when it returns.
func (c *cluster) do(cmd func(*controller.State) machine.Result) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := cmd(c.ctl)
	if r.Err != nil {
		return nil, r.Err
	}
	for _, rec := range r.Records {
		c.ctl.Apply(c.off, rec)
		m, err := meta.Decode(rec.Value)
		if err == nil {
			err = c.draft.Apply(c.off, 1, m)
		}
		if err != nil {
			c.t.Errorf("metadata record: %v", err)
		}
		c.off++
		if m != nil {
			c.log.Debug("metadata", "record", m.Name(), "value", m)
		}
	}
	c.img.Store(c.draft.Image())
	for _, n := range c.nodes {
		n.poke()
	}
	return r.Reply, nil
}

// Call answers what brokers ask the controller for.
func (c *cluster) Call(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.AlterPartitionRequest:
		c.mu.Lock()
		refuse := c.refuse
		c.mu.Unlock()
		if refuse != nil {
			return refuse(req)
		}
		return c.alterPartition(req), nil
	case *kmsg.AssignReplicasToDirsRequest:
		var as []controller.DirAssignment
		for _, d := range req.Directories {
			for _, t := range d.Topics {
				for _, p := range t.Partitions {
					as = append(as, controller.DirAssignment{Dir: d.ID, Topic: t.TopicID, Partition: p.Partition})
				}
			}
		}
		_, err := c.do(func(s *controller.State) machine.Result {
			return s.AssignDirs(time.Now(), req.BrokerID, req.BrokerEpoch, as)
		})
		code, _ := api.CodeOf(err)
		return &kmsg.AssignReplicasToDirsResponse{ErrorCode: int16(code)}, nil
	}
	return nil, fmt.Errorf("no answer to %T", req)
}

func (c *cluster) alterPartition(req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	var changes []controller.AlterISR
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ch := controller.AlterISR{Topic: t.TopicID, Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovery: p.LeaderRecoveryState}
			for _, m := range p.NewEpochISR {
				ch.ISR = append(ch.ISR, controller.ISRMember{Broker: m.BrokerID, Epoch: m.BrokerEpoch})
			}
			changes = append(changes, ch)
		}
	}
	reply, err := c.do(func(s *controller.State) machine.Result {
		return s.AlterPartition(time.Now(), req.BrokerID, req.BrokerEpoch, changes)
	})
	resp := &kmsg.AlterPartitionResponse{}
	if err != nil {
		code, _ := api.CodeOf(err)
		resp.ErrorCode = int16(code)
		return resp
	}
	for i, r := range reply.([]controller.AlterISRResult) {
		p := kmsg.AlterPartitionResponseTopicPartition{Partition: changes[i].Partition, LeaderID: r.Leader, LeaderEpoch: r.LeaderEpoch, ISR: r.ISR, PartitionEpoch: r.PartitionEpoch}
		if r.Err != nil {
			p.ErrorCode = int16(r.Err.Code)
		}
		resp.Topics = append(resp.Topics, kmsg.AlterPartitionResponseTopic{TopidID: changes[i].Topic, Partitions: []kmsg.AlterPartitionResponseTopicPartition{p}})
	}
	return resp
}

// node is one broker, up or down.
type node struct {
	c  *cluster
	id int32
	fs *disk.Mem

	up    bool
	epoch atomic.Int64
	clean int64 // broker epoch of the last clean stop, -1
	n     byte  // incarnations
	dirs  *logdir.Set
	m     *replica.Manager
	f     *follow.Fetchers
	srv   *server.Server
	table server.Table
	dial  func(context.Context) (net.Conn, error)
	stop  context.CancelFunc
	wg    sync.WaitGroup
	wake  chan struct{}
	// cut, if set, lets no connection to or from the node through.
	cut atomic.Bool
	// late delays metadata.
	late atomic.Int64
	// moveRate, if set, limits moves between directories from the start on.
	moveRate int64
}

func (c *cluster) add(ids ...int32) {
	for _, id := range ids {
		n := &node{c: c, id: id, fs: disk.NewMem(c.seed*16 + uint64(id)), clean: -1, wake: make(chan struct{}, 1)}
		c.mu.Lock()
		c.nodes[id] = n
		c.mu.Unlock()
		n.start()
	}
}

func (n *node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *node) settings(img *meta.Image, topic string) replica.Settings {
	s := replica.Settings{Log: partlog.DefaultConfig()}
	if v, ok := img.Config(meta.ResourceTopic, topic)["flush.messages"]; ok && v == "1" {
		s.Log.FlushMessages = 1
	}
	n.c.tune(n.id, &s)
	return s
}

func (n *node) start() {
	t, c := n.c.t, n.c
	t.Helper()
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	seq := byte(0)
	err := logdir.Format(logdir.FormatOptions{
		FS: n.fs, Dirs: c.dirs, NodeID: n.id, ClusterID: clusterID, IgnoreFormatted: true,
		NewID: func() (ids.UUID, error) { seq++; return ids.UUID{7, byte(n.id), 15: seq}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.dirs, err = logdir.Open(logdir.Options{
		FS: n.fs, Dirs: c.dirs, NodeID: n.id, Logger: c.log, ReserveBytes: 0,
		FlushCheckpointInterval: time.Second, SpaceInterval: time.Second,
		OnOffline: func(dir string, _ ids.UUID, err error) { n.m.DirectoryOffline(dir, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.m, err = replica.New(replica.Options{
		NodeID: n.id, Dirs: n.dirs, Settings: n.settings, Logger: c.log.With("node", n.id), Controller: c, BrokerEpoch: n.epoch.Load,
		LagTimeMax: c.lag, CheckpointInterval: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.rate > 0 {
		n.m.SetThrottles(c.rate, c.rate, math.MaxInt64)
	}
	if n.moveRate > 0 {
		n.m.SetMoveRate(n.moveRate)
	}
	h := data.New(data.Options{Replicas: n.m, Dirs: n.dirs, Image: n.m.Image, Logger: c.log, RackAware: true})
	n.table = server.Table{}
	h.Register(n.table)
	ln, dial := server.NewMemListener()
	n.c.mu.Lock()
	n.dial = dial
	n.c.mu.Unlock()
	n.table[api.ApiVersions] = versions
	n.srv, err = server.New(server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return n.table }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.wg.Go(func() { _ = n.srv.Serve() })
	n.f, err = follow.New(follow.Options{
		NodeID: n.id, Replicas: n.m, BrokerEpoch: n.epoch.Load, Dial: n.connect, Logger: c.log.With("node", n.id),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.dirs.Start(ctx)
	n.m.Start(ctx)
	n.f.Start(ctx)
	n.n++
	reg := controller.Registration{
		BrokerID: n.id, ClusterID: clusterID, Incarnation: ids.UUID{9, byte(n.id), 15: n.n}, PreviousEpoch: n.clean,
		Endpoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: fmt.Sprintf("node-%d", n.id), Port: 9092}}, Features: controller.Features(),
	}
	for _, d := range n.dirs.Dirs() {
		reg.LogDirs = append(reg.LogDirs, d.ID)
	}
	if r, ok := c.racks[n.id]; ok {
		reg.Rack = &r
	}
	n.clean = -1
	n.epoch.Store(-1)
	n.up = true
	n.wg.Go(func() { n.run(ctx, reg) })
}

// versions answers ApiVersions with what the tests' connections need.
func versions(_ context.Context, r *server.Request) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = r.Version
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
		{ApiKey: 0, MinVersion: 3, MaxVersion: 13}, {ApiKey: 1, MinVersion: 4, MaxVersion: 18}, {ApiKey: 2, MinVersion: 1, MaxVersion: 10},
		{ApiKey: 18, MaxVersion: 4}, {ApiKey: 21, MaxVersion: 2}, {ApiKey: 23, MinVersion: 2, MaxVersion: 4}, {ApiKey: 34, MinVersion: 1, MaxVersion: 2}, {ApiKey: 35, MinVersion: 1, MaxVersion: 4},
	}
	r.Reply(server.Response{Msg: resp})
}

// run registers, follows the metadata, and has the controller unfence the
// broker once it has caught up.
func (n *node) run(ctx context.Context, reg controller.Registration) {
	applied := meta.Empty(clusterID)
	registered := false
	for ctx.Err() == nil {
		if !registered {
			reply, err := n.c.do(func(s *controller.State) machine.Result { return s.RegisterBroker(time.Now(), reg) })
			if err == nil {
				n.epoch.Store(reply.(int64))
				registered = true
			}
		}
		if d := n.late.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		if img := n.c.img.Load(); registered && img != applied && !n.cut.Load() {
			n.m.Apply(meta.Diff(applied, img))
			applied = img
			if b := img.Broker(n.id); b != nil && b.Fenced && b.Epoch == n.epoch.Load() {
				_, _ = n.heartbeat(false)
			}
		}
		select {
		case <-ctx.Done():
		case <-n.wake:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (n *node) heartbeat(fence bool) (any, error) {
	return n.c.do(func(s *controller.State) machine.Result {
		return s.Heartbeat(time.Now(), controller.Heartbeat{BrokerID: n.id, BrokerEpoch: n.epoch.Load(), MetadataOffset: n.c.off, WantFence: fence})
	})
}

func (n *node) connect(ctx context.Context, broker int32, clientID string) (*peer.Conn, error) {
	n.c.mu.Lock()
	to := n.c.nodes[broker]
	var dial func(context.Context) (net.Conn, error)
	if to != nil {
		dial = to.dial
	}
	n.c.mu.Unlock()
	if to == nil || n.cut.Load() || to.cut.Load() {
		return nil, errors.New("no route")
	}
	return peer.Dial(ctx, peer.Options{
		Addr: fmt.Sprintf("node-%d:9092", broker), ClientID: clientID, RequestTimeout: 5 * time.Second,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return &link{Conn: conn, a: n, b: to}, nil
		},
	})
}

// link is a connection that breaks while one of its ends is cut off.
type link struct {
	net.Conn
	a, b *node
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.a.cut.Load() || l.b.cut.Load() {
		_ = l.Close()
		return 0, io.ErrClosedPipe
	}
	return n, err
}

func (l *link) Write(p []byte) (int, error) {
	if l.a.cut.Load() || l.b.cut.Load() {
		_ = l.Close()
		return 0, io.ErrClosedPipe
	}
	return l.Conn.Write(p)
}

// halt ends the process. With crash it loses what wasn't flushed.
func (n *node) halt(crash bool) {
	if !n.up {
		return
	}
	n.up = false
	ctx, cancel := context.WithCancel(context.Background())
	if crash {
		n.fs.CrashTorn()
		cancel()
	}
	defer cancel()
	n.stop()
	n.f.Close()
	if !crash {
		_, _ = n.heartbeat(true)
		_ = n.m.Close()
	}
	stopped, stop := context.WithCancel(context.Background())
	stop() // connections are closed at once
	_ = n.srv.Shutdown(stopped)
	if crash {
		_ = n.m.Close() // it writes to a disk that is gone
	}
	if err := n.dirs.Close(ctx, !crash, n.epoch.Load()); err == nil && !crash {
		n.clean = n.epoch.Load()
	}
	n.wg.Wait()
}

// fenced is the controller noticing that the broker is gone.
func (n *node) fenced() { _, _ = n.heartbeat(true) }

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.halt(false)
	}
}

// bubble runs fn with a cluster of three brokers, in virtual time.
func bubble(t *testing.T, minISR int, edit func(*cluster), fn func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, minISR, edit)
		defer c.close()
		c.add(1, 2, 3)
		c.waitAlive(1, 2, 3)
		fn(c)
	})
}

func topicID(n byte) ids.UUID { return ids.UUID{1, 15: n} }

// topic creates topic t<n> with one partition on the brokers.
func (c *cluster) topic(n byte, configs map[string]*string, brokers ...int32) string {
	c.t.Helper()
	name := fmt.Sprintf("t%d", n)
	reply, err := c.do(func(s *controller.State) machine.Result {
		return s.CreateTopics(time.Now(), []controller.NewTopic{{
			Name: name, ID: topicID(n), Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: brokers}, Configs: configs,
		}}, false)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if rs := reply.([]controller.TopicResult); rs[0].Err != nil {
		c.t.Fatal(rs[0].Err)
	}
	return name
}

func (c *cluster) partition(topic string) *meta.Partition { return c.img.Load().Partition(topic, 0) }

// until waits for cond, at most 30 s of the bubble's time.
func (c *cluster) until(what string, cond func() bool) {
	c.t.Helper()
	for range 3000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("never: %s; %s", what, c.describe())
}

func (c *cluster) describe() string {
	out := ""
	for t := range c.img.Load().Topics() {
		for i, p := range t.Partitions {
			out += fmt.Sprintf("\n%s-%d leader %d epoch %d isr %v elr %v", t.Name, i, p.Leader, p.LeaderEpoch, p.ISR, p.ELR)
			for _, id := range p.Replicas {
				if n := c.nodes[id]; n.up {
					if r, err := n.m.Get(t.Name, int32(i)); err == nil {
						l, e, self := r.Leader()
						out += fmt.Sprintf("\n  node %d: start %d hw %d end %d, leader %d at %d self %v epochs %v", id, r.LogStartOffset(), r.HighWatermark(), r.LogEndOffset(), l, e, self, r.Log().Epochs())
					} else {
						out += fmt.Sprintf("\n  node %d: %v", id, err)
					}
				} else {
					out += fmt.Sprintf("\n  node %d: down", id)
				}
			}
		}
	}
	return out
}

// leader is the broker that leads a topic's partition by the metadata and by itself.
func (c *cluster) leader(topic string) (*node, *replica.Partition) {
	mp := c.partition(topic)
	if mp == nil || mp.Leader < 0 {
		return nil, nil
	}
	n := c.nodes[mp.Leader]
	if !n.up {
		return nil, nil
	}
	p, err := n.m.Get(topic, 0)
	if err != nil {
		return nil, nil
	}
	if _, epoch, self := p.Leader(); !self || epoch != mp.LeaderEpoch {
		return nil, nil
	}
	return n, p
}

// waitLeader waits for a leader that knows it.
func (c *cluster) waitLeader(topic string) (n *node, p *replica.Partition) {
	c.t.Helper()
	c.until("a leader of "+topic, func() bool { n, p = c.leader(topic); return p != nil })
	return n, p
}

func (c *cluster) waitISR(topic string, want ...int32) {
	c.t.Helper()
	c.until(fmt.Sprintf("ISR %v of %s", want, topic), func() bool {
		isr := slices.Sorted(slices.Values(c.partition(topic).ISR))
		return slices.Equal(isr, want)
	})
}

// produce appends one batch of n records with acks=all and returns its outcome
// when done is called with it.
func (c *cluster) produce(p *replica.Partition, value string, n int, done func(partlog.AppendInfo, error)) {
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: 1000, Value: fmt.Appendf(nil, "%s/%d", value, i)}
	}
	b, err := record.Build(record.BuilderOptions{}, recs...)
	if err != nil {
		c.t.Fatal(err)
	}
	info, err := p.Append(b, replica.AppendOptions{Acks: -1, Epoch: replica.AnyEpoch})
	if err != nil {
		done(info, err)
		return
	}
	p.AwaitHW(info.LastEpoch, info.LastOffset+1, func(err error) { done(info, err) })
}

// mustProduce produces, again after errors as a client does, and waits for the
// acknowledgement.
func (c *cluster) mustProduce(topic, value string, n int) partlog.AppendInfo {
	c.t.Helper()
	type result struct {
		info partlog.AppendInfo
		err  error
	}
	var last error
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		_, p := c.waitLeader(topic)
		ch := make(chan result, 1)
		c.produce(p, value, n, func(info partlog.AppendInfo, err error) { ch <- result{info, err} })
		select {
		case r := <-ch:
			if r.err == nil {
				return r.info
			}
			last = r.err
		case <-time.After(20 * time.Second):
		}
	}
	c.t.Fatalf("produce of %s never acknowledged: %v%s", value, last, c.describe())
	panic("unreachable")
}

// settled waits until every replica that is up has all of the leader's log and
// its high watermark.
func (c *cluster) settled(topic string) {
	c.t.Helper()
	c.until("equal replicas of "+topic, func() bool {
		_, lead := c.leader(topic)
		if lead == nil || lead.HighWatermark() != lead.LogEndOffset() {
			return false
		}
		for _, id := range c.partition(topic).Replicas {
			n := c.nodes[id]
			if !n.up {
				continue
			}
			p, err := n.m.Get(topic, 0)
			if err != nil || p.LogEndOffset() != lead.LogEndOffset() || p.HighWatermark() != lead.HighWatermark() || p.LogStartOffset() < lead.LogStartOffset() {
				return false
			}
		}
		return true
	})
}

// entry is one batch of a log.
type entry struct {
	base, last int64
	epoch      int32
	crc        uint32
	value      string // of the first record
}

// batches reads a replica's log from its start to upTo.
func batches(p *replica.Partition, upTo int64) ([]entry, error) {
	var out []entry
	l := p.Log()
	off := l.StartOffset()
	for off < upTo {
		info, err := l.Read(off, 1<<20, upTo, true)
		if err != nil {
			return out, err
		}
		for _, s := range info.Spans {
			buf, err := s.Bytes()
			if err != nil {
				info.Release()
				return out, err
			}
			for b, err := range record.Batches(buf) {
				if err == nil {
					err = b.CheckCRC()
				}
				if err != nil {
					info.Release()
					return out, err
				}
				e := entry{base: b.BaseOffset(), last: b.LastOffset(), epoch: b.LeaderEpoch(), crc: b.CRC()}
				for r, err := range b.Records(0) {
					if err == nil {
						e.value = string(r.Value)
					}
					break
				}
				out = append(out, e)
				off = b.NextOffset()
			}
		}
		info.Release()
		if info.Bytes == 0 {
			return out, fmt.Errorf("nothing at offset %d below %d", off, upTo)
		}
	}
	return out, nil
}

// checkReplicas compares the replicas that are up: equal batches below both
// high watermarks, rising epochs, and an epoch cache of exactly those.
func (c *cluster) checkReplicas(topic string) error {
	type replicaLog struct {
		id int32
		hw int64
		es []entry
	}
	var logs []replicaLog
	for _, id := range c.partition(topic).Replicas {
		n := c.nodes[id]
		if !n.up {
			continue
		}
		p, err := n.m.Get(topic, 0)
		if err != nil {
			continue // not known yet
		}
		hw := p.HighWatermark()
		es, err := batches(p, p.LogEndOffset())
		if err != nil {
			return fmt.Errorf("log of node %d: %w", id, err)
		}
		if err := checkEpochs(p, es); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
		logs = append(logs, replicaLog{id, hw, es})
	}
	for i, a := range logs {
		for _, b := range logs[i+1:] {
			upTo := min(a.hw, b.hw)
			for _, x := range a.es {
				for _, y := range b.es {
					if x.base < upTo && y.base < upTo && x.base == y.base && x != y {
						return fmt.Errorf("nodes %d and %d differ at offset %d: %+v, %+v", a.id, b.id, x.base, x, y)
					}
				}
			}
		}
	}
	return nil
}

func checkEpochs(p *replica.Partition, es []entry) error {
	var want []partlog.EpochEntry
	prev := int32(-1)
	for _, e := range es {
		if e.epoch < prev {
			return fmt.Errorf("epoch %d after %d at offset %d", e.epoch, prev, e.base)
		}
		if e.epoch > prev {
			want = append(want, partlog.EpochEntry{Epoch: e.epoch, Start: e.base})
		}
		prev = e.epoch
	}
	if got := p.Log().Epochs(); p.LogStartOffset() == 0 && !slices.Equal(got, want) {
		return fmt.Errorf("epoch cache %v, batches say %v", got, want)
	}
	return nil
}

// reassign asks for other replicas of a topic's partition.
func (c *cluster) reassign(topic string, brokers ...int32) {
	c.t.Helper()
	_, err := c.do(func(s *controller.State) machine.Result {
		return s.AlterReassignments(time.Now(), []controller.Reassignment{{TopicPartition: controller.TopicPartition{Topic: topic}, Replicas: brokers}}, true)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
