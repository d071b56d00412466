// Package coord hosts coordinators: one state machine (machine.Machine) for each partition of an internal topic that
// this broker leads. A shard is loaded when the broker becomes the partition's leader, at each new leader epoch again,
// and unloaded when it ceases to be; after a failure of its log it is dropped and replayed. A shard whose log has a record
// of a newer release refuses to load: going on without the record could undo what it says.
package coord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

const (
	// reloadDelay is how long a shard whose log failed, though this broker still leads it, waits before it loads again.
	reloadDelay = time.Second
	// unknownDelay is the same for a log with a record that this release doesn't know: somebody has to deal with that first.
	unknownDelay = time.Minute
)

// Log is the log of one partition during one leadership.
type Log interface {
	machine.Log
	// Close ends the notifications. The log isn't used afterwards.
	Close()
}

// OpenLog opens the log of a partition that this broker leads at the epoch. committed is told the high watermark
// (exclusive) when it moves, lost once when the leadership at that epoch ends. Both may be called on any goroutine,
// and before OpenLog returns.
type OpenLog func(partition, epoch int32, committed func(hw int64), lost func(error)) (Log, error)

// Options configure Hosts. Topic, NodeID, Open, New and Logger are required.
type Options[M machine.Machine] struct {
	Topic  string
	NodeID int32
	Open   OpenLog
	// New makes the empty machine of a partition.
	New func(partition int32) M
	// Check is asked before each command whether the partition would take an append. Nil: the log is asked, if it has
	// a method Check() error.
	Check func(partition int32) error
	// MaxBatchBytes is the topic's max.message.bytes, asked at each load; nil: the runtime's default.
	MaxBatchBytes func() int
	Logger        *slog.Logger
	// Loaded, if not nil, is told after each load, on the shard's goroutine's time but off it.
	Loaded func(partition int32)
	// LoadTime, if not nil, is told how long each load took, on the machine's goroutine.
	LoadTime func(d time.Duration)
	// Ended, if not nil, gets each machine after its last command: nothing else uses it any more.
	Ended func(m M)
}

// Hosts are the shards of one internal topic that this broker leads. Its methods may be called on any goroutine.
type Hosts[M machine.Machine] struct {
	opts Options[M]
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.RWMutex
	count  int32 // partitions of the topic, 0 while it doesn't exist
	shards map[int32]*Shard[M]
}

// NewHosts returns Hosts without shards: Apply brings them.
func NewHosts[M machine.Machine](o Options[M]) *Hosts[M] {
	h := &Hosts[M]{opts: o, shards: map[int32]*Shard[M]{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Close unloads all shards and waits until they are.
func (h *Hosts[M]) Close() {
	h.mu.Lock()
	h.count = 0
	clear(h.shards)
	h.stop()
	h.mu.Unlock()
	h.wg.Wait()
}

// Apply brings the shards in line with the metadata. Deltas come in order, each after the replicas have taken it.
func (h *Hosts[M]) Apply(d *meta.Delta) {
	t := d.Next.TopicByName(h.opts.Topic)
	var ps []*meta.Partition
	if t != nil {
		ps = t.Partitions
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	h.count = int32(len(ps))
	for p, s := range h.shards {
		if int(p) >= len(ps) || ps[p].Leader != h.opts.NodeID || ps[p].LeaderEpoch != s.epoch || t.ID != s.topicID {
			s.cancel()
			delete(h.shards, p)
		}
	}
	for i, p := range ps {
		id := int32(i)
		if p.Leader == h.opts.NodeID && h.shards[id] == nil {
			s := &Shard[M]{h: h, topicID: t.ID, partition: id, epoch: p.LeaderEpoch}
			s.ctx, s.cancel = context.WithCancel(h.ctx)
			h.shards[id] = s
			h.wg.Go(s.run)
		}
	}
}

// Count is the number of partitions of the topic, 0 while it doesn't exist.
func (h *Hosts[M]) Count() int32 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.count
}

// Shard returns the shard of a partition; NOT_COORDINATOR if this broker doesn't lead it.
func (h *Hosts[M]) Shard(partition int32) (*Shard[M], error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if s := h.shards[partition]; s != nil {
		return s, nil
	}
	return nil, api.Errorf(api.NotCoordinator, "this broker does not lead partition %d of %s", partition, h.opts.Topic)
}

// All returns the shards led here, by partition.
func (h *Hosts[M]) All() []*Shard[M] {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*Shard[M], 0, len(h.shards))
	for p := int32(0); p < h.count; p++ {
		if s := h.shards[p]; s != nil {
			out = append(out, s)
		}
	}
	return out
}

// States counts the shards led here: those that load or wait to, those that serve, and those whose logs this release can't load.
func (h *Hosts[M]) States() (loading, active, failed int) {
	for _, s := range h.All() {
		sv, err := s.serving()
		switch {
		case errors.Is(err, machine.ErrLoading):
			loading++
		case err != nil:
			failed++
		default:
			select {
			case <-sv.rt.Ready():
				active++
			default:
				loading++
			}
		}
	}
	return loading, active, failed
}

// Shard is the coordinator of one partition during one leadership.
type Shard[M machine.Machine] struct {
	h         *Hosts[M]
	topicID   ids.UUID
	partition int32
	epoch     int32
	ctx       context.Context
	cancel    context.CancelFunc
	current   atomic.Pointer[serving[M]] // nil while there is no runtime
	refused   atomic.Pointer[api.Error]  // why the log can't be loaded by this release, nil if it can
}

type serving[M machine.Machine] struct {
	m  M
	rt *machine.Runtime
}

// Partition is the shard's partition of the topic.
func (s *Shard[M]) Partition() int32 { return s.partition }

// serving returns the machine that serves, or why there is none: machine.ErrLoading, or COORDINATOR_NOT_AVAILABLE with the
// record of a newer release.
func (s *Shard[M]) serving() (*serving[M], error) {
	if refused := s.refused.Load(); refused != nil {
		return nil, refused
	}
	if sv := s.current.Load(); sv != nil {
		return sv, nil
	}
	return nil, machine.ErrLoading
}

// Do runs a command on the shard's machine and returns its reply once what it depends on is committed. While the shard
// loads the error is machine.ErrLoading; if its leadership ends it is machine.ErrLost; if its log has a record of a newer
// release, COORDINATOR_NOT_AVAILABLE with that record's name.
func (s *Shard[M]) Do(ctx context.Context, cmd func(m M) machine.Command) (any, error) {
	sv, err := s.serving()
	if err != nil {
		return nil, err
	}
	return sv.rt.Do(ctx, cmd(sv.m))
}

// Submit runs a command on the shard's machine; done gets its reply as from machine.Runtime.Submit, and the errors of Do.
func (s *Shard[M]) Submit(cmd func(m M) machine.Command, done func(any, error)) {
	sv, err := s.serving()
	if err != nil {
		done(nil, err)
		return
	}
	sv.rt.Submit(context.Background(), cmd(sv.m), done)
}

// SubmitNow is Submit for commands such as heartbeats: it overtakes queued commands and waits for no commit.
func (s *Shard[M]) SubmitNow(cmd func(m M) machine.Command, done func(any, error)) {
	sv, err := s.serving()
	if err != nil {
		done(nil, err)
		return
	}
	sv.rt.SubmitNow(context.Background(), cmd(sv.m), done)
}

// DoNow is Do with the rules of SubmitNow.
func (s *Shard[M]) DoNow(ctx context.Context, cmd func(m M) machine.Command) (any, error) {
	sv, err := s.serving()
	if err != nil {
		return nil, err
	}
	return sv.rt.DoNow(ctx, cmd(sv.m))
}

// Machine returns the machine that serves now, for what it keeps for other goroutines; false while there is none.
func (s *Shard[M]) Machine() (m M, ok bool) {
	if sv := s.current.Load(); sv != nil {
		return sv.m, true
	}
	return m, false
}

// run loads the machine and serves it until the leadership ends. After a failure of the log it loads again.
func (s *Shard[M]) run() {
	log := s.h.opts.Logger.With("topic", s.h.opts.Topic, "partition", s.partition, "epoch", s.epoch)
	for {
		err := s.serve(log)
		if s.ctx.Err() != nil {
			return
		}
		delay := reloadDelay
		var unknown *machine.UnknownRecordError
		if code, _ := api.CodeOf(err); code == api.NotLeaderOrFollower {
			log.Debug("coordinator lost its partition", "error", err) // metadata is about to say so too, and ends the shard
		} else if errors.As(err, &unknown) {
			delay = unknownDelay
			s.refuse(unknown, log)
		} else {
			log.Warn("coordinator failed, loading again", "error", err)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// refuse has every command answered with the record that keeps the shard from serving.
func (s *Shard[M]) refuse(unknown *machine.UnknownRecordError, log *slog.Logger) {
	e := &api.Error{Code: api.CoordinatorNotAvailable, Err: unknown, Message: fmt.Sprintf(
		"the coordinator of %s-%d does not serve, since a newer release must have written its log: %v; run that release again", s.h.opts.Topic, s.partition, unknown)}
	before := s.refused.Swap(e)
	if before == nil || before.Message != e.Message {
		log.Error("coordinator does not serve: its log has a record that this release doesn't know; run the release that wrote it",
			"offset", unknown.Offset, "record", unknown.Err)
	}
}

// serve runs one machine on one opened log until either is done for.
func (s *Shard[M]) serve(log *slog.Logger) error {
	o := &s.h.opts
	var l link
	lg, err := o.Open(s.partition, s.epoch, l.committed, l.lost)
	if err != nil {
		return err
	}
	defer lg.Close()
	sv := &serving[M]{m: o.New(s.partition)}
	mo := machine.Options{Machine: sv.m, Log: lg, Name: o.Topic, Logger: log}
	if o.Check != nil {
		mo.Check = func() error { return o.Check(s.partition) }
	} else if c, ok := lg.(interface{ Check() error }); ok {
		mo.Check = c.Check
	}
	if o.MaxBatchBytes != nil {
		mo.MaxBatchBytes = o.MaxBatchBytes()
	}
	mo.Hooks.Loaded = func(records int, d time.Duration) {
		log.Debug("coordinator loaded", "records", records, "duration", d)
		s.refused.Store(nil)
		if o.LoadTime != nil {
			o.LoadTime(d)
		}
	}
	sv.rt = machine.New(mo)
	l.attach(sv.rt)
	sv.rt.Start()
	s.current.Store(sv)
	if o.Loaded != nil {
		go func() {
			select {
			case <-sv.rt.Ready():
				o.Loaded(s.partition)
			case <-sv.rt.Done():
			}
		}()
	}
	select {
	case <-sv.rt.Done():
	case <-s.ctx.Done():
		sv.rt.Close()
		<-sv.rt.Done()
	}
	s.current.Store(nil)
	if o.Ended != nil {
		o.Ended(sv.m)
	}
	return sv.rt.Err()
}

// link passes a log's notifications to the runtime, which is made after the log is opened.
type link struct {
	mu    sync.Mutex
	rt    *machine.Runtime
	hw    int64
	cause error
	gone  bool
}

func (l *link) committed(hw int64) {
	l.mu.Lock()
	l.hw = max(l.hw, hw)
	rt := l.rt
	l.mu.Unlock()
	if rt != nil {
		rt.Committed(hw)
	}
}

func (l *link) lost(cause error) {
	l.mu.Lock()
	l.cause, l.gone = cause, true
	rt := l.rt
	l.mu.Unlock()
	if rt != nil {
		rt.Lost(cause)
	}
}

func (l *link) attach(rt *machine.Runtime) {
	l.mu.Lock()
	l.rt = rt
	hw, cause, gone := l.hw, l.cause, l.gone
	l.mu.Unlock()
	rt.Committed(hw)
	if gone {
		rt.Lost(cause)
	}
}
