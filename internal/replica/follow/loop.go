package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/peer"
	"milena/internal/replica"
)

const (
	// idleLoop is how long a loop without partitions keeps its connection.
	idleLoop = 10 * time.Second
	// firstLeash is how much longer than it waits by itself a fetch may take
	// before its connection counts as dead: TCP alone notices much later. It
	// doubles with each time up to lastLeash, for slow lines.
	firstLeash, lastLeash = 2 * time.Second, 30 * time.Second
	// minVersion of Fetch between brokers: topic ids and the broker epoch.
	minVersion = 15
)

// loop drives a Core over a connection. Its run goroutine owns conn and pause.
type loop struct {
	f    *Fetchers
	key  loopKey
	log  *slog.Logger
	core *Core
	wake chan struct{}

	conn  *peer.Conn
	pause time.Duration // after errors of the connection
	leash time.Duration // how much longer than its wait an answer may take
}

func newLoop(f *Fetchers, k loopKey) *loop {
	log := f.log.With("broker", k.leader)
	core := NewCore(f.o.NodeID, k.leader, f.o.Settings, log)
	core.SideBySide(sideBySide)
	return &loop{f: f, key: k, log: log, core: core, wake: make(chan struct{}, 1), leash: firstLeash}
}

func (l *loop) add(p *replica.Partition) {
	l.core.Add(p)
	l.poke()
}

func (l *loop) remove(p *replica.Partition) {
	l.core.Remove(p)
	l.poke()
}

// poke lets run look at its partitions again.
func (l *loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run fetches until ctx ends or there was nothing to fetch for a while.
func (l *loop) run(ctx context.Context) {
	defer l.hangUp()
	for ctx.Err() == nil {
		if l.core.Len() == 0 {
			if !l.sleep(ctx, idleLoop) && ctx.Err() == nil && l.f.ended(l) {
				return
			}
			continue
		}
		rest, err := l.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.hangUp()
			l.pause = longer(l.pause, l.f.settings().Backoff)
			l.log.Info("fetch from the leader failed", "partitions", l.core.Len(), "pause", l.pause, "error", err)
			l.sleep(ctx, l.pause)
		default:
			l.pause = 0
			if rest > 0 {
				l.sleep(ctx, rest)
			}
		}
	}
}

// round fetches once. rest is how long there is nothing to ask for; the error
// is one of the connection.
func (l *loop) round(ctx context.Context) (rest time.Duration, err error) {
	if err := l.connect(ctx); err != nil {
		return 0, err
	}
	req, rest := l.core.Request(time.Now(), l.f.o.BrokerEpoch())
	if req == nil {
		return rest, nil
	}
	version, err := l.conn.MaxVersion(int16(api.Fetch), minVersion, fetchwire.MaxVersion)
	if err != nil {
		return 0, err
	}
	body, err := fetchwire.AppendRequest(nil, req, version)
	if err != nil {
		return 0, err
	}
	raw, release, err := l.call(ctx, time.Duration(req.MaxWaitMillis)*time.Millisecond, version, body)
	if err != nil {
		return 0, err
	}
	defer release()
	resp, err := fetchwire.DecodeResponse(raw, version)
	if err != nil {
		return 0, err
	}
	lookups, err := l.core.Handle(time.Now(), resp)
	if err != nil {
		return 0, err
	}
	for _, u := range lookups {
		start, end, err := l.ends(ctx, &u)
		l.core.LookedUp(time.Now(), u, start, end, err)
	}
	return 0, nil
}

// call sends the fetch and waits for its answer, on a short leash.
func (l *loop) call(ctx context.Context, wait time.Duration, version int16, body []byte) ([]byte, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, wait+l.leash)
	defer cancel()
	raw, release, err := l.conn.CallRaw(ctx, int16(api.Fetch), version, body)
	switch {
	case err == nil:
		l.leash = firstLeash
	case errors.Is(err, context.DeadlineExceeded):
		l.leash = min(2*l.leash, lastLeash)
	}
	return raw, release, err
}

// ends asks the leader where its log begins and ends.
func (l *loop) ends(ctx context.Context, u *Lookup) (start, end int64, err error) {
	ask := func(at int64) (int64, error) {
		resp, err := l.conn.Call(ctx, u.Request(at))
		if err != nil {
			return 0, err
		}
		return u.Offset(resp.(*kmsg.ListOffsetsResponse))
	}
	if end, err = ask(replica.TimeLatest); err != nil {
		return 0, 0, err
	}
	start, err = ask(replica.TimeEarliest)
	return start, end, err
}

// sleep waits for d; true if it was poked.
func (l *loop) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.wake:
		return true
	case <-timer.C:
		return false
	}
}

func (l *loop) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := l.f.o.Dial(ctx, l.key.leader, fmt.Sprintf("broker-%d-fetcher-%d", l.f.o.NodeID, l.key.shard))
	if err != nil {
		return err
	}
	l.conn = conn
	l.core.Reset()
	return nil
}

func (l *loop) hangUp() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
	l.core.Reset()
}
