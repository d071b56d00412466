package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/fetchwire"
	"milena/internal/record"
)

// pattern is n bytes that say where they are.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i)
	}
	return b
}

// spanFile returns a shared file with b in it; closed tells when it was closed.
func spanFile(t testing.TB, b []byte) (file *record.SharedFile, closed *atomic.Bool) {
	t.Helper()
	f, err := disk.NewMem(1).Create("/segment")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	closed = new(atomic.Bool)
	return record.Share(f, func() { closed.Store(true) }), closed
}

func fileSpan(t testing.TB, f *record.SharedFile, off, n int64) fetchwire.Piece {
	t.Helper()
	s, err := record.FileSpan(f, off, n)
	if err != nil {
		t.Fatal(err)
	}
	return fetchwire.Piece{Span: s}
}

func TestRepliesOfSpans(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		data := pattern(3 << 20)
		file, closed := spanFile(t, data)
		mem := bytes.Repeat([]byte("m"), 1<<20+7)
		var want []byte
		r := start(t, tcp, Table{api.Heartbeat: func(_ context.Context, r *Request) {
			pieces := []fetchwire.Piece{
				{Bytes: []byte("head")}, fileSpan(t, file, 5, 100), {Bytes: []byte("mid")},
				fileSpan(t, file, 0, int64(len(data))), {Span: record.MemSpan(mem)}, {Bytes: []byte("end")},
			}
			for i := range 600 { // more than one writev takes
				pieces = append(pieces, fileSpan(t, file, int64(i), 3), fetchwire.Piece{Bytes: []byte{byte(i)}})
			}
			r.Reply(Response{Pieces: pieces})
		}}, nil)
		want = append(want, 0) // the tags of the response header
		want = append(want, "head"...)
		want = append(want, data[5:105]...)
		want = append(want, "mid"...)
		want = append(want, data...)
		want = append(want, mem...)
		want = append(want, "end"...)
		for i := range 600 {
			want = append(append(want, data[i:i+3]...), byte(i))
		}
		c := r.dial()
		send(t, c, heartbeat(1), heartbeat(2))
		for id := range int32(2) {
			got, rest, err := receive(c)
			if err != nil || got != id+1 || !bytes.Equal(rest, want) {
				t.Fatalf("reply %d of %d bytes, %v; want %d bytes", got, len(rest), err, len(want))
			}
		}
		if err := file.Release(); err != nil {
			t.Fatal(err)
		}
		until(t, "the spans are released", closed.Load)
	})
}

func TestSpanOfACutFileClosesTheConnection(t *testing.T) {
	file, closed := spanFile(t, []byte("short"))
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		r.Reply(Response{Pieces: []fetchwire.Piece{fileSpan(t, file, 0, 50)}})
	}}, nil)
	c := r.dial()
	send(t, c, heartbeat(1))
	expectClosed(t, c)
	if err := file.Release(); err != nil {
		t.Fatal(err)
	}
	until(t, "the span is released and the reason logged", func() bool {
		return closed.Load() && strings.Contains(r.logs.String(), "/segment")
	})
}

// A client that doesn't read its replies keeps its own goroutine and nobody
// else's.
func TestSlowReaderHurtsNobody(t *testing.T) {
	file, closed := spanFile(t, pattern(1<<20))
	r := start(t, true, Table{
		api.Heartbeat: ok,
		api.Metadata: func(_ context.Context, r *Request) {
			go r.Reply(Response{Pieces: []fetchwire.Piece{fileSpan(t, file, 0, 1<<20)}})
		},
	}, func(o *Options) { o.MaxInFlightPerConn = 4 })
	slow := r.dial()
	req := kmsg.NewMetadataRequest()
	for i := range int32(20) {
		send(t, slow, frameOf(&req, i))
	}
	other := r.dial()
	for i := range int32(50) {
		send(t, other, heartbeat(i))
		expect(t, other, i)
	}
	// It gets everything when it reads at last, in order.
	for i := range int32(20) {
		id, rest, err := receive(slow)
		if err != nil || id != i || len(rest) != 1<<20 {
			t.Fatalf("reply %d of %d bytes, %v", id, len(rest), err)
		}
	}
	if err := file.Release(); err != nil {
		t.Fatal(err)
	}
	until(t, "the spans are released", closed.Load)
}

func TestReaderGoneReleasesSpansAndMemory(t *testing.T) {
	file, closed := spanFile(t, pattern(8<<20))
	var held []*Request
	var mu sync.Mutex
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		if r.CorrelationID == 0 {
			go r.Reply(Response{Pieces: []fetchwire.Piece{fileSpan(t, file, 0, 8<<20)}})
			return
		}
		mu.Lock()
		defer mu.Unlock()
		held = append(held, r)
	}}, func(o *Options) { o.QueuedMaxBytes = 1 << 20 })
	c := r.dial()
	for i := range int32(10) {
		send(t, c, heartbeat(i))
	}
	until(t, "the handlers have been called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(held) == 9
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-held[0].Conn.Closed()
	told := 0
	for _, q := range held {
		q.Reply(Response{Pieces: []fetchwire.Piece{fileSpan(t, file, 0, 10)}, OnWritten: func() { told++ }})
	}
	if err := file.Release(); err != nil {
		t.Fatal(err)
	}
	until(t, "all is released", func() bool {
		used, left := r.mem.use()
		return closed.Load() && used == 0 && left == 1<<20 && r.Connections() == 0
	})
	if told != 9 {
		t.Errorf("OnWritten ran %d times for 9 late replies", told)
	}
}

func TestMemoryBudgetStopsReading(t *testing.T) {
	held := make(chan *Request, 10)
	r := start(t, false, Table{api.Heartbeat: func(_ context.Context, r *Request) { held <- r }},
		func(o *Options) { o.QueuedMaxBytes = 10 }) // one frame overdraws it
	a, b, c := r.dial(), r.dial(), r.dial()
	send(t, a, heartbeat(1))
	first := <-held
	send(t, b, heartbeat(2))
	until(t, "the second waits for memory", r.mem.contended)
	if used, left := r.mem.use(); used < 10 || left != 0 || len(held) != 0 {
		t.Errorf("%d bytes used, %d left, %d requests", used, left, len(held))
	}
	if n := r.metric("kafka_network_socketserver_memorypoolavailable"); n != 0 {
		t.Errorf("metric says %v bytes are left", n)
	}
	// One that goes away while it waits gives up its place.
	send(t, c, heartbeat(3))
	until(t, "the third waits too", func() bool {
		r.mem.mu.Lock()
		defer r.mem.mu.Unlock()
		return len(r.mem.waiting) == 2
	})
	ok(t.Context(), first)
	expect(t, a, 1)
	second := <-held
	ok(t.Context(), second)
	expect(t, b, 2)
	ok(t.Context(), <-held)
	expect(t, c, 3)
	if used, left := r.mem.use(); used != 0 || left != 10 {
		t.Errorf("%d bytes used, %d left", used, left)
	}
}

func TestBudgetWaiterThatGivesUp(t *testing.T) {
	b := newBudget(10)
	if !b.tryAcquire(15) || b.tryAcquire(1) {
		t.Fatal("a frame may overdraw a budget, and no second one")
	}
	done := make(chan struct{})
	close(done)
	if b.acquire(5, done) {
		t.Fatal("acquired from nothing")
	}
	got := make(chan bool)
	go func() { got <- b.acquire(5, nil) }()
	until(t, "it waits", b.contended)
	b.release(4)
	if b.tryAcquire(1) {
		t.Fatal("overtook a waiter")
	}
	b.release(11)
	if !<-got {
		t.Fatal("not admitted")
	}
	if used, left := b.use(); used != 5 || left != 5 {
		t.Errorf("%d used, %d left", used, left)
	}
}

func TestInFlightBoundStopsReading(t *testing.T) {
	held := make(chan *Request, 10)
	r := start(t, false, Table{api.Heartbeat: func(_ context.Context, r *Request) { held <- r }},
		func(o *Options) { o.MaxInFlightPerConn = 2 })
	c := r.dial()
	send(t, c, heartbeat(1), heartbeat(2), heartbeat(3))
	first, second := <-held, <-held
	ok(t.Context(), second) // not the next to leave
	if len(held) != 0 {
		t.Fatal("a third request was read while two have no reply")
	}
	ok(t.Context(), first)
	ok(t.Context(), <-held)
	expect(t, c, 1, 2, 3)
}

func TestConnectionLimits(t *testing.T) {
	r := start(t, true, heartbeats, func(o *Options) {
		o.MaxConnectionsPerIP = 2
	})
	a, b := r.dial(), r.dial()
	send(t, a, heartbeat(1))
	expect(t, a, 1)
	send(t, b, heartbeat(1))
	expect(t, b, 1)
	expectClosed(t, r.dial())
	until(t, "the refused one is counted", func() bool {
		return r.metric("kafka_server_socket_server_metrics_connection_refused_total") == 1
	})
	r.SetLimits(Limits{MaxConnectionsPerIP: 2, MaxConnectionsPerIPOverrides: map[string]int{"127.0.0.1": 3}})
	c := r.dial()
	send(t, c, heartbeat(2))
	expect(t, c, 2)
	expectClosed(t, r.dial())

	// At max.connections new ones wait until one goes.
	r.SetLimits(Limits{MaxConnections: 3})
	first, second := r.dial(), r.dial() // the acceptor may hold one already
	send(t, first, heartbeat(3))
	send(t, second, heartbeat(4))
	for _, c := range []net.Conn{a, b} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, first, 3)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, second, 4)
	until(t, "the counts are right", func() bool {
		return r.Connections() == 2 && r.metric("kafka_server_socket_server_metrics_connection_count") == 2
	})
}

func TestIdleAndStalledConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan *Request, 1)
		r := start(t, false, Table{api.Heartbeat: func(_ context.Context, r *Request) {
			if r.CorrelationID == 99 {
				held <- r
				return
			}
			ok(context.Background(), r)
		}, api.Metadata: func(_ context.Context, r *Request) {
			go r.Reply(Response{Pieces: []fetchwire.Piece{{Bytes: make([]byte, 1<<20)}}})
		}}, func(o *Options) { o.IdleTimeout, o.StallTimeout = 10*time.Minute, time.Minute })
		idle, busy, waiting, stalled, unread := r.dial(), r.dial(), r.dial(), r.dial(), r.dial()
		send(t, waiting, heartbeat(99))
		send(t, stalled, heartbeat(1)[:20])
		req := kmsg.NewMetadataRequest()
		send(t, unread, frameOf(&req, 1))
		open := func() int { synctest.Wait(); return r.Connections() }
		if n := open(); n != 5 {
			t.Fatalf("%d connections", n)
		}
		for minute := range 13 {
			time.Sleep(time.Minute)
			send(t, busy, heartbeat(1))
			expect(t, busy, 1)
			want := 5
			if minute >= 1 {
				want-- // stalled
			}
			if minute >= 10 {
				want -= 2 // idle, and the one that doesn't read
			}
			if n := open(); n != want {
				t.Fatalf("minute %d: %d connections, want %d\n%s", minute+1, n, want, r.logs)
			}
		}
		if n := r.metric("kafka_server_socket_server_metrics_expired_connections_killed_count"); n != 3 {
			t.Errorf("%v expired", n)
		}
		ok(context.Background(), <-held) // a reply that was waited for keeps its connection
		expect(t, waiting, 99)
		for _, c := range []net.Conn{idle, busy, waiting, stalled, unread} {
			_ = c.Close()
		}
	})
}

func TestSlowFrameGivesWayWhenMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, false, heartbeats, func(o *Options) { o.QueuedMaxBytes, o.StallTimeout = 10, time.Minute })
		trickle, other := r.dial(), r.dial()
		done := make(chan struct{})
		go func() {
			defer close(done)
			send(t, trickle, []byte{0, 0, 0x10, 0}) // 4 KiB at a byte in ten seconds
			for {
				if _, err := trickle.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(10 * time.Second)
			}
		}()
		synctest.Wait()
		send(t, other, heartbeat(5))
		begin := time.Now()
		id, _, err := receiveWithin(other, 5*time.Minute)
		if err != nil || id != 5 {
			t.Fatalf("reply %d, %v", id, err)
		}
		if d := time.Since(begin); d < 50*time.Second || d > 2*time.Minute {
			t.Errorf("the other one waited for %v", d)
		}
		<-done
		_ = other.Close()
	})
}

func receiveWithin(c net.Conn, d time.Duration) (int32, []byte, error) {
	type result struct {
		id   int32
		rest []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		var size [4]byte
		if _, err := c.Read(size[:]); err != nil {
			got <- result{err: err}
			return
		}
		b := make([]byte, size[3])
		_, err := c.Read(b)
		got <- result{id: int32(b[3]), rest: b, err: err}
	}()
	select {
	case r := <-got:
		return r.id, r.rest, r.err
	case <-time.After(d):
		return 0, nil, errors.New("no reply")
	}
}

func TestShutdownLetsRepliesFinish(t *testing.T) {
	forBoth(t, func(t *testing.T, tcp bool) {
		held := make(chan *Request, 1)
		r := start(t, tcp, Table{api.Heartbeat: func(_ context.Context, r *Request) { held <- r }}, nil)
		idle, busy := r.dial(), r.dial()
		send(t, busy, heartbeat(1))
		q := <-held
		done := make(chan error, 1)
		go func() { done <- r.Shutdown(t.Context()) }()
		expectClosed(t, idle)
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned %v before the reply", err)
		default:
		}
		ok(t.Context(), q)
		expect(t, busy, 1)
		expectClosed(t, busy)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestShutdownCutsAtItsDeadline(t *testing.T) {
	held := make(chan *Request, 1)
	r := start(t, true, Table{api.Heartbeat: func(ctx context.Context, r *Request) { held <- r }}, nil)
	c := r.dial()
	send(t, c, heartbeat(1))
	q := <-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Shutdown: %v", err)
	}
	expectClosed(t, c)
	<-q.Conn.Closed()
	ok(t.Context(), q) // late, and harmless
}

func TestHandlersContextEndsWithTheConnection(t *testing.T) {
	ended := make(chan struct{})
	r := start(t, true, Table{api.Heartbeat: func(ctx context.Context, r *Request) {
		go func() {
			<-ctx.Done()
			close(ended)
			ok(context.Background(), r)
		}()
	}}, nil)
	c := r.dial()
	send(t, c, heartbeat(1))
	until(t, "it is connected", func() bool { return r.Connections() == 1 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

func TestTLSListener(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	cfg := web.TLS.Clone()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	web.Close()
	file, _ := spanFile(t, pattern(1<<20+77))
	var addr string
	r := start(t, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		r.Reply(Response{Pieces: []fetchwire.Piece{{Bytes: []byte("x")}, fileSpan(t, file, 0, 1<<20+77)}})
	}}, func(o *Options) {
		addr = o.Listeners[0].Addr().String()
		o.Listeners[0].Listener = tls.NewListener(o.Listeners[0].Listener, cfg)
	})
	for range 2 {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "example.com"})
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, heartbeat(1), heartbeat(2))
		for want := range int32(2) {
			id, rest, err := receive(c)
			if err != nil || id != want+1 || !bytes.Equal(rest[2:], pattern(1<<20+77)) {
				t.Fatalf("reply %d of %d bytes, %v", id, len(rest), err)
			}
		}
		_ = c.Close()
	}
	plain := r.dial()
	send(t, plain, heartbeat(1))
	expectClosed(t, plain)
}

func TestVersionsHelpers(t *testing.T) {
	table := Table{api.Produce: ok, api.Heartbeat: ok, api.CreateClusterMirror: ok,
		api.ApiVersions: func(_ context.Context, r *Request) {
			if r.UnsupportedVersion {
				r.Reply(VersionsFallback())
				return
			}
			r.Reply(Response{Msg: kmsg.NewPtrApiVersionsResponse()})
		}}
	r := start(t, true, table, nil)
	got := fmt.Sprint(r.APIs("PLAINTEXT"))
	if want := "[{0 0 13} {12 0 4} {18 0 5} {1094 0 0}]"; got != want {
		t.Errorf("APIs: %s, want %s", got, want)
	}
	if got := fmt.Sprint(table.APIs(api.Prototype)); got != "[{0 0 13} {12 0 4} {18 0 5} {94 0 0}]" {
		t.Errorf("APIs by the prototype's numbers: %s", got)
	}
	if r.APIs("OTHER") != nil {
		t.Error("APIs of a listener that isn't there")
	}
	c := r.dial()
	req := kmsg.NewApiVersionsRequest()
	req.Version = 3
	f := frameOf(&req, 8)
	f[7] = 77 // a version from the future, with a body nobody knows
	send(t, c, f)
	id, rest, err := receive(c)
	if err != nil || id != 8 {
		t.Fatalf("reply %d, %v", id, err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(rest); err != nil || api.Code(resp.ErrorCode) != api.UnsupportedVersion ||
		len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
		t.Errorf("fallback %+v, %v", resp, err)
	}
	// The connection goes on: the client asks again.
	send(t, c, frameOf(&req, 9))
	if id, rest, err := receive(c); err != nil || id != 9 || rest[0] != 0 || rest[1] != 0 {
		t.Errorf("second try: %d %x %v", id, rest, err)
	}
}

func TestNewRefuses(t *testing.T) {
	ln, _ := NewMemListener()
	table := func(string) Table { return nil }
	for name, o := range map[string]Options{
		"no listener": {Table: table},
		"no table":    {Listeners: []Listener{{Listener: ln}}},
		"two of a name": {Table: table, Listeners: []Listener{
			{Listener: ln, Name: "A"}, {Listener: ln, Name: "A"}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestServeFailsWithItsListener(t *testing.T) {
	ln, _ := NewMemListener()
	s, err := New(Options{Table: func(string) Table { return nil }, Listeners: []Listener{{Listener: ln, Name: "A"}}})
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if err := s.Serve(); err == nil || !strings.Contains(err.Error(), "listener A") {
		t.Errorf("Serve: %v", err)
	}
}

// A thousand idle connections, each of which has made a request, cost less than
// 50 KiB each. The clients' ends are in the same process and are counted too.
func TestThousandIdleConnections(t *testing.T) {
	const n = 1000
	per := idleConnectionBytes(t, n)
	t.Logf("%d bytes per connection, both ends", per)
	if per > 50<<10 {
		t.Errorf("%d bytes per idle connection, more than 50 KiB", per)
	}
}

func idleConnectionBytes(t testing.TB, n int) int {
	t.Helper()
	r := start(t, true, heartbeats, nil)
	warm := r.dial()
	send(t, warm, heartbeat(1))
	expect(t, warm, 1)
	before := memoryInUse()
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = r.dial()
		send(t, conns[i], heartbeat(int32(i)))
	}
	for i := range conns {
		expect(t, conns[i], int32(i))
	}
	after := memoryInUse()
	for _, c := range conns {
		_ = c.Close()
	}
	return (after - before) / n
}

func memoryInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse + m.MSpanInuse + m.MCacheInuse)
}

func BenchmarkIdleConnection(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(idleConnectionBytes(b, 1000)), "B/conn")
	}
}
