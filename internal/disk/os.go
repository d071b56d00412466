package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxIOV is the most buffers one writev takes (IOV_MAX on Linux and the BSDs).
const maxIOV = 1024

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, readOnly: true}, nil
}

func (osFS) Create(name string) (File, error) {
	return openWritable(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) OpenAppend(name string) (File, error) {
	return openWritable(name, os.O_RDWR|os.O_CREATE)
}

func openWritable(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // the stat error matters more
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close() // as above
		return nil, err
	}
	of := &osFile{f: f, raw: raw}
	of.size.Store(info.Size())
	return of, nil
}

func (osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (osFS) Mkdir(dir string) error                    { return os.MkdirAll(dir, 0o755) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (osFS) Rename(oldName, newName string) error      { return os.Rename(oldName, newName) }
func (osFS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Free(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	bs := int64(st.Bsize) //nolint:unconvert // smaller on other systems
	return int64(st.Bavail) * bs, int64(st.Blocks) * bs, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := readPid(f)
		_ = f.Close() // the lock error matters more
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w by process %s", name, ErrLocked, holder)
		}
		return nil, &fs.PathError{Op: "flock", Path: name, Err: err}
	}
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := f.Truncate(0); err != nil {
		_ = f.Close() // as above
		return nil, err
	}
	if _, err := f.WriteAt([]byte(pid), 0); err != nil && !Full(err) { // without space for it only the pid is unknown
		_ = f.Close() // as above
		return nil, err
	}
	return f, nil
}

func readPid(f *os.File) string {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // a short or failed read only loses the pid in a message
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return pid
	}
	return "(unknown)"
}

// osFile is a real file. Its size is tracked by the handle that writes, so
// that appends need no seek; a read-only handle asks the system.
type osFile struct {
	f        *os.File
	raw      syscall.RawConn // of f; nil when readOnly
	readOnly bool
	size     atomic.Int64 // meaningful when !readOnly
}

func (o *osFile) Name() string                            { return o.f.Name() }
func (o *osFile) Fd() uintptr                             { return o.f.Fd() }
func (o *osFile) Close() error                            { return o.f.Close() }
func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) Size() (int64, error) {
	if !o.readOnly {
		return o.size.Load(), nil
	}
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	if end := off + int64(n); n > 0 && end > o.size.Load() {
		o.size.Store(end)
	}
	return n, err
}

func (o *osFile) Write(p []byte) (int, error) {
	return o.WriteAt(p, o.size.Load())
}

// Truncate sets the length; the next append goes to the new end.
func (o *osFile) Truncate(size int64) error {
	if err := o.f.Truncate(size); err != nil {
		return err
	}
	o.size.Store(size)
	return nil
}

// Writev appends with pwritev.
func (o *osFile) Writev(bufs [][]byte) (int64, error) {
	if o.readOnly {
		return 0, &fs.PathError{Op: "writev", Path: o.f.Name(), Err: fs.ErrPermission}
	}
	total, err := writevAll(bufs, func(iov [][]byte) (int, error) {
		n, err := o.pwritev(iov, o.size.Load())
		o.size.Add(int64(max(n, 0)))
		return n, err
	})
	if err != nil {
		err = &fs.PathError{Op: "writev", Path: o.f.Name(), Err: err}
	}
	return total, err
}

// writevAll writes all buffers by calls of put, which takes at most maxIOV buffers and
// may write less than it was given.
func writevAll(bufs [][]byte, put func(iov [][]byte) (int, error)) (int64, error) {
	var total int64
	iov := make([][]byte, 0, min(len(bufs), maxIOV))
	next, skip := 0, 0 // first buffer not fully written, bytes of it that are
	for {
		iov = iov[:0]
		for i := next; i < len(bufs) && len(iov) < maxIOV; i++ {
			b := bufs[i]
			if i == next {
				b = b[skip:]
			}
			if len(b) > 0 {
				iov = append(iov, b)
			}
		}
		if len(iov) == 0 {
			return total, nil
		}
		n, err := put(iov)
		if n > 0 {
			total += int64(n)
			next, skip = advance(bufs, next, skip, n)
		}
		if err == nil && n <= 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
	}
}

// advance moves a position in bufs on by n bytes.
func advance(bufs [][]byte, next, skip, n int) (int, int) {
	for next < len(bufs) && n >= len(bufs[next])-skip {
		n -= len(bufs[next]) - skip
		next, skip = next+1, 0
	}
	return next, skip + n
}
