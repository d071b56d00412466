package server

import (
	"context"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/fetchwire"
	"milena/internal/record"
)

// One request at a time over loopback: frame, header, decode, encode, metrics.
func BenchmarkRequest(b *testing.B) {
	r := start(b, true, heartbeats, nil)
	c := r.dial()
	f := heartbeat(1)
	reply := make([]byte, 4+4+1+6+1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(f); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, reply[:15]); err != nil {
			b.Fatal(err)
		}
	}
}

// A hundred requests in one write: what is left without system calls.
func BenchmarkPipelinedRequests(b *testing.B) {
	r := start(b, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		var m kmsg.HeartbeatRequest
		if err := r.DecodeAliased(&m); err != nil {
			b.Error(err)
		}
		ok(context.Background(), r)
	}}, nil)
	c := r.dial()
	const n = 100
	var frames []byte
	for i := range int32(n) {
		frames = append(frames, heartbeat(i)...)
	}
	replies := make([]byte, 15*n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(frames); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, replies); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
}

// A reply of sixteen file regions of 256 KiB, from page cache to loopback.
func BenchmarkSpanReply(b *testing.B) {
	const regions, size = 16, 256 << 10
	fs := disk.OS()
	f, err := fs.Create(b.TempDir() + "/segment")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.Write(make([]byte, regions*size)); err != nil {
		b.Fatal(err)
	}
	file := record.Share(f, nil)
	defer func() { _ = file.Release() }()
	r := start(b, true, Table{api.Heartbeat: func(_ context.Context, r *Request) {
		pieces := make([]fetchwire.Piece, 0, 2*regions)
		for i := range int64(regions) {
			pieces = append(pieces, fetchwire.Piece{Bytes: []byte("header of a partition")}, fileSpan(b, file, i*size, size))
		}
		r.Reply(Response{Pieces: pieces})
	}}, nil)
	c := r.dial()
	total := 4 + 4 + 1 + regions*(21+size)
	reply := make([]byte, total)
	fr := heartbeat(1)
	b.SetBytes(regions * size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(fr); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
	}
}
