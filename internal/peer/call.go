package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"milena/internal/wire"
)

// roundTrip sends a request and waits for its response's body. If pooled, the
// body is in the returned buffer, which the caller releases.
func (c *Conn) roundTrip(ctx context.Context, key, version int16, flexible, pooled bool, appendBody func([]byte) []byte) ([]byte, *wire.Buf, error) {
	call, err := c.start(ctx, key, version, flexible, pooled, appendBody)
	if err != nil {
		return nil, nil, err
	}
	return c.await(ctx, call)
}

// send writes a request; the caller has the turn.
func (c *Conn) send(ctx context.Context, key, version int16, flexible, pooled bool, appendBody func([]byte) []byte) (*call, error) {
	const firstRoom = 512
	buf := c.pool.Get(firstRoom)
	defer buf.Release()
	c.nextID++
	b := wire.AppendRequestHeader(buf.B[:4], // the length comes last
		key, version, c.nextID, c.clientID, flexible)
	b = appendBody(b)
	buf.B = b
	wire.AppendInt32(b[:0], int32(len(b)-4))
	call := &call{
		id: c.nextID, key: c.points.Key(key), flexible: flexible, pooled: pooled,
		done: make(chan struct{}), owner: make(chan struct{}, 1),
	}
	call.owner <- struct{}{}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.reason()
	}
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	// A write that stops half way leaves nothing to go on with, so its deadline
	// is the connection's business, not the context's.
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.o.RequestTimeout)); err != nil {
		c.fail(fmt.Errorf("send: %w", err))
		return nil, c.reason()
	}
	if _, err := c.nc.Write(b); err != nil {
		c.fail(fmt.Errorf("send: %w", err))
		return nil, c.reason()
	}
	return call, nil
}

// await waits for the call's response.
func (c *Conn) await(ctx context.Context, call *call) ([]byte, *wire.Buf, error) {
	timeout := time.NewTimer(c.o.RequestTimeout)
	defer timeout.Stop()
	select {
	case <-call.done:
	case <-ctx.Done():
		if call.abandon() {
			return nil, nil, ctx.Err()
		}
		<-call.done
	case <-timeout.C:
		c.fail(fmt.Errorf("%w: %s has not answered for %s", ErrTimeout, call.key, c.o.RequestTimeout))
		<-call.done
	}
	if call.err != nil {
		return nil, nil, call.err
	}
	_, body, err := wire.ParseResponseHeader(call.frame, call.key, call.flexible)
	if err != nil {
		call.buf.Release()
		c.fail(err)
		return nil, nil, err
	}
	return body, call.buf, nil
}

// finish hands over the result, or drops it if the caller has given up.
func (call *call) finish(frame []byte, buf *wire.Buf, err error) {
	select {
	case <-call.owner:
		call.frame, call.buf, call.err = frame, buf, err
		close(call.done)
	default:
		buf.Release()
	}
}

// abandon gives up a call; false if its result is there.
func (call *call) abandon() bool {
	select {
	case <-call.owner:
		return true
	default:
		return false
	}
}

// read takes responses off the connection until it fails.
func (c *Conn) read() {
	const readBuffer = 4 << 10
	br := bufio.NewReaderSize(c.nc, readBuffer)
	for {
		if err := c.readOne(br); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the other side closed it")
			}
			c.fail(err)
			return
		}
	}
}

func (c *Conn) readOne(br *bufio.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return err
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 4 || size > c.o.MaxFrame {
		return fmt.Errorf("response frame of %d bytes, allowed are 4 to %d", size, c.o.MaxFrame)
	}
	call, err := c.oldest(int32(binary.BigEndian.Uint32(head[4:])))
	if err != nil {
		return err
	}
	call.began = time.Now()
	frame, buf, err := c.readFrame(br, int(size), call.pooled)
	if err != nil {
		buf.Release()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		c.fail(fmt.Errorf("response to %s: %w", call.key, err))
		call.finish(nil, nil, c.reason())
		return err
	}
	copy(frame, head[4:])
	call.ended = time.Now()
	call.finish(frame, buf, nil)
	return nil
}

// oldest takes the call that the next response is for.
func (c *Conn) oldest(id int32) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) == 0 {
		return nil, fmt.Errorf("response with correlation id %d to no request", id)
	}
	call := c.calls[0]
	if call.id != id {
		return nil, fmt.Errorf("response with correlation id %d where %d is due", id, call.id)
	}
	c.calls[0] = nil
	c.calls = c.calls[1:]
	return call, nil
}

// readFrame reads the rest of a frame of size bytes, all but the first four.
// Memory that isn't pooled is taken as the bytes come: the size is only the
// other side's claim.
func (c *Conn) readFrame(br *bufio.Reader, size int, pooled bool) ([]byte, *wire.Buf, error) {
	if pooled {
		buf := c.pool.Get(size)
		_, err := io.ReadFull(br, buf.B[4:])
		return buf.B, buf, err
	}
	const step = 1 << 20
	frame := make([]byte, min(size, step))
	for done := 4; ; {
		n, err := io.ReadFull(br, frame[done:])
		if err != nil {
			return nil, nil, err
		}
		if done += n; done == size {
			return frame, nil, nil
		}
		grown := make([]byte, min(size, 2*len(frame)))
		copy(grown, frame)
		frame = grown
	}
}
