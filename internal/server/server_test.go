package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// rig is a running server and a way to connect to it.
type rig struct {
	*Server
	t    testing.TB
	dial func() net.Conn
	logs *lockedBuffer
	reg  *prometheus.Registry
	done chan error // Serve's result
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a server with the table on an in-memory listener or, if tcp, on
// loopback.
func start(t testing.TB, tcp bool, table Table, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(lockedBuffer), reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	var ln net.Listener
	if tcp {
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		r.dial = func() net.Conn {
			t.Helper()
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	} else {
		var dial func(context.Context) (net.Conn, error)
		ln, dial = NewMemListener()
		r.dial = func() net.Conn {
			t.Helper()
			c, err := dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	o := Options{
		Listeners:  []Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Listener: ln}},
		Table:      func(string) Table { return table },
		Logger:     slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer: r.reg,
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Shutdown(ctx)
		if err := <-r.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		until(t, "all connections are gone", func() bool { return r.Connections() == 0 })
	})
	return r
}

// until polls for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		<-tick.C
	}
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	fams, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var sum float64
	for _, f := range fams {
		if f.GetName() != name {
			continue
		}
	members:
		for _, m := range f.Metric {
			for i := 0; i < len(labels); i += 2 {
				ok := false
				for _, l := range m.Label {
					ok = ok || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !ok {
					continue members
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetSummary().GetSampleCount())
		}
	}
	return sum
}

// heartbeat is a request frame; its correlation id comes back in the reply.
func heartbeat(id int32) []byte {
	req := kmsg.NewHeartbeatRequest()
	req.Version, req.Group = 4, "g"
	return frameOf(&req, id)
}

func frameOf(req kmsg.Request, id int32) []byte {
	client := "test"
	b := wire.AppendRequestHeader(make([]byte, 4), req.Key(), req.GetVersion(), id, &client, req.IsFlexible())
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func send(t testing.TB, c net.Conn, frames ...[]byte) {
	t.Helper()
	if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// receive reads a frame and returns its correlation id and what follows.
func receive(c net.Conn) (id int32, rest []byte, err error) {
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

func expect(t testing.TB, c net.Conn, ids ...int32) {
	t.Helper()
	for _, want := range ids {
		id, _, err := receive(c)
		if err != nil || id != want {
			t.Fatalf("reply %d, %v; want %d", id, err, want)
		}
	}
}

func expectClosed(t testing.TB, c net.Conn) {
	t.Helper()
	id, _, err := receive(c)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("got reply %d, %v; want the connection closed", id, err)
	}
}

func ok(_ context.Context, r *Request) {
	resp := kmsg.NewPtrHeartbeatResponse()
	r.Reply(Response{Msg: resp})
}

var heartbeats = Table{api.Heartbeat: ok}

func forBoth(t *testing.T, f func(t *testing.T, tcp bool)) {
	t.Run("tcp", func(t *testing.T) { f(t, true) })
	t.Run("memory", func(t *testing.T) { f(t, false) })
}

func TestRepliesComeInRequestOrder(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		const n = 40
		held := make(chan *Request, n)
		r := start(t, tcp, Table{api.Heartbeat: func(_ context.Context, r *Request) {
			if r.CorrelationID%3 == 0 {
				ok(context.Background(), r) // at once, behind others that aren't ready
				return
			}
			held <- r
		}}, nil)
		c := r.dial()
		var want []int32
		for i := range int32(n) {
			send(t, c, heartbeat(i))
			want = append(want, i)
		}
		var waiting []*Request
		for range n - (n+2)/3 {
			waiting = append(waiting, <-held)
		}
		var wg sync.WaitGroup
		for i := len(waiting) - 1; i >= 0; i-- {
			wg.Go(func() { ok(context.Background(), waiting[i]) })
		}
		expect(t, c, want...)
		wg.Wait()
	})
}

func TestPipelinedFramesInOneWrite(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		r := start(t, tcp, heartbeats, func(o *Options) { o.MaxInFlightPerConn = 3 })
		c := r.dial()
		var frames [][]byte
		var want []int32
		for i := range int32(200) {
			frames, want = append(frames, heartbeat(i)), append(want, i)
		}
		send(t, c, frames...)
		expect(t, c, want...)
		until(t, "all are counted", func() bool {
			return r.metric("kafka_network_requestmetrics_totaltimems", "request", "Heartbeat") == 200
		})
		if n := r.metric("kafka_network_requestmetrics_requests_total", "request", "Heartbeat", "version", "4"); n != 200 {
			t.Errorf("%v requests counted", n)
		}
		if n := r.metric("kafka_network_requestmetrics_errors_total", "request", "Heartbeat", "error", "NONE"); n != 200 {
			t.Errorf("%v replies without error counted", n)
		}
	})
}

func TestBadFramesCloseOnlyTheirConnection(t *testing.T) {
	sized := func(size uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), rest...)
	}
	header := func(key, version int16) []byte {
		return append(sized(16), wire.AppendRequestHeader(nil, key, version, 1, nil, false)[:10]...)
	}
	for name, frame := range map[string][]byte{
		"oversized":            sized(1<<20 + 1),
		"negative length":      sized(0xffffffff),
		"length zero":          sized(0),
		"shorter than header":  sized(7, 0, 1, 0, 1, 0, 0, 0),
		"text":                 []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"unknown key":          append(header(999, 0), make([]byte, 6)...),
		"key of no handler":    append(header(int16(api.Fetch), 4), make([]byte, 6)...),
		"version too new":      append(header(int16(api.Heartbeat), 99), make([]byte, 6)...),
		"version too old":      append(header(int16(api.CreateTopics), 1), make([]byte, 6)...),
		"client id too long":   sized(10, 0, 12, 0, 1, 0, 0, 0, 1, 127, 255),
		"client id below null": sized(10, 0, 12, 0, 1, 0, 0, 0, 1, 255, 254),
		"tags without end":     sized(16, 0, 12, 0, 4, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, true, Table{api.Heartbeat: ok, api.CreateTopics: ok}, func(o *Options) {
				o.MaxFrame, o.QueuedMaxBytes = 1<<20, 1000
			})
			good, bad := r.dial(), r.dial()
			send(t, good, heartbeat(1))
			expect(t, good, 1)
			send(t, bad, frame)
			expectClosed(t, bad)
			send(t, good, heartbeat(2))
			expect(t, good, 2)
			until(t, "it is counted", func() bool {
				return r.metric("kafka_server_socket_server_metrics_malformed_requests_total") == 1
			})
			if used, _ := r.mem.use(); used != 0 {
				t.Errorf("%d bytes of memory are still taken", used)
			}
		})
	}
}

func TestTruncatedFrame(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		r := start(t, tcp, heartbeats, func(o *Options) { o.QueuedMaxBytes = 1 << 20 })
		whole := heartbeat(7)
		for cut := range len(whole) {
			c := r.dial()
			send(t, c, whole[:cut])
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c := r.dial()
		send(t, c, whole)
		expect(t, c, 7)
		until(t, "only the good one is open and no memory is held", func() bool {
			used, _ := r.mem.use()
			return r.Connections() == 1 && used == 0
		})
	})
}

func TestFrameInSmallPieces(t *testing.T) {
	r := start(t, false, heartbeats, nil)
	c := r.dial()
	for _, b := range append(heartbeat(1), heartbeat(2)...) {
		send(t, c, []byte{b})
	}
	expect(t, c, 1, 2)
}

func TestPanicClosesOnlyItsConnection(t *testing.T) {
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		if r.CorrelationID == 13 {
			panic("thirteen")
		}
		ok(context.Background(), r)
	}}, func(o *Options) { o.QueuedMaxBytes = 1 << 20 })
	good, bad := r.dial(), r.dial()
	send(t, bad, heartbeat(1))
	expect(t, bad, 1)
	send(t, bad, heartbeat(13))
	expectClosed(t, bad)
	send(t, good, heartbeat(2))
	expect(t, good, 2)
	until(t, "the panic is logged", func() bool {
		return strings.Contains(r.logs.String(), "thirteen") && strings.Contains(r.logs.String(), "server_test.go")
	})
	if used, _ := r.mem.use(); used != 0 {
		t.Errorf("%d bytes of memory are still taken", used)
	}
}

func TestReplyTwiceIsLoggedAndDropped(t *testing.T) {
	r := start(t, false, Table{api.Heartbeat: func(_ context.Context, r *Request) { ok(context.Background(), r); ok(context.Background(), r) }}, nil)
	c := r.dial()
	send(t, c, heartbeat(1), heartbeat(2))
	expect(t, c, 1, 2)
	until(t, "it is logged", func() bool { return strings.Contains(r.logs.String(), "answered twice") })
}

func TestNoReplyAndCloseConn(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		var written []string
		var mu sync.Mutex
		note := func(what string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				written = append(written, what)
			}
		}
		r := start(t, tcp, Table{api.Heartbeat: func(_ context.Context, r *Request) {
			resp := kmsg.NewPtrHeartbeatResponse()
			switch r.CorrelationID {
			case 1:
				r.Reply(Response{NoReply: true, OnWritten: note("none")})
			case 3:
				r.Reply(Response{Msg: resp, CloseConn: true, OnWritten: note("last")})
			default:
				r.Reply(Response{Msg: resp, OnWritten: note(fmt.Sprint(r.CorrelationID))})
			}
		}}, nil)
		c := r.dial()
		send(t, c, heartbeat(1), heartbeat(2), heartbeat(3), heartbeat(4))
		expect(t, c, 2, 3)
		expectClosed(t, c)
		until(t, "all are told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(written) >= 3 && written[0] == "none" && written[1] == "2" && written[2] == "last"
		})
	})
}

func TestConnFacts(t *testing.T) {
	got := make(chan *Request, 1)
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		r.Conn.SetPrincipal("User:alice")
		r.Conn.SetClientSoftware("lib", "1.2")
		got <- r
		ok(context.Background(), r)
	}}, nil)
	c := r.dial()
	send(t, c, heartbeat(1))
	expect(t, c, 1)
	q := <-got
	name, version := q.Conn.ClientSoftware()
	if q.ClientID != "test" || q.Version != 4 || q.Key != api.Heartbeat || q.Conn.ListenerName() != "PLAINTEXT" ||
		q.Conn.Protocol() != "PLAINTEXT" || q.Conn.Principal() != "User:alice" || name != "lib" || version != "1.2" ||
		q.Conn.RemoteAddr().String() != c.LocalAddr().String() || q.Conn.LocalAddr().String() != c.RemoteAddr().String() {
		t.Errorf("request %+v", q)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-q.Conn.Closed()
}

func TestDecodeKeepsNothingOfTheFrame(t *testing.T) {
	got := make(chan *kmsg.JoinGroupRequest, 2)
	r := start(t, true, Table{api.JoinGroup: func(_ context.Context, r *Request) {
		req := kmsg.NewPtrJoinGroupRequest()
		if err := r.Decode(req); err != nil {
			t.Error(err)
		}
		got <- req
		r.Reply(Response{Msg: kmsg.NewPtrJoinGroupResponse()})
	}}, nil)
	c := r.dial()
	join := func(fill byte) []byte {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group = 5, string(bytes.Repeat([]byte{fill}, 20))
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", bytes.Repeat([]byte{fill}, 100)
		req.Protocols = append(req.Protocols, p)
		return frameOf(req, int32(fill))
	}
	send(t, c, join('a'))
	expect(t, c, 'a')
	send(t, c, join('b')) // takes the same buffer from the pool
	expect(t, c, 'b')
	if a := <-got; a.Group != strings.Repeat("a", 20) || !bytes.Equal(a.Protocols[0].Metadata, bytes.Repeat([]byte{'a'}, 100)) {
		t.Errorf("the first request became %q %q", a.Group, a.Protocols[0].Metadata)
	}
}

func TestDecodeOfGarbage(t *testing.T) {
	errs := make(chan error, 2)
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		m := kmsg.NewPtrHeartbeatRequest()
		errs <- r.Decode(m)
		errs <- r.DecodeAliased(m)
		ok(context.Background(), r)
	}}, nil)
	c := r.dial()
	frame := heartbeat(1)
	frame = frame[:len(frame)-3]
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	send(t, c, frame)
	expect(t, c, 1)
	for range 2 {
		err := <-errs
		if code, msg := api.CodeOf(err); code != api.InvalidRequest || !strings.Contains(msg, "Heartbeat") {
			t.Errorf("decoding a short request: %v", err)
		}
	}
	// A body that makes no sense is counted and logged like a frame that doesn't.
	if n := r.metric("kafka_server_socket_server_metrics_malformed_requests_total"); n != 2 {
		t.Errorf("%v malformed requests counted, want 2", n)
	}
}

// A flood of nonsense is a line a second and kind in the log, which says how much it leaves out; all of it is counted.
func TestMalformedRequestsDoNotFloodTheLog(t *testing.T) {
	var q quiet
	const now = int64(time.Hour)
	for i := range 3 {
		if _, ok := q.pass(now, "a"); ok != (i == 0) {
			t.Errorf("time %d: %v", i, ok)
		}
	}
	if held, ok := q.pass(now+int64(quietFor)-1, "b"); !ok || held != 2 {
		t.Errorf("another kind: %v, %d left out, want 2", ok, held)
	}
	if held, ok := q.pass(now+int64(quietFor), "a"); !ok || held != 0 {
		t.Errorf("after a second: %v, %d left out", ok, held)
	}
	said := 0
	for i := range 2 * quietKinds {
		if _, ok := q.pass(now+int64(quietFor), fmt.Sprint(i)); ok {
			said++
		}
	}
	if said != quietKinds-1 {
		t.Errorf("%d more kinds within a second", said)
	}

	r := start(t, false, heartbeats, nil)
	for range 60 {
		c := r.dial()
		send(t, c, []byte{0xff, 0xff, 0xff, 0xff})
		expectClosed(t, c)
	}
	until(t, "they are counted", func() bool {
		return r.metric("kafka_server_socket_server_metrics_malformed_requests_total") == 60
	})
	if n := strings.Count(r.logs.String(), "malformed request"); n == 0 || n > 10 {
		t.Errorf("%d lines in the log", n)
	}
}

// Produce 0 to 2 are advertised and refused by the handler (KAFKA-18659), so the
// client learns why.
func TestAdvertisedVersionsReachTheHandler(t *testing.T) {
	r := start(t, true, Table{api.Produce: func(_ context.Context, r *Request) {
		var req kmsg.ProduceRequest
		if err := r.DecodeAliased(&req); err != nil || !r.UnsupportedVersion || len(req.Topics) != 1 || req.Topics[0].Topic != "t" {
			t.Errorf("version %d: %+v, %v", r.Version, req, err)
		}
		r.Reply(Response{Msg: kmsg.NewPtrProduceResponse(), Code: api.UnsupportedVersion})
	}}, nil)
	c := r.dial()
	for v := range int16(3) {
		req := kmsg.NewProduceRequest()
		req.Version = v
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Records: []byte("batch")})
		req.Topics = append(req.Topics, topic)
		send(t, c, frameOf(&req, int32(v)))
		expect(t, c, int32(v))
	}
	until(t, "they are counted", func() bool {
		return r.metric("kafka_network_requestmetrics_errors_total", "error", "UNSUPPORTED_VERSION") == 3
	})
}
