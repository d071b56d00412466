package data

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
	"milena/internal/server"
)

const self int32 = 1

// dirs is one log directory.
type dirs struct {
	fs   disk.FS
	path string
	mu   sync.Mutex // GetOrCreate is called by several goroutines
	logs map[string]*partlog.Log
	full atomic.Pointer[api.Error]

	saved atomic.Int64 // calls of SaveOffsets
}

func (d *dirs) GetOrCreate(id ids.UUID, topic string, partition int32, c partlog.Config, _ ids.UUID) (*partlog.Log, error) {
	name := topic + "-" + strconv.Itoa(int(partition))
	l, err := partlog.Open(partlog.Options{
		FS: d.fs, Dir: d.path + "/" + name, Topic: topic, Partition: partition, TopicID: id, Config: c, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.logs[name] = l
	}
	return l, err
}

func (d *dirs) Delete(topic string, partition int32) error {
	name := topic + "-" + strconv.Itoa(int(partition))
	l := d.logs[name]
	delete(d.logs, name)
	return l.Delete()
}

func (d *dirs) SetConfig(string, partlog.Config) {}

func (d *dirs) Futures(func(*partlog.Log) bool) {}

func (d *dirs) DirOf(string, int32) ids.UUID { return ids.Zero }

func (d *dirs) CheckSpace(*partlog.Log, int64) error {
	if err := d.full.Load(); err != nil {
		return err
	}
	return nil
}

func (d *dirs) HighWatermark(string, int32) int64 { return 0 }

func (d *dirs) CheckpointHighWatermarks(func(string, int32) (int64, bool)) error { return nil }

func (d *dirs) Dirs() []logdir.DirInfo {
	return []logdir.DirInfo{
		{Path: d.path, Online: true, Free: 10, Total: 100},
		{Path: "/broken", Err: errors.New("broken"), Free: -1, Total: -1},
	}
}

func (d *dirs) SaveOffsets() error {
	d.saved.Add(1)
	return nil
}

func (d *dirs) Logs(fn func(*partlog.Log) bool) {
	for _, l := range d.logs {
		if !fn(l) {
			return
		}
	}
}

// rig is the handlers behind a server on connections in memory.
type rig struct {
	t     testing.TB
	dirs  *dirs
	m     *replica.Manager
	h     *Handlers
	draft *meta.Draft
	img   atomic.Pointer[meta.Image]
	off   int64
	dial  func(context.Context) (net.Conn, error)
	set   replica.Settings
	stop  func()

	allocations atomic.Int64
	noIDs       atomic.Bool
}

func newRig(t testing.TB) *rig { return newRigOn(t, disk.NewMem(1), memoryPath) }

// memoryPath is where logs are on a disk in memory.
const memoryPath = "/data"

// newRigOn is a rig with logs below path, and on a real socket if that is elsewhere than in memory.
func newRigOn(t testing.TB, fs disk.FS, path string) *rig {
	t.Helper()
	r := &rig{t: t, dirs: &dirs{fs: fs, path: path, logs: map[string]*partlog.Log{}}, set: replica.Settings{Log: partlog.DefaultConfig(), MinISR: 1}}
	logger := slog.New(slog.DiscardHandler)
	var err error
	r.m, err = replica.New(replica.Options{
		NodeID: self, Dirs: r.dirs, Logger: logger, Settings: func(*meta.Image, string) replica.Settings { return r.set },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.h = New(Options{
		Replicas: r.m, Dirs: r.dirs, Image: r.img.Load, Logger: logger,
		ProducerIDs: func(context.Context) (int64, int32, error) {
			if r.noIDs.Load() {
				return 0, 0, errors.New("no controller")
			}
			return 1000 * (r.allocations.Add(1) - 1), 1000, nil
		},
	})
	table := server.Table{}
	r.h.Register(table)
	ln, dial := listen(t, path != memoryPath)
	r.dial = dial
	srv, err := server.New(server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return table }, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	r.draft = meta.Empty("cluster-of-the-tests00").Draft()
	r.apply(&meta.RegisterBrokerRecord{
		BrokerID: self, EndPoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "one.example", Port: 9092}},
	}, &meta.RegisterBrokerRecord{
		BrokerID: 2, EndPoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "two.example", Port: 9093}},
	})
	r.stop = sync.OnceFunc(func() {
		_ = r.m.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, l := range r.dirs.logs {
			_ = l.Close(true)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// listen takes connections in memory, or on a real socket.
func listen(t testing.TB, socket bool) (net.Listener, func(context.Context) (net.Conn, error)) {
	if !socket {
		return server.NewMemListener()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", ln.Addr().String())
	}
}

func (r *rig) apply(records ...meta.Record) {
	r.t.Helper()
	for _, rec := range records {
		r.off++
		if err := r.draft.Apply(r.off, 1, rec); err != nil {
			r.t.Fatal(err)
		}
	}
	d := r.draft.Delta()
	r.img.Store(d.Next)
	r.m.Apply(d)
}

func topicID(n byte) ids.UUID { return ids.UUID{1, 15: n} }

// topic creates topic n, named t<n> or name, led by replicas[0].
func (r *rig) topic(n byte, name string, partitions int, replicas ...int32) string {
	r.t.Helper()
	if name == "" {
		name = "t" + strconv.Itoa(int(n))
	}
	if replicas == nil {
		replicas = []int32{self}
	}
	recs := []meta.Record{&meta.TopicRecord{TopicName: name, TopicID: topicID(n)}}
	for i := range partitions {
		recs = append(recs, &meta.PartitionRecord{
			PartitionID: int32(i), TopicID: topicID(n), Replicas: replicas, ISR: replicas, Leader: replicas[0], Directories: make([]ids.UUID, len(replicas)),
		})
	}
	r.apply(recs...)
	return name
}

func (r *rig) lead(n byte, leader, epoch int32) {
	r.t.Helper()
	r.apply(&meta.PartitionChangeRecord{TopicID: topicID(n), Leader: leader, LeaderEpoch: epoch, LeaderRecoveryState: -1})
}

// client is one connection.
type client struct {
	t    testing.TB
	conn net.Conn
	f    *kmsg.RequestFormatter
	next int32
	buf  []byte
}

func (r *rig) client(id string) *client {
	r.t.Helper()
	conn, err := r.dial(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: r.t, conn: conn, f: kmsg.NewRequestFormatter(kmsg.FormatterClientID(id))}
}

// send writes a request and returns its correlation id.
func (c *client) send(req kmsg.Request, version int16) int32 {
	c.t.Helper()
	req.SetVersion(version)
	c.next++
	c.buf = c.f.AppendRequest(c.buf[:0], req, c.next)
	if _, err := c.conn.Write(c.buf); err != nil {
		c.t.Fatal(err)
	}
	return c.next
}

// recv reads the reply to request id into resp.
func (c *client) recv(resp kmsg.Response, version int16, id int32) {
	c.t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatal(err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != id {
		c.t.Fatalf("reply to request %d, want %d", got, id)
	}
	body = body[4:]
	resp.SetVersion(version)
	if resp.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatal(err)
	}
}

// call sends a request at version and returns the reply.
func call[R kmsg.Response](c *client, req kmsg.Request, version int16) R {
	c.t.Helper()
	resp := req.ResponseKind()
	c.recv(resp, version, c.send(req, version))
	return resp.(R)
}

// closed reports whether the broker closes the connection without a word.
func (c *client) closed() bool {
	_ = c.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	var b [1]byte
	_, err := c.conn.Read(b[:])
	return err != nil && !strings.Contains(err.Error(), "timeout") // io.EOF or a closed pipe
}

func batch(t testing.TB, n int, tune func(*record.BuilderOptions)) record.Batch {
	t.Helper()
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: int64(1000 + i), Key: []byte("k"), Value: []byte("value")}
	}
	var o record.BuilderOptions
	if tune != nil {
		tune(&o)
	}
	b, err := record.Build(o, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produceRequest is a produce to topic n (named name) partition 0 at any version.
func produceRequest(n byte, name string, acks int16, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = name, topicID(n)
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// fetchRequest fetches partition 0 of topics from offset 0.
func fetchRequest(maxWait, minBytes int32, topics ...byte) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = maxWait, minBytes, 1<<20, -1, -1
	for _, n := range topics {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = "t"+strconv.Itoa(int(n)), topicID(n)
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func wantCode(t testing.TB, got int16, want api.Code) {
	t.Helper()
	if api.Code(got) != want {
		t.Fatalf("error %v, want %v", api.Code(got), want)
	}
}

// appendInternal appends as a broker's coordinator does.
func appendInternal(t testing.TB, p *replica.Partition, b record.Batch) {
	t.Helper()
	if _, err := p.Append(b, replica.AppendOptions{Origin: partlog.OriginCoordinator, Epoch: replica.AnyEpoch}); err != nil {
		t.Fatal(err)
	}
}
