package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	seedCount = flag.Int("sim.seeds", 60, "how many seeds of the cores run")
	seedFrom  = flag.Uint64("sim.from", 1, "the first of them")
	verbose   = flag.Bool("sim.v", false, "print the event log as it comes")
)

// coresOf runs one seed in a bubble, with all randomness from the seed.
func coresOf(t *testing.T, seed uint64) *cores {
	cryptotest.SetGlobalRandom(t, seed)
	var c *cores
	synctest.Test(t, func(*testing.T) {
		c = runCores(seed, func(c *cores) {
			if *verbose {
				c.echo = os.Stdout
			}
		})
	})
	return c
}

func TestCores(t *testing.T) {
	for i := range *seedCount {
		seed := *seedFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			c := coresOf(t, seed)
			if len(c.failed) > 0 {
				t.Errorf("%s\n\nthe end of the event log:\n%s\n\nrerun: go test ./internal/sim -run 'TestCores' -sim.from=%d -sim.seeds=1 -sim.v", c.failed[0], c.tail(120), seed)
			}
		})
	}
}

// One seed is one trace: what is found can be found again.
func TestTraceRepeats(t *testing.T) {
	var want uint64
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := coresOf(t, 7)
			if got := c.trace.Sum64(); i == 0 {
				want = got
			} else if got != want {
				t.Errorf("the second run's trace is %016x, the first one's %016x", got, want)
			}
		})
	}
}

// nap waits in the virtual time of a bubble, where all of this runs.
func nap(d time.Duration) { time.Sleep(d) }
