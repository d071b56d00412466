package logdir

import (
	"path/filepath"
	"strings"
	"time"

	"milena/internal/partlog"
)

// setTwinsAside renames all but the newest of the logs that one partition has in several directories to -stray. A directory that was
// offline comes back with them: meanwhile the partition was given a log in another one, or its topic was deleted and another of its name
// created. Nothing uses or removes what is set aside; the operator is told.
func (s *Set) setTwinsAside() error {
	type found struct {
		dir *dir
		at  time.Time
	}
	newest := map[TopicPartition]found{}
	for _, d := range s.dirs {
		if !d.online() {
			continue
		}
		list, err := d.logsIn(s.o.FS)
		if err != nil {
			continue // loading the directory says so
		}
		for _, tp := range list {
			this := found{d, s.createdAt(d, tp)}
			other, twice := newest[tp]
			if twice && (s.hollow(d, tp) || s.hollow(other.dir, tp)) {
				if s.hollow(d, tp) {
					this, other = other, this
				}
				newest[tp] = this
				if err := s.removeEmpty(other.dir, tp); err != nil {
					return err
				}
				continue
			}
			if twice && this.at.Equal(other.at) {
				continue // it can't be told which is in use: loading refuses both
			}
			if twice && this.at.Before(other.at) {
				this, other = other, this
			}
			newest[tp] = this
			if !twice {
				continue
			}
			to := other.dir.file(s.asideName(tp, straySuffix))
			s.log.Error("a partition has logs in two directories: the older one is set aside", "topic", tp.Topic, "partition", tp.Partition,
				"in_use", this.dir.file(tp.String()), "set_aside", to)
			if err := s.o.FS.Rename(other.dir.file(tp.String()), to); err != nil {
				return err
			}
			if err := s.o.FS.SyncDir(other.dir.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// createdAt is when a partition's log was created, zero if that isn't known: partition.metadata is written then and not changed.
func (s *Set) createdAt(d *dir, tp TopicPartition) time.Time {
	info, err := s.o.FS.Stat(d.file(filepath.Join(tp.String(), "partition.metadata")))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// hollow reports whether a log's directory holds nothing: its creation failed, as on a full disk, before it had a topic id or a record.
func (s *Set) hollow(d *dir, tp TopicPartition) bool {
	id, err := partlog.ReadTopicID(s.o.FS, d.file(filepath.Join(tp.String(), "partition.metadata")))
	return err == nil && id.IsZero() && s.empty(d, tp)
}

// empty reports whether a log's directory is there and holds no record.
func (s *Set) empty(d *dir, tp TopicPartition) bool {
	entries, err := s.o.FS.ReadDir(d.file(tp.String()))
	if err != nil {
		return false
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.Contains(e.Name(), ".log") && info.Size() > 0 {
			return false
		}
	}
	return true
}

// removeEmpty removes the directory of a log whose creation failed.
func (s *Set) removeEmpty(d *dir, tp TopicPartition) error {
	s.log.Info("the directory of a log whose creation had failed is removed", "topic", tp.Topic, "partition", tp.Partition, "dir", d.path)
	if err := s.o.FS.RemoveAll(d.file(tp.String())); err != nil {
		return err
	}
	return s.o.FS.SyncDir(d.path)
}
