package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn is a client connection without a client: bytes out, frames in.
type rawConn struct {
	net.Conn
	correlation int32
}

func dialRaw(ctx context.Context, addr string) (*rawConn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: c}, nil
}

// frame puts a length in front of a request.
func frame(key, version int16, correlation int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	return append(b, body...)
}

// read returns the next frame without its length.
func (c *rawConn) read(within time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 64<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, err
}

// call sends a request at the version it has set and reads its answer into resp.
func (c *rawConn) call(req kmsg.Request, resp kmsg.Response) error {
	c.correlation++
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("interop-raw"))
	if _, err := c.Write(f.AppendRequest(nil, req, c.correlation)); err != nil {
		return err
	}
	b, err := c.read(20 * time.Second)
	if err != nil {
		return err
	}
	if len(b) < 4 || int32(binary.BigEndian.Uint32(b)) != c.correlation {
		return fmt.Errorf("an answer of %d bytes that is not to request %d", len(b), c.correlation)
	}
	b = b[4:]
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != 18 {
		if len(b) == 0 || b[0] != 0 {
			return errors.New("the answer's header has tags")
		}
		b = b[1:]
	}
	return resp.ReadFrom(b)
}

// closedByPeer wants the broker to close the connection, with or without an answer before.
func (c *rawConn) closedByPeer(within time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("the connection is still open after %s", within)
	}
	return nil
}
