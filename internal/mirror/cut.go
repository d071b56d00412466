package mirror

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"milena/internal/disk"
	"milena/internal/partlog"
	"milena/internal/record"
)

// cutDir is the directory under a log directory where cut records are set aside (spec D4).
const cutDir = "cut"

// clampTimeout bounds how long a cut waits for the group coordinator.
const clampTimeout = 5 * time.Second

// cut truncates the partition to offset to, rounded down to the start of a batch, after it has set aside what lies above.
// Below the log start nothing is left, and the log starts at to. Committed group offsets beyond the new end are taken back to
// it. The caller keeps fetches away.
func (p *Partition) cut(ctx context.Context, to int64, why string) error {
	log := p.rep.Log()
	start, end := log.StartOffset(), log.EndOffset()
	if to >= end {
		return nil
	}
	from := max(to, start)
	truncate := func() error { return p.rep.TruncateFullyAndStartAt(to) }
	if to >= start {
		var err error
		if to, err = batchStart(log, to); err != nil {
			return err
		}
		from, truncate = to, func() error { return p.rep.TruncateTo(to) }
	}
	file, bytes, err := setAside(p.mgr.opts.FS, log, p.tp, p.key.TopicID.String(), from, end)
	if err != nil {
		return fmt.Errorf("records from offset %d on could not be set aside, so none was cut: %w", from, err)
	}
	if err := truncate(); err != nil {
		return err
	}
	clamp, cancel := context.WithTimeout(ctx, clampTimeout)
	defer cancel()
	groups, err := p.mgr.opts.ClampOffsets(clamp, p.tp.topic, p.key.TopicID, p.tp.partition, to, log.LatestEpoch())
	if err != nil {
		p.log.Error("committed offsets above the cut could not be taken back", "offset", to, "error", err)
	}
	p.mgr.metrics.cutRecords.WithLabelValues(p.mirror).Add(float64(end - from))
	p.log.Warn("mirror partition was cut", "reason", why, "offset", to, "end", end, "records", end-from, "bytes", bytes, "file", file, "groups", groups)
	return nil
}

// batchStart is off, or the base offset of the batch that it lies inside of: a cut never splits a batch (spec A.8).
func batchStart(log *partlog.Log, off int64) (int64, error) {
	if off >= log.EndOffset() {
		return off, nil
	}
	info, err := log.Read(off, 1, log.EndOffset(), true)
	if err != nil {
		return off, err
	}
	defer info.Release()
	for _, s := range info.Spans {
		buf, err := s.Bytes()
		if err != nil {
			return off, err
		}
		for b, err := range record.Batches(buf) {
			if err != nil {
				return off, err
			}
			return min(off, b.BaseOffset()), nil
		}
	}
	return off, nil
}

// setAside copies the batches from offset from up to end into a file of their own, in the log's format, and makes it
// durable. It returns the file's name and size.
func setAside(fs disk.FS, log *partlog.Log, t tp, topicID string, from, end int64) (string, int64, error) {
	if from >= end {
		return "", 0, nil
	}
	dir := filepath.Join(filepath.Dir(log.Dir()), cutDir)
	if err := fs.Mkdir(dir); err != nil {
		return "", 0, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%s-%020d-%d.log", t, topicID, from, time.Now().UnixMilli()))
	f, err := fs.Create(name)
	if err != nil {
		return "", 0, err
	}
	bytes, err := copyBatches(f, log, from, end)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = errors.Join(fs.SyncDir(dir), fs.SyncDir(filepath.Dir(dir)))
	}
	if err != nil {
		return "", 0, errors.Join(err, fs.Remove(name))
	}
	return name, bytes, nil
}

// copyChunk is how much of a log is read at once.
const copyChunk = 1 << 20

func copyBatches(f disk.File, log *partlog.Log, from, end int64) (int64, error) {
	total := int64(0)
	// A log start inside a batch: the batch is there from its beginning.
	for off := max(from, log.StartOffset()); off < end; {
		info, err := log.Read(off, copyChunk, end, true)
		if err != nil {
			return total, err
		}
		next := off
		for _, s := range info.Spans {
			buf, err := s.Bytes()
			if err == nil {
				_, err = f.Write(buf)
			}
			if err != nil {
				info.Release()
				return total, err
			}
			total += int64(len(buf))
			for b, err := range record.Batches(buf) {
				if err != nil {
					info.Release()
					return total, err
				}
				next = b.NextOffset()
			}
		}
		info.Release()
		if next <= off {
			break // compaction took the last batches
		}
		off = next
	}
	return total, nil
}
