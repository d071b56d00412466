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
			judge(t, "node", seed, m.broken(), m.log.lines, []*machines{m}, func() string { return nodesOf(t, seed).broken() })
		})
	}
}

// judge fails a seed of whole nodes that broke a rule: it keeps the event log and the disks, and runs the seed again some times.
func judge(t *testing.T, kind string, seed uint64, why string, lines []string, clusters []*machines, again func() string) {
	t.Helper()
	if why == "" {
		return
	}
	dir := keepLog(t, seedName(kind, seed), lines)
	for _, m := range clusters {
		for _, n := range m.nodes {
			if err := saveDisk(n.fs, "/", filepath.Join(dir, n.host())); err != nil {
				t.Logf("the disk of %s is not kept: %v", n.host(), err)
			}
		}
	}
	test := map[string]string{"node": "Nodes", "mirror": "Mirrors", "pair": "Pairs"}[kind]
	t.Errorf("%s\n\nthe end of the event log, which is with the disks in %s:\n%s\n\nrerun: go test -tags synctests ./internal/sim -run Test%s -sim.%sfrom=%d -sim.%sseeds=1 -sim.v",
		why, dir, tail(lines, 150), test, kind, seed, kind)
	fails := 0
	for range *reruns {
		if again() != "" {
			fails++
		}
	}
	t.Logf("run %d times more, it failed %d times", *reruns, fails)
}

// nodesOf runs one seed in a bubble.
func nodesOf(t *testing.T, seed uint64) (m *machines) {
	synctest.Test(t, func(*testing.T) { m = runMachines(seed, echo()) })
	return m
}

// echo is where events go while they happen, nil: nowhere.
func echo() io.Writer {
	if *verbose {
		return os.Stdout
	}
	return nil
}
