package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/machine"
)

// crasher is a file system that loses power at a chosen operation.
type crasher struct {
	disk.FS
	mem  *disk.Mem
	left atomic.Int64 // operations until the crash; it happens at 0
	torn bool
}

func newCrasher(seed uint64) *crasher {
	c := &crasher{mem: disk.NewMem(seed)}
	c.left.Store(1 << 40)
	c.FS = disk.Faulty(c.mem, func(op disk.Op, name string) error {
		switch op {
		case disk.OpWrite, disk.OpSync, disk.OpCreate, disk.OpRename, disk.OpSyncDir, disk.OpTruncate, disk.OpRemove, disk.OpMkdir:
			left := c.left.Add(-1)
			if left == 0 {
				if c.torn {
					c.mem.CrashTorn()
				} else {
					c.mem.Crash()
				}
			}
			if left <= 0 {
				return fmt.Errorf("%w: power is off", errTest)
			}
		}
		return nil
	})
	return c
}

// TestCrash cuts the power at random operations, also during the recovery, and
// checks each time that what was committed is there, whole and in order.
func TestCrash(t *testing.T) {
	crashes, lives := 0, 0
	for seed := uint64(1); seed <= 25; seed++ {
		rnd := rand.New(rand.NewPCG(seed, 1))
		c := newCrasher(seed)
		committed := int64(0)
		for life := range 8 {
			lives++
			c.torn = rnd.IntN(4) > 0
			if life < 7 {
				c.left.Store(1 + rnd.Int64N(120))
			} else {
				c.left.Store(1 << 40) // the last life ends well
			}
			hw, err := liveUntilCrash(t, c, rnd, committed)
			if t.Failed() {
				t.Fatalf("seed %d, life %d", seed, life)
			}
			if err == nil && life < 7 {
				continue // closed before the crash came
			}
			if life == 7 && (err != nil || hw < committed) {
				t.Fatalf("seed %d: the last life: high watermark %d, %v", seed, hw, err)
			}
			crashes++
			committed = max(committed, hw)
		}
	}
	if crashes < lives/2 {
		t.Errorf("only %d crashes in %d lives", crashes, lives)
	}
}

// liveUntilCrash opens the node, checks what it has and goes on proposing until the
// power fails or it has done enough. It returns the highest high watermark that was seen.
func liveUntilCrash(t *testing.T, c *crasher, rnd *rand.Rand, committed int64) (int64, error) {
	fatal := make(chan error, 1)
	obs := &observer{}
	n, err := Open(Options{
		FS: c, Dir: "/meta", Self: testMember(1), Voters: voterList(1),
		Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { fatal <- err },
		Snapshot: obs.snapshot, SnapshotBytes: 1500, SegmentBytes: 1000, KeepEntries: 2,
	})
	if err != nil {
		if c.left.Load() > 0 {
			t.Errorf("open: %v", err)
		}
		return committed, err
	}
	obs.n = n
	n.Start()
	for {
		s, changed := n.Changed()
		if s.IsLeader && s.HighWatermark >= committed && s.HighWatermark == s.EndOffset {
			break
		}
		select {
		case <-changed:
		case err := <-fatal:
			return committed, err
		case <-time.After(5 * time.Second):
			t.Errorf("committed records are missing: %+v, want high watermark %d", *s, committed)
			return committed, nil
		}
	}
	s := n.Status()
	reader := &observer{n: n}
	if err := reader.catchUp(); err == nil {
		wantValues(t, reader.values(), int(s.HighWatermark))
	} else if c.left.Load() > 0 {
		t.Errorf("read: %v", err)
	}
	hw := s.HighWatermark
	next := int(s.EndOffset)
	for range rnd.IntN(60) {
		k := 1 + rnd.IntN(5)
		if _, err := n.Propose(t.Context(), s.Epoch, batch(t, next, k)); err != nil {
			break
		}
		next += k
		for rnd.IntN(3) > 0 {
			st, changed := n.Changed()
			if hw = max(hw, st.HighWatermark); hw == int64(next) || !st.IsLeader {
				break
			}
			<-changed
		}
	}
	cerr := n.Close()
	hw = max(hw, n.Status().HighWatermark)
	if cerr == nil {
		select {
		case cerr = <-fatal: // at the very end
		default:
		}
	}
	if cerr != nil && c.left.Load() > 0 {
		t.Errorf("died of %v", cerr)
	}
	return hw, cerr
}

// TestCrashUnderMachine checks that a machine's replies survive a crash.
func TestCrashUnderMachine(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		c := newCrasher(seed)
		c.torn = true
		fatal := make(chan error, 1)
		o := single(t, c)
		o.Logger = slog.New(slog.DiscardHandler)
		o.Fatal = func(err error) { fatal <- err }
		n, epoch := startSingle(t, o)
		c.left.Store(int64(10 + 3*seed))
		m := &lister{}
		l := n.MachineLog(epoch, MachineLogOptions{})
		rt := machine.New(machine.Options{Machine: m, Log: l})
		rt.Start()
		l.Watch(rt.Committed, rt.Lost)
		<-rt.Ready()
		replied := 0
		for {
			v, err := rt.Do(t.Context(), m.add(2))
			if err != nil {
				if !errors.Is(err, machine.ErrLost) {
					t.Fatal(err)
				}
				break
			}
			replied = v.(int)
		}
		<-fatal
		l.Close()
		_ = n.Close() // it failed
		c.left.Store(1 << 40)
		o.Fatal = func(err error) { t.Error(err) }
		n, epoch = startSingle(t, o)
		again := &lister{}
		_, stop := machineOn(t, n, epoch, again, 0)
		if got := len(again.values()); got < replied || replied == 0 {
			t.Errorf("seed %d: %d records, %d were promised", seed, got, replied)
		}
		wantValues(t, again.values(), len(again.values()))
		stop()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
