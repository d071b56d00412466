package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// scripted is a connection whose client sends in and then goes away.
type scripted struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *scripted) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scripted) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *scripted) Close() error                { return nil }
func (c *scripted) RemoteAddr() net.Addr        { return memAddr{} }

// FuzzFrameReader sends arbitrary bytes to a connection: nothing may panic,
// memory is given back, and what was answered is a row of whole frames.
func FuzzFrameReader(f *testing.F) {
	f.Add(heartbeat(1))
	f.Add(append(heartbeat(1), heartbeat(2)...))
	f.Add(heartbeat(1)[:9])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0})
	f.Add([]byte{0, 0, 0, 8, 0, 18, 0, 99, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		table := Table{}
		var asked []int32
		for _, row := range api.Table() {
			table[row.Key] = func(_ context.Context, r *Request) {
				asked = append(asked, r.CorrelationID)
				m := kmsg.RequestForKey(int16(r.Key))
				switch {
				case r.UnsupportedVersion:
					r.Reply(VersionsFallback())
				case m == nil:
					r.Reply(Response{Msg: kmsg.NewPtrHeartbeatResponse()})
				default:
					code := api.NoError
					if r.Decode(m) != nil || r.DecodeAliased(m) != nil {
						code = api.InvalidRequest
					}
					r.Reply(Response{Msg: m.ResponseKind(), Code: code})
				}
			}
		}
		ln, _ := NewMemListener()
		s, err := New(Options{
			Listeners: []Listener{{Listener: ln}}, Table: func(string) Table { return table },
			MaxFrame: 1 << 16, QueuedMaxBytes: 1 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		nc := &scripted{in: bytes.NewReader(in)}
		c := s.newConn(s.listeners[0], nc)
		s.conns[c] = struct{}{}
		c.serve()
		if used, _ := s.mem.use(); used != 0 || !c.isClosed() || s.Connections() != 0 {
			t.Fatalf("%d bytes are taken, closed %v, %d connections", used, c.isClosed(), s.Connections())
		}
		for out := nc.out.Bytes(); len(out) > 0; asked = asked[1:] {
			if len(out) < 8 || len(asked) == 0 || int32(binary.BigEndian.Uint32(out[4:])) != asked[0] {
				t.Fatalf("replies end in %x, asked %v", out, asked)
			}
			out = out[4+binary.BigEndian.Uint32(out):]
		}
	})
}
