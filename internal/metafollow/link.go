package metafollow

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is a connection to a controller; *peer.Conn is one.
type Conn interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close() error
}

// ErrNotConnected is wrapped by the errors of calls that were never sent.
var ErrNotConnected = errors.New("no connection to the controller")

// Caller sends a request to the active controller and returns its reply.
type Caller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Link is a connection to the active controller that is made when it is needed and again
// after it broke. Replies on one connection come in request order, so what waits (the
// follower's fetches) and what must not wait (heartbeats, forwarded requests) use links
// of their own. It is safe for concurrent use.
type Link struct {
	dial func(ctx context.Context) (Conn, error)

	turn chan struct{} // holds one token: who has it may dial

	mu     sync.Mutex // guards the fields below; never held across a wait
	conn   Conn
	closed bool
}

// NewLink returns a link that connects with dial, which has to find the active
// controller.
func NewLink(dial func(ctx context.Context) (Conn, error)) *Link {
	l := &Link{dial: dial, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Call sends the request and waits for its reply. After an error of the connection the
// next call dials anew; whether this call's request was carried out is unknown then.
func (l *Link) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.Call(ctx, req)
	if err != nil && ctx.Err() == nil {
		l.drop(c)
	}
	return resp, err
}

// Reset closes the connection, so that the next call looks for the active controller
// again. Meant for replies that say NOT_CONTROLLER.
func (l *Link) Reset() {
	if c := l.current(); c != nil {
		l.drop(c)
	}
}

// Close closes the connection for good.
func (l *Link) Close() error {
	l.mu.Lock()
	c := l.conn
	l.conn, l.closed = nil, true
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

func (l *Link) current() Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

func (l *Link) get(ctx context.Context) (Conn, error) {
	if c := l.current(); c != nil {
		return c, nil
	}
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, ctx.Err())
	}
	if c := l.current(); c != nil {
		return c, nil
	}
	c, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return nil, fmt.Errorf("%w: the link is closed", ErrNotConnected)
	}
	l.conn = c
	return c, nil
}

func (l *Link) drop(c Conn) {
	l.mu.Lock()
	if l.conn == c {
		l.conn = nil
	}
	l.mu.Unlock()
	_ = c.Close()
}
