package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"milena/internal/deadline"
)

// NewMemListener returns a listener whose connections never leave the process,
// and the function that dials it. Each direction buffers up to 64 KiB, so that
// a writer rarely waits for a reader. Dialling waits until the connection is
// accepted.
func NewMemListener() (net.Listener, func(ctx context.Context) (net.Conn, error)) {
	l := &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return l, l.dial
}

type memListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type memAddr struct{}

func (memAddr) Network() string { return "mem" }
func (memAddr) String() string  { return "in-process" }

func (l *memListener) dial(ctx context.Context) (net.Conn, error) {
	client, served := newMemConn()
	select {
	case l.conns <- served:
		return client, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial in-process listener: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("dial in-process listener: %w", ctx.Err())
	}
}

// Accept implements net.Listener.
func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *memListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *memListener) Addr() net.Addr { return memAddr{} }

// memBuffer is how much one direction of a connection holds.
const memBuffer = 64 << 10

// memConn is one end of an in-process connection.
type memConn struct {
	in, out                     *memHalf
	readDeadline, writeDeadline deadline.Deadline
}

func newMemConn() (a, b net.Conn) {
	x, y := newMemHalf(), newMemHalf()
	return &memConn{in: x, out: y}, &memConn{in: y, out: x}
}

func (c *memConn) Read(p []byte) (int, error)  { return c.in.read(p, &c.readDeadline) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.write(p, &c.writeDeadline) }

// Close closes both directions; the other end can still read what was written.
func (c *memConn) Close() error {
	c.in.closeRead()
	c.out.closeWrite()
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return memAddr{} }

func (c *memConn) SetDeadline(t time.Time) error {
	c.readDeadline.Set(t)
	c.writeDeadline.Set(t)
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.readDeadline.Set(t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.Set(t)
	return nil
}

// memHalf carries bytes one way. Waiting is on channels, never on the mutex.
type memHalf struct {
	mu          sync.Mutex
	buf         []byte // not read yet; its backing array is dropped when empty
	writeClosed bool
	readClosed  bool
	change      chan struct{} // closed and replaced whenever something above changes; nil: nobody waits
}

func newMemHalf() *memHalf { return &memHalf{} }

// wait returns the channel of the next change; h.mu is held.
func (h *memHalf) wait() <-chan struct{} {
	if h.change == nil {
		h.change = make(chan struct{})
	}
	return h.change
}

// wake tells everybody who waits; h.mu is held.
func (h *memHalf) wake() {
	if h.change != nil {
		close(h.change)
		h.change = nil
	}
}

func (h *memHalf) read(p []byte, d *deadline.Deadline) (int, error) {
	for {
		expired, moved := d.Watch()
		h.mu.Lock()
		switch {
		case h.readClosed:
			h.mu.Unlock()
			return 0, net.ErrClosed
		case isClosed(expired):
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(h.buf) > 0 || len(p) == 0:
			n := copy(p, h.buf)
			if h.buf = h.buf[n:]; len(h.buf) == 0 {
				h.buf = nil
			}
			h.wake()
			h.mu.Unlock()
			return n, nil
		case h.writeClosed:
			h.mu.Unlock()
			return 0, io.EOF
		}
		change := h.wait()
		h.mu.Unlock()
		select {
		case <-change:
		case <-expired:
		case <-moved:
		}
	}
}

func (h *memHalf) write(p []byte, d *deadline.Deadline) (int, error) {
	done := 0
	for {
		expired, moved := d.Watch()
		h.mu.Lock()
		switch {
		case h.writeClosed:
			h.mu.Unlock()
			return done, net.ErrClosed
		case h.readClosed:
			h.mu.Unlock()
			return done, errMemReset
		case isClosed(expired):
			h.mu.Unlock()
			return done, os.ErrDeadlineExceeded
		}
		if room := memBuffer - len(h.buf); room > 0 && done < len(p) {
			n := min(room, len(p)-done)
			h.buf = append(h.buf, p[done:done+n]...)
			done += n
			h.wake()
		}
		if done == len(p) {
			h.mu.Unlock()
			return done, nil
		}
		change := h.wait()
		h.mu.Unlock()
		select {
		case <-change:
		case <-expired:
		case <-moved:
		}
	}
}

var errMemReset = errors.New("in-process connection was closed by the other end")

func (h *memHalf) closeRead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readClosed, h.buf = true, nil
	h.wake()
}

func (h *memHalf) closeWrite() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writeClosed = true
	h.wake()
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
