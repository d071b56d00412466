package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/wire"
)

// Listener is a socket to accept connections from, with Kafka's name for it.
type Listener struct {
	net.Listener
	Name     string // such as PLAINTEXT or CONTROLLER
	Protocol string // security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	// MaxConnections bounds the connections of this listener; 0: no bound.
	MaxConnections int
}

// Limits are the bounds on connections that can change while the server runs.
// Zero means no bound.
type Limits struct {
	// MaxConnections is max.connections: when there are as many, new ones wait
	// in the kernel's queue.
	MaxConnections int
	// MaxConnectionsPerIP is max.connections.per.ip: an address that has as many
	// has new ones closed at once.
	MaxConnectionsPerIP int
	// MaxConnectionsPerIPOverrides is max.connections.per.ip.overrides, by
	// address; here 0 means none at all.
	MaxConnectionsPerIPOverrides map[string]int
}

// Options describe a Server.
type Options struct {
	Listeners []Listener
	// Table returns the handlers of a listener, by its name; it is asked once.
	Table func(listener string) Table

	MaxFrame           int32         // socket.request.max.bytes; 0: 100 MiB
	MaxInFlightPerConn int           // requests without a reply before reading stops; 0: 64
	QueuedMaxBytes     int64         // queued.max.request.bytes; 0 or less: no bound
	IdleTimeout        time.Duration // connections.max.idle.ms; 0: 10 minutes; negative: never
	StallTimeout       time.Duration // for a frame that stops arriving half way; 0: 1 minute
	Limits

	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: metrics are kept, not registered
	Metrics    *Metrics              // takes the place of Registerer where several servers count together
	CodePoints api.CodePoints
	Pool       *wire.Pool // nil: one of its own
}

// Server accepts connections on its listeners.
type Server struct {
	o         Options
	log       *slog.Logger
	pool      *wire.Pool
	mem       *budget
	metrics   *metrics
	listeners []*listener
	started   time.Time
	malformed quiet         // the log lines about requests that make no sense
	senders   sync.Pool     // of *sender
	draining  chan struct{} // closed by Shutdown

	mu     sync.Mutex
	limits Limits
	conns  map[*Conn]struct{}
	perIP  map[string]int
	nextID uint64
	change chan struct{} // closed and replaced when a connection goes or limits change
}

// listener is a Listener with its handlers. count is guarded by Server.mu.
type listener struct {
	Listener
	table Table
	count int
}

const (
	defaultMaxFrame     = 100 << 20
	defaultMaxInFlight  = 64
	defaultIdleTimeout  = 10 * time.Minute
	defaultStallTimeout = time.Minute
)

// New checks the options and registers the metrics. The listeners are taken
// over: Shutdown closes them.
func New(o Options) (*Server, error) {
	if len(o.Listeners) == 0 || o.Table == nil {
		return nil, errors.New("server: no listener or no table of handlers")
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxFrame
	}
	if o.MaxInFlightPerConn <= 0 {
		o.MaxInFlightPerConn = defaultMaxInFlight
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Pool == nil {
		o.Pool = new(wire.Pool)
	}
	s := &Server{
		o: o, log: o.Logger, pool: o.Pool, mem: newBudget(o.QueuedMaxBytes), started: time.Now(),
		draining: make(chan struct{}), limits: o.Limits, conns: make(map[*Conn]struct{}),
		perIP: make(map[string]int), change: make(chan struct{}),
	}
	s.senders.New = func() any { return new(sender) }
	seen := make(map[string]bool)
	for _, l := range o.Listeners {
		if seen[l.Name] {
			return nil, fmt.Errorf("server: two listeners have the name %s", l.Name)
		}
		seen[l.Name] = true
		s.listeners = append(s.listeners, &listener{Listener: l, table: o.Table(l.Name)})
	}
	if o.Metrics != nil {
		s.metrics = o.Metrics.metrics
	} else {
		var err error
		if s.metrics, err = newMetrics(o.Registerer); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	s.metrics.budget(s.mem)
	for _, l := range o.Listeners {
		s.metrics.listener(l.Name)
	}
	return s, nil
}

// now returns nanoseconds since the server's start, never 0.
func (s *Server) now() int64 { return int64(time.Since(s.started)) + 1 }

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// Serve accepts connections until Shutdown, then returns nil. It returns an
// error if a listener fails for good; the server still has to be shut down then.
func (s *Server) Serve() error {
	errs := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		go func() { errs <- s.accept(l) }()
	}
	stop := make(chan struct{})
	defer close(stop)
	go s.sweep(stop)
	for range s.listeners {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// Shutdown closes the listeners, stops reading requests, and waits until the
// replies to those in flight have been written or ctx ends; then it closes what
// is left. The error is ctx's if connections had to be cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.isDraining() {
		close(s.draining)
	}
	conns := s.snapshot()
	s.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.Close() // closed twice at worst
	}
	for _, c := range conns {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails on a closed one only
	}
	err := s.waitEmpty(ctx)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	conns = s.snapshot()
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	return err
}

// snapshot returns the open connections; s.mu is held.
func (s *Server) snapshot() []*Conn {
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

func (s *Server) waitEmpty(ctx context.Context) error {
	for {
		s.mu.Lock()
		n, change := len(s.conns), s.change
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%d connections cut at shutdown: %w", n, ctx.Err())
		}
	}
}

// SetLimits changes the bounds on connections. Those there are stay.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
	s.changed()
}

// CloseConns closes the connections for which fn says so. fn must neither block nor call the server.
func (s *Server) CloseConns(fn func(*Conn) bool) {
	s.mu.Lock()
	conns := s.snapshot()
	s.mu.Unlock()
	for _, c := range conns {
		if fn(c) {
			c.Close()
		}
	}
}

// changed wakes those who wait for s.change; s.mu is held.
func (s *Server) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) accept(l *listener) error {
	const pause = 100 * time.Millisecond // after an error such as too many open files
	for {
		if !s.waitForSlot(l) {
			return nil
		}
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.admit(l, nc)
		case s.isDraining():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listener %s: %w", l.Name, err)
		default:
			s.log.Warn("accepting a connection failed; trying again", slog.String("listener", l.Name), slog.Any("error", err))
			select {
			case <-time.After(pause):
			case <-s.draining:
				return nil
			}
		}
	}
}

// waitForSlot waits until the limits allow another connection; false at
// shutdown.
func (s *Server) waitForSlot(l *listener) bool {
	for {
		s.mu.Lock()
		ok := (s.limits.MaxConnections <= 0 || len(s.conns) < s.limits.MaxConnections) &&
			(l.MaxConnections <= 0 || l.count < l.MaxConnections)
		change := s.change
		s.mu.Unlock()
		if ok {
			return !s.isDraining()
		}
		select {
		case <-change:
		case <-s.draining:
			return false
		}
	}
}

func (s *Server) newConn(l *listener, nc net.Conn) *Conn {
	ip := nc.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(ip); err == nil {
		ip = host
	}
	c := &Conn{srv: s, nc: nc, listener: l, ip: ip, closed: make(chan struct{}), br: bufio.NewReaderSize(nc, readBuffer)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lastActive.Store(s.now())
	return c
}

// admit starts serving a connection, unless its address has too many.
func (s *Server) admit(l *listener, nc net.Conn) {
	c := s.newConn(l, nc)
	ip := c.ip
	s.mu.Lock()
	limit, bounded := s.limits.MaxConnectionsPerIPOverrides[ip]
	if !bounded && s.limits.MaxConnectionsPerIP > 0 {
		limit, bounded = s.limits.MaxConnectionsPerIP, true
	}
	refused := bounded && s.perIP[ip] >= limit
	if refused || s.isDraining() {
		s.mu.Unlock()
		c.cancel()
		_ = nc.Close()
		if refused {
			s.metrics.refused.WithLabelValues(l.Name).Inc()
			s.log.Info("connection refused: too many from this address (max.connections.per.ip)",
				slog.String("client", ip), slog.Int("limit", limit), slog.String("listener", l.Name))
		}
		return
	}
	s.nextID++
	c.id = s.nextID
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	l.count++
	s.mu.Unlock()
	s.metrics.created.WithLabelValues(l.Name).Inc()
	s.metrics.connections.WithLabelValues(l.Name).Inc()
	go c.serve()
}

// removed forgets a connection that is over.
func (s *Server) removed(c *Conn) {
	s.metrics.closed.WithLabelValues(c.listener.Name).Inc()
	s.metrics.connections.WithLabelValues(c.listener.Name).Dec()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
		delete(s.perIP, c.ip)
	}
	c.listener.count--
	s.changed()
}

// sweep closes connections on which nothing moves. One goroutine looking at all
// of them costs less than a deadline for each read.
func (s *Server) sweep(stop <-chan struct{}) {
	every := s.o.StallTimeout
	if s.o.IdleTimeout > 0 {
		every = min(every, s.o.IdleTimeout)
	}
	t := time.NewTicker(max(every/4, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-stop:
			return
		}
		s.mu.Lock()
		conns := s.snapshot()
		s.mu.Unlock()
		contended, now := s.mem.contended(), s.now()
		for _, c := range conns {
			if why := c.overdue(now, contended); why != "" {
				s.metrics.expired.WithLabelValues(c.listener.Name).Inc()
				s.log.Debug("connection closed", slog.String("reason", why),
					slog.String("client", c.nc.RemoteAddr().String()), slog.String("listener", c.listener.Name))
				c.Close()
			}
		}
	}
}

// frameRate is the least bytes per second at which a frame has to arrive, after
// StallTimeout, while other frames wait for the memory it holds.
const frameRate = 64 << 10

// overdue says why the connection should be closed for lack of movement, or
// nothing.
func (c *Conn) overdue(now int64, contended bool) string {
	idle, stall := int64(c.srv.o.IdleTimeout), int64(c.srv.o.StallTimeout)
	if w := c.writeMoved.Load(); w != 0 && idle > 0 {
		if now-w > idle {
			return "the client does not read its replies"
		}
		return ""
	}
	switch c.reader.Load() {
	case readerFrame:
		if now-c.frameMoved.Load() > stall {
			return "a request stopped arriving half way"
		}
		allowed := stall + c.frameSize.Load()*int64(time.Second)/frameRate
		if contended && now-c.frameStarted.Load() > allowed {
			return "a request arrives too slowly while memory is short (queued.max.request.bytes)"
		}
	case readerIdle:
		c.mu.Lock()
		pending := c.pending
		c.mu.Unlock()
		if idle > 0 && pending == 0 && now-c.lastActive.Load() > idle {
			return "idle (connections.max.idle.ms)"
		}
	}
	return ""
}
