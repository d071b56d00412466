package partlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"milena/internal/disk"
	"milena/internal/record"
)

// Open creates or recovers the log in o.Dir. After an unclean end it reads the
// log from the recovery point, checks every batch, and cuts what isn't whole.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		opts:      o,
		name:      partitionName(o.Topic, o.Partition),
		log:       o.Logger.With("topic", o.Topic, "partition", o.Partition),
		epochs:    newEpochCache(nil),
		producers: newProducers(),
	}
	l.cfg.Store(&o.Config)
	l.cleanedTo.Store(max(o.CleanedTo, 0))
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open log %s: %w", o.Dir, err)
	}
	return l, nil
}

func (l *Log) load() error {
	known, err := disk.Exists(l.opts.FS, l.opts.Dir)
	if err != nil {
		return err
	}
	if !known {
		if err := l.opts.FS.Mkdir(l.opts.Dir); err != nil {
			return err
		}
		if err := l.opts.FS.SyncDir(filepath.Dir(l.opts.Dir)); err != nil {
			return err
		}
	}
	if err := l.loadTopicID(); err != nil {
		return err
	}
	files, err := l.tidy()
	if err != nil {
		return err
	}
	r := recovery{l: l}
	if err := r.segments(files); err != nil {
		return err
	}
	if err := r.state(); err != nil {
		return err
	}
	for _, s := range l.view.Load().segs {
		for _, f := range s.files() {
			f.drop() // opened again when used: a node has many logs
		}
	}
	return nil
}

// dirFiles is what a partition's directory holds, by base offset.
type dirFiles map[int64]*segmentFiles

func (d dirFiles) at(base int64) *segmentFiles {
	f := d[base]
	if f == nil {
		f = &segmentFiles{base: base, log: -1}
		d[base] = f
	}
	return f
}

// note takes in a file name without its trailing suffix.
func (d dirFiles) note(name string, size int64) {
	dot := strings.IndexByte(name, '.')
	if dot < 0 {
		return
	}
	base, ok := parseOffsetName(name[:dot])
	if !ok {
		return
	}
	switch name[dot:] {
	case logSuffix:
		d.at(base).log = size
	case indexSuffix:
		f := d.at(base)
		f.index, f.hasIndex = size, true
	case timeSuffix:
		f := d.at(base)
		f.time, f.hasTime = size, true
	case txnSuffix:
		d.at(base).hasTxn = true
	}
}

func (d dirFiles) bases() []int64 {
	out := make([]int64, 0, len(d))
	for base := range d {
		out = append(out, base)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// tidy removes what a crash left half done (.deleted, .cleaned, .tmp),
// completes compactions that were committed (.swap), and lists the segments.
func (l *Log) tidy() (dirFiles, error) {
	entries, err := l.opts.FS.ReadDir(l.opts.Dir)
	if err != nil {
		return nil, err
	}
	plain, swaps := dirFiles{}, dirFiles{}
	minCleaned := int64(1<<63 - 1)
	var swapNames []string
	for _, e := range entries {
		name := e.Name()
		switch ext := filepath.Ext(name); ext {
		case deletedSuffix, cleanedSuffix, ".tmp":
			if base, ok := parseOffsetName(strings.SplitN(name, ".", 2)[0]); ok && ext == cleanedSuffix {
				minCleaned = min(minCleaned, base)
			}
			if err := l.opts.FS.RemoveAll(l.path(name)); err != nil {
				return nil, err
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if bare, ok := strings.CutSuffix(name, swapSuffix); ok {
			swaps.note(bare, info.Size())
			swapNames = append(swapNames, name)
			continue
		}
		if isAside(name) {
			l.asides.Store(true)
		}
		plain.note(name, info.Size())
	}
	for _, base := range swaps.bases() {
		// Segments of one compaction are committed last to first, so one at or
		// above a .cleaned is of an uncommitted one.
		if swaps[base].log < 0 || base >= minCleaned {
			continue
		}
		if err := l.finishSwap(plain, *swaps[base]); err != nil {
			return nil, err
		}
	}
	for _, name := range swapNames {
		if err := removeIfExists(l.opts.FS, l.path(name)); err != nil {
			return nil, err
		}
	}
	return plain, l.dropOrphans(plain)
}

// dropOrphans removes index files whose .log is gone.
func (l *Log) dropOrphans(plain dirFiles) error {
	for base, f := range plain {
		if f.log >= 0 {
			continue
		}
		l.log.Warn("index files without a log are removed", "offset", base)
		for _, kind := range []string{indexSuffix, timeSuffix, txnSuffix} {
			if err := removeIfExists(l.opts.FS, segmentPath(l.opts.Dir, base, kind, "")); err != nil {
				return err
			}
		}
		delete(plain, base)
	}
	return nil
}

// finishSwap puts a compacted segment in the place of those it was made from.
func (l *Log) finishSwap(plain dirFiles, f segmentFiles) error {
	fsys, dir := l.opts.FS, l.opts.Dir
	f.suffix = swapSuffix
	s := newSegment(fsys, dir, f)
	defer s.shut()
	next := f.base + 1
	err := s.walkHeaders(0, f.log, func(h record.Batch, _ int64) bool {
		next = h.NextOffset()
		return true
	})
	if old := plain[f.base]; errors.Is(err, ErrCorrupt) && old != nil && old.log >= 0 {
		l.log.Error("compacted segment is damaged and left out", "file", s.log.path(), "error", err)
		return nil // the old ones are still there
	}
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	for _, base := range plain.bases() {
		// The old files of the swap's own base are gone if its .log is: then
		// the others of that base are new already.
		if base < f.base || base >= next || plain[base].log < 0 {
			continue
		}
		for _, kind := range []string{indexSuffix, timeSuffix, txnSuffix, logSuffix} {
			if err := removeIfExists(fsys, segmentPath(dir, base, kind, "")); err != nil {
				return err
			}
		}
		delete(plain, base)
	}
	for _, kind := range []string{indexSuffix, timeSuffix, txnSuffix, logSuffix} {
		to := segmentPath(dir, f.base, kind, "")
		if err := fsys.Rename(to+swapSuffix, to); err != nil && !isNotExist(err) {
			return err
		}
		size, ok, err := fileSize(fsys, to)
		if err != nil {
			return err
		}
		if ok {
			plain.note(filepath.Base(to), size)
		}
	}
	l.log.Info("finished a compaction that was under way", "offset", f.base)
	return fsys.SyncDir(dir)
}

// recovery is the work of Open after the directory is tidy.
type recovery struct {
	l *Log
	// scanned is the offset from which batches were read and checked; the log
	// end if none were. From there on, epochs and aborted transactions are
	// taken from the batches.
	scanned int64
	began   bool // a scan has set scanned
}

// segments opens the segments, scans from the recovery point after an unclean
// end, and settles log start, log end and recovery point.
func (r *recovery) segments(files dirFiles) error {
	l, o := r.l, &r.l.opts
	var segs []*segment
	for _, base := range files.bases() {
		segs = append(segs, newSegment(o.FS, o.Dir, *files[base]))
	}
	end, err := r.check(&segs, files)
	if err != nil {
		return err
	}
	start := max(o.LogStart, 0)
	if len(segs) > 0 {
		start = max(start, segs[0].base)
	}
	if len(segs) > 0 && end < start {
		l.log.Warn("log ends below its start and is emptied", "offset", start, "end", end)
		for _, s := range segs {
			if err := s.remove(""); err != nil {
				return err
			}
		}
		if err := o.FS.SyncDir(o.Dir); err != nil {
			return err
		}
		segs = nil
	}
	if len(segs) == 0 {
		s, err := l.createActive(start)
		if err != nil {
			return err
		}
		segs, end = []*segment{s}, start
		r.scanned = end
	}
	l.start.Store(start)
	l.hw.Store(start)
	active := segs[len(segs)-1]
	l.tail = end
	l.view.Store(&view{segs: segs, end: end, size: active.size.Load()})
	l.recovery.Store(end)
	if !o.Clean {
		l.recovery.Store(max(min(o.RecoveryPoint, end), 0))
		l.dirDirty.Store(true)
	}
	return nil
}

// check decides which segments need a scan and scans them. It returns the log end.
func (r *recovery) check(segs *[]*segment, files dirFiles) (end int64, err error) {
	for i := 0; i < len(*segs); i++ {
		s := (*segs)[i]
		last := i == len(*segs)-1
		f := files[s.base]
		sound := f.hasIndex && f.hasTime && f.index%int64(offsetIndex) == 0 && f.time%int64(timeIndex) == 0
		if !last && (r.l.opts.Clean || (*segs)[i+1].base <= r.l.opts.RecoveryPoint) {
			if !sound || (!r.l.opts.Clean && !r.indexFits(s)) {
				if err := r.reindex(s); err != nil {
					return 0, err
				}
			}
			end = (*segs)[i+1].base
			r.scanned = end
			if !r.l.opts.Clean {
				if err := r.compareEnd(s, end); err != nil {
					return 0, err
				}
			}
			continue
		}
		if r.l.opts.Clean && sound {
			next, err := r.quickEnd(s)
			if err == nil {
				r.scanned = next
				return next, nil
			}
			if !errors.Is(err, ErrCorrupt) {
				return 0, err
			}
			r.l.log.Warn("segment does not end as a clean shutdown leaves it; it is scanned", "file", s.log.path(), "error", err)
		}
		next, cut, err := r.scan(s)
		if err != nil {
			return 0, err
		}
		end = next
		if !last && !cut {
			r.gap(s, next, (*segs)[i+1].base)
		}
		if !last && (cut || r.lost(next, (*segs)[i+1].base)) {
			for _, later := range (*segs)[i+1:] {
				if err := r.setAside(later); err != nil {
					return 0, err
				}
			}
			// They must not come back after the next crash, behind other records.
			if err := r.l.opts.FS.SyncDir(r.l.opts.Dir); err != nil {
				return 0, err
			}
			*segs = (*segs)[:i+1]
		}
	}
	return end, nil
}

// compareEnd reports it if a segment whose bytes are durable ends before the next one begins. Nothing is cut.
func (r *recovery) compareEnd(s *segment, base int64) error {
	next, err := r.quickEnd(s)
	s.sinceIndex = 0 // only the last segment's counts
	switch {
	case errors.Is(err, ErrCorrupt):
		r.l.log.Error("segment is damaged below the recovery point", "file", s.log.path(), "error", err)
	case err != nil:
		return err
	default:
		r.gap(s, next, base)
	}
	return nil
}

// lost says whether a segment that ends at next, before another one at base,
// has lost its end in a crash. Above the recovery point segments are contiguous
// (see Log.settle), but for those that a cleaner shortened; ours cleans below
// it only, Kafka's may not. With no recovery point known, nothing can be said.
func (r *recovery) lost(next, base int64) bool {
	return next != base && r.l.opts.RecoveryPoint >= 0 && !r.l.Config().Compact
}

// indexFits checks the last entry of a sealed segment's indexes against the log.
func (r *recovery) indexFits(s *segment) bool {
	e, ok, err := s.index.lastEntry()
	if err != nil {
		return false
	}
	if !ok {
		return true
	}
	if !entryFits(s, e) {
		return false
	}
	_, _, err = s.times.lastEntry()
	return err == nil
}

// entryFits says whether e points at the batch that it names.
func entryFits(s *segment, e indexEntry) bool {
	found := false
	err := s.walkHeaders(e.val, s.size.Load(), func(h record.Batch, _ int64) bool {
		found = h.LastOffset() == e.key
		return false
	})
	return err == nil && found
}

// quickEnd finds the end of the last segment after a clean shutdown from the
// last index entry on.
func (r *recovery) quickEnd(s *segment) (int64, error) {
	next := s.base
	e, ok, err := s.index.lastEntry()
	if err != nil {
		return 0, err
	}
	if ok && !entryFits(s, e) {
		return 0, fmt.Errorf("%w: %s ends with an entry for offset %d at byte %d, where no such batch is",
			ErrCorrupt, s.index.file.path(), e.key, e.val)
	}
	var run int64
	err = s.walkHeaders(e.val, s.size.Load(), func(h record.Batch, _ int64) bool {
		run = next
		next = h.NextOffset()
		s.sinceIndex += h.Len()
		return run < next
	})
	if err == nil && run >= next && run > s.base {
		err = fmt.Errorf("%w: offsets of %s fall", ErrCorrupt, s.log.path())
	}
	return next, err
}

// reindex rebuilds the indexes of a segment whose bytes are durable. Nothing is
// cut: damage in it is left for its readers to find.
func (r *recovery) reindex(s *segment) error {
	r.l.log.Warn("indexes of a segment are missing or damaged and rebuilt", "file", s.log.path())
	if err := resetIndexes(s); err != nil {
		return err
	}
	interval := r.l.Config().IndexInterval
	var inner error
	err := s.walkHeaders(0, s.size.Load(), func(h record.Batch, pos int64) bool {
		inner = noteBatch(s, h, pos, h.Len(), interval)
		return inner == nil
	})
	if errors.Is(err, ErrCorrupt) {
		r.l.log.Error("segment is damaged below the recovery point", "file", s.log.path(), "error", err)
		err = nil
	}
	if err == nil {
		err = inner
	}
	if err != nil {
		return err
	}
	return s.sealToFile()
}

// resetIndexes empties the indexes, also of partial entries.
func resetIndexes(s *segment) error {
	for _, x := range []*index{s.index, s.times} {
		x.state.Store(&indexState{})
		x.written, x.synced, x.hasLast = 0, 0, false
		if err := x.cutFile(0); err != nil {
			return err
		}
	}
	s.maxTime.Store(&indexEntry{-1, s.base})
	s.sinceIndex = 0
	return nil
}

// noteBatch takes a batch that is in the file into the indexes.
func noteBatch(s *segment, h record.Batch, pos, size, interval int64) error {
	if err := s.noteTime(h.MaxTimestamp(), h.LastOffset()); err != nil {
		return err
	}
	return s.indexBatch(h, pos, size, interval)
}

// state rebuilds what is derived from the batches: epoch cache and producer state.
func (r *recovery) state() error {
	l := r.l
	v := l.view.Load()
	epochsFrom, err := r.loadEpochs()
	if err != nil {
		return err
	}
	// Below the recovery point the transaction indexes are complete; from there
	// on they are rebuilt, with the producer state as of there.
	point := l.recovery.Load()
	if err := l.loadSnapshot(point, time.Now()); err != nil {
		return err
	}
	if err := l.pruneSnapshots(v); err != nil {
		return err
	}
	for i, s := range v.segs {
		if v.next(i) > point || i == len(v.segs)-1 {
			if err := s.cutAborted(point); err != nil {
				return err
			}
			s.dirty = s.dirty || v.next(i) > point
		}
	}
	if err := l.replay(v, epochsFrom, l.producers.end, point); err != nil {
		return err
	}
	l.epochs.truncateStart(l.start.Load())
	return nil
}

// loadEpochs reads the epoch checkpoint and returns the offset from which
// epochs have to be taken from batches.
func (r *recovery) loadEpochs() (int64, error) {
	l := r.l
	data, err := disk.ReadFile(l.opts.FS, l.path(epochFile))
	if isNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	entries, err := parseEpochs(data)
	if errors.Is(err, ErrCorrupt) {
		l.log.Warn("leader epoch checkpoint is damaged and rebuilt", "error", err)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	// What the file says of offsets at or above the recovery point may be
	// about batches that a crash lost.
	from := min(r.scanned, l.recovery.Load())
	keep := entries[:0:len(entries)]
	for _, e := range entries {
		if e.Start < from {
			keep = append(keep, e)
		}
	}
	l.epochs = newEpochCache(keep)
	l.epochs.dirty.Store(len(keep) < len(entries))
	return from, nil
}

// replay feeds batches to the epoch cache (from epochsFrom) and the producer
// state (from producersFrom), by their headers. Aborted transactions whose
// marker is at or above txnsFrom go into the transaction index.
func (l *Log) replay(v *view, epochsFrom, producersFrom, txnsFrom int64) error {
	from := min(epochsFrom, producersFrom)
	for i := max(v.find(from), 0); i < len(v.segs) && from < v.end; i++ {
		s, end := v.segs[i], v.bytes(i)
		p, ok, err := s.locate(from, end)
		if err == nil && ok {
			var inner error
			err = s.walkHeaders(p.pos, end, func(h record.Batch, pos int64) bool {
				inner = l.replayBatch(s, h, pos, epochsFrom, producersFrom, txnsFrom)
				return inner == nil
			})
			if err == nil {
				err = inner
			}
		}
		if errors.Is(err, ErrCorrupt) || errors.Is(err, io.ErrUnexpectedEOF) {
			l.log.Error("segment is damaged below the recovery point; leader epochs and producers may be incomplete",
				"file", s.log.path(), "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	l.producers.mu.Lock()
	l.producers.end = v.end
	l.producers.mu.Unlock()
	return nil
}

func (l *Log) replayBatch(s *segment, h record.Batch, pos, epochsFrom, producersFrom, txnsFrom int64) error {
	if h.NextOffset() > epochsFrom {
		l.epochs.assign(h.LeaderEpoch(), h.BaseOffset())
	}
	if h.NextOffset() <= producersFrom {
		return nil
	}
	if h.IsControl() {
		b, err := s.readBatch(place{pos: pos, size: h.Len()})
		if err != nil {
			return err
		}
		h = b
	}
	if e, ok := l.producers.update(h); ok && e.last >= txnsFrom {
		return s.addAborted(e)
	}
	return nil
}
