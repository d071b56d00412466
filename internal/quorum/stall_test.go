package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/disk"
)

// hanging is a disk whose writes wait while it hangs.
type hanging struct {
	gate atomic.Pointer[chan struct{}]
}

func (h *hanging) rule(op disk.Op, _ string) error {
	if g := h.gate.Load(); g != nil && (op == disk.OpWrite || op == disk.OpSync) {
		<-*g
	}
	return nil
}

func (h *hanging) hang() {
	g := make(chan struct{})
	h.gate.Store(&g)
}

func (h *hanging) goOn() { close(*h.gate.Swap(nil)) }

// A leader whose disk hangs doesn't lead, as far as anybody can ask it, once the others may have elected another one: what needs no
// commit must not be answered by two leaders.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	const limit = 2 * defaultElectionTimeout
	for name, busy := range map[string]bool{"while it writes a change": true, "while it notes the commit": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disks := map[int32]*hanging{}
				c := newCluster(t, 3, func(o *Options) {
					h := &hanging{}
					disks[o.Self.ID] = h
					o.FS = disk.Faulty(o.FS, h.rule)
				})
				defer c.close()
				old, epoch := c.leader()
				n := c.up(old)
				mustPropose(t, n, epoch, 0, 2)
				disks[old].hang()
				begun := time.Now()
				if busy {
					go func() { _, _ = n.Propose(t.Context(), epoch, batch(t, 2, 1)) }()
				}
				s := await(t, n, "end of the leadership", func(s *Status) bool { return !s.IsLeader })
				if s.HasLeader || s.Epoch != epoch {
					t.Errorf("the hanging node shows %+v", *s)
				}
				if d := time.Since(begun); d < limit || d > limit+100*time.Millisecond {
					t.Errorf("it led for %v after its disk hung, not %v", d, limit)
				}
				next, newer := c.leader(old)
				if newer <= epoch {
					t.Errorf("the next leader is of epoch %d after %d", newer, epoch)
				}
				end := c.up(next).Status().EndOffset
				mustPropose(t, c.up(next), newer, int(end), 1)
				time.Sleep(time.Minute)
				if n.Status().IsLeader {
					t.Error("the hanging node leads again")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := n.Propose(ctx, epoch, batch(t, 9, 1)); err == nil {
					t.Error("the hanging node has taken a change")
				}
				disks[old].goOn()
				if got := c.converged(1, 2, 3); got < end+1 {
					t.Errorf("the voters agree up to %d, but %d was committed", got, end+1)
				}
				if s := n.Status(); s.IsLeader || s.Epoch < newer {
					t.Errorf("after the disk has gone on: %+v", *s)
				}
			})
		})
	}
}

// A disk that is slow, but for less than it takes the others to elect another leader, changes nothing, and one that hangs just longer
// gives the leadership back if nobody else has taken it.
func TestSlowDiskOfTheLeader(t *testing.T) {
	for name, d := range map[string]time.Duration{"short": 400 * time.Millisecond, "long": 1100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disks := map[int32]*hanging{}
				c := newCluster(t, 3, func(o *Options) {
					h := &hanging{}
					disks[o.Self.ID] = h
					o.FS = disk.Faulty(o.FS, h.rule)
				})
				defer c.close()
				old, epoch := c.leader()
				n := c.up(old)
				mustPropose(t, n, epoch, 0, 2)
				for _, id := range c.ids() {
					disks[id].hang() // no rival: all of them are slow
				}
				go func() { _, _ = n.Propose(t.Context(), epoch, batch(t, 2, 1)) }()
				_, changed := n.Changed()
				time.Sleep(d)
				if led := n.Status().IsLeader; led != (d < n.stallLimit()) {
					t.Errorf("after %v it leads: %v", d, led)
				}
				select {
				case <-changed:
				default:
					if d > n.stallLimit() {
						t.Error("nobody was told")
					}
				}
				for _, id := range c.ids() {
					disks[id].goOn()
				}
				time.Sleep(5 * time.Second)
				end := c.converged(1, 2, 3)
				id, epoch := c.leader()
				mustPropose(t, c.up(id), epoch, int(end), 1)
			})
		})
	}
}

// The only voter goes on leading, however long its disk takes: nobody can take its place.
func TestHangingDiskOfTheOnlyVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		o := single(t, disk.Faulty(disk.NewMem(1), h.rule))
		n, epoch := startSingle(t, o)
		mustPropose(t, n, epoch, 0, 2)
		h.hang()
		go func() { _, _ = n.Propose(t.Context(), epoch, batch(t, 2, 1)) }()
		time.Sleep(time.Minute)
		if !n.Status().IsLeader {
			t.Error("it doesn't lead")
		}
		h.goOn()
		await(t, n, "commit", func(s *Status) bool { return s.HighWatermark == 3 })
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
