package logdir

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
)

// copied makes a complete future log of t-0 in the directory.
func copied(t *testing.T, s *Set, to string) *partlog.Log {
	t.Helper()
	l := s.Get("t", 0)
	f, err := s.CreateFuture("t", 0, to)
	must(t, err)
	info, err := l.Read(l.StartOffset(), 1<<20, l.EndOffset(), true)
	must(t, err)
	defer info.Release()
	for _, span := range info.Spans {
		buf, err := span.Bytes()
		must(t, err)
		_, err = f.AppendAsIs(buf, partlog.AppendOptions{MaxEpoch: -1, Origin: partlog.OriginReplication})
		must(t, err)
	}
	return f
}

func records(t *testing.T, l *partlog.Log) (n int64) {
	t.Helper()
	info, err := l.Read(l.StartOffset(), 1<<20, l.EndOffset(), true)
	must(t, err)
	defer info.Release()
	for _, span := range info.Spans {
		buf, err := span.Bytes()
		must(t, err)
		for b, err := range record.Batches(buf) {
			must(t, err)
			n += int64(b.LastOffsetDelta()) + 1
		}
	}
	return n
}

func TestPromote(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	a, b := s.Dirs()[0].ID, s.Dirs()[1].ID
	l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), a)
	must(t, err)
	add(t, l, 5)
	_, err = l.AdvanceStart(2)
	must(t, err)
	f := copied(t, s, "/b")
	_, err = f.AdvanceStart(2)
	must(t, err)
	n, err := s.Promote(f)
	must(t, err)
	if s.Get("t", 0) != n || s.DirOf("t", 0) != b || n.EndOffset() != 5 || n.StartOffset() != 2 {
		t.Fatalf("log in %s, %d to %d", n.Dir(), n.StartOffset(), n.EndOffset())
	}
	add(t, n, 1)
	s.Futures(func(l *partlog.Log) bool { t.Errorf("future log %s", l.Dir()); return true })
	must(t, n.Flush(-1))
	// A crash at once: the moved log is there, with its start.
	mem.Crash()
	_ = s.Close(t.Context(), false, 0)
	s = open(t, options(mem, "/a", "/b"))
	if l := s.Get("t", 0); s.DirOf("t", 0) != b || l.EndOffset() != 6 || l.StartOffset() != 2 || records(t, l) != 4 {
		t.Fatalf("after a crash: log in %s, %d to %d", l.Dir(), l.StartOffset(), l.EndOffset())
	}
	must(t, s.Close(t.Context(), true, 1))
}

// What a crash leaves of a move, at each of its steps.
func TestInterruptedMoves(t *testing.T) {
	for _, c := range []struct {
		name  string
		crash func(mem *disk.Mem, f *partlog.Log) error
		where string
	}{
		{"while copying", func(*disk.Mem, *partlog.Log) error { return nil }, "/a"},
		{"the copy is ready", func(mem *disk.Mem, f *partlog.Log) error {
			return mem.Rename(f.Dir(), "/b/t-0.x"+readySuffix)
		}, "/a"},
		{"the old one is set aside", func(mem *disk.Mem, f *partlog.Log) error {
			if err := mem.Rename(f.Dir(), "/b/t-0.x"+readySuffix); err != nil {
				return err
			}
			return mem.Rename("/a/t-0", "/a/t-0.y"+deleteSuffix)
		}, "/b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := disk.NewMem(1)
			formatted(t, mem, "/a", "/b")
			s := open(t, options(mem, "/a", "/b"))
			l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
			must(t, err)
			add(t, l, 5)
			f := copied(t, s, "/b")
			must(t, l.Flush(-1))
			must(t, f.Close(true))
			must(t, c.crash(mem, f))
			must(t, mem.SyncDir("/a"))
			must(t, mem.SyncDir("/b"))
			mem.Crash()
			_ = s.Close(t.Context(), false, 0)
			s = open(t, options(mem, "/a", "/b"))
			l = s.Get("t", 0)
			if l == nil || filepath.Dir(l.Dir()) != c.where || records(t, l) != 5 {
				t.Fatalf("the log is not whole in %s: %v", c.where, l)
			}
			f = s.Future("t", 0)
			if copying := c.name == "while copying"; copying != (f != nil) || copying && records(t, f) != 5 {
				t.Fatalf("the copy is %v", f)
			}
			must(t, s.Close(t.Context(), true, 1))
		})
	}
}

// Copies that nothing can come of are removed: of a log that is gone or another topic's, and all but the newest.
func TestUselessCopies(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b", "/c")
	s := open(t, options(mem, "/a", "/b", "/c"))
	l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), s.Dirs()[0].ID)
	must(t, err)
	add(t, l, 5)
	name := copied(t, s, "/b").Dir()
	must(t, s.Close(t.Context(), true, 1))
	for _, c := range []struct{ path, why string }{
		{"/c/t-0.1" + futureSuffix, "an older one"},
		{"/b/gone-3.1" + futureSuffix, "no log"},
	} {
		must(t, mem.Mkdir(c.path))
		must(t, mem.SyncDir(filepath.Dir(c.path)))
	}
	o := options(mem, "/a", "/b", "/c")
	o.SpaceInterval = time.Millisecond
	s = open(t, o)
	f := s.Future("t", 0)
	if f == nil || f.Dir() != name || records(t, f) != 5 {
		t.Fatalf("the copy is %v", f)
	}
	s.Start(t.Context())
	for left := []string{"/c/t-0.1", "/b/gone-3.1"}; len(left) > 0; {
		ok, err := disk.Exists(mem, left[0]+futureSuffix)
		must(t, err)
		if !ok {
			left = left[1:]
		}
		if t.Context().Err() != nil {
			t.Fatal("useless copies stay")
		}
	}
	// The log becomes another topic's.
	_, err = s.GetOrCreate(ids.UUID{0: 99}, "t", 0, partlog.DefaultConfig(), ids.UnassignedDir)
	must(t, err)
	if f := s.Future("t", 0); f != nil {
		t.Errorf("a deleted log has the copy %s", f.Dir())
	}
	must(t, s.Close(t.Context(), true, 1))
}

func TestPreferredDirectory(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	for i := range int32(2) { // else one would be in each
		must(t, s.Prefer("t", i, "/b/"))
		_, err := s.GetOrCreate(topicID, "t", i, partlog.DefaultConfig(), ids.UnassignedDir)
		must(t, err)
		if got := s.DirOf("t", i); got != s.Dirs()[1].ID {
			t.Errorf("t-%d is in %s", i, got)
		}
	}
	if err := s.Prefer("t", 3, "/c"); err == nil {
		t.Error("a directory that isn't ours is preferred")
	}
	if f, err := s.CreateFuture("t", 0, "/b"); f != nil || err != nil {
		t.Errorf("a move to where the log is: %v, %v", f, err)
	}
	must(t, s.Close(t.Context(), true, 1))
}

// The metadata has a replica in a copy's directory before the copy is in place. A crash then, and the directory of the log fails: no empty
// log is made where the metadata has the replica, or it would be elected without its records.
func TestNoLogInTheCopysDirectoryWhileTheLogsIsOffline(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	a, b := s.Dirs()[0].ID, s.Dirs()[1].ID
	l, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), a)
	must(t, err)
	add(t, l, 5)
	_ = copied(t, s, "/b")
	must(t, s.Close(t.Context(), true, 1))
	broken := true
	o := options(disk.Faulty(mem, func(_ disk.Op, name string) error {
		if broken && strings.HasPrefix(name, "/a") {
			return errors.New("input/output error")
		}
		return nil
	}), "/a", "/b")
	s = open(t, o)
	if _, err := s.GetOrCreate(topicID, "t", 0, partlog.DefaultConfig(), b); !errors.Is(err, ErrOffline) {
		t.Errorf("a log was made beside the copy: %v", err)
	}
	if s.Online(a) || !s.Online(b) {
		t.Error("the wrong directory is online")
	}
	if _, err := s.GetOrCreate(ids.UUID{0: 77}, "new", 0, partlog.DefaultConfig(), b); err != nil {
		t.Errorf("another log can't be made: %v", err)
	}
	must(t, s.Close(t.Context(), true, 1))
	broken = false
	s = open(t, options(mem, "/a", "/b"))
	if f := s.Future("t", 0); f == nil || records(t, f) != 5 || records(t, s.Get("t", 0)) != 5 {
		t.Errorf("the directory is back, and the copy is %v", f)
	}
	must(t, s.Close(t.Context(), true, 1))
}
