package record

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func TestCheckRecords(t *testing.T) {
	const now = 1_700_000_100_000
	b := mustBuild(t, BuilderOptions{BaseOffset: 0, Compression: Compression{Codec: LZ4}},
		Record{Timestamp: now - 50, Key: []byte("a")},
		Record{Timestamp: now - 10},
		Record{Timestamp: now + 30, Key: []byte{}},
		Record{Timestamp: now + 30, Value: []byte("v")},
		Record{Timestamp: NoTimestamp, Key: []byte("k")},
	)
	tests := []struct {
		name    string
		o       CheckOptions
		kind    error
		indexes []int32
	}{
		{"nothing asked", CheckOptions{}, nil, nil},
		{"keys", CheckOptions{RequireKey: true}, ErrInvalid, []int32{1, 3}},
		{"too old", CheckOptions{Now: now, MaxBefore: 49}, ErrTimestamp, []int32{0}},
		{"just young enough", CheckOptions{Now: now, MaxBefore: 50}, nil, nil},
		{"too new", CheckOptions{Now: now, MaxAfter: 29}, ErrTimestamp, []int32{2, 3}},
		{"no bound", CheckOptions{Now: now, MaxBefore: math.MaxInt64, MaxAfter: math.MaxInt64}, nil, nil},
		{"the first one's kind", CheckOptions{Now: now, MaxAfter: 29, RequireKey: true}, ErrInvalid, []int32{1, 2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			info, err := b.CheckRecords(tt.o)
			if !errors.Is(err, tt.kind) {
				t.Fatalf("%v, want %v", err, tt.kind)
			}
			if info.Count != 5 || info.MaxTimestamp != now+30 || info.OffsetOfMaxTimestamp != 2 {
				t.Errorf("info %+v", info)
			}
			if tt.kind == nil {
				return
			}
			var bad *InvalidRecordsError
			if !errors.As(err, &bad) || len(bad.Records) != len(tt.indexes) {
				t.Fatalf("%v, want records %v", err, tt.indexes)
			}
			for i, r := range bad.Records {
				if r.Index != tt.indexes[i] || r.Message == "" {
					t.Errorf("record error %+v, want index %d", r, tt.indexes[i])
				}
			}
		})
	}
}

func TestCheckRecordsContiguous(t *testing.T) {
	last := int64(5)
	b := NewBuilder(BuilderOptions{LastOffset: &last})
	for _, offset := range []int64{0, 1, 4} {
		if err := b.AppendAt(Record{Offset: offset}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AppendAt(Record{Offset: 4}); err == nil {
		t.Error("the same offset twice must fail")
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := batch.CheckRecords(CheckOptions{}); err != nil {
		t.Error(err)
	}
	var bad *InvalidRecordsError
	if _, err := batch.CheckRecords(CheckOptions{Contiguous: true}); !errors.As(err, &bad) || bad.Records[0].Index != 2 {
		t.Errorf("gap: %v", err)
	}
}

func TestRecordErrorsAreBounded(t *testing.T) {
	b := mustBuild(t, BuilderOptions{}, make([]Record, 500)...)
	var bad *InvalidRecordsError
	if _, err := b.CheckRecords(CheckOptions{RequireKey: true}); !errors.As(err, &bad) || len(bad.Records) != maxRecordErrors {
		t.Errorf("%v", err)
	}
}

func TestBuilderRefuses(t *testing.T) {
	if _, err := Build(BuilderOptions{}); err == nil {
		t.Error("a batch without records and last offset must fail")
	}
	last := int64(1)
	if _, err := Build(BuilderOptions{LastOffset: &last}, make([]Record, 3)...); err == nil {
		t.Error("a last offset below the last record's must fail")
	}
	if _, err := Build(BuilderOptions{Compression: Compression{Codec: 6}}, Record{}); !errors.Is(err, ErrCodec) {
		t.Errorf("codec 6: %v", err)
	}
	if _, err := Build(BuilderOptions{Compression: Compression{Codec: Gzip, Level: 12}}, Record{}); err == nil {
		t.Error("gzip level 12 must fail")
	}
	if err := NewBuilder(BuilderOptions{BaseOffset: 10}).AppendAt(Record{Offset: 9}); err == nil {
		t.Error("an offset below the base must fail")
	}
	if err := NewBuilder(BuilderOptions{}).AppendAt(Record{Offset: math.MaxInt32 + 1}); err == nil {
		t.Error("an offset out of the delta's range must fail")
	}
}

func TestBuilderSizeAndReset(t *testing.T) {
	b := NewBuilder(BuilderOptions{LeaderEpoch: 1})
	for _, r := range sample(20) {
		b.Append(r)
	}
	first, err := b.Batch()
	if err != nil || b.Size() != len(first) || b.Len() != 20 {
		t.Fatalf("size %d, batch %d bytes: %v", b.Size(), len(first), err)
	}
	kept := bytes.Clone(first)
	b.Reset(BuilderOptions{BaseOffset: 7})
	b.Append(Record{Value: []byte("x")})
	second, err := b.Batch()
	if err != nil || second.Count() != 1 || second.BaseOffset() != 7 || !bytes.Equal(first, kept) {
		t.Errorf("after Reset: %d records at %d, first batch changed: %t, %v", second.Count(), second.BaseOffset(), !bytes.Equal(first, kept), err)
	}
}

func TestFilterResults(t *testing.T) {
	ms := int64(5000)
	in := mustBuild(t, BuilderOptions{BaseOffset: 10}, Record{Timestamp: 9}, Record{Timestamp: 5}, Record{Timestamp: 7})
	all := func(Record) bool { return true }
	none := func(Record) bool { return false }

	res, err := in.Filter(all, FilterOptions{})
	if err != nil || res.Rewritten || &res.Batch[0] != &in[0] {
		t.Errorf("all kept: rewritten %t, %v", res.Rewritten, err)
	}
	res, err = in.Filter(none, FilterOptions{})
	if err != nil || res.Batch != nil || res.Removed != 3 {
		t.Errorf("none kept: %+v, %v", res, err)
	}
	res, err = in.Filter(none, FilterOptions{RetainEmpty: true, DeleteHorizon: &ms})
	if err != nil || len(res.Batch) != HeaderSize || res.Batch.MaxTimestamp() != 9 || res.Batch.LastOffset() != 12 {
		t.Errorf("retained empty: %+v, %v", res, err)
	}
	if _, ok := res.Batch.DeleteHorizon(); ok {
		t.Error("an empty batch has no delete horizon")
	}
	again, err := res.Batch.Filter(all, FilterOptions{RetainEmpty: true, DeleteHorizon: &ms})
	if err != nil || again.Rewritten || again.Batch == nil {
		t.Errorf("empty again: %+v, %v", again, err)
	}
	res, err = in.Filter(func(r Record) bool { return r.Offset != 10 }, FilterOptions{})
	if err != nil || res.Batch.MaxTimestamp() != 7 || res.Batch.Count() != 2 || res.Batch.BaseOffset() != 10 {
		t.Errorf("first removed: %+v, %v", res, err)
	}
	first, err := in.Filter(all, FilterOptions{DeleteHorizon: &ms})
	if err != nil || !first.Rewritten {
		t.Fatalf("horizon: %+v, %v", first, err)
	}
	other := int64(9999)
	second, err := first.Batch.Filter(all, FilterOptions{DeleteHorizon: &other})
	if err != nil || second.Rewritten {
		t.Errorf("a horizon is set once: %+v, %v", second, err)
	}
	if got := collect(t, first.Batch); got[1].Timestamp != 5 || got[2].Offset != 12 {
		t.Errorf("records with horizon: %+v", got)
	}
}

func TestClone(t *testing.T) {
	b := mustBuild(t, BuilderOptions{}, Record{Key: []byte("k"), Value: []byte("v"), Headers: []Header{{Key: "h", Value: []byte("x")}}})
	r := collect(t, b)[0].Clone()
	clear(b)
	if string(r.Key) != "k" || string(r.Value) != "v" || string(r.Headers[0].Value) != "x" {
		t.Errorf("clone changed with the batch: %+v", r)
	}
}

// Records of a Reader without ReuseMemory stay as they are when it goes on.
func TestRecordsStayValid(t *testing.T) {
	var r Reader
	var kept []Record
	for i := range 3 {
		b := mustBuild(t, BuilderOptions{BaseOffset: int64(i), Compression: Compression{Codec: Snappy}},
			Record{Value: bytes.Repeat([]byte{byte('a' + i)}, 100), Headers: []Header{{Key: string(rune('a' + i))}}})
		if err := r.Reset(b, 0); err != nil {
			t.Fatal(err)
		}
		var rec Record
		if ok, err := r.Next(&rec); !ok || err != nil {
			t.Fatal(err)
		}
		kept = append(kept, rec)
	}
	for i, rec := range kept {
		if rec.Value[99] != byte('a'+i) || rec.Headers[0].Key != string(rune('a'+i)) {
			t.Errorf("record %d became %q %q", i, rec.Value, rec.Headers[0].Key)
		}
	}
}
