//go:build synctests

package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/mirrormsg"
	"milena/mirroradm"
)

// pair is two clusters that mirror each other in turn, and a line between them.
type pair struct {
	*verdict
	seed    uint64
	rnd     *rand.Rand // of the goroutine that runs it
	net     *network
	sides   [2]*side
	unclean bool // leaders may be elected out of sync at the source: it loses records
	check   *mirrorCheck
	legs    []*leg
	holding bool // clients begin nothing new; guarded by verdict.mu
}

// side is one of the clusters.
type side struct {
	p      *pair
	i      int
	m      *machines
	mirror string // the name of the mirror that it has of the other one
	cl     *kgo.Client
	adm    *kadm.Client
	mir    *mirroradm.Client
	busy   int                   // writes that aren't answered; guarded by verdict.mu
	acked  [mirrorPartitions]int // records acknowledged here; guarded by verdict.mu
	// unanswered are the group's commits here that had no answer before this side became a mirror; guarded by verdict.mu.
	unanswered map[groupOffset]bool
}

// leg is one time that one side mirrors the other, from its start to its stop.
type leg struct {
	legSpan
	dst, src *side
	begun    time.Time
}

const (
	strayTopic  = "x"
	mirrorBound = 60 * time.Second
)

// mirrorSizes are how many nodes the two clusters have, by the seed.
func mirrorSizes(seed uint64) [2]int { return [][2]int{{3, 3}, {3, 1}, {1, 3}, {3, 3}}[seed%4] }

// runMirrors runs one seed. It is called in a bubble.
func runMirrors(seed uint64, sizes [2]int, echo io.Writer) *pair {
	p := &pair{verdict: newVerdict(echo), seed: seed, rnd: rand.New(rand.NewPCG(seed, 11)), net: newNetwork(seed), unclean: seed%4 == 3 && sizes != [2]int{1, 1}}
	p.check = newMirrorCheck(p)
	faults := rand.New(rand.NewPCG(seed, 12))
	for i, name := range []string{"a", "b"} {
		m, err := newMachines(machinesOptions{
			seed: seed, name: name, clusterID: "c2ltLWNsdXN0ZXItaWQt" + strings.ToUpper(name) + "Q", rnd: faults, net: p.net, more: mirrorConfigs(sizes[i]),
		}, p.verdict, sizes[i])
		if err != nil {
			p.failf("%v", err)
			return p
		}
		p.sides[i] = &side{p: p, i: i, m: m, mirror: "of-" + []string{"b", "a"}[i], unanswered: map[groupOffset]bool{}}
	}
	a, b := p.sides[0], p.sides[1]
	defer p.both(func(s *side) { s.m.endAll(kill) })
	p.both(func(s *side) { s.m.startAll() })
	if p.broken() != "" {
		return p
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer p.autopsy()
	for _, s := range p.sides {
		if !s.connect(ctx) {
			return p
		}
		defer s.cl.Close()
	}
	if !a.createTopic(ctx, mirrorTopic, mirrorPartitions) {
		return p
	}
	for _, s := range p.sides {
		for id := range 2 {
			wg.Go(func() { s.write(ctx, id) })
		}
		wg.Go(func() { s.read(ctx, int(seed)) })
		wg.Go(func() { s.commit(ctx) })
	}
	wg.Go(func() { p.check.watch(ctx) })
	dst, src := b, a
	for n := 1 + p.rnd.IntN(3); n >= 0; n-- {
		if !p.leg(ctx, dst, src, n == 0) {
			return p
		}
		if p.rnd.IntN(4) > 0 {
			dst, src = src, dst
		}
	}
	p.restartAll()
	return p
}

// mirrorConfigs are those of a cluster of n nodes.
func mirrorConfigs(n int) map[string]string {
	conf := map[string]string{
		"mirror.metadata.refresh.interval.ms": "1000", "mirror.failed.retry.initial.backoff.ms": "100", "mirror.failed.retry.max.backoff.ms": "1000",
		"request.timeout.ms": "3000", "default.replication.factor": fmt.Sprint(min(n, 3)), "min.insync.replicas": fmt.Sprint((n + 1) / 2),
		"controlled.shutdown.enable": "true", "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
	}
	return conf
}

func (p *pair) both(fn func(s *side)) {
	var wg sync.WaitGroup
	for _, s := range p.sides {
		if s != nil {
			wg.Go(func() { fn(s) })
		}
	}
	wg.Wait()
}

func (p *pair) logf(format string, args ...any) { p.log.logf("    "+format, args...) }

// until waits until ok, which must be within the bound; else the rule is broken.
func (p *pair) until(rule, what string, ok func() string) bool {
	why := ""
	for begin := time.Now(); time.Since(begin) < mirrorBound && p.broken() == ""; nap(100 * time.Millisecond) {
		if why = ok(); why == "" {
			return true
		}
	}
	if p.broken() == "" {
		p.failf("%s: %s within %v: %s", rule, what, mirrorBound, why)
	}
	return false
}

// insist does what an operator does again until it works.
func (p *pair) insist(ctx context.Context, what string, do func(ctx context.Context) error) bool {
	return p.until("writable", what+" is refused", func() string {
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		err := do(short)
		p.logf("%s: %v", what, err)
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// leg has dst mirror src for a while, under faults, and then stops it, but for the last time.
func (p *pair) leg(ctx context.Context, dst, src *side, last bool) bool {
	l := &leg{dst: dst, src: src, begun: time.Now(), legSpan: legSpan{to: dst.i, base: p.check.shared}}
	p.mu.Lock()
	p.legs = append(p.legs, l)
	p.check.legs = append(p.check.legs, &l.legSpan)
	p.mu.Unlock()
	p.logf("leg %d: %s mirrors %s, from %v on", len(p.legs), dst.m.name, src.m.name, l.base)
	f := p.faultsFor(ctx, l)
	if !dst.begin(ctx, src) {
		f.end()
		return false
	}
	p.check.begin(l)
	planned := last || p.rnd.IntN(5) < 2
	if planned {
		f.wait()
	} else {
		wait2(ctx, time.Duration(p.rnd.IntN(6000))*time.Millisecond)
	}
	if p.broken() != "" {
		f.end()
		return false
	}
	if planned && !p.equal(ctx, l) {
		return false
	}
	if last {
		return true
	}
	p.check.end()
	if !dst.halt(ctx) {
		f.end()
		return false
	}
	p.hold(false)
	f.wait()
	return p.heal() && p.stopped(ctx, l) && p.apart(ctx, l)
}

// heal waits until both clusters are whole again.
func (p *pair) heal() bool {
	p.both(func(s *side) { s.m.startAll() })
	if p.broken() != "" {
		return false
	}
	return p.until("writable", "the healed clusters are not whole", func() string {
		for _, s := range p.sides {
			if why := s.m.whole(""); why != "" {
				return s.m.name + ": " + why
			}
		}
		return ""
	})
}

// hold has the writers begin nothing new, or go on.
func (p *pair) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = on
}

// equal waits until the mirror holds all that its source has, with no writes under way, and compares everything.
func (p *pair) equal(ctx context.Context, l *leg) bool {
	if !p.heal() || !l.dst.resume(ctx) {
		return false
	}
	p.hold(true)
	quiet := func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := p.sides[0].busy + p.sides[1].busy; n > 0 {
			return fmt.Sprintf("%d writes are under way", n)
		}
		return ""
	}
	if !p.until("writable", "writers get no answers", quiet) {
		return false
	}
	equal := func() string {
		if l.dst.wish() == mirrormsg.Paused { // by a pause whose answer was not waited for, and which was done after the resume above
			l.dst.resume(ctx)
		}
		return p.check.mirrored(ctx, l)
	}
	if !p.until("converge", "the mirror doesn't get equal to its source", equal) {
		return false
	}
	l.aligned = time.Now()
	p.check.compare(ctx, l)
	if p.broken() == "" {
		p.logf("equal: %s", p.check.counts())
	}
	return p.broken() == ""
}

// stopped waits for the end of a stop, and notes up to where the sides share their records now.
func (p *pair) stopped(ctx context.Context, l *leg) bool {
	if !p.until("writable", "the stopped mirror doesn't get writable", func() string { return p.check.halted(ctx, l) }) {
		return false
	}
	p.check.prefix(l)
	if p.broken() != "" {
		return false
	}
	before := l.dst.acknowledged()
	return p.until("writable", "the stopped mirror takes no writes", func() string {
		for i, n := range l.dst.acknowledged() {
			if n < before[i]+3 {
				return fmt.Sprintf("partition %d", i)
			}
		}
		return ""
	})
}

// apart has both sides go on by themselves for a while, now and then with the same leader epochs.
func (p *pair) apart(ctx context.Context, l *leg) bool {
	if p.rnd.IntN(2) == 0 {
		p.sameEpochs(ctx, l)
	}
	wait2(ctx, time.Duration(200+p.rnd.IntN(1500))*time.Millisecond)
	return p.broken() == ""
}

// restartAll restarts all nodes of both clusters: nothing may change by that.
func (p *pair) restartAll() {
	l := p.legs[len(p.legs)-1]
	before := p.check.ends()
	how := leave
	if p.seed%8 < 4 {
		how = kill
	}
	p.logf("restart of all")
	p.check.end()
	p.both(func(s *side) { s.m.endAll(how) })
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if !p.heal() || !p.until("converge", "the mirror isn't equal after a restart of all", func() string { return p.check.mirrored(ctx, l) }) {
		return
	}
	if after := p.check.ends(); before != after {
		p.failf("converge: the logs ended at %s, after a restart of all they end at %s", before, after)
	}
	p.check.compare(ctx, l)
}

// autopsy writes to the event log what the nodes hold after a rule was broken.
func (p *pair) autopsy() {
	if p.broken() == "" {
		return
	}
	for _, s := range p.sides {
		s.m.autopsy()
	}
	p.check.autopsy()
}
