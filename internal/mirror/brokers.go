package mirror

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peer"
)

// DialBroker connects to another broker of this cluster.
type DialBroker func(ctx context.Context, broker int32, clientID string) (*peer.Conn, error)

// brokers are the connections to the cluster's other brokers, one each, made when they are first needed.
type brokers struct {
	dial     DialBroker
	clientID string

	mu     sync.Mutex
	conns  map[int32]*peer.Conn
	closed bool
}

// call sends a request to a broker. A connection that was there already may have died unnoticed: then it is tried once more.
func (b *brokers) call(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	for {
		conn, fresh, err := b.conn(ctx, broker)
		if err != nil {
			return nil, err
		}
		resp, err := conn.Call(ctx, req)
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		b.drop(broker, conn)
		if fresh {
			return nil, err
		}
	}
}

func (b *brokers) conn(ctx context.Context, broker int32) (conn *peer.Conn, fresh bool, err error) {
	b.mu.Lock()
	conn = b.conns[broker]
	b.mu.Unlock()
	if conn != nil {
		return conn, false, nil
	}
	if conn, err = b.dial(ctx, broker, b.clientID); err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, errors.Join(errors.New("the mirrors of this broker are closed"), conn.Close())
	}
	if other := b.conns[broker]; other != nil {
		return other, true, conn.Close()
	}
	b.conns[broker] = conn
	return conn, true, nil
}

func (b *brokers) drop(broker int32, conn *peer.Conn) {
	b.mu.Lock()
	if b.conns[broker] == conn {
		delete(b.conns, broker)
	}
	b.mu.Unlock()
	_ = conn.Close() // it has failed
}

func (b *brokers) close() {
	b.mu.Lock()
	conns := b.conns
	b.conns, b.closed = map[int32]*peer.Conn{}, true
	b.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing is under way that anybody waits for
	}
}
