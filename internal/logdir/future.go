package logdir

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/partlog"
)

// A log moves to another directory as a copy beside it, the future log
// (KIP-113), in a directory named
//
//	topic-7.<unique>-future    while it is being filled
//	topic-7.<unique>-ready     complete; takes the log's place now
//	topic-7                    in place; the old one is renamed to -delete before
//
// A crash leaves either the old log or the complete copy: a start puts a ready
// one in place if the old one is gone, and removes what else it finds. A copy that
// is being filled stays, for a move to go on with.
const (
	futureSuffix = "-future"
	readySuffix  = "-ready"
)

// futureName is the name of a future log's directory.
func (s *Set) futureName(tp TopicPartition, suffix string) (string, error) {
	name := tp.String() + "." + strconv.FormatInt(time.Now().UnixNano(), 36) + strconv.FormatInt(s.seq.Add(1), 36) + suffix
	if len(name) > 255 {
		return "", api.Errorf(api.InvalidRequest, "the name of topic %s is too long for a move of its logs", tp.Topic)
	}
	return name, nil
}

// parseFutureName undoes futureName.
func parseFutureName(name, suffix string) (TopicPartition, bool) {
	name, ok := strings.CutSuffix(name, suffix)
	i := strings.LastIndexByte(name, '.')
	if !ok || i < 0 {
		return TopicPartition{}, false
	}
	return parseDirName(name[:i])
}

// found is what a start finds of an interrupted move.
type found struct {
	d    *dir
	name string
	tp   TopicPartition
}

// finishMoves puts the complete copies of interrupted moves in place, notes those that
// were being filled, and has what is left of other moves removed.
func (s *Set) finishMoves() {
	have := map[TopicPartition]bool{}
	var complete, begun []found
	for _, d := range s.dirs {
		if !d.online() {
			continue
		}
		entries, err := s.o.FS.ReadDir(d.path)
		if err != nil {
			s.failDir(d, err)
			continue
		}
		for _, e := range entries {
			name := e.Name()
			switch {
			case !e.IsDir():
			case strings.HasSuffix(name, futureSuffix):
				if tp, ok := parseFutureName(name, futureSuffix); ok {
					begun = append(begun, found{d, name, tp})
				}
			case strings.HasSuffix(name, readySuffix):
				if tp, ok := parseFutureName(name, readySuffix); ok {
					complete = append(complete, found{d, name, tp})
				}
			default:
				if tp, ok := parseDirName(name); ok {
					have[tp] = true
				}
			}
		}
	}
	for _, r := range complete {
		if have[r.tp] {
			r.d.leftover = append(r.d.leftover, r.d.file(r.name))
			continue
		}
		have[r.tp] = true
		err := s.o.FS.Rename(r.d.file(r.name), r.d.file(r.tp.String()))
		if err == nil {
			err = s.o.FS.SyncDir(r.d.path)
		}
		if err != nil {
			s.failDir(r.d, err)
			continue
		}
		s.log.Info("log whose move to this directory was interrupted is in place", "topic", r.tp.Topic, "partition", r.tp.Partition, "dir", r.d.path)
	}
	s.noteCopies(begun, have)
}

// noteCopies has the newest copy of each partition opened, if there is a log that it is a copy of. The others
// are removed: they were given up, and the crash came before that was done. While a directory is offline the log
// may lie there: then the copy stays, and no new log is made in the log's place, where the metadata may have it already.
func (s *Set) noteCopies(begun []found, have map[TopicPartition]bool) {
	offline := slices.ContainsFunc(s.dirs, func(d *dir) bool { return !d.online() })
	slices.SortFunc(begun, func(a, b found) int { // the name has the time
		return cmp.Or(cmp.Compare(len(b.name), len(a.name)), cmp.Compare(b.name, a.name))
	})
	seen := map[TopicPartition]bool{}
	for _, f := range begun {
		if !have[f.tp] && offline {
			if s.orphans == nil {
				s.orphans = map[TopicPartition]bool{}
			}
			s.orphans[f.tp] = true
			continue
		}
		if !have[f.tp] || seen[f.tp] {
			f.d.leftover = append(f.d.leftover, f.d.file(f.name))
			continue
		}
		seen[f.tp] = true
		if f.d.copies == nil {
			f.d.copies = map[TopicPartition]string{}
		}
		f.d.copies[f.tp] = f.name
	}
}

// loadFuture opens the copy of an interrupted move. One that can't be opened is removed: nothing is in it alone.
func (s *Set) loadFuture(d *dir, tp TopicPartition, name string) error {
	id, err := partlog.ReadTopicID(s.o.FS, d.file(name+"/partition.metadata"))
	var l *partlog.Log
	if err == nil {
		cfg := partlog.DefaultConfig()
		if s.o.Config != nil {
			cfg = s.o.Config(tp.Topic, id)
		}
		l, err = s.openAt(d, name, tp, partlog.Options{TopicID: id, Config: cfg, RecoveryPoint: d.point(tp), LogStart: d.starts[tp], Clean: d.clean})
	}
	if err != nil {
		if fatalAtStart(err) {
			return err
		}
		s.log.Warn("the copy of a log that was on its way to this directory is given up", "topic", tp.Topic, "partition", tp.Partition, "dir", d.path, "error", err)
		s.run.removeLater(d.file(name), time.Now())
		return nil
	}
	s.mu.Lock()
	s.futures[tp] = &entry{l, d}
	s.mu.Unlock()
	return nil
}

// checkFutures gives up the copies whose log isn't there or is another topic's, or lies in the same directory.
func (s *Set) checkFutures() {
	s.mu.RLock()
	var wrong []TopicPartition
	for tp, f := range s.futures {
		if e := s.logs[tp]; e == nil || e.dir == f.dir || e.log.TopicID() != f.log.TopicID() {
			wrong = append(wrong, tp)
		}
	}
	s.mu.RUnlock()
	for _, tp := range wrong {
		s.dropFuture(tp)
	}
}

// Future returns the future log of a partition, nil if it isn't being moved.
func (s *Set) Future(topic string, partition int32) *partlog.Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.futures[TopicPartition{topic, partition}]; f != nil {
		return f.log
	}
	return nil
}

// FutureDir is the id of the directory that holds the future log of a partition, zero if there is none.
func (s *Set) FutureDir(topic string, partition int32) ids.UUID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.futures[TopicPartition{topic, partition}]; f != nil {
		return f.dir.id
	}
	return ids.Zero
}

// dirByPath finds one of the directories.
func (s *Set) dirByPath(path string) (*dir, error) {
	for _, d := range s.dirs {
		if filepath.Clean(d.path) != filepath.Clean(path) {
			continue
		}
		if !d.online() {
			return nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline, Message: "log directory " + path + " is offline"}
		}
		return d, nil
	}
	return nil, api.Errorf(api.LogDirNotFound, "%s is none of this broker's log.dirs", path)
}

// Prefer notes the directory for a replica that isn't here yet. The error is
// LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR.
func (s *Set) Prefer(topic string, partition int32, path string) error {
	d, err := s.dirByPath(path)
	if err != nil {
		return err
	}
	const most = 10_000 // a client names what it likes
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.preferred) < most {
		s.preferred[TopicPartition{topic, partition}] = d.id
	}
	return nil
}

// CreateFuture makes an empty future log for a log of ours, in place of an
// earlier one; nil if the log lies in that directory already.
func (s *Set) CreateFuture(topic string, partition int32, path string) (*partlog.Log, error) {
	tp := TopicPartition{topic, partition}
	d, err := s.dirByPath(path)
	if err != nil {
		return nil, err
	}
	defer s.lockName(tp)()
	e := s.entry(topic, partition)
	if e == nil {
		return nil, api.Errorf(api.ReplicaNotAvailable, "this broker has no log of %s", tp)
	}
	s.dropFuture(tp)
	if e.dir == d {
		return nil, nil
	}
	name, err := s.futureName(tp, futureSuffix)
	if err != nil {
		return nil, err
	}
	if err := s.forget(d, tp); err != nil {
		s.failIO(d, err)
		return nil, storageError(tp, err)
	}
	l, err := s.openAt(d, name, tp, partlog.Options{TopicID: e.log.TopicID(), Config: e.log.Config()})
	if err != nil {
		s.failIO(d, err)
		return nil, storageError(tp, err)
	}
	s.mu.Lock()
	s.futures[tp] = &entry{l, d}
	s.mu.Unlock()
	if !d.online() {
		s.dropFuture(tp)
		return nil, &api.Error{Code: api.KafkaStorageError, Err: ErrOffline, Message: "log directory " + path + " failed"}
	}
	return l, nil
}

// DropFuture gives up a move: its future log is removed.
func (s *Set) DropFuture(future *partlog.Log) {
	tp := TopicPartition{future.Topic(), future.Partition()}
	defer s.lockName(tp)()
	s.mu.RLock()
	f := s.futures[tp]
	s.mu.RUnlock()
	if f != nil && f.log == future {
		s.dropFuture(tp)
	}
}

// dropFuture removes the future log of a partition, if there is one. The name
// is locked.
func (s *Set) dropFuture(tp TopicPartition) {
	s.mu.Lock()
	f := s.futures[tp]
	delete(s.futures, tp)
	s.mu.Unlock()
	if f == nil {
		return
	}
	if err := f.log.Delete(); err != nil && f.dir.online() {
		s.failIO(f.dir, err)
	}
}

// Futures calls fn for every future log until it returns false.
func (s *Set) Futures(fn func(*partlog.Log) bool) {
	s.mu.RLock()
	var ls []*partlog.Log
	for _, e := range s.futures {
		ls = append(ls, e.log)
	}
	s.mu.RUnlock()
	for _, l := range ls {
		if !fn(l) {
			return
		}
	}
}

// closeFutures closes the future logs in a directory, or in all, without a flush.
func (s *Set) closeFutures(d *dir) {
	s.mu.Lock()
	var ls []*partlog.Log
	for tp, e := range s.futures {
		if d == nil || e.dir == d {
			ls = append(ls, e.log)
			delete(s.futures, tp)
		}
	}
	s.mu.Unlock()
	for _, l := range ls {
		_ = l.Close(false) // the log itself has everything
	}
}
