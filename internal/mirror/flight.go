package mirror

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/peer"
)

// flight is a fetch request whose answer is to come.
type flight struct {
	pending Answer
	asks    []ask
	version int16
	// fresh is set where the request opens a session.
	fresh bool
	// held is what it holds of the mirrors' fetch memory, which is the most that was asked for; idle is set if that was little because
	// nothing had come in.
	held  int64
	idle  bool
	sent  time.Time
	bytes int64 // what came
}

// asOf is when at the latest what the answer says was true for sure: what it took longer than the source may wait counts as its age.
func (fl *flight) asOf(latency, wait time.Duration) time.Time { return fl.sent.Add(min(latency, wait)) }

// full reports whether the answer had no room for more.
func (fl *flight) full() bool { return fl.bytes >= fl.held/4*3 }

// foreseen is where a log will end once an answer is appended.
type foreseen struct {
	offset int64
	epoch  int32
}

// round takes in the answer that is due, and sends for more; before that it sends for something and aligns new targets, if nothing is under
// way. Its error is one of the connection.
func (f *fetcher) round(ctx context.Context, targets []*target) error {
	if len(f.leaderless) > 0 {
		f.followLeaders(ctx, f.leaderless, f.m.set().FetchBackoff)
		f.leaderless = nil
	}
	if f.flight == nil {
		ready, pause := f.ready(targets, time.Now())
		if err := f.watchPaused(ctx, targets); err != nil {
			return err
		}
		if len(ready) == 0 {
			f.sleep(ctx, pause)
			return nil
		}
		if fresh := unaligned(ready); len(fresh) > 0 {
			return f.align(ctx, fresh)
		}
		var err error
		if f.flight, err = f.send(ctx, ready, nil); f.flight == nil {
			return err
		}
	}
	return f.land(ctx)
}

// unaligned are the targets of which the source was not asked yet where their log ends there.
func unaligned(targets []*target) (fresh []*target) {
	for _, t := range targets {
		if !t.aligned {
			fresh = append(fresh, t)
		}
	}
	return fresh
}

// send sends a fetch request for the targets. With ahead, which says where the logs of some will end, it returns nil if there is no memory
// for another answer; without, it waits for memory, and nil means that ctx has ended.
func (f *fetcher) send(ctx context.Context, targets []*target, ahead map[*target]foreseen) (*flight, error) {
	s := f.m.set()
	held, idle, ok := f.reserve(ctx, s, ahead == nil)
	if !ok {
		return nil, nil
	}
	fl := &flight{held: held, idle: idle}
	if err := f.sendHolding(ctx, fl, s, targets, ahead); err != nil {
		f.m.mgr.release(held)
		return nil, err
	}
	return fl, nil
}

func (f *fetcher) sendHolding(ctx context.Context, fl *flight, s *Settings, targets []*target, ahead map[*target]foreseen) (err error) {
	if fl.version, err = f.version(targets); err != nil {
		return err
	}
	req := fetchwire.NewRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(s.FetchWait.Milliseconds()), s.FetchMinBytes, int32(fl.held)
	if f.paused { // the paused ones may be fetched before that
		req.MaxWaitMillis = min(req.MaxWaitMillis, int32(throttlePause.Milliseconds()))
	}
	limit := limits(s, fl.held, targets)
	fl.asks = make([]ask, len(targets))
	for i, t := range targets {
		at := foreseen{t.offset(), t.rep.Log().LatestEpoch()}
		if x, ok := ahead[t]; ok {
			at = x
		}
		fl.asks[i] = ask{t, t.position(at, limit(t))}
	}
	f.session.request(&req, fl.asks)
	fl.fresh = req.SessionEpoch <= 0
	fl.sent = time.Now()
	fl.pending, err = f.conn.Fetch(ctx, fl.version, &req)
	return err
}

// land waits for the answer of the flight. Before it takes in what came it sends for what comes after, so that the line is in use
// meanwhile; where the answer holds anything but batches, it takes that in first.
func (f *fetcher) land(ctx context.Context) error {
	fl := f.flight
	f.flight = nil
	defer f.m.mgr.release(fl.held)
	got, err := fl.pending.WaitPooled(ctx)
	if err != nil {
		f.line.failed(fl.held, err)
		return err
	}
	defer got.Release()
	resp, err := fetchwire.DecodeResponse(got.Body, fl.version)
	if err != nil {
		return err
	}
	if d := time.Duration(resp.ThrottleMillis) * time.Millisecond; d > 0 {
		f.quiet = time.Now().Add(min(d, f.m.set().SocketTimeout)) // the source's quota (KIP-219)
	}
	switch resp.ErrorCode {
	case api.NoError:
	case api.FetchSessionIDNotFound, api.InvalidFetchSessionEpoch, api.FetchSessionTopicIDError:
		f.sessionRefused(fl, resp.ErrorCode)
		return nil
	default:
		return api.Errorf(resp.ErrorCode, "fetch answered %s", resp.ErrorCode.Name())
	}
	f.session.answered(resp.SessionID)
	f.down = time.Time{}
	came := arrivals(fl, resp)
	now := time.Now()
	for i := range came {
		n := came[i].rp.RecordsLen()
		fl.bytes += n
		came[i].ask.t.rep.UseMirrorThrottle(int(n), now)
	}
	f.empty = fl.bytes == 0
	f.m.mgr.metrics.beans.answered(f, fl.bytes)
	f.line.landed(f.m.set(), fl, got.Latency, got.Transfer, f.m.mgr.memoryLimit)
	if f.flight, err = f.sendAhead(ctx, came, resp); err != nil {
		return err
	}
	f.takeAll(ctx, fl, came, resp.Brokers, !fl.fresh && resp.SessionID != 0, fl.asOf(got.Latency, f.m.set().FetchWait))
	return nil
}

// sessionRefused has the next request open a new session.
func (f *fetcher) sessionRefused(fl *flight, code api.Code) {
	f.session.reset()
	if !fl.fresh {
		return
	}
	// Which was just tried: the source's brokers don't agree on the topics yet.
	for _, a := range fl.asks {
		a.t.p.sawError(api.Errorf(code, "the source answered %s", code.Name()))
		f.backOff(a.t)
	}
	f.m.refreshSoon()
}

// sendAhead sends for what comes behind an answer that is yet to be appended. nil means that the answer has to be taken in first.
func (f *fetcher) sendAhead(ctx context.Context, came []arrival, resp *fetchwire.Response) (*flight, error) {
	if f.empty || resp.ThrottleMillis > 0 {
		return nil, nil
	}
	ahead := map[*target]foreseen{}
	for i := range came {
		x := &came[i]
		t := x.ask.t
		switch {
		case x.rp.ErrorCode != api.NoError, x.err != nil, x.rp.DivergingEpoch != nil && x.rp.DivergingEpoch.Epoch >= 0, t.sle >= 0 && x.highest > t.sle:
			return nil, nil
		case len(x.batches) > 0 && x.ask.part.FetchOffset == t.offset() && x.next > x.ask.part.FetchOffset:
			ahead[t] = foreseen{x.next, x.highest}
			t.more = x.rp.HighWatermark > x.next
		}
	}
	now := time.Now()
	targets := f.live()
	if f.watchDue(targets, now) {
		return nil, nil
	}
	ready, _ := f.ready(targets, now)
	if len(ready) == 0 || len(unaligned(ready)) > 0 {
		return nil, nil
	}
	return f.send(ctx, ready, ahead)
}

// drop forgets the flight, after the connection broke.
func (f *fetcher) drop() {
	if fl := f.flight; fl != nil {
		fl.pending.Abandon()
		f.m.mgr.release(fl.held)
		f.flight = nil
	}
}

// limits is the most bytes to ask for of each target. Where mirror.fetch.max.bytes isn't set, those that are behind share what an answer
// holds, if that is more than its default; throttled ones get what takes about a second at their rate. The others' limits stay as they are,
// since the session sends a partition again when one changes.
func limits(s *Settings, budget int64, targets []*target) func(*target) int32 {
	behind, listed := 0, 0
	now := time.Now()
	for _, t := range targets {
		if t.more {
			behind++
		}
		if l, _, _ := t.rep.MirrorThrottle(now); l {
			listed++
		}
	}
	each := share(s, budget, behind)
	return func(t *target) int32 {
		most := int64(s.FetchMaxBytes)
		if t.more {
			most = each
		}
		if l, _, pace := t.rep.MirrorThrottle(now); l {
			most = min(most, max(pace/int64(listed), 1))
		}
		return int32(most)
	}
}

// share is the most bytes to ask for of each of n partitions that are behind, of an answer of budget bytes.
func share(s *Settings, budget int64, n int) int64 {
	if !s.FetchMaxGrows {
		return int64(s.FetchMaxBytes)
	}
	return max(int64(s.FetchMaxBytes), budget>>bits.Len(uint(max(n-1, 0))))
}

// version is the newest Fetch version for the source and the targets: topic ids, from 13 on, need a source that has them.
func (f *fetcher) version(targets []*target) (int16, error) {
	highest := int16(fetchwire.MaxVersion)
	for _, t := range targets {
		if t.topicID.IsZero() {
			highest = 12
			break
		}
	}
	return f.conn.MaxVersion(int16(api.Fetch), fetchwire.MinVersion, highest)
}

// reserve takes fetch memory for an answer: the most that is asked for. What goes beyond mirror.fetch.response.max.bytes is only taken if
// it is free.
func (f *fetcher) reserve(ctx context.Context, s *Settings, wait bool) (held int64, idle, ok bool) {
	mem, limit := f.m.mgr.memory, f.m.mgr.memoryLimit
	base := min(int64(s.ResponseMaxBytes), limit)
	want := f.line.size(base)
	if f.empty && want > idleMaxBytes {
		want, idle = idleMaxBytes, true
	}
	held = min(want, base)
	switch {
	case wait:
		if mem.Acquire(ctx, held) != nil {
			return 0, false, false // ctx ended
		}
	case !mem.TryAcquire(held):
		return 0, false, false
	}
	if want > held && mem.TryAcquire(want-held) {
		held = want
	}
	f.m.mgr.held.Add(held)
	return held, idle, true
}

// release gives fetch memory back.
func (m *Manager) release(held int64) {
	m.held.Add(-held)
	m.memory.Release(held)
}

const (
	// idleMaxBytes is what a request asks for while nothing comes in, so that requests that only wait don't hold
	// the mirrors' fetch memory.
	idleMaxBytes = 1 << 20
	// lineMaxBytes is how far requests grow on long lines; lineMinBytes how far they shrink on slow ones.
	lineMaxBytes, lineMinBytes = 64 << 20, 64 << 10
)

// line is what is known of a connection to the source: how much to ask for at a time. Between two answers the line lies idle for the time
// that a request takes to be answered, its latency. The longer that is, the more has to come at a time to make up for it: throughput then
// doesn't fall as the delay grows.
type line struct {
	bytes int64 // 0: what is configured
}

// size is how much to ask for, where base is what is configured.
func (l *line) size(base int64) int64 {
	if l.bytes == 0 {
		return base
	}
	return l.bytes
}

// landed learns from an answer.
func (l *line) landed(s *Settings, fl *flight, latency, transfer time.Duration, memory int64) {
	base := min(int64(s.ResponseMaxBytes), memory)
	if fl.idle || fl.held != l.size(base) {
		return
	}
	most := base
	if s.ResponseMaxGrows {
		most = max(base, min(lineMaxBytes, memory/4)) // for two fetchers, each with an answer that comes while one is appended
	}
	switch {
	case transfer > s.SocketTimeout/4: // a slow line: the next one must not be too late
		l.bytes = max(min(fl.held/2, fl.bytes), lineMinBytes)
	case !fl.full():
	case fl.held < base:
		if transfer < s.SocketTimeout/16 {
			l.bytes = min(2*fl.held, base)
		}
	case transfer < 4*latency:
		l.bytes = min(2*fl.held, most)
	case transfer > 16*latency:
		l.bytes = max(fl.held/2, base)
	}
}

// failed learns from an answer that did not come.
func (l *line) failed(held int64, err error) {
	if errors.Is(err, peer.ErrTimeout) {
		l.bytes = max(held/2, lineMinBytes)
	}
}
