package partlog

import (
	"errors"
	"time"

	"milena/internal/disk"
)

// RetentionPass deletes segments that retention by time, size or start offset
// lets go, below the high watermark, and expires producers. The files are
// renamed to .deleted at once and removed by Reap. It returns the number of
// segments let go; while a compaction runs it does nothing.
func (l *Log) RetentionPass(now time.Time) (int, error) {
	cfg := l.cfg.Load()
	l.producers.expire(now, cfg.ProducerIDExpiration)
	if !l.cleanMu.TryLock() {
		return 0, nil
	}
	defer l.cleanMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return 0, err
	}
	n, reason, err := l.expired(l.view.Load(), cfg, now)
	if err == nil && n > 0 {
		err = l.dropSegments(n, reason, now)
	}
	return n, l.failWrite("retention", err)
}

// expired is how many of the oldest segments may go, and why the last of them.
func (l *Log) expired(v *view, cfg *Config, now time.Time) (n int, reason string, err error) {
	hw, start := l.hw.Load(), l.start.Load()
	excess := int64(-1)
	if cfg.Delete && cfg.RetentionBytes >= 0 {
		excess = l.Size() - cfg.RetentionBytes
	}
	for i, s := range v.segs {
		last := i == len(v.segs)-1
		if (last && v.size == 0) || v.next(i) > hw {
			break
		}
		old := false
		if cfg.Delete && cfg.Retention >= 0 {
			if old, err = s.olderThan(now, cfg.Retention); err != nil {
				return 0, "", err
			}
		}
		switch {
		case !last && v.segs[i+1].base <= start:
			reason = "below the log start"
		case old:
			reason = "retention.ms"
		case excess >= 0 && excess >= v.bytes(i):
			reason = "retention.bytes"
		default:
			return n, reason, nil
		}
		excess -= v.bytes(i)
		n++
	}
	return n, reason, nil
}

// olderThan says whether the newest record is older than d; without
// timestamps, whether the file is.
func (s *segment) olderThan(now time.Time, d time.Duration) (bool, error) {
	m, err := s.largest()
	if err != nil {
		return false, err
	}
	if m.key < 0 {
		info, err := s.fs.Stat(s.log.path())
		if err != nil {
			return false, err
		}
		m.key = info.ModTime().UnixMilli()
	}
	return clampMs(now.UnixMilli()-m.key) > d, nil
}

// dropSegments takes the n oldest segments out of the log. The caller holds
// cleanMu and mu.
func (l *Log) dropSegments(n int, reason string, now time.Time) error {
	if n == len(l.view.Load().segs) {
		if err := l.roll(l.view.Load().end); err != nil {
			return err
		}
	}
	v := l.view.Load()
	gone, kept := v.segs[:n], v.segs[n:]
	if kept[0].base > l.start.Load() {
		l.start.Store(kept[0].base)
		l.epochs.truncateStart(kept[0].base)
	}
	// The last batch's epoch must be known when the batch is gone (D1). Below the
	// recovery point the file has it already, so a full disk can be relieved.
	if err := l.writeEpochs(); err != nil && (!disk.Full(err) || kept[0].base > l.recovery.Load()) {
		return err
	}
	l.view.Store(&view{segs: append([]*segment(nil), kept...), end: v.end, size: v.size})
	for _, s := range gone {
		l.log.Info("segment deleted", "offset", s.base, "bytes", s.size.Load(), "reason", reason)
		if err := l.retire(s, now); err != nil {
			return errors.Join(err, errUndo)
		}
		if s.base != l.producers.snapshot {
			if err := l.removeSnapshot(s.base); err != nil {
				return errors.Join(err, errUndo)
			}
		}
	}
	l.dirDirty.Store(true)
	return nil
}

// retire renames the files of a segment that is no longer in the view to
// .deleted, for Reap.
func (l *Log) retire(s *segment, now time.Time) error {
	if err := s.rename("", deletedSuffix); err != nil {
		return err
	}
	s.deletedAt = now
	l.deleted = append(l.deleted, s)
	return nil
}

// Reap removes the files of segments that were deleted at least
// file.delete.delay.ms ago, and closes files that are not in use.
func (l *Log) Reap(now time.Time) error {
	delay := l.cfg.Load().FileDeleteDelay
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	kept := l.deleted[:0]
	for i, s := range l.deleted {
		if now.Sub(s.deletedAt) < delay {
			kept = append(kept, s)
			continue
		}
		if err := s.remove(deletedSuffix); err != nil {
			l.deleted = append(kept, l.deleted[i:]...)
			return l.fail("delete segment", err)
		}
	}
	clear(l.deleted[len(kept):])
	l.deleted = kept
	return nil
}

// idleAfter is how long files stay open that nobody uses.
const idleAfter = time.Minute

// CloseIdle closes files that were not used for a minute. They are opened
// again when needed. It does something at most once a minute.
func (l *Log) CloseIdle(now time.Time) {
	if last := l.idled.Load(); now.UnixNano()-last < int64(idleAfter) || !l.idled.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	for _, s := range l.view.Load().segs {
		s.closeIdle()
	}
}
