package disk

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
)

// Op names an operation of [FS] or [File] in a fault rule.
type Op string

// The operations that a [Rule] is asked about.
const (
	OpOpen     Op = "open"     // Open, OpenAppend
	OpCreate   Op = "create"   // Create
	OpReadDir  Op = "readdir"  // ReadDir
	OpMkdir    Op = "mkdir"    // Mkdir
	OpRemove   Op = "remove"   // Remove, RemoveAll
	OpRename   Op = "rename"   // Rename, with the new name
	OpStat     Op = "stat"     // Stat, Size
	OpSyncDir  Op = "syncdir"  // SyncDir
	OpLock     Op = "lock"     // Lock
	OpFree     Op = "free"     // Free
	OpRead     Op = "read"     // ReadAt
	OpWrite    Op = "write"    // Write, WriteAt, Writev
	OpTruncate Op = "truncate" // Truncate
	OpSync     Op = "sync"     // Sync
	OpClose    Op = "close"    // Close; the file is closed all the same
)

// Rule is asked before each operation; an error makes the operation fail with it
// undone. A [*ShortWrite] lets a write put some bytes first. Rules are called
// concurrently.
type Rule func(op Op, name string) error

// ShortWrite makes a write stop after Bytes bytes (or before its last one) with Err.
type ShortWrite struct {
	Bytes int
	Err   error
}

func (s *ShortWrite) Error() string { return "short write: " + s.Err.Error() }

// Unwrap returns Err.
func (s *ShortWrite) Unwrap() error { return s.Err }

// ErrNoSpace is the system's error for a full disk.
const ErrNoSpace = syscall.ENOSPC

// FailNth fails the nth (from 1) operation that op and suffix match, and only that.
// An empty op or suffix matches all.
func FailNth(n int64, op Op, suffix string, err error) Rule {
	var count atomic.Int64
	return func(o Op, name string) error {
		if matches(o, name, op, suffix) && count.Add(1) == n {
			return err
		}
		return nil
	}
}

// FailFrom fails the nth (from 1) operation that op and suffix match and all after it.
func FailFrom(n int64, op Op, suffix string, err error) Rule {
	var count atomic.Int64
	return func(o Op, name string) error {
		if matches(o, name, op, suffix) && count.Add(1) >= n {
			return err
		}
		return nil
	}
}

func matches(o Op, name string, op Op, suffix string) bool {
	return (op == "" || o == op) && strings.HasSuffix(name, suffix)
}

// Faulty decorates a file system with faults. Its files have no descriptor, so that
// every read passes through the rule.
func Faulty(fsys FS, rule Rule) FS { return &faultyFS{fs: fsys, rule: rule} }

type faultyFS struct {
	fs   FS
	rule Rule
}

func (f *faultyFS) file(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := f.rule(op, name); err != nil {
		return nil, pathErr(string(op), name, err)
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f: file, rule: f.rule}, nil
}

func (f *faultyFS) do(op Op, name string, fn func() error) error {
	if err := f.rule(op, name); err != nil {
		return pathErr(string(op), name, err)
	}
	return fn()
}

func (f *faultyFS) Open(name string) (File, error)   { return f.file(OpOpen, name, f.fs.Open) }
func (f *faultyFS) Create(name string) (File, error) { return f.file(OpCreate, name, f.fs.Create) }
func (f *faultyFS) OpenAppend(name string) (File, error) {
	return f.file(OpOpen, name, f.fs.OpenAppend)
}

func (f *faultyFS) ReadDir(dir string) (out []fs.DirEntry, err error) {
	err = f.do(OpReadDir, dir, func() error { out, err = f.fs.ReadDir(dir); return err })
	return out, err
}

func (f *faultyFS) Mkdir(dir string) error {
	return f.do(OpMkdir, dir, func() error { return f.fs.Mkdir(dir) })
}

func (f *faultyFS) Remove(name string) error {
	return f.do(OpRemove, name, func() error { return f.fs.Remove(name) })
}

func (f *faultyFS) RemoveAll(name string) error {
	return f.do(OpRemove, name, func() error { return f.fs.RemoveAll(name) })
}

func (f *faultyFS) Rename(oldName, newName string) error {
	return f.do(OpRename, newName, func() error { return f.fs.Rename(oldName, newName) })
}

func (f *faultyFS) Stat(name string) (info fs.FileInfo, err error) {
	err = f.do(OpStat, name, func() error { info, err = f.fs.Stat(name); return err })
	return info, err
}

func (f *faultyFS) SyncDir(dir string) error {
	return f.do(OpSyncDir, dir, func() error { return f.fs.SyncDir(dir) })
}

func (f *faultyFS) Lock(name string) (l io.Closer, err error) {
	err = f.do(OpLock, name, func() error { l, err = f.fs.Lock(name); return err })
	return l, err
}

func (f *faultyFS) Free(dir string) (free, total int64, err error) {
	err = f.do(OpFree, dir, func() error { free, total, err = f.fs.Free(dir); return err })
	return free, total, err
}

type faultyFile struct {
	f    File
	rule Rule
}

func (f *faultyFile) ask(op Op) error {
	if err := f.rule(op, f.f.Name()); err != nil {
		return pathErr(string(op), f.f.Name(), err)
	}
	return nil
}

// cut returns what of p is to be written before err.
func cut(p []byte, err error) []byte {
	var short *ShortWrite
	if !errors.As(err, &short) || len(p) == 0 {
		return nil
	}
	return p[:min(short.Bytes, len(p)-1)]
}

func (f *faultyFile) Name() string { return f.f.Name() }

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.ask(OpRead); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.ask(OpWrite); err != nil {
		n, werr := f.f.WriteAt(cut(p, err), off)
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.f.WriteAt(p, off)
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.ask(OpWrite); err != nil {
		n, werr := f.f.Write(cut(p, err))
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.f.Write(p)
}

func (f *faultyFile) Writev(bufs [][]byte) (int64, error) {
	if err := f.ask(OpWrite); err != nil {
		var all []byte
		for _, b := range bufs {
			all = append(all, b...)
		}
		n, werr := f.f.Write(cut(all, err))
		if werr != nil {
			return int64(n), werr
		}
		return int64(n), err
	}
	return f.f.Writev(bufs)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.ask(OpTruncate); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.ask(OpSync); err != nil {
		return err
	}
	return f.f.Sync()
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.ask(OpStat); err != nil {
		return 0, err
	}
	return f.f.Size()
}

func (f *faultyFile) Close() error {
	err := f.f.Close()
	if ferr := f.ask(OpClose); ferr != nil {
		return ferr
	}
	return err
}
