package compare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"milena/internal/record"
)

// oneRecord is a record with what its batch says of it.
type oneRecord struct {
	record.Record
	epoch   int32
	pid     int64 // of a transaction's record, else -1
	control bool
	abort   int64 // the producer whose transaction this control record aborts, else -1
}

// hash is over everything that a compaction keeps of a record.
func (r *oneRecord) hash() string {
	var b []byte
	field := func(f []byte) {
		if f == nil {
			b = binary.BigEndian.AppendUint64(b, 1<<63)
			return
		}
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(f))), f...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(r.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Timestamp))
	b = binary.BigEndian.AppendUint32(b, uint32(r.epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(r.pid))
	if r.control {
		b = append(b, 1)
	}
	field(r.Key)
	field(r.Value)
	for _, h := range r.Headers {
		field([]byte(h.Key))
		field(h.Value)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// recordCursor walks the records of one side.
type recordCursor struct {
	*Stream
	batch  record.Batch // nil at the end
	recs   []oneRecord
	loaded bool
}

// fill makes the next batch the present one, if there is none.
func (c *recordCursor) fill() (err error) {
	for c.batch == nil || c.loaded && len(c.recs) == 0 {
		c.recs, c.loaded = nil, false
		if c.batch, err = c.Next(); err != nil || c.batch == nil {
			return err
		}
	}
	return nil
}

// load reads the present batch's records within the range.
func (c *recordCursor) load(from, to int64) error {
	if c.batch == nil || c.loaded {
		return nil
	}
	c.loaded = true
	var err error
	c.recs, err = recordsOf(c.batch, from, to)
	if err != nil {
		return fmt.Errorf("batch at offset %d of the %s: %w", c.batch.BaseOffset(), c.side, err)
	}
	return nil
}

func recordsOf(b record.Batch, from, to int64) ([]oneRecord, error) {
	var out []oneRecord
	for r, err := range b.Records(0) {
		if err != nil {
			return nil, err
		}
		if r.Offset < from || r.Offset >= to {
			continue
		}
		v := oneRecord{Record: r, epoch: b.LeaderEpoch(), pid: -1, control: b.IsControl(), abort: -1}
		if b.IsTransactional() {
			v.pid = b.ProducerID()
		}
		if v.control {
			if c, err := record.ParseControl(r); err == nil && c.Type == record.ControlAbort {
				v.abort = b.ProducerID()
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// lack is a record that one side has and the other has not.
type lack struct {
	offset    int64
	pid       int64
	tombstone bool
	hash      string
}

// lacks are the records that a side does not have, the newest of each key, while it isn't known that its compaction was allowed
// to remove them.
type lacks struct {
	byKey map[string]lack
	byPID map[int64][]string
}

func newLacks() *lacks { return &lacks{map[string]lack{}, map[int64][]string{}} }

func (l *lacks) add(r *oneRecord) {
	l.byKey[string(r.Key)] = lack{r.Offset, r.pid, r.Value == nil, r.hash()}
	if r.pid >= 0 {
		l.byPID[r.pid] = append(l.byPID[r.pid], string(r.Key))
	}
}

// seen notes a record that the side has.
func (l *lacks) seen(r *oneRecord) { delete(l.byKey, string(r.Key)) }

// aborted notes that a producer's transaction was aborted: what is missing of it was never visible.
func (l *lacks) aborted(pid int64) {
	for _, k := range l.byPID[pid] {
		if l.byKey[k].pid == pid {
			delete(l.byKey, k)
		}
	}
	delete(l.byPID, pid)
}

// recordCompare is the comparison of a range by records.
type recordCompare struct {
	o        *Options
	res      *Result
	src, dst recordCursor
	// lacksSrc and lacksDst are what the source and the destination lack.
	lacksSrc, lacksDst *lacks
}

func newCompare(o *Options, res *Result, src, dst *Stream) *recordCompare {
	return &recordCompare{o: o, res: res, src: recordCursor{Stream: src}, dst: recordCursor{Stream: dst}, lacksSrc: newLacks(), lacksDst: newLacks()}
}

// records compares two logs record by record.
func (o *Options) records(ctx context.Context, res *Result, from int64, src, dst *Stream) {
	c := newCompare(o, res, src, dst)
	if c.run(ctx, from) && !o.Open {
		c.settle(func(s *Stream, l *lacks) error { return above(ctx, s, l) })
	}
}

// run compares up to the end of both streams; false if it ended before.
func (c *recordCompare) run(ctx context.Context, from int64) bool {
	res, to := c.res, c.src.to
	for steps := 1; ; steps++ {
		err := errors.Join(c.src.fill(), c.dst.fill())
		if start := max(c.src.Start, c.dst.Start); errors.Is(err, ErrShrunk) && start > from {
			// Retention: what was open before the new start is not to be decided any more.
			res.Gone += min(start, to) - from
			res.Proven = min(start, to)
			Run(ctx, res, start, to, c.src.log, c.dst.log, *c.o)
			return false
		}
		if err == nil && c.src.batch == nil && c.dst.batch == nil {
			return true
		}
		if err == nil {
			err = c.step(from, to)
		}
		if n := c.o.MaxLacking; err == nil && n > 0 && max(len(c.lacksSrc.byKey), len(c.lacksDst.byKey)) > n {
			err = ErrLacking
		}
		if err != nil {
			res.Err = err
			return false
		}
		if res.Difference != nil {
			return false
		}
		if steps%4096 == 0 {
			c.o.report(res)
		}
	}
}

// step compares what comes next: a whole batch if both sides have the same, else a record.
func (c *recordCompare) step(from, to int64) error {
	if c.src.batch != nil && !c.src.loaded && !c.dst.loaded && bytes.Equal(c.src.batch, c.dst.batch) {
		return c.same(from, to)
	}
	if !c.src.loaded && c.o.left(c.src.batch, c.dst.batch) {
		c.src.batch = nil
		return nil
	}
	if err := errors.Join(c.src.load(from, to), c.dst.load(from, to)); err != nil {
		return err
	}
	if c.src.batch != nil && len(c.src.recs) == 0 || c.dst.batch != nil && len(c.dst.recs) == 0 {
		return nil // the next fill goes on
	}
	switch {
	case c.dst.batch == nil || c.src.batch != nil && c.src.recs[0].Offset < c.dst.recs[0].Offset:
		c.alone(&c.src, c.lacksSrc, c.lacksDst, "destination")
	case c.src.batch == nil || c.dst.recs[0].Offset < c.src.recs[0].Offset:
		c.alone(&c.dst, c.lacksDst, c.lacksSrc, "source")
	default:
		a, b := &c.src.recs[0], &c.dst.recs[0]
		if x, y := a.hash(), b.hash(); x != y {
			c.res.Difference = &Difference{a.Offset, x, y, "records of different content"}
			return nil
		}
		c.note(a)
		c.res.Records++
		c.res.Proven = a.Offset + 1
		c.src.recs, c.dst.recs = c.src.recs[1:], c.dst.recs[1:]
	}
	return nil
}

// same takes a batch that both sides hold.
func (c *recordCompare) same(from, to int64) error {
	b := c.src.batch
	if len(c.lacksSrc.byKey)+len(c.lacksDst.byKey) > 0 {
		recs, err := recordsOf(b, from, to)
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		for i := range recs {
			c.note(&recs[i])
		}
	}
	c.res.Batches++
	c.res.Records += int64(b.Count())
	c.res.Bytes += int64(len(b))
	c.res.Proven = min(b.NextOffset(), to)
	c.src.batch, c.dst.batch = nil, nil
	return nil
}

// note takes a record that both sides hold.
func (c *recordCompare) note(r *oneRecord) {
	if r.control {
		c.abort(r)
		return
	}
	c.lacksSrc.seen(r)
	c.lacksDst.seen(r)
}

func (c *recordCompare) abort(r *oneRecord) {
	if r.abort >= 0 {
		c.lacksSrc.aborted(r.abort)
		c.lacksDst.aborted(r.abort)
	}
}

// alone takes a record that only the side at cur holds.
func (c *recordCompare) alone(cur *recordCursor, own, other *lacks, missing string) {
	r := &cur.recs[0]
	cur.recs = cur.recs[1:]
	c.res.Records++
	switch {
	case r.control:
		c.abort(r) // the other side has removed it with the transaction it ended
	case r.Key == nil:
		d := &Difference{r.Offset, r.hash(), "-", "a record without a key that the " + missing + " doesn't have"}
		if missing == "source" {
			d.Source, d.Destination = d.Destination, d.Source
		}
		c.res.Difference = d
	default:
		own.seen(r)
		other.add(r)
	}
}

// settle decides about the records that one side lacks: a later one of the key may stand above the range.
func (c *recordCompare) settle(above func(*Stream, *lacks) error) {
	res := c.res
	for _, side := range []struct {
		name string
		l    *lacks
		s    *Stream
	}{{"source", c.lacksSrc, c.src.Stream}, {"destination", c.lacksDst, c.dst.Stream}} {
		for k, x := range side.l.byKey {
			if x.tombstone {
				delete(side.l.byKey, k)
			}
		}
		if len(side.l.byKey) > 0 {
			if err := above(side.s, side.l); err != nil {
				res.Err = err
				return
			}
		}
		for _, x := range side.l.byKey {
			if res.Difference != nil && res.Difference.Offset <= x.offset {
				continue
			}
			d := &Difference{x.offset, "-", x.hash, "a record that the source doesn't have, nor a later one of its key"}
			if side.name == "destination" {
				d = &Difference{x.offset, x.hash, "-", "a record that the destination doesn't have, nor a later one of its key"}
			}
			res.Difference = d
		}
	}
	if res.Difference != nil {
		res.Proven = min(res.Proven, res.Difference.Offset)
	}
}

// above reads what a side holds above the range, for the keys it lacks within.
func above(ctx context.Context, s *Stream, l *lacks) error {
	// Its reader is done: the stream has come to its end.
	end, err := s.log.End(ctx)
	if err != nil {
		return fmt.Errorf("reading the %s: %w", s.side, err)
	}
	rest := NewStream(ctx, s.side, s.log, s.to, end)
	defer rest.Close()
	for len(l.byKey) > 0 {
		b, err := rest.Next()
		if err != nil || b == nil {
			return err
		}
		recs, err := recordsOf(b, s.to, end)
		if err != nil {
			return err
		}
		for i := range recs {
			l.seen(&recs[i])
		}
	}
	return nil
}
