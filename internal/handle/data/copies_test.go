package data

import (
	"io"
	"math"
	"runtime"
	"testing"

	"milena/internal/disk"
)

// allocated runs fn n times and returns the fewest bytes that a run allocated, in the whole process: a pool drops buffers now and then, at
// random with the race detector, and others allocate too, but a copy would be there every time.
func allocated(n int, fn func()) int {
	least := math.MaxInt
	for range n {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, int(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

// A produced batch lies in the buffer that it was read into from the socket until it is written, and a fetched one is read from its
// file into a buffer of the connection's writer: neither costs memory by its size.
func TestRecordBytesAreNotCopied(t *testing.T) {
	r := newRigOn(t, disk.OS(), t.TempDir())
	r.set.Log.Retention = -1
	r.topic(1, "", 1)
	cl := r.client("copies")
	batch := benchBatch(t, 512, 1024)

	req := produceRequest(1, "", -1, 0, batch)
	req.SetVersion(13)
	frame := cl.f.AppendRequest(nil, req, 1)
	reply := make([]byte, 2<<20)
	read := func() {
		if _, err := io.ReadFull(cl.conn, reply[:4]); err != nil {
			t.Fatal(err)
		}
		n := int(reply[1])<<16 | int(reply[2])<<8 | int(reply[3])
		if _, err := io.ReadFull(cl.conn, reply[4:4+n]); err != nil {
			t.Fatal(err)
		}
	}
	produce := func() {
		if _, err := cl.conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		read()
	}
	fetch := fetchRequest(0, 1, 1)
	fetch.SetVersion(13)
	question := cl.f.AppendRequest(nil, fetch, 1)
	consume := func() {
		if _, err := cl.conn.Write(question); err != nil {
			t.Fatal(err)
		}
		read()
	}
	const warm, runs = 4, 32
	allocated(warm, produce)
	if got, most := allocated(runs, produce), len(batch)/4; got > most {
		t.Errorf("a produce of %d bytes allocates %d, more than %d", len(batch), got, most)
	}
	allocated(warm, consume)
	if got, most := allocated(runs, consume), len(batch)/4; got > most {
		t.Errorf("a fetch of 1 MiB allocates %d bytes, more than %d", got, most)
	}
}
