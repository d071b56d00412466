//go:build synctests

package sim

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var (
	mirrorSeeds = flag.Int("sim.mirrorseeds", 4, "how many seeds of two clusters that mirror each other run")
	mirrorFrom  = flag.Uint64("sim.mirrorfrom", 1, "the first of them")
	pairSeeds   = flag.Int("sim.pairseeds", 8, "how many seeds of two single nodes that mirror each other run")
	pairFrom    = flag.Uint64("sim.pairfrom", 1, "the first of them")
)

func TestMirrors(t *testing.T) { eachMirror(t, "mirror", *mirrorFrom, *mirrorSeeds, mirrorSizes) }

// TestPairs has the same with a single node on each side, which costs a quarter: no followers, but all that a crash, a full disk or a cut
// line can do to starts, stops and cuts.
func TestPairs(t *testing.T) {
	eachMirror(t, "pair", *pairFrom, *pairSeeds, func(uint64) [2]int { return [2]int{1, 1} })
}

func eachMirror(t *testing.T, kind string, from uint64, seeds int, sizes func(seed uint64) [2]int) {
	for i := range seeds {
		seed := from + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			p := mirrorsOf(t, seed, sizes(seed))
			var clusters []*machines
			for _, s := range p.sides {
				clusters = append(clusters, s.m)
			}
			judge(t, kind, seed, p.broken(), p.log.lines, clusters, func() string { return mirrorsOf(t, seed, sizes(seed)).broken() })
		})
	}
}

// mirrorsOf runs one seed in a bubble.
func mirrorsOf(t *testing.T, seed uint64, sizes [2]int) (p *pair) {
	synctest.Test(t, func(*testing.T) { p = runMirrors(seed, sizes, echo()) })
	return p
}
