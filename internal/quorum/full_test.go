package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/disk"
)

// A full disk stops changes, not the node: what was proposed is committed when there is space again, and a node that waits can
// be closed.
func TestFullDiskOfTheRaftLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		o := single(t, mem)
		n, epoch := startSingle(t, o)
		mustPropose(t, n, epoch, 0, 2)
		free, total, err := mem.Free(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		mem.SetCapacity(total - free + 20)                                       // a write gets part of the way
		if _, err := n.Propose(t.Context(), epoch, batch(t, 2, 2)); err != nil { // taken, not committed
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if hw := n.Status().HighWatermark; hw != 2 {
			t.Errorf("committed up to %d on a full disk", hw)
		}
		if end := readAll(t, n, 0); end != 2 {
			t.Errorf("read up to %d", end)
		}
		mem.SetCapacity(total)
		await(t, n, "commit", func(s *Status) bool { return s.HighWatermark == 4 })
		if err := n.Close(); err != nil {
			t.Error(err)
		}

		fatal := make(chan error, 1)
		o = single(t, mem)
		o.Fatal = func(err error) { fatal <- err }
		n, epoch = startSingle(t, o)
		if end := readAll(t, n, 0); end != 4 {
			t.Errorf("after a restart: read up to %d", end)
		}
		free, _, err = mem.Free(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		mem.SetCapacity(total - free)
		if _, err := n.Propose(t.Context(), epoch, batch(t, 4, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_ = n.Close() // a write that never found a place is no clean end
		synctest.Wait()
		select {
		case err := <-fatal:
			if !errors.Is(err, disk.ErrNoSpace) {
				t.Error(err)
			}
		default:
		}
	})
}

// Close waits for the last words of a node that failed: whoever has closed it may take its logger away.
func TestCloseWaitsForFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		o := single(t, mem)
		told := false
		o.Fatal = func(error) {
			time.Sleep(time.Second)
			told = true
		}
		n, epoch := startSingle(t, o)
		mem.Crash()
		if _, err := n.Propose(t.Context(), epoch, batch(t, 0, 1)); err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err == nil || !told {
			t.Errorf("closed with %v, told %v", err, told)
		}
	})
}
