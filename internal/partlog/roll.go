package partlog

import (
	"time"

	"milena/internal/record"
)

// rollIfNeeded begins a new segment if the active one can't or shouldn't take
// n more bytes whose first batch is first, whose largest timestamp is maxTime
// and whose last offset is last. The caller holds mu.
func (l *Log) rollIfNeeded(first record.Batch, n, maxTime, last int64, cfg *Config) error {
	v := l.view.Load()
	s := v.active()
	switch {
	case v.size == 0:
		// An empty segment whose base is too low for what comes.
		if s.fits(first.LastOffset()) {
			return nil
		}
	case v.size > cfg.SegmentBytes-n:
	case s.index.full(cfg.IndexBytes), s.times.full(cfg.IndexBytes):
	case !s.fits(first.LastOffset()):
	case l.waited(s, v.size, maxTime) > cfg.segmentAge()-s.jitter:
	default:
		return nil
	}
	base := v.end
	if first.LastOffset()-base > maxRelative {
		base = first.BaseOffset()
	}
	return l.roll(base)
}

// segmentAge is segment.ms; a compacted topic seals segments early enough for
// max.compaction.lag.ms.
func (c *Config) segmentAge() time.Duration {
	if c.Compact && c.MaxCompactionLag > 0 {
		return min(c.SegmentAge, c.MaxCompactionLag)
	}
	return c.SegmentAge
}

// waited is how long the segment has been active, by the timestamps in it if
// it has any.
func (l *Log) waited(s *segment, size, maxTime int64) time.Duration {
	if s.firstTime < 0 && size > 0 {
		_ = s.walkHeaders(0, size, func(h record.Batch, _ int64) bool { // unreadable: by age
			s.firstTime = h.MaxTimestamp()
			return false
		})
	}
	if s.firstTime >= 0 && maxTime >= 0 {
		return clampMs(maxTime - s.firstTime)
	}
	return time.Since(s.created)
}

func clampMs(ms int64) time.Duration {
	const most = int64(forever / time.Millisecond)
	return time.Duration(max(-most, min(ms, most))) * time.Millisecond
}

// roll seals the active segment and begins one at base, which is at least the
// log end. The caller holds mu. The old segment is made durable by the next
// flush, which FlushSoon asks for.
func (l *Log) roll(base int64) error {
	v := l.view.Load()
	old := v.active()
	if v.size == 0 && old.base == base {
		return nil
	}
	if err := l.finish(old); err != nil {
		return err
	}
	if base > l.tail {
		if err := l.settle(v, base); err != nil {
			return err
		}
	}
	s, err := l.createActive(base)
	if err != nil {
		return err
	}
	segs := append(make([]*segment, 0, len(v.segs)+1), v.segs...)
	l.tail = base
	l.view.Store(&view{segs: append(segs, s), end: v.end})
	if l.opts.FlushSoon != nil {
		l.opts.FlushSoon(l)
	}
	return nil
}

// settle makes the whole log durable and the recovery point base, in the
// checkpoint too. It comes before a gap between two segments: above the
// recovery point, recovery takes a gap for bytes that a crash lost and removes
// what follows. The caller holds mu.
func (l *Log) settle(v *view, base int64) error {
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	for _, s := range v.segs {
		if !s.dirty {
			continue
		}
		if err := s.syncLog(); err != nil {
			return err
		}
		if err := s.syncIndexes(); err != nil {
			return err
		}
		s.dirty = false
	}
	if err := l.writeEpochs(); err != nil {
		return err
	}
	l.recovery.Store(max(l.recovery.Load(), base))
	if l.opts.Checkpoint == nil {
		return nil
	}
	return l.opts.Checkpoint()
}

// finish writes what a segment keeps in memory and takes a producer snapshot.
func (l *Log) finish(s *segment) error {
	if err := s.seal(); err != nil {
		return err
	}
	if err := s.flushIndexes(); err != nil {
		return err
	}
	l.sinceSnap = 0
	return l.takeSnapshot()
}

func (l *Log) createActive(base int64) (*segment, error) {
	s, err := createSegment(l.opts.FS, l.opts.Dir, base, "")
	if err != nil {
		return nil, err
	}
	cfg := l.cfg.Load()
	if n := min(cfg.SegmentJitter, cfg.segmentAge()).Milliseconds(); n > 0 && l.opts.Jitter != nil {
		s.jitter = clampMs(l.opts.Jitter(n))
	}
	l.dirDirty.Store(true)
	return s, nil
}
