package partlog

import (
	"bytes"
	"fmt"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/record"
)

// tb is what helpers need of a *testing.T, *testing.B or *rapid.T.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

const testDir = "/data/t-0"

// testFS is an in-memory disk with the log directory.
func testFS(t tb) *disk.Mem {
	t.Helper()
	fs := disk.NewMem(1)
	must(t, fs.Mkdir("/data"))
	must(t, fs.SyncDir("/"))
	return fs
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func small() Config {
	c := DefaultConfig()
	c.SegmentBytes = 1000
	c.IndexInterval = 100
	c.Retention = -1
	return c
}

func openLog(t tb, fs disk.FS, c Config, edit ...func(*Options)) *Log {
	t.Helper()
	o := Options{FS: fs, Dir: testDir, Topic: "t", Config: c}
	for _, f := range edit {
		f(&o)
	}
	l, err := Open(o)
	must(t, err)
	return l
}

// clean and rp are options for openLog.
func clean(o *Options) { o.Clean = true }

func rp(off int64) func(*Options) { return func(o *Options) { o.RecoveryPoint = off } }

// values builds a batch of records with these values, timestamps from ts on.
func values(t tb, ts int64, vals ...string) []byte {
	t.Helper()
	var recs []record.Record
	for i, v := range vals {
		recs = append(recs, record.Record{Timestamp: ts + int64(i), Value: []byte(v)})
	}
	return build(t, record.BuilderOptions{LeaderEpoch: -1}, recs...)
}

func build(t tb, o record.BuilderOptions, recs ...record.Record) []byte {
	t.Helper()
	b, err := record.Build(o, recs...)
	must(t, err)
	return b
}

// at builds a batch that carries offset and epoch.
func at(t tb, base int64, epoch int32, vals ...string) []byte {
	t.Helper()
	var recs []record.Record
	for i, v := range vals {
		recs = append(recs, record.Record{Timestamp: base + int64(i), Value: []byte(v)})
	}
	return build(t, record.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch}, recs...)
}

func appendVals(t tb, l *Log, epoch int32, vals ...string) AppendInfo {
	t.Helper()
	info, err := l.Append(values(t, time.Now().UnixMilli(), vals...), AppendOptions{LeaderEpoch: epoch})
	must(t, err)
	return info
}

type rec struct {
	off int64
	val string
}

// readAll reads every data record from off on in fetches of maxBytes.
func readAll(t tb, l *Log, off int64, maxBytes int) []rec {
	t.Helper()
	var out []rec
	for off < l.EndOffset() {
		info, err := l.Read(off, maxBytes, l.EndOffset(), true)
		must(t, err)
		var buf bytes.Buffer
		for _, s := range info.Spans {
			if _, err := s.WriteTo(&buf); err != nil {
				t.Fatal(err)
			}
		}
		info.Release()
		n := 0
		for b, err := range record.Batches(buf.Bytes()) {
			must(t, err)
			must(t, b.CheckCRC())
			n++
			for r, err := range b.Records(0) {
				must(t, err)
				if r.Offset >= off && !b.IsControl() {
					out = append(out, rec{r.Offset, string(r.Value)})
				}
			}
			off = max(off, b.NextOffset())
		}
		if n == 0 {
			if len(info.Spans) == 0 {
				break // only a gap is left
			}
			t.Fatalf("no whole batch at offset %d in %d bytes", off, buf.Len())
		}
	}
	return out
}

func wantRecs(t tb, l *Log, want ...rec) {
	t.Helper()
	got := readAll(t, l, l.StartOffset(), 300)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("records are %v, want %v", got, want)
	}
}

func wantCode(t tb, err error, code api.Code) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code.Name())
	}
	if got, msg := api.CodeOf(err); got != code {
		t.Fatalf("code %s (%s), want %s", got.Name(), msg, code.Name())
	}
}

func seq(from, to int64) []rec {
	var out []rec
	for i := from; i < to; i++ {
		out = append(out, rec{i, fmt.Sprintf("v%d", i)})
	}
	return out
}

// fill appends n one-record batches v<offset> and returns the log end.
func fill(t tb, l *Log, epoch int32, n int) int64 {
	t.Helper()
	for range n {
		appendVals(t, l, epoch, fmt.Sprintf("v%d", l.EndOffset()))
	}
	return l.EndOffset()
}

func nowMs() int64 { return time.Now().UnixMilli() }

// retimeBatch rebuilds a one-record batch with another timestamp.
func retimeBatch(b []byte, ts int64) []byte {
	old := record.Batch(b)
	for r, err := range old.Records(0) {
		if err != nil {
			panic(err)
		}
		r.Timestamp = ts
		out, err := record.Build(record.BuilderOptions{BaseOffset: old.BaseOffset(), LeaderEpoch: old.LeaderEpoch()}, r)
		if err != nil {
			panic(err)
		}
		return out
	}
	panic("empty batch")
}
