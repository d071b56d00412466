package logdir

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"milena/internal/partlog"
)

// running is the Set's goroutines and what they are asked to do.
type running struct {
	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup
	// beside is Options.Beside.
	beside func(func())

	mu      sync.Mutex
	closed  bool
	flush   map[*partlog.Log]bool
	removal []removal
	wake    chan struct{} // capacity 1: flush has entries
}

type removal struct {
	path string
	at   time.Time
}

func (r *running) init(beside func(func())) {
	r.beside = beside
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.flush = make(map[*partlog.Log]bool)
	r.wake = make(chan struct{}, 1)
}

// spawn runs fn beside the caller; Close waits for it.
func (r *running) spawn(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
	case r.beside != nil:
		r.beside(fn)
	default:
		r.wg.Go(fn)
	}
}

// flushSoon asks the flusher for a flush of l.
func (r *running) flushSoon(l *partlog.Log) {
	r.mu.Lock()
	r.flush[l] = true
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// flushLater is flushSoon at the next housekeeping.
func (r *running) flushLater(l *partlog.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush[l] = true
}

// wakeFlusher tries what flushLater put off.
func (r *running) wakeFlusher() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.flush) == 0 {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *running) takeFlushes() []*partlog.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*partlog.Log, 0, len(r.flush))
	for l := range r.flush {
		out = append(out, l)
	}
	clear(r.flush)
	return out
}

func (r *running) removeLater(path string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removal = append(r.removal, removal{path, at})
}

// due takes out the removals whose time has come.
func (r *running) due(now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	kept := r.removal[:0]
	for _, x := range r.removal {
		if x.at.After(now) {
			kept = append(kept, x)
		} else {
			out = append(out, x.path)
		}
	}
	r.removal = kept
	return out
}

// Start starts the loops; they end with ctx or Close.
func (s *Set) Start(ctx context.Context) {
	context.AfterFunc(ctx, s.run.stop)
	for _, d := range s.dirs {
		for _, path := range d.leftover {
			s.run.removeLater(path, time.Now())
		}
	}
	s.run.spawn(s.flushLoop)
	s.every(s.o.FlushCheckpointInterval, func(time.Time) { s.checkpoint() })
	if s.o.StartCheckpointInterval != s.o.FlushCheckpointInterval {
		s.every(s.o.StartCheckpointInterval, func(time.Time) { s.checkpoint() })
	}
	s.every(s.o.FlushCheckInterval, s.flushByTime)
	s.every(s.o.RetentionInterval, s.retention)
	s.every(s.o.SpaceInterval, s.housekeeping)
	s.run.spawn(s.cleanerLoop)
}

// every runs fn in a loop of its own; an interval of zero turns it off.
func (s *Set) every(interval time.Duration, fn func(now time.Time)) {
	if interval <= 0 {
		return
	}
	s.run.spawn(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-s.run.ctx.Done():
				return
			case <-t.C:
				fn(time.Now())
			}
		}
	})
}

// flushLoop flushes logs that sealed a segment.
func (s *Set) flushLoop() {
	for {
		select {
		case <-s.run.ctx.Done():
			return
		case <-s.run.wake:
			for _, l := range s.run.takeFlushes() {
				if err := l.Flush(-1); passing(err) { // any other failure took the directory offline and was reported
					s.run.flushLater(l)
				}
			}
		}
	}
}

// checkpoint writes recovery points and log start offsets.
func (s *Set) checkpoint() {
	for _, d := range s.dirs {
		if !d.online() {
			continue
		}
		if err := d.writeOffsets(s.o.FS, s.allOf(d)); err != nil {
			s.failIO(d, err)
		}
	}
}

// SaveOffsets makes the recovery points and log starts of all logs durable.
func (s *Set) SaveOffsets() error {
	var errs []error
	for _, d := range s.dirs {
		if err := d.writeOffsets(s.o.FS, s.allOf(d)); err != nil {
			s.failIO(d, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// flushByTime flushes logs whose flush.ms has passed.
func (s *Set) flushByTime(now time.Time) {
	for _, e := range s.list() {
		if e.log.FlushDue(now) {
			_ = e.log.Flush(-1) // as in flushLoop
		}
	}
}

func (s *Set) retention(now time.Time) {
	for _, e := range s.list() {
		if s.run.ctx.Err() != nil {
			return
		}
		_, _ = e.log.RetentionPass(now) // as in flushLoop
	}
}

// housekeeping reads the free space, removes what was deleted, and closes idle files.
func (s *Set) housekeeping(now time.Time) {
	s.readSpace()
	s.run.wakeFlusher()
	for _, e := range s.list() {
		_ = e.log.Reap(now) // as in flushLoop
		e.log.CloseIdle(now)
	}
	for _, path := range s.run.due(now) {
		if err := s.o.FS.RemoveAll(path); passing(err) {
			s.run.removeLater(path, now.Add(time.Minute))
		} else if err != nil {
			s.Fail(path, err)
		}
	}
}

// readSpace reads the free bytes of every directory and decides which are short of space.
func (s *Set) readSpace() {
	for _, d := range s.dirs {
		if d.online() {
			s.readFree(d)
		}
	}
}

// readFree reads the free bytes of one directory.
func (s *Set) readFree(d *dir) {
	d.readAt.Store(time.Now().UnixNano())
	free, total, err := s.o.FS.Free(d.path)
	if err != nil {
		s.failDir(d, err)
		return
	}
	reserve := s.reserve(total)
	d.free.Store(free)
	d.total.Store(total)
	d.budget.Store(free - reserve)
	low := free < reserve
	if d.low.Swap(low) == low {
		return
	}
	if low {
		s.log.Warn("log directory is short of space: client and mirror writes are refused", "dir", d.path, "free", free, "reserve", reserve)
	} else {
		s.log.Info("log directory has space again", "dir", d.path, "free", free)
	}
}

// lowPoll is how often a write that is refused for lack of space looks whether there is some again.
const lowPoll = 100 * time.Millisecond

// hasRoom takes n bytes from the directory's budget and reads the free space where that is used up.
func (s *Set) hasRoom(d *dir, n int64) bool {
	left := d.budget.Add(-n)
	switch {
	case d.low.Load():
		if time.Now().UnixNano()-d.readAt.Load() < int64(lowPoll) {
			return false
		}
		s.readFree(d)
	case left < 0:
		s.readFree(d)
		if d.budget.Add(-n) < 0 {
			return false // this write would reach into the reserve; a smaller one may not
		}
	}
	return !d.low.Load()
}

func (s *Set) reserve(total int64) int64 {
	if s.o.ReserveBytes >= 0 {
		return s.o.ReserveBytes
	}
	return min(1<<30, total/20)
}

// Close stops the loops, closes the logs and writes the checkpoints. With
// clean everything is flushed first and .kafka_cleanshutdown is left with
// brokerEpoch in each directory where all went well, so that the next start
// scans nothing there. When ctx ends, what is left is closed as after a crash.
func (s *Set) Close(ctx context.Context, clean bool, brokerEpoch int64) error {
	s.run.mu.Lock()
	if s.run.closed {
		s.run.mu.Unlock()
		return nil
	}
	s.run.closed = true
	s.run.mu.Unlock()
	s.run.stop()
	s.run.wg.Wait()
	if s.o.Registerer != nil {
		s.o.Registerer.Unregister(s.metrics)
	}
	var errs []error
	for _, d := range s.dirs {
		errs = append(errs, s.closeDir(ctx, d, clean, brokerEpoch))
	}
	s.unlock()
	return errors.Join(errs...)
}

func (s *Set) closeDir(ctx context.Context, d *dir, clean bool, brokerEpoch int64) error {
	logs := s.allOf(d)
	var g errgroup.Group
	g.SetLimit(s.sideBySide(32)) // the disk makes many of them durable together
	for _, l := range logs {
		g.Go(func() error {
			if err := ctx.Err(); clean && err != nil {
				_ = l.Close(false) // it will be recovered
				return err
			}
			return l.Close(clean)
		})
	}
	err := g.Wait()
	if !d.online() || err != nil {
		return err
	}
	if err := d.writeOffsets(s.o.FS, logs); err != nil || !clean {
		return err
	}
	return writeCleanShutdown(s.o.FS, d.path, brokerEpoch)
}

// closeLogs closes all logs after a failed start.
func (s *Set) closeLogs(clean bool) {
	for _, e := range s.list() {
		_ = e.log.Close(clean) // the start's own error matters more
	}
	s.closeFutures(nil)
}

// unlock gives up the directories.
func (s *Set) unlock() {
	for _, d := range s.dirs {
		if d.lock != nil {
			_ = d.lock.Close() // the lock ends with the process at the latest
			d.lock = nil
		}
	}
}
