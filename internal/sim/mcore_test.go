package sim

import (
	"flag"
	"fmt"
	"os"
	gc "runtime/debug"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	mirrorCoreSeeds = flag.Int("sim.mcseeds", 3, "how many seeds of two clusters of cores that mirror each other run")
	mirrorCoreFrom  = flag.Uint64("sim.mcfrom", 1, "the first of them")
)

// mirrorCoresOf runs one seed in a bubble, with all randomness from the seed.
func mirrorCoresOf(t *testing.T, seed uint64, tune func(*mirrorCores)) (p *mirrorCores) {
	cryptotest.SetGlobalRandom(t, seed)
	defer gc.SetGCPercent(gc.SetGCPercent(400)) // the heap is small, and its collection a third of the work
	synctest.Test(t, func(*testing.T) {
		p = runMirrorCores(seed, func(p *mirrorCores) {
			if *verbose {
				p.echo = os.Stdout
			}
			if tune != nil {
				tune(p)
			}
		})
	})
	return p
}

func TestMirrorCores(t *testing.T) {
	for i := range *mirrorCoreSeeds {
		seed := *mirrorCoreFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			p := mirrorCoresOf(t, seed, nil)
			if len(p.failed) > 0 {
				dir := keepLog(t, seedName("mirrorcore", seed), p.lines)
				t.Errorf("%s\n\nthe end of the event log, which is in %s:\n%s\n\nrerun: go test ./internal/sim -run 'TestMirrorCores' -sim.mcfrom=%d -sim.mcseeds=1 -sim.v", p.failed[0], dir, tail(p.lines, 120), seed)
			}
		})
	}
}

// One seed of mirrors is one trace as well, though the product's drivers and fetchers are goroutines there.
func TestMirrorTraceRepeats(t *testing.T) {
	traces := map[uint64]uint64{}
	for _, seed := range []uint64{4, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			got := mirrorCoresOf(t, seed, nil).trace.Sum64()
			if want, ok := traces[seed]; ok && got != want {
				t.Errorf("the second run's trace is %016x, the first one's %016x", got, want)
			}
			traces[seed] = got
		})
	}
}
