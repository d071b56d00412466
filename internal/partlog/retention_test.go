package partlog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRetention(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		edit  func(c *Config)
		hw    int64
		start int64
		want  int64 // log start after the pass
	}{
		"nothing to do":             {func(c *Config) {}, 40, 0, 0},
		"by time":                   {func(c *Config) { c.Retention = day }, 40, 0, 20},
		"by time below the hw only": {func(c *Config) { c.Retention = day }, 10, 0, 8},
		"all by time":               {func(c *Config) { c.Retention = time.Millisecond }, 40, 0, 40},
		"by size":                   {func(c *Config) { c.RetentionBytes = 1500 }, 40, 0, 16},
		"by start":                  {func(c *Config) {}, 40, 21, 21},
		"compacted, by start only":  {func(c *Config) { c.Delete, c.Compact, c.Retention = false, true, 0 }, 40, 21, 21},
		"compact and delete":        {func(c *Config) { c.Compact, c.Retention = true, day }, 40, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := small()
			c.SegmentBytes = 300 // 4 records each
			tc.edit(&c)
			fs := testFS(t)
			l := openLog(t, fs, c)
			for i := range 40 {
				ts := now.Add(-time.Second)
				if i < 20 {
					ts = now.Add(-3 * day)
				}
				rec := at(t, int64(i), 0, fmt.Sprintf("v%d", i))
				_, err := l.AppendAsIs(retimeBatch(rec, ts.UnixMilli()), AppendOptions{MaxEpoch: -1})
				must(t, err)
			}
			l.UpdateHighWatermark(tc.hw)
			_, err := l.AdvanceStart(tc.start)
			must(t, err)
			n, err := l.RetentionPass(now)
			must(t, err)
			if l.StartOffset() != tc.want {
				t.Fatalf("log start %d, want %d (%d segments deleted)", l.StartOffset(), tc.want, n)
			}
			wantRecs(t, l, seq(tc.want, 40)...)
			if n == 0 {
				return
			}
			if count(t, l, deletedSuffix) == 0 {
				t.Error("no file is .deleted")
			}
			must(t, l.Reap(now.Add(c.FileDeleteDelay-time.Second)))
			if count(t, l, deletedSuffix) == 0 {
				t.Error(".deleted files went before file.delete.delay.ms")
			}
			must(t, l.Reap(now.Add(c.FileDeleteDelay)))
			if n := count(t, l, deletedSuffix); n != 0 {
				t.Errorf("%d .deleted files are left", n)
			}
			if snaps, segs := count(t, l, snapshotSuffix), l.SegmentCount(); snaps > segs {
				t.Errorf("%d snapshots for %d segments", snaps, segs)
			}
			must(t, l.Close(true))
			l = openLog(t, fs, c, clean, func(o *Options) { o.LogStart = tc.want })
			wantRecs(t, l, seq(tc.want, 40)...)
		})
	}
}

func count(t tb, l *Log, suffix string) (n int) {
	t.Helper()
	entries, err := l.opts.FS.ReadDir(l.opts.Dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			n++
		}
	}
	return n
}

func TestRollBySizeTimeAndIndex(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(c *Config)
		step time.Duration // between records
		want int           // segments of 12 records
	}{
		"by size":  {func(c *Config) { c.SegmentBytes = 300 }, 0, 3},
		"by time":  {func(c *Config) { c.SegmentAge = 5 * time.Second }, time.Second, 2},
		"by index": {func(c *Config) { c.IndexBytes, c.IndexInterval = 36, 0 }, time.Second, 4},
		"not":      {func(c *Config) {}, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			c.Retention = -1
			tc.edit(&c)
			l := openLog(t, testFS(t), c)
			base := time.Now().Add(-time.Hour)
			for i := range 12 {
				_, err := l.AppendAsIs(retimeBatch(at(t, int64(i), 0, "v"), base.Add(time.Duration(i)*tc.step).UnixMilli()), AppendOptions{MaxEpoch: -1})
				must(t, err)
			}
			if n := l.SegmentCount(); n != tc.want {
				t.Fatalf("%d segments, want %d", n, tc.want)
			}
		})
	}
}

func TestJitterBringsRollsForward(t *testing.T) {
	c := DefaultConfig()
	c.SegmentAge, c.SegmentJitter = 100*time.Second, 50*time.Second
	l := openLog(t, testFS(t), c, func(o *Options) { o.Jitter = func(n int64) int64 { return n - 1 } })
	for i, sec := range []int64{0, 49, 52} {
		_, err := l.AppendAsIs(retimeBatch(at(t, int64(i), 0, "v"), 1_000_000+sec*1000), AppendOptions{MaxEpoch: -1})
		must(t, err)
	}
	if n := l.SegmentCount(); n != 2 {
		t.Fatalf("%d segments", n)
	}
}

func TestLookupByTimestamp(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, small())
	times := []int64{10, 20, 20, 15, 30, 25, 40, 40, 35, 50}
	var all []int64
	for round := range 6 {
		for _, ts := range times {
			ts += int64(round * 60)
			_, err := l.AppendAsIs(retimeBatch(at(t, int64(len(all)), 3, "v"), ts), AppendOptions{MaxEpoch: -1})
			must(t, err)
			all = append(all, ts)
		}
	}
	_, err := l.AdvanceStart(4)
	must(t, err)
	check := func(l *Log) {
		t.Helper()
		for ts := int64(0); ts < 400; ts++ {
			want := int64(-1)
			for off := 4; off < len(all); off++ {
				if all[off] >= ts {
					want = int64(off)
					break
				}
			}
			got, err := l.OffsetForTimestamp(ts)
			must(t, err)
			if got.Offset != want || (want >= 0 && (got.Timestamp != all[want] || got.Epoch != 3)) {
				t.Fatalf("time %d: %+v, want offset %d", ts, got, want)
			}
		}
		got, err := l.MaxTimestampOffset()
		must(t, err)
		if got.Offset != 59 || got.Timestamp != 350 {
			t.Fatalf("max timestamp: %+v", got)
		}
	}
	check(l)
	must(t, l.Close(true))
	start := func(o *Options) { o.LogStart = 4 }
	l = openLog(t, fs, small(), clean, start)
	check(l)
	check(openLog(t, fs, small(), start))
	_, err = l.TruncateTo(47)
	must(t, err)
	all = all[:47]
	got, err := l.MaxTimestampOffset()
	must(t, err)
	if got.Timestamp != 280 || got.Offset != 46 {
		t.Fatalf("max timestamp after a cut: %+v", got)
	}
}
