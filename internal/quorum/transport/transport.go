package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/metafollow"
	"milena/internal/peer"
	"milena/internal/quorum"
)

// Options configure a Transport. ClusterID and Dial are required.
type Options struct {
	ClusterID string
	// Dial connects to a controller listener. The endpoint has no name if it is one of
	// Bootstrap.
	Dial func(ctx context.Context, e quorum.Endpoint) (*peer.Conn, error)
	// Endpoints are this node's controller listeners as others reach them.
	Endpoints []quorum.Endpoint
	// Bootstrap are where the quorum is asked for by a node that joins it by itself
	// (controller.quorum.bootstrap.servers).
	Bootstrap []quorum.Endpoint
	// AutoJoin makes a node that is no voter add itself, in the place of a voter with its
	// node id and another disk (controller.quorum.auto.join.enable, KIP-1186).
	AutoJoin bool
	// RequestTimeout bounds a connection attempt and a request. Default 2 s
	// (controller.quorum.request.timeout.ms).
	RequestTimeout time.Duration
	// RetryBackoff is the first pause after a connection that failed; it grows to 16
	// times of it. Default 20 ms (controller.quorum.retry.backoff.ms).
	RetryBackoff time.Duration
	Logger       *slog.Logger // default: discards
}

// Transport sends messages of this node to other voters. It is the quorum.Transport,
// quorum.Fetcher and quorum.Prober of the node it is attached to. Safe for concurrent use.
type Transport struct {
	o    Options
	node atomic.Pointer[quorum.Node]
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex // never held across a wait
	links  map[quorum.Member]*link
	snaps  map[quorum.Member]*peer.Conn // for pieces of snapshots
	closed bool
}

var _ interface {
	quorum.Transport
	quorum.Fetcher
	quorum.Prober
} = (*Transport)(nil)

// New returns a transport; Attach comes next.
func New(o Options) *Transport {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 2 * time.Second
	}
	if o.RetryBackoff <= 0 {
		o.RetryBackoff = 20 * time.Millisecond
	}
	t := &Transport{o: o, links: map[quorum.Member]*link{}, snaps: map[quorum.Member]*peer.Conn{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// Attach tells the transport whose messages it sends. To be called before the node starts;
// nothing is sent before.
func (t *Transport) Attach(n *quorum.Node) { t.node.Store(n) }

// Close closes the connections and waits for the transport's goroutines.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	snaps := t.snaps
	t.snaps = nil
	t.mu.Unlock()
	t.stop()
	for _, c := range snaps {
		_ = c.Close() // reading is over
	}
	t.wg.Wait()
	return nil
}

// Send implements quorum.Transport.
func (t *Transport) Send(to quorum.Voter, message []byte) {
	n := t.node.Load()
	if n == nil {
		return
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	l := t.links[to.Member]
	if l == nil {
		l = &link{t: t, node: n, wake: make(chan struct{}, 1)}
		t.links[to.Member] = l
		t.wg.Go(l.run)
	}
	l.push(to, message)
	t.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dial connects to the first endpoint that answers.
func (t *Transport) dial(ctx context.Context, endpoints []quorum.Endpoint) (*peer.Conn, error) {
	err := errors.New("its endpoint is not known")
	for _, e := range endpoints {
		attempt, cancel := context.WithTimeout(ctx, t.o.RequestTimeout)
		var c *peer.Conn
		c, err = t.o.Dial(attempt, e)
		cancel()
		if err == nil {
			return c, nil
		}
	}
	return nil, err
}

// FetchSnapshot implements quorum.Fetcher. A snapshot is fetched piece by piece, over a
// connection that stays for the next piece.
func (t *Transport) FetchSnapshot(ctx context.Context, from quorum.Voter, id quorum.SnapshotID, position int64, maxBytes int) ([]byte, error) {
	c, err := t.snapshotConn(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("snapshot from controller %d: %w", from.ID, err)
	}
	b, err := t.fetchPiece(ctx, c, id, position, maxBytes)
	if err != nil {
		t.mu.Lock()
		if t.snaps[from.Member] == c {
			delete(t.snaps, from.Member)
		}
		t.mu.Unlock()
		_ = c.Close() // the error says more
		return nil, fmt.Errorf("snapshot from controller %d: %w", from.ID, err)
	}
	return b, nil
}

func (t *Transport) snapshotConn(ctx context.Context, from quorum.Voter) (*peer.Conn, error) {
	t.mu.Lock()
	c := t.snaps[from.Member]
	t.mu.Unlock()
	if c != nil {
		select {
		case <-c.Closed():
		default:
			return c, nil
		}
	}
	c, err := t.dial(ctx, from.Endpoints)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = c.Close() // nothing was sent
		return nil, errClosed
	}
	t.snaps[from.Member] = c
	return c, nil
}

var errClosed = errors.New("the transport is closed")

func (t *Transport) fetchPiece(ctx context.Context, c *peer.Conn, id quorum.SnapshotID, position int64, maxBytes int) ([]byte, error) {
	replica := int32(-1)
	if n := t.node.Load(); n != nil {
		replica = n.Self().ID
	}
	part, _, err := metafollow.FetchSnapshotPart(ctx, c, metafollow.SnapshotPart{
		ClusterID: t.o.ClusterID, Replica: replica, EndOffset: id.EndOffset, Epoch: id.Epoch, Position: position, MaxBytes: int32(maxBytes),
	})
	return part, err
}
