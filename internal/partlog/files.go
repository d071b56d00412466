package partlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"milena/internal/disk"
	"milena/internal/record"
)

// Suffixes of the files of a partition, Kafka's.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted"
	cleanedSuffix  = ".cleaned"
	swapSuffix     = ".swap"

	epochFile    = "leader-epoch-checkpoint"
	metadataFile = "partition.metadata"
)

// offsetName is a base offset as file names have it: 20 digits.
func offsetName(offset int64) string { return fmt.Sprintf("%020d", offset) }

// parseOffsetName undoes offsetName.
func parseOffsetName(s string) (int64, bool) {
	if len(s) != 20 || strings.TrimLeft(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// lazyFile is a file that is opened when first used and can be closed while
// nobody uses it. It stays readable for those who hold it when it is renamed,
// removed or closed. Safe for concurrent use.
type lazyFile struct {
	fs disk.FS

	mu   sync.Mutex // guards name, dead and opening
	name string
	dead bool

	f    atomic.Pointer[record.SharedFile]
	used atomic.Bool // since the last closeIdle
}

func newLazyFile(fsys disk.FS, name string) *lazyFile { return &lazyFile{fs: fsys, name: name} }

// acquire opens the file (making it if missing) and adds a reference.
func (l *lazyFile) acquire() (*record.SharedFile, error) {
	if f := l.f.Load(); f != nil && f.Acquire() {
		if !l.used.Load() {
			l.used.Store(true)
		}
		return f, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, ErrClosed
	}
	if f := l.f.Load(); f != nil && f.Acquire() {
		return f, nil
	}
	file, err := l.fs.OpenAppend(l.name)
	if err != nil {
		return nil, err
	}
	f := record.Share(file, nil)
	f.Acquire() // cannot fail: this is the second reference
	l.f.Store(f)
	l.used.Store(true)
	return f, nil
}

// path is the present name.
func (l *lazyFile) path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name
}

// closeIdle closes the file if it was not used since the last call.
func (l *lazyFile) closeIdle() {
	if !l.used.Swap(false) {
		l.drop()
	}
}

// drop closes the file until it is used again.
func (l *lazyFile) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *lazyFile) closeLocked() {
	if f := l.f.Swap(nil); f != nil {
		_ = f.Release() // what had to be durable was synced before
	}
}

// shut closes the file for good; holders may go on reading.
func (l *lazyFile) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	l.closeLocked()
}

// rename moves the file. A file that was never made is no error.
func (l *lazyFile) rename(to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fs.Rename(l.name, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.name = to
	return nil
}

// remove closes the file for good and removes it.
func (l *lazyFile) remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	l.closeLocked()
	return removeIfExists(l.fs, l.name)
}

func removeIfExists(fsys disk.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readFull fills p from f at off; a shorter file is io.ErrUnexpectedEOF.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fileSize is the size of a file, 0 if it is missing.
func fileSize(fsys disk.FS, name string) (int64, bool, error) {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return info.Size(), true, nil
}

func (l *Log) path(name string) string { return filepath.Join(l.opts.Dir, name) }

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
