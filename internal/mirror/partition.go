package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/replica"
)

// event is what a fetcher reports to a partition. A later event replaces an earlier one that was not looked at yet,
// but for a first fetch, which changes no state that matters.
type event struct {
	kind      eventKind
	err       error
	retryable bool
}

type eventKind int

const (
	// eventFetched: the first good answer came.
	eventFetched eventKind = iota + 1
	// eventFence: a batch carries an epoch above our leader epoch; the fetcher let go.
	eventFence
	// eventMoved: the source's leader moved to where the cache now says; the fetcher let go.
	eventMoved
	// eventUnclean: the log was cut because the source's log parts from ours, which proves an unclean election there.
	eventUnclean
	// eventFailed: an error; the fetcher let go.
	eventFailed
	// eventReread: the coordinator has a newer state.
	eventReread
	// eventFatal: the mirroring of this partition has to end, whatever the state: the source topic or cluster is gone.
	eventFatal
)

// Partition is a mirror partition that this broker leads, during one leadership (bumps of the leader epoch included).
type Partition struct {
	mgr    *Manager
	mirror string
	key    mirrorstate.Key
	tp     tp
	rep    *replica.Partition
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc

	// actual is the state the append gate goes by: what the coordinator has acknowledged, UNKNOWN before it was read.
	actual atomic.Int32
	// bumping is set while a proactive bump of the leader epoch is under way.
	bumping atomic.Bool
	source  sourceView

	mu      sync.Mutex
	running bool   // a goroutine is driving
	again   bool   // something changed since it last looked
	pending *event // from the fetcher
	timer   *time.Timer

	// target is what the fetcher has of this partition, nil if it is not fetched.
	target atomic.Pointer[target]

	// Owned by the driving goroutine.
	known  bool
	status mirrorstate.Status
	// retryAt is when a FAILED partition is tried again; zero if not scheduled.
	retryAt time.Time
}

func newPartition(m *Manager, mirror string, t *meta.Topic, index int32, rep *replica.Partition) *Partition {
	p := &Partition{
		mgr: m, mirror: mirror, key: mirrorstate.Key{Mirror: mirror, TopicID: t.ID, Partition: index}, tp: tp{t.Name, index}, rep: rep,
		log: m.opts.Logger.With("mirror", mirror, "topic", t.Name, "partition", index),
	}
	p.ctx, p.stop = context.WithCancel(m.ctx)
	p.actual.Store(int32(mirrormsg.Unknown))
	p.source.reset()
	return p
}

// State is the state the coordinator last acknowledged, UNKNOWN before it was read.
func (p *Partition) State() mirrormsg.State { return mirrormsg.State(p.actual.Load()) }

// kick makes the partition look at the present state. It never blocks.
func (p *Partition) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = true
	if p.running || p.ctx.Err() != nil {
		return
	}
	p.running = true
	p.mgr.wg.Go(p.drive)
}

// kickIn kicks after d, replacing an earlier timer.
func (p *Partition) kickIn(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.ctx.Err() == nil {
		p.timer = time.AfterFunc(d, p.kick)
	}
}

// report is called by the fetcher.
func (p *Partition) report(e event) {
	p.mu.Lock()
	if p.pending == nil || e.kind != eventFetched {
		p.pending = &e
	}
	p.mu.Unlock()
	p.kick()
}

// Reread makes the partition ask its coordinator again: somebody else has written its state.
func (p *Partition) Reread() { p.report(event{kind: eventReread}) }

// end drops the partition: leadership lost, or the topic left the mirror. When it returns no append is under way and none
// follows.
func (p *Partition) end() {
	p.stop()
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.unfetch() // a driver under way adds no other target once ctx has ended
}

// drive takes steps until there is nothing to do.
func (p *Partition) drive() {
	for {
		p.mu.Lock()
		if !p.again || p.ctx.Err() != nil {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.again = false
		e := p.pending
		p.pending = nil
		p.mu.Unlock()
		for more := true; more && p.ctx.Err() == nil; e = nil {
			more = p.step(e)
		}
	}
}

// step compares wish and state and takes one step; true if another may follow at once.
func (p *Partition) step(e *event) bool {
	if e != nil && e.kind == eventReread {
		p.known, e = false, nil
	}
	if !p.known {
		if !p.read() {
			return false
		}
	}
	topic := p.mgr.topic(p.tp.topic)
	if topic == nil || topic.MirrorName != p.mirror || topic.ID != p.key.TopicID {
		return false // the metadata that says so is about to end this partition
	}
	if e != nil {
		if handled, more := p.onEvent(e); handled {
			return more
		}
	}
	wish := mirrormsg.State(topic.MirrorDesired)
	switch state := p.status.State; state {
	case mirrormsg.Stopping:
		return p.stopping(topic)
	case mirrormsg.Pausing:
		p.unfetch()
		return p.write(write{state: mirrormsg.Paused})
	case mirrormsg.Failed:
		return p.failed(wish)
	case mirrormsg.Unknown, mirrormsg.Stopped:
		return p.idle(wish)
	case mirrormsg.LogTruncation:
		if wish == mirrormsg.Stopped {
			return p.fail(errAbandoned, true)
		}
		return p.truncation()
	case mirrormsg.Paused:
		return p.paused(wish)
	default: // MIRRORING, EPOCH_FENCING, ULE_LOG_TRUNCATION
		return p.working(state, wish)
	}
}

// errAbandoned is the reason of a FAILED that is passed through on the way to STOPPING (spec 7.3).
var errAbandoned = fmt.Errorf("stopped before the log was aligned with the source")

// idle is a partition that is not being mirrored: never was, or was stopped.
func (p *Partition) idle(wish mirrormsg.State) bool {
	p.unfetch()
	switch wish {
	case mirrormsg.Mirroring:
		return p.write(write{state: mirrormsg.LogTruncation})
	case mirrormsg.Stopped:
		if p.status.State == mirrormsg.Stopped {
			return false
		}
		return p.fail(errAbandoned, true)
	default:
		return false
	}
}

func (p *Partition) paused(wish mirrormsg.State) bool {
	p.unfetch()
	switch wish {
	case mirrormsg.Stopped:
		return p.write(write{state: mirrormsg.Stopping})
	case mirrormsg.Mirroring:
		return p.write(write{state: mirrormsg.Mirroring})
	default:
		return false
	}
}

// working is a partition in MIRRORING or one of the states that return to it.
func (p *Partition) working(state, wish mirrormsg.State) bool {
	switch {
	case wish == mirrormsg.Stopped:
		p.unfetch()
		return p.write(write{state: mirrormsg.Stopping})
	case state == mirrormsg.EpochFencing:
		return p.fencing()
	case state == mirrormsg.ULELogTruncation:
		return p.write(write{state: mirrormsg.Mirroring})
	case wish == mirrormsg.Paused:
		p.unfetch()
		return p.write(write{state: mirrormsg.Pausing})
	}
	return p.mirroring()
}

// failed decides what becomes of a FAILED partition.
func (p *Partition) failed(wish mirrormsg.State) bool {
	p.unfetch()
	if wish == mirrormsg.Stopped {
		return p.write(write{state: mirrormsg.Stopping})
	}
	attempt, limit := p.status.RetryAttempt, p.mgr.opts.Retry.MaxAttempts
	if attempt < 0 || int(attempt) > limit || limit == 0 {
		return false // the operator's turn
	}
	now := time.Now()
	if p.retryAt.IsZero() {
		p.retryAt = now.Add(p.mgr.opts.Retry.delay(attempt))
	}
	if d := p.retryAt.Sub(now); d > 0 {
		p.kickIn(d)
		return false
	}
	p.retryAt = time.Time{}
	to := p.status.Previous
	if to == mirrormsg.Unknown || to == mirrormsg.Stopped || to == mirrormsg.Paused || to == mirrormsg.Stopping {
		to = mirrormsg.LogTruncation
	}
	return p.write(write{state: to})
}

// Retry is the schedule of FAILED partitions (spec 7.6).
type Retry struct {
	Initial, Max time.Duration
	MaxAttempts  int // 0: no automatic retries
}

// delay is exponential with base 2 and 20 % jitter; attempt counts from 1.
func (r Retry) delay(attempt int16) time.Duration {
	d := r.Initial
	for range max(attempt, 1) - 1 {
		if d *= 2; d >= r.Max {
			break
		}
	}
	d = min(d, r.Max)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// onEvent handles what was reported; handled is false if the state needs none of it.
func (p *Partition) onEvent(e *event) (handled, more bool) {
	state := p.status.State
	if e.kind == eventFatal {
		active := state != mirrormsg.Unknown && state != mirrormsg.Stopping && state != mirrormsg.Stopped
		if !active || state == mirrormsg.Failed && p.status.RetryAttempt == -1 {
			return false, true // a stopped partition is left alone (spec 8.14)
		}
		return true, p.fail(e.err, false)
	}
	if state != mirrormsg.Mirroring {
		return false, true
	}
	switch e.kind {
	case eventFetched:
		if p.status.RetryAttempt == 0 && p.status.Error == "" {
			return false, true
		}
		return true, p.write(write{state: mirrormsg.Mirroring, clear: true})
	case eventFence:
		return true, p.write(write{state: mirrormsg.EpochFencing})
	case eventUnclean:
		p.unfetch()
		return true, p.write(write{state: mirrormsg.ULELogTruncation})
	case eventMoved:
		return false, true
	default:
		return true, p.fail(e.err, e.retryable)
	}
}

// read asks the coordinator where the partition is, under this leader epoch, which fences earlier leaders.
func (p *Partition) read() bool {
	_, epoch, self := p.rep.Leader()
	if !self {
		return false
	}
	st, err := p.mgr.opts.States.Read(p.ctx, p.key, epoch)
	if err != nil {
		p.coordinatorError("read", err)
		return false
	}
	p.known, p.status = true, st
	p.actual.Store(int32(st.State))
	return true
}

// coordinatorBackoff is the pause before a coordinator is asked again (spec 3.10).
const coordinatorBackoff = time.Second

func (p *Partition) coordinatorError(op string, err error) {
	if p.ctx.Err() != nil {
		return
	}
	p.log.Debug("mirror state coordinator", "operation", op, "error", err)
	p.kickIn(coordinatorBackoff)
}

// write is a state change to persist.
type write struct {
	state     mirrormsg.State
	err       string
	final     bool // not retryable
	clear     bool // the failure fields
	wish      int64
	lastEpoch int32
	lastOff   int64
}

// write persists a state; true if the next step may follow.
func (p *Partition) write(w write) bool {
	_, epoch, self := p.rep.Leader()
	if !self {
		return false
	}
	req := mirrorstate.Write{Key: p.key, State: w.state, LeaderEpoch: epoch, StateEpoch: p.status.StateEpoch, StopWish: -1,
		Error: w.err, NonRetryable: w.final, RetryAttempt: -1}
	if w.wish != 0 {
		req.StopWish, req.LastMirrorEpoch, req.LastMirrorOffset = w.wish, w.lastEpoch, w.lastOff
	}
	if w.clear {
		req.RetryAttempt = 0
	}
	res, err := p.mgr.opts.States.Write(p.ctx, req)
	switch code, _ := api.CodeOf(err); {
	case err == nil:
	case code == api.FencedLeaderEpoch || code == api.FencedStateEpoch || code == api.InvalidClusterMirrorStates:
		// What we hold is not what the coordinator has: look again.
		p.log.Info("mirror state write refused, reading again", "state", w.state.String(), "error", err)
		p.known = false
		p.kickIn(10 * time.Millisecond)
		return false
	default:
		p.known = false // it may have been stored
		p.coordinatorError("write", err)
		return false
	}
	before := p.status.State
	p.status = res
	p.actual.Store(int32(res.State))
	if before != res.State {
		p.retryAt = time.Time{}
		p.log.Info("mirror partition changed its state", "from", before.String(), "to", res.State.String(), "error", res.Error)
	}
	return true
}

// fail moves the partition to FAILED with the reason.
func (p *Partition) fail(err error, retryable bool) bool {
	p.unfetch()
	p.retryAt = time.Time{}
	if p.ctx.Err() != nil {
		return false
	}
	return p.write(write{state: mirrormsg.Failed, err: err.Error(), final: !retryable})
}

// unfetch takes the partition from its fetcher; no append is under way when it returns.
func (p *Partition) unfetch() {
	if t := p.target.Swap(nil); t != nil {
		t.remove()
	}
	p.source.reset()
}
