package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"milena/internal/record"
	"milena/internal/wire"
)

const (
	// sendPiece is how much goes to the socket at once: pieces of about 1 MiB
	// cost half of what pieces of 64 KiB do.
	sendPiece = 1 << 20
	// sendBatch is how many replies are sent together at most.
	sendBatch = 16
	// sendVectors is how many slices one writev takes.
	sendVectors = 256
)

// startWriting reports whether the caller has to call flush; c.mu is held.
func (c *Conn) startWriting() bool {
	if c.dead || c.writing || c.head == nil || !c.head.done {
		return false
	}
	c.writing = true
	return true
}

// take pops the replies that are next to leave; when there are none, writing
// ends.
func (c *Conn) take(batch []*Request) []*Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := c.head; r != nil && r.done && len(batch) < sendBatch; r = c.head {
		c.head = r.next
		if c.head == nil {
			c.tail = nil
		}
		r.next = nil
		c.pending--
		batch = append(batch, r)
	}
	if len(batch) == 0 {
		c.writing = false
	} else {
		c.wakeReader()
	}
	return batch
}

// flush sends what is ready until nothing is. One goroutine at a time is in it:
// the reader for replies made by handlers before they return, else one that
// lives as long as there is something to send.
func (c *Conn) flush() {
	var room [sendBatch]*Request
	for {
		batch := c.take(room[:0])
		if len(batch) == 0 {
			break
		}
		end, err := c.send(batch)
		for i, r := range batch {
			r.drop()
			room[i] = nil
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			c.srv.log.Debug("connection lost while a reply was sent",
				slog.String("client", c.nc.RemoteAddr().String()), slog.Any("error", err))
		}
		if end || err != nil {
			c.Close()
		}
	}
	c.settle()
}

// send writes a batch of replies; end says that one of them asks for the
// connection to be closed, and nothing behind it was sent.
func (c *Conn) send(batch []*Request) (end bool, err error) {
	s := c.srv.senders.Get().(*sender)
	defer c.srv.senders.Put(s)
	s.start(c, batch)
	defer s.stop()
	begin := time.Now()
	for i, r := range batch {
		if !r.resp.noReply {
			err = s.reply(r)
		}
		if err != nil {
			return true, err
		}
		if r.resp.closeConn {
			batch, end = batch[:i+1], true
			break
		}
	}
	if err := s.flush(); err != nil {
		return true, err
	}
	now := time.Now()
	for _, r := range batch {
		r.observe(begin.Sub(r.Received), now.Sub(r.Received))
	}
	return end, nil
}

// observe counts a reply that was sent from begin to end, counted from Received.
func (r *Request) observe(begin, end time.Duration) {
	m := r.metrics
	answered, local := r.answered, r.answered
	if returned := time.Duration(r.returned.Load()); returned != 0 {
		local = min(local, returned)
	}
	m.total.Observe(end)
	m.queue.Observe(r.started)
	m.local.Observe(local - r.started)
	m.remote.Observe(answered - local)
	m.respQueue.Observe(begin - answered)
	m.send.Observe(end - begin)
	m.code(r.resp.code).Inc()
	if !r.resp.noReply {
		m.bytesOut.Add(float64(r.length))
	}
}

// sender gathers bytes and sends them in pieces of about sendPiece. On a socket
// that can, slices are sent as they are by one writev, and only file regions go
// through the stage; elsewhere (TLS, in memory) everything is put into the
// stage, so that small replies leave in one write.
type sender struct {
	c        *Conn
	vectored bool
	whole    int64 // what the batch will take in the stage at most

	stage  *wire.Buf
	used   int // of the stage
	iov    net.Buffers
	queued int // bytes in iov
	most   int // slices that iov had at most
	room   [sendVectors][]byte
}

func (s *sender) start(c *Conn, batch []*Request) {
	_, s.vectored = c.nc.(*net.TCPConn)
	s.c, s.iov, s.whole = c, s.room[:0], 0
	for _, r := range batch {
		if !s.vectored {
			s.whole += r.length
			continue
		}
		for i := range r.pieces {
			if p := &r.pieces[i]; p.Bytes == nil && p.Span.File != nil {
				s.whole += p.Len()
			}
		}
	}
}

func (s *sender) stop() {
	s.stage.Release()
	clear(s.room[:s.most])
	s.c, s.stage, s.used, s.iov, s.queued, s.most = nil, nil, 0, nil, 0, 0
}

func (s *sender) reply(r *Request) error {
	if err := s.bytes(r.head.B); err != nil {
		return err
	}
	for i := range r.pieces {
		var err error
		if p := &r.pieces[i]; p.Bytes != nil {
			err = s.bytes(p.Bytes)
		} else {
			err = s.span(p.Span)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bytes queues b, which must stay as it is until the next flush.
func (s *sender) bytes(b []byte) error {
	if s.vectored {
		return s.vector(b)
	}
	for len(b) > 0 {
		room, err := s.stageRoom()
		if err != nil {
			return err
		}
		n := copy(room, b)
		b = b[n:]
		if err := s.staged(room[:n]); err != nil {
			return err
		}
	}
	return nil
}

// span queues record bytes.
func (s *sender) span(sp record.Span) error {
	if sp.File == nil {
		return s.bytes(sp.Mem)
	}
	for off, size := int64(0), sp.Len(); off < size; {
		room, err := s.stageRoom()
		if err != nil {
			return err
		}
		room = room[:min(int64(len(room)), size-off)]
		n, err := sp.ReadAt(room, off)
		if n < len(room) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read %s at %d for a reply: %w", sp.File.Name(), sp.Off+off, err)
		}
		off += int64(n)
		if err := s.staged(room); err != nil {
			return err
		}
	}
	return nil
}

// stageRoom returns the free part of the stage, which is emptied if it is full.
func (s *sender) stageRoom() ([]byte, error) {
	if s.stage == nil {
		s.stage = s.c.srv.pool.Get(int(min(s.whole, sendPiece)))
	}
	if s.used == len(s.stage.B) {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	return s.stage.B[s.used:], nil
}

// staged queues b, which has just been put into the stage's free part.
func (s *sender) staged(b []byte) error {
	s.used += len(b)
	if s.vectored {
		return s.vector(b)
	}
	return nil
}

func (s *sender) vector(b []byte) error {
	s.iov = append(s.iov, b)
	s.queued += len(b)
	if s.queued >= sendPiece || len(s.iov) == sendVectors {
		return s.flush()
	}
	return nil
}

// flush writes what is queued.
func (s *sender) flush() error {
	if !s.vectored && s.used == 0 || s.vectored && len(s.iov) == 0 {
		return nil
	}
	s.most = max(s.most, len(s.iov))
	c := s.c
	c.writeMoved.Store(c.srv.now())
	var err error
	switch {
	case !s.vectored:
		_, err = c.nc.Write(s.stage.B[:s.used])
	case len(s.iov) == 1:
		_, err = c.nc.Write(s.iov[0])
	default:
		_, err = s.iov.WriteTo(c.nc)
	}
	c.writeMoved.Store(0)
	c.lastActive.Store(c.srv.now())
	s.used, s.queued, s.iov = 0, 0, s.room[:0]
	return err
}
