package partlog

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"milena/internal/disk"
	"milena/internal/record"
)

// asideSuffix ends the names of files with what recovery took out of a log though it holds whole batches. Neither Milena nor Kafka
// touches them; they go with the partition.
const asideSuffix = ".aside"

// isAside reports whether a file is one that recovery set aside.
func isAside(name string) bool { return strings.Contains(name, logSuffix+asideSuffix) }

// Aside returns how many files recovery has set aside beside the log, and their size in bytes: records that are no longer in
// the log, until somebody removes them. Files that can't be looked at don't count.
func (l *Log) Aside() (files int, size int64) {
	if !l.asides.Load() {
		return 0, 0
	}
	entries, err := l.opts.FS.ReadDir(l.opts.Dir)
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && isAside(e.Name()) {
			files++
			size += info.Size()
		}
	}
	return files, size
}

// asidePath is a name for what is set aside from an offset on that no file has.
func (r *recovery) asidePath(offset int64) (string, error) {
	o := &r.l.opts
	path := segmentPath(o.Dir, offset, logSuffix, asideSuffix)
	for n := 1; ; n++ {
		taken, err := disk.Exists(o.FS, path)
		if err != nil || !taken {
			return path, err
		}
		path = segmentPath(o.Dir, offset, logSuffix, fmt.Sprintf("%s-%d", asideSuffix, n))
	}
}

// setAside takes a segment out of the log that comes after a damaged or missing place: its records are kept under another name.
func (r *recovery) setAside(s *segment) error {
	size := s.size.Load()
	if size == 0 {
		return s.remove("")
	}
	to, err := r.asidePath(s.base)
	if err != nil {
		return err
	}
	from := s.log.path()
	if err := s.log.rename(to); err != nil {
		return err
	}
	s.log.shut()
	r.l.asides.Store(true)
	r.l.log.Error("a segment after a damaged or missing one is set aside: its records are no longer in the log",
		"file", from, "aside", to, "offset", s.base, "bytes", size)
	err = errors.Join(s.index.file.remove(), s.times.file.remove())
	return errors.Join(err, removeIfExists(s.fs, s.txnPath("")))
}

// keepTail copies what is about to be cut from a segment at pos, if a whole batch comes after the damage there: then it is no write
// that a crash tore, whose end nobody was told of. next is the log end after the cut.
func (r *recovery) keepTail(s *segment, pos, next int64) error {
	good, err := r.goodBehind(s, pos, next)
	if err != nil || !good.found {
		return err
	}
	size := s.size.Load()
	to, err := r.asidePath(next)
	if err != nil {
		return err
	}
	attrs := []any{"file", s.log.path(), "offset", next, "position", pos, "bytes", size - pos,
		"whole_again_at_offset", good.offset, "whole_again_at_position", good.pos}
	switch err := copyRange(r.l.opts.FS, s, pos, size, to); {
	case disk.Full(err):
		r.l.log.Error("records behind a damaged batch are cut off; the disk is too full to set them aside", append(attrs, "error", err)...)
		return removeIfExists(r.l.opts.FS, to)
	case err != nil:
		return errors.Join(err, removeIfExists(r.l.opts.FS, to))
	}
	r.l.asides.Store(true)
	r.l.log.Error("records behind a damaged batch are cut off and set aside: they are no longer in the log", append(attrs, "aside", to)...)
	return r.l.opts.FS.SyncDir(r.l.opts.Dir)
}

// wholeAgain is where a whole batch follows damage; offset and pos are -1 where there may be one, but the search got too long.
type wholeAgain struct {
	found       bool
	offset, pos int64
}

// searchFactor bounds the search for whole batches, in bytes checked for each byte of the file: what lies there may have been written
// to look like the beginnings of many.
const searchFactor = 8

// goodBehind looks for the first whole batch behind a damaged place, with offsets from next on.
func (r *recovery) goodBehind(s *segment, pos, next int64) (wholeAgain, error) {
	f, err := s.log.acquire()
	if err != nil {
		return wholeAgain{}, err
	}
	defer func() { _ = f.Release() }() // not the last reference
	size := s.size.Load()
	budget := searchFactor * max(size-pos, scanChunk)
	buf := make([]byte, min(scanChunk, max(size-pos, 1)))
	for at := pos + 1; size-at >= record.HeaderSize; {
		held := buf[:min(int64(len(buf)), size-at)]
		if err := readFull(f, held, at); err != nil {
			return wholeAgain{}, fmt.Errorf("read %s at %d: %w", s.log.path(), at, err)
		}
		i := 0
		for ; i+record.HeaderSize <= len(held); i++ {
			h := record.Batch(held[i : i+record.HeaderSize])
			if h.Magic() != record.Magic || h.BaseOffset() < next || s.plausible(h, at+int64(i), size) != nil {
				continue
			}
			if budget -= h.Len(); budget < 0 {
				return wholeAgain{true, -1, -1}, nil
			}
			b, err := readBatchAt(f, at+int64(i), h.Len(), held[i:])
			if err != nil {
				return wholeAgain{}, fmt.Errorf("read %s at %d: %w", s.log.path(), at, err)
			}
			if goodBatch(b, next-1) == nil {
				return wholeAgain{true, b.BaseOffset(), at + int64(i)}, nil
			}
		}
		at += int64(i)
	}
	return wholeAgain{}, nil
}

// readBatchAt reads a batch of n bytes at pos, of which held are the first ones, or more.
func readBatchAt(f io.ReaderAt, pos, n int64, held []byte) (record.Batch, error) {
	if n <= int64(len(held)) {
		return record.Batch(held[:n:n]), nil
	}
	b := make([]byte, n) // bounded by the file's size
	return b, readFull(f, b, pos)
}

// copyRange writes bytes [from, to) of a segment's .log into a new file, durably.
func copyRange(fsys disk.FS, s *segment, from, to int64, name string) (err error) {
	f, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.Release() }() // not the last reference
	out, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf := make([]byte, min(scanChunk, to-from))
	for pos := from; pos < to; {
		part := buf[:min(int64(len(buf)), to-pos)]
		if err := readFull(f, part, pos); err != nil {
			return fmt.Errorf("read %s at %d: %w", s.log.path(), pos, err)
		}
		if _, err := out.WriteAt(part, pos-from); err != nil {
			return err
		}
		pos += int64(len(part))
	}
	return out.Sync()
}

// gap reports offsets that no segment holds: the file that had them is gone. A compacted log has such places by itself.
func (r *recovery) gap(s *segment, next, base int64) {
	if next < base && !r.l.Config().Compact {
		r.l.log.Error("offsets are missing between two segments: a file is gone, or was cut by somebody else",
			"first_missing", next, "last_missing", base-1, "before", segmentPath(s.dir, base, logSuffix, ""))
	}
}
