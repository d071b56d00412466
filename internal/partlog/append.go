package partlog

import (
	"errors"
	"fmt"
	"time"

	"milena/internal/api"
	"milena/internal/record"
)

// Append appends batches as the leader: it checks them, stamps offsets, epoch
// and LogAppendTime in place, and writes them with one write. A client appends
// exactly one batch. Errors carry a Kafka code; refused records are listed by
// an *InvalidRecords inside.
func (l *Log) Append(batches []byte, o AppendOptions) (AppendInfo, error) {
	cfg := l.cfg.Load()
	p, err := l.prepare(batches, o, cfg, time.Now())
	if err != nil {
		return AppendInfo{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1}, err
	}
	info, flush, err := l.appendPrepared(p, o, cfg)
	if err == nil && flush {
		err = l.Flush(info.LastOffset + 1)
	}
	return info, err
}

func (l *Log) appendPrepared(p prepared, o AppendOptions, cfg *Config) (info AppendInfo, flush bool, err error) {
	info = AppendInfo{FirstOffset: -1, LastOffset: -1, LogAppendTime: p.appendTime, LastEpoch: o.LeaderEpoch}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return info, false, err
	}
	if latest := l.epochs.latest(); o.LeaderEpoch < latest {
		return info, false, api.Errorf(api.NotLeaderOrFollower,
			"append to %s with leader epoch %d, its log already has epoch %d", l.name, o.LeaderEpoch, latest)
	}
	next := l.view.Load().end
	for b := range p.all() {
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(o.LeaderEpoch)
		c, err := l.producers.check(b, o, l.name)
		if c.forgotten {
			if err := l.recall(b); err != nil {
				return info, false, err
			}
			c, err = l.producers.check(b, o, l.name)
		}
		if err != nil {
			return info, false, err
		}
		if c.duplicate {
			info.Duplicate = true
			info.FirstOffset, info.LastOffset = c.meta.lastOffset-int64(c.meta.offsetDelta), c.meta.lastOffset
			info.LogStart = l.start.Load()
			if p.appendTime >= 0 {
				info.LogAppendTime = c.meta.timestamp
			}
			return info, false, nil
		}
		next = b.NextOffset()
	}
	flush, err = l.write(p.buf, cfg, &info)
	return info, flush, err
}

// AppendAsIs appends batches that carry offsets and epochs, as followers and
// mirrors do. Offsets must rise (gaps allowed) from the log end, epochs must
// not fall. A partial last batch is ignored. Nothing is decompressed.
func (l *Log) AppendAsIs(batches []byte, o AppendOptions) (AppendInfo, error) {
	info := AppendInfo{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1, LastEpoch: -1}
	n, err := checkAsIs(batches, o, l.name)
	if err != nil {
		return info, err
	}
	if n == 0 {
		info.LogStart, info.LastEpoch = l.StartOffset(), l.LatestEpoch()
		return info, nil
	}
	flush, err := l.appendAsIs(batches[:n], &info)
	if err == nil && flush {
		err = l.Flush(info.LastOffset + 1)
	}
	return info, err
}

func (l *Log) appendAsIs(batches []byte, info *AppendInfo) (flush bool, err error) {
	first := record.Batch(batches)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return false, err
	}
	if end := l.view.Load().end; first.BaseOffset() < end {
		return false, fmt.Errorf("%w: batch at offset %d for %s, whose log ends at %d", ErrOffsetOrder, first.BaseOffset(), l.name, end)
	}
	if latest := l.epochs.latest(); first.LeaderEpoch() < latest {
		return false, fmt.Errorf("%w: batch at offset %d for %s has epoch %d after %d",
			ErrEpochOrder, first.BaseOffset(), l.name, first.LeaderEpoch(), latest)
	}
	return l.write(batches, l.cfg.Load(), info)
}

// checkAsIs checks whole batches and returns their length in bytes.
func checkAsIs(batches []byte, o AppendOptions, name string) (int64, error) {
	var n int64
	prevOffset, prevEpoch := int64(-1), int32(-1)
	for b, err := range record.Batches(batches) {
		if err != nil {
			return 0, fmt.Errorf("%w: batches for %s: %w", ErrCorrupt, name, err)
		}
		if err := b.Validate(); err != nil {
			return 0, fmt.Errorf("%w: batch for %s: %w", ErrCorrupt, name, err)
		}
		if err := b.CheckCRC(); err != nil {
			return 0, fmt.Errorf("%w: batch for %s: %w", ErrCorrupt, name, err)
		}
		if b.BaseOffset() <= prevOffset {
			return 0, fmt.Errorf("%w: batch at offset %d for %s after offset %d", ErrOffsetOrder, b.BaseOffset(), name, prevOffset)
		}
		if b.LeaderEpoch() < prevEpoch {
			return 0, fmt.Errorf("%w: batch at offset %d for %s has epoch %d after %d", ErrEpochOrder, b.BaseOffset(), name, b.LeaderEpoch(), prevEpoch)
		}
		if o.MaxEpoch >= 0 && b.LeaderEpoch() > o.MaxEpoch {
			return 0, fmt.Errorf("%w: batch at offset %d for %s has epoch %d, at most %d is allowed",
				ErrEpochAbove, b.BaseOffset(), name, b.LeaderEpoch(), o.MaxEpoch)
		}
		prevOffset, prevEpoch = b.LastOffset(), b.LeaderEpoch()
		n += int64(len(b))
	}
	return n, nil
}

// write puts checked batches at the end of the log and takes them into the
// epoch cache, producer state and indexes. The caller holds mu. flush says that
// flush.messages was reached, or that a mirror ends here: a failover that was
// acknowledged outlives the loss of power at all replicas.
func (l *Log) write(buf []byte, cfg *Config, info *AppendInfo) (flush bool, err error) {
	first := record.Batch(buf)
	maxTime, last := record.NoTimestamp, int64(-1)
	for b := range wholeBatches(buf) {
		maxTime = max(maxTime, b.MaxTimestamp())
		last = b.LastOffset()
		info.Records += int64(b.LastOffsetDelta()) + 1
		info.LastEpoch = b.LeaderEpoch()
		if c, ok, err := b.Control(); err == nil && ok && c.Type == record.ControlMirrorPIDReset {
			flush = true
		}
	}
	for rest := buf; len(rest) > 0; {
		n := int64(len(rest))
		if err := l.rollIfNeeded(record.Batch(rest), n, maxTime, last, cfg); err != nil {
			return false, l.failWrite("roll", err)
		}
		if s := l.view.Load().active(); !s.fits(last) {
			n = prefixThatFits(s, rest)
		}
		if err := l.writeRun(rest[:n], cfg); err != nil {
			return false, l.failWrite("append", err)
		}
		rest = rest[n:]
	}
	info.FirstOffset, info.LastOffset = first.BaseOffset(), last
	info.MaxTimestamp, info.Bytes, info.LogStart = maxTime, int64(len(buf)), l.start.Load()
	l.unflushed += info.Records
	l.sinceSnap += info.Bytes
	return flush || l.unflushed >= cfg.FlushMessages, nil
}

// prefixThatFits is the length of the leading batches whose offsets fit the
// segment, at least one batch.
func prefixThatFits(s *segment, buf []byte) int64 {
	var n int64
	for b := range wholeBatches(buf) {
		if n > 0 && !s.fits(b.LastOffset()) {
			break
		}
		n += int64(len(b))
	}
	return n
}

// writeRun appends batches that all go to the active segment.
func (l *Log) writeRun(buf []byte, cfg *Config) error {
	v := l.view.Load()
	s := v.active()
	if err := s.ready(); err != nil {
		return err
	}
	f, err := s.log.acquire()
	if err != nil {
		return err
	}
	if n, werr := f.WriteAt(buf, v.size); werr != nil {
		err = errors.Join(werr, takeBack(f, v.size, n))
	}
	_ = f.Release() // not the last reference
	if err != nil {
		return err
	}
	s.dirty = true
	pos, end := v.size, v.end
	for b := range wholeBatches(buf) {
		if err := l.observe(s, b, pos, cfg.IndexInterval); err != nil {
			return errors.Join(err, errUndo) // a batch before it may be known already
		}
		pos += int64(len(b))
		end = b.NextOffset()
	}
	s.size.Store(pos)
	l.tail = end
	l.view.Store(&view{segs: v.segs, end: end, size: pos})
	return nil
}

// takeBack cuts off the n bytes at size that a failed write left. It is durable before anything follows: the log may go on in
// another segment, whose recovery would take this one to be whole.
func takeBack(f *record.SharedFile, size int64, n int) error {
	if err := f.Truncate(size); err != nil {
		return errors.Join(errUndo, err)
	}
	if n == 0 {
		return nil
	}
	return synced(f.Sync())
}

// observe takes a batch at pos of segment s into indexes, epoch cache and
// producer state.
func (l *Log) observe(s *segment, b record.Batch, pos, interval int64) error {
	l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
	if err := noteBatch(s, b, pos, int64(len(b)), interval); err != nil {
		return err
	}
	if e, ok := l.producers.update(b); ok {
		return s.addAborted(e)
	}
	return nil
}

// wholeBatches iterates over batches that were checked before.
func wholeBatches(buf []byte) func(yield func(record.Batch) bool) {
	return func(yield func(record.Batch) bool) {
		for len(buf) > 0 {
			n := record.Batch(buf).Len()
			if !yield(record.Batch(buf[:n:n])) {
				return
			}
			buf = buf[n:]
		}
	}
}
