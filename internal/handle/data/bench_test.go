package data

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/disk"
	"milena/internal/record"
)

// benchRig has a topic on a real disk, behind a real socket.
func benchRig(b *testing.B) (*rig, *client) {
	r := newRigOn(b, disk.OS(), b.TempDir())
	r.set.Log.Retention = -1
	r.topic(1, "", 1)
	return r, r.client("bench")
}

func benchBatch(b testing.TB, records, size int) record.Batch {
	recs := make([]record.Record, records)
	for i := range recs {
		recs[i] = record.Record{Timestamp: 1000, Value: make([]byte, size)}
	}
	batch, err := record.Build(record.BuilderOptions{}, recs...)
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

// BenchmarkProduce is a request from the socket to the log and back: one
// partition, acks=all.
func BenchmarkProduce(b *testing.B) {
	for _, c := range []struct {
		name          string
		records, size int
	}{{"1KiB", 1, 1024}, {"160KiB", 160, 1024}} {
		b.Run(c.name, func(b *testing.B) {
			_, cl := benchRig(b)
			req := produceRequest(1, "", -1, 0, benchBatch(b, c.records, c.size))
			b.SetBytes(int64(len(req.Topics[0].Partitions[0].Records)))
			b.ReportAllocs()
			req.SetVersion(13)
			frame := cl.f.AppendRequest(nil, req, 1)
			reply := make([]byte, 4096)
			for b.Loop() {
				if _, err := cl.conn.Write(frame); err != nil {
					b.Fatal(err)
				}
				if _, err := cl.conn.Read(reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFetch is a request without a session: one partition, 1 MiB.
func BenchmarkFetch(b *testing.B) {
	for _, session := range []string{"none", "incremental"} {
		b.Run(session, func(b *testing.B) {
			_, cl := benchRig(b)
			for range 10 {
				call[*kmsg.ProduceResponse](cl, produceRequest(1, "", 1, 0, benchBatch(b, 160, 1024)), 13)
			}
			req := fetchRequest(0, 1, 1)
			if session == "incremental" {
				req.SessionEpoch = 0
				req.SessionID = call[*kmsg.FetchResponse](cl, req, 13).SessionID
				req.Topics = nil
			}
			b.ReportAllocs()
			reply := make([]byte, 2<<20)
			for b.Loop() {
				if req.SessionID != 0 {
					req.SessionEpoch++
				}
				cl.send(req, 13)
				n, want := 0, 1<<30
				for n < want {
					k, err := cl.conn.Read(reply[n:])
					if err != nil {
						b.Fatal(err)
					}
					if n += k; n >= 4 {
						want = 4 + int(reply[0])<<24 + int(reply[1])<<16 + int(reply[2])<<8 + int(reply[3])
					}
				}
				b.SetBytes(int64(n))
			}
		})
	}
}
