package transport

import (
	"context"
	"fmt"
	"time"

	"milena/internal/api"
	"milena/internal/peer"
	"milena/internal/quorum"
)

const (
	// maxQueued bounds what waits for a voter, in messages and bytes.
	maxQueued      = 4096
	maxQueuedBytes = 32 << 20
	// maxBatch is about the size of a request.
	maxBatchBytes = 4 << 20
	// window is how many requests are under way on a connection.
	window = 8
	// maxPause is the longest pause between attempts to connect, in first ones.
	maxPause = 16
	// idleTime is how long a link stays that nothing is sent over.
	idleTime = 5 * time.Minute
	// observersEvery is how often the leader is told who fetches from a follower.
	observersEvery = time.Second
)

// link is the way to one voter: a queue, a connection, and the goroutine that empties
// the one over the other.
type link struct {
	t    *Transport
	node *quorum.Node
	wake chan struct{}

	// Guarded by Transport.mu.
	to     quorum.Voter // with the newest endpoints
	queue  [][]byte
	queued int
	told   string // the problem that was logged last

	// Of the goroutine.
	conn      *peer.Conn
	slots     chan struct{} // of conn: requests under way
	pause     time.Duration
	next      time.Time // no attempt to connect before
	observers time.Time // when they were sent last
}

// push adds a message, with Transport.mu held.
func (l *link) push(to quorum.Voter, message []byte) {
	l.to = to
	if len(l.queue) >= maxQueued || l.queued+len(message) > maxQueuedBytes {
		return
	}
	l.queue = append(l.queue, message)
	l.queued += len(message)
}

// take removes the front of the queue, for one request.
func (l *link) take() (to quorum.Voter, batch [][]byte, more bool) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	size, n := 0, 0
	for n < len(l.queue) && (n == 0 || size+len(l.queue[n]) <= maxBatchBytes) {
		size += len(l.queue[n])
		n++
	}
	batch = l.queue[:n:n]
	l.queue = l.queue[n:]
	l.queued -= size
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return l.to, batch, len(l.queue) > 0
}

func (l *link) drop() {
	l.t.mu.Lock()
	l.queue, l.queued = nil, 0
	l.t.mu.Unlock()
}

// run sends until the transport closes or nothing has been sent for long.
func (l *link) run() {
	defer func() {
		if l.conn != nil {
			_ = l.conn.Close() // what was under way is raft's to repeat
		}
	}()
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		select {
		case <-l.wake:
			idle.Reset(idleTime)
		case <-idle.C:
			if l.end() {
				return
			}
			idle.Reset(idleTime)
		case <-l.t.ctx.Done():
			return
		}
		for more := true; more && l.t.ctx.Err() == nil; {
			var to quorum.Voter
			var batch [][]byte
			if to, batch, more = l.take(); len(batch) > 0 {
				l.send(to, batch)
			}
		}
	}
}

// end takes the link out of the transport if its queue is empty.
func (l *link) end() bool {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if len(l.queue) > 0 || l.t.closed {
		return false
	}
	if l.t.links[l.to.Member] == l {
		delete(l.t.links, l.to.Member)
	}
	return true
}

// send sends one request, without waiting for its answer.
func (l *link) send(to quorum.Voter, batch [][]byte) {
	if !l.connect(to) {
		l.drop()
		return
	}
	select {
	case l.slots <- struct{}{}:
	case <-l.conn.Closed():
		l.lost(to, fmt.Errorf("connection to %s was lost", l.conn.Addr()))
		return
	case <-l.t.ctx.Done():
		return
	}
	pending, err := l.conn.Send(l.t.ctx, int16(api.RaftMessages), 0, l.request(to, batch).AppendTo(nil))
	if err != nil {
		l.lost(to, err)
		return
	}
	conn, slots := l.conn, l.slots
	l.t.wg.Go(func() {
		defer func() { <-slots }()
		body, err := pending.Wait(l.t.ctx)
		resp := &Response{}
		if err == nil {
			err = resp.ReadFrom(body)
		}
		switch {
		case err != nil:
			_ = conn.Close() // the next send says so
		case resp.ErrorCode != 0:
			refused := &api.Error{Code: api.Code(resp.ErrorCode)}
			if resp.ErrorMessage != nil {
				refused.Message = *resp.ErrorMessage
			}
			l.report(to, refused)
		default:
			l.report(to, nil)
		}
	})
}

func (l *link) request(to quorum.Voter, batch [][]byte) *Request {
	status, self := l.node.Status(), l.node.Self()
	r := &Request{
		ClusterID: l.t.o.ClusterID, Generation: status.Generation,
		From: quorum.Voter{Member: self, Endpoints: l.t.o.Endpoints}, To: to.Member, Messages: batch,
	}
	if len(l.node.VoterSet()) == 0 {
		r.Generation = NoGeneration
	}
	if status.HasLeader && status.Leader == to.Member && time.Since(l.observers) >= observersEvery {
		l.observers = time.Now()
		r.Observers = l.node.Observers()
	}
	return r
}

// connect makes sure that there is a connection, unless it is too early for an attempt.
func (l *link) connect(to quorum.Voter) bool {
	if l.conn != nil {
		select {
		case <-l.conn.Closed():
			l.conn = nil
		default:
			return true
		}
	}
	if time.Now().Before(l.next) {
		return false
	}
	c, err := l.t.dial(l.t.ctx, to.Endpoints)
	if err != nil {
		l.lost(to, err)
		return false
	}
	l.conn, l.slots = c, make(chan struct{}, window)
	l.pause = 0
	return true
}

// lost gives up the connection and says when the next attempt may be.
func (l *link) lost(to quorum.Voter, err error) {
	if l.conn != nil {
		_ = l.conn.Close() // it is lost
		l.conn = nil
	}
	first := l.t.o.RetryBackoff
	l.pause = min(max(2*l.pause, first), maxPause*first)
	l.next = time.Now().Add(l.pause)
	if l.t.ctx.Err() == nil {
		l.report(to, err)
	}
}

// report logs a problem when it is new, and its end.
func (l *link) report(to quorum.Voter, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	l.t.mu.Lock()
	old := l.told
	l.told = text
	l.t.mu.Unlock()
	switch {
	case text == old:
	case err != nil:
		l.t.o.Logger.LogAttrs(context.Background(), levelOf(err), "a controller is not reached", attrs(to, err)...)
	default:
		l.t.o.Logger.LogAttrs(context.Background(), levelOf(nil), "a controller is reached again", attrs(to, nil)...)
	}
}
