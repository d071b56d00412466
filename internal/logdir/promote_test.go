package logdir

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
)

// Whatever operation of putting a copy in place finds the disk full: either the log is as it was, and the move can go on, or the copy is
// put in place when it is asked for again. Nothing needs a restart, and a restart right then finds all records too.
func TestDiskFullWhilePromoting(t *testing.T) {
	for _, how := range []struct{ restart, lasting bool }{{}, {restart: true}, {lasting: true}, {restart: true, lasting: true}} {
		kinds := map[string]int{}
		for nth := int64(1); ; nth++ {
			mem := disk.NewMem(1)
			formatted(t, mem, "/a", "/b")
			var armed atomic.Bool
			var seen atomic.Int64
			s := open(t, options(disk.Faulty(mem, func(op disk.Op, _ string) error {
				if armed.Load() && op != disk.OpOpen && op != disk.OpClose && op != disk.OpRead && op != disk.OpStat && op != disk.OpReadDir {
					if n := seen.Add(1); n == nth || n > nth && how.lasting && op != disk.OpRemove {
						return disk.ErrNoSpace
					}
				}
				return nil
			}), "/a", "/b"))
			l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
			must(t, err)
			add(t, l, 5)
			f := copied(t, s, "/b")
			armed.Store(true)
			n, err := s.Promote(f)
			armed.Store(false)
			done, first := seen.Load() < nth, err
			if how.restart {
				mem.Kill()
				_ = s.Close(t.Context(), false, 0)
				s = open(t, options(mem, "/a", "/b"))
				n, err = s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[1].ID)
			}
			switch {
			case err == nil:
				kinds["done"]++
			case errors.Is(err, ErrHeld):
				kinds["held"]++
				if s.Get("t", 0) != l {
					t.Fatalf("operation %d: held, but the log is gone: %v", nth, err)
				}
				add(t, l, 1)
				_, err = l.TruncateTo(5)
				must(t, err)
				if f = s.Future("t", 0); f == nil && !s.Dirs()[1].Online { // a failed sync is a failed disk
					kinds["failed"]++
					must(t, s.Close(t.Context(), true, 1))
					continue
				} else if f == nil {
					f = copied(t, s, "/b")
					kinds["anew"]++
				}
				if f.EndOffset() != 5 || records(t, f) != 5 {
					t.Fatalf("operation %d: the copy ends at %d", nth, f.EndOffset())
				}
				n, err = s.Promote(f)
				must(t, err)
			default:
				kinds["half"]++
				n, err = s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[1].ID)
				must(t, err)
			}
			if records(t, n) != 5 || s.Get("t", 0) != n || n.EndOffset() != 5 {
				t.Fatalf("operation %d: %d records in %s", nth, records(t, n), n.Dir())
			}
			add(t, n, 1)
			if dir := filepath.Dir(n.Dir()); dir != "/b" && !how.restart {
				t.Fatalf("%+v, operation %d: the log is in %s; %v", how, nth, dir, first)
			}
			must(t, s.Close(t.Context(), true, 1))
			s = open(t, options(mem, "/a", "/b"))
			if l := s.Get("t", 0); l == nil || records(t, l) != 6 {
				t.Fatalf("operation %d: after a restart: %v", nth, l)
			}
			must(t, s.Close(t.Context(), true, 1))
			if done {
				break
			}
		}
		if !how.restart && (kinds["held"] < 3 || kinds["half"] < 3) || !how.lasting && kinds["anew"] > 0 {
			t.Errorf("outcomes %v", kinds)
		}
	}
}

// A partition that is deleted while its move is stuck half-way leaves nothing behind, nor does one whose topic is another one by then.
func TestDeleteHalfWay(t *testing.T) {
	for _, again := range []bool{false, true} {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a", "/b")
		var full atomic.Bool
		s := open(t, options(disk.Faulty(mem, func(op disk.Op, name string) error {
			if full.Load() && op == disk.OpRename && filepath.Base(name) == "t-0" {
				return disk.ErrNoSpace
			}
			return nil
		}), "/a", "/b"))
		l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
		must(t, err)
		add(t, l, 5)
		full.Store(true)
		if _, err := s.Promote(copied(t, s, "/b")); err == nil || errors.Is(err, ErrHeld) {
			t.Fatalf("promoted: %v", err)
		}
		full.Store(false)
		if again {
			l, err := s.GetOrCreate(ids.UUID{0: 99}, "t", 0, partlog.DefaultConfig(), s.Dirs()[1].ID)
			must(t, err)
			if records(t, l) != 0 {
				t.Errorf("another topic has %d records", records(t, l))
			}
		}
		must(t, s.Delete("t", 0))
		l, err = s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[1].ID)
		must(t, err)
		if records(t, l) != 0 {
			t.Errorf("after its deletion it has %d records", records(t, l))
		}
		must(t, s.Close(t.Context(), true, 1))
	}
}
