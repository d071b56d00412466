package logdir

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
)

// lockName serialises creation and deletion of one partition.
func (s *Set) lockName(tp TopicPartition) (unlock func()) {
	m := &s.names[maphash.String(s.seed, tp.String())%uint64(len(s.names))]
	m.Lock()
	return sync.OnceFunc(m.Unlock)
}

// GetOrCreate returns the log of a partition, creating it in the directory
// named, or where that is not one of ours in the one that was asked for by
// Prefer or has the fewest logs. While a directory is offline a log that isn't
// assigned to an online one is not created: it may lie in the other. A log of
// another topic id under the same name is what is left of a deleted topic: it
// is deleted first.
func (s *Set) GetOrCreate(id ids.UUID, topic string, partition int32, c partlog.Config, in ids.UUID) (*partlog.Log, error) {
	tp := TopicPartition{topic, partition}
	defer s.lockName(tp)()
	if e := s.entry(topic, partition); e != nil {
		old := e.log.TopicID()
		if old == id || old.IsZero() || id.IsZero() {
			if old != id && !id.IsZero() { // else a later topic of this name would take it for its own
				if err := e.log.AdoptTopicID(id); err != nil {
					return nil, err
				}
			}
			e.log.SetConfig(c)
			return e.log, nil
		}
		s.log.Warn("log of another topic of this name is deleted", "topic", topic, "partition", partition, "topic_id", old, "wanted", id)
		s.dropFuture(tp)
		if err := s.deleteLocked(tp, e); err != nil {
			return nil, err
		}
	}
	if l, ok, err := s.resume(tp, partlog.Options{TopicID: id, Config: c}); ok || err != nil {
		return l, err
	}
	if s.orphans[tp] {
		return nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline,
			Message: "a log directory is offline, and the log of " + tp.String() + " was on its way from there"}
	}
	d, placed, err := s.pickDir(tp, in)
	if err != nil {
		return nil, err
	}
	defer placed()
	if err := s.forget(d, tp); err != nil {
		s.failIO(d, err)
		return nil, storageError(tp, err)
	}
	before, err := disk.Exists(s.o.FS, d.file(tp.String()))
	var l *partlog.Log
	if err == nil {
		l, err = s.openLog(d, tp, partlog.Options{TopicID: id, Config: c})
	}
	if err != nil {
		if s.failIO(d, err); !before && d.online() && s.empty(d, tp) {
			// The next attempt may choose another directory. What stays here all the same is dealt with by a start.
			_ = s.removeEmpty(d, tp)
		}
		return nil, storageError(tp, err)
	}
	s.mu.Lock()
	s.logs[tp] = &entry{l, d}
	s.mu.Unlock()
	if !d.online() { // it failed meanwhile and may have missed this log
		s.dropLogs(d)
		return nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline, Message: "the log directory of " + tp.String() + " failed"}
	}
	return l, nil
}

func storageError(tp TopicPartition, err error) error {
	return &api.Error{Code: api.KafkaStorageError, Message: fmt.Sprintf("create log of %s: %v", tp, err), Err: err}
}

// pickDir chooses the directory of a new log: the assigned one, the preferred
// one, or the online directory with the fewest logs, those being made included.
// placed is called when the log is listed.
func (s *Set) pickDir(tp TopicPartition, in ids.UUID) (best *dir, placed func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[*dir]int{}
	if len(s.dirs) > 1 {
		for _, e := range s.logs {
			n[e.dir]++
		}
	}
	preferred := s.preferred[tp]
	offline := false
	for _, d := range s.dirs {
		if !d.online() {
			offline = true
			continue
		}
		if d.id == in && !in.IsReserved() {
			best = d
			break
		}
		if d.id == preferred && !preferred.IsZero() {
			best = d
		}
	}
	delete(s.preferred, tp)
	assigned := best != nil && best.id == in
	switch {
	case assigned:
	case offline && (in == ids.LostDir || !in.IsReserved()):
		return nil, nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline,
			Message: "a log directory is offline, and " + tp.String() + " is assigned to one that isn't online"}
	case best == nil:
		for _, d := range s.dirs {
			if d.online() && (best == nil || n[d]+d.creating < n[best]+best.creating) {
				best = d
			}
		}
	}
	if best == nil {
		return nil, nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline, Message: "no log directory is online for " + tp.String()}
	}
	best.creating++
	return best, func() {
		s.mu.Lock()
		best.creating--
		s.mu.Unlock()
	}, nil
}

// forget removes offsets of an earlier partition of this name from the
// checkpoints: they would vouch for bytes that were never flushed.
func (s *Set) forget(d *dir, tp TopicPartition) error {
	d.ckpt.Lock()
	known := d.written[tp] > 0 || d.cleaned[tp] > 0 || d.starts[tp] > 0
	var err error
	if d.writtenHWs[tp] > 0 { // that of the earlier one would stand for records that nobody has committed
		o := maps.Clone(d.writtenHWs)
		delete(o, tp)
		err = d.writeHWs(s.o.FS, o)
	}
	d.ckpt.Unlock()
	if err != nil || !known {
		return err
	}
	return d.writeOffsets(s.o.FS, s.allOf(d))
}

// Delete removes a partition's log: its directory is renamed to -delete at
// once and removed later. A partition without a log is no error.
func (s *Set) Delete(topic string, partition int32) error {
	tp := TopicPartition{topic, partition}
	defer s.lockName(tp)()
	s.dropFuture(tp)
	e := s.entry(topic, partition)
	if e == nil {
		return s.dropHalf(tp)
	}
	return s.deleteLocked(tp, e)
}

// moveAside closes a log and renames its directory to a unique name with the suffix.
func (s *Set) moveAside(tp TopicPartition, e *entry, suffix string) (to string, err error) {
	s.mu.Lock()
	delete(s.logs, tp)
	s.mu.Unlock()
	if err := e.log.Close(false); err != nil {
		return "", s.failed(e.dir, err)
	}
	to = e.dir.file(s.asideName(tp, suffix))
	err = s.o.FS.Rename(e.log.Dir(), to)
	if disk.Full(err) && suffix == deleteSuffix { // a longer name may need space
		to, err = e.log.Dir(), s.o.FS.RemoveAll(e.log.Dir())
	}
	if err != nil {
		return "", s.failed(e.dir, err)
	}
	if err := s.o.FS.SyncDir(e.dir.path); err != nil {
		return "", s.failed(e.dir, err)
	}
	return to, nil
}

// SetAside renames the directories of the logs that aren't held to -stray: what
// a crash left of a topic being deleted, or the logs of lost metadata. Nothing
// uses or removes them; the operator is told.
func (s *Set) SetAside(held func(topic string, id ids.UUID, partition int32) bool) error {
	var errs []error
	for _, e := range s.list() {
		tp := TopicPartition{e.log.Topic(), e.log.Partition()}
		if held(tp.Topic, e.log.TopicID(), tp.Partition) {
			continue
		}
		unlock := s.lockName(tp)
		if s.entry(tp.Topic, tp.Partition) == e {
			s.dropFuture(tp)
			to, err := s.moveAside(tp, e, straySuffix)
			if err == nil {
				s.log.Warn("log of a partition that the metadata doesn't know is set aside; remove it if its topic was deleted",
					"topic", tp.Topic, "partition", tp.Partition, "topic_id", e.log.TopicID(), "dir", to, "bytes", e.log.Size())
			}
			errs = append(errs, err)
		}
		unlock()
	}
	return errors.Join(errs...)
}

func (s *Set) deleteLocked(tp TopicPartition, e *entry) error {
	to, err := s.moveAside(tp, e, deleteSuffix)
	if err != nil {
		return err
	}
	s.run.removeLater(to, time.Now().Add(s.o.DeleteDelay))
	s.log.Info("log deleted", "topic", tp.Topic, "partition", tp.Partition)
	return nil
}

func (s *Set) failed(d *dir, err error) error {
	s.failIO(d, err)
	return &api.Error{Code: api.KafkaStorageError, Message: err.Error(), Err: err}
}

// asideName is a unique directory name of at most 255 bytes.
func (s *Set) asideName(tp TopicPartition, suffix string) string {
	name := tp.String()
	unique := "." + strconv.FormatInt(time.Now().UnixNano(), 36) + strconv.FormatInt(s.seq.Add(1), 36) + suffix
	if most := 255 - len(unique); len(name) > most {
		name = name[:most]
	}
	return name + unique
}

// Fail takes the directory that holds path offline because of err.
func (s *Set) Fail(path string, err error) {
	path = filepath.Clean(path)
	for _, d := range s.dirs {
		if root := filepath.Clean(d.path); path == root || strings.HasPrefix(path, root+string(filepath.Separator)) {
			s.failDir(d, err)
			return
		}
	}
}

// failDir takes a directory offline, once. It may be called with locks of a
// log held: closing the logs happens beside.
func (s *Set) failDir(d *dir, err error) {
	if errors.Is(err, partlog.ErrClosed) || !d.failed.CompareAndSwap(nil, &err) {
		return
	}
	s.log.Error("log directory failed and goes offline", "dir", d.path, "error", err)
	s.run.spawn(func() {
		s.dropLogs(d)
		if s.o.OnOffline != nil {
			s.o.OnOffline(d.path, d.id, err)
		}
	})
}

// failIO is failDir, but for what is no fault of the disk and passes: too many
// open files, and no space left. The caller tries again.
func (s *Set) failIO(d *dir, err error) {
	switch {
	case disk.OutOfFiles(err):
		s.log.Error("too many open files: raise the limit (ulimit -n)", "dir", d.path, "error", err)
	case disk.Full(err):
		if now := time.Now().UnixNano(); now-d.fullAt.Load() >= int64(time.Minute) {
			d.fullAt.Store(now)
			s.log.Error("the disk of a log directory is full: checkpoints stay as they were, and no log can be created", "dir", d.path, "error", err)
		}
	default:
		s.failDir(d, err)
	}
}

// passing reports whether err says nothing about the disk.
func passing(err error) bool { return disk.OutOfFiles(err) || disk.Full(err) }

// dropLogs closes the logs of a directory that failed.
func (s *Set) dropLogs(d *dir) {
	s.closeFutures(d)
	s.mu.Lock()
	var gone []*partlog.Log
	for tp, e := range s.logs {
		if e.dir == d {
			gone = append(gone, e.log)
			delete(s.logs, tp)
		}
	}
	s.mu.Unlock()
	for _, l := range gone {
		_ = l.Close(false) // the directory's own error was reported
	}
}
