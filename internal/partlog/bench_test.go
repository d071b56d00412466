package partlog

import (
	"fmt"
	"testing"

	"milena/internal/disk"
	"milena/internal/record"
)

// benchBatch is a batch of n records of size bytes.
func benchBatch(b *testing.B, n, size int) []byte {
	recs := make([]record.Record, n)
	val := make([]byte, size)
	for i := range recs {
		recs[i] = record.Record{Timestamp: 1, Value: val}
	}
	return build(b, record.BuilderOptions{}, recs...)
}

func benchLog(b *testing.B) *Log {
	c := DefaultConfig()
	c.SegmentBytes = 256 << 20
	l, err := Open(Options{FS: disk.OS(), Dir: b.TempDir() + "/t-0", Topic: "t", Config: c})
	must(b, err)
	b.Cleanup(func() { _ = l.Delete() })
	return l
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 160} {
		b.Run(fmt.Sprintf("%dKiB", n), func(b *testing.B) {
			l, batch := benchLog(b), record.Batch(benchBatch(b, n, 1024))
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				batch.SetBaseOffset(0)
				if _, err := l.Append(batch, AppendOptions{}); err != nil {
					b.Fatal(err)
				}
				if l.EndOffset() > 500_000 {
					b.StopTimer()
					must(b, l.TruncateFullyAndStartAt(0))
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkAppendIdempotent(b *testing.B) {
	l := benchLog(b)
	recs := make([]record.Record, 160)
	for i := range recs {
		recs[i] = record.Record{Timestamp: 1, Value: make([]byte, 1024)}
	}
	batch := record.Batch(build(b, record.BuilderOptions{Producer: &record.Producer{ID: 1}}, recs...))
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	seq := int32(0)
	for b.Loop() {
		b.StopTimer()
		batch.SetBaseOffset(0)
		batch.SetProducer(1, 0, seq)
		seq += 160
		if l.EndOffset() > 500_000 {
			must(b, l.TruncateFullyAndStartAt(0))
		}
		b.StartTimer()
		if _, err := l.Append(batch, AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead is a lookup and the spans, without the bytes.
func BenchmarkRead(b *testing.B) {
	l, batch := benchLog(b), record.Batch(benchBatch(b, 16, 1024))
	for range 8000 {
		batch.SetBaseOffset(0)
		if _, err := l.Append(batch, AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for name, step := range map[string]int64{"sequential": 1024, "tail": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			off := int64(0)
			if step == 0 {
				off = l.EndOffset() - 16
			}
			for b.Loop() {
				info, err := l.Read(off, 1<<20, l.EndOffset(), true)
				if err != nil || info.Bytes == 0 {
					b.Fatal(info, err)
				}
				info.Release()
				if off += step; off >= l.EndOffset() {
					off = 0
				}
			}
		})
	}
}
