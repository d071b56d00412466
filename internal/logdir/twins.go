package logdir

import (
	"path/filepath"
	"time"
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
