package peer

import (
	"context"
	"time"

	"milena/internal/api"
	"milena/internal/wire"
)

// Pending is a request that was sent and whose response is still to come.
type Pending struct {
	c    *Conn
	call *call
	sent time.Time
}

// Send sends a body for which the caller has chosen the version, as CallRaw does, but
// returns once it is written, so that further requests can follow before the response
// is there. key is the number on the wire, of an API in [api.Table]. Wait must be called.
func (c *Conn) Send(ctx context.Context, key, version int16, body []byte) (*Pending, error) {
	return c.pending(ctx, key, version, body, false)
}

// SendPooled is Send whose response comes in a pooled buffer: WaitPooled or Abandon must be called.
func (c *Conn) SendPooled(ctx context.Context, key, version int16, body []byte) (*Pending, error) {
	return c.pending(ctx, key, version, body, true)
}

func (c *Conn) pending(ctx context.Context, key, version int16, body []byte, pooled bool) (*Pending, error) {
	row, ok := api.Lookup(c.points.Key(key))
	if !ok {
		return nil, api.Errorf(api.UnsupportedVersion, "api key %d is not known here", key)
	}
	sent := time.Now()
	call, err := c.start(ctx, key, version, row.IsFlexible(version), pooled, func(b []byte) []byte { return append(b, body...) })
	if err != nil {
		return nil, err
	}
	return &Pending{c: c, call: call, sent: sent}, nil
}

// Wait returns the response's body. A response that stays out for RequestTimeout closes
// the connection.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	body, _, err := p.c.await(ctx, p.call)
	return body, err
}

// Pooled is a response in a pooled buffer.
type Pooled struct {
	Body []byte // until Release
	// Latency is the time from the request to the first byte of the response, Transfer from there to its last.
	Latency, Transfer time.Duration
	buf               *wire.Buf
}

// Release gives the buffer back.
func (p *Pooled) Release() { p.buf.Release() }

// WaitPooled is Wait for a request of SendPooled. Release must be called.
func (p *Pending) WaitPooled(ctx context.Context) (Pooled, error) {
	body, buf, err := p.c.await(ctx, p.call)
	if err != nil {
		return Pooled{}, err
	}
	return Pooled{Body: body, Latency: p.call.began.Sub(p.sent), Transfer: p.call.ended.Sub(p.call.began), buf: buf}, nil
}

// Abandon gives up the response.
func (p *Pending) Abandon() {
	if !p.call.abandon() {
		<-p.call.done
		p.call.buf.Release()
	}
}

// start sends a request when it is this caller's turn.
func (c *Conn) start(ctx context.Context, key, version int16, flexible, pooled bool, appendBody func([]byte) []byte) (*call, error) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, c.reason()
	}
	defer func() { c.turn <- struct{}{} }()
	if err := c.keepAuthenticated(ctx); err != nil {
		return nil, err
	}
	return c.send(ctx, key, version, flexible, pooled, appendBody)
}
