package record

import (
	"fmt"
	"testing"
)

// benchBatch is 1,000 records of about 100 bytes.
func benchBatch(b *testing.B, c Codec) ([]Record, Batch) {
	records := make([]Record, 1000)
	for i := range records {
		records[i] = Record{
			Timestamp: 1_700_000_000_000 + int64(i),
			Key:       fmt.Appendf(nil, "key-%04d", i),
			Value:     fmt.Appendf(nil, `{"id":%d,"name":"customer %d","city":"Kraków","balance":%d.25,"active":true}`, i, i*7, i*31),
			Headers:   []Header{{Key: "trace", Value: []byte("0123456789abcdef")}},
		}
	}
	return records, mustBuild(b, BuilderOptions{Compression: Compression{Codec: c}}, records...)
}

func plainSize(b *testing.B, batch Batch) int64 {
	plain, err := batch.Recompress(Compression{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	return int64(len(plain))
}

func BenchmarkIterate(b *testing.B) {
	for _, c := range allCodecs {
		b.Run(c.String(), func(b *testing.B) {
			_, batch := benchBatch(b, c)
			b.SetBytes(plainSize(b, batch))
			b.ReportAllocs()
			r := Reader{ReuseMemory: true}
			var rec Record
			for b.Loop() {
				if err := r.Reset(batch, 0); err != nil {
					b.Fatal(err)
				}
				for {
					ok, err := r.Next(&rec)
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
				}
			}
		})
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	_, batch := benchBatch(b, None)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := batch.CheckRecords(CheckOptions{RequireKey: true, Contiguous: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range allCodecs {
		b.Run(c.String(), func(b *testing.B) {
			records, batch := benchBatch(b, c)
			b.SetBytes(plainSize(b, batch))
			b.ReportAllocs()
			builder := NewBuilder(BuilderOptions{})
			for b.Loop() {
				builder.Reset(BuilderOptions{Compression: Compression{Codec: c}})
				for i := range records {
					builder.Append(records[i])
				}
				if _, err := builder.Batch(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStamp is what a leader does to each batch of a Produce.
func BenchmarkStamp(b *testing.B) {
	_, batch := benchBatch(b, None)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	var offset int64
	for b.Loop() {
		if err := batch.CheckCRC(); err != nil {
			b.Fatal(err)
		}
		if err := batch.Validate(); err != nil {
			b.Fatal(err)
		}
		batch.SetBaseOffset(offset)
		batch.SetLeaderEpoch(3)
		offset = 0
	}
}

func BenchmarkFilterHalf(b *testing.B) {
	for _, c := range []Codec{None, Zstd} {
		b.Run(c.String(), func(b *testing.B) {
			_, batch := benchBatch(b, c)
			b.SetBytes(plainSize(b, batch))
			b.ReportAllocs()
			var w Rewriter
			for b.Loop() {
				if _, err := w.Filter(batch, func(r Record) bool { return r.Offset%2 == 0 }, FilterOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
