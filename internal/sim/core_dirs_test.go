package sim

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/machine"
)

// coreDirs are the log directories of each host. The second one may fail.
var coreDirs = []string{"/data", "/more"}

// diskRule has the second log directory refuse everything but reads of what is open already, while it is bad.
func (h *host) diskRule(op disk.Op, name string) error {
	if h.badDir && op != disk.OpRead && op != disk.OpClose && strings.HasPrefix(name, coreDirs[1]+"/") {
		return syscall.EIO
	}
	return nil
}

// badRead says whether a read failed for a directory that is bad now.
func (c *cores) badRead(err error) bool {
	return errors.Is(err, syscall.EIO) && slices.ContainsFunc(c.hosts, func(h *host) bool { return h.badDir })
}

// failDir has a host's second log directory fail. What was written to it is back when it is mended and the host has started anew; until
// then the host may be started without it.
func (f *faults) failDir(h *host) {
	if !h.up || h.busy || h.badDir {
		return
	}
	f.c.logf("host %d: log directory %s fails", h.id, coreDirs[1])
	h.badDir, h.dirIn = true, h.gen
	f.c.hist.stop(int32(h.id), time.Now(), false) // what the host vouched for is not there for now
	f.restartBad(h)
}

// restartBad restarts a host with a bad directory after a while, and again until it is mended.
func (f *faults) restartBad(h *host) {
	f.later(4*time.Second, func() {
		if f.c.chance(0.6) {
			h.mendDir()
		}
		f.stop(h)
		if h.badDir {
			f.restartBad(h)
		}
	})
}

func (h *host) mendDir() {
	h.c.logf("host %d: log directory %s is mended", h.id, coreDirs[1])
	h.badDir = false
}

// moveDir moves a host's replica of a partition to another log directory.
func (f *faults) moveDir(h *host) {
	tp, to := pick(f.c.loop, f.c.tps), pick(f.c.loop, coreDirs)
	if h.up {
		f.c.logf("host %d: move %s to %s: %v", h.id, tp, to, h.brk.mgr.MoveLog(tp.topic, tp.partition, to))
	}
}

// lostDir takes the failure of a log directory, as package node does.
func (b *broker) lostDir(path string, err error) {
	if !b.h.excused(err) {
		b.c.failf("log directory %s of host %d failed: %v", path, b.h.id, err)
		return
	}
	b.c.logf("host %d: log directory %s is offline: %v", b.h.id, path, err)
	b.mgr.DirectoryLost(filepath.Clean(path), err)
}

// logDirs are the ids of the log directories that work, or of those that failed.
func (b *broker) logDirs(online bool) (out []ids.UUID) {
	for _, d := range b.dirs.Dirs() {
		if d.Online == online && !d.ID.IsZero() {
			out = append(out, d.ID)
		}
	}
	return out
}

// tendDirs goes on with moves between directories, and tells the controller where replicas lie.
func (b *broker) tendDirs() {
	b.mgr.StepMoves()
	b.sendAssign()
	b.after(b.c.between(20*time.Millisecond, 150*time.Millisecond), b.tendDirs)
}

func (b *broker) sendAssign() {
	if b.assigning || b.epoch < 0 {
		return
	}
	req := b.mgr.TakeAssign()
	if req == nil {
		return
	}
	b.assigning = true
	var list []controller.DirAssignment
	for _, d := range req.Directories {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				list = append(list, controller.DirAssignment{Dir: ids.UUID(d.ID), Topic: ids.UUID(t.TopicID), Partition: p.Partition})
			}
		}
	}
	b.request(func(s *controller.State, now time.Time) machine.Result {
		return s.AssignDirs(now, req.BrokerID, req.BrokerEpoch, list)
	}, func(_ any, err error) {
		b.assigning = false
		if err != nil {
			b.c.logf("host %d: directories not assigned: %v", b.h.id, err)
		}
	})
}
