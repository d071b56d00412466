package partlog

import (
	"errors"
	"time"

	"milena/internal/disk"
)

// writeTxns writes a new transaction index with the given suffix; no entries, no file.
func (s *segment) writeTxns(suffix string) error {
	s.txnMu.Lock()
	defer s.txnMu.Unlock()
	s.txnsRead, s.txnWritten = true, len(s.txns)
	if len(s.txns) == 0 {
		return nil
	}
	return disk.WriteFileAtomic(s.fs, s.txnPath(suffix), encodeTxns(s.txns))
}

// swap puts a .cleaned segment in the place of the group it was made from. The
// steps, each of which Open completes or undoes after a crash:
//
//	rename to .swap, the .log last: from here on the new segment counts;
//	rename the group to .deleted;
//	rename .swap to the plain names, the .log last.
//
// The caller holds cleanMu.
func (l *Log) swap(to *segment, group []*segment, now time.Time) error {
	if err := to.rename(cleanedSuffix, swapSuffix); err != nil {
		return err
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return ErrStopped // .swap stays and is completed at the next Open
	}
	v := l.view.Load()
	i := v.find(group[0].base)
	segs := make([]*segment, 0, len(v.segs))
	segs = append(append(append(segs, v.segs[:i]...), to), v.segs[i+len(group):]...)
	l.view.Store(&view{segs: segs, end: v.end, size: v.size})
	if err := l.replaced(to, group, now); err != nil {
		return errors.Join(err, errUndo)
	}
	return nil
}

// replaced gives the files of a compaction that counts their names.
func (l *Log) replaced(to *segment, group []*segment, now time.Time) error {
	for _, s := range group {
		if err := l.retire(s, now); err != nil {
			return err
		}
		if s.base != to.base && s.base != l.producers.snapshot {
			if err := l.removeSnapshot(s.base); err != nil {
				return err
			}
		}
	}
	if err := to.rename(swapSuffix, ""); err != nil {
		return err
	}
	return l.opts.FS.SyncDir(l.opts.Dir)
}
