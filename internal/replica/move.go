package replica

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
)

// mover moves replicas between log directories (AlterReplicaLogDirs, KIP-113):
// each is copied beside its own work into a future log, which takes its place
// once it has everything.
type mover struct {
	mu    sync.Mutex
	moves map[*Partition]*move
	wake  chan struct{} // capacity 1: there are moves
	quota quota
}

// move is one replica on its way.
type move struct {
	p      *Partition
	future *partlog.Log
	// restart is set by a truncation of the replica: the copy begins anew.
	restart atomic.Bool
	// announced is set once the controller is asked to have the replica in the copy's directory. That comes before the copy is
	// put in place (KIP-858): else a crash between the two would leave the controller with a directory that has no log of the
	// replica, and it would be elected without one if the other directory has failed meanwhile. Guarded by mover.mu for the
	// move being given up.
	announced atomic.Bool
	begun     bool      // the copy has begun at the log start
	cleaned   int64     // where the replica's log was compacted to when the copy began; a pass that ends later begins it anew
	until     time.Time // no attempt to put the copy in place before
	found     bool      // an earlier process made the copy: it may have parted from the replica's log
}

// moveDirs is what a mover needs of the log directories; *logdir.Set has it.
type moveDirs interface {
	Prefer(topic string, partition int32, path string) error
	CreateFuture(topic string, partition int32, path string) (*partlog.Log, error)
	Promote(future *partlog.Log) (*partlog.Log, error)
	DropFuture(future *partlog.Log)
	Future(topic string, partition int32) *partlog.Log
	FutureDir(topic string, partition int32) ids.UUID
}

var _ moveDirs = (*logdir.Set)(nil)

const (
	// moveBytes is how much is copied at once: no truncation and no change of
	// leadership comes in between.
	moveBytes = 1 << 20
	// moveBackoff is the pause after an error, and of a move that has to wait.
	moveBackoff = 100 * time.Millisecond
	// heldPause is the pause before a copy that could not be put in place is tried again: each attempt costs the metadata two records.
	heldPause = 5 * time.Second
)

func (v *mover) init() {
	v.moves, v.wake = map[*Partition]*move{}, make(chan struct{}, 1)
}

// SetMoveRate sets replica.alter.log.dirs.io.max.bytes.per.second;
// math.MaxInt64: none.
func (m *Manager) SetMoveRate(bytesPerSec int64) { m.moves.quota.set(bytesPerSec) }

// MoveLog moves a replica to the log directory with that path, or gives up a
// move if it is there. One that isn't on this broker yet is made there when it
// comes: then the error is REPLICA_NOT_AVAILABLE. Others are LOG_DIR_NOT_FOUND
// and KAFKA_STORAGE_ERROR.
func (m *Manager) MoveLog(topic string, partition int32, path string) error {
	dirs, ok := m.opts.Dirs.(moveDirs)
	if !ok {
		return api.Errorf(api.UnsupportedVersion, "these log directories can't move logs")
	}
	p, err := m.Get(topic, partition)
	if code, _ := api.CodeOf(err); code == api.UnknownTopicOrPartition || code == api.NotLeaderOrFollower {
		if err := dirs.Prefer(topic, partition, path); err != nil {
			return err
		}
		return api.Errorf(api.ReplicaNotAvailable, "this broker has no replica of %s-%d; if it gets one, that will be in %s", topic, partition, path)
	}
	if err != nil {
		return err
	}
	m.moves.mu.Lock()
	if mv := m.moves.moves[p]; mv != nil && mv.announced.Load() {
		m.moves.mu.Unlock()
		if filepath.Dir(mv.future.Dir()) == filepath.Clean(path) {
			return nil
		}
		return api.Errorf(api.KafkaStorageError, "%s is about to be in place in %s: ask again when it is", p.name(), filepath.Dir(mv.future.Dir()))
	}
	delete(m.moves.moves, p)
	m.moves.mu.Unlock()
	p.moving.Store(nil)
	future, err := dirs.CreateFuture(topic, partition, path)
	if err != nil || future == nil {
		return err
	}
	m.moves.add(&move{p: p, future: future})
	return nil
}

// resumeMove goes on with the move of a new partition that an earlier process began.
func (m *Manager) resumeMove(p *Partition) {
	dirs, ok := m.opts.Dirs.(moveDirs)
	if !ok {
		return
	}
	if future := dirs.Future(p.topic.name, p.index); future != nil {
		m.log.Info("move of a replica to another log directory goes on", "topic", p.topic.name, "partition", p.index, "to", future.Dir(), "offset", future.EndOffset())
		m.moves.add(&move{p: p, future: future, found: true})
	}
}

func (v *mover) add(mv *move) {
	mv.p.moving.Store(mv)
	v.mu.Lock()
	v.moves[mv.p] = mv
	v.mu.Unlock()
	poke(v.wake)
}

// list is the moves under way, in a fixed order.
func (v *mover) list() []*move {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]*move, 0, len(v.moves))
	for _, mv := range v.moves {
		out = append(out, mv)
	}
	slices.SortFunc(out, func(a, b *move) int {
		return cmp.Or(cmp.Compare(a.p.topic.name, b.p.topic.name), cmp.Compare(a.p.index, b.p.index))
	})
	return out
}

func (v *mover) forget(mv *move) {
	v.mu.Lock()
	if v.moves[mv.p] == mv {
		delete(v.moves, mv.p)
	}
	v.mu.Unlock()
	mv.p.moving.CompareAndSwap(mv, nil)
}

func (v *mover) run(ctx context.Context, m *Manager) {
	dirs, ok := m.opts.Dirs.(moveDirs)
	if !ok {
		return
	}
	for ctx.Err() == nil {
		list := v.list()
		if len(list) == 0 {
			select {
			case <-ctx.Done():
			case <-v.wake:
			}
			continue
		}
		for _, mv := range list {
			if ctx.Err() != nil {
				return
			}
			switch done, err := m.moveStep(mv, dirs); {
			case done:
				v.forget(mv)
				m.checkDir(mv.p)
			case errors.Is(err, errNotAnnounced):
				pause(ctx, moveBackoff/10)
			case errors.Is(err, errNotNow):
				pause(ctx, moveBackoff)
			case err != nil:
				m.heldUp(mv, err)
				pause(ctx, moveBackoff)
			}
		}
		for v.quota.exceeded(time.Now()) && ctx.Err() == nil {
			pause(ctx, moveBackoff)
		}
	}
}

func (m *Manager) heldUp(mv *move, err error) {
	m.log.Warn("move of a replica to another log directory is held up", "topic", mv.p.topic.name, "partition", mv.p.index, "to", mv.future.Dir(), "error", err)
}

// moveStep copies a piece of a replica, or puts the copy in its place. done
// says that there is nothing left to do for the move.
func (m *Manager) moveStep(mv *move, dirs moveDirs) (done bool, err error) {
	p := mv.p
	p.mu.RLock()
	gone := p.st.Load().gone != nil
	var all bool
	var n int
	if !gone {
		all, n, err = mv.copy()
	}
	p.mu.RUnlock()
	m.moves.quota.use(n, time.Now())
	switch {
	case gone, errors.Is(err, partlog.ErrClosed):
		dirs.DropFuture(mv.future)
		return true, nil
	case err != nil || !all:
		return false, err
	}
	if time.Now().Before(mv.until) {
		return false, errNotNow
	}
	if err := mv.future.Flush(-1); err != nil { // most of it, before appends have to wait
		return false, err
	}
	if !m.announced(mv, dirs) {
		return false, errNotAnnounced
	}
	return m.promote(mv, dirs)
}

var errNotNow = errors.New("the copy could not be put in place, and is tried again later")

var errNotAnnounced = errors.New("the metadata has the replica in its old directory yet")

// announced reports whether the metadata has the replica where its copy is, and else has the controller asked.
func (m *Manager) announced(mv *move, dirs moveDirs) bool {
	p := mv.p
	to := dirs.FutureDir(p.topic.name, p.index)
	if m.opts.Controller == nil || to.IsZero() {
		return true
	}
	mp := m.inMetadata(p)
	if mp == nil || !slices.Contains(mp.Replicas, m.opts.NodeID) {
		return false // it goes
	}
	m.moves.mu.Lock()
	if m.moves.moves[p] == mv {
		mv.announced.Store(true)
	}
	m.moves.mu.Unlock()
	if !mv.announced.Load() {
		return false // given up
	}
	if m.assigned(mp) == to {
		return true
	}
	m.assign.check(m, p, mp)
	return false
}

// inMetadata is a partition as the metadata has it, nil if it doesn't.
func (m *Manager) inMetadata(p *Partition) *meta.Partition {
	if mt := m.Image().TopicByID(p.topic.id); mt != nil {
		return mt.Partition(p.index)
	}
	return nil
}

// checkDir looks whether the metadata has a replica in the directory where it is.
func (m *Manager) checkDir(p *Partition) {
	if mp := m.inMetadata(p); mp != nil {
		m.assign.check(m, p, mp)
	}
}

// copy copies up to moveBytes and reports whether the copy has everything.
// p.mu is held.
func (mv *move) copy() (all bool, n int, err error) {
	from, to := mv.p.l(), mv.future
	if mv.found {
		if mv.begun, err = rejoin(from, to); err != nil {
			return false, 0, err
		}
		mv.found, mv.cleaned = false, from.CleanedTo()
	}
	if c := from.CleanedTo(); c != mv.cleaned { // a tombstone that the copy needs may be gone
		mv.begun, mv.cleaned = false, c
	}
	if mv.restart.Swap(false) || to.EndOffset() < from.StartOffset() {
		mv.begun = false
	}
	off := to.EndOffset()
	if !mv.begun {
		off = from.StartOffset()
	}
	end := from.EndOffset()
	if off >= end {
		if !mv.begun || off > end {
			err = to.TruncateFullyAndStartAt(end)
			mv.begun = err == nil
		}
		return err == nil, 0, err
	}
	info, err := from.Read(off, moveBytes, end, true)
	if err != nil {
		return false, 0, err
	}
	defer info.Release()
	if info.Bytes == 0 { // nothing but a gap up to the end
		return mv.begun, 0, nil
	}
	if !mv.begun {
		if err := to.TruncateFullyAndStartAt(info.FirstOffset); err != nil {
			return false, 0, err
		}
	}
	for _, s := range info.Spans {
		buf, err := s.Bytes()
		if err == nil {
			_, err = to.AppendAsIs(buf, partlog.AppendOptions{MaxEpoch: -1, Origin: partlog.OriginReplication})
		}
		if err != nil {
			return false, n, err
		}
		n += len(buf)
	}
	mv.begun = true
	if start := from.StartOffset(); start > to.StartOffset() && start <= to.EndOffset() {
		if _, err := to.AdvanceStart(start); err != nil {
			return false, n, err
		}
	}
	to.UpdateHighWatermark(min(mv.p.hw.Load(), to.EndOffset()))
	return to.EndOffset() >= end, n, nil
}

// rejoin cuts a copy that an earlier process made to where it agrees with the log, by leader epochs as a follower does:
// the log may have been truncated and written anew since. It reports whether the copy is one of the log's beginning; a
// compacted log is copied anew, since a tombstone that the copy needs may be gone.
func rejoin(from, to *partlog.Log) (ok bool, err error) {
	if from.Config().Compact {
		return false, nil
	}
	for to.EndOffset() > to.StartOffset() {
		epoch := to.LatestEpoch()
		have, end := from.EpochEnd(epoch)
		if epoch < 0 || have < 0 {
			return false, nil
		}
		if have < epoch {
			_, last := to.EpochEnd(have)
			end = min(end, last)
		}
		if _, err := to.TruncateTo(min(end, to.EndOffset())); err != nil {
			return false, err
		}
		if have == epoch || to.LatestEpoch() >= epoch {
			return true, nil
		}
	}
	return false, nil
}

// promote puts the copy in the replica's place, unless much was appended since.
func (m *Manager) promote(mv *move, dirs moveDirs) (done bool, err error) {
	p := mv.p
	p.mu.Lock()
	if p.st.Load().gone != nil {
		p.mu.Unlock()
		return false, nil // the next step sees it
	}
	all, _, err := mv.copy()
	if err != nil || !all {
		p.mu.Unlock()
		return false, err
	}
	if start := p.l().StartOffset(); start > mv.future.StartOffset() {
		if _, err := mv.future.AdvanceStart(start); err != nil {
			p.mu.Unlock()
			return false, err
		}
	}
	l, err := dirs.Promote(mv.future)
	if err == nil {
		l.UpdateHighWatermark(p.hw.Load())
		p.lp.Store(l)
	}
	p.mu.Unlock()
	switch {
	case errors.Is(err, logdir.ErrHeld):
		return m.hold(mv, dirs, err)
	case err != nil:
		// Where both directories are online the complete copy is put in place when there is space: see retryLogs.
		p.reopen.Store(!errors.Is(err, logdir.ErrOffline))
		p.retire(p.storageError(err))
		m.tellFollowed(p)
		return true, err
	}
	p.touchAll()
	return true, nil
}

// hold leaves a replica where it is whose copy could not take its place, until it is tried again. Meanwhile the controller must
// know the directory that it is in.
func (m *Manager) hold(mv *move, dirs moveDirs, err error) (done bool, _ error) {
	p := mv.p
	future := dirs.Future(p.topic.name, p.index)
	m.moves.mu.Lock()
	mv.announced.Store(false)
	if future != nil {
		mv.future = future
	}
	m.moves.mu.Unlock()
	mv.until = time.Now().Add(heldPause)
	m.checkDir(p)
	if future == nil {
		m.log.Error("move of a replica to another log directory is given up: ask for it again", "topic", p.topic.name, "partition", p.index, "error", err)
		return true, nil
	}
	return false, err
}
