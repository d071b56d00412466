package sim

import (
	"fmt"
	"slices"
	"time"

	"milena/internal/controller"
	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// coreMirrorFaults do harm to two clusters and the line between them during a leg, until they end and heal everything.
type coreMirrorFaults struct {
	p    *mirrorCores
	l    *coreLeg
	over bool
	// storms are when the last restart storms began; weak are clusters where a host has lost power and not all are in sync again.
	storms [2]time.Time
	weak   [2]bool
	// awayFrom is the host that is away during the cuts of the leg's start, nil if none is.
	awayFrom *host
}

func (f *coreMirrorFaults) begin() {
	for _, c := range f.p.sides {
		c.faults = &faults{c: c}
	}
	f.p.stray = &strays{p: f.p, l: f.l, f: f}
	f.p.after(f.p.between(0, time.Second), f.p.stray.next)
	f.p.after(f.p.between(0, 500*time.Millisecond), f.next)
}

func (f *coreMirrorFaults) next() {
	if f.over || len(f.p.failed) > 0 {
		return
	}
	p := f.p
	if f.awayFrom != nil && p.unclean || (f.awayFrom != nil || p.unclean) && p.chance(0.6) { // let the host come back to what it was away from
		p.after(p.between(50*time.Millisecond, 700*time.Millisecond), f.next)
		return
	}
	c := pick(p.loop, p.sides[:])
	h := pick(p.loop, c.hosts)
	switch n := p.rnd.IntN(29); {
	case p.unclean && p.chance(0.1):
		f.uncleanElection(int32(p.rnd.IntN(mirrorPartitions)))
	case n < 11:
		f.harm(c, h, n)
	case n < 15:
		f.harmLine(n)
	case n < 27:
		f.operate(c, n)
	case n == 27:
		if len(c.hosts) > 1 && f.mayStop(c) {
			c.faults.fill(h)
		}
	default: // a pause
	}
	p.after(p.between(50*time.Millisecond, 700*time.Millisecond), f.next)
}

// harm does something to a cluster.
func (f *coreMirrorFaults) harm(c *cores, h *host, n int) {
	p := f.p
	switch n {
	case 0, 1, 2:
		f.stop(h)
	case 3:
		if h.up && !h.busy && f.mayStop(c) {
			h.leave()
			c.faults.revive(h)
		}
	case 4:
		f.stop(c.knownLeader(mirrorTopic, int32(p.rnd.IntN(mirrorPartitions))))
	case 5:
		f.stop(c.knownLeader(pick(p.loop, []string{group.Topic, mirrorstate.Topic}), 0))
	case 6:
		c.faults.isolate(h)
	case 7:
		other := pick(p.loop, c.hosts)
		c.logf("line from host %d to host %d is cut", h.id, other.id)
		c.net.cut[[2]int{h.id, other.id}] = true
		f.later(3*time.Second, func() { delete(c.net.cut, [2]int{h.id, other.id}) })
	case 8:
		c.net.loss = p.rnd.Float64() * 0.3
		c.logf("%.0f %% of messages are lost", c.net.loss*100)
		f.later(2*time.Second, func() { c.net.loss = 0 })
	case 9:
		c.faults.slowDown(h)
	case 10:
		if p.chance(0.3) && f.mayStop(c) {
			f.storms[c.side] = time.Now()
			c.faults.storm()
		}
	}
}

// harmLine does something to the line between the clusters.
func (f *coreMirrorFaults) harmLine(n int) {
	p := f.p
	if n < 14 {
		f.cutLine()
		return
	}
	p.line.loss, p.line.slow, p.line.delay = p.rnd.Float64()*0.3, p.rnd.Float64()*0.3, p.between(3*time.Millisecond, 60*time.Millisecond)
	p.logf("the line loses %.0f %% and takes up to %v", p.line.loss*100, p.line.delay)
	f.later(2*time.Second, func() { p.line.loss, p.line.slow, p.line.delay = 0, 0, 5*time.Millisecond })
}

// operate does what operators do, and what goes wrong then.
func (f *coreMirrorFaults) operate(c *cores, n int) {
	switch n {
	case 15:
		f.raise()
	case 16, 17:
		f.pause()
	case 18:
		c.faults.electPreferred()
	case 19, 20:
		f.moveLeader(c)
	case 21, 22:
		f.lateWrite()
	case 23, 24:
		f.starve()
	case 25, 26:
		f.patterns()
	}
}

// later undoes a fault within d.
func (f *coreMirrorFaults) later(d time.Duration, fn func()) {
	f.p.after(f.p.between(50*time.Millisecond, d), func() {
		if !f.over {
			fn()
		}
	})
}

// mayStop says whether a host of a cluster may stop: not while one that has lost power isn't in sync again, for then the others may be all that
// have what was acknowledged (KIP-966 lets the last leader lead when all have gone, which may be that one).
func (f *coreMirrorFaults) mayStop(c *cores) bool {
	if f.weak[c.side] && c.whole() == "" {
		f.weak[c.side] = false
	}
	return !f.weak[c.side]
}

// stop ends a host's process. It loses power only where all others have what it has, and stay.
func (f *coreMirrorFaults) stop(h *host) {
	if h == nil || !h.up || !f.mayStop(h.c) {
		return
	}
	how, c := kill, h.c
	leaving := slices.ContainsFunc(c.hosts, func(h *host) bool { return h.busy || h.full || h.fullIn == h.gen })
	if len(c.hosts) > 1 && c.whole() == "" && !f.p.unclean && !leaving && time.Since(f.storms[c.side]) > 2*time.Second && f.p.chance(0.5) {
		how = pick(f.p.loop, []stop{power, torn})
		f.weak[c.side] = true
	}
	h.end(how)
	h.c.faults.revive(h)
}

// cutLine cuts the line between the clusters, all of it or in part.
func (f *coreMirrorFaults) cutLine() {
	p := f.p
	oneWay := p.rnd.IntN(4)
	var only *host // of the destination
	switch p.rnd.IntN(3) {
	case 0:
		only = pick(p.loop, f.l.dst.hosts)
	case 1:
		only = f.l.dst.knownLeader(mirrorTopic, int32(p.rnd.IntN(mirrorPartitions)))
	}
	var cut [][2]int
	for _, d := range f.l.dst.hosts {
		for _, s := range f.l.src.hosts {
			if only != nil && d != only {
				continue
			}
			if oneWay != 1 {
				cut = append(cut, p.line.line(d, s))
			}
			if oneWay != 2 {
				cut = append(cut, p.line.line(s, d))
			}
		}
	}
	p.logf("the line is cut: %v", cut)
	for _, x := range cut {
		p.line.cut[x] = true
	}
	f.later(3*time.Second, func() {
		p.logf("the line is whole again: %v", cut)
		for _, x := range cut {
			delete(p.line.cut, x)
		}
	})
}

// raise lets leader epochs of the source jump.
func (f *coreMirrorFaults) raise() {
	var least [mirrorPartitions]int32
	for i := range least {
		if mp := f.l.src.newest().Partition(mirrorTopic, int32(i)); mp != nil {
			least[i] = mp.LeaderEpoch + int32(f.p.rnd.IntN(20))
		}
	}
	f.p.raiseEpochs(f.l.src, least)
}

// pause pauses the mirror, and resumes it a while later.
func (f *coreMirrorFaults) pause() {
	dst := f.l.dst
	switch {
	case dst.wish() == mirrormsg.Mirroring && dst.inStates(mirrormsg.Mirroring) == "":
		dst.command("pause", pauseCommand(dst))
	case dst.wish() == mirrormsg.Paused && dst.inStates(mirrormsg.Paused) == "":
		dst.command("resume", resumeCommand(dst))
	}
}

// moveLeader moves the leader of a partition, a coordinator's too, in order.
func (f *coreMirrorFaults) moveLeader(c *cores) {
	tp := pick(f.p.loop, slices.Concat(c.tps, c.also))
	mp := tp.in(c.newest())
	if mp == nil || len(mp.Replicas) < 2 {
		return
	}
	f.lead(c, tp, append(slices.Clone(mp.Replicas[1:]), mp.Replicas[0]))
}

// lead has the first of a partition's replicas lead it.
func (f *coreMirrorFaults) lead(c *cores, tp topicPartition, replicas []int32) {
	c.command(fmt.Sprintf("%s goes to %v", tp, replicas), func(s *controller.State, now time.Time) machine.Result {
		return s.AlterReassignments(now, []controller.Reassignment{{TopicPartition: controller.TopicPartition{Topic: tp.topic, Partition: tp.partition}, Replicas: replicas}}, true)
	})
	f.p.after(100*time.Millisecond, c.faults.electPreferred)
}

// away has a host of the destination be away while its partitions are cut, and come back to another leader than the one that cut.
func (f *coreMirrorFaults) away() {
	p, dst := f.p, f.l.dst
	if len(dst.hosts) < 3 || len(p.legs) < 2 || !p.chance(0.5) || !f.mayStop(dst) || dst.whole() != "" {
		return
	}
	h := pick(p.loop, dst.hosts)
	h.end(kill)
	f.awayFrom = h
	var look func()
	look = func() {
		switch {
		case f.over || h.up || len(p.failed) > 0:
			return
		case dst.inStates(mirrormsg.Mirroring) != "":
			p.after(100*time.Millisecond, look)
			return
		}
		p.after(p.between(0, 2*time.Second), func() {
			if f.over || h.up || len(p.failed) > 0 {
				return
			}
			p.logf("host %d was away during the cuts and comes back", h.id)
			part := int32(p.rnd.IntN(mirrorPartitions))
			leader := dst.knownLeader(mirrorTopic, part)
			if leader == nil || !leader.up || !f.mayStop(dst) {
				h.start()
				return
			}
			leader.end(kill)
			if p.unclean {
				f.leadUnclean(h, leader, part)
				return
			}
			dst.faults.revive(leader)
			h.start()
		})
	}
	p.after(100*time.Millisecond, look)
}

// leadUnclean has the last replica in sync go when others take over from a leader that was stopped: one that was away may be chosen to lead.
func (f *coreMirrorFaults) leadUnclean(h, leader *host, part int32) {
	f.soon(f.p.between(2300*time.Millisecond, 3500*time.Millisecond), func() {
		if second := h.c.knownLeader(mirrorTopic, part); second != nil && second.up && second != h {
			second.end(kill)
			f.soon(f.p.between(6*time.Second, 9*time.Second), func() {
				if !second.up {
					second.start()
				}
			})
		}
		for _, x := range []*host{h, leader} {
			if !x.up {
				x.start()
			}
		}
	})
}

// starve has a mirror partition's leader not reach the source's leader, while the rest of what is mirrored goes on: groups get ahead of it.
func (f *coreMirrorFaults) starve() {
	p := f.p
	part := int32(p.rnd.IntN(mirrorPartitions))
	s, d := f.l.src.knownLeader(mirrorTopic, part), f.l.dst.knownLeader(mirrorTopic, part)
	if s == nil || d == nil {
		return
	}
	a, b := p.line.line(s, d), p.line.line(d, s)
	p.logf("the line between the leaders of partition %d is cut: %v", part, a)
	p.line.cut[a], p.line.cut[b] = true, true
	f.later(3*time.Second, func() {
		delete(p.line.cut, a)
		delete(p.line.cut, b)
	})
}

// lateWrite has a mirror partition's leader write its state late: what it sends to the coordinator is held up on the way while the wish
// changes and another host takes over.
func (f *coreMirrorFaults) lateWrite() {
	p, dst := f.p, f.l.dst
	part := int32(p.rnd.IntN(mirrorPartitions))
	leader, coordinator := dst.knownLeader(mirrorTopic, part), dst.knownLeader(mirrorstate.Topic, 0)
	mp := dst.newest().Partition(mirrorTopic, part)
	if leader == nil || coordinator == nil || leader == coordinator || p.unclean || dst.inStates(mirrormsg.Mirroring) != "" {
		return
	}
	d := p.between(400*time.Millisecond, 2*time.Second)
	p.logf("what host %d sends to the coordinator on host %d is late", leader.id, coordinator.id)
	dst.net.late[[2]int{leader.id, coordinator.id}] = time.Now().Add(d)
	dst.command("pause", pauseCommand(dst))
	to := slices.DeleteFunc(slices.Clone(mp.Replicas), func(r int32) bool { return r == int32(leader.id) })
	p.after(50*time.Millisecond, func() { f.lead(dst, topicPartition{topic: mirrorTopic, partition: part}, append(to, int32(leader.id))) })
	f.later(3*time.Second, func() { dst.command("resume", resumeCommand(dst)) })
}

// patterns changes which topics of the source are found.
func (f *coreMirrorFaults) patterns() {
	dst := f.l.dst
	include := mirrorTopic + pick(f.p.loop, []string{"," + mirrorStray + ".*", ",nothing", ""}) // m is kept: its start may be to come
	f.include(dst, include)
}

func (f *coreMirrorFaults) include(dst *cores, include string) {
	dst.command("mirror.topics.include="+include, func(s *controller.State, now time.Time) machine.Result {
		return s.AlterConfigs(now, []controller.AlterResource{{Resource: meta.Resource{Type: meta.ResourceClusterMirror, Name: dst.mirror()},
			Changes: []controller.ConfigChange{{Key: "mirror.topics.include", Value: &include}}}}, false)
	})
}

// uncleanElection has the leader of a partition of the source go on alone for a while, and then the other replica lead without what it missed.
func (f *coreMirrorFaults) uncleanElection(part int32) {
	p, c := f.p, f.l.src
	mp := c.newest().Partition(mirrorTopic, part)
	if mp == nil || mp.Leader < 0 || len(mp.Replicas) < 2 {
		return
	}
	leader := c.hosts[mp.Leader]
	other := c.hosts[mp.Replicas[slices.IndexFunc(mp.Replicas, func(r int32) bool { return r != mp.Leader })]]
	if !leader.up || !other.up {
		return
	}
	c.logf("host %d is to lead partition %d without the last records of host %d", other.id, part, leader.id)
	other.end(kill)
	f.soon(p.between(2*time.Second, 3500*time.Millisecond), func() {
		if leader.up {
			leader.end(kill)
		}
		if !other.up {
			other.start()
		}
		f.soon(p.between(3*time.Second, 6*time.Second), func() {
			if !leader.up {
				leader.start()
			}
		})
	})
}

// soon runs fn in d unless all is healed then, which starts all hosts.
func (f *coreMirrorFaults) soon(d time.Duration, fn func()) {
	f.p.after(d, func() {
		if !f.over && len(f.p.failed) == 0 {
			fn()
		}
	})
}

// end heals everything.
func (f *coreMirrorFaults) end() {
	if f.over {
		return
	}
	f.over = true
	if len(f.p.failed) > 0 {
		return
	}
	f.p.logf("all is healed")
	f.p.line.heal()
	f.p.line.delay = 5 * time.Millisecond
	for _, c := range f.p.sides {
		c.faults.end()
	}
}
