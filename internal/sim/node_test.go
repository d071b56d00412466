//go:build synctests

package sim

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

var (
	nodeSeeds = flag.Int("sim.nodeseeds", 8, "how many seeds of whole nodes run")
	nodeFrom  = flag.Uint64("sim.nodefrom", 1, "the first of them")
	reruns    = flag.Int("sim.reruns", 50, "how often a failing seed of whole nodes is run again, to say how often it fails")
)

func TestNodes(t *testing.T) {
	for i := range *nodeSeeds {
		seed := *nodeFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			m := nodesOf(t, seed)
			why := m.broken()
			if why == "" {
				return
			}
			dir := keepLog(t, seedName("node", seed), m.log.lines)
			for _, n := range m.nodes {
				if err := saveDisk(n.fs, "/", filepath.Join(dir, n.host())); err != nil {
					t.Logf("the disk of node %d is not kept: %v", n.id, err)
				}
			}
			t.Errorf("%s\n\nthe end of the event log, which is with the disks in %s:\n%s\n\nrerun: go test -tags synctests ./internal/sim -run TestNodes -sim.nodefrom=%d -sim.nodeseeds=1 -sim.v", why, dir, tail(m.log.lines, 150), seed)
			fails := 0
			for range *reruns {
				if nodesOf(t, seed).broken() != "" {
					fails++
				}
			}
			t.Logf("run %d times more, it failed %d times", *reruns, fails)
		})
	}
}

// nodesOf runs one seed in a bubble.
func nodesOf(t *testing.T, seed uint64) (m *machines) {
	synctest.Test(t, func(*testing.T) {
		var echo io.Writer
		if *verbose {
			echo = os.Stdout
		}
		m = runMachines(seed, echo)
	})
	return m
}
