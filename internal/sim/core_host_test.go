package sim

import (
	"fmt"
	"log/slog"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
)

// host is a machine: disks that survive, and while it is up a broker and, on the first few, a controller.
type host struct {
	c    *cores
	id   int
	fs   *disk.Mem
	meta *disk.Mem // of the controller: fs, or one of its own
	up   bool
	gen  int // starts so far
	ctl  *ctl
	brk  *broker
	busy bool // it shuts down or is about to start

	touched bool // something ran on it since its tasks were looked at

	badDir bool // its second log directory fails
	dirIn  int  // the start during whose life it last did

	full   bool          // there is little space on fs
	fullIn int           // the start during whose life there last was
	slow   time.Duration // the most that the disks take for what the host is asked; 0: no time
	ready  time.Time     // when they are through with what it was asked before
}

// live guards fn: it runs only while the host hasn't stopped since.
func (h *host) live(fn func()) func() {
	gen := h.gen
	return func() {
		if h.up && h.gen == gen && len(h.c.failed) == 0 {
			h.touched = true
			fn()
		}
	}
}

// stop says how a host ends.
type stop int

const (
	kill  stop = iota // the process ends, what it wrote is there
	power             // unflushed bytes are gone
	torn              // as power, and writes under way are there in part
	leave             // in order, after a controlled shutdown
	numStops
)

func (s stop) String() string { return [...]string{"kill", "power", "torn", "leave"}[s] }

// end ends the host's process at once.
func (h *host) end(how stop) {
	if !h.up {
		return
	}
	h.c.logf("host %d: %s", h.id, how)
	if h.brk != nil && h.brk.mirrors != nil {
		h.brk.mirrors.end()
	}
	clean := how == leave
	if clean {
		clean = h.brk.close()
		if h.ctl != nil {
			_ = h.ctl.m.Close()
		}
	}
	h.up, h.ctl, h.brk = false, nil, nil
	h.gen++
	for _, fs := range h.disks() {
		switch how {
		case kill, leave:
			fs.Kill()
		case power:
			fs.Crash()
		case torn:
			fs.CrashTorn()
		}
	}
	h.c.check.stopped(h.id, how, clean)
}

// disks are the host's disks.
func (h *host) disks() []*disk.Mem {
	if h.meta == h.fs {
		return []*disk.Mem{h.fs}
	}
	return []*disk.Mem{h.fs, h.meta}
}

// start starts the host's process.
func (h *host) start() {
	if h.up {
		return
	}
	h.c.logf("host %d: start", h.id)
	h.up, h.busy = true, false
	h.gen++
	if h.full {
		h.fullIn = h.gen
	}
	if h.badDir {
		h.dirIn = h.gen
	}
	var err error
	if h.id < h.c.controllers {
		if h.ctl, err = startCtl(h.c, h); err != nil {
			h.broken("the controller doesn't start", err)
			return
		}
	}
	if h.brk, err = startBroker(h.c, h); err != nil {
		h.broken("the broker doesn't start", err)
	}
}

// broken takes an error that ends the host's process. Only a full disk excuses it: whoever looks after the host starts it
// again later.
func (h *host) broken(what string, err error) {
	if !h.excused(err) {
		h.c.failf("host %d: %s: %v", h.id, what, err)
		return
	}
	h.c.logf("host %d: %s: %v", h.id, what, err)
	h.end(kill)
	h.c.faults.revive(h)
}

// leave shuts the host down in order: its leaderships move first.
func (h *host) leave() {
	h.busy = true
	h.brk.wantShutdown = true
	h.c.logf("host %d: wants to shut down", h.id)
	h.c.after(5*time.Second, h.live(func() { h.end(kill) })) // the operator loses patience
}

func dirID(id int) ids.UUID { return ids.UUID{0: 8, 15: byte(id + 1)} }

// failf is loop's, but for errors that a full disk excuses.
func (h *host) failf(err error, format string, args ...any) {
	if err != nil && !h.excused(err) {
		h.c.failf("host %d: %s: %v", h.id, fmt.Sprintf(format, args...), err)
	}
}

// format prepares a new host's disk.
func (h *host) format() error {
	next := dirID(h.id)
	return logdir.Format(logdir.FormatOptions{
		FS: h.fs, Dirs: coreDirs, NodeID: int32(h.id), ClusterID: h.c.clusterID,
		NewID: func() (ids.UUID, error) { defer func() { next[1]++ }(); return next, nil },
	})
}

// logger writes what the code under test logs to the event log.
func (c *cores) logger(h *host) *slog.Logger {
	level := slog.LevelInfo
	if *debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(logWriter{c.logf, h}, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

type logWriter struct {
	logf func(format string, args ...any)
	h    *host
}

func (w logWriter) Write(p []byte) (int, error) {
	w.logf("host %d: | %s", w.h.id, string(p[:max(len(p)-1, 0)]))
	return len(p), nil
}

func tpName(topic string, partition int32) string { return fmt.Sprintf("%s-%d", topic, partition) }
