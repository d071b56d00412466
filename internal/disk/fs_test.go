package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everyFS runs a test on the real and the in-memory file system, and through the
// decorator.
func everyFS(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	never := func(Op, string) error { return nil }
	t.Run("os", func(t *testing.T) { test(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) { test(t, memWith(t, "/data"), "/data") })
	t.Run("faulty", func(t *testing.T) { test(t, Faulty(memWith(t, "/data"), never), "/data") })
}

func memWith(t *testing.T, dir string) *Mem {
	t.Helper()
	m := NewMem(1)
	check(t, m.Mkdir(dir))
	check(t, m.SyncDir("/"))
	return m
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.Create(name)
	check(t, err)
	if content != "" {
		_, err = f.Write([]byte(content))
		check(t, err)
	}
	return f
}

func content(t *testing.T, fsys FS, name string) string {
	t.Helper()
	b, err := ReadFile(fsys, name)
	check(t, err)
	return string(b)
}

func TestFiles(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "a.log")
		if _, err := fsys.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open of a missing file: %v", err)
		}
		f := write(t, fsys, name, "hello")
		if n, err := f.Writev([][]byte{[]byte(" wor"), nil, []byte("ld")}); n != 6 || err != nil {
			t.Errorf("writev: %d %v", n, err)
		}
		_, err := f.WriteAt([]byte("H"), 0)
		check(t, err)
		check(t, f.Truncate(7))
		_, err = f.Write([]byte("W")) // appends at the new end
		check(t, err)
		check(t, f.Sync())
		if size, err := f.Size(); size != 8 || err != nil {
			t.Errorf("size %d %v", size, err)
		}
		check(t, f.Close())
		if got := content(t, fsys, name); got != "Hello wW" {
			t.Errorf("content %q", got)
		}

		f, err = fsys.OpenAppend(name)
		check(t, err)
		_, err = f.Write([]byte("!"))
		check(t, err)
		_, err = f.WriteAt([]byte("xy"), 11) // leaves a hole
		check(t, err)
		check(t, f.Truncate(15))
		check(t, f.Close())
		if got := content(t, fsys, name); got != "Hello wW!\x00\x00xy\x00\x00" {
			t.Errorf("content %q", got)
		}

		r, err := fsys.Open(name)
		check(t, err)
		p := make([]byte, 4)
		if n, err := r.ReadAt(p, 13); n != 2 || !errors.Is(err, io.EOF) {
			t.Errorf("read over the end: %d %v", n, err)
		}
		if _, err := r.Write([]byte("x")); err == nil {
			t.Error("a read-only handle must not write")
		}
		if _, err := r.Writev([][]byte{[]byte("x")}); err == nil {
			t.Error("a read-only handle must not writev")
		}
		check(t, r.Close())
		if _, err := r.ReadAt(p, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read of a closed file: %v", err)
		}
		f = write(t, fsys, name, "new")
		check(t, f.Close())
		if got := content(t, fsys, name); got != "new" {
			t.Errorf("Create must cut an existing file: %q", got)
		}
	})
}

func TestDirectories(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys FS, dir string) {
		sub := filepath.Join(dir, "x", "y")
		check(t, fsys.Mkdir(sub))
		check(t, fsys.Mkdir(sub))
		check(t, write(t, fsys, filepath.Join(sub, "b"), "1").Close())
		check(t, write(t, fsys, filepath.Join(sub, "a"), "2").Close())
		check(t, fsys.Mkdir(filepath.Join(sub, "c")))
		entries, err := fsys.ReadDir(sub)
		check(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name()+strconv.FormatBool(e.IsDir()))
		}
		if got := strings.Join(names, " "); got != "afalse bfalse ctrue" {
			t.Errorf("entries %s", got)
		}
		if err := fsys.Remove(sub); err == nil {
			t.Error("removing a directory that is not empty must fail")
		}
		check(t, fsys.Rename(filepath.Join(sub, "a"), filepath.Join(sub, "b")))
		if got := content(t, fsys, filepath.Join(sub, "b")); got != "2" {
			t.Errorf("rename must replace: %q", got)
		}
		check(t, fsys.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "z-delete")))
		info, err := fsys.Stat(filepath.Join(dir, "z-delete", "y", "b"))
		if err != nil || info.Size() != 1 || info.IsDir() {
			t.Errorf("stat: %v %v", info, err)
		}
		check(t, fsys.SyncDir(dir))
		check(t, fsys.RemoveAll(filepath.Join(dir, "z-delete")))
		check(t, fsys.RemoveAll(filepath.Join(dir, "z-delete")))
		check(t, fsys.RemoveAll(filepath.Join(dir, "never", "was")))
		if there, err := Exists(fsys, filepath.Join(dir, "z-delete")); there || err != nil {
			t.Errorf("exists: %t %v", there, err)
		}
		for _, err := range []error{fsys.Remove(filepath.Join(dir, "no")), fsys.Rename(filepath.Join(dir, "no"), filepath.Join(dir, "no2")), fsys.SyncDir(filepath.Join(dir, "no"))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("on a missing name: %v", err)
			}
		}
		free, total, err := fsys.Free(dir)
		if err != nil || free <= 0 || total < free {
			t.Errorf("free %d of %d: %v", free, total, err)
		}
	})
}

func TestLock(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		check(t, err)
		pid := strings.TrimSpace(content(t, fsys, name))
		if n, err := strconv.Atoi(pid); err != nil || n <= 0 {
			t.Errorf("pid %q in the lock file", pid)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), pid) {
			t.Errorf("second lock: %v; want the holder's pid %s", err, pid)
		}
		check(t, l.Close())
		l, err = fsys.Lock(name)
		check(t, err)
		check(t, l.Close())
	})
}

// More buffers than one system call takes, and empty ones among them.
func TestWritevManyBuffers(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys FS, dir string) {
		var bufs [][]byte
		var want bytes.Buffer
		for i := range 3*maxIOV + 5 {
			b := bytes.Repeat([]byte{byte(i)}, i%5)
			bufs = append(bufs, b)
			want.Write(b)
		}
		name := filepath.Join(dir, "v")
		f := write(t, fsys, name, "")
		n, err := f.Writev(bufs)
		if n != int64(want.Len()) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, want.Len(), err)
		}
		if size, err := f.Size(); size != n || err != nil {
			t.Errorf("size %d, wrote %d: %v", size, n, err)
		}
		check(t, f.Close())
		if got := content(t, fsys, name); got != want.String() {
			t.Error("content differs")
		}
	})
}

// The kernel may write less than it is given, at any point; an error ends it with what
// was written so far.
func TestWritevPartialWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 6), 0, 12).Draw(t, "bufs")
		want := slices.Concat(bufs...)
		failAt := rapid.IntRange(0, len(want)+5).Draw(t, "fail at")
		boom := errors.New("boom")
		var got []byte
		n, err := writevAll(bufs, func(iov [][]byte) (int, error) {
			all := slices.Concat(iov...)
			n := rapid.IntRange(1, len(all)).Draw(t, "takes")
			if len(got)+n > failAt {
				n = failAt - len(got)
				got = append(got, all[:n]...)
				return n, boom
			}
			got = append(got, all[:n]...)
			return n, nil
		})
		if failAt < len(want) {
			if !errors.Is(err, boom) || int(n) != failAt || !bytes.Equal(got, want[:failAt]) {
				t.Fatalf("failing at %d: wrote %d %q, %v", failAt, n, got, err)
			}
			return
		}
		if err != nil || int(n) != len(want) || !bytes.Equal(got, want) {
			t.Fatalf("wrote %d %q of %q, %v", n, got, want, err)
		}
	})
	n, err := writevAll([][]byte{{1}}, func([][]byte) (int, error) { return 0, nil })
	if n != 0 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a write that does nothing must not loop: %d %v", n, err)
	}
}

func TestWriteFileAtomic(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "checkpoint")
		check(t, WriteFileAtomic(fsys, name, []byte("one")))
		check(t, WriteFileAtomic(fsys, name, []byte("second")))
		if got := content(t, fsys, name); got != "second" {
			t.Errorf("content %q", got)
		}
		if there, err := Exists(fsys, name+".tmp"); there || err != nil {
			t.Errorf("temporary file left: %t %v", there, err)
		}
	})
}

// Whatever fails, and wherever the power goes, old or new content is there, whole.
func TestWriteFileAtomicUnderFaults(t *testing.T) {
	boom := errors.New("boom")
	failed := 0
	for n := int64(1); ; n++ {
		mem := memWith(t, "/data")
		check(t, WriteFileAtomic(mem, "/data/c", []byte("old")))
		err := WriteFileAtomic(Faulty(mem, FailFrom(n, "", "", boom)), "/data/c", []byte("new content"))
		for seed := range uint64(8) {
			for _, torn := range []bool{false, true} {
				got := content(t, mem.CrashClone(torn, seed), "/data/c")
				if got != "new content" && (err == nil || got != "old") {
					t.Fatalf("fault at operation %d (%v), after the crash: %q", n, err, got)
				}
			}
		}
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, boom) {
			t.Fatalf("operation %d: %v", n, err)
		}
	}
	if failed != 6 { // create, write, sync, close, rename, sync of the directory
		t.Errorf("%d operations can fail, want 6", failed)
	}
}
