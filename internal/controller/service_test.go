package controller

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/quorum"
)

// A state that can't be loaded is tried again and again, with a pause: the disk may come back.
func TestServicePausesBeforeItLoadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		var broken atomic.Bool
		var loads atomic.Int64
		fsys := disk.Faulty(mem, func(op disk.Op, name string) error {
			if op == disk.OpOpen && broken.Load() {
				if loads.Add(1) > 10_000 { // it never waits: this ends it
					select {}
				}
				return errors.New("input/output error")
			}
			return nil
		})
		self := quorum.Member{ID: 1, Directory: ids.UUID{0: 7}}
		start := func() (*quorum.Node, *Service) {
			var s *Service
			n, err := quorum.Open(quorum.Options{
				FS: fsys, Dir: "/meta", Self: self, Voters: []quorum.Voter{{Member: self}}, SnapshotInterval: time.Second,
				Snapshot: func(w io.Writer) (int64, error) { return s.Snapshot(w) }, Fatal: func(err error) { t.Errorf("quorum: %v", err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			o := newBench(t, nil).s.o
			s = NewService(ServiceOptions{Node: n, State: o})
			return n, s
		}
		run := func(s *Service, d time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(d)
			cancel()
			<-done
		}
		n, s := start()
		n.Start()
		run(s, time.Minute)
		if !n.Status().HasSnapshot {
			t.Fatal("no snapshot was written")
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}

		n, s = start()
		n.Start()
		synctest.Wait()
		broken.Store(true)
		run(s, 10*time.Second)
		if tries := loads.Load(); tries < 10 || tries > 200 {
			t.Errorf("the snapshot was opened %d times in 10 s", tries)
		}
		broken.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Second)
		if !s.Active() {
			t.Error("the service doesn't serve after the disk has come back")
		}
		cancel()
		<-done
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
