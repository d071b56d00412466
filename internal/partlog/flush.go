package partlog

import "time"

// Flush makes everything below upTo durable (negative: everything that is in
// the log now). Calls that wait for each other share one sync.
func (l *Log) Flush(upTo int64) error {
	if upTo < 0 {
		upTo = l.EndOffset()
	}
	if l.recovery.Load() >= upTo && !l.dirDirty.Load() {
		return nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.recovery.Load() >= upTo && !l.dirDirty.Load() {
		return nil // the one before us did it
	}
	l.mu.Lock()
	err := l.check()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.failWrite("flush", l.flushLocked())
}

// snapshotEvery is how many bytes after the last producer snapshot a flush
// takes one, so that recovery doesn't read more than that for producer state.
const snapshotEvery = 64 << 20

// flushLocked syncs all dirty segments and moves the recovery point to the log
// end as it was when it began. The caller holds flushMu, not mu.
func (l *Log) flushLocked() (err error) {
	l.mu.Lock()
	v := l.view.Load()
	var dirty []*segment
	defer func() {
		if err != nil { // what wasn't synced has to be when the log goes on
			l.mu.Lock()
			defer l.mu.Unlock()
			l.dirDirty.Store(true)
			for _, s := range dirty {
				s.dirty = true
			}
		}
	}()
	for i, s := range v.segs {
		if s.dirty || i == len(v.segs)-1 && v.size > 0 && l.recovery.Load() < v.end {
			s.dirty = false
			dirty = append(dirty, s)
		}
	}
	l.unflushed = 0
	if l.sinceSnap >= snapshotEvery {
		l.sinceSnap = 0
		err = l.failWrite("producer snapshot", l.takeSnapshot())
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if l.dirDirty.Swap(false) {
		if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
			return err
		}
	}
	for _, s := range dirty {
		if err := l.syncSegment(s, s == v.active()); err != nil {
			return err
		}
	}
	// In this order: what the file says is never above what is on disk, and
	// below the recovery point it is complete.
	if err := l.failWrite("leader epochs", l.epochs.write(l.opts.FS, l.path(epochFile), v.end)); err != nil {
		return err
	}
	if l.recovery.Load() < v.end {
		l.recovery.Store(v.end)
	}
	l.flushed.Store(time.Now().UnixNano())
	return nil
}

// FlushDue says whether flush.ms has passed since the last flush and there is
// something to flush.
func (l *Log) FlushDue(now time.Time) bool {
	every := l.cfg.Load().FlushInterval
	return every > 0 && l.recovery.Load() < l.EndOffset() && now.UnixNano()-l.flushed.Load() >= int64(every)
}

func (l *Log) writeEpochs() error {
	return l.epochs.write(l.opts.FS, l.path(epochFile), l.recovery.Load())
}

// syncSegment syncs one segment. Its index lists are the writer's, so those of
// the active segment are written under mu; the sync of the .log file runs
// beside appends.
func (l *Log) syncSegment(s *segment, active bool) error {
	if err := s.syncLog(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if active && s.index.count()-s.index.synced < indexSyncEvery {
		return s.syncTxns()
	}
	return s.syncIndexes()
}
