package partlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/disk"
	"milena/internal/record"
)

// segment is a run of the log in one .log file with its indexes. All segments
// but the last are sealed: their bytes don't change any more.
type segment struct {
	fs   disk.FS
	dir  string
	base int64

	log   *lazyFile
	index *index
	times *index
	size  atomic.Int64 // bytes of whole batches in the .log file

	// txns are the aborted transactions that end here; nil: not read yet.
	txnMu      sync.Mutex
	txns       []txnEntry
	txnsRead   bool
	txnWritten int  // entries in the file
	txnExtra   bool // the file has bytes after txnWritten entries

	// maxTime is what largest returns; nil: not read yet. The writer raises it.
	maxTime atomic.Pointer[indexEntry]

	// Owned by the log's writer.
	created    time.Time // for segment.ms while firstTime is unknown
	firstTime  int64     // max timestamp of the first batch, -1: not read yet or none
	jitter     time.Duration
	sinceIndex int64 // bytes appended since the last index entry
	dirty      bool  // bytes since the last sync
	deletedAt  time.Time
}

// segmentFiles are the names and sizes of a segment's files at open.
type segmentFiles struct {
	base                      int64
	suffix                    string // "", .cleaned or .swap
	log, index, time          int64  // sizes
	hasIndex, hasTime, hasTxn bool
}

func segmentPath(dir string, base int64, kind, suffix string) string {
	return filepath.Join(dir, offsetName(base)+kind+suffix)
}

// newSegment makes the view on a segment whose files are described by f.
func newSegment(fsys disk.FS, dir string, f segmentFiles) *segment {
	s := &segment{
		fs:        fsys,
		dir:       dir,
		base:      f.base,
		log:       newLazyFile(fsys, segmentPath(dir, f.base, logSuffix, f.suffix)),
		index:     newIndex(fsys, segmentPath(dir, f.base, indexSuffix, f.suffix), offsetIndex, f.base, f.index),
		times:     newIndex(fsys, segmentPath(dir, f.base, timeSuffix, f.suffix), timeIndex, f.base, f.time),
		created:   time.Now(),
		firstTime: -1,
		txnsRead:  !f.hasTxn,
	}
	s.size.Store(f.log)
	if f.log == 0 {
		s.maxTime.Store(&indexEntry{-1, f.base})
	}
	return s
}

// createSegment makes the files of a new segment. The caller syncs the directory.
func createSegment(fsys disk.FS, dir string, base int64, suffix string) (*segment, error) {
	s := newSegment(fsys, dir, segmentFiles{base: base, suffix: suffix})
	if err := removeIfExists(fsys, s.txnPath(suffix)); err != nil {
		return nil, err
	}
	for _, f := range []*lazyFile{s.log, s.index.file, s.times.file} {
		h, err := f.acquire()
		if err != nil {
			return nil, err
		}
		err = h.Truncate(0)
		_ = h.Release() // not the last reference
		if err != nil {
			return nil, err
		}
		f.drop() // most segments of most logs are made and left alone
	}
	s.dirty = true
	return s, nil
}

func (s *segment) txnPath(suffix string) string {
	return segmentPath(s.dir, s.base, txnSuffix, suffix)
}

// maxRelative is the largest offset less base that the indexes can hold.
const maxRelative = 1<<31 - 1

// fits says whether offset can stand in the segment's indexes.
func (s *segment) fits(offset int64) bool { return offset-s.base <= maxRelative }

// ready reads what taking in a batch needs, so that nothing has to be opened
// once the batch is written.
func (s *segment) ready() error {
	if _, err := s.largest(); err != nil {
		return err
	}
	if _, _, err := s.times.lastEntry(); err != nil {
		return err
	}
	_, _, err := s.index.lastEntry()
	return err
}

// noteTime keeps the largest timestamp. off is the batch's last offset.
func (s *segment) noteTime(ts, off int64) error {
	m, err := s.largest()
	if err != nil {
		return err
	}
	if ts > m.key {
		s.maxTime.Store(&indexEntry{ts, off})
	}
	return nil
}

// indexBatch notes a batch of size bytes at pos in the sparse indexes if
// interval bytes went by. Only the batch's header is looked at.
func (s *segment) indexBatch(b record.Batch, pos, size, interval int64) error {
	if s.sinceIndex > interval {
		if err := s.index.append(indexEntry{b.LastOffset(), pos}); err != nil {
			return err
		}
		if err := s.seal(); err != nil {
			return err
		}
		if s.index.pending() >= memKeep {
			// Without space or files they stay in memory for now.
			if err := s.flushIndexes(); err != nil && !disk.Full(err) && !disk.OutOfFiles(err) {
				return err
			}
		}
		s.sinceIndex = 0
	}
	s.sinceIndex += size
	return nil
}

// seal adds a time entry for all so far, as Kafka does with each offset entry
// and when a segment ends or is closed.
func (s *segment) seal() error {
	m, err := s.largest()
	switch {
	case errors.Is(err, ErrCorrupt):
		return nil // who reads the place is told; what comes behind must still be taken
	case err != nil || m.key < 0:
		return err
	}
	return s.times.append(m)
}

// flushIndexes writes what the indexes hold in memory; times go first, so that
// for every offset entry in the file the time entry is there too.
func (s *segment) flushIndexes() error {
	if err := s.times.flush(); err != nil {
		return err
	}
	return s.index.flush()
}

// largest is the largest timestamp in the segment and an offset at or after
// the record that has it; -1 if there is none.
func (s *segment) largest() (indexEntry, error) {
	if m := s.maxTime.Load(); m != nil {
		return *m, nil
	}
	m := indexEntry{-1, s.base}
	if st := s.times.state.Load(); st.count() > 0 {
		e, err := s.times.entryIn(st, st.count()-1)
		if err != nil {
			return m, err
		}
		m = e
	} else {
		err := s.walkHeaders(0, s.size.Load(), func(h record.Batch, _ int64) bool {
			if h.MaxTimestamp() > m.key {
				m = indexEntry{h.MaxTimestamp(), h.LastOffset()}
			}
			return true
		})
		if err != nil {
			return m, err
		}
	}
	s.maxTime.CompareAndSwap(nil, &m)
	return *s.maxTime.Load(), nil
}

// syncLog makes the .log file durable.
func (s *segment) syncLog() error {
	f, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // not the last reference
	return synced(f.Sync())
}

// syncIndexes makes the index files durable.
func (s *segment) syncIndexes() error {
	if err := s.times.sync(); err != nil {
		return err
	}
	if err := s.index.sync(); err != nil {
		return err
	}
	return s.syncTxns()
}

// indexSyncEvery is how many index entries (of 4 KiB of log each) may be lost
// in a crash after the log itself was synced; recovery reads that much more.
const indexSyncEvery = 4096

// syncTxns brings the transaction index file in line with the list.
func (s *segment) syncTxns() (err error) {
	s.txnMu.Lock()
	defer s.txnMu.Unlock()
	if !s.txnsRead || (s.txnWritten == len(s.txns) && !s.txnExtra) {
		return nil
	}
	f, err := s.fs.OpenAppend(s.txnPath(""))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if s.txnExtra {
		if err := f.Truncate(int64(s.txnWritten) * txnWidth); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(encodeTxns(s.txns[s.txnWritten:]), int64(s.txnWritten)*txnWidth); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return synced(err)
	}
	if s.txnWritten == 0 { // the name may be new
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
	}
	s.txnWritten, s.txnExtra = len(s.txns), false
	return nil
}

// aborted lists the aborted transactions that end in the segment. The slice is
// never changed in place.
func (s *segment) aborted() ([]txnEntry, error) {
	s.txnMu.Lock()
	defer s.txnMu.Unlock()
	return s.abortedLocked()
}

func (s *segment) abortedLocked() ([]txnEntry, error) {
	if s.txnsRead {
		return s.txns, nil
	}
	list, err := readTxnIndex(s.fs, s.txnPath(""))
	if err != nil {
		return list, err
	}
	s.txns, s.txnsRead, s.txnWritten = list, true, len(list)
	return list, nil
}

func (s *segment) addAborted(e txnEntry) error {
	s.txnMu.Lock()
	defer s.txnMu.Unlock()
	list, err := s.abortedLocked()
	if err != nil {
		return err
	}
	list = append(list, e)
	s.txns = list
	return nil
}

// cutAborted drops entries whose marker is at or above off. Damage in the file
// drops what comes after it.
func (s *segment) cutAborted(off int64) error {
	s.txnMu.Lock()
	defer s.txnMu.Unlock()
	list, err := s.abortedLocked()
	damaged := errors.Is(err, ErrCorrupt)
	if err != nil && !damaged {
		return err
	}
	if damaged {
		s.txnWritten, s.txnExtra = len(list), true
	}
	n := 0
	for n < len(list) && list[n].last < off {
		n++
	}
	if n < s.txnWritten {
		s.txnWritten, s.txnExtra = n, true
	}
	s.txns, s.txnsRead = list[:n:n], true
	return nil
}

// headerWindow is how much a header walk reads at once.
const headerWindow = 4096

var windows = sync.Pool{New: func() any { b := make([]byte, headerWindow); return &b }}

// walkHeaders calls fn with the header of each batch in [pos, end) until it
// returns false. Only the header's bytes are valid, and only during the call. A
// header that can't be is an error that wraps ErrCorrupt.
func (s *segment) walkHeaders(pos, end int64, fn func(h record.Batch, pos int64) bool) error {
	if pos >= end {
		return nil
	}
	f, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // not the last reference
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	var start, n int64 // the window holds [start, start+n)
	for pos < end {
		if pos+record.HeaderSize > end {
			return s.corrupt(pos, "a header does not fit before byte %d", end)
		}
		if pos < start || pos+record.HeaderSize > start+n {
			start, n = pos, min(int64(len(*buf)), end-pos)
			if err := readFull(f, (*buf)[:n], start); err != nil {
				return fmt.Errorf("read %s at %d: %w", s.log.path(), start, err)
			}
		}
		h := record.Batch((*buf)[pos-start : pos-start+record.HeaderSize])
		if err := s.plausible(h, pos, end); err != nil {
			return err
		}
		if !fn(h, pos) {
			return nil
		}
		pos += h.Len()
	}
	return nil
}

// plausible checks what a header alone can tell.
func (s *segment) plausible(h record.Batch, pos, end int64) error {
	switch {
	case h.Magic() != record.Magic:
		return s.corrupt(pos, "magic %d", h.Magic())
	case h.Len() < record.HeaderSize || h.Len() > end-pos:
		return s.corrupt(pos, "batch of %d bytes, %d are left", h.Len(), end-pos)
	case h.BaseOffset() < s.base || h.LastOffsetDelta() < 0 || !s.fits(h.LastOffset()):
		return s.corrupt(pos, "offsets %d to %d in the segment of base %d", h.BaseOffset(), h.LastOffset(), s.base)
	}
	return nil
}

func (s *segment) corrupt(pos int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d: %s", ErrCorrupt, s.log.path(), pos, fmt.Sprintf(format, args...))
}

// place is where a batch lies.
type place struct {
	pos, size  int64
	base, last int64
}

// locate finds the first batch below end whose last offset is at least offset.
// ok is false if there is none.
func (s *segment) locate(offset, end int64) (p place, ok bool, err error) {
	from, _, err := s.index.floor(offset)
	if err != nil {
		return place{}, false, err
	}
	p, ok, err = s.scan(offset, from.val, end)
	if errors.Is(err, ErrCorrupt) && from.val > 0 {
		// The index may be what is damaged: look again without it.
		return s.scan(offset, 0, end)
	}
	return p, ok, err
}

func (s *segment) scan(offset, from, end int64) (p place, ok bool, err error) {
	if from >= end {
		from = 0 // entries of bytes that this reader doesn't see yet, or of a damaged index
	}
	prev := int64(-1)
	var bad error
	err = s.walkHeaders(from, end, func(h record.Batch, pos int64) bool {
		if h.BaseOffset() <= prev {
			bad = s.corrupt(pos, "offset %d after %d", h.BaseOffset(), prev)
			return false
		}
		prev = h.LastOffset()
		if prev < offset {
			return true
		}
		p, ok = place{pos, h.Len(), h.BaseOffset(), prev}, true
		return false
	})
	if err == nil {
		err = bad
	}
	return p, ok, err
}

// readBatch reads a whole batch.
func (s *segment) readBatch(p place) (record.Batch, error) {
	f, err := s.log.acquire()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Release() }() // not the last reference
	b := make([]byte, p.size)
	if err := readFull(f, b, p.pos); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", s.log.path(), p.pos, err)
	}
	batch := record.Batch(b)
	if err := batch.CheckCRC(); err != nil {
		return nil, fmt.Errorf("%w: %s at byte %d: %w", ErrCorrupt, s.log.path(), p.pos, err)
	}
	return batch, nil
}

// files are the segment's lazily opened files, the transaction index aside.
func (s *segment) files() []*lazyFile { return []*lazyFile{s.log, s.index.file, s.times.file} }

func (s *segment) closeIdle() {
	for _, f := range s.files() {
		f.closeIdle()
	}
}

func (s *segment) shut() {
	for _, f := range s.files() {
		f.shut()
	}
}

// rename gives all files another suffix, the .log file last, so that a crash
// in between leaves a state that recovery completes.
func (s *segment) rename(from, to string) error {
	for _, kind := range []struct {
		suffix string
		file   *lazyFile
	}{{indexSuffix, s.index.file}, {timeSuffix, s.times.file}, {logSuffix, s.log}} {
		if kind.suffix == logSuffix {
			// Unlike the others, a lost transaction index can't be made again.
			switch err := s.fs.Rename(s.txnPath(from), s.txnPath(to)); {
			case err == nil:
				if err := s.fs.SyncDir(s.dir); err != nil {
					return err
				}
			case !isNotExist(err):
				return err
			}
		}
		if err := kind.file.rename(segmentPath(s.dir, s.base, kind.suffix, to)); err != nil {
			return err
		}
	}
	return nil
}

// remove removes all files, which have the given suffix.
func (s *segment) remove(suffix string) error {
	err := errors.Join(s.log.remove(), s.index.file.remove(), s.times.file.remove())
	return errors.Join(err, removeIfExists(s.fs, s.txnPath(suffix)))
}
