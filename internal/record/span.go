package record

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"milena/internal/disk"
)

// SharedFile is a file that several spans read and that is closed after the last
// of them is released. Its creator holds one reference.
type SharedFile struct {
	disk.File
	refs   atomic.Int64
	onLast func() // may be nil; runs once, after Close
}

// Share takes over a file; onLast, if not nil, runs after it has been closed (for
// example to remove it).
func Share(f disk.File, onLast func()) *SharedFile {
	s := &SharedFile{File: f, onLast: onLast}
	s.refs.Store(1)
	return s
}

// Acquire adds a reference. It is false when the last one is gone already.
func (s *SharedFile) Acquire() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives up a reference; the last one closes the file. Each Acquire, and
// Share, is matched by one Release.
func (s *SharedFile) Release() error {
	if s.refs.Add(-1) != 0 {
		return nil
	}
	err := s.File.Close()
	if s.onLast != nil {
		s.onLast()
	}
	return err
}

// ErrReleased says that a file was closed before a span on it could be taken.
var ErrReleased = errors.New("file is closed")

// Span is a run of record bytes, in memory or in a file. It is a value; the one
// who got it calls Release once when done, also after errors. The bytes of a file
// stay readable until then even if the file is removed meanwhile.
type Span struct {
	Mem  []byte    // the bytes, when File is nil
	File disk.File // nil for bytes in memory
	Off  int64     // first byte in File
	N    int64     // length in bytes when File is set

	shared *SharedFile
}

// MemSpan is a span of bytes in memory.
func MemSpan(b []byte) Span { return Span{Mem: b} }

// FileSpan is a span of a file's bytes; it takes a reference.
func FileSpan(f *SharedFile, off, n int64) (Span, error) {
	if off < 0 || n < 0 {
		return Span{}, fmt.Errorf("span at %d of %d bytes", off, n)
	}
	if !f.Acquire() {
		return Span{}, fmt.Errorf("span of %s: %w", f.Name(), ErrReleased)
	}
	return Span{File: f.File, Off: off, N: n, shared: f}, nil
}

// Len is the length in bytes.
func (s Span) Len() int64 {
	if s.File == nil {
		return int64(len(s.Mem))
	}
	return s.N
}

// Release gives up the span. On one without a shared file it does nothing.
func (s Span) Release() {
	if s.shared != nil {
		_ = s.shared.Release() // a read-only use: a close error loses nothing
	}
}

// ReadAt reads from the span, off counted from its start.
func (s Span) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read of span at %d", off)
	}
	if off >= s.Len() {
		return 0, io.EOF
	}
	if s.File == nil {
		n := copy(p, s.Mem[off:])
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}
	short := false
	if rest := s.N - off; int64(len(p)) > rest {
		p, short = p[:rest], true
	}
	n, err := s.File.ReadAt(p, s.Off+off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Bytes returns the span's bytes: those in memory themselves, those of a file read
// into new memory. A file shorter than the span is an error.
func (s Span) Bytes() ([]byte, error) {
	if s.File == nil {
		return s.Mem, nil
	}
	b := make([]byte, s.N)
	return b, s.readFull(b, 0)
}

func (s Span) readFull(p []byte, off int64) error {
	n, err := s.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at %d: %w", s.File.Name(), s.Off+off, err)
}

// copySize is the piece in which WriteTo copies a file region: pieces of about
// 1 MiB cost half of what 64 KiB ones do.
const copySize = 1 << 20

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copySize); return &b }}

// WriteTo writes the span's bytes to w.
func (s Span) WriteTo(w io.Writer) (int64, error) {
	if s.File == nil {
		n, err := w.Write(s.Mem)
		return int64(n), err
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var done int64
	for done < s.N {
		p := (*buf)[:min(s.N-done, copySize)]
		if err := s.readFull(p, done); err != nil {
			return done, err
		}
		n, err := w.Write(p)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
