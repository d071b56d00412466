package partlog

import (
	"milena/internal/record"
)

// OffsetForTimestamp is the first record at or after ts (ms) from the log
// start on; Offset -1 if there is none.
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, error) {
	v, start := l.view.Load(), l.start.Load()
	for i := max(v.find(start), 0); i < len(v.segs); i++ {
		m, err := v.segs[i].largest()
		if err != nil {
			return TimestampOffset{}, l.readError(start, err)
		}
		if m.key < ts {
			continue
		}
		r, err := searchTime(v.segs[i], v.bytes(i), ts, start)
		if err != nil {
			return TimestampOffset{}, l.readError(start, err)
		}
		if r.Offset >= 0 {
			return r, nil
		}
	}
	return TimestampOffset{Timestamp: -1, Offset: -1, Epoch: -1}, nil
}

// MaxTimestampOffset is the first record that has the highest timestamp;
// Offset -1 in an empty log.
func (l *Log) MaxTimestampOffset() (TimestampOffset, error) {
	v, start := l.view.Load(), l.start.Load()
	none := TimestampOffset{Timestamp: -1, Offset: -1, Epoch: -1}
	best, at := int64(-1), -1
	for i := max(v.find(start), 0); i < len(v.segs); i++ {
		m, err := v.segs[i].largest()
		if err != nil {
			return none, l.readError(start, err)
		}
		if m.key > best {
			best, at = m.key, i
		}
	}
	if at < 0 {
		return none, nil
	}
	r, err := searchTime(v.segs[at], v.bytes(at), best, start)
	if err != nil {
		return none, l.readError(start, err)
	}
	return r, nil
}

// searchTime looks in the first end bytes of a segment for the first record at
// or above offset start with a timestamp of at least ts.
func searchTime(s *segment, end, ts, start int64) (TimestampOffset, error) {
	none := TimestampOffset{Timestamp: -1, Offset: -1, Epoch: -1}
	t, _, err := s.times.floor(ts)
	if err != nil {
		return none, err
	}
	// Up to the entry's offset nothing is newer than its timestamp, and the
	// batch that first has it holds that offset.
	from, _, err := s.index.floor(max(t.val, start))
	if err != nil {
		return none, err
	}
	pos := from.val
	for pos < end {
		var p place
		err := s.walkHeaders(pos, end, func(h record.Batch, at int64) bool {
			if h.MaxTimestamp() >= ts && h.LastOffset() >= start {
				p = place{at, h.Len(), h.BaseOffset(), h.LastOffset()}
				return false
			}
			return true
		})
		if err != nil || p.size == 0 {
			return none, err
		}
		b, err := s.readBatch(p)
		if err != nil {
			return none, err
		}
		for r, err := range b.Records(0) {
			if err != nil {
				return none, err
			}
			if r.Timestamp >= ts && r.Offset >= start {
				return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: b.LeaderEpoch()}, nil
			}
		}
		pos = p.pos + p.size
	}
	return none, nil
}

// Tail is the offset after the last batch: below EndOffset where a truncation
// cut inside a batch.
func (l *Log) Tail() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail
}
