package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"milena/internal/controller"
	"milena/internal/coord/group"
	"milena/internal/disk"
	"milena/internal/machine"
	"milena/internal/meta"
)

// cores is a cluster of cores under one event loop.
type cores struct {
	*loop
	clusterID   string
	tag         string       // names the cluster in the event log, where there are two
	factor      int          // replicas of each topic
	voters      int          // of the quorum at first
	mirroring   *mirrorCores // whose part the cluster is; nil: it mirrors nothing
	side        int          // which part
	seen        *meta.Image  // the newest that a broker was seen to have
	net         *wires
	hosts       []*host
	controllers int
	tps         []topicPartition
	also        []topicPartition // those that must be led and in sync, of which more is checked elsewhere
	hist        *history
	check       *coreCheck
	producers   []*producer
	acked       map[topicPartition]int // batches acknowledged
	born        map[uint64]time.Time   // of batches, by their sums
	quiet       bool                   // producers and groups begin nothing new

	faults        *faults
	churn         *churn
	segmentBytes  int64
	snapshotBytes int64
	creating      bool
	sabotage      func(stage string) // does harm that must be noticed: see TestRunsCatch
}

// logf and failf are the loop's, with the name of the cluster.
func (c *cores) logf(format string, args ...any)  { c.loop.logf(c.tag+format, args...) }
func (c *cores) failf(format string, args ...any) { c.loop.failf(c.tag+format, args...) }

// at lets a test do harm at a stage of the run.
func (c *cores) at(stage string) {
	if c.sabotage != nil {
		c.sabotage(stage)
	}
}

const (
	coreFaults = 8 * time.Second  // how long faults happen
	coreBound  = 15 * time.Second // by when after healing a cluster must be whole again
)

// runCores runs one seed and returns its event loop.
func runCores(seed uint64, tune func(*cores)) *cores {
	l := newLoop(seed)
	c := &cores{loop: l, clusterID: coreCluster, factor: 3, voters: firstVoters, net: newWires(l), acked: map[topicPartition]int{}, born: map[uint64]time.Time{}}
	c.hist = newHistory(func(rule, format string, args ...any) { c.failf("%s: %s", rule, fmt.Sprintf(format, args...)) })
	c.check = &coreCheck{c: c, checked: map[replicaKey]int64{}, known: map[topicPartition]*meta.Partition{}, members: map[topicPartition][]int32{}, draft: meta.Empty(c.clusterID).Draft()}
	c.segmentBytes, c.snapshotBytes = 1<<uint(10+l.rnd.IntN(10)), int64(2000+l.rnd.IntN(100_000))
	if tune != nil {
		tune(c)
	}
	n := 3 + l.rnd.IntN(3)
	c.controllers = firstVoters + l.rnd.IntN(n-firstVoters+1)
	own := c.chance(0.5) // controllers have disks of their own
	for i := range n {
		h := &host{c: c, id: i, fs: disk.NewMem(seed*10 + uint64(i))}
		if h.meta = h.fs; own {
			h.meta = disk.NewMem(seed*10 + 5 + uint64(i))
		}
		if err := h.format(); err != nil {
			c.failf("format: %v", err)
			return c
		}
		c.hosts = append(c.hosts, h)
	}
	c.tps = []topicPartition{{topic: "t"}, {topic: "t", partition: 1}, {topic: group.Topic}}
	for _, h := range c.hosts {
		h.start()
	}
	c.createTopics()
	for i := range 4 {
		p := &producer{view: view{c: c, tp: c.tps[i%2]}, id: i, idle: true}
		c.producers = append(c.producers, p)
		c.after(c.between(0, 100*time.Millisecond), p.next)
	}
	for _, tp := range c.tps[:2] {
		k := &consumer{view: view{c: c, tp: tp}, last: -1}
		c.after(0, k.poll)
	}
	k := &committer{view: view{c: c, tp: c.tps[2]}, id: "g", wait: -1}
	c.after(0, k.step)
	c.every(200*time.Millisecond, func() { c.check.look(false) })

	c.until("writable", "the cluster is not whole after its start", c.whole)
	if len(c.failed) > 0 {
		return c
	}
	c.at("whole")
	f := &faults{c: c}
	c.faults = f
	c.churn = &churn{c: c, want: true, img: meta.Empty(c.clusterID)}
	c.after(c.between(0, 4*time.Second), c.churn.step)
	f.begin()
	c.run(c.elapsed() + coreFaults)
	f.end()
	c.at("healed")
	c.churn.over = true
	c.settle(k)
	return c
}

// written are the partitions that producers write to.
func (c *cores) written() []topicPartition {
	return slices.DeleteFunc(slices.Clone(c.tps), func(tp topicPartition) bool { return tp.topic == group.Topic })
}

func (c *cores) every(d time.Duration, fn func()) {
	c.after(d, func() {
		if len(c.failed) == 0 {
			fn()
			c.every(d, fn)
		}
	})
}

// until runs on until ok, which must be so within the bound; else the rule is broken.
func (c *cores) until(rule, what string, ok func() string) {
	end := c.elapsed() + coreBound
	why := ""
	for c.elapsed() < end && len(c.failed) == 0 {
		if why = ok(); why == "" {
			return
		}
		c.run(c.elapsed() + 100*time.Millisecond)
	}
	if len(c.failed) == 0 {
		c.failf("%s: %s within %v: %s", rule, what, coreBound, why)
	}
}

// createTopics has the topics created, again and again until they are there.
func (c *cores) createTopics() {
	if c.creating {
		return
	}
	c.creating = true
	var try func()
	try = func() {
		for _, h := range c.hosts[:c.controllers] {
			if !h.up || h.ctl == nil || !h.ctl.active {
				continue
			}
			alive := 0
			for b := range h.ctl.state.Image().Brokers() {
				if !b.Fenced {
					alive++
				}
			}
			if alive < 3 {
				continue
			}
			h.ctl.do(func(s *controller.State, now time.Time) machine.Result { return createTopics(s, now) }, func(v any, err error) {
				c.logf("topics created: %v", err)
			})
			c.after(time.Second, func() {
				if c.whole() != "" {
					try()
				}
			})
			return
		}
		c.after(100*time.Millisecond, try)
	}
	try()
}

// whole says what keeps the cluster from being whole: every partition is led, all its replicas are in sync, and brokers agree.
func (c *cores) whole() string {
	for _, h := range c.hosts {
		if !h.up {
			return fmt.Sprintf("host %d is down", h.id)
		}
		if h.brk.suspended {
			return fmt.Sprintf("host %d is suspended", h.id)
		}
		for _, tp := range slices.Concat(c.tps, c.also) {
			p := tp.in(h.brk.img)
			switch {
			case p == nil && slices.Contains(c.also, tp): // not mirrored yet
			case p == nil:
				return fmt.Sprintf("host %d doesn't know %s", h.id, tp)
			case p.Leader < 0:
				return fmt.Sprintf("%s has no leader, ISR %v, replicas %v", tp, p.ISR, p.Replicas)
			case len(p.ISR) < len(p.Replicas):
				return fmt.Sprintf("%s has leader %d, ISR %v of the replicas %v, seen by host %d at offset %d", tp, p.Leader, p.ISR, p.Replicas, h.id, h.brk.img.Offset)
			case len(p.Adding)+len(p.Removing) > 0:
				return fmt.Sprintf("%s is being reassigned", tp)
			}
		}
	}
	if c.churn == nil {
		return ""
	}
	return c.churn.settled()
}

// settle checks a healed cluster: it can be written to, replicas converge, all that was acknowledged is there, and a restart changes nothing.
func (c *cores) settle(k *committer) {
	c.until("writable", "the healed cluster is not whole", c.whole)
	written := maps.Clone(c.acked)
	c.until("writable", "the healed cluster takes no writes", func() string {
		for _, tp := range c.written() {
			if c.acked[tp] < written[tp]+3 {
				return fmt.Sprintf("%d batches were acknowledged for %s", c.acked[tp]-written[tp], tp)
			}
		}
		return ""
	})
	c.quiet = true
	c.until("converge", "the cluster doesn't come to rest", func() string {
		for _, p := range c.producers {
			if !p.idle {
				return fmt.Sprintf("producer %d waits for record %d", p.id, p.first)
			}
		}
		if k.wait >= 0 {
			return "the group waits for its commit"
		}
		return c.converged()
	})
	if len(c.failed) > 0 {
		return
	}
	c.check.look(true)
	c.finalCheck()
	if len(c.failed) > 0 {
		return
	}
	before, offset := c.ends(), k.n
	how := kill
	if c.chance(0.25) {
		how = torn
	}
	c.logf("restart of all")
	for _, h := range c.hosts {
		h.end(how)
	}
	for _, h := range c.hosts {
		h.start()
	}
	c.until("converge", "the cluster is not whole after a restart of all", c.whole)
	c.until("converge", "replicas don't converge after a restart of all", c.converged)
	if len(c.failed) > 0 {
		return
	}
	if after := c.ends(); how == kill && !maps.Equal(before, after) {
		c.failf("converge: the logs ended at %v, after a restart of all they end at %v", before, after)
		return
	}
	c.check.look(true)
	c.finalCheck()
	c.afterRestart(k, offset)
}

// afterRestart has the restarted cluster written to again, and its group's offset read.
func (c *cores) afterRestart(k *committer, offset int64) {
	before := maps.Clone(c.acked)
	c.quiet = false
	for _, p := range c.producers {
		p.next()
	}
	c.until("writable", "the restarted cluster takes no writes", func() string {
		for _, tp := range c.written() {
			if c.acked[tp] == before[tp] {
				return "no batch was acknowledged for " + tp.String()
			}
		}
		if k.n == offset || k.wait >= 0 {
			return "no offset was committed"
		}
		return ""
	})
}

// ends are where the partitions' logs end, when all replicas agree.
func (c *cores) ends() map[topicPartition]int64 {
	out := map[topicPartition]int64{}
	for _, tp := range c.tps {
		for _, h := range c.hosts {
			if p, err := h.brk.replica(tp); err == nil {
				out[tp] = p.LogEndOffset()
			}
		}
	}
	return out
}

// converged says which replicas still differ.
func (c *cores) converged() string {
	for _, tp := range c.tps {
		end, hw := int64(-1), int64(-1)
		for _, h := range c.hosts {
			if !h.up {
				return fmt.Sprintf("host %d is down", h.id)
			}
			p, err := h.brk.replica(tp)
			if err != nil {
				continue
			}
			if e, w := p.LogEndOffset(), p.HighWatermark(); end < 0 {
				end, hw = e, w
			} else if e != end || w != hw {
				return fmt.Sprintf("%s ends at %d and %d, high watermarks %d and %d", tp, end, e, hw, w)
			}
		}
		if hw != end {
			return fmt.Sprintf("%s ends at %d, its high watermark is %d", tp, end, hw)
		}
	}
	return c.leftovers()
}

func (c *cores) finalCheck() {
	c.logf("checked: %s", c.hist.counts())
	for _, tp := range c.written() {
		for _, h := range c.hosts {
			if p, err := h.brk.replica(tp); err == nil {
				c.hist.final(tp.String(), c.records(p.Log()))
			}
		}
	}
}
