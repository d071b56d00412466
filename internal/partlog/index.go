package partlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"milena/internal/disk"
	"milena/internal/record"
)

// The sparse indexes of a segment, in Kafka's layout, big-endian:
//
//	.index      entry: int32 offset - base | int32 byte position        (8 bytes)
//	.timeindex  entry: int64 timestamp ms  | int32 offset - base        (12 bytes)
//
// An offset entry names the last offset of a batch and where that batch
// begins. A time entry says: up to and including offset, no record is newer
// than timestamp. Both rise strictly (time entries: timestamps rise).
//
// Indexes are hints: they are written behind the log without a sync of their
// own each time, and recovery checks and rebuilds them.

type indexKind int8

const (
	offsetIndex indexKind = 8 // the value is the width of an entry
	timeIndex   indexKind = 12
)

// indexEntry is (absolute offset, position) or (timestamp, absolute offset).
type indexEntry struct{ key, val int64 }

// Entries kept in memory at the end of an index that grows: memKeep to
// 2*memKeep (at most 64 KiB).
const memKeep = 2048

// index is one sparse index. Writers are serialised by the log's lock; lookups
// run beside them on the published state.
type index struct {
	kind  indexKind
	base  int64
	file  *lazyFile
	state atomic.Pointer[indexState]

	// Owned by the writer.
	written int        // entries that are in the file
	synced  int        // entries at the last sync
	dirty   bool       // the file was changed since its last sync
	last    indexEntry // valid if hasLast
	hasLast bool
}

// indexState is immutable: entries below disk are in the file, the rest in mem.
type indexState struct {
	disk int
	mem  []indexEntry // appended to in place beyond len, which readers don't see
}

func (s *indexState) count() int { return s.disk + len(s.mem) }

// newIndex opens the index in name, whose file holds size bytes. A partial
// last entry is left out.
func newIndex(fsys disk.FS, name string, kind indexKind, base, size int64) *index {
	n := int(min(size/int64(kind), math.MaxInt32))
	x := &index{kind: kind, base: base, file: newLazyFile(fsys, name), written: n, synced: n}
	x.state.Store(&indexState{disk: n})
	return x
}

func (x *index) count() int { return x.state.Load().count() }

// full says whether another entry would pass maxBytes.
func (x *index) full(maxBytes int64) bool {
	limit := maxBytes / int64(x.kind)
	if x.kind == timeIndex {
		limit-- // one entry is kept for the one written when the segment is sealed
	}
	return int64(x.count()) >= limit
}

func (x *index) encode(b []byte, e indexEntry) {
	if x.kind == offsetIndex {
		binary.BigEndian.PutUint32(b, uint32(e.key-x.base))
		binary.BigEndian.PutUint32(b[4:], uint32(e.val))
		return
	}
	binary.BigEndian.PutUint64(b, uint64(e.key))
	binary.BigEndian.PutUint32(b[8:], uint32(e.val-x.base))
}

func (x *index) decode(b []byte) indexEntry {
	if x.kind == offsetIndex {
		return indexEntry{x.base + int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))}
	}
	return indexEntry{int64(binary.BigEndian.Uint64(b)), x.base + int64(binary.BigEndian.Uint32(b[8:]))}
}

// append adds an entry in memory; flush writes it. Entries that don't rise are ignored.
func (x *index) append(e indexEntry) error {
	last, ok, err := x.lastEntry()
	if err != nil {
		return err
	}
	if ok && !x.rises(last, e) {
		return nil
	}
	st := x.state.Load()
	if len(st.mem) >= 2*memKeep && st.disk+memKeep <= x.written {
		st = &indexState{disk: st.disk + memKeep, mem: append([]indexEntry(nil), st.mem[memKeep:]...)}
	}
	x.state.Store(&indexState{disk: st.disk, mem: append(st.mem, e)})
	x.last, x.hasLast = e, true
	return nil
}

// pending is the number of entries that are not in the file.
func (x *index) pending() int { return x.count() - x.written }

// rises says whether b may follow a. Two timestamps may have the same offset.
func (x *index) rises(a, b indexEntry) bool {
	return b.key > a.key && (b.val > a.val || x.kind == timeIndex && b.val == a.val)
}

// flush writes pending entries to the file.
func (x *index) flush() error {
	st := x.state.Load()
	if st.count() == x.written {
		return nil
	}
	pending := st.mem[x.written-st.disk:]
	b := make([]byte, len(pending)*int(x.kind))
	for i, e := range pending {
		x.encode(b[i*int(x.kind):], e)
	}
	f, err := x.file.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // not the last reference
	if _, err := f.WriteAt(b, int64(x.written)*int64(x.kind)); err != nil {
		return err
	}
	x.written, x.dirty = st.count(), true
	return nil
}

// sync writes pending entries and makes all durable.
func (x *index) sync() error {
	if err := x.flush(); err != nil {
		return err
	}
	if !x.dirty {
		x.synced = x.written
		return nil
	}
	f, err := x.file.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // as above
	if err := f.Sync(); err != nil {
		return synced(err)
	}
	x.dirty, x.synced = false, x.written
	return nil
}

// truncate keeps the first n entries.
func (x *index) truncate(n int) error {
	st := x.state.Load()
	if n >= st.count() {
		return nil
	}
	ns := &indexState{disk: min(st.disk, n)}
	if n > st.disk {
		ns.mem = append([]indexEntry(nil), st.mem[:n-st.disk]...)
	}
	x.state.Store(ns)
	x.hasLast = false
	if n >= x.written {
		return nil
	}
	x.written, x.synced = n, min(x.synced, n)
	return x.cutFile(int64(n) * int64(x.kind))
}

// cutFile sets the file's length, so that a partial entry goes too.
func (x *index) cutFile(size int64) error {
	f, err := x.file.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // as above
	x.dirty = true
	return f.Truncate(size)
}

// entry reads entry i of the writer's state.
func (x *index) entry(i int) (indexEntry, error) { return x.entryIn(x.state.Load(), i) }

func (x *index) entryIn(st *indexState, i int) (indexEntry, error) {
	if i >= st.disk {
		return st.mem[i-st.disk], nil
	}
	f, err := x.file.acquire()
	if err != nil {
		return indexEntry{}, err
	}
	defer func() { _ = f.Release() }() // as above
	return x.read1(f, i)
}

func (x *index) read1(f *record.SharedFile, i int) (indexEntry, error) {
	var b [timeIndex]byte
	p := b[:x.kind]
	if err := readFull(f, p, int64(i)*int64(x.kind)); err != nil {
		return indexEntry{}, fmt.Errorf("read %s entry %d: %w", x.file.path(), i, err)
	}
	return x.decode(p), nil
}

// lastEntry is the last entry, for the writer.
func (x *index) lastEntry() (indexEntry, bool, error) {
	if x.hasLast {
		return x.last, true, nil
	}
	n := x.count()
	if n == 0 {
		return indexEntry{}, false, nil
	}
	e, err := x.entry(n - 1)
	if err != nil {
		return e, false, err
	}
	x.last, x.hasLast = e, true
	return e, true, nil
}

// searchBlock is how many entries a lookup in a file reads at once in the end;
// they fit a window.
const searchBlock = 256

// floor is the last entry with a key of at most target. ok is false if there is none.
func (x *index) floor(target int64) (e indexEntry, ok bool, err error) {
	return x.search(func(e indexEntry) bool { return e.key > target })
}

// search is the last entry before the first one for which above is true.
func (x *index) search(above func(indexEntry) bool) (e indexEntry, ok bool, err error) {
	st := x.state.Load()
	if len(st.mem) > 0 && !above(st.mem[0]) {
		i := sort.Search(len(st.mem), func(i int) bool { return above(st.mem[i]) })
		return st.mem[i-1], true, nil
	}
	if st.disk == 0 {
		return indexEntry{}, false, nil
	}
	f, err := x.file.acquire()
	if err != nil {
		return indexEntry{}, false, err
	}
	defer func() { _ = f.Release() }() // as above
	lo, hi := 0, st.disk               // the first entry that is above lies in [lo, hi]
	for hi-lo > searchBlock {
		mid := lo + (hi-lo)/2
		e, err := x.read1(f, mid)
		if err != nil {
			return indexEntry{}, false, err
		}
		if above(e) {
			hi = mid
		} else {
			lo = mid
		}
	}
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	block := (*buf)[:(hi-lo)*int(x.kind)]
	if err := readFull(f, block, int64(lo)*int64(x.kind)); err != nil {
		return indexEntry{}, false, fmt.Errorf("read %s: %w", x.file.path(), err)
	}
	n := sort.Search(hi-lo, func(i int) bool { return above(x.decode(block[i*int(x.kind):])) })
	if n == 0 {
		return indexEntry{}, false, nil
	}
	return x.decode(block[(n-1)*int(x.kind):]), true, nil
}

// countWhile is the number of leading entries for which ok holds, which must
// hold for a prefix. For the writer.
func (x *index) countWhile(ok func(indexEntry) bool) (int, error) {
	lo, hi := 0, x.count()
	for lo < hi {
		mid := lo + (hi-lo)/2
		e, err := x.entry(mid)
		if err != nil {
			return 0, err
		}
		if ok(e) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// rising is the number of leading entries that rise strictly and for which ok
// holds, for recovery. It reads the whole file.
func (x *index) rising(ok func(indexEntry) bool) (int, error) {
	n := x.count()
	if n == 0 {
		return 0, nil
	}
	f, err := x.file.acquire()
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Release() }() // as above
	const chunk = 4096
	buf := make([]byte, chunk*int(x.kind))
	var prev indexEntry
	for i := 0; i < n; i += chunk {
		p := buf[:min(chunk, n-i)*int(x.kind)]
		if err := readFull(f, p, int64(i)*int64(x.kind)); err != nil {
			return 0, fmt.Errorf("read %s: %w", x.file.path(), err)
		}
		for j := 0; j*int(x.kind) < len(p); j++ {
			e := x.decode(p[j*int(x.kind):])
			if (i+j > 0 && !x.rises(prev, e)) || !ok(e) {
				return i + j, nil
			}
			prev = e
		}
	}
	return n, nil
}
