package compare

import (
	"context"
	"errors"
	"strings"
	"testing"

	"milena/internal/record"
)

// batch builds a batch of records at offsets.
func batch(t *testing.T, o record.BuilderOptions, recs ...record.Record) record.Batch {
	t.Helper()
	b := record.NewBuilder(o)
	for _, r := range recs {
		if err := b.AppendAt(r); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func rec(offset int64, key, value string) record.Record {
	r := record.Record{Offset: offset, Timestamp: 1000 + offset, Key: []byte(key)}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

// of is a stream that holds what is given and reads nothing.
func of(side string, to int64, batches ...record.Batch) *Stream {
	ch := make(chan answer)
	close(ch)
	return &Stream{side: side, to: to, parent: context.Background(), cancel: func() {}, answers: ch, queue: batches}
}

// compared compares the first 100 offsets; what a side holds above isn't read.
func compared(compacted bool, src, dst []record.Batch) (Result, *recordCompare) {
	res := Result{Range: Range{To: 100, Compacted: compacted}}
	o := &Options{Open: true}
	s, d := of("source", 100, src...), of("destination", 100, dst...)
	if !compacted {
		o.batches(&res, s, d)
		return res, nil
	}
	c := newCompare(o, &res, s, d)
	c.run(context.Background(), 0)
	return res, c
}

// Invariant 2: "they hold identical batches".
func TestBatches(t *testing.T) {
	o := record.BuilderOptions{BaseOffset: 0, LeaderEpoch: 1}
	at := func(base int64, epoch int32, value string) record.Batch {
		o := o
		o.BaseOffset, o.LeaderEpoch = base, epoch
		return batch(t, o, rec(base, "k", value))
	}
	for _, c := range []struct {
		name     string
		src, dst []record.Batch
		offset   int64
		what     string
	}{
		{"equal", []record.Batch{at(0, 1, "a"), at(5, 1, "b")}, []record.Batch{at(0, 1, "a"), at(5, 1, "b")}, -1, ""},
		{"content", []record.Batch{at(0, 1, "a"), at(5, 1, "b")}, []record.Batch{at(0, 1, "a"), at(5, 1, "c")}, 5, "different content"},
		{"epoch", []record.Batch{at(0, 1, "a")}, []record.Batch{at(0, 2, "a")}, 0, "leader epochs 1 and 2"},
		{"missing here", []record.Batch{at(0, 1, "a"), at(1, 1, "b"), at(2, 1, "c")}, []record.Batch{at(0, 1, "a"), at(2, 1, "c")}, 1, "the destination doesn't have: its next one begins at 2"},
		{"missing there", []record.Batch{at(0, 1, "a"), at(2, 1, "c")}, []record.Batch{at(0, 1, "a"), at(1, 1, "b"), at(2, 1, "c")}, 1, "the source doesn't have"},
		{"short here", []record.Batch{at(0, 1, "a"), at(7, 1, "b")}, []record.Batch{at(0, 1, "a")}, 7, "the destination doesn't have"},
		{"short there", []record.Batch{at(0, 1, "a")}, []record.Batch{at(0, 1, "a"), at(7, 1, "b")}, 7, "the source doesn't have"},
	} {
		res, _ := compared(false, c.src, c.dst)
		switch {
		case res.Err != nil:
			t.Errorf("%s: %v", c.name, res.Err)
		case c.offset < 0 && (res.Difference != nil || res.Proven != 6 || res.Batches != 2):
			t.Errorf("%s: %+v %+v", c.name, res, res.Difference)
		case c.offset >= 0 && (res.Difference == nil || res.Difference.Offset != c.offset || !strings.Contains(res.Difference.What, c.what) || res.Difference.Source == res.Difference.Destination):
			t.Errorf("%s: %+v", c.name, res.Difference)
		}
	}
}

// "Where one has compacted: each record both still hold is identical, and for every key the newest record below both clean points is
// the same."
func TestRecords(t *testing.T) {
	o := record.BuilderOptions{LeaderEpoch: 1}
	txn := record.BuilderOptions{LeaderEpoch: 1, Producer: &record.Producer{ID: 9}, Transactional: true}
	many := func(recs ...record.Record) record.Batch {
		o := o
		o.BaseOffset = recs[0].Offset
		return batch(t, o, recs...)
	}
	intxn := func(recs ...record.Record) record.Batch {
		o := txn
		o.BaseOffset = recs[0].Offset
		return batch(t, o, recs...)
	}
	abort := record.EndTxnMarker(false, 0, 9, 0, 1)
	abort.SetBaseOffset(8)
	for _, c := range []struct {
		name     string
		src, dst []record.Batch
		offset   int64 // of the difference, -1 for none
		open     int   // keys that later records would have to explain
	}{
		{"the same", []record.Batch{many(rec(0, "a", "1"))}, []record.Batch{many(rec(0, "a", "1"))}, -1, 0},
		{"the source has compacted", []record.Batch{many(rec(2, "a", "2"))}, []record.Batch{many(rec(0, "a", "1"), rec(2, "a", "2"))}, -1, 0},
		{"the destination has compacted", []record.Batch{many(rec(0, "a", "1"), rec(1, "b", "1"), rec(2, "a", "2"))}, []record.Batch{many(rec(1, "b", "1"), rec(2, "a", "2"))}, -1, 0},
		{"both, differently", []record.Batch{many(rec(0, "a", "1")), many(rec(4, "b", "2"), rec(5, "a", "3"))},
			[]record.Batch{many(rec(1, "b", "1")), many(rec(4, "b", "2")), many(rec(5, "a", "3"))}, -1, 0},
		{"explained in a batch that is the same", []record.Batch{many(rec(0, "a", "1")), many(rec(3, "a", "2"))}, []record.Batch{many(rec(3, "a", "2"))}, -1, 0},
		{"content", []record.Batch{many(rec(0, "a", "1"), rec(1, "a", "2"))}, []record.Batch{many(rec(1, "a", "3"))}, 1, 0},
		{"nothing later", []record.Batch{many(rec(0, "a", "1"), rec(1, "b", "2"))}, []record.Batch{many(rec(1, "b", "2"))}, -1, 1},
		{"nothing later there", []record.Batch{many(rec(1, "b", "2"))}, []record.Batch{many(rec(1, "b", "2")), many(rec(3, "c", "3"))}, -1, 1},
		{"an earlier record explains nothing", []record.Batch{many(rec(0, "a", "1")), many(rec(3, "a", "2"))}, []record.Batch{many(rec(0, "a", "1"))}, -1, 1},
		{"of an aborted transaction", []record.Batch{intxn(rec(0, "a", "1")), abort}, []record.Batch{many(rec(20, "z", "1"))}, -1, 1},
	} {
		src, dst := c.src, c.dst
		if c.name == "of an aborted transaction" {
			src = append(src, many(rec(20, "z", "1")), many(rec(21, "y", "1"))) // y is what stays open
		}
		res, cmp := compared(true, src, dst)
		open := len(cmp.lacksSrc.byKey) + len(cmp.lacksDst.byKey)
		switch {
		case res.Err != nil:
			t.Errorf("%s: %v", c.name, res.Err)
		case c.offset < 0 && res.Difference != nil, c.offset >= 0 && (res.Difference == nil || res.Difference.Offset != c.offset):
			t.Errorf("%s: %+v", c.name, res.Difference)
		case c.offset < 0 && open != c.open:
			t.Errorf("%s: %d open, want %d: %v %v", c.name, open, c.open, cmp.lacksSrc, cmp.lacksDst)
		}
	}
}

// A tombstone that one side has removed is no difference; a value is, if no later record of its key is there.
func TestSettle(t *testing.T) {
	settled := func(r record.Record) *Difference {
		c := newCompare(&Options{}, &Result{Range: Range{To: 100}, Proven: 100}, of("source", 100), of("destination", 100))
		v := oneRecord{Record: r, pid: -1}
		c.lacksDst.add(&v)
		c.settle(func(*Stream, *lacks) error { return nil })
		return c.res.Difference
	}
	if d := settled(rec(3, "a", "")); d != nil {
		t.Errorf("a tombstone: %+v", d)
	}
	if d := settled(rec(3, "a", "1")); d == nil || d.Offset != 3 || d.Destination != "-" || len(d.Source) != 64 {
		t.Errorf("a value: %+v", d)
	}
	c := newCompare(&Options{}, &Result{}, of("source", 100), of("destination", 100))
	v := oneRecord{Record: rec(3, "a", "1"), pid: -1}
	c.lacksSrc.add(&v)
	c.settle(func(_ *Stream, l *lacks) error { l.seen(&v); return nil })
	if c.res.Difference != nil {
		t.Errorf("a later record of the key: %+v", c.res.Difference)
	}
	c.lacksSrc.add(&v)
	gone := errors.New("gone")
	c.settle(func(*Stream, *lacks) error { return gone })
	if !errors.Is(c.res.Err, gone) {
		t.Errorf("unreadable: %v", c.res.Err)
	}
}

// A batch that only straddles the range counts; what lies beyond it doesn't.
func TestTrim(t *testing.T) {
	at := func(base int64, n int) record.Batch {
		var rs []record.Record
		for i := range n {
			rs = append(rs, rec(base+int64(i), "k", "v"))
		}
		return batch(t, record.BuilderOptions{BaseOffset: base}, rs...)
	}
	in := []record.Batch{at(0, 2), at(2, 3), at(5, 1), at(9, 1)}
	out, next, end := trim(in, 3, 9)
	if len(out) != 2 || out[0].BaseOffset() != 2 || next != 6 || end != true {
		t.Errorf("%d batches, next %d, end %t", len(out), next, end)
	}
	if out, next, end := trim(in[:3], 3, 9); len(out) != 2 || next != 6 || end {
		t.Errorf("%d batches, next %d, end %t", len(out), next, end)
	}
	if out, next, end := trim(in[:2], 3, 4); len(out) != 1 || next != 5 || !end {
		t.Errorf("%d batches, next %d, end %t", len(out), next, end)
	}
}
