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
)

func TestMirrors(t *testing.T) {
	for i := range *mirrorSeeds {
		seed := *mirrorFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			p := mirrorsOf(t, seed)
			var clusters []*machines
			for _, s := range p.sides {
				clusters = append(clusters, s.m)
			}
			judge(t, "mirror", seed, p.broken(), p.log.lines, clusters, func() string { return mirrorsOf(t, seed).broken() })
		})
	}
}

// mirrorsOf runs one seed in a bubble.
func mirrorsOf(t *testing.T, seed uint64) (p *pair) {
	synctest.Test(t, func(*testing.T) { p = runMirrors(seed, echo()) })
	return p
}
