package partlog

import (
	"errors"
	"fmt"
	"time"

	"milena/internal/record"
)

// TruncateTo removes everything at or above off and says whether any batch
// went. A batch that holds off is removed whole, the log end is then off.
// Epochs that start at or above off are dropped even if nothing else is (D1).
// When it returns, the cut is durable.
func (l *Log) TruncateTo(off int64) (bool, error) {
	defer l.lockAll()()
	if err := l.check(); err != nil {
		return false, err
	}
	v := l.view.Load()
	if off >= v.end {
		l.epochs.truncateEnd(off)
		return false, l.failWrite("truncate", l.writeEpochs())
	}
	if off < v.segs[0].base {
		return true, l.failWrite("truncate", l.restart(off))
	}
	return true, l.failWrite("truncate", l.cut(v, off))
}

// TruncateFullyAndStartAt empties the log, which then starts and ends at off.
func (l *Log) TruncateFullyAndStartAt(off int64) error {
	if off < 0 {
		return fmt.Errorf("%w: log %s can't start at %d", ErrOffsetOutOfRange, l.name, off)
	}
	defer l.lockAll()()
	if err := l.check(); err != nil {
		return err
	}
	return l.failWrite("truncate", l.restart(off))
}

// lockAll keeps compactions, flushes and writers out; the result undoes it.
func (l *Log) lockAll() (unlock func()) {
	l.stopClean.Add(1)
	l.cleanMu.Lock()
	l.stopClean.Add(-1)
	l.flushMu.Lock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		l.flushMu.Unlock()
		l.cleanMu.Unlock()
	}
}

// lower takes recovery point, log start and high watermark down to off and
// makes that durable before anything is cut: what is appended there later
// would else pass as flushed.
func (l *Log) lower(off int64) error {
	l.recovery.Store(min(l.recovery.Load(), off))
	l.hw.Store(min(l.hw.Load(), off))
	l.start.Store(min(l.start.Load(), off))
	l.cleanedTo.Store(min(l.cleanedTo.Load(), off))
	if l.opts.Checkpoint == nil {
		return nil
	}
	return l.opts.Checkpoint()
}

// cut removes the log from off on; off lies in the log. An error without errUndo
// comes before anything was cut: the call can be made again. The caller holds all locks.
func (l *Log) cut(v *view, off int64) error {
	hw, epochs := l.hw.Load(), l.epochs.list.Load()
	undo := func(err error) error {
		l.hw.Store(hw)
		l.epochs.list.Store(epochs)
		return err
	}
	if err := l.lower(off); err != nil {
		return undo(err)
	}
	i := v.find(off)
	s := v.segs[i]
	p, found, err := s.locate(off, v.bytes(i))
	if err != nil {
		return undo(err)
	}
	size, firstGone := v.bytes(i), off
	if found {
		size, firstGone = p.pos, min(off, p.base)
	}
	l.epochs.truncateEnd(firstGone)
	if err := l.writeEpochs(); err != nil {
		return undo(err)
	}
	// Readers see the cut before it happens.
	l.view.Store(&view{segs: v.segs[: i+1 : i+1], end: off, size: size})
	if err := l.cutFiles(v.segs[i+1:], s, off, size); err != nil {
		return errors.Join(err, errUndo)
	}
	return nil
}

func (l *Log) cutFiles(gone []*segment, s *segment, off, size int64) (err error) {
	for j := len(gone) - 1; j >= 0; j-- {
		if err := gone[j].remove(""); err != nil {
			return err
		}
	}
	if l.tail, err = cutSegment(s, off, size); err != nil {
		return err
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	return l.reloadProducers(l.view.Load())
}

// cutSegment shortens a segment to size bytes, which hold no batch at or above
// off, and returns the offset after its last batch.
func cutSegment(s *segment, off, size int64) (next int64, err error) {
	if err := cutEntries(s, off, size); err != nil {
		return 0, err
	}
	if err := cutLog(s, size); err != nil {
		return 0, err
	}
	if err := s.cutAborted(off); err != nil {
		return 0, err
	}
	if err := s.syncTxns(); err != nil {
		return 0, err
	}
	// What the indexes say no more is read from the batches behind the last entry.
	s.maxTime.Store(nil)
	s.firstTime, s.sinceIndex = -1, 0
	next = s.base
	if size == 0 {
		s.maxTime.Store(&indexEntry{-1, s.base})
		return next, nil
	}
	last, _, err := s.index.lastEntry()
	if err != nil {
		return 0, err
	}
	var inner error
	err = s.walkHeaders(last.val, size, func(h record.Batch, _ int64) bool {
		next = h.NextOffset()
		s.sinceIndex += h.Len()
		inner = s.noteTime(h.MaxTimestamp(), h.LastOffset())
		return inner == nil
	})
	return next, errors.Join(err, inner)
}

// cutEntries drops index entries of what is cut.
func cutEntries(s *segment, off, size int64) error {
	n, err := s.index.countWhile(func(e indexEntry) bool { return e.val < size && e.key < off })
	if err != nil {
		return err
	}
	if err := s.index.truncate(n); err != nil {
		return err
	}
	n, err = s.times.countWhile(func(e indexEntry) bool { return e.val < off })
	if err != nil {
		return err
	}
	return s.times.truncate(n)
}

// restart empties the log and begins it at off. The caller holds all locks.
func (l *Log) restart(off int64) error {
	start, hw, epochs := l.start.Load(), l.hw.Load(), l.epochs.list.Load()
	l.start.Store(off) // up or down
	err := l.lower(off)
	if err == nil {
		l.epochs.clear(off)
		err = l.writeEpochs()
	}
	if err != nil { // nothing is gone yet
		l.start.Store(start)
		l.hw.Store(hw)
		l.epochs.list.Store(epochs)
		return err
	}
	if err := l.emptyFiles(off); err != nil {
		return errors.Join(err, errUndo)
	}
	return nil
}

// emptyFiles puts an empty segment at off in the place of all others.
func (l *Log) emptyFiles(off int64) error {
	v := l.view.Load()
	for j := len(v.segs) - 1; j >= 0; j-- {
		if err := v.segs[j].remove(""); err != nil {
			return err
		}
	}
	s, err := l.createActive(off)
	if err != nil {
		return err
	}
	l.recovery.Store(off)
	l.hw.Store(off)
	l.tail = off
	l.view.Store(&view{segs: []*segment{s}, end: off})
	offs, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, o := range offs {
		if err := l.removeSnapshot(o); err != nil {
			return err
		}
	}
	l.producers.clear(off)
	l.producers.snapshot = -1
	return l.opts.FS.SyncDir(l.opts.Dir)
}

// reloadProducers rebuilds the producer state as of the log end.
func (l *Log) reloadProducers(v *view) error {
	if err := l.loadSnapshot(v.end, time.Now()); err != nil {
		return err
	}
	return l.replay(v, v.end, l.producers.end, v.end)
}

// AdvanceStart moves the log start offset up to off (at most the log end)
// without removing anything yet, and says whether it moved. The caller bounds
// off by the high watermark.
func (l *Log) AdvanceStart(off int64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return false, err
	}
	if end := l.view.Load().end; off > end {
		return false, fmt.Errorf("%w: log start of %s can't move to %d, the log ends at %d", ErrOffsetOutOfRange, l.name, off, end)
	}
	if off <= l.start.Load() {
		return false, nil
	}
	l.start.Store(off)
	l.epochs.truncateStart(off)
	return true, nil
}
