//go:build synctests

package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/replica"
	"milena/mirroradm"
)

// mirrorFaults do harm to both clusters and to the line between them during a leg.
type mirrorFaults struct {
	p    *pair
	l    *leg
	rnd  *rand.Rand
	stop context.CancelFunc
	over chan struct{} // closed when all is undone
}

// faultsFor begins the faults of a leg; one in five has none.
func (p *pair) faultsFor(ctx context.Context, l *leg) *mirrorFaults {
	f := &mirrorFaults{p: p, l: l, rnd: p.sides[0].m.rnd, over: make(chan struct{})}
	d := time.Duration(2+p.rnd.IntN(6)) * time.Second
	if p.rnd.IntN(5) == 0 {
		d = 0
	}
	ctx, f.stop = context.WithTimeout(ctx, d)
	go f.run(ctx)
	return f
}

// wait waits until the faults are over and undone.
func (f *mirrorFaults) wait() { <-f.over }

// end ends them.
func (f *mirrorFaults) end() {
	f.stop()
	<-f.over
}

func (f *mirrorFaults) run(ctx context.Context) {
	defer close(f.over)
	p := f.p
	var wg sync.WaitGroup
	wg.Go(func() { f.strays(ctx) })
	for ctx.Err() == nil && p.broken() == "" {
		s := p.sides[f.rnd.IntN(2)]
		switch f.rnd.IntN(5) {
		case 0, 1, 2:
			f.harm(ctx, &wg, s)
		case 3:
			f.line(ctx, &wg)
		case 4:
			f.operate(ctx, &wg, s)
		}
		wait2(ctx, time.Duration(50+f.rnd.IntN(900))*time.Millisecond)
	}
	f.stop()
	wg.Wait()
	p.net.change(func() { clear(p.net.cut); clear(p.net.busy); p.net.delay, p.net.slow = lineDelay, 0 })
	for _, s := range p.sides {
		for _, n := range s.m.nodes {
			n.makeRoom()
			n.disk.set(func(b *badDisk) { b.delay = 0 })
		}
	}
	p.logf("all is healed")
	p.both(func(s *side) { s.m.startAll() })
}

// harm does something to a cluster.
func (f *mirrorFaults) harm(ctx context.Context, wg *sync.WaitGroup, s *side) {
	m := s.m
	nf := &nodeFault{m: m, topic: mirrorTopic}
	n, other := m.nodes[f.rnd.IntN(len(m.nodes))], m.nodes[f.rnd.IntN(len(m.nodes))]
	a, isTorn, way := nf.between(100, 2500), f.rnd.IntN(2) == 0, f.rnd.IntN(3)
	space, perm := f.rnd.Int64N(20_000), f.rnd.Perm(len(m.nodes))
	switch f.rnd.IntN(13) {
	case 0, 1, 2:
		wg.Go(func() { nf.restart(ctx, n, kill, a) })
	case 3:
		wg.Go(func() { nf.restart(ctx, n, leave, a) })
	case 4:
		if !f.p.unclean && len(m.nodes) > 1 { // else nobody has the bytes that aren't flushed
			nf.powerLoss(ctx, n, isTorn, a)
		}
	case 5:
		nf.isolate(ctx, wg, n, way, a)
	case 6:
		m.logf("line from node %d to node %d is cut", n.id, other.id)
		nf.cut(ctx, wg, [][2]string{{n.host(), other.host()}}, a)
	case 7:
		nf.slowDown(ctx, wg, n, a/100, a)
	case 8:
		nf.fill(ctx, wg, n, space, a)
	case 9:
		wg.Go(func() { nf.failDir(ctx, n, a) })
	case 10:
		if len(perm) >= 3 && !f.p.unclean {
			wg.Go(func() { nf.reassign(ctx, int32(space%mirrorPartitions), perm) })
		}
	case 11:
		m.logf("restart storm")
		for _, c := range m.nodes {
			wg.Go(func() { nf.restart(ctx, c, kill, a) })
		}
	case 12:
		if f.p.unclean && s == f.l.src {
			f.uncleanElection(ctx, wg, int32(space%mirrorPartitions), a)
		}
	}
}

// uncleanElection has the leader of a partition go on alone for a while, and then the other replica lead without what it missed.
func (f *mirrorFaults) uncleanElection(ctx context.Context, wg *sync.WaitGroup, part int32, d time.Duration) {
	s := f.l.src
	var leader, other *machineNode
	s.each(part, func(n *machineNode, p *replica.Partition) {
		if _, _, self := p.Leader(); self {
			leader = n
		} else {
			other = n
		}
	})
	if leader == nil || other == nil {
		return
	}
	s.m.logf("node %d is to lead partition %d without the last records of node %d", other.id, part, leader.id)
	wg.Go(func() {
		other.stop(kill)
		wait2(ctx, 3*time.Second)
		leader.stop(kill)
		_ = other.ensure(ctx)
		wait2(ctx, 2*time.Second+d)
		_ = leader.ensure(ctx)
	})
}

// line does something to the line between the clusters.
func (f *mirrorFaults) line(ctx context.Context, wg *sync.WaitGroup) {
	p := f.p
	nf := &nodeFault{m: p.sides[0].m}
	d := nf.between(100, 3000)
	var lines [][2]string
	way := f.rnd.IntN(3)
	one := f.rnd.IntN(2) == 0
	na, nb := f.rnd.IntN(len(p.sides[0].m.nodes)), f.rnd.IntN(len(p.sides[1].m.nodes))
	for i, x := range p.sides[0].m.nodes {
		for j, y := range p.sides[1].m.nodes {
			if one && (i != na || j != nb) {
				continue
			}
			if way != 1 {
				lines = append(lines, [2]string{x.host(), y.host()})
			}
			if way != 2 {
				lines = append(lines, [2]string{y.host(), x.host()})
			}
		}
	}
	switch f.rnd.IntN(4) {
	case 0:
		p.logf("the network is slow")
		p.net.change(func() { p.net.delay, p.net.slow = 40*time.Millisecond, 0.1 })
		nf.later(ctx, wg, d, func() { p.net.change(func() { p.net.delay, p.net.slow = lineDelay, 0 }) })
	case 1:
		p.logf("connections between the clusters break")
		for _, x := range p.sides[0].m.nodes {
			for _, y := range p.sides[1].m.nodes {
				p.net.reset(x.host(), y.host())
			}
		}
	default:
		p.logf("between the clusters is cut: %v", lines)
		nf.cut(ctx, wg, lines, d)
	}
}

// operate does what operators do.
func (f *mirrorFaults) operate(ctx context.Context, wg *sync.WaitGroup, s *side) {
	p, l := f.p, f.l
	a := time.Duration(100+f.rnd.IntN(1500)) * time.Millisecond
	jump := 1 + f.rnd.Int32N(30)
	try := func(what string, do func(ctx context.Context) error) {
		wg.Go(func() {
			short, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			p.logf("%s: %v", what, do(short))
		})
	}
	topics := []string{mirrorTopic}
	part := f.rnd.Int32N(mirrorPartitions)
	switch f.rnd.IntN(13) {
	case 8, 9:
		f.lateWrite(ctx, wg, part, a)
	case 10, 11, 12:
		f.starve(ctx, wg, part, a)
	case 0, 1:
		wg.Go(func() {
			short, cancel := context.WithTimeout(ctx, 3*time.Second)
			rs, err := l.dst.mir.Pause(short, l.dst.mirror, topics)
			cancel()
			p.logf("pause: %v", errors.Join(err, rs.Error()))
			wait2(ctx, a)
			short, cancel = context.WithTimeout(ctx, 3*time.Second)
			rs, err = l.dst.mir.Resume(short, l.dst.mirror, topics)
			cancel()
			p.logf("resume: %v", errors.Join(err, rs.Error()))
		})
	case 2, 3:
		try("elect preferred leaders of "+s.m.name, func(ctx context.Context) error {
			_, err := s.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
			return err
		})
	case 4, 5:
		try("the source's leader epochs jump", func(ctx context.Context) error {
			var least [mirrorPartitions]int32
			for i := range least {
				if r := l.src.leader(int32(i)); r != nil {
					_, epoch, _ := r.Leader()
					least[i] = epoch + jump
				}
			}
			return l.src.raiseEpochs(ctx, least)
		})
	case 6:
		try("recover", func(ctx context.Context) error {
			rs, err := l.dst.mir.Recover(ctx, l.dst.mirror, topics)
			return errors.Join(err, rs.Error())
		})
	case 7:
		include := mirrorTopic + []string{"," + strayTopic + ".*", ",nothing", ""}[f.rnd.IntN(3)] // m is kept: its start may be to come
		try("mirror.topics.include="+include, func(ctx context.Context) error {
			return l.dst.mir.AlterConfigs(ctx, l.dst.mirror, map[string]string{"mirror.topics.include": include})
		})
	}
}

// starve has a mirror partition's leader not reach the source's leader, while the rest of what is mirrored goes on: groups get ahead of it.
func (f *mirrorFaults) starve(ctx context.Context, wg *sync.WaitGroup, part int32, d time.Duration) {
	var hosts [2]string
	for i, s := range []*side{f.l.src, f.l.dst} {
		s.each(part, func(n *machineNode, p *replica.Partition) {
			if _, _, self := p.Leader(); self {
				hosts[i] = n.host()
			}
		})
	}
	if hosts[0] == "" || hosts[1] == "" {
		return
	}
	f.p.logf("line between %s and %s is cut", hosts[0], hosts[1])
	nf := &nodeFault{m: f.l.dst.m}
	nf.cut(ctx, wg, [][2]string{{hosts[0], hosts[1]}, {hosts[1], hosts[0]}}, d)
}

// lateWrite has a mirror partition's leader write its state late: what it sends to the coordinator is held up on the way while the wish
// changes and another node takes over.
func (f *mirrorFaults) lateWrite(ctx context.Context, wg *sync.WaitGroup, part int32, d time.Duration) {
	s := f.l.dst
	if len(s.m.nodes) < 3 || f.p.unclean {
		return
	}
	nf := &nodeFault{m: s.m}
	var leader, coordinator *machineNode
	s.each(part, func(n *machineNode, p *replica.Partition) {
		if _, _, self := p.Leader(); self {
			leader = n
		}
		if nd := n.current(); nd != nil {
			if p := nd.Image().Partition(mirrorstate.Topic, 0); p != nil && p.Leader > 0 {
				coordinator = s.m.nodes[p.Leader-1]
			}
		}
	})
	if leader == nil || coordinator == nil || leader == coordinator {
		return
	}
	s.m.logf("what node %d sends to the coordinator on node %d is late", leader.id, coordinator.id)
	nf.cut(ctx, wg, [][2]string{{leader.host(), coordinator.host()}}, 400*time.Millisecond+d)
	wg.Go(func() {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		rs, err := s.mir.Pause(short, s.mirror, []string{mirrorTopic})
		s.m.logf("pause: %v", errors.Join(err, rs.Error()))
		wait2(ctx, 50*time.Millisecond)
		var req kadm.AlterPartitionAssignmentsReq
		to := []int32{}
		for i := range s.m.nodes[:3] {
			to = append(to, int32((leader.id+i)%3+1)) // the leader comes last
		}
		req.Assign(mirrorTopic, part, to)
		_, err = s.adm.AlterPartitionAssignments(short, req)
		if err == nil {
			_, err = s.adm.ElectLeaders(short, kadm.ElectPreferredReplica, nil)
		}
		s.m.logf("partition %d goes to %v: %v", part, to, err)
		wait2(ctx, d)
		again, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		rs, err = s.mir.Resume(again, s.mirror, []string{mirrorTopic})
		s.m.logf("resume: %v", errors.Join(err, rs.Error()))
	})
}

// strays has a topic at the source that is created, written to and deleted, again and again, and mirrored by a pattern for as long as it
// is there.
func (f *mirrorFaults) strays(ctx context.Context) {
	src, dst := f.l.src, f.l.dst
	cl, err := src.m.client(src.m.name+"-stray", kgo.UnknownTopicRetries(1), kgo.RecordDeliveryTimeout(2*time.Second))
	if err != nil {
		f.p.failf("stray: %v", err)
		return
	}
	defer cl.Close()
	wait2(ctx, 500*time.Millisecond)
	try := func(do func(ctx context.Context) error) error {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return do(short)
	}
	for ctx.Err() == nil {
		err := try(func(ctx context.Context) error {
			_, err := src.adm.CreateTopic(ctx, 1, -1, nil, strayTopic)
			for i := 0; i < 3 && err == nil; i++ {
				// Not ProduceSync, which waits for an answer to what was sent, and all nodes may be down until this ends.
				done := make(chan error, 1)
				cl.Produce(ctx, &kgo.Record{Topic: strayTopic, Value: []byte("stray")}, func(_ *kgo.Record, err error) { done <- err })
				select {
				case err = <-done:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			return err
		})
		f.p.logf("topic %s created at %s and written to: %v", strayTopic, src.m.name, err)
		wait2(ctx, 1500*time.Millisecond)
		err = try(func(ctx context.Context) error { _, err := src.adm.DeleteTopic(ctx, strayTopic); return err })
		f.p.logf("topic %s deleted at %s: %v", strayTopic, src.m.name, err)
		wait2(ctx, time.Second)
		err = try(func(ctx context.Context) error {
			rs, err := dst.mir.Stop(ctx, dst.mirror, []string{strayTopic}, nil)
			return errors.Join(err, rs.Error())
		})
		f.p.logf("topic %s stopped at %s: %v", strayTopic, dst.m.name, err)
		err = try(func(ctx context.Context) error { _, err := dst.adm.DeleteTopic(ctx, strayTopic); return err })
		f.p.logf("topic %s deleted at %s: %v", strayTopic, dst.m.name, err)
	}
}

// strayState says what is wrong with the topic that comes and goes, when all is healed: its mirror has to be the source's equal, or to have
// FAILED with a reason.
func (p *pair) strayState(ctx context.Context, l *leg) string {
	ds, err := l.dst.mir.DescribeWith(ctx, mirroradm.DescribeOptions{Mirrors: []string{l.dst.mirror}, State: true, Offsets: true, Topics: map[string][]int32{strayTopic: nil}})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return err.Error()
	}
	for _, d := range ds {
		for _, x := range d.Partitions {
			switch {
			case x.Topic != strayTopic || x.State == mirrormsg.Stopped.String() || x.State == mirrormsg.Paused.String():
			case x.State == mirrormsg.Failed.String() && x.LastError != "":
			case x.State != mirrormsg.Mirroring.String():
				return "the mirror of topic " + strayTopic + " is " + x.State + ": " + x.LastError
			}
		}
	}
	return ""
}
