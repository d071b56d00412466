package record

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// genRecords draws records with every shape of null, empty and large field.
func genRecords(t *rapid.T, atLeast int) []Record {
	field := rapid.OneOf(
		rapid.Just([]byte(nil)),
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.Map(rapid.IntRange(0, 3000), func(n int) []byte { return bytes.Repeat([]byte("ab"), n) }),
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			Timestamp: rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 1<<41)).Draw(t, "timestamp"),
			Key:       field.Draw(t, "key"),
			Value:     field.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{Key: rapid.StringN(0, 5, 20).Draw(t, "name"), Value: field.Draw(t, "header")})
		}
		return r
	}), atLeast, 30).Draw(t, "records")
}

func read(t *rapid.T, b Batch) []Record {
	var out []Record
	for r, err := range b.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func same(t *rapid.T, what string, got, want []Record) {
	if !sameRecords(got, want) {
		t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// sameRecords is much faster than cmp.Diff, which then shows the difference.
func sameRecords(a, b []Record) bool {
	return slices.EqualFunc(a, b, func(a, b Record) bool {
		return a.Offset == b.Offset && a.Timestamp == b.Timestamp && sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) &&
			slices.EqualFunc(a.Headers, b.Headers, func(a, b Header) bool { return a.Key == b.Key && sameBytes(a.Value, b.Value) })
	})
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestBuildIterateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := genRecords(t, 1)
		o := BuilderOptions{
			BaseOffset:  rapid.Int64Range(0, 1<<40).Draw(t, "base"),
			LeaderEpoch: rapid.Int32().Draw(t, "epoch"),
			Compression: Compression{Codec: rapid.SampledFrom(allCodecs).Draw(t, "codec")},
		}
		if rapid.Bool().Draw(t, "horizon") {
			ms := rapid.Int64Range(0, 1<<41).Draw(t, "ms")
			o.DeleteHorizon = &ms
		}
		builder := NewBuilder(o)
		offset := o.BaseOffset
		for i := range records {
			records[i].Offset = offset
			if err := builder.AppendAt(records[i]); err != nil {
				t.Fatal(err)
			}
			offset += rapid.Int64Range(1, 1000).Draw(t, "gap")
		}
		b, err := builder.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		same(t, "records", read(t, b), records)
	})
}

// A subset of the records survives Filter unchanged, with the header fields that
// readers of the log depend on; Recompress changes the codec alone.
func TestRewriteKeepsWhatItMust(t *testing.T) {
	var w Rewriter
	rapid.Check(t, func(t *rapid.T) {
		records := genRecords(t, 0)
		last := int64(1000 + len(records) + rapid.IntRange(0, 5).Draw(t, "tail"))
		o := BuilderOptions{BaseOffset: 1000, LeaderEpoch: 4, Producer: &Producer{ID: 8, Epoch: 2, BaseSequence: 70},
			Compression: Compression{Codec: rapid.SampledFrom(allCodecs).Draw(t, "codec")}, LastOffset: &last}
		in, err := Build(o, records...)
		if err != nil {
			t.Fatal(err)
		}
		before := read(t, in)
		var want []Record
		keep := map[int64]bool{}
		for _, r := range before {
			if rapid.Bool().Draw(t, "keep") {
				keep[r.Offset] = true
				want = append(want, r)
			}
		}
		fo := FilterOptions{RetainEmpty: rapid.Bool().Draw(t, "retain")}
		if rapid.Bool().Draw(t, "set horizon") {
			ms := rapid.Int64Range(0, 1<<41).Draw(t, "ms")
			fo.DeleteHorizon = &ms
		}
		if rapid.Bool().Draw(t, "recompress") {
			fo.Compression = &Compression{Codec: rapid.SampledFrom(allCodecs).Draw(t, "new codec")}
		}
		original := bytes.Clone(in)
		res, err := w.Filter(in, func(r Record) bool { return keep[r.Offset] }, fo)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, original) {
			t.Fatal("Filter changed its input")
		}
		if res.Kept != len(want) || res.Removed != len(before)-len(want) {
			t.Fatalf("kept %d removed %d, want %d of %d kept", res.Kept, res.Removed, len(want), len(before))
		}
		if res.Batch == nil {
			if len(want) > 0 || fo.RetainEmpty {
				t.Fatal("batch is gone")
			}
			return
		}
		if len(want) == 0 && !fo.RetainEmpty {
			t.Fatal("empty batch was kept")
		}
		checkRewritten(t, in, res.Batch)
		same(t, "filtered", read(t, res.Batch), want)
		if ms, ok := res.Batch.DeleteHorizon(); fo.DeleteHorizon != nil && len(want) > 0 && (!ok || ms != *fo.DeleteHorizon) {
			t.Fatalf("delete horizon %d %v, want %d", ms, ok, *fo.DeleteHorizon)
		}
		to := Compression{Codec: rapid.SampledFrom(allCodecs).Draw(t, "to")}
		again, err := w.Recompress(res.Batch, to, 0)
		if err != nil {
			t.Fatal(err)
		}
		if again.Count() > 0 && again.Codec() != to.Codec {
			t.Fatalf("codec %s, want %s", again.Codec(), to.Codec)
		}
		checkRewritten(t, in, again)
		same(t, "recompressed", read(t, again), want)
	})
}

func checkRewritten(t *rapid.T, in, out Batch) {
	if err := out.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := out.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	type fields struct {
		Base, Last, PID int64
		Epoch, Seq      int32
		LastSeq         int32
		PEpoch          int16
		Txn, Control    bool
		Time            TimestampType
	}
	of := func(b Batch) fields {
		return fields{b.BaseOffset(), b.LastOffset(), b.ProducerID(), b.LeaderEpoch(), b.BaseSequence(), b.LastSequence(),
			b.ProducerEpoch(), b.IsTransactional(), b.IsControl(), b.TimestampType()}
	}
	if diff := cmp.Diff(of(in), of(out)); diff != "" {
		t.Fatalf("header fields (-in +out):\n%s", diff)
	}
}

func TestCompressDecompressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Compression{Codec: rapid.SampledFrom(allCodecs).Draw(t, "codec"), Level: rapid.IntRange(0, 9).Draw(t, "level")}
		part := rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "part")
		src := bytes.Repeat(part, rapid.IntRange(0, 5000).Draw(t, "times"))
		prefix := []byte("prefix")
		out, err := Compress(c, src, bytes.Clone(prefix))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(out, prefix) {
			t.Fatal("Compress must append")
		}
		got, err := Decompress(c.Codec, out[len(prefix):], nil, int64(max(len(src), 1)))
		if err != nil || !bytes.Equal(got, src) {
			t.Fatalf("%d bytes back of %d: %v", len(got), len(src), err)
		}
		if len(src) > 1 {
			if _, err := Decompress(c.Codec, out[len(prefix):], nil, int64(len(src)-1)); err == nil {
				t.Fatal("limit one below the size must fail")
			}
		}
	})
}
