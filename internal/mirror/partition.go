package mirror

import (
	"context"
	"errors"
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

	// before is the Partition that had this replica until now; it is let finish first. Owned by the driving goroutine.
	before *Partition
	// drivers counts driving goroutines: at most one.
	drivers crew

	// actual is the state the append gate goes by: what the coordinator has acknowledged, UNKNOWN before it was read.
	actual atomic.Int32
	// unaligned is set as long as the log may have to be cut to agree with the source, by the state; cutting while a cut in MIRRORING
	// is under way.
	unaligned, cutting atomic.Bool
	// bumping is set while a proactive bump of the leader epoch is under way.
	bumping atomic.Bool
	source  sourceView
	audit   audit

	mu      sync.Mutex
	running bool                    // a goroutine is driving
	again   bool                    // something changed since it last looked
	reread  bool                    // the coordinator has a newer state
	fatal   error                   // the mirroring has to end, whatever the state: the source topic or cluster is gone
	timer   func()                  // stops the kick that is to come; nil if none was ever to
	wishes  int                     // counts changed wishes
	working context.CancelCauseFunc // ends what the driver asks of the source; nil if it asks nothing

	// target is what the fetcher has of this partition, nil if it is not fetched.
	target atomic.Pointer[target]

	// Owned by the driving goroutine.
	known  bool
	status mirrorstate.Status
	seen   int // the wishes that the current step has seen
	// retryAt is when a FAILED partition is tried again; zero if not scheduled.
	retryAt time.Time
	// distrust is set after a failure: the cached source leader is asked for again.
	distrust bool
	// cutDone is set once this leader's log agrees with the source, in a state that cuts; its followers' may not yet.
	cutDone bool
	// clampTo is where committed offsets are still to be taken back to, -1: none.
	clampTo    int64
	clampSince time.Time // when that was tried first
	// fenced is the batch epoch that led to EPOCH_FENCING, -1 if it isn't known.
	fenced int32
}

func newPartition(m *Manager, mirror string, t *meta.Topic, index int32, rep *replica.Partition, before *Partition) *Partition {
	p := &Partition{
		mgr: m, mirror: mirror, key: mirrorstate.Key{Mirror: mirror, TopicID: t.ID, Partition: index}, tp: tp{t.Name, index}, rep: rep,
		log: m.opts.Logger.With("mirror", mirror, "topic", t.Name, "partition", index), before: before, fenced: -1, clampTo: -1, drivers: crew{tasks: m.opts.Tasks},
	}
	p.ctx, p.stop = context.WithCancel(m.ctx)
	p.actual.Store(int32(mirrormsg.Unknown))
	p.unaligned.Store(true)
	rep.OnAligned(p.kick)
	p.source.reset()
	p.audit.decided = time.Now()
	return p
}

// State is the state the coordinator last acknowledged, UNKNOWN before it was read.
func (p *Partition) State() mirrormsg.State { return mirrormsg.State(p.actual.Load()) }

// kick makes the partition look at the present state. It never blocks.
func (p *Partition) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kickLocked()
}

func (p *Partition) kickLocked() {
	p.again = true
	if p.running || p.ctx.Err() != nil {
		return
	}
	p.running = true
	p.drivers.add()
	p.mgr.work.Go(p.drive)
}

// kickIn kicks after d, replacing an earlier timer: each step that waits for time to pass sets its own.
func (p *Partition) kickIn(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer()
	}
	if p.ctx.Err() == nil {
		p.timer = p.mgr.tasks.AfterFunc(d, p.kick)
	}
}

// wishChanged kicks and ends what the partition asks of the source for the old wish: a failover must not wait for a source
// that is gone.
func (p *Partition) wishChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wishes++
	if p.working != nil {
		p.working(errWishChanged)
	}
	p.kickLocked()
}

var errWishChanged = errors.New("the wish for the topic changed")

// work is the context of requests to the source, at most d long. It ends when the wish changes.
func (p *Partition) work(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cause := context.WithCancelCause(p.ctx)
	ctx, cancel := context.WithTimeout(ctx, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.working = cause
	if p.wishes != p.seen {
		cause(errWishChanged) // since the step began
	}
	return ctx, func() {
		p.mu.Lock()
		p.working = nil
		p.mu.Unlock()
		cancel()
		cause(nil)
	}
}

// Reread makes the partition ask its coordinator again: somebody else has written its state.
func (p *Partition) Reread() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reread = true
	p.kickLocked()
}

// abort makes an active partition FAILED for good.
func (p *Partition) abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = err
	p.kickLocked()
}

// end drops the partition: leadership lost, or the topic left the mirror. When it returns no append of a fetcher is under way
// and none follows; a driver may still be about to notice.
func (p *Partition) end() {
	p.stop()
	p.mu.Lock()
	if p.timer != nil {
		p.timer()
	}
	p.mu.Unlock()
	p.unfetch() // a driver under way adds no other target once ctx has ended
}

// drive takes steps until there is nothing to do.
func (p *Partition) drive() {
	defer p.drivers.done()
	if p.before != nil {
		p.before.drivers.Wait()
		p.before = nil
	}
	for {
		p.mu.Lock()
		if !p.again || p.ctx.Err() != nil {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.again = false
		p.mu.Unlock()
		for p.ctx.Err() == nil && p.step() {
		}
	}
}

// step compares wish and state and takes one step; true if another may follow at once.
func (p *Partition) step() bool {
	p.mu.Lock()
	p.seen = p.wishes
	if p.reread {
		p.known, p.reread = false, false
	}
	p.mu.Unlock()
	if !p.known && !p.read() {
		return false
	}
	topic := p.mgr.topic(p.tp.topic)
	if topic == nil || topic.MirrorName != p.mirror || topic.ID != p.key.TopicID {
		return false // the metadata that says so is about to end this partition
	}
	p.mu.Lock()
	fatal := p.fatal
	p.fatal = nil
	p.mu.Unlock()
	if fatal != nil && p.active() {
		return p.fail(fatal, false)
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
		return p.mirroringStates(state, wish)
	}
}

// active says whether a vanished source concerns the partition: a stopped one is left alone (spec 8.14).
func (p *Partition) active() bool {
	switch p.status.State {
	case mirrormsg.Unknown, mirrormsg.Stopping, mirrormsg.Stopped:
		return false
	case mirrormsg.Failed:
		return p.status.RetryAttempt != -1
	default:
		return true
	}
}

// errAbandoned is the reason of a FAILED that is passed through on the way to STOPPING (spec 7.3).
var errAbandoned = errors.New("stopped before the log was aligned with the source")

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

// mirroringStates is a partition in MIRRORING or one of the states that return to it.
func (p *Partition) mirroringStates(state, wish mirrormsg.State) bool {
	switch {
	case wish == mirrormsg.Stopped:
		p.unfetch()
		return p.write(write{state: mirrormsg.Stopping})
	case state == mirrormsg.EpochFencing:
		return p.fencing()
	case state == mirrormsg.ULELogTruncation:
		return p.uncleanTruncation()
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
	attempt := p.status.RetryAttempt
	if attempt < 0 || int(attempt) >= p.mgr.opts.Retry.MaxAttempts {
		// The operator's turn, who may be heard by another broker: it writes the state that is to be.
		p.known = false
		p.kickIn(operatorPoll)
		return false
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
	return p.write(write{state: retryState(p.status.Previous)})
}

// retryState is where the retry of a partition leads that was in previous when it failed: back there, or to the beginning
// where that is no working state.
func retryState(previous mirrormsg.State) mirrormsg.State {
	switch previous {
	case mirrormsg.EpochFencing, mirrormsg.ULELogTruncation, mirrormsg.Mirroring, mirrormsg.Pausing:
		return previous
	case mirrormsg.Paused:
		return mirrormsg.Mirroring // which the wish takes to PAUSED again
	default:
		return mirrormsg.LogTruncation
	}
}

// Retry is the schedule of FAILED partitions (spec 7.6).
type Retry struct {
	Initial, Max time.Duration
	MaxAttempts  int            // 0: no automatic retries
	Random       func() float64 // from 0 to 1; nil: the process's
}

// delay is exponential with base 2 and 20 % jitter; attempt counts from 1.
func (r Retry) delay(attempt int16) time.Duration {
	d := r.Initial
	for range max(attempt, 1) - 1 {
		if d *= 2; d >= r.Max {
			break
		}
	}
	random := r.Random
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(float64(min(d, r.Max)) * (0.8 + 0.4*random()))
}

// onOutcome acts on why the fetcher let go of the partition, which is MIRRORING.
func (p *Partition) onOutcome(o *outcome) bool {
	switch o.kind {
	case outcomeFence:
		p.unfetch()
		p.fenced = o.epoch
		return p.write(write{state: mirrormsg.EpochFencing})
	case outcomeCut:
		p.unfetch()
		return p.cutMirroring(o.cutTo, o.why)
	case outcomeMoved:
		p.unfetch()
		return true
	default:
		return p.fail(o.err, o.retryable)
	}
}

// read asks the coordinator where the partition is, under this leader epoch, which fences earlier leaders.
func (p *Partition) read() bool {
	epoch, ok := p.leads()
	if !ok {
		return false
	}
	st, err := p.mgr.opts.States.Read(p.ctx, p.key, epoch)
	if err != nil {
		p.coordinatorError("read", err)
		return false
	}
	p.known = true
	p.setStatus(st)
	return true
}

// leads is the leader epoch that this broker leads the partition with. Metadata has said that it does; the replica may not know
// yet, or the broker is cut off from the controller and must not act: it is looked at again.
func (p *Partition) leads() (epoch int32, ok bool) {
	_, epoch, ok = p.rep.Leader()
	if !ok {
		p.kickIn(coordinatorBackoff)
	}
	return epoch, ok
}

const (
	// coordinatorBackoff is the pause before a coordinator is asked again (spec 3.10).
	coordinatorBackoff = time.Second
	// operatorPoll is how often a partition that has failed for good looks whether it was recovered.
	operatorPoll = 5 * time.Second
	// rereadPause is the pause before a state is read again that somebody else has written.
	rereadPause = 10 * time.Millisecond
)

func (p *Partition) coordinatorError(op string, err error) {
	if p.ctx.Err() != nil {
		return
	}
	p.log.Debug("mirror state coordinator", "operation", op, "error", err)
	p.kickIn(coordinatorBackoff)
}

// write is a state change to persist.
type write struct {
	state mirrormsg.State
	err   string
	final bool // not retryable
	clear bool // the failure fields
	// capture, if not nil, is the last mirror epoch of a stop.
	capture *capture
}

// capture is what a stop stores before it appends anything (spec D2).
type capture struct {
	wish   int64 // metadata offset of the wish
	epoch  int32
	offset int64
}

// write persists a state; true if the next step may follow.
func (p *Partition) write(w write) bool {
	epoch, ok := p.leads()
	if !ok {
		return false
	}
	req := mirrorstate.Write{Key: p.key, State: w.state, LeaderEpoch: epoch, StateEpoch: p.status.StateEpoch, StopWish: -1,
		Error: w.err, NonRetryable: w.final, RetryAttempt: -1}
	if c := w.capture; c != nil {
		req.StopWish, req.LastMirrorEpoch, req.LastMirrorOffset = c.wish, c.epoch, c.offset
	}
	if w.clear {
		req.RetryAttempt = 0
	}
	res, err := p.mgr.opts.States.Write(p.ctx, req)
	if err != nil {
		p.refused(w.state, err)
		return false
	}
	before := p.status.State
	p.setStatus(res)
	if before != res.State {
		p.retryAt, p.cutDone = time.Time{}, false
		p.mgr.metrics.transitions.WithLabelValues(p.mirror, before.String(), res.State.String()).Inc()
		p.log.Info("mirror partition changed its state", "from", before.String(), "to", res.State.String(), "error", res.Error)
	}
	return true
}

// refused deals with a write that failed: what holds is read again.
func (p *Partition) refused(state mirrormsg.State, err error) {
	p.known = false // it may have been stored
	switch code, _ := api.CodeOf(err); code {
	case api.FencedStateEpoch:
		p.log.Info("mirror state write refused, reading again", "state", state.String(), "error", err)
		p.kickIn(rereadPause)
	case api.FencedLeaderEpoch, api.InvalidClusterMirrorStates:
		// Another leader was seen, of which the metadata will tell; or what we hold is far off.
		p.log.Info("mirror state write refused, reading again", "state", state.String(), "error", err)
		p.kickIn(coordinatorBackoff)
	default:
		p.coordinatorError("write", err)
	}
}

// fail moves the partition to FAILED with the reason.
func (p *Partition) fail(err error, retryable bool) bool {
	p.unfetch()
	p.retryAt, p.distrust = time.Time{}, true
	if p.ctx.Err() != nil {
		return false
	}
	return p.write(write{state: mirrormsg.Failed, err: err.Error(), final: !retryable})
}

// sourceFailed is fail for an error of work at the source. What failed only because the wish changed, or because the mirror's
// connections were replaced, is no failure: the partition looks again.
func (p *Partition) sourceFailed(ctx context.Context, m *mirror, err error) bool {
	switch {
	case errors.Is(context.Cause(ctx), errWishChanged):
		return true
	case m.ctx.Err() != nil:
		p.kickIn(rereadPause)
		return false
	}
	return p.fail(err, !errors.Is(err, errSourceIdentity))
}

// unfetch takes the partition from its fetcher; no append is under way when it returns.
func (p *Partition) unfetch() {
	if t := p.target.Swap(nil); t != nil {
		t.remove()
	}
	p.source.reset()
}
