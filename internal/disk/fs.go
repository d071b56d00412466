package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
)

// ErrLocked says that another process (or another user of this [FS]) holds a
// lock file. The error that wraps it names the file and the holder's pid.
var ErrLocked = errors.New("lock file is held")

// FS is a file system. Names are ordinary paths in the operating system's
// syntax. Errors are *fs.PathError or wrap fs.ErrNotExist, fs.ErrExist and so on.
// All methods are safe for concurrent use.
type FS interface {
	// Open opens an existing file for reading only.
	Open(name string) (File, error)
	// Create makes a new empty file for reading and writing; an existing one is
	// cut to zero length.
	Create(name string) (File, error)
	// OpenAppend opens a file for reading and writing, keeping what it holds;
	// it is made if missing.
	OpenAppend(name string) (File, error)
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Mkdir makes a directory and its missing parents. One that exists is no error.
	Mkdir(dir string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a path and all below it. A missing path is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory; an existing file at newName is replaced.
	Rename(oldName, newName string) error
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, made if missing, and writes the
	// process id into it. The lock is given up by Close or the end of the process.
	// When it is taken already, the error wraps [ErrLocked].
	Lock(name string) (io.Closer, error)
	// Free returns the bytes available to this process and the size in bytes of
	// the file system that holds dir.
	Free(dir string) (free, total int64, err error)
}

// File is an open file. Write and Writev append at the end of the file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Writer
	io.Closer
	// Writev appends all buffers in order and returns the bytes written. The
	// slices are not changed. Fewer bytes than given come with an error.
	Writev(bufs [][]byte) (int64, error)
	// Truncate sets the length; growing fills with zeros.
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable (fdatasync).
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
	// Name is the name that the file was opened by.
	Name() string
}

// Fder is implemented by files that have a descriptor of the operating system,
// which a socket writer may hand to sendfile. It is valid until Close.
type Fder interface {
	Fd() uintptr
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// Exists reports whether a file or directory is there.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// OutOfFiles says that err is the process's or the system's limit on open files
// (ulimit -n): nothing was done, and the disk is well.
func OutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Full says that err is a lack of space: what was to be written isn't, or not
// whole, and the disk is well. From a Sync it is no such thing: bytes that were
// written may be lost.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// WriteFileAtomic replaces a file's content so that after a crash either the old
// or the new content is there, whole: temporary file beside it (path + ".tmp"),
// sync, rename, sync of the directory.
func WriteFileAtomic(fsys FS, path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := fsys.Create(tmp)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // the write's own error matters more
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
