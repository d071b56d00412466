package replica

import (
	"log/slog"
	"testing"

	"milena/internal/partlog"
)

// A copy that an earlier process made is cut to where it agrees with the log.
func TestRejoin(t *testing.T) {
	type run struct {
		epoch int32
		n     int // batches of one record
	}
	for name, c := range map[string]struct {
		log, copied []run
		compact     bool
		ok          bool
		end         int64
	}{
		"a part":            {log: []run{{1, 5}, {3, 5}}, copied: []run{{1, 5}, {3, 2}}, ok: true, end: 7},
		"all":               {log: []run{{1, 5}}, copied: []run{{1, 5}}, ok: true, end: 5},
		"the log was cut":   {log: []run{{1, 3}}, copied: []run{{1, 5}}, ok: true, end: 3},
		"and written anew":  {log: []run{{1, 3}, {4, 9}}, copied: []run{{1, 5}}, ok: true, end: 3},
		"twice":             {log: []run{{1, 2}, {5, 9}}, copied: []run{{1, 3}, {2, 2}, {4, 1}}, ok: true, end: 2},
		"nothing in common": {log: []run{{5, 4}}, copied: []run{{1, 4}}, ok: true},
		"an empty log":      {copied: []run{{1, 4}}},
		"an empty copy":     {log: []run{{1, 4}}},
		"compacted":         {log: []run{{1, 4}}, copied: []run{{1, 4}}, compact: true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newMem()
			open := func(dir string, runs []run) *partlog.Log {
				conf := partlog.DefaultConfig()
				conf.Compact = c.compact
				l, err := partlog.Open(partlog.Options{FS: fs, Dir: dir, Topic: "t", TopicID: topicID(1), Config: conf, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range runs {
					for range r.n {
						b := batch(t, 1)
						b.SetBaseOffset(l.EndOffset())
						b.SetLeaderEpoch(r.epoch)
						if _, err := l.AppendAsIs(b, partlog.AppendOptions{MaxEpoch: -1, Origin: partlog.OriginReplication}); err != nil {
							t.Fatal(err)
						}
					}
				}
				t.Cleanup(func() { _ = l.Close(false) })
				return l
			}
			from, to := open("/a/t-0", c.log), open("/b/t-0.1-future", c.copied)
			ok, err := rejoin(from, to)
			if err != nil || ok != c.ok || ok && to.EndOffset() != c.end {
				t.Fatalf("%v, %v, ends at %d; want %v, %d", ok, err, to.EndOffset(), c.ok, c.end)
			}
		})
	}
}
