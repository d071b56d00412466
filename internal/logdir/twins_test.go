package logdir

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"milena/internal/disk"
	"milena/internal/partlog"
)

// A log whose creation fails for lack of space, wherever that is, stands in the way of no other attempt, in whichever directory, and
// of no later start.
func TestFailedCreationLeavesNothing(t *testing.T) {
	for _, how := range []struct {
		again, cleans bool // another attempt is made; what was made can be removed
	}{{}, {again: true}, {cleans: true}, {again: true, cleans: true}} {
		for nth := int64(1); ; nth++ {
			mem := disk.NewMem(1)
			formatted(t, mem, "/a", "/b")
			var armed atomic.Bool
			var seen atomic.Int64
			s := open(t, options(disk.Faulty(mem, func(op disk.Op, _ string) error {
				if armed.Load() && op != disk.OpOpen && op != disk.OpClose && op != disk.OpRead && op != disk.OpStat && op != disk.OpReadDir && op != disk.OpSync && op != disk.OpSyncDir {
					if op == disk.OpRemove && !how.cleans {
						return disk.ErrNoSpace
					}
					if seen.Add(1) >= nth && op != disk.OpRemove {
						return disk.ErrNoSpace
					}
				}
				return nil
			}), "/a", "/b"))
			armed.Store(true)
			_, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[1].ID)
			armed.Store(false)
			if seen.Load() < nth { // nothing has failed
				if nth < 3 {
					t.Fatalf("%+v: operation %d fails nothing", how, nth)
				}
				must(t, s.Close(t.Context(), true, 1))
				break
			}
			if err == nil {
				t.Fatalf("%+v: the failure of operation %d isn't noticed", how, nth)
			}
			left, err := disk.Exists(mem, "/b/t-0")
			must(t, err)
			if left && how.cleans {
				t.Fatalf("%+v, operation %d: the directory stays", how, nth)
			}
			if how.again {
				l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
				must(t, err)
				if dir := filepath.Dir(l.Dir()); dir != "/a" {
					t.Fatalf("%+v, operation %d: the log is in %s", how, nth, dir)
				}
				add(t, l, 3)
			}
			must(t, s.Close(t.Context(), true, 1))
			s = open(t, options(mem, "/a", "/b"))
			if l := s.Get("t", 0); how.again && (l == nil || records(t, l) != 3 || filepath.Dir(l.Dir()) != "/a") {
				t.Fatalf("%+v, operation %d: after a restart: %v", how, nth, l)
			}
			must(t, s.Close(t.Context(), true, 1))
		}
	}
	// Both attempts failed, and both left their directory.
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	for _, d := range []string{"/a/t-0", "/b/t-0"} {
		must(t, mem.Mkdir(d))
		must(t, mem.SyncDir(filepath.Dir(d)))
	}
	s := open(t, options(mem, "/a", "/b"))
	l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
	must(t, err)
	add(t, l, 1)
	must(t, s.Close(t.Context(), true, 1))
}
