package logdir

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
)

// lockFile is held while a process uses the directory; it holds the pid.
const lockFile = ".lock"

// deleteSuffix marks the directory of a deleted partition.
const deleteSuffix = "-delete"

// straySuffix marks the directory of a partition that the metadata doesn't know.
const straySuffix = "-stray"

// metadataDir belongs to the quorum, not to us.
const metadataDir = "__cluster_metadata-0"

// dir is one log directory.
type dir struct {
	creating int // logs being made here; guarded by Set.mu

	path string
	id   ids.UUID
	lock io.Closer

	failed      atomic.Pointer[error] // nil while online
	free, total atomic.Int64
	low         atomic.Bool
	// budget is how many bytes may still be appended before the free space has to be read anew: a fast writer must not
	// run through the reserve between two polls.
	budget atomic.Int64
	readAt atomic.Int64 // when the free space was last read, Unix nanoseconds
	fullAt atomic.Int64 // when it was last logged that the disk is full, Unix nanoseconds
	clean  bool         // the last process shut down cleanly
	epoch  int64

	// As of the start; immutable.
	starts, hws offsets
	leftover    []string                  // -delete directories of the last process
	copies      map[TopicPartition]string // directories of future logs, by their partition

	// ckpt serialises writing of checkpoints and guards what follows: recovery
	// points, cleaned points and high watermarks as last written.
	ckpt             sync.Mutex
	written, cleaned offsets
	writtenHWs       offsets
	cleanedLost      bool // the file of cleaned points was damaged and isn't written anew yet
}

func (d *dir) online() bool { return d.failed.Load() == nil }

func (d *dir) file(name string) string { return filepath.Join(d.path, name) }

// openDir locks a directory and reads its identity and checkpoints.
func openDir(o *Options, path string) (d *dir, err error) {
	d = &dir{path: path, epoch: -1}
	d.free.Store(-1)
	d.total.Store(-1)
	if ok, err := disk.Exists(o.FS, path); err != nil || !ok {
		if err == nil {
			err = fmt.Errorf("%w: %s does not exist", ErrNotFormatted, path)
		}
		return nil, err
	}
	lock, err := o.FS.Lock(d.file(lockFile))
	if err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return nil, fmt.Errorf("%w: %s: %w; stop that process or use another directory", ErrLocked, path, err)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close() // the first error matters more
		}
	}()
	d.lock = lock
	m, err := ReadMeta(o.FS, path)
	if err != nil {
		return nil, err
	}
	if o.ClusterID != "" && m.ClusterID != o.ClusterID {
		return nil, fmt.Errorf("%w: %s is of cluster %s, this is cluster %s", ErrForeign, path, m.ClusterID, o.ClusterID)
	}
	if m.NodeID != o.NodeID {
		return nil, fmt.Errorf("%w: %s is of node %d, this is node %d", ErrForeign, path, m.NodeID, o.NodeID)
	}
	o.ClusterID = m.ClusterID
	d.id = m.Directory
	if d.clean, d.epoch, err = takeCleanShutdown(o.FS, path); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		to   *offsets
		file string
	}{{&d.written, recoveryFile}, {&d.starts, startFile}, {&d.hws, hwFile}, {&d.cleaned, cleanerFile}} {
		*c.to, err = readCheckpoint(o.FS, d.file(c.file))
		if errors.Is(err, errDamaged) {
			o.Logger.Warn("checkpoint is damaged and left out", "dir", path, "error", err)
			*c.to, err = nil, nil
			d.cleanedLost = d.cleanedLost || c.file == cleanerFile
		}
		if err != nil {
			return nil, err
		}
	}
	d.writtenHWs = d.hws
	return d, nil
}

// writeHWs writes the high watermarks. ckpt is held.
func (d *dir) writeHWs(fsys disk.FS, o offsets) error {
	err := writeCheckpoint(fsys, d.file(hwFile), o)
	if err == nil {
		d.writtenHWs = o
	}
	return err
}

// point is the recovery point of a log at start: -1 if the checkpoint is lost.
func (d *dir) point(tp TopicPartition) int64 {
	if d.written == nil {
		return -1
	}
	return d.written[tp]
}

// logsIn lists the partitions in a directory and remembers what is left of
// deleted ones.
func (d *dir) logsIn(fsys disk.FS) ([]TopicPartition, error) {
	entries, err := fsys.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var out []TopicPartition
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || name == metadataDir {
			continue
		}
		if strings.HasSuffix(name, deleteSuffix) {
			d.leftover = append(d.leftover, d.file(name))
			continue
		}
		if tp, ok := parseDirName(name); ok {
			out = append(out, tp)
		}
	}
	return out, nil
}

// parseDirName undoes TopicPartition.String.
func parseDirName(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return TopicPartition{}, false
	}
	return TopicPartition{name[:i], int32(n)}, true
}

// vouched reports whether the recovery points in the file are none too high for
// the logs as they were found.
func (d *dir) vouched(logs map[TopicPartition]*partlog.Log) bool {
	for tp, l := range logs {
		if d.point(tp) > l.RecoveryPoint() {
			return false
		}
	}
	return true
}

// writeOffsets writes recovery points, log start offsets and cleaned points of
// the logs in the directory.
func (d *dir) writeOffsets(fsys disk.FS, logs map[TopicPartition]*partlog.Log) error {
	d.ckpt.Lock()
	defer d.ckpt.Unlock()
	if !d.online() {
		return nil
	}
	points, starts, cleaned := make(offsets, len(logs)), offsets{}, offsets{}
	for tp, l := range logs {
		points[tp] = l.RecoveryPoint()
		if s := l.StartOffset(); s > 0 {
			starts[tp] = s
		}
		if c := l.CleanedTo(); c > 0 {
			cleaned[tp] = c
		}
	}
	if d.cleanedLost || !maps.Equal(cleaned, d.cleaned) {
		if err := writeCheckpoint(fsys, d.file(cleanerFile), cleaned); err != nil {
			return err
		}
		d.cleaned, d.cleanedLost = cleaned, false
	}
	if err := writeCheckpoint(fsys, d.file(recoveryFile), points); err != nil {
		return err
	}
	d.written = points
	return writeCheckpoint(fsys, d.file(startFile), starts)
}
