package logdir

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/partlog"
)

// ErrHeld says that a copy could not be put in its log's place, because its disk is full or has failed: the log is as it was. The
// copy is there still if Future has it, else the move has to begin anew.
var ErrHeld = errors.New("the copy can't take the log's place now")

// half is a move that got as far as giving up the old log, and then no further: the complete copy is all there is.
type half struct {
	to    *dir
	ready string // the copy's directory until it is in place
	old   *entry
	o     partlog.Options
}

// Promote puts a future log, which must be complete, in the place of its log, and returns it as it is then. Nobody may append to
// either meanwhile. After an error that isn't ErrHeld there is no log; if both directories are online GetOrCreate tries again.
func (s *Set) Promote(future *partlog.Log) (*partlog.Log, error) {
	tp := TopicPartition{future.Topic(), future.Partition()}
	defer s.lockName(tp)()
	s.mu.RLock()
	f, e := s.futures[tp], s.logs[tp]
	s.mu.RUnlock()
	if f == nil || f.log != future || e == nil {
		return nil, fmt.Errorf("move of %s: %w", tp, partlog.ErrClosed)
	}
	o := partlog.Options{
		TopicID: future.TopicID(), Config: e.log.Config(), RecoveryPoint: future.EndOffset(), LogStart: future.StartOffset(), Clean: true,
	}
	name, err := s.futureName(tp, readySuffix)
	if err != nil {
		return nil, err
	}
	flushed := future.RecoveryPoint()
	h := &half{to: f.dir, ready: f.dir.file(name), old: e, o: o}
	if err := s.makeReady(h, future); err != nil {
		return nil, s.held(tp, h, future, flushed, err)
	}
	s.mu.Lock()
	delete(s.futures, tp)
	s.halves[tp] = h
	s.mu.Unlock()
	return s.finish(tp, h)
}

// makeReady closes the copy and gives it the name by which a start knows that it is complete.
func (s *Set) makeReady(h *half, future *partlog.Log) error {
	if err := future.Close(true); err != nil {
		return err
	}
	if err := s.o.FS.Rename(future.Dir(), h.ready); err != nil {
		return err
	}
	return s.o.FS.SyncDir(h.to.path)
}

// held is the error of a copy that could not be made ready. If its directory is online all the same it is opened again, to go on with, or
// else removed; the log was not touched. flushed is up to where the copy was on disk before it was closed.
func (s *Set) held(tp TopicPartition, h *half, future *partlog.Log, flushed int64, err error) error {
	s.failIO(h.to, err)
	if !h.to.online() {
		s.mu.Lock()
		delete(s.futures, tp)
		s.mu.Unlock()
		_ = future.Close(false) // the log itself has everything
		return &api.Error{Code: api.KafkaStorageError, Message: fmt.Sprintf("move of %s: %v", tp, err), Err: errors.Join(ErrHeld, err)}
	}
	path := future.Dir()
	if ok, e := disk.Exists(s.o.FS, h.ready); e == nil && ok {
		path = h.ready
	}
	_ = future.Close(false) // it may be open still
	l, openErr := s.openAt(h.to, filepath.Base(path), tp, partlog.Options{TopicID: h.o.TopicID, Config: h.o.Config, RecoveryPoint: flushed})
	s.mu.Lock()
	delete(s.futures, tp)
	if openErr == nil {
		s.futures[tp] = &entry{l, h.to}
	}
	s.mu.Unlock()
	if openErr != nil {
		_ = s.o.FS.RemoveAll(path) // else the next start does
	}
	return &api.Error{Code: api.KafkaStorageError, Message: fmt.Sprintf("move of %s: %v", tp, err), Err: errors.Join(ErrHeld, err, openErr)}
}

// finish puts a complete copy in place. It can be called again after it failed. The name is locked.
func (s *Set) finish(tp TopicPartition, h *half) (*partlog.Log, error) {
	if err := s.clearPlace(tp, h.old); err != nil {
		if !h.old.dir.online() { // the next start looks what is where
			return nil, s.lost(tp, h)
		}
		return nil, err
	}
	place := h.to.file(tp.String())
	waiting, err := disk.Exists(s.o.FS, h.ready)
	if err == nil && waiting {
		err = s.o.FS.Rename(h.ready, place)
	}
	if err == nil {
		err = s.o.FS.SyncDir(h.to.path)
	}
	var l *partlog.Log
	if err == nil {
		l, err = s.openAt(h.to, tp.String(), tp, h.o)
	}
	if err != nil {
		err = s.failed(h.to, err)
		if !h.to.online() {
			return nil, s.lost(tp, h)
		}
		return nil, err
	}
	from := h.old
	s.mu.Lock()
	delete(s.halves, tp)
	s.logs[tp] = &entry{l, h.to}
	s.mu.Unlock()
	for _, d := range []*dir{h.to, from.dir} {
		if err := d.writeOffsets(s.o.FS, s.allOf(d)); err != nil {
			s.failIO(d, err)
		}
	}
	if !h.to.online() {
		s.dropLogs(h.to)
		return nil, s.lost(tp, h)
	}
	s.log.Info("log moved", "topic", tp.Topic, "partition", tp.Partition, "from", from.dir.path, "to", h.to.path)
	return l, nil
}

// clearPlace takes the old log out of the way, unless an earlier attempt has.
func (s *Set) clearPlace(tp TopicPartition, old *entry) error {
	there, err := disk.Exists(s.o.FS, old.log.Dir())
	if err != nil {
		return s.failed(old.dir, err)
	}
	if !there {
		if err := s.o.FS.SyncDir(old.dir.path); err != nil {
			return s.failed(old.dir, err)
		}
		return nil
	}
	to, err := s.moveAside(tp, old, deleteSuffix)
	if err == nil {
		s.run.removeLater(to, time.Now().Add(s.o.DeleteDelay))
	}
	return err
}

// lost gives up a move because a directory of it has failed.
func (s *Set) lost(tp TopicPartition, h *half) error {
	s.mu.Lock()
	delete(s.halves, tp)
	s.mu.Unlock()
	return &api.Error{Code: api.KafkaStorageError, Err: ErrOffline, Message: fmt.Sprintf("a log directory of the move of %s to %s failed", tp, h.to.path)}
}

// resume goes on with a move that got stuck half-way, if there is one of that topic. The name is locked.
func (s *Set) resume(tp TopicPartition, o partlog.Options) (l *partlog.Log, ok bool, err error) {
	s.mu.RLock()
	h := s.halves[tp]
	s.mu.RUnlock()
	if h == nil {
		return nil, false, nil
	}
	if h.o.TopicID != o.TopicID && !o.TopicID.IsZero() && !h.o.TopicID.IsZero() {
		return nil, false, s.dropHalf(tp)
	}
	h.o.Config = o.Config
	l, err = s.finish(tp, h)
	return l, true, err
}

// dropHalf removes what there is of a partition whose move got stuck half-way. The name is locked.
func (s *Set) dropHalf(tp TopicPartition) error {
	s.mu.Lock()
	h := s.halves[tp]
	delete(s.halves, tp)
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	for _, path := range []string{h.old.log.Dir(), h.ready, h.to.file(tp.String())} {
		if err := s.o.FS.RemoveAll(path); err != nil {
			return s.failed(h.to, err)
		}
	}
	return nil
}
