package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

var (
	seedCount = flag.Int("sim.seeds", 100, "how many seeds of the cores run")
	seedFrom  = flag.Uint64("sim.from", 1, "the first of them")
	debug     = flag.Bool("sim.debug", false, "have the event log hold what the code under test logs at its lowest level")
	verbose   = flag.Bool("sim.v", false, "print the event log as it comes")
)

// coresOf runs one seed in a bubble, with all randomness from the seed.
func coresOf(t *testing.T, seed uint64) *cores { return runWith(t, seed, func(*cores) {}) }

func runWith(t *testing.T, seed uint64, tune func(*cores)) *cores {
	cryptotest.SetGlobalRandom(t, seed)
	var c *cores
	synctest.Test(t, func(*testing.T) {
		c = runCores(seed, func(c *cores) {
			if *verbose {
				c.echo = os.Stdout
			}
			tune(c)
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
				dir := keepLog(t, seedName("core", seed), c.lines)
				t.Errorf("%s\n\nthe end of the event log, which is in %s:\n%s\n\nrerun: go test ./internal/sim -run 'TestCores' -sim.from=%d -sim.seeds=1 -sim.v", c.failed[0], dir, tail(c.lines, 120), seed)
			}
		})
	}
}

// One seed is one trace: what is found can be found again.
func TestTraceRepeats(t *testing.T) {
	traces := map[uint64]uint64{}
	for _, seed := range []uint64{7, 11, 7, 11} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			got := coresOf(t, seed).trace.Sum64()
			if want, ok := traces[seed]; ok && got != want {
				t.Errorf("the second run's trace is %016x, the first one's %016x", got, want)
			}
			traces[seed] = got
		})
	}
}

// What a run checks besides its history: each rule is broken once.
func TestRunsCatch(t *testing.T) {
	for rule, harm := range map[string]func(c *cores, stage string){
		"writable": func(c *cores, stage string) {
			if stage == "healed" { // a majority stays cut off
				c.net.isolate(0, len(c.hosts), true, true)
				c.net.isolate(1, len(c.hosts), true, true)
				c.net.isolate(2, len(c.hosts), true, true)
			}
		},
		"above": func(c *cores, stage string) {
			if stage == "whole" { // a leader serves what its followers don't have
				b, p := c.leaderOf(c.tps[0])
				c.append(p)
				r := fetched{hw: p.LogEndOffset()}
				r.batches = c.tailOf(p)
				c.check.served(b, c.tps[0], p, r)
			}
		},
	} {
		t.Run(rule, func(t *testing.T) {
			c := runWith(t, 3, func(c *cores) { c.sabotage = func(stage string) { harm(c, stage) } })
			if len(c.failed) == 0 || !strings.HasPrefix(c.failed[0], rule+": ") {
				t.Errorf("broken: %q, want the rule %s", c.failed, rule)
			}
		})
	}
}

func (c *cores) leaderOf(tp topicPartition) (*broker, *replica.Partition) {
	for _, h := range c.hosts {
		if p, err := h.brk.replica(tp); err == nil {
			if _, _, self := p.Leader(); self {
				return h.brk, p
			}
		}
	}
	c.failf("nobody leads %s", tp)
	return nil, nil
}

// append appends a record that nobody is told of to a leader's log.
func (c *cores) append(p *replica.Partition) {
	if _, err := p.Append(c.oneRecord(), replica.AppendOptions{Origin: partlog.OriginClient, Acks: 1, Epoch: replica.AnyEpoch}); err != nil {
		c.failf("append: %v", err)
	}
}

func (c *cores) oneRecord() []byte {
	b, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("?")})
	if err != nil {
		c.failf("append: %v", err)
	}
	return b
}

// tailOf is the last batch of a log.
func (c *cores) tailOf(p *replica.Partition) []byte {
	info, err := p.Log().Read(p.LogEndOffset()-1, 1<<20, p.LogEndOffset(), true)
	if err != nil {
		c.failf("read: %v", err)
		return nil
	}
	defer info.Release()
	return spanBytes(c, info.Spans)
}

// nap waits in the virtual time of a bubble, where all of this runs.
func nap(d time.Duration) { time.Sleep(d) }
