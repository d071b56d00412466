package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestCrashDropsUnsyncedBytes(t *testing.T) {
	m := memWith(t, "/d")
	f := write(t, m, "/d/f", "synced")
	check(t, f.Sync())
	check(t, m.SyncDir("/d"))
	_, err := f.Write([]byte(" lost"))
	check(t, err)
	_, err = f.WriteAt([]byte("SYN"), 0)
	check(t, err)
	check(t, f.Truncate(2))
	_, err = f.Write([]byte("more"))
	check(t, err)
	m.Crash()
	if got := content(t, m, "/d/f"); got != "synced" {
		t.Errorf("after the crash %q", got)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write to a handle from before: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("sync of a handle from before: %v", err)
	}
}

func TestCrashDropsUnsyncedNames(t *testing.T) {
	m := memWith(t, "/d")
	for _, name := range []string{"stays", "removed", "renamed", "replaced"} {
		f := write(t, m, "/d/"+name, name)
		check(t, f.Sync())
		check(t, f.Close())
	}
	check(t, m.SyncDir("/d"))
	f := write(t, m, "/d/new", "synced bytes, but no name")
	check(t, f.Sync())
	check(t, m.Remove("/d/removed"))
	check(t, m.Rename("/d/renamed", "/d/other"))
	check(t, m.Rename("/d/stays", "/d/replaced"))
	check(t, m.Mkdir("/d/sub"))
	check(t, write(t, m, "/d/sub/x", "").Close())
	check(t, m.SyncDir("/d/sub")) // of no use without SyncDir of /d
	undone := m.CrashClone(false, 1)
	for _, name := range []string{"stays", "removed", "renamed", "replaced"} {
		if got := content(t, undone, "/d/"+name); got != name {
			t.Errorf("%s holds %q", name, got)
		}
	}
	for _, name := range []string{"new", "other", "sub"} {
		if there, err := Exists(undone, "/d/"+name); there || err != nil {
			t.Errorf("%s: there %t, %v", name, there, err)
		}
	}
	check(t, m.SyncDir("/d"))
	m.Crash()
	if got := content(t, m, "/d/replaced"); got != "stays" {
		t.Errorf("replaced holds %q", got)
	}
	if got := content(t, m, "/d/new"); got != "synced bytes, but no name" {
		t.Errorf("new holds %q", got)
	}
	for name, want := range map[string]bool{"stays": false, "removed": false, "renamed": false, "other": true, "sub/x": true} {
		if there, err := Exists(m, "/d/"+name); there != want || err != nil {
			t.Errorf("%s: there %t, want %t, %v", name, there, want, err)
		}
	}
}

func TestCrashReleasesLocks(t *testing.T) {
	m := memWith(t, "/d")
	old, err := m.Lock("/d/.lock")
	check(t, err)
	m.Crash()
	l, err := m.Lock("/d/.lock")
	check(t, err)
	check(t, old.Close()) // must not free the new holder's lock
	if _, err := m.Lock("d/.lock"); !errors.Is(err, ErrLocked) {
		t.Errorf("lock again: %v", err)
	}
	check(t, l.Close())
}

// After a torn crash an appended file is a prefix of what was written, at least as
// long as what was synced, with at most zeros behind it.
func TestTornAppends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem(1)
		f, err := m.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		var all []byte
		synced := 0
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "sync") == 0 {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = len(all)
				continue
			}
			p := rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 20).Draw(t, "bytes")
			all = append(all, p...)
			if _, err := f.Writev([][]byte{p[:len(p)/2], p[len(p)/2:]}); err != nil {
				t.Fatal(err)
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		got, err := ReadFile(m.CrashClone(true, seed), "f")
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadFile(m.CrashClone(true, seed), "f")
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("the same seed kept %q, then %q (%v)", got, again, err)
		}
		kept := bytes.TrimRight(got, "\x00")
		if len(kept) < synced || !bytes.HasPrefix(all, kept) || len(got) > len(all) {
			t.Fatalf("kept %q of %q, %d bytes synced", got, all, synced)
		}
		strict, err := ReadFile(m.CrashClone(false, seed), "f")
		if err != nil || !bytes.Equal(strict, all[:synced]) {
			t.Fatalf("without tearing %q, want %q (%v)", strict, all[:synced], err)
		}
	})
}

// A strict crash brings back exactly the content at the last Sync, whatever writes and
// truncations came since; a torn one some content in between.
func TestCrashUndoesAnyChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem(1)
		f, err := m.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		var want, now []byte
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			off := rapid.IntRange(0, 30).Draw(t, "off")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				err = f.Truncate(int64(off))
				now = append(now, make([]byte, 30)...)[:max(off, 0)]
				now = bytes.Clone(now)
			case 1:
				err = f.Sync()
				want = bytes.Clone(now)
			default:
				p := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
				_, err = f.WriteAt(p, int64(off))
				if len(p) > 0 {
					if end := off + len(p); end > len(now) {
						now = append(now, make([]byte, end-len(now))...)
					}
					copy(now[off:], p)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ReadFile(m, "f"); err != nil || !bytes.Equal(got, now) {
				t.Fatalf("content %q, want %q (%v)", got, now, err)
			}
		}
		m.CrashClone(true, rapid.Uint64().Draw(t, "seed")) // must leave m alone
		if got, err := ReadFile(m, "f"); err != nil || !bytes.Equal(got, now) {
			t.Fatalf("CrashClone changed %q to %q (%v)", now, got, err)
		}
		m.Crash()
		if got, err := ReadFile(m, "f"); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after the crash %q, want %q (%v)", got, want, err)
		}
	})
}

func TestCapacity(t *testing.T) {
	m := memWith(t, "/d")
	m.SetCapacity(10)
	f := write(t, m, "/d/f", "12345678")
	if n, err := f.Write([]byte("abcd")); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d: %v", n, err)
	}
	if n, err := f.WriteAt([]byte("x"), 0); n != 1 || err != nil {
		t.Errorf("overwriting needs no space: %d %v", n, err)
	}
	if err := f.Truncate(11); !errors.Is(err, ErrNoSpace) {
		t.Errorf("growing: %v", err)
	}
	if free, total, err := m.Free("/d"); free != 0 || total != 10 || err != nil {
		t.Errorf("free %d of %d: %v", free, total, err)
	}
	check(t, f.Truncate(4))
	if free, _, err := m.Free("/d"); free != 6 || err != nil {
		t.Errorf("free %d: %v", free, err)
	}
	check(t, m.Remove("/d/f"))
	check(t, f.Truncate(0)) // of an unlinked file: counted once only
	if free, _, err := m.Free("/d"); free != 10 || err != nil {
		t.Errorf("free %d after removal: %v", free, err)
	}
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	m := memWith(t, "/d")
	fsys := Faulty(m, FailNth(2, OpWrite, ".log", &ShortWrite{Bytes: 3, Err: ErrNoSpace}))
	f, err := fsys.Create("/d/a.log")
	check(t, err)
	check(t, write(t, fsys, "/d/b.index", "not counted").Close())
	_, err = f.Write([]byte("first"))
	check(t, err)
	if n, err := f.Writev([][]byte{[]byte("se"), []byte("cond")}); n != 3 || !errors.Is(err, ErrNoSpace) {
		t.Errorf("second write: %d %v", n, err)
	}
	_, err = f.Write([]byte("third"))
	check(t, err)
	if got := content(t, m, "/d/a.log"); got != "firstsecthird" {
		t.Errorf("content %q", got)
	}

	ops := []struct {
		op Op
		do func(FS, File) error
	}{
		{OpOpen, func(fsys FS, _ File) error { _, err := fsys.Open("/d/a.log"); return err }},
		{OpCreate, func(fsys FS, _ File) error { _, err := fsys.Create("/d/c.log"); return err }},
		{OpReadDir, func(fsys FS, _ File) error { _, err := fsys.ReadDir("/d"); return err }},
		{OpMkdir, func(fsys FS, _ File) error { return fsys.Mkdir("/d/e") }},
		{OpRemove, func(fsys FS, _ File) error { return fsys.Remove("/d/b.index") }},
		{OpRename, func(fsys FS, _ File) error { return fsys.Rename("/d/a.log", "/d/z.log") }},
		{OpStat, func(fsys FS, _ File) error { _, err := fsys.Stat("/d"); return err }},
		{OpSyncDir, func(fsys FS, _ File) error { return fsys.SyncDir("/d") }},
		{OpLock, func(fsys FS, _ File) error { _, err := fsys.Lock("/d/.lock"); return err }},
		{OpFree, func(fsys FS, _ File) error { _, _, err := fsys.Free("/d"); return err }},
		{OpRead, func(_ FS, f File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{OpWrite, func(_ FS, f File) error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		{OpTruncate, func(_ FS, f File) error { return f.Truncate(1) }},
		{OpSync, func(_ FS, f File) error { return f.Sync() }},
		{OpClose, func(_ FS, f File) error { return f.Close() }},
	}
	for _, o := range ops {
		armed := false
		fsys := Faulty(m, func(op Op, _ string) error {
			if armed && op == o.op {
				return boom
			}
			return nil
		})
		f, err := fsys.OpenAppend("/d/a.log")
		check(t, err)
		armed = true
		if err := o.do(fsys, f); !errors.Is(err, boom) {
			t.Errorf("%s: %v", o.op, err)
		}
	}
	if there, err := Exists(m, "/d/b.index"); !there || err != nil {
		t.Error("a failed operation must not happen")
	}
	if got := content(t, m, "/d/a.log"); got != "firstsecthird" {
		t.Errorf("content %q after failed writes", got)
	}
}

func TestKillKeepsWhatWasWritten(t *testing.T) {
	m := NewMem(1)
	f, err := m.Create("/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("written, not synced")); err != nil {
		t.Fatal(err)
	}
	lock, err := m.Lock("/lock")
	if err != nil {
		t.Fatal(err)
	}
	_ = lock
	m.Kill()
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("a handle of the killed process still writes")
	}
	if _, err := m.Lock("/lock"); err != nil {
		t.Errorf("the killed process still holds its lock: %v", err)
	}
	if b, err := ReadFile(m, "/f"); err != nil || string(b) != "written, not synced" {
		t.Errorf("after a kill: %q, %v", b, err)
	}
	m.Crash()
	if ok, err := Exists(m, "/f"); err != nil || ok {
		t.Errorf("a kill made the file durable: %v", err)
	}
}
