package partlog

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/disk"
	"milena/internal/record"
)

// model is what a log must hold: its batches in order.
type model struct {
	start, end int64
	batches    []modelBatch
}

type modelBatch struct {
	base, last int64
	epoch      int32
	vals       []string
}

func (m *model) recs(from int64) []rec {
	var out []rec
	for _, b := range m.batches {
		for i, v := range b.vals {
			if off := b.base + int64(i); off >= from {
				out = append(out, rec{off, v})
			}
		}
	}
	return out
}

func (m *model) epochs() []EpochEntry {
	var out []EpochEntry
	for _, b := range m.batches {
		if n := len(out); n == 0 || out[n-1].Epoch != b.epoch {
			out = append(out, EpochEntry{b.epoch, b.base})
		}
	}
	return out
}

func (m *model) cut(off int64) {
	for n := len(m.batches); n > 0 && m.batches[n-1].last >= off; n-- {
		m.batches = m.batches[:n-1]
	}
	m.end = off
}

// machine drives a log and its model on a disk that crashes.
type machine struct {
	t      *rapid.T
	fs     *disk.Mem
	cfg    Config
	log    *Log
	m      model
	epoch  int32
	n      int // values so far
	ckpt   struct{ recovery, start int64 }
	stable int64 // below it, everything was flushed and not truncated since
}

func newMachine(t *rapid.T) *machine {
	c := small()
	c.SegmentBytes = rapid.Int64Range(150, 2000).Draw(t, "segment")
	c.IndexInterval = rapid.Int64Range(0, 400).Draw(t, "interval")
	c.Delete = false
	x := &machine{t: t, fs: disk.NewMem(rapid.Uint64().Draw(t, "seed")), cfg: c}
	if err := x.fs.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	if err := x.fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	x.open(false)
	return x
}

func (x *machine) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *machine) open(clean bool) {
	x.t.Helper()
	l, err := Open(Options{
		FS: x.fs, Dir: testDir, Topic: "t", Config: x.cfg, Clean: clean,
		RecoveryPoint: x.ckpt.recovery, LogStart: x.ckpt.start,
		Checkpoint: func() error { x.checkpoint(); return nil },
	})
	x.must(err)
	x.log = l
	if x.ckpt.recovery > l.RecoveryPoint() {
		x.ckpt.recovery = l.RecoveryPoint() // as logdir does before anything is appended
	}
}

func (x *machine) checkpoint() {
	if x.log != nil {
		x.ckpt.recovery, x.ckpt.start = x.log.RecoveryPoint(), x.log.StartOffset()
	}
}

func (x *machine) vals() []string {
	var out []string
	for range rapid.IntRange(1, 4).Draw(x.t, "records") {
		out = append(out, fmt.Sprintf("value-%d", x.n))
		x.n++
	}
	return out
}

func (x *machine) add(base int64, vals []string) {
	x.m.batches = append(x.m.batches, modelBatch{base, base + int64(len(vals)) - 1, x.epoch, vals})
	x.m.end = base + int64(len(vals))
}

func (x *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"append": func(*rapid.T) {
			vals := x.vals()
			b := buildRapid(x.t, record.BuilderOptions{}, vals)
			_, err := x.log.Append(b, AppendOptions{LeaderEpoch: x.epoch})
			x.must(err)
			x.add(x.m.end, vals)
		},
		"append as is": func(*rapid.T) {
			base := x.m.end
			var buf []byte
			for range rapid.IntRange(1, 3).Draw(x.t, "batches") {
				base += rapid.SampledFrom([]int64{0, 0, 1, 50, 1 << 32}).Draw(x.t, "gap")
				vals := x.vals()
				buf = append(buf, buildRapid(x.t, record.BuilderOptions{BaseOffset: base, LeaderEpoch: x.epoch}, vals)...)
				x.add(base, vals)
				base = x.m.end
			}
			_, err := x.log.AppendAsIs(buf, AppendOptions{MaxEpoch: -1})
			x.must(err)
		},
		"new epoch": func(*rapid.T) { x.epoch += rapid.Int32Range(1, 3).Draw(x.t, "by") },
		"flush": func(*rapid.T) {
			x.must(x.log.Flush(-1))
			x.checkpoint()
			x.stable = x.m.end
		},
		"truncate": func(*rapid.T) {
			off := rapid.Int64Range(max(x.m.start, x.m.end-30), x.m.end).Draw(x.t, "to")
			_, err := x.log.TruncateTo(off)
			x.must(err)
			x.m.cut(off)
			if lastEnd(x.m) <= x.m.start && x.log.LatestEpoch() < 0 {
				x.m.batches = nil // D1: an entry at the cut goes, also one that stands for expired batches
			}
			x.stable = min(x.stable, off)
		},
		"advance start": func(*rapid.T) {
			off := rapid.Int64Range(x.m.start, x.m.end).Draw(x.t, "to")
			_, err := x.log.AdvanceStart(off)
			x.must(err)
			x.m.start = max(x.m.start, off)
			x.log.UpdateHighWatermark(x.m.end)
			_, err = x.log.RetentionPass(time.Now())
			x.must(err)
			x.must(x.log.Reap(time.Now().Add(rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(x.t, "reap"))))
			x.checkpoint()
		},
		"close idle": func(*rapid.T) { x.log.idled.Store(0); x.log.CloseIdle(time.Now()) },
		"restart": func(*rapid.T) {
			x.must(x.log.Close(true))
			x.checkpoint()
			x.open(true)
			x.m.end = max(x.log.EndOffset(), lastEnd(x.m)) // a gap after a cut inside a batch is not kept
			x.stable = x.m.end
		},
		"kill": func(*rapid.T) { x.reopen(false) },
		"crash": func(*rapid.T) {
			if rapid.Bool().Draw(x.t, "torn") {
				x.fs.CrashTorn()
			} else {
				x.fs.Crash()
			}
			x.reopen(true)
		},
		"": x.check,
	}
}

func lastEnd(m model) int64 {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].last + 1
	}
	return 0
}

// reopen is what follows a dead process; crashed says that unsynced bytes may be gone.
func (x *machine) reopen(crashed bool) {
	x.log.closing.Store(true)
	x.open(false)
	end := x.log.EndOffset()
	if !crashed && end < lastEnd(x.m) {
		x.t.Fatalf("the process died and the log ends at %d instead of %d", end, lastEnd(x.m))
	}
	for _, b := range x.m.batches {
		if b.last < x.stable && b.last >= end {
			x.t.Fatalf("flushed up to %d, but the log ends at %d, inside or before batch [%d, %d]", x.stable, end, b.base, b.last)
		}
	}
	for n := len(x.m.batches); n > 0 && x.m.batches[n-1].last >= end; n-- {
		x.m.batches = x.m.batches[:n-1]
	}
	x.m.end = end
	x.stable = min(x.stable, end)
	if crashed && x.log.StartOffset() == end {
		// The log is empty: of batches that were not flushed the epoch may be lost too.
		for n := len(x.m.batches); n > 0 && x.m.batches[n-1].epoch > x.log.LatestEpoch() && x.m.batches[n-1].last >= x.stable; n-- {
			x.m.batches = x.m.batches[:n-1]
		}
	}
	if x.ckpt.start < x.m.start {
		x.m.start = x.log.StartOffset() // the start is durable by its checkpoint only
	}
}

func (x *machine) check(*rapid.T) {
	l := x.log
	if l.StartOffset() != x.m.start || l.EndOffset() != x.m.end {
		x.t.Fatalf("log is [%d, %d), model is [%d, %d)", l.StartOffset(), l.EndOffset(), x.m.start, x.m.end)
	}
	if l.RecoveryPoint() > x.m.end {
		x.t.Fatalf("recovery point %d above the end %d", l.RecoveryPoint(), x.m.end)
	}
	got := readAll(x.t, l, x.m.start, 200)
	if want := x.m.recs(x.m.start); fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("log holds %v\nwant %v", got, want)
	}
	// Invariant 4: the cache holds exactly the epochs of the batches that are left.
	if lastEnd(x.m) <= x.m.start {
		// Nothing can be read: the cache may know the epoch of the last batch there was.
		if e := l.epochs.entries(); len(e) > 1 || len(e) == 1 && (e[0].Epoch > x.epoch || e[0].Start > x.m.start) {
			x.t.Fatalf("epochs of an empty log are %v", e)
		}
		return
	}
	want := newEpochCache(x.m.epochs())
	want.truncateStart(x.m.start)
	first := x.m.start
	for _, b := range x.m.batches {
		if b.last >= first {
			first = max(first, b.base)
			break
		}
	}
	if got, want := fromFirst(l.epochs.entries(), first), fromFirst(want.entries(), first); fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("epochs are %v, want %v", got, want)
	}
}

// fromFirst lets the oldest epoch begin at the first batch that is left: the
// cache may say the log start, if there is a gap between them, and may know
// the epoch of batches below the log start.
func fromFirst(e []EpochEntry, first int64) []EpochEntry {
	e = append([]EpochEntry(nil), e...)
	for len(e) > 1 && e[1].Start <= first {
		e = e[1:]
	}
	if len(e) > 0 {
		e[0].Start = max(e[0].Start, first)
	}
	return e
}

func buildRapid(t *rapid.T, o record.BuilderOptions, vals []string) []byte {
	var recs []record.Record
	for i, v := range vals {
		recs = append(recs, record.Record{Timestamp: int64(i), Value: []byte(v)})
	}
	b, err := record.Build(o, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLogAgainstModel: whatever is done to a log, and wherever it crashes, it
// holds a prefix of what was appended, nothing that was flushed is lost, and
// epochs are those of its batches.
func TestLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		t.Repeat(newMachine(t).actions())
	})
}
