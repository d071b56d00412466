package partlog

import (
	"fmt"

	"milena/internal/disk"
	"milena/internal/record"
)

// scanChunk is how much a scan reads at once. A larger batch gets its own memory.
const scanChunk = 1 << 20

// scan checks every batch of a segment from the recovery point on (from a
// little before, where the index last has a good entry), rebuilds the indexes
// from there and cuts the file behind the last good batch. What is cut is set
// aside if it holds whole batches. It returns the offset after the last good
// one and whether anything was cut.
func (r *recovery) scan(s *segment) (next int64, cut bool, err error) {
	size := s.size.Load()
	from, err := r.trusted(s)
	if err != nil {
		return 0, false, err
	}
	next = s.base
	interval := r.l.Config().IndexInterval
	valid, why, err := scanBatches(s, from, size, func(b record.Batch, pos int64) error {
		r.from(b.BaseOffset())
		next = b.NextOffset()
		return noteBatch(s, b, pos, int64(len(b)), interval)
	})
	if err != nil {
		return 0, false, err
	}
	r.from(next)
	if valid < size {
		r.l.log.Warn("log is cut behind the last good batch", "file", s.log.path(),
			"offset", next, "position", valid, "bytes", size-valid, "reason", why)
		if err := r.keepTail(s, valid, next); err != nil {
			return 0, false, err
		}
		if err := cutLog(s, valid); err != nil {
			return 0, false, err
		}
	}
	s.dirty = true
	return next, valid < size, s.sealToFile()
}

// from notes where the scan begins, once.
func (r *recovery) from(offset int64) {
	if !r.began {
		r.scanned, r.began = offset, true
	}
}

// trusted cuts the indexes to what can be relied on below the recovery point
// and returns the position of the last batch that they name.
func (r *recovery) trusted(s *segment) (int64, error) {
	size := s.size.Load()
	n, err := s.index.rising(func(e indexEntry) bool {
		return e.key < r.l.opts.RecoveryPoint && e.val < size
	})
	if err != nil {
		return 0, err
	}
	for ; n > 0; n-- {
		e, err := s.index.entry(n - 1)
		if err != nil {
			return 0, err
		}
		if !entryFits(s, e) {
			continue
		}
		m, err := s.times.rising(func(t indexEntry) bool { return t.val <= e.key })
		if err != nil {
			return 0, err
		}
		if m == 0 {
			break // times are missing: all is read again
		}
		if err := s.index.truncate(n); err != nil {
			return 0, err
		}
		if err := s.times.truncate(m); err != nil {
			return 0, err
		}
		s.maxTime.Store(nil) // what the time index says now
		if _, err := s.largest(); err != nil {
			return 0, err
		}
		s.sinceIndex = 0
		return e.val, nil
	}
	return 0, resetIndexes(s)
}

// scanBatches calls fn for each good batch in [pos, size) and returns where the
// first bad one begins, and what is wrong with it.
func scanBatches(s *segment, pos, size int64, fn func(b record.Batch, pos int64) error) (valid int64, why string, err error) {
	f, err := s.log.acquire()
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = f.Release() }() // not the last reference
	buf := make([]byte, min(scanChunk, max(size-pos, 1)))
	var held []byte // unread bytes at pos
	prev := s.base - 1
	for pos < size {
		if len(held) < record.HeaderSize {
			if size-pos < record.HeaderSize {
				return pos, "less than a header", nil
			}
			held = buf[:min(int64(len(buf)), size-pos)]
			if err := readFull(f, held, pos); err != nil {
				return 0, "", fmt.Errorf("read %s at %d: %w", s.log.path(), pos, err)
			}
		}
		h := record.Batch(held[:record.HeaderSize])
		if err := s.plausible(h, pos, size); err != nil {
			return pos, err.Error(), nil
		}
		n := h.Len()
		if n > int64(len(held)) {
			if n > int64(len(buf)) {
				buf = make([]byte, n) // bounded by the file's size
			}
			held = buf[:min(int64(len(buf)), size-pos)]
			if err := readFull(f, held, pos); err != nil {
				return 0, "", fmt.Errorf("read %s at %d: %w", s.log.path(), pos, err)
			}
		}
		b := record.Batch(held[:n:n])
		if err := goodBatch(b, prev); err != nil {
			return pos, err.Error(), nil
		}
		if err := fn(b, pos); err != nil {
			return 0, "", err
		}
		prev = b.LastOffset()
		held = held[n:]
		pos += n
	}
	return pos, "", nil
}

func goodBatch(b record.Batch, prev int64) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if b.BaseOffset() <= prev {
		return fmt.Errorf("offset %d after %d", b.BaseOffset(), prev)
	}
	return b.CheckCRC()
}

// cutLog sets the length of a segment's .log file, durably.
func cutLog(s *segment, size int64) error {
	f, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // not the last reference
	if err := f.Truncate(size); err != nil {
		return err
	}
	s.size.Store(size)
	return f.Sync()
}

// sealToFile seals the segment and writes its indexes. On a full disk they stay
// in memory until a flush finds space.
func (s *segment) sealToFile() error {
	if err := s.seal(); err != nil {
		return err
	}
	err := s.flushIndexes()
	if disk.Full(err) {
		s.dirty, err = true, nil
	}
	return err
}
