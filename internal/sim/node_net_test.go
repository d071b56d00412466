//go:build synctests

package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"milena/internal/deadline"
)

// network is one in memory: byte streams whose every delivery takes a seeded time, between hosts that can be cut off from each
// other one way or both. What is under way on a cut line stays there until it is whole again, as TCP would send it again.
type network struct {
	mu        sync.Mutex // guards all below; never held across a wait
	rnd       *rand.Rand
	listeners map[string]*simListener
	ends      map[*simConn]bool
	cut       map[[2]string]bool
	delay     time.Duration            // the most that a delivery ordinarily takes
	slow      float64                  // share of deliveries that take up to slowBy more
	busy      map[string]time.Duration // the most that hosts take for what comes to them, on top
	ips       map[string]byte
	port      int
}

const (
	lineDelay   = 2 * time.Millisecond
	streamBytes = 256 << 10 // written and not yet read, before a writer waits
)

func newNetwork(seed uint64) *network {
	return &network{
		rnd: rand.New(rand.NewPCG(seed, 77)), listeners: map[string]*simListener{}, ends: map[*simConn]bool{}, cut: map[[2]string]bool{},
		delay: lineDelay, busy: map[string]time.Duration{}, ips: map[string]byte{}, port: 30000,
	}
}

// take is how long a delivery to a host takes.
func (n *network) take(to string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := 20*time.Microsecond + time.Duration(n.rnd.Int64N(int64(n.delay)))
	if n.slow > 0 && n.rnd.Float64() < n.slow {
		d += time.Duration(n.rnd.Int64N(int64(slowBy)))
	}
	if most := n.busy[to]; most > 0 {
		d += time.Duration(n.rnd.Int64N(int64(most)))
	}
	return d
}

func (n *network) isCut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[[2]string{from, to}]
}

// change changes the lines and has everyone who waits look again.
func (n *network) change(fn func()) {
	n.mu.Lock()
	fn()
	ends := make([]*simConn, 0, len(n.ends))
	for c := range n.ends {
		ends = append(ends, c)
	}
	n.mu.Unlock()
	for _, c := range ends {
		c.in.poke()
	}
}

// reset breaks all connections of a host, or those between two.
func (n *network) reset(host, other string) {
	n.mu.Lock()
	var ends []*simConn
	for c := range n.ends {
		if c.host == host && (other == "" || c.peer == other) {
			ends = append(ends, c)
		}
	}
	n.mu.Unlock()
	for _, c := range ends {
		c.in.fail(broken("read"))
		c.out.fail(broken("write"))
	}
}

// broken is the error of a connection that was reset, as package net has it.
func broken(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, syscall.ECONNRESET)}
}

// down takes a host off the network: nobody hears from it again until it listens anew.
func (n *network) down(host string) {
	n.mu.Lock()
	var ls []*simListener
	for _, l := range n.listeners {
		if l.host == host {
			ls = append(ls, l)
		}
	}
	n.mu.Unlock()
	for _, l := range ls {
		_ = l.Close()
	}
	n.reset(host, "")
}

func (n *network) addr(host string) *net.TCPAddr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ips[host] == 0 {
		n.ips[host] = byte(len(n.ips) + 1)
	}
	n.port++
	return &net.TCPAddr{IP: net.IPv4(10, 0, 0, n.ips[host]), Port: n.port}
}

type simListener struct {
	n      *network
	name   string
	host   string
	addr   *net.TCPAddr
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// listen returns the Listen function of a host.
func (n *network) listen(host string) func(network, addr string) (net.Listener, error) {
	return func(_, addr string) (net.Listener, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		at := n.addr(host)
		at.Port, err = strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		l := &simListener{n: n, name: net.JoinHostPort(host, port), host: host, addr: at, accept: make(chan net.Conn, 128), closed: make(chan struct{})}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.listeners[l.name] != nil {
			return nil, syscall.EADDRINUSE
		}
		n.listeners[l.name] = l
		return l, nil
	}
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Addr() net.Addr { return l.addr }

func (l *simListener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		if l.n.listeners[l.name] == l {
			delete(l.n.listeners, l.name)
		}
		l.n.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// dialer returns the Dial function of a host.
func (n *network) dialer(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		wait := n.take(to) + n.take(host)
		if n.isCut(host, to) || n.isCut(to, host) {
			wait = 3 * time.Second
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
		}
		if n.isCut(host, to) || n.isCut(to, host) {
			return nil, &net.OpError{Op: "dial", Net: "sim", Err: os.ErrDeadlineExceeded}
		}
		n.mu.Lock()
		l := n.listeners[addr]
		n.mu.Unlock()
		refused := &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
		if l == nil {
			return nil, refused
		}
		near, far := n.connect(host, to, l.addr)
		select {
		case l.accept <- far:
			return near, nil
		case <-l.closed:
			return nil, refused
		default:
			return nil, refused
		}
	}
}

func (n *network) connect(host, to string, at *net.TCPAddr) (near, far *simConn) {
	there, back := newStream(n, host, to), newStream(n, to, host)
	local := n.addr(host)
	near = &simConn{n: n, host: host, peer: to, in: back, out: there, local: local, remote: at}
	far = &simConn{n: n, host: to, peer: host, in: there, out: back, local: at, remote: local}
	n.mu.Lock()
	n.ends[near], n.ends[far] = true, true
	n.mu.Unlock()
	return near, far
}

// stream is one direction of a connection.
type stream struct {
	n        *network
	from, to string

	mu      sync.Mutex
	chunks  []chunk
	size    int
	last    time.Time // delivery of the last chunk
	closed  bool      // by the writer: what was written is still read
	err     error     // broken
	changed chan struct{}
}

type chunk struct {
	at time.Time
	b  []byte
}

func newStream(n *network, from, to string) *stream {
	return &stream{n: n, from: from, to: to, changed: make(chan struct{})}
}

// poke has those who wait look again.
func (s *stream) poke() {
	s.mu.Lock()
	s.pokeLocked()
	s.mu.Unlock()
}

func (s *stream) pokeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.pokeLocked()
	s.mu.Unlock()
}

func (s *stream) end() {
	s.mu.Lock()
	s.closed = true
	s.pokeLocked()
	s.mu.Unlock()
}

// wait waits for a change, a moment (zero: none), or a deadline.
func wait(changed <-chan struct{}, at time.Time, d *deadline.Deadline) error {
	past, moved := d.Watch()
	var due <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-changed:
	case <-due:
	case <-moved:
	case <-past:
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (s *stream) read(p []byte, d *deadline.Deadline) (int, error) {
	for {
		cut := s.n.isCut(s.from, s.to)
		s.mu.Lock()
		if s.err != nil {
			defer s.mu.Unlock()
			return 0, s.err
		}
		var at time.Time
		if len(s.chunks) > 0 && !cut {
			c := &s.chunks[0]
			if at = c.at; !at.After(time.Now()) {
				k := copy(p, c.b)
				if c.b = c.b[k:]; len(c.b) == 0 {
					s.chunks = s.chunks[1:]
				}
				s.size -= k
				s.pokeLocked()
				s.mu.Unlock()
				return k, nil
			}
		} else if s.closed && len(s.chunks) == 0 {
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.changed
		s.mu.Unlock()
		if err := wait(changed, at, d); err != nil {
			return 0, err
		}
	}
}

func (s *stream) write(p []byte, d *deadline.Deadline) (int, error) {
	for {
		take := s.n.take(s.to)
		s.mu.Lock()
		switch {
		case s.err != nil:
			defer s.mu.Unlock()
			return 0, s.err
		case s.closed:
			s.mu.Unlock()
			return 0, net.ErrClosed
		case s.size < streamBytes:
			at := time.Now().Add(take)
			if !at.After(s.last) {
				at = s.last.Add(time.Nanosecond)
			}
			s.last = at
			s.chunks = append(s.chunks, chunk{at, append([]byte(nil), p...)})
			s.size += len(p)
			s.pokeLocked()
			s.mu.Unlock()
			return len(p), nil
		}
		changed := s.changed
		s.mu.Unlock()
		if err := wait(changed, time.Time{}, d); err != nil {
			return 0, err
		}
	}
}

// simConn is one end of a connection.
type simConn struct {
	n             *network
	host, peer    string
	in, out       *stream
	local, remote net.Addr
	rd, wd        deadline.Deadline
	once          sync.Once
	closed        atomic.Bool
}

// Read implements net.Conn.
func (c *simConn) Read(p []byte) (int, error) { return c.mine(c.in.read(p, &c.rd)) }

// Write implements net.Conn.
func (c *simConn) Write(p []byte) (int, error) { return c.mine(c.out.write(p, &c.wd)) }

// mine tells a connection that was closed here from one that the other end broke.
func (c *simConn) mine(n int, err error) (int, error) {
	if err != nil && c.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}

func (c *simConn) LocalAddr() net.Addr  { return c.local }
func (c *simConn) RemoteAddr() net.Addr { return c.remote }

func (c *simConn) Close() error {
	c.once.Do(func() {
		c.n.mu.Lock()
		delete(c.n.ends, c)
		c.n.mu.Unlock()
		c.out.end()
		c.closed.Store(true)
		c.in.fail(broken("write"))
	})
	return nil
}

func (c *simConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *simConn) SetReadDeadline(t time.Time) error  { c.rd.Set(t); return nil }
func (c *simConn) SetWriteDeadline(t time.Time) error { c.wd.Set(t); return nil }
