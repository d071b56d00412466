package partlog

import (
	"errors"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/record"
)

// FuzzRecover opens a partition's directory whose files are arbitrary bytes.
// Open must not fail but for a newer format, and what it makes of the files
// must be a log that can be read, searched, appended to, truncated, compacted
// and opened again with the same result.
func FuzzRecover(f *testing.F) {
	l := openLog(f, testFS(f), small())
	for i := range 12 {
		if _, err := l.Append(producerBatch(f, 1, 0, int32(i), "some value"), AppendOptions{LeaderEpoch: int32(i / 4)}); err != nil {
			f.Fatal(err)
		}
	}
	must(f, l.Close(true))
	read := func(name string) []byte {
		b, err := disk.ReadFile(l.opts.FS, testDir+"/"+name)
		must(f, err)
		return b
	}
	zero := offsetName(0)
	log, index, times, epochs := read(zero+logSuffix), read(zero+indexSuffix), read(zero+timeSuffix), read(epochFile)
	snap := read(offsetName(12) + snapshotSuffix)
	f.Add(log, index, times, epochs, snap, []byte(nil), int64(12), true)
	f.Add(log[:len(log)-9], index, times[:7], epochs, snap, make([]byte, txnWidth), int64(5), false)
	f.Add(append(log, make([]byte, 100)...), make([]byte, 64), times, []byte("0\n1\n5 0\n"), snap[:9], []byte{1}, int64(0), false)
	f.Fuzz(func(t *testing.T, log, index, times, epochs, snap, txns []byte, point int64, wasClean bool) {
		mem := disk.NewMem(1)
		must(t, mem.Mkdir(testDir))
		for name, data := range map[string][]byte{
			zero + logSuffix: log, zero + indexSuffix: index, zero + timeSuffix: times, zero + txnSuffix: txns,
			offsetName(12) + snapshotSuffix: snap, epochFile: epochs,
		} {
			writeFile(t, mem, testDir+"/"+name, data)
		}
		o := Options{FS: mem, Dir: testDir, Topic: "t", Config: small(), RecoveryPoint: point, Clean: wasClean}
		l, err := Open(o)
		if errors.Is(err, ErrNewerFormat) {
			return
		}
		must(t, err)
		before := readable(t, l)
		use(t, l)
		must(t, l.Close(true))
		o.Clean, o.RecoveryPoint = false, 0
		l, err = Open(o)
		must(t, err)
		// What was vouched for, and damaged all the same, may read differently.
		if after := readable(t, l); after < before && !wasClean && point <= 0 {
			t.Fatalf("%d batches were readable, after another start %d are", before, after)
		}
		l.UpdateHighWatermark(l.EndOffset())
		seal(t, l)
		if _, err := l.Compact(CompactOptions{Now: time.Now(), MapBytes: 1 << 12}); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		readable(t, l)
	})
}

// readable reads all batches up to the first damage and returns their number.
func readable(t *testing.T, l *Log) (n int) {
	for off := l.StartOffset(); off < l.EndOffset(); {
		info, err := l.Read(off, 1000, l.EndOffset(), true)
		if errors.Is(err, ErrCorrupt) {
			return n
		}
		must(t, err)
		if len(info.Spans) == 0 {
			return n
		}
		data, err := info.Spans[0].Bytes()
		must(t, err)
		info.Release()
		b, err := record.Parse(data)
		if err != nil || b == nil || b.Validate() != nil || b.CheckCRC() != nil {
			return n
		}
		off = b.NextOffset()
		n++
	}
	return n
}

func use(t *testing.T, l *Log) {
	for _, ts := range []int64{0, 1, time.Now().UnixMilli()} {
		if _, err := l.OffsetForTimestamp(ts); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Logf("lookup of %d: %v", ts, err) // records may not decode
		}
	}
	if _, err := l.AbortedTxns(0, l.EndOffset()); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if l.EndOffset() > 1<<62 {
		return
	}
	epoch := max(l.LatestEpoch(), 0)
	end := l.EndOffset()
	_, err := l.Append(values(t, time.Now().UnixMilli(), "newer"), AppendOptions{LeaderEpoch: epoch})
	must(t, err)
	if _, err := l.TruncateTo(end); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}
