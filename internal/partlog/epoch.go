package partlog

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"milena/internal/disk"
)

// epochCache maps leader epochs to their first offsets. Both rise strictly. It
// is fed by batches only (spec D1). Writers hold the log's lock; readers see
// an immutable list.
type epochCache struct {
	list  atomic.Pointer[epochList]
	dirty atomic.Bool // the file is behind the list
	file  sync.Mutex  // held while the file is written
}

// epochList is immutable. When the log start moves past the beginning of the
// oldest epochs, entries has only the last of those, as beginning at the log
// start; raw keeps them all as they were until what follows them is durable.
// So recovery can tell an epoch whose batches were removed from one whose
// batches a crash lost.
type epochList struct {
	raw, entries []EpochEntry
	floor        int64 // the log start
}

func newEpochCache(raw []EpochEntry) *epochCache {
	c := &epochCache{}
	c.list.Store(newEpochList(raw, 0))
	return c
}

func newEpochList(raw []EpochEntry, floor int64) *epochList {
	l := &epochList{raw: raw, entries: raw, floor: floor}
	if h := l.hidden(floor); h > 0 || (len(raw) > 0 && raw[0].Start < floor) {
		l.entries = append([]EpochEntry(nil), raw[h:]...)
		l.entries[0].Start = max(l.entries[0].Start, floor)
	}
	return l
}

// hidden is how many raw entries end at or below off.
func (l *epochList) hidden(off int64) int {
	return max(sort.Search(len(l.raw), func(i int) bool { return l.raw[i].Start > off })-1, 0)
}

func (c *epochCache) entries() []EpochEntry { return c.list.Load().entries }

// set replaces the raw entries.
func (c *epochCache) set(raw []EpochEntry, floor int64) {
	c.list.Store(newEpochList(raw, floor))
	c.dirty.Store(true)
}

// clear drops all entries; the log starts at floor.
func (c *epochCache) clear(floor int64) { c.set(nil, floor) }

// latest is the highest epoch, -1 if there is none.
func (c *epochCache) latest() int32 {
	e := c.entries()
	if len(e) == 0 {
		return -1
	}
	return e[len(e)-1].Epoch
}

// assign notes that a batch of epoch begins at start. Lower epochs change nothing.
func (c *epochCache) assign(epoch int32, start int64) {
	l := c.list.Load()
	if epoch < 0 || epoch <= c.latest() {
		return
	}
	n := len(l.raw)
	for n > 0 && l.raw[n-1].Start >= start { // an entry that no record is left of
		n--
	}
	raw := append(make([]EpochEntry, 0, n+1), l.raw[:n]...)
	c.set(append(raw, EpochEntry{epoch, start}), l.floor)
}

// truncateEnd drops entries that start at or above off (D1: even if nothing else is cut).
func (c *epochCache) truncateEnd(off int64) {
	l := c.list.Load()
	n := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Start >= off })
	if n == len(l.entries) {
		return
	}
	if n > 0 {
		n += len(l.raw) - len(l.entries)
	}
	c.set(append([]EpochEntry(nil), l.raw[:n]...), min(l.floor, off))
}

// truncateStart lets the log start at off.
func (c *epochCache) truncateStart(off int64) {
	l := c.list.Load()
	if l.hidden(off) > 0 {
		c.dirty.Store(true)
	}
	c.list.Store(newEpochList(l.raw, off))
}

// forget drops raw entries that are hidden by one that is durable: by a batch
// below off.
func (c *epochCache) forget(off int64) {
	l := c.list.Load()
	if n := l.hidden(min(l.floor, off-1)); n > 0 {
		c.list.CompareAndSwap(l, newEpochList(append([]EpochEntry(nil), l.raw[n:]...), l.floor))
	}
}

// at is the epoch of the batch that holds off, -1 if unknown.
func (c *epochCache) at(off int64) int32 {
	e := c.entries()
	n := sort.Search(len(e), func(i int) bool { return e[i].Start > off })
	if n == 0 {
		return -1
	}
	return e[n-1].Epoch
}

// end is the answer to a query for the end of epoch; see Log.EpochEnd.
func (c *epochCache) end(epoch int32, logEnd int64) (int32, int64) {
	if epoch < 0 {
		return -1, -1
	}
	e := c.entries()
	if len(e) == 0 {
		return -1, logEnd
	}
	n := sort.Search(len(e), func(i int) bool { return e[i].Epoch > epoch })
	switch n {
	case len(e):
		return e[n-1].Epoch, logEnd
	case 0:
		return epoch, e[0].Start
	default:
		return e[n-1].Epoch, e[n].Start
	}
}

// The leader-epoch-checkpoint file, Kafka's text format:
//
//	0                 version
//	2                 number of entries
//	0 0               epoch, first offset
//	3 1042

// write brings the file in line with the cache. Batches below durable are on disk.
func (c *epochCache) write(fsys disk.FS, path string, durable int64) error {
	c.file.Lock()
	defer c.file.Unlock()
	if !c.dirty.Swap(false) {
		return nil
	}
	c.forget(durable)
	e := c.list.Load().raw
	var sb strings.Builder
	fmt.Fprintf(&sb, "0\n%d\n", len(e))
	for _, x := range e {
		fmt.Fprintf(&sb, "%d %d\n", x.Epoch, x.Start)
	}
	if err := disk.WriteFileAtomic(fsys, path, []byte(sb.String())); err != nil {
		c.dirty.Store(true)
		return err
	}
	return nil
}

// parseEpochs reads a leader-epoch-checkpoint. Damage is an error that wraps
// ErrCorrupt, another version one that wraps ErrNewerFormat.
func parseEpochs(data []byte) ([]EpochEntry, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	version, err := strconv.Atoi(lines[0])
	if err != nil {
		return nil, fmt.Errorf("%w: first line of %s is %.20q", ErrCorrupt, epochFile, lines[0])
	}
	if version != 0 {
		return nil, fmt.Errorf("%w: %s has version %d, this release reads 0", ErrNewerFormat, epochFile, version)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: %s has no count", ErrCorrupt, epochFile)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: %s says %.20q entries, has %d", ErrCorrupt, epochFile, lines[1], len(lines)-2)
	}
	out := make([]EpochEntry, 0, n)
	for i, line := range lines[2:] {
		a, b, _ := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(a, 10, 32)
		start, err2 := strconv.ParseInt(b, 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%w: %s line %d is %.40q", ErrCorrupt, epochFile, i+3, line)
		}
		if i > 0 && (int32(epoch) <= out[i-1].Epoch || start <= out[i-1].Start) {
			return nil, fmt.Errorf("%w: %s line %d does not rise", ErrCorrupt, epochFile, i+3)
		}
		out = append(out, EpochEntry{int32(epoch), start})
	}
	return out, nil
}
