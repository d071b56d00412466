//go:build synctests

package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

var (
	nodeSeeds = flag.Int("sim.nodeseeds", 4, "how many seeds of whole nodes run")
	nodeFrom  = flag.Uint64("sim.nodefrom", 1, "the first of them")
)

func TestNodes(t *testing.T) {
	for i := range *nodeSeeds {
		seed := *nodeFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			var m *machines
			synctest.Test(t, func(*testing.T) {
				var echo *os.File
				if *verbose {
					echo = os.Stdout
				}
				m = runMachines(seed, echo)
			})
			if why := m.broken(); why != "" {
				t.Errorf("%s\n\nthe end of the event log:\n%s\n\nrerun: go test -tags synctests ./internal/sim -run TestNodes -sim.nodefrom=%d -sim.nodeseeds=1 -sim.v", why, m.log.tail(150), seed)
			}
		})
	}
}
