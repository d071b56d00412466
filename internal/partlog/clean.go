package partlog

import (
	"errors"
	"fmt"
	"time"

	"milena/internal/record"
)

// Compaction follows Kafka's: a map of the last offset of each key is built
// from the dirty part (sealed segments above the cleaned point, below the last
// stable offset, older than min.compaction.lag.ms); then the log up to there is
// rewritten, group of segments by group, without records that a later one of
// the same key replaces. Base and last offsets of batches stay. Tombstones and
// markers stay for delete.retention.ms after the pass that met them first (the
// delete horizon, KIP-534); data of aborted transactions goes at once, the
// marker after it. The last batch of each live producer and the last of the
// round stay, empty if need be. The active segment is never touched.

// Cleanable says what a compaction of the log would find.
type Cleanable struct {
	From, To          int64 // the dirty part; nothing to do if equal
	CleanBytes, Dirty int64
	Ratio             float64
	Overdue           bool // max.compaction.lag.ms has passed for something in it
	firstDirty        int
}

// Due says whether the log should be compacted now.
func (c Cleanable) Due(cfg Config) bool {
	return c.From < c.To && c.Dirty > 0 && (c.Overdue || c.Ratio > cfg.MinCleanableRatio)
}

// CleanedTo is the offset up to which the log was compacted.
func (l *Log) CleanedTo() int64 { return l.cleanedTo.Load() }

// Cleanable looks at how much there is to compact.
func (l *Log) Cleanable(now time.Time) (Cleanable, error) {
	cfg := l.cfg.Load()
	v := l.view.Load()
	c := Cleanable{From: max(l.cleanedTo.Load(), l.start.Load())}
	if active := v.active().base; c.From > active {
		c.From = max(l.start.Load(), v.segs[0].base) // the cleaned point is not of this log
	}
	c.To = min(v.active().base, l.LastStableOffset(l.hw.Load()))
	c.firstDirty = max(v.find(c.From), 0)
	for i := c.firstDirty; i < len(v.segs)-1; i++ {
		s := v.segs[i]
		if s.base >= c.To {
			break
		}
		m, err := s.largest()
		if err != nil {
			return c, err
		}
		if cfg.MinCompactionLag > 0 && clampMs(now.UnixMilli()-m.key) < cfg.MinCompactionLag {
			c.To = max(s.base, c.From)
			break
		}
		c.Dirty += s.size.Load()
		if cfg.MaxCompactionLag < forever && !c.Overdue {
			first, err := s.firstTimestamp()
			if err != nil {
				return c, err
			}
			c.Overdue = first >= 0 && clampMs(now.UnixMilli()-first) > cfg.MaxCompactionLag
		}
	}
	c.To = max(c.To, c.From)
	for i := range c.firstDirty {
		c.CleanBytes += v.segs[i].size.Load()
	}
	if c.Dirty > 0 {
		c.Ratio = float64(c.Dirty) / float64(c.CleanBytes+c.Dirty)
	}
	return c, nil
}

// firstTimestamp is the largest timestamp of the first batch, -1 if there is none.
func (s *segment) firstTimestamp() (ts int64, err error) {
	ts = -1
	err = s.walkHeaders(0, s.size.Load(), func(h record.Batch, _ int64) bool {
		ts = h.MaxTimestamp()
		return false
	})
	return ts, err
}

// CompactOptions steer a compaction.
type CompactOptions struct {
	Now      time.Time
	MapBytes int64 // memory for the map of keys
	// Pace is called with bytes read and written; it may sleep. nil: no limit.
	Pace func(bytes int64)
}

// CompactStats is what a compaction did.
type CompactStats struct {
	From, To         int64 // the part that was dirty
	Read, Written    int64 // bytes
	Records, Kept    int64
	Unreadable       int64 // batches whose payload can't be read; they stay as they are
	Keys             int
	Segments, Result int
}

// ErrStopped is what Compact returns when the log is truncated, closed or
// deleted meanwhile. The log is as it was before.
var ErrStopped = errors.New("partlog: compaction was stopped")

// Compact removes records that later ones of the same key replace, from the
// log start up to where Cleanable says. Reads and appends go on meanwhile.
// Damage is an error that wraps ErrCorrupt and leaves the rest as it was.
func (l *Log) Compact(o CompactOptions) (CompactStats, error) {
	l.cleanMu.Lock()
	defer l.cleanMu.Unlock()
	c := &compaction{l: l, o: o, cfg: l.cfg.Load()}
	err := c.run()
	c.stats.To = max(c.stats.To, c.stats.From)
	if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, ErrCorrupt) {
		err = l.failWrite("compaction", err)
	}
	return c.stats, err
}

// compaction is one pass over a log. The caller holds cleanMu, so the sealed
// segments stay what they are.
type compaction struct {
	l     *Log
	o     CompactOptions
	cfg   *Config
	stats CompactStats
	keys  *offsetMap
	end   int64 // offsets below it are in the map
	final int64 // offset after the last batch that is
	last  map[int64]lastOfProducer
	filt  record.Rewriter
	now   int64
}

func (c *compaction) run() error {
	l := c.l
	c.now = c.o.Now.UnixMilli()
	what, err := l.Cleanable(c.o.Now)
	if err != nil {
		return err
	}
	c.stats.From, c.stats.To = what.From, what.From
	if what.From >= what.To {
		return nil
	}
	// Compaction leaves gaps between segments, which recovery accepts below
	// the recovery point only.
	if err := l.Flush(what.To); err != nil {
		return err
	}
	if l.opts.Checkpoint != nil {
		if err := l.opts.Checkpoint(); err != nil {
			return err
		}
	}
	v := l.view.Load()
	if err := c.buildMap(v, what); err != nil {
		return err
	}
	c.last = l.producers.lastRecords()
	n := v.find(c.end-1) + 1 // segments with offsets below end
	txns, err := c.abortedFrom(v, 0)
	if err != nil {
		return err
	}
	tracker := newTxnTracker(txns)
	for i := 0; i < n; {
		j := c.groupEnd(v, i, n)
		if err := c.cleanGroup(v.segs[i:j], tracker); err != nil {
			return err
		}
		i = j
	}
	c.stats.To = c.end
	l.cleanedTo.Store(c.end)
	return nil
}

// stopped says whether somebody waits for the log or closes it.
func (c *compaction) stopped() error {
	if c.l.closing.Load() || c.l.stopClean.Load() > 0 || c.l.failed.Load() != nil {
		return ErrStopped
	}
	return nil
}

func (c *compaction) pace(n int64) error {
	if c.o.Pace != nil {
		c.o.Pace(n)
	}
	return c.stopped()
}

// abortedFrom lists the aborted transactions that end in segment i or above: the
// marker may be in a segment that isn't cleaned.
func (c *compaction) abortedFrom(v *view, i int) ([]txnEntry, error) {
	var out []txnEntry
	for _, s := range v.segs[i:] {
		list, err := s.aborted()
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// buildMap reads the dirty part until its end or until the map is full.
func (c *compaction) buildMap(v *view, what Cleanable) error {
	records, stop := int64(0), v.find(what.To-1)+1
	for _, s := range v.segs[what.firstDirty:stop] {
		err := s.walkHeaders(0, s.size.Load(), func(h record.Batch, _ int64) bool {
			records += int64(h.Count())
			return true
		})
		if err != nil {
			return err
		}
	}
	c.keys = newOffsetMap(records, c.o.MapBytes)
	txns, err := c.abortedFrom(v, what.firstDirty)
	if err != nil {
		return err
	}
	tracker := newTxnTracker(txns)
	c.end = what.From
	for _, s := range v.segs[what.firstDirty:stop] {
		full := false
		err := c.eachBatch(s, func(b record.Batch) (bool, error) {
			if b.LastOffset() >= what.To {
				return false, nil
			}
			if full = !c.mapBatch(b, tracker, what.From); full {
				return false, nil
			}
			c.end = max(c.end, b.NextOffset())
			c.final = c.end
			return true, nil
		})
		if err != nil {
			return err
		}
		if full {
			break
		}
		c.end = max(c.end, min(what.To, v.next(v.find(s.base))))
	}
	c.stats.Keys = c.keys.size
	return nil
}

// mapBatch takes a batch's keys into the map; false if there is no room.
func (c *compaction) mapBatch(b record.Batch, t *txnTracker, from int64) bool {
	if b.LastOffset() < from {
		t.observe(b)
		return true
	}
	if !b.IsControl() && !c.keys.room(int(b.Count())) {
		if c.keys.size > 0 {
			return false
		}
		c.keys.grow(int(b.Count()))
	}
	if drop := t.observe(b); drop || b.IsControl() {
		return true
	}
	for r, err := range b.Records(c.cfg.decompressLimit()) {
		if err != nil {
			// The payload is for its readers to fail on: the batch stays as it is.
			c.unreadable(b, err)
			return true
		}
		if r.Key != nil && r.Offset >= from {
			c.keys.put(r.Key, r.Offset)
		}
	}
	return true
}

func (c *compaction) unreadable(b record.Batch, err error) {
	c.stats.Unreadable++
	c.l.log.Warn("compaction leaves a batch as it is, its records can't be read", "offset", b.BaseOffset(), "error", err)
}

// eachBatch reads the segment's batches with their CRC checked.
func (c *compaction) eachBatch(s *segment, fn func(b record.Batch) (more bool, err error)) error {
	var stop = errors.New("stop")
	valid, why, err := scanBatches(s, 0, s.size.Load(), func(b record.Batch, _ int64) error {
		c.stats.Read += int64(len(b))
		if err := c.pace(int64(len(b))); err != nil {
			return err
		}
		more, err := fn(b)
		if err == nil && !more {
			return stop
		}
		return err
	})
	switch {
	case errors.Is(err, stop):
		return nil
	case err == nil && why != "":
		return fmt.Errorf("%w: %s at byte %d: %s", ErrCorrupt, s.log.path(), valid, why)
	}
	return err
}

// groupEnd is the end of the group of segments from i on that become one:
// within segment.bytes, segment.index.bytes and the range of offsets.
func (c *compaction) groupEnd(v *view, i, n int) int {
	size, entries := v.segs[i].size.Load(), v.segs[i].index.count()
	j := i + 1
	for ; j < n; j++ {
		s := v.segs[j]
		size += s.size.Load()
		entries += s.index.count()
		if size > c.cfg.SegmentBytes || int64(entries)*int64(offsetIndex) > c.cfg.IndexBytes || v.next(j)-v.segs[i].base > maxRelative {
			break
		}
	}
	return j
}

// cleanGroup writes what stays of a group into a .cleaned segment and swaps it in.
func (c *compaction) cleanGroup(group []*segment, t *txnTracker) error {
	l := c.l
	to, err := createSegment(l.opts.FS, l.opts.Dir, group[0].base, cleanedSuffix)
	if err != nil {
		return err
	}
	w := &cleanWriter{c: c, s: to}
	for _, s := range group {
		if err = c.eachBatch(s, func(b record.Batch) (bool, error) { return true, w.batch(b, t) }); err != nil {
			break
		}
	}
	if err == nil {
		err = w.finish(t.takeKept())
	}
	if err != nil {
		return errors.Join(err, to.remove(cleanedSuffix))
	}
	c.stats.Segments += len(group)
	c.stats.Result++
	return l.swap(to, group, c.o.Now)
}

// cleanWriter appends to the .cleaned segment.
type cleanWriter struct {
	c   *compaction
	s   *segment
	buf []byte // not written yet, ends at pos
	pos int64
}

const cleanBuffer = 1 << 20

// batch writes what stays of b.
func (w *cleanWriter) batch(b record.Batch, t *txnTracker) error {
	c := w.c
	out, err := c.filter(b, t)
	if err != nil || out == nil {
		return err
	}
	if err := noteBatch(w.s, out, w.pos, int64(len(out)), c.cfg.IndexInterval); err != nil {
		return err
	}
	w.buf = append(w.buf, out...)
	w.pos += int64(len(out))
	if len(w.buf) >= cleanBuffer {
		return w.write()
	}
	return nil
}

func (w *cleanWriter) write() error {
	f, err := w.s.log.acquire()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(w.buf, w.pos-int64(len(w.buf)))
	_ = f.Release() // not the last reference
	if err != nil {
		return err
	}
	w.c.stats.Written += int64(len(w.buf))
	n := int64(len(w.buf))
	w.buf = w.buf[:0]
	return w.c.pace(n)
}

// finish makes the segment durable under its .cleaned name.
func (w *cleanWriter) finish(txns []txnEntry) error {
	if err := w.write(); err != nil {
		return err
	}
	s := w.s
	s.size.Store(w.pos)
	if err := s.seal(); err != nil {
		return err
	}
	if err := s.syncLog(); err != nil {
		return err
	}
	for _, x := range []*index{s.times, s.index} {
		x.dirty = true
		if err := x.sync(); err != nil {
			return err
		}
	}
	s.dirty = false
	s.txns = txns
	return s.writeTxns(cleanedSuffix)
}

// filter returns what stays of a batch, nil for nothing.
func (c *compaction) filter(b record.Batch, t *txnTracker) (record.Batch, error) {
	c.stats.Records += int64(b.Count())
	droppable := t.observe(b)
	if b.LastOffset() >= c.end {
		// Not mapped, and maybe not even replicated: what decides it may change.
		c.stats.Kept += int64(b.Count())
		return b, nil
	}
	horizon, hasHorizon := b.DeleteHorizon()
	drop := droppable
	if b.IsControl() {
		drop = droppable && hasHorizon && horizon <= c.now
	}
	o := record.FilterOptions{
		Limit:       c.cfg.decompressLimit(),
		RetainEmpty: c.isLast(b) || b.NextOffset() == c.final,
	}
	mark := b.IsControl() && droppable // the marker of a transaction without data is on its way out
	tombstones := false
	keep := func(r record.Record) bool {
		switch {
		case drop:
			return false
		case b.IsControl():
			return true
		case r.Key == nil:
			return false
		}
		if r.Offset < c.keys.get(r.Key) {
			return false
		}
		if r.Value == nil {
			if hasHorizon && horizon <= c.now {
				return false
			}
			tombstones = true
		}
		return true
	}
	res, err := c.filt.Filter(b, keep, o)
	if err == nil && res.Kept > 0 && !hasHorizon && (tombstones || mark) {
		at := c.now + c.cfg.DeleteRetention.Milliseconds()
		o.DeleteHorizon = &at
		res, err = c.filt.Filter(b, keep, o)
	}
	if err != nil {
		if drop && !o.RetainEmpty {
			return nil, nil // nobody may read them anyway
		}
		c.unreadable(b, err)
		c.stats.Kept += int64(b.Count())
		return b, nil
	}
	c.stats.Kept += int64(res.Kept)
	return res.Batch, nil
}

// isLast says whether b holds the last sequence of its producer, which must
// not be forgotten while the producer lives.
func (c *compaction) isLast(b record.Batch) bool {
	if !b.HasProducerID() {
		return false
	}
	p, ok := c.last[b.ProducerID()]
	switch {
	case !ok:
		return false
	case p.offset >= 0:
		return b.LastOffset() == p.offset
	}
	return b.IsControl() && b.ProducerEpoch() == p.epoch
}
