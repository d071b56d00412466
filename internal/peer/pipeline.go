package peer

import (
	"context"

	"milena/internal/api"
)

// Pending is a request that was sent and whose response is still to come.
type Pending struct {
	c    *Conn
	call *call
}

// Send sends a body for which the caller has chosen the version, as CallRaw does, but
// returns once it is written, so that further requests can follow before the response
// is there. key is the number on the wire, of an API in [api.Table]. Wait must be called.
func (c *Conn) Send(ctx context.Context, key, version int16, body []byte) (*Pending, error) {
	row, ok := api.Lookup(c.points.Key(key))
	if !ok {
		return nil, api.Errorf(api.UnsupportedVersion, "api key %d is not known here", key)
	}
	call, err := c.start(ctx, key, version, row.IsFlexible(version), false, func(b []byte) []byte { return append(b, body...) })
	if err != nil {
		return nil, err
	}
	return &Pending{c: c, call: call}, nil
}

// Wait returns the response's body. A response that stays out for RequestTimeout closes
// the connection.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	body, _, err := p.c.await(ctx, p.call)
	return body, err
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
