package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/wire"
)

// readBuffer is the size of a connection's read buffer: requests below it are
// read with one system call, larger ones go to their frame directly.
const readBuffer = 4 << 10

// minRequest is the length of the shortest request: key, version, correlation.
const minRequest = 8

// What the reader is doing, for the sweep.
const (
	readerIdle    int32 = iota // waits for the first byte of a frame
	readerFrame                // reads a frame
	readerWorking              // is in a handler, or waits for room or memory
)

// Conn is a client's connection.
type Conn struct {
	srv      *Server
	nc       net.Conn
	listener *listener
	ip       string // for the limit per address
	id       uint64
	ctx      context.Context
	cancel   context.CancelFunc
	closed   chan struct{}
	once     sync.Once

	principal atomic.Pointer[string]
	software  atomic.Pointer[[2]string]

	// For the sweep: nanoseconds since the server's start.
	reader       atomic.Int32
	lastActive   atomic.Int64 // last frame or reply
	frameStarted atomic.Int64
	frameMoved   atomic.Int64 // last bytes of the frame being read
	frameSize    atomic.Int64
	writeMoved   atomic.Int64 // start of the write under way; 0: none

	// Owned by the reader.
	br       *bufio.Reader
	lenBuf   [4]byte
	clientID string

	mu         sync.Mutex // never held across a wait
	head, tail *Request   // requests in order; the reply to head is the next to leave
	pending    int        // their number
	writing    bool       // somebody is in flush
	inReader   bool       // the reader will flush: a reply need not start a writer
	readerDone bool
	dead       bool          // closed: the queue is gone, replies are dropped as they come
	gone       bool          // all is over, the server has been told
	room       chan struct{} // not nil: the reader waits until pending falls
}

// ListenerName returns the name of the listener it came by.
func (c *Conn) ListenerName() string { return c.listener.Name }

// Protocol returns the security protocol of that listener.
func (c *Conn) Protocol() string { return c.listener.Protocol }

// anonymous is the principal of a connection that has not authenticated.
const anonymous = "User:ANONYMOUS"

// Principal returns who is at the other end, User:ANONYMOUS if nobody said.
func (c *Conn) Principal() string {
	if p := c.principal.Load(); p != nil {
		return *p
	}
	return anonymous
}

// SetPrincipal says who is at the other end.
func (c *Conn) SetPrincipal(p string) { c.principal.Store(&p) }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr returns the address the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// ID returns a number that no other connection of the server has or had.
func (c *Conn) ID() uint64 { return c.id }

// ClientSoftware returns what the client said of itself (KIP-511), empty if
// nothing.
func (c *Conn) ClientSoftware() (name, version string) {
	if s := c.software.Load(); s != nil {
		return s[0], s[1]
	}
	return "", ""
}

// SetClientSoftware records what the client said of itself.
func (c *Conn) SetClientSoftware(name, version string) {
	c.software.Store(&[2]string{name, version})
}

// Closed is closed when the connection is.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

func (c *Conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Close closes the connection; replies in flight are dropped.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.closed)
		c.cancel()
		_ = c.nc.Close() // nothing is left to lose
		c.mu.Lock()
		c.dead = true
		first := c.head
		c.head, c.tail, c.pending = nil, nil, 0
		var ready []*Request
		for r := first; r != nil; r = r.next {
			if r.done {
				ready = append(ready, r)
			}
		}
		c.wakeReader()
		c.mu.Unlock()
		for _, r := range ready {
			r.drop()
		}
	})
	c.settle()
}

// wakeReader lets the reader go on if it waits for room; c.mu is held.
func (c *Conn) wakeReader() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// settle closes the connection when it has been read to its end and answered,
// and tells the server when all is over.
func (c *Conn) settle() {
	c.mu.Lock()
	if !c.readerDone || c.writing {
		c.mu.Unlock()
		return
	}
	dead, idle, gone := c.dead, c.pending == 0, c.gone
	if dead {
		c.gone = true
	}
	c.mu.Unlock()
	switch {
	case !dead && idle:
		c.Close()
	case dead && !gone:
		c.srv.removed(c)
	}
}

// serve is the reader: it runs until the connection or the server ends.
func (c *Conn) serve() {
	err := c.readRequests()
	if !errors.Is(err, errDraining) {
		c.logEnd(err)
		c.Close()
	}
	c.mu.Lock()
	c.readerDone = true
	c.mu.Unlock()
	c.sendReady()
	c.settle()
}

var (
	errDraining  = errors.New("the server is shutting down")
	errMalformed = errors.New("malformed request")
	errPanic     = errors.New("a handler failed")
)

// noteMalformed counts and logs a request whose body makes no sense.
func (c *Conn) noteMalformed(err error) {
	if c.srv == nil {
		return
	}
	c.logMalformed("malformed request", err)
}

// logMalformed counts a request that makes no sense, and logs it unless one was logged a moment ago.
func (c *Conn) logMalformed(msg string, err error) {
	c.srv.metrics.malformed.WithLabelValues(c.listener.Name).Inc()
	held, pass := c.srv.malformed.pass(c.srv.now(), err.Error())
	if !pass {
		return
	}
	attrs := c.logAttrs(err)
	if held > 0 {
		attrs = append(attrs, slog.Int64("not_logged", held))
	}
	c.srv.log.LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...) //nolint:sloglint // one of two constants
}

func (c *Conn) logAttrs(err error) []slog.Attr {
	return []slog.Attr{
		slog.String("client", c.nc.RemoteAddr().String()), slog.String("client_id", c.clientID),
		slog.String("listener", c.listener.Name), slog.Any("error", err),
	}
}

// logEnd says why a connection is closed, as loudly as the reason deserves.
func (c *Conn) logEnd(err error) {
	if c.isClosed() || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	if errors.Is(err, errMalformed) {
		c.logMalformed("connection closed", err)
		return
	}
	level := slog.LevelDebug
	if errors.Is(err, errPanic) {
		level = slog.LevelError
	}
	c.srv.log.LogAttrs(context.Background(), level, "connection closed", c.logAttrs(err)...)
}

func (c *Conn) readRequests() error {
	for {
		if err := c.waitForRoom(); err != nil {
			return err
		}
		r, err := c.readFrame()
		if err != nil {
			return err
		}
		h, err := c.route(r)
		if err != nil {
			r.releaseFrame(true)
			return err
		}
		if err := c.handle(h, r); err != nil {
			return err
		}
	}
}

// waitForRoom returns when the number of requests without a reply allows
// another one.
func (c *Conn) waitForRoom() error {
	for {
		c.mu.Lock()
		if c.pending < c.srv.o.MaxInFlightPerConn {
			c.mu.Unlock()
			return nil
		}
		room := make(chan struct{})
		c.room = room
		c.mu.Unlock()
		c.sendReady()
		select {
		case <-room:
		case <-c.srv.draining:
			return errDraining
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

// readFrame reads the next frame. The request it returns has the frame only.
func (c *Conn) readFrame() (*Request, error) {
	c.reader.Store(readerIdle)
	if _, err := io.ReadFull(c.br, c.lenBuf[:]); err != nil {
		return nil, c.readError(err)
	}
	size := int32(binary.BigEndian.Uint32(c.lenBuf[:]))
	if size < minRequest || size > c.srv.o.MaxFrame {
		return nil, fmt.Errorf("%w: frame of %d bytes, allowed are %d to %d (socket.request.max.bytes)",
			errMalformed, size, minRequest, c.srv.o.MaxFrame)
	}
	c.reader.Store(readerWorking)
	if !c.srv.mem.tryAcquire(int64(size)) {
		c.sendReady()
		if !c.srv.mem.acquire(int64(size), c.closed) {
			return nil, net.ErrClosed
		}
	}
	r := &Request{Conn: c, size: int64(size), frame: c.srv.pool.Get(int(size))}
	now := c.srv.now()
	c.lastActive.Store(now)
	c.frameStarted.Store(now)
	c.frameMoved.Store(now)
	c.frameSize.Store(int64(size))
	c.reader.Store(readerFrame)
	for b := r.frame.B; len(b) > 0; {
		n, err := c.br.Read(b)
		if b = b[n:]; len(b) == 0 {
			break
		}
		if err != nil {
			r.releaseFrame(true)
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%d bytes before the end of a frame of %d: %w", len(b), size, io.ErrUnexpectedEOF)
			}
			return nil, c.readError(err)
		}
		c.frameMoved.Store(c.srv.now())
	}
	c.reader.Store(readerWorking)
	r.Received = time.Now()
	return r, nil
}

// readError tells the end of the server from that of the connection.
func (c *Conn) readError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.srv.isDraining() {
		return errDraining
	}
	return err
}

// route parses the header and finds the handler.
func (c *Conn) route(r *Request) (Handler, error) {
	h, body, err := wire.ParseRequestHeader(r.frame.B, c.srv.o.CodePoints)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	handler, ok := c.listener.table[h.Key]
	if !ok {
		return nil, fmt.Errorf("%w: %s is not served on listener %s", errMalformed, h.Row.Name, c.listener.Name)
	}
	r.metrics = c.srv.metrics.forAPI(h.Row)
	switch {
	case h.Row.Serves(h.Version):
		r.metrics.version(h.Version).Inc()
	case h.Key == api.ApiVersions, h.Version >= h.Row.AdvertisedMin && h.Version < h.Row.Min:
		r.UnsupportedVersion = true
	default:
		r.metrics.code(api.UnsupportedVersion).Inc()
		return nil, fmt.Errorf("%w: version %d of %s, served are %d to %d",
			errMalformed, h.Version, h.Row.Name, h.Row.Min, h.Row.Max)
	}
	r.metrics.bytesIn.Add(float64(r.size))
	if string(h.ClientID) != c.clientID { // most often it is the same, and costs no allocation
		c.clientID = string(h.ClientID)
	}
	r.Key, r.Version, r.CorrelationID, r.ClientID = h.Key, h.Version, h.CorrelationID, c.clientID
	r.Row, r.Body = h.Row, body
	return handler, nil
}

// handle runs the handler and sends what is ready.
func (c *Conn) handle(h Handler, r *Request) error {
	c.mu.Lock()
	if c.tail == nil {
		c.head = r
	} else {
		c.tail.next = r
	}
	c.tail = r
	c.pending++
	c.inReader = true
	c.mu.Unlock()

	r.started = time.Since(r.Received)
	err := c.call(h, r)
	r.returned.Store(int64(max(time.Since(r.Received), 1)))
	if err != nil {
		if r.replied.CompareAndSwap(false, true) {
			r.releaseFrame(false)
		}
		return err
	}
	if c.nextIsHere() {
		return nil // its reply may leave together with this one
	}
	c.sendReady()
	return nil
}

// call runs the handler and turns a panic into an error.
func (c *Conn) call(h Handler, r *Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s version %d: %v\n%s", errPanic, r.Row.Name, r.Version, p, debug.Stack())
		}
	}()
	h(c.ctx, r)
	return nil
}

// nextIsHere reports whether the read buffer holds the whole next frame.
func (c *Conn) nextIsHere() bool {
	n := c.br.Buffered()
	if n < 4 {
		return false
	}
	b, err := c.br.Peek(4)
	if err != nil {
		return false
	}
	size := int32(binary.BigEndian.Uint32(b))
	return size >= minRequest && int(size) <= n-4
}

// sendReady sends the replies that are ready, on the reader's goroutine, and
// leaves later ones to whoever makes them.
func (c *Conn) sendReady() {
	c.mu.Lock()
	c.inReader = false
	write := c.startWriting()
	c.mu.Unlock()
	if write {
		c.flush()
	}
}

// finish notes that r's reply is ready, and sees to its being sent.
func (c *Conn) finish(r *Request) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		r.drop()
		return
	}
	r.done = true
	write := !c.inReader && c.startWriting()
	c.mu.Unlock()
	if write {
		go c.flush()
	}
}
