package sim

import (
	"errors"
	"syscall"
	"time"

	"milena/internal/disk"
	"milena/internal/logdir"
)

// fill leaves a host's data disk little space, for a while.
func (f *faults) fill(h *host) {
	free, total, err := h.fs.Free("/")
	if err != nil {
		f.c.failf("disk of host %d: %v", h.id, err)
		return
	}
	left := int64(f.c.rnd.IntN(4000))
	f.c.logf("host %d: the disk has %d bytes left", h.id, left)
	h.fs.SetCapacity(total - free + left)
	h.full, h.fullIn = true, h.gen
	f.later(4*time.Second, h.makeRoom)
}

// makeRoom ends a lack of space.
func (h *host) makeRoom() {
	if h.full {
		h.c.logf("host %d: the disk has space again", h.id)
		h.fs.SetCapacity(1 << 40)
		h.full = false
	}
}

// slowDown makes a host's disks slow, for a while.
func (f *faults) slowDown(h *host) {
	most := f.c.between(time.Millisecond, 40*time.Millisecond)
	f.c.logf("host %d: the disks are slow, %v for each thing at most", h.id, most)
	h.slow = most
	f.later(4*time.Second, func() {
		f.c.logf("host %d: the disks are fast again", h.id)
		h.slow = 0
	})
}

// excused says whether an error comes from a disk that was full, or a directory that failed, in the life of this process.
func (h *host) excused(err error) bool {
	return h.fullIn == h.gen && disk.Full(err) || h.dirIn == h.gen && (errors.Is(err, syscall.EIO) || errors.Is(err, logdir.ErrOffline))
}

// mostWait bounds how far a slow disk falls behind.
const mostWait = 2 * time.Second

// work runs fn when the host's disks are through with all that came before: a slow disk makes everything wait in turn.
func (h *host) work(fn func()) {
	now := time.Now()
	if h.slow == 0 && !h.ready.After(now) {
		fn()
		return
	}
	if h.ready.Before(now) {
		h.ready = now
	}
	if h.slow > 0 && h.ready.Sub(now) < mostWait {
		h.ready = h.ready.Add(h.c.between(0, h.slow))
	}
	h.c.after(h.ready.Sub(now), h.live(fn))
}
