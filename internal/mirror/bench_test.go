package mirror

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"milena/internal/fetchwire"
	"milena/internal/record"
)

// BenchmarkTake is the way of an answer from its bytes into the log: decoded, checked, appended. Nothing is allocated for a batch, and its
// bytes are not copied but by the write.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name          string
		batches, size int
	}{{"64x16KiB", 64, 16 << 10}, {"1x1MiB", 1, 1 << 20}, {"4096x256B", 4096, 256}} {
		b.Run(c.name, func(b *testing.B) {
			discard := slog.New(slog.DiscardHandler)
			d := newBroker(b, 1, 10, nil)
			defer d.close()
			m, err := New(Options{NodeID: 1, ClusterID: "d", Replicas: d.m, FS: d.fs, LogDirs: []string{"/data"}, Logger: discard, FetchMemory: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			mi := &mirror{mgr: m, name: "m", log: discard, wake: make(chan struct{}, 1)}
			set, err := ParseSettings(map[string]string{"bootstrap.servers": "source:9092"})
			if err != nil {
				b.Fatal(err)
			}
			mi.settings.Store(set)
			p := newPartition(m, "m", d.topic, 0, d.part(0), nil)
			p.running = true
			defer p.end()
			t := &target{p: p, rep: p.rep, key: p.tp, topicID: d.topic.ID, aligned: true}
			f := newFetcher(mi, fetcherKey{addr: "source:9092"})
			value := make([]byte, c.size)
			for i := range value {
				value[i] = byte(rand.Uint32())
			}
			one, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: 1, Value: value})
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 0, c.batches*len(one))
			for range c.batches {
				buf = append(buf, one...)
			}
			part := fetchwire.NewResponsePartition(0)
			part.Records, part.LogStartOffset = []record.Span{record.MemSpan(buf)}, 0
			resp := &fetchwire.Response{SessionID: 1, Topics: []fetchwire.ResponseTopic{{TopicID: d.topic.ID, Partitions: []fetchwire.ResponsePartition{part}}}}
			body := flatten(b, resp)
			at := bytes.Index(body, one)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				end := p.rep.LogEndOffset()
				for i := range c.batches {
					record.Batch(body[at+i*len(one):]).SetBaseOffset(end + int64(i))
				}
				fl := &flight{asks: []ask{{t, t.position(foreseen{end, 0}, 1<<20)}}, version: fetchwire.MaxVersion}
				got, err := fetchwire.DecodeResponse(body, fetchwire.MaxVersion)
				if err != nil {
					b.Fatal(err)
				}
				f.takeAll(b.Context(), fl, arrivals(fl, got), nil, true, time.Now())
				if now := p.rep.LogEndOffset(); now != end+int64(c.batches) {
					b.Fatalf("the log ends at %d after %d", now, end)
				}
				if now := p.rep.LogEndOffset(); now%(64*int64(c.batches)) == 0 { // the disk is in memory
					b.StopTimer()
					if err := p.rep.TruncateFullyAndStartAt(now); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

// flatten is an answer's body in one piece.
func flatten(b *testing.B, resp *fetchwire.Response) []byte {
	b.Helper()
	pieces, err := resp.Pieces(fetchwire.MaxVersion)
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	for _, p := range pieces {
		out = append(out, p.Bytes...)
		if p.Bytes == nil {
			x, err := p.Span.Bytes()
			if err != nil {
				b.Fatal(err)
			}
			out = append(out, x...)
		}
	}
	return out
}
