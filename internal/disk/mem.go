package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errCrashed is what a handle from before a crash answers.
var errCrashed = fmt.Errorf("handle from before the crash: %w", fs.ErrClosed)

// Mem is a file system in memory that can crash. Its methods are safe for concurrent
// use. Relative and absolute names mean the same: all start at its one root.
type Mem struct {
	mu       sync.RWMutex // guards all below and every node; never held across a wait
	root     *node
	rnd      *rand.Rand
	gen      int // crashes so far; handles of an older generation are dead
	capacity int64
	used     int64
	locks    map[string]bool
}

// node is a file or directory. It carries what is needed to go back to its durable
// state: for a file how to undo each change since the last Sync, newest last; for a
// directory its names as of the last SyncDir and the changes since, oldest first.
type node struct {
	dir     bool
	mode    fs.FileMode
	modTime time.Time

	data []byte
	undo []fileChange
	gone bool // removed; what an open handle writes is no longer counted in used

	entries map[string]*node
	durable map[string]*node
	pending []dirChange
}

// fileChange is a write of n bytes at off, or a truncation. old are the bytes that it
// overwrote or cut off.
type fileChange struct {
	off      int64
	n        int
	old      []byte
	oldSize  int
	truncate bool
}

// dirChange is a set of names that change at once: a nil node is a removal.
type dirChange map[string]*node

// memCapacity is what Free reports of a file system without SetCapacity.
const memCapacity = 1 << 40

// NewMem returns an empty file system. The seed decides what a torn crash keeps.
func NewMem(seed uint64) *Mem {
	return &Mem{root: newDir(), rnd: rand.New(rand.NewPCG(seed, seed)), capacity: memCapacity, locks: map[string]bool{}}
}

func newDir() *node {
	return &node{dir: true, mode: fs.ModeDir | 0o755, modTime: time.Now(), entries: map[string]*node{}, durable: map[string]*node{}}
}

// SetCapacity sets the size of the file system in bytes. A write beyond it puts what
// still fits and fails with ENOSPC.
func (m *Mem) SetCapacity(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = total
}

// find returns the node, or nil.
func (m *Mem) find(name string) *node {
	n := m.root
	for _, part := range split(name) {
		if n = n.entries[part]; n == nil {
			return nil
		}
	}
	return n
}

func split(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// parent returns the directory that holds name, and its last part.
func (m *Mem) parent(op, name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", pathErr(op, name, fs.ErrInvalid)
	}
	d := m.root
	for _, part := range parts[:len(parts)-1] {
		d = d.entries[part]
		if d == nil {
			return nil, "", pathErr(op, name, fs.ErrNotExist)
		}
		if !d.dir {
			return nil, "", pathErr(op, name, syscall.ENOTDIR)
		}
	}
	return d, parts[len(parts)-1], nil
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// change applies a change of names and notes it for SyncDir and Crash.
func (d *node) change(c dirChange) {
	for name, n := range c {
		if n == nil {
			delete(d.entries, name)
		} else {
			d.entries[name] = n
		}
	}
	d.pending = append(d.pending, c)
	d.modTime = time.Now()
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open("open", name, false, false) }

// Create implements FS.
func (m *Mem) Create(name string) (File, error) { return m.open("create", name, true, true) }

// OpenAppend implements FS.
func (m *Mem) OpenAppend(name string) (File, error) { return m.open("open", name, true, false) }

func (m *Mem) open(op, name string, write, trunc bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(op, name)
	if err != nil {
		return nil, err
	}
	n := d.entries[base]
	switch {
	case n == nil && !write:
		return nil, pathErr(op, name, fs.ErrNotExist)
	case n == nil:
		n = &node{mode: 0o644, modTime: time.Now()}
		d.change(dirChange{base: n})
	case n.dir:
		return nil, pathErr(op, name, syscall.EISDIR)
	case trunc:
		m.truncate(n, 0)
	}
	return &memFile{fs: m, n: n, name: name, gen: m.gen, write: write}, nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d := m.find(dir)
	if d == nil {
		return nil, pathErr("readdir", dir, fs.ErrNotExist)
	}
	if !d.dir {
		return nil, pathErr("readdir", dir, syscall.ENOTDIR)
	}
	var out []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		out = append(out, fs.FileInfoToDirEntry(d.entries[name].info(name)))
	}
	return out, nil
}

// Mkdir implements FS.
func (m *Mem) Mkdir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, part := range split(dir) {
		next := d.entries[part]
		if next == nil {
			next = newDir()
			d.change(dirChange{part: next})
		}
		if !next.dir {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		d = next
	}
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := d.entries[base]
	if n == nil {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	d.change(dirChange{base: nil})
	m.uncount(n)
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("remove", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if n := d.entries[base]; n != nil {
		m.uncount(n)
		n.clear()
		d.change(dirChange{base: nil})
	}
	return nil
}

// clear removes all below a directory, as changes that a crash may undo.
func (n *node) clear() {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		n.entries[name].clear()
		n.change(dirChange{name: nil})
	}
}

// uncount takes a subtree that is being removed out of used.
func (m *Mem) uncount(n *node) {
	m.used -= int64(len(n.data))
	n.gone = true
	for _, c := range n.entries {
		m.uncount(c)
	}
}

func (m *Mem) count(n *node, bytes int64) {
	if !n.gone {
		m.used += bytes
	}
}

// bytes counts the file bytes of a subtree.
func (n *node) bytes() int64 {
	total := int64(len(n.data))
	for _, c := range n.entries {
		total += c.bytes()
	}
	return total
}

// Rename implements FS. Inside one directory it survives a crash whole or not at
// all; between two, each directory's change is made durable by itself.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n := from.entries[oldBase]
	if n == nil {
		return pathErr("rename", oldName, fs.ErrNotExist)
	}
	if from == to && oldBase == newBase {
		return nil
	}
	if old := to.entries[newBase]; old != nil {
		if old.dir != n.dir || len(old.entries) > 0 {
			return pathErr("rename", newName, fs.ErrExist)
		}
		m.uncount(old)
	}
	if from == to {
		from.change(dirChange{oldBase: nil, newBase: n})
		return nil
	}
	to.change(dirChange{newBase: n})
	from.change(dirChange{oldBase: nil})
	return nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(name)
	if n == nil {
		return nil, pathErr("stat", name, fs.ErrNotExist)
	}
	return n.info(filepath.Base(name)), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.find(dir)
	if d == nil {
		return pathErr("syncdir", dir, fs.ErrNotExist)
	}
	if !d.dir {
		return pathErr("syncdir", dir, syscall.ENOTDIR)
	}
	d.durable, d.pending = maps.Clone(d.entries), nil
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.open("lock", name, true, false)
	if err != nil {
		return nil, err
	}
	key := strings.Join(split(name), "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[key] {
		return nil, fmt.Errorf("lock %s: %w by process %d", name, ErrLocked, os.Getpid())
	}
	n := f.(*memFile).n
	m.truncate(n, 0)
	if _, err := m.writeAt(n, fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return nil, pathErr("lock", name, err)
	}
	m.locks[key] = true
	return &memLock{fs: m, key: key, gen: m.gen}, nil
}

type memLock struct {
	fs  *Mem
	key string
	gen int
}

// Close gives the lock up.
func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.gen == l.fs.gen {
		delete(l.fs.locks, l.key)
	}
	return nil
}

// Free implements FS.
func (m *Mem) Free(dir string) (free, total int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.find(dir) == nil {
		return 0, 0, pathErr("statfs", dir, fs.ErrNotExist)
	}
	return max(m.capacity-m.used, 0), m.capacity, nil
}

// writeAt and truncate change a file; m.mu is held.
func (m *Mem) writeAt(n *node, p []byte, off int64) (int, error) {
	var err error
	if grow := off + int64(len(p)) - int64(len(n.data)); grow > 0 && m.used+grow > m.capacity {
		err = syscall.ENOSPC
		p = p[:max(0, int64(len(p))-(m.used+grow-m.capacity))]
	}
	if len(p) == 0 {
		return 0, err
	}
	size := len(n.data)
	end := int(off) + len(p)
	var old []byte
	if int(off) < size {
		old = slices.Clone(n.data[off:min(end, size)])
	}
	n.undo = append(n.undo, fileChange{off: off, n: len(p), old: old, oldSize: size})
	if end > size {
		n.data = growTo(n.data, end)
		m.count(n, int64(end-size))
	}
	copy(n.data[off:], p)
	n.modTime = time.Now()
	return len(p), err
}

// growTo lengthens b with zeros.
func growTo(b []byte, size int) []byte {
	old := len(b)
	b = slices.Grow(b, size-old)[:size]
	clear(b[old:])
	return b
}

func (m *Mem) truncate(n *node, size int64) {
	old := len(n.data)
	c := fileChange{off: size, oldSize: old, truncate: true}
	switch {
	case int(size) < old:
		c.old = slices.Clone(n.data[size:])
		n.data = n.data[:size]
	case int(size) > old:
		n.data = growTo(n.data, int(size))
	default:
		return
	}
	m.count(n, size-int64(old))
	n.undo = append(n.undo, c)
	n.modTime = time.Now()
}

// memFile is a handle.
type memFile struct {
	fs     *Mem
	n      *node
	name   string
	gen    int
	write  bool
	closed bool // guarded by fs.mu
}

// alive returns why the handle can't be used; fs.mu is held.
func (f *memFile) alive(op string, write bool) error {
	switch {
	case f.closed:
		return pathErr(op, f.name, fs.ErrClosed)
	case f.gen != f.fs.gen:
		return pathErr(op, f.name, errCrashed)
	case write && !f.write:
		return pathErr(op, f.name, fs.ErrPermission)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return pathErr("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.alive("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, pathErr("write", f.name, fs.ErrInvalid)
	}
	return f.put(p, off)
}

func (f *memFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.put(p, int64(len(f.n.data)))
}

// Writev appends all buffers as one write, which a torn crash cuts at any byte.
func (f *memFile) Writev(bufs [][]byte) (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.put(slices.Concat(bufs...), int64(len(f.n.data)))
	return int64(n), err
}

func (f *memFile) put(p []byte, off int64) (int, error) {
	if err := f.alive("write", true); err != nil {
		return 0, err
	}
	n, err := f.fs.writeAt(f.n, p, off)
	if err != nil {
		err = pathErr("write", f.name, err)
	}
	return n, err
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.alive("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", f.name, fs.ErrInvalid)
	}
	if size-int64(len(f.n.data)) > f.fs.capacity-f.fs.used {
		return pathErr("truncate", f.name, syscall.ENOSPC)
	}
	f.fs.truncate(f.n, size)
	return nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.alive("sync", false); err != nil {
		return err
	}
	f.n.undo = nil
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.alive("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

// info is a snapshot of a node for Stat and ReadDir.
func (n *node) info(name string) fs.FileInfo {
	return &memInfo{name: name, size: int64(len(n.data)), mode: n.mode, modTime: n.modTime}
}

type memInfo struct {
	name    string
	size    int64
	mode    fs.FileMode
	modTime time.Time
}

func (i *memInfo) Name() string       { return i.name }
func (i *memInfo) Size() int64        { return i.size }
func (i *memInfo) Mode() fs.FileMode  { return i.mode }
func (i *memInfo) ModTime() time.Time { return i.modTime }
func (i *memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i *memInfo) Sys() any           { return nil }
