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
	mirrorSeeds = flag.Int("sim.mirrorseeds", 4, "how many seeds of two clusters that mirror each other run")
	mirrorFrom  = flag.Uint64("sim.mirrorfrom", 1, "the first of them")
)

func TestMirrors(t *testing.T) {
	for i := range *mirrorSeeds {
		seed := *mirrorFrom + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			p := mirrorsOf(t, seed)
			why := p.broken()
			if why == "" {
				return
			}
			dir := keepLog(t, seedName("mirror", seed), p.log.lines)
			for _, s := range p.sides {
				for _, n := range s.m.nodes {
					if err := saveDisk(n.fs, "/", filepath.Join(dir, n.host())); err != nil {
						t.Logf("the disk of %s is not kept: %v", n.host(), err)
					}
				}
			}
			t.Errorf("%s\n\nthe end of the event log, which is with the disks in %s:\n%s\n\nrerun: go test -tags synctests ./internal/sim -run TestMirrors -sim.mirrorfrom=%d -sim.mirrorseeds=1 -sim.v", why, dir, tail(p.log.lines, 150), seed)
			fails := 0
			for range *reruns {
				if mirrorsOf(t, seed).broken() != "" {
					fails++
				}
			}
			t.Logf("run %d times more, it failed %d times", *reruns, fails)
		})
	}
}

// mirrorsOf runs one seed in a bubble.
func mirrorsOf(t *testing.T, seed uint64) (p *pair) {
	synctest.Test(t, func(*testing.T) {
		var echo io.Writer
		if *verbose {
			echo = os.Stdout
		}
		p = runMirrors(seed, echo)
	})
	return p
}
