package group

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/server"
)

// memLog is a coordinator's log in memory, committed at once.
type memLog struct {
	mu   sync.Mutex
	recs []machine.Record
}

func (l *memLog) Append(recs []machine.Record) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recs = append(l.recs, recs...)
	return int64(len(l.recs)) - 1, nil
}

func (l *memLog) Replay(func(int64, machine.Record) error) error { return nil }

func (l *memLog) EndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.recs))
}

func (l *memLog) HighWatermark() int64 { return l.EndOffset() }

func (l *memLog) Close() {}

var (
	topicT = ids.UUID{1}
	topicU = ids.UUID{2}
)

// rig is the handlers over a real coordinator, behind a server on connections in
// memory. The topic t has two partitions, u one.
type rig struct {
	t    *testing.T
	dial func(context.Context) (net.Conn, error)
	conn net.Conn
	corr int32
}

func newRig(t *testing.T) *rig {
	d := meta.Empty("c").Draft()
	offset := int64(0)
	add := func(name string, id ids.UUID, partitions int32) {
		recs := []meta.Record{&meta.TopicRecord{TopicName: name, TopicID: id}}
		for p := range partitions {
			recs = append(recs, &meta.PartitionRecord{
				PartitionID: p, TopicID: id, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, Directories: []ids.UUID{{1}},
			})
		}
		for _, r := range recs {
			if err := d.Apply(offset, 1, r); err != nil {
				t.Fatal(err)
			}
			offset++
		}
	}
	add("t", topicT, 2)
	add("u", topicU, 1)
	add(group.Topic, ids.UUID{3}, 3)
	img := d.Image()

	cfg := group.DefaultConfig()
	cfg.InitialRebalanceDelay = 0
	svc := group.NewService(group.Options{
		NodeID: 1,
		Config: func() group.Config { return cfg },
		Open: func(int32, int32, func(int64), func(error)) (coord.Log, error) {
			return &memLog{}, nil
		},
	})
	svc.Apply(meta.Diff(meta.Empty("c"), img))
	log := slog.New(slog.DiscardHandler)
	h := New(Options{Groups: svc, Image: func() *meta.Image { return img }, Logger: log})
	table := server.Table{}
	h.Register(table)
	ln, dial := server.NewMemListener()
	srv, err := server.New(server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return table },
		Logger:    log,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	r := &rig{t: t, dial: dial}
	r.connect()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.conn.Close()
		_ = srv.Shutdown(ctx)
		<-served
		svc.Close()
	})
	r.loaded()
	return r
}

func (r *rig) connect() {
	c, err := r.dial(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.conn = c
}

// loaded waits until the coordinator serves.
func (r *rig) loaded() {
	for deadline := time.Now().Add(10 * time.Second); ; {
		resp := call(r, &kmsg.ListGroupsRequest{Version: 5}).(*kmsg.ListGroupsResponse)
		switch {
		case resp.ErrorCode == 0:
			return
		case resp.ErrorCode != int16(api.CoordinatorLoadInProgress) || time.Now().After(deadline):
			r.t.Fatalf("list: %s", api.Code(resp.ErrorCode))
		}
	}
}

// call sends a request at its version and reads the response.
func call(r *rig, req kmsg.Request) kmsg.Response {
	r.t.Helper()
	r.send(req)
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body, err := r.read(resp.IsFlexible())
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		r.t.Fatalf("%T v%d: %v", req, req.GetVersion(), err)
	}
	return resp
}

func (r *rig) send(req kmsg.Request) {
	r.t.Helper()
	r.corr++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, req, r.corr)
	if _, err := r.conn.Write(frame); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(flexible bool) ([]byte, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r.conn, body); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != r.corr {
		return nil, errors.New("a response of another request")
	}
	body = body[4:]
	if flexible {
		body = body[1:]
	}
	return body, nil
}
