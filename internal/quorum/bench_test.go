package quorum

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/machine"
)

// BenchmarkPropose measures propose to commit of one voter on the real file system,
// with a sync for every group, from one and from many callers.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			o := single(b, disk.OS())
			o.Dir = b.TempDir()
			n, epoch := startSingle(b, o)
			defer func() { _ = n.Close() }() // a failure is fatal already
			payload := batch(b, 0, 1)
			var wg sync.WaitGroup
			b.SetBytes(int64(len(payload)))
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for range b.N/callers + min(1, b.N%callers-min(i, b.N%callers)) {
						last, err := n.Propose(b.Context(), epoch, append([]byte(nil), payload...))
						if err != nil {
							b.Error(err)
							return
						}
						for s, changed := n.Changed(); s.HighWatermark <= last; s, changed = n.Changed() {
							<-changed
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkSync is the floor: an append of as many bytes and a sync.
func BenchmarkSync(b *testing.B) {
	f, err := disk.OS().Create(b.TempDir() + "/file")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only the time matters
	payload := make([]byte, 120)
	for b.Loop() {
		if _, err := f.Write(payload); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// nothing is a machine without state.
type nothing struct{}

func (nothing) Apply(int64, machine.Record) {}
func (nothing) Loaded(time.Time)            {}

// BenchmarkMachine measures commands with one record of 100 bytes, from command to
// reply at commit, through the whole runtime.
func BenchmarkMachine(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			o := single(b, disk.OS())
			o.Dir = b.TempDir()
			n, epoch := startSingle(b, o)
			defer func() { _ = n.Close() }() // a failure is fatal already
			rt, stop := machineOn(b, n, epoch, nothing{}, 0)
			defer stop()
			value := make([]byte, 100)
			cmd := func(time.Time) machine.Result {
				return machine.Result{Records: []machine.Record{{Value: value}}}
			}
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for range b.N/callers + min(1, b.N%callers-min(i, b.N%callers)) {
						if _, err := rt.Do(b.Context(), cmd); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
