package metafollow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is a connection to a controller; *peer.Conn is one.
type Conn interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close() error
}

// ErrNotConnected is wrapped by the errors of calls that were never sent.
var ErrNotConnected = errors.New("no connection to the controller")

var errLinkClosed = fmt.Errorf("%w: the link is closed", ErrNotConnected)

// Caller sends a request to the active controller and returns its reply.
type Caller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Link is a connection to a controller that is made when it is needed and again after it
// broke. Replies on one connection come in request order, so what waits (the follower's
// fetches) and what must not wait (heartbeats, forwarded requests) use links of their own.
// It is safe for concurrent use.
type Link struct {
	dial func(ctx context.Context, turn int) (Conn, Controller, error)
	// refused hears of a controller that broke off or said that it isn't the active one.
	refused func(Controller)

	turn chan struct{} // holds one token: who has it may dial

	mu      sync.Mutex // guards the fields below; never held across a wait
	conn    Conn
	to      Controller
	changes int // how often a connection was given up
	closed  bool
}

// NewLink returns a link that connects with dial, which has to find the active
// controller.
func NewLink(dial func(ctx context.Context) (Conn, error)) *Link {
	return newLink(func(ctx context.Context, _ int) (Conn, Controller, error) {
		c, err := dial(ctx)
		return c, Controller{ID: -1}, err
	}, func(Controller) {})
}

func newLink(dial func(ctx context.Context, turn int) (Conn, Controller, error), refused func(Controller)) *Link {
	l := &Link{dial: dial, refused: refused, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Call sends the request once and waits for its reply. After an error of the connection,
// or a reply that says NOT_CONTROLLER, the next call looks for the controller anew; after
// an error, whether this call's request was carried out is unknown, unless the error is
// ErrNotConnected.
func (l *Link) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.Call(ctx, req)
	if err != nil && ctx.Err() == nil || err == nil && NotController(resp) {
		l.drop(c)
	}
	return resp, err
}

// Reset closes the connection, so that the next call looks for a controller again: the
// active one, or where any will do the next one.
func (l *Link) Reset() {
	if c := l.current(); c != nil {
		l.drop(c)
	}
}

// Pin returns the connection of the moment, for calls that belong together.
func (l *Link) Pin(ctx context.Context) (Caller, error) { return l.get(ctx) }

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
	l.mu.Lock()
	c, changes, closed := l.conn, l.changes, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return nil, errLinkClosed
	case c != nil:
		return c, nil
	}
	c, to, err := l.dial(ctx, changes)
	if err != nil {
		l.mu.Lock()
		l.changes++
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return nil, errLinkClosed
	}
	l.conn, l.to = c, to
	return c, nil
}

func (l *Link) drop(c Conn) {
	l.mu.Lock()
	was := l.conn == c
	if was {
		l.conn = nil
		l.changes++
	}
	to := l.to
	l.mu.Unlock()
	_ = c.Close()
	if was {
		l.refused(to)
	}
}

// leave closes the connection if it isn't to the controller of that id. Calls in flight
// fail: nobody knows what has become of them.
func (l *Link) leave(leader int32) {
	l.mu.Lock()
	c := l.conn
	if c == nil || l.to.ID == leader {
		l.mu.Unlock()
		return
	}
	l.conn = nil
	l.changes++
	l.mu.Unlock()
	_ = c.Close()
}

// retryPause is the pause before a request is sent again.
const retryPause = 20 * time.Millisecond

// Retry is a link whose calls are sent again, as Kafka's brokers do, while there is no
// active controller, or the connection broke, until the context ends. A request may be
// carried out twice then.
type Retry struct {
	*Link
	// Timeout ends calls whose context has no deadline. Default 30 s.
	Timeout time.Duration
}

// Call sends the request until it is answered by the active controller. The error names
// the last attempt's.
func (r Retry) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := ctx.Deadline(); !ok {
		timeout := r.Timeout
		if timeout <= 0 {
			timeout = 30 * time.Second
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for pause := retryPause; ; pause = min(2*pause, 10*retryPause) {
		resp, err := r.Link.Call(ctx, req)
		switch {
		case err == nil && !NotController(resp):
			return resp, nil
		case err == nil:
			err = errors.New("NOT_CONTROLLER")
		case final(err), errors.Is(err, errLinkClosed):
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, and before that: %w", ctx.Err(), err)
		}
	}
}
