package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"milena/internal/api"
	"milena/internal/server"
	"milena/internal/wire"
)

// node is a server of ours to connect to.
type node struct {
	srv   *server.Server
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	table server.Table
}

func startNode(t testing.TB, table server.Table, change func(*server.Options)) *node {
	t.Helper()
	ln, dial := server.NewMemListener()
	n := &node{table: table, dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	o := server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: "X"}},
		Table:     func(string) server.Table { return table },
	}
	if change != nil {
		change(&o)
	}
	if table[api.ApiVersions] == nil {
		table[api.ApiVersions] = func(_ context.Context, r *server.Request) {
			if r.UnsupportedVersion {
				r.Reply(server.VersionsFallback())
				return
			}
			resp := kmsg.NewPtrApiVersionsResponse()
			for _, v := range table.APIs(o.CodePoints) {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: v.Key, MinVersion: v.Min, MaxVersion: v.Max})
			}
			r.Reply(server.Response{Msg: resp})
		}
	}
	var err error
	if n.srv, err = server.New(o); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.srv.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.srv.Shutdown(ctx)
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return n
}

func (n *node) options() Options { return Options{Dial: n.dial, Addr: "node:9092", ClientID: "me"} }

func connect(t testing.TB, o Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func heartbeatOf(member string) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID = "g", member
	return req
}

// echo answers a heartbeat with its generation as the error code.
func echo(_ context.Context, r *server.Request) {
	var req kmsg.HeartbeatRequest
	if err := r.Decode(&req); err != nil {
		r.Reply(server.Response{CloseConn: true, NoReply: true})
		return
	}
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = int16(req.Generation)
	r.Reply(server.Response{Msg: resp})
}

func TestCallNegotiatesTheVersion(t *testing.T) {
	versions := make(chan int16, 1)
	n := startNode(t, server.Table{api.Heartbeat: func(ctx context.Context, r *server.Request) {
		versions <- r.Version
		if r.ClientID != "me" {
			t.Errorf("client id %q", r.ClientID)
		}
		echo(ctx, r)
	}}, nil)
	c := connect(t, n.options())
	req := heartbeatOf("m")
	req.Generation = 7
	resp, err := c.Call(t.Context(), req)
	if err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != 7 || <-versions != 4 || req.Version != 4 {
		t.Fatalf("Call: %+v, %v", resp, err)
	}
	if v := c.Versions(); v[int16(api.Heartbeat)] != (VersionRange{0, 4}) || len(v) != 2 {
		t.Errorf("versions %v", v)
	}
	if v, err := c.MaxVersion(12, 1, 2); err != nil || v != 2 {
		t.Errorf("MaxVersion = %d, %v", v, err)
	}
	for _, f := range []func() error{
		func() error { _, err := c.MaxVersion(12, 5, 9); return err },
		func() error { _, err := c.MaxVersion(1, 0, 9); return err },
		func() error { _, err := c.Call(t.Context(), kmsg.NewPtrFetchRequest()); return err },
		func() error { _, _, err := c.CallRaw(t.Context(), 999, 0, nil); return err },
	} {
		if code, msg := api.CodeOf(f()); code != api.UnsupportedVersion || msg == "" {
			t.Errorf("%v %q", code, msg)
		}
	}
	if c.Addr() != "node:9092" || c.LocalAddr() == nil {
		t.Errorf("address %s", c.Addr())
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	n := startNode(t, server.Table{api.Heartbeat: func(ctx context.Context, r *server.Request) { go echo(ctx, r) }}, nil)
	c := connect(t, n.options())
	var wg sync.WaitGroup
	for i := range int32(100) {
		wg.Go(func() {
			for j := range int32(5) {
				req := heartbeatOf("m")
				req.Generation = i*5 + j
				resp, err := c.Call(t.Context(), req)
				if err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != int16(i*5+j) {
					t.Errorf("call %d: %+v, %v", i, resp, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCallRaw(t *testing.T) {
	n := startNode(t, server.Table{api.Heartbeat: echo}, nil)
	c := connect(t, n.options())
	for i := range int32(10) {
		req := heartbeatOf("m")
		req.Version, req.Generation = 3, i
		body, release, err := c.CallRaw(t.Context(), int16(api.Heartbeat), 3, req.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		resp := kmsg.HeartbeatResponse{Version: 3}
		if err := resp.ReadFrom(body); err != nil || resp.ErrorCode != int16(i) {
			t.Errorf("%+v, %v", resp, err)
		}
		release()
	}
}

// Requests of SendPooled are answered in order; one that is abandoned costs the others nothing.
func TestSendPooled(t *testing.T) {
	held := make(chan *server.Request, 1)
	n := startNode(t, server.Table{api.Heartbeat: echo, api.LeaveGroup: func(_ context.Context, r *server.Request) { held <- r }}, nil)
	c := connect(t, n.options())
	send := func(generation int32) *Pending {
		t.Helper()
		req := heartbeatOf("m")
		req.Version, req.Generation = 3, generation
		p, err := c.SendPooled(t.Context(), int16(api.Heartbeat), 3, req.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, second, third := send(1), send(2), send(3)
	second.Abandon()
	for generation, p := range map[int16]*Pending{1: first, 3: third} {
		got, err := p.WaitPooled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		resp := kmsg.HeartbeatResponse{Version: 3}
		if err := resp.ReadFrom(got.Body); err != nil || resp.ErrorCode != generation || got.Latency <= 0 || got.Transfer < 0 {
			t.Errorf("%+v, %v, %s and %s", resp, err, got.Latency, got.Transfer)
		}
		got.Release()
	}
	if _, err := c.SendPooled(t.Context(), 999, 0, nil); err == nil {
		t.Error("an unknown API was sent")
	}
	// A context that ends gives up the answer, the end of the connection every one.
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version = 3
	p, err := c.SendPooled(t.Context(), int16(api.LeaveGroup), 3, leave.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.WaitPooled(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	last := send(4)
	_ = c.Close()
	if _, err := last.WaitPooled(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	last.Abandon()
	(<-held).Reply(server.Response{Msg: kmsg.NewPtrLeaveGroupResponse()})
}

// mirrorList stands for a mirror request: another key, flexible from version 0.
type mirrorList struct{ kmsg.HeartbeatRequest }

func (*mirrorList) Key() int16                  { return int16(api.ListClusterMirrors) }
func (*mirrorList) MaxVersion() int16           { return 0 }
func (*mirrorList) IsFlexible() bool            { return true }
func (*mirrorList) AppendTo(b []byte) []byte    { return append(b, 1, 2, 3) }
func (*mirrorList) ResponseKind() kmsg.Response { return &kmsg.HeartbeatResponse{} }

func TestMirrorKeysGoByTheOtherSidesNumbers(t *testing.T) {
	for _, x := range []struct{ points, configured api.CodePoints }{
		{api.Milena, api.Milena}, {api.Prototype, api.Prototype}, {api.Milena, api.Prototype},
	} {
		points := x.points
		n := startNode(t, server.Table{api.ListClusterMirrors: func(_ context.Context, r *server.Request) {
			r.Reply(server.Response{Msg: &kmsg.HeartbeatResponse{ErrorCode: 3}})
		}}, func(o *server.Options) { o.CodePoints = points })
		o := n.options()
		o.CodePoints = x.configured
		c := connect(t, o)
		if c.CodePoints() != points {
			t.Errorf("numbers %s, the other side has %s", c.CodePoints(), points)
		}
		if _, ok := c.Versions()[points.WireKey(api.ListClusterMirrors)]; !ok {
			t.Errorf("%s: versions %v", points, c.Versions())
		}
		_, release, err := c.CallRaw(t.Context(), points.WireKey(api.ListClusterMirrors), 0, []byte{1, 2, 3})
		if err != nil {
			t.Fatalf("%s: %v", points, err)
		}
		release()
		resp, err := c.Call(t.Context(), &mirrorList{})
		if err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != 3 {
			t.Errorf("%s: %+v, %v", points, resp, err)
		}
	}
}

func TestAbandonedCallLeavesTheConnection(t *testing.T) {
	held := make(chan *server.Request, 1)
	n := startNode(t, server.Table{api.Heartbeat: echo, api.LeaveGroup: func(_ context.Context, r *server.Request) { held <- r }}, nil)
	c := connect(t, n.options())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		req := kmsg.NewPtrLeaveGroupRequest()
		_, err := c.Call(ctx, req)
		done <- err
	}()
	late := <-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled call: %v", err)
	}
	late.Reply(server.Response{Msg: kmsg.NewPtrLeaveGroupResponse()})
	req := heartbeatOf("m")
	req.Generation = 5
	if resp, err := c.Call(t.Context(), req); err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != 5 {
		t.Fatalf("the call after it: %v, %v", resp, err)
	}
	if _, err := c.Call(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("a call on a context that is over: %v", err)
	}
}

func TestRequestTimeoutClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan *server.Request, 1)
		n := startNode(t, server.Table{api.Heartbeat: func(_ context.Context, r *server.Request) { held <- r }}, nil)
		o := n.options()
		o.RequestTimeout = 20 * time.Second
		c := connect(t, o)
		begin := time.Now()
		_, err := c.Call(t.Context(), heartbeatOf("m"))
		if !errors.Is(err, ErrTimeout) || time.Since(begin) != 20*time.Second {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		<-c.Closed()
		if _, err := c.Call(t.Context(), heartbeatOf("m")); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrTimeout) {
			t.Errorf("call on the closed connection: %v", err)
		}
		(<-held).Reply(server.Response{NoReply: true})
	})
}

func TestCloseFailsCallsInFlight(t *testing.T) {
	held := make(chan *server.Request, 1)
	n := startNode(t, server.Table{api.Heartbeat: func(_ context.Context, r *server.Request) { held <- r }}, nil)
	c := connect(t, n.options())
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), heartbeatOf("m"))
		done <- err
	}()
	q := <-held
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "node:9092") {
		t.Errorf("call: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-q.Conn.Closed()
	q.Reply(server.Response{NoReply: true})
}

// scripted serves one connection by a function on its frames.
func scripted(t *testing.T, answer func(header wire.RequestHeader, body []byte) []byte) Options {
	t.Helper()
	ln, dial := server.NewMemListener()
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = nc.Close() }()
				for {
					var size [4]byte
					if _, err := io.ReadFull(nc, size[:]); err != nil {
						return
					}
					frame := make([]byte, binary.BigEndian.Uint32(size[:]))
					if _, err := io.ReadFull(nc, frame); err != nil {
						return
					}
					h, body, err := wire.ParseRequestHeader(frame, api.Milena)
					if err != nil {
						t.Errorf("request: %v", err)
						return
					}
					out := answer(h, body)
					if out == nil {
						return
					}
					if _, err := nc.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return Options{Addr: "node:1", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
}

// reply is a response frame.
func reply(h wire.RequestHeader, resp kmsg.Response) []byte {
	resp.SetVersion(h.Version)
	return framed(resp.AppendTo(wire.AppendResponseHeader(nil, h.Key, h.CorrelationID, h.Row.IsFlexible(h.Version))))
}

func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

func versionsOf(keys ...api.Key) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	for _, k := range keys {
		row, _ := api.Lookup(k)
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(k), MaxVersion: row.Max})
	}
	return resp
}

func TestApiVersionsOfAnOlderNode(t *testing.T) {
	for name, named := range map[string]int16{"names its versions": 2, "says nothing": -1} {
		var asked []int16
		o := scripted(t, func(h wire.RequestHeader, _ []byte) []byte {
			asked = append(asked, h.Version)
			if h.Version > max(named, 0) {
				resp := kmsg.NewPtrApiVersionsResponse()
				resp.ErrorCode = int16(api.UnsupportedVersion)
				if named >= 0 {
					resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 18, MaxVersion: named})
				}
				h.Version = 0
				return reply(h, resp)
			}
			return reply(h, versionsOf(api.Heartbeat))
		})
		c := connect(t, o)
		if len(asked) != 2 || asked[1] != max(named, 0) || c.Versions()[12].Max != 4 {
			t.Errorf("one that %s: asked %v, versions %v", name, asked, c.Versions())
		}
	}
}

func TestApiVersionsFails(t *testing.T) {
	for name, answer := range map[string]func(h wire.RequestHeader, _ []byte) []byte{
		"refused for good": func(h wire.RequestHeader, _ []byte) []byte {
			h.Version = 0
			return reply(h, &kmsg.ApiVersionsResponse{ErrorCode: int16(api.UnsupportedVersion)})
		},
		"another error": func(h wire.RequestHeader, _ []byte) []byte {
			return reply(h, &kmsg.ApiVersionsResponse{ErrorCode: int16(api.InvalidRequest)})
		},
		"garbage": func(h wire.RequestHeader, _ []byte) []byte {
			return framed(append(wire.AppendInt32(nil, h.CorrelationID), 0, 0, 99))
		},
		"hangs up": func(wire.RequestHeader, []byte) []byte { return nil },
	} {
		c, err := Dial(t.Context(), scripted(t, answer))
		if err == nil || !strings.Contains(err.Error(), "node:1") || !strings.Contains(err.Error(), "ApiVersions") {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// What a hostile or broken node answers ends the connection with an error.
func TestBadResponses(t *testing.T) {
	for name, bad := range map[string]func(h wire.RequestHeader) []byte{
		"oversized":         func(wire.RequestHeader) []byte { return []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0} },
		"negative":          func(wire.RequestHeader) []byte { return []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0} },
		"too short":         func(wire.RequestHeader) []byte { return []byte{0, 0, 0, 3, 0, 0, 0, 0} },
		"wrong correlation": func(h wire.RequestHeader) []byte { h.CorrelationID++; return reply(h, kmsg.NewPtrHeartbeatResponse()) },
		"cut": func(h wire.RequestHeader) []byte {
			return append([]byte{0, 0, 1, 0}, wire.AppendInt32(nil, h.CorrelationID)...)
		},
		"no body": func(h wire.RequestHeader) []byte { return framed(wire.AppendInt32(nil, h.CorrelationID)) },
		"short body": func(h wire.RequestHeader) []byte {
			return framed(append(wire.AppendInt32(nil, h.CorrelationID), 0, 1))
		},
		"nothing": func(wire.RequestHeader) []byte { return nil },
	} {
		for _, raw := range []bool{false, true} {
			if raw && name == "short body" {
				continue // a raw caller decodes for itself
			}
			var once atomic.Bool
			o := scripted(t, func(h wire.RequestHeader, _ []byte) []byte {
				if h.Key == api.ApiVersions {
					return reply(h, versionsOf(api.Heartbeat))
				}
				if once.Swap(true) {
					return nil // after the cut one
				}
				return bad(h)
			})
			o.MaxFrame = 1 << 20
			c := connect(t, o)
			if name == "cut" {
				go func() { _, _ = c.Call(t.Context(), heartbeatOf("second")) }()
			}
			var err error
			if raw {
				_, _, err = c.CallRaw(t.Context(), 12, 4, heartbeatOf("m").AppendTo(nil))
			} else {
				_, err = c.Call(t.Context(), heartbeatOf("m"))
			}
			if err == nil {
				t.Errorf("%s, raw %v: no error", name, raw)
			}
			<-c.Closed()
		}
	}
}

func TestUnaskedResponse(t *testing.T) {
	o := scripted(t, func(h wire.RequestHeader, _ []byte) []byte {
		return append(reply(h, versionsOf(api.Heartbeat)), framed([]byte{0, 0, 0, 9})...)
	})
	c, err := Dial(t.Context(), o)
	if err == nil { // it may come after Dial is done
		<-c.Closed()
	}
}

func TestLargeResponses(t *testing.T) {
	big := strings.Repeat("x", 30000)
	n := startNode(t, server.Table{api.ListGroups: func(_ context.Context, r *server.Request) {
		resp := kmsg.NewPtrListGroupsResponse()
		for range 100 {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group = big
			resp.Groups = append(resp.Groups, g)
		}
		r.Reply(server.Response{Msg: resp})
	}}, nil)
	c := connect(t, n.options())
	resp, err := c.Call(t.Context(), kmsg.NewPtrListGroupsRequest())
	if err != nil {
		t.Fatal(err)
	}
	groups := resp.(*kmsg.ListGroupsResponse).Groups
	if len(groups) != 100 || groups[99].Group != big {
		t.Errorf("%d groups", len(groups))
	}
}

// saslNode serves SASL PLAIN for one password and counts the logins.
func saslNode(t *testing.T, lifetime time.Duration, logins *atomic.Int32) *node {
	return startNode(t, server.Table{
		api.Heartbeat: echo,
		api.SASLHandshake: func(_ context.Context, r *server.Request) {
			var req kmsg.SASLHandshakeRequest
			if err := r.Decode(&req); err != nil || r.Version != 1 {
				t.Errorf("handshake version %d: %v", r.Version, err)
			}
			resp := kmsg.NewPtrSASLHandshakeResponse()
			resp.SupportedMechanisms = []string{"PLAIN"}
			if req.Mechanism != "PLAIN" {
				resp.ErrorCode = int16(api.UnsupportedSaslMechanism)
			}
			r.Reply(server.Response{Msg: resp})
		},
		api.SASLAuthenticate: func(_ context.Context, r *server.Request) {
			var req kmsg.SASLAuthenticateRequest
			if err := r.Decode(&req); err != nil {
				t.Error(err)
			}
			resp := kmsg.NewPtrSASLAuthenticateResponse()
			resp.SessionLifetimeMillis = lifetime.Milliseconds()
			if string(req.SASLAuthBytes) != "\x00alice\x00secret" {
				msg := "who are you?"
				resp.ErrorCode, resp.ErrorMessage = int16(api.SaslAuthenticationFailed), &msg
			}
			logins.Add(1)
			r.Reply(server.Response{Msg: resp})
		},
	}, nil)
}

func TestSASL(t *testing.T) {
	var logins atomic.Int32
	n := saslNode(t, 0, &logins)
	o := n.options()
	o.SASL = plain.Auth{User: "alice", Pass: "secret"}.AsMechanism()
	c := connect(t, o)
	if _, err := c.Call(t.Context(), heartbeatOf("m")); err != nil || logins.Load() != 1 {
		t.Errorf("%d logins, %v", logins.Load(), err)
	}
	o.SASL = plain.Auth{User: "alice", Pass: "wrong"}.AsMechanism()
	_, err := Dial(t.Context(), o)
	if code, msg := api.CodeOf(err); code != api.SaslAuthenticationFailed || msg != "who are you?" {
		t.Errorf("wrong password: %v", err)
	}
	bare := startNode(t, server.Table{api.Heartbeat: echo}, nil).options()
	bare.SASL = o.SASL
	if _, err := Dial(t.Context(), bare); !errors.Is(err, errNoFrames) {
		t.Errorf("a node without SASL: %v", err)
	}
}

func TestSASLMechanismRefused(t *testing.T) {
	var logins atomic.Int32
	o := saslNode(t, 0, &logins).options()
	o.SASL = renamed{plain.Auth{User: "a", Pass: "b"}.AsMechanism()}
	_, err := Dial(t.Context(), o)
	if code, msg := api.CodeOf(err); code != api.UnsupportedSaslMechanism || !strings.Contains(msg, "PLAIN") {
		t.Errorf("%v", err)
	}
}

// A session that has a lifetime is renewed before it ends (KIP-368).
func TestSASLAgainBeforeTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logins atomic.Int32
		o := saslNode(t, time.Minute, &logins).options()
		o.SASL = plain.Auth{User: "alice", Pass: "secret"}.AsMechanism()
		c := connect(t, o)
		for range 10 {
			time.Sleep(20 * time.Second)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if _, err := c.Call(t.Context(), heartbeatOf("m")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if got := logins.Load(); got != 4 { // at 0, 60, 120 and 180 s
			t.Errorf("%d logins in 200 s with sessions of a minute", got)
		}
	})
}

func TestTLS(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	cfg := web.TLS.Clone()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	web.Close()
	n := startNode(t, server.Table{api.Heartbeat: echo}, func(o *server.Options) {
		o.Listeners[0].Listener = tls.NewListener(o.Listeners[0].Listener, cfg)
	})
	o := n.options()
	o.Addr, o.TLS = "example.com:9092", &tls.Config{RootCAs: roots}
	c := connect(t, o)
	if _, err := c.Call(t.Context(), heartbeatOf("m")); err != nil {
		t.Error(err)
	}
	if o.TLS.ServerName != "" {
		t.Error("the caller's TLS config was changed")
	}
	o.Addr = "other.org:9092"
	if _, err := Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("a name that isn't in the certificate: %v", err)
	}
}

func TestDialFails(t *testing.T) {
	o := Options{Addr: "nowhere:1", Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }}
	if _, err := Dial(t.Context(), o); !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "nowhere:1") {
		t.Errorf("%v", err)
	}
}

func BenchmarkCall(b *testing.B) {
	n := startNode(b, server.Table{api.Heartbeat: echo}, nil)
	c := connect(b, n.options())
	req := heartbeatOf("m")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

type renamed struct{ sasl.Mechanism }

func (renamed) Name() string { return "OTHER" }
