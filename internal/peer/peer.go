// Package peer is a client connection to a Kafka node: another broker, the
// controller, or a broker of a source cluster.
//
// Calls are pipelined: each is written as it comes, and responses are matched by
// order, which Kafka promises; a response with another correlation id than the
// oldest open call's ends the connection. Versions are negotiated once per
// connection (KIP-511), SASL runs before the first call and again before the
// session's lifetime is over (KIP-368).
//
// A connection that failed stays failed: the owner dials a new one.
package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"milena/internal/api"
	"milena/internal/wire"
)

// Options describe a connection.
type Options struct {
	// Dial opens the connection; nil: net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Addr string // host:port
	// TLS, if not nil, encrypts; its ServerName defaults to Addr's host.
	TLS *tls.Config
	// SASL, if not nil, authenticates.
	SASL     sasl.Mechanism
	ClientID string

	MaxFrame       int32         // largest response; 0: 128 MiB
	RequestTimeout time.Duration // for a response, unless the context ends sooner; 0: 30 s
	Logger         *slog.Logger  // nil: none
	Pool           *wire.Pool    // of frames; nil: one of its own

	// CodePoints are the numbers of mirror APIs to use if the other side doesn't
	// serve them under Milena's own (spec D11).
	CodePoints api.CodePoints
}

const (
	defaultMaxFrame       = 128 << 20
	defaultRequestTimeout = 30 * time.Second
)

// ErrClosed says that the connection was closed, here or by the other side.
var ErrClosed = errors.New("connection is closed")

// ErrTimeout says that a response stayed out for longer than RequestTimeout.
var ErrTimeout = errors.New("no response in time")

// VersionRange bounds the versions of an API that the other side serves.
type VersionRange struct{ Min, Max int16 }

// Conn is an open connection. All methods are for any goroutine.
type Conn struct {
	o        Options
	nc       net.Conn
	log      *slog.Logger
	pool     *wire.Pool
	clientID *string
	versions map[int16]VersionRange // immutable after Dial, as is points
	points   api.CodePoints
	closed   chan struct{}

	// turn holds a token while nobody writes; a channel, since its holder waits
	// for the network. It guards nextID and reauth.
	turn   chan struct{}
	nextID int32
	reauth time.Time // when to authenticate again; zero: never

	mu    sync.Mutex // never held across a wait
	calls []*call    // open calls, oldest first
	err   error      // why the connection is closed
}

// call is a request that was sent.
type call struct {
	id       int32
	key      api.Key // by Milena's numbers
	flexible bool
	pooled   bool // the response goes into a pooled buffer

	done  chan struct{} // closed when buf or err is set
	began time.Time     // when its response began to come
	ended time.Time     // when it was there
	frame []byte        // without the length
	buf   *wire.Buf     // that frame is in, if pooled
	err   error
	owner chan struct{} // holds a token until the caller or the reader takes the result
}

// Dial connects, negotiates versions and authenticates. The error names the
// address and says what failed; one of SASL is an *api.Error if the other side
// gave a code.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxFrame
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Pool == nil {
		o.Pool = new(wire.Pool)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	nc, err := open(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	c := &Conn{o: o, nc: nc, log: o.Logger, pool: o.Pool, closed: make(chan struct{}), turn: make(chan struct{}, 1)}
	if o.ClientID != "" {
		c.clientID = &o.ClientID
	}
	c.turn <- struct{}{}
	go c.read()
	if err := c.setUp(ctx); err != nil {
		c.fail(err)
		return nil, fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	return c, nil
}

// open dials and does the TLS handshake.
func open(ctx context.Context, o *Options) (net.Conn, error) {
	nc, err := o.Dial(ctx, "tcp", o.Addr)
	if err != nil || o.TLS == nil {
		return nc, err
	}
	cfg := o.TLS
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(o.Addr)
		if err != nil {
			host = o.Addr
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close() // the handshake's error says more
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return tc, nil
}

// setUp negotiates versions and authenticates, before anybody else has c.
func (c *Conn) setUp(ctx context.Context) error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if err := c.negotiate(ctx); err != nil {
		return fmt.Errorf("ApiVersions: %w", err)
	}
	if c.o.SASL != nil {
		if err := c.authenticate(ctx); err != nil {
			return fmt.Errorf("SASL %s: %w", c.o.SASL.Name(), err)
		}
	}
	return nil
}

// Addr returns the address that was dialled.
func (c *Conn) Addr() string { return c.o.Addr }

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Closed is closed when the connection is.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Close closes the connection; calls in flight fail with ErrClosed. It returns
// nil; the second time it does nothing.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

// fail closes the connection for the reason err; the first reason stays.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	calls := c.calls
	c.calls = nil
	close(c.closed)
	c.mu.Unlock()
	_ = c.nc.Close() // nothing is left to lose
	for _, call := range calls {
		call.finish(nil, nil, c.reason())
	}
}

// reason returns the error of calls on a connection that is closed.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, ErrClosed) {
		return c.err
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.err)
}

// Call sends a request at the newest version both sides know and returns the
// response. The request's version is set. Nothing in the response aliases a
// pooled buffer. A context that ends gives up the call, not the connection; a
// response that stays out for RequestTimeout closes the connection.
func (c *Conn) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	key := api.Key(req.Key())
	wireKey := c.points.WireKey(key)
	version, err := c.MaxVersion(wireKey, 0, req.MaxVersion())
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	frame, _, err := c.roundTrip(ctx, wireKey, version, req.IsFlexible(), false, req.AppendTo)
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", key, c.o.Addr, err)
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := resp.ReadFrom(frame); err != nil {
		err = fmt.Errorf("malformed response to %s version %d from %s: %w", key, version, c.o.Addr, err)
		c.fail(err)
		return nil, err
	}
	return resp, nil
}

// CallRaw sends a body for which the caller has chosen the version, and returns
// the response's body in a pooled buffer, valid until release is called. key is
// the number on the wire, of an API in [api.Table].
func (c *Conn) CallRaw(ctx context.Context, key, version int16, body []byte) (resp []byte, release func(), err error) {
	row, ok := api.Lookup(c.points.Key(key))
	if !ok {
		return nil, nil, api.Errorf(api.UnsupportedVersion, "api key %d is not known here", key)
	}
	resp, buf, err := c.roundTrip(ctx, key, version, row.IsFlexible(version), true,
		func(b []byte) []byte { return append(b, body...) })
	if err != nil {
		return nil, nil, fmt.Errorf("%s to %s: %w", row.Name, c.o.Addr, err)
	}
	return resp, buf.Release, nil
}

// Versions returns what the other side serves, by key on its wire. It must not
// be changed.
func (c *Conn) Versions() map[int16]VersionRange { return c.versions }

// CodePoints returns the numbers that mirror APIs and mirror errors have on this
// connection: Milena's own if the other side serves such an API, else those of
// the options.
func (c *Conn) CodePoints() api.CodePoints { return c.points }

// MaxVersion returns the newest version of key that both sides know, given
// that this side knows low to high. The error is an *api.Error with
// UNSUPPORTED_VERSION.
func (c *Conn) MaxVersion(key, low, high int16) (int16, error) {
	r, ok := c.versions[key]
	if !ok {
		return 0, api.Errorf(api.UnsupportedVersion, "%s does not serve %s (api key %d)",
			c.o.Addr, c.points.Key(key), key)
	}
	v := min(r.Max, high)
	if v < r.Min || v < low {
		return 0, api.Errorf(api.UnsupportedVersion, "%s serves versions %d to %d of %s, this side knows %d to %d",
			c.o.Addr, r.Min, r.Max, c.points.Key(key), low, high)
	}
	return v, nil
}
