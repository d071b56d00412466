//go:build synctests

package sim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/quorum/offline"
	"milena/internal/replica"
)

const (
	nodeFaults = 15 * time.Second
	nodeBound  = 40 * time.Second // by when after healing a cluster must be whole again
)

// runMachines runs one seed. It is called in a bubble.
func runMachines(seed uint64, echo io.Writer) *machines {
	v := newVerdict(echo)
	m, err := newMachines(machinesOptions{seed: seed, name: "n", clusterID: coreCluster, rnd: rand.New(rand.NewPCG(seed, 3)), net: newNetwork(seed)}, v, 3+int(seed%3))
	if err != nil {
		v.failf("%v", err)
		return &machines{verdict: v}
	}
	defer m.endAll(kill)
	if !m.startAll() {
		return m
	}
	l := newLoad(m)
	defer l.end()
	defer m.autopsy()
	if err := l.begin(); err != nil {
		m.failf("%v", err)
		return m
	}
	if !m.until("writable", "the cluster is not whole after its start", func() string { return m.whole(l.topic) }) {
		return m
	}
	m.logf("faults begin")
	f := &nodeFault{m: m, topic: l.topic, l: l}
	f.run()
	m.logf("all is healed")
	if !m.startAll() || !m.until("writable", "the healed cluster is not whole", func() string { return m.whole(l.topic) }) || !m.writable(l) {
		return m
	}
	l.quiet()
	if !m.rest(l) || !m.until("converge", "replicas don't converge", func() string { return m.converged() }) {
		return m
	}
	m.finalCheck(l)
	if m.broken() != "" {
		return m
	}
	before := m.ends(l)
	how := leave
	if seed%4 < 2 {
		how = kill
	}
	m.logf("restart of all")
	m.endAll(how)
	if m.startAll() && m.until("converge", "the cluster is not whole after a restart", func() string { return m.whole(l.topic) }) &&
		m.until("converge", "replicas don't converge after a restart", func() string { return m.converged() }) {
		m.finalCheck(l)
		if after := m.ends(l); !maps.Equal(before, after) {
			m.failf("converge: the logs ended at %v, after a restart of all they end at %v", before, after)
		}
	}
	return m
}

// ends are where the logs of the load's topic end, when all replicas agree.
func (m *machines) ends(l *load) map[int32]int64 {
	out := map[int32]int64{}
	m.replicas(func(_ *machineNode, p *replica.Partition) {
		if p.Topic() == l.topic {
			out[p.Index()] = p.LogEndOffset()
		}
	})
	return out
}

// startAll starts the nodes that are down and waits until they serve.
func (m *machines) startAll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), nodeBound)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range m.nodes {
		wg.Go(func() {
			if err := n.ensure(ctx); err != nil {
				m.failf("writable: node %d doesn't start: %v", n.id, err)
			}
		})
	}
	wg.Wait()
	return m.broken() == ""
}

func (m *machines) endAll(how stop) {
	var wg sync.WaitGroup
	for _, n := range m.nodes {
		wg.Go(func() { n.stop(how) })
	}
	wg.Wait()
}

// until waits until ok, which must be within the bound; else the rule is broken.
func (m *machines) until(rule, what string, ok func() string) bool {
	why := ""
	for begin := time.Now(); time.Since(begin) < nodeBound && m.broken() == ""; nap(100 * time.Millisecond) {
		if why = ok(); why == "" {
			return true
		}
	}
	if m.broken() == "" {
		m.failf("%s: %s within %v: %s", rule, what, nodeBound, why)
	}
	return false
}

// whole says what keeps the cluster, which has the topic, from being whole.
func (m *machines) whole(topic string) string {
	for _, n := range m.nodes {
		nd := n.current()
		if nd == nil {
			return fmt.Sprintf("node %d is down", n.id)
		}
		img := nd.Image()
		if topic != "" && img.TopicByName(topic) == nil {
			return fmt.Sprintf("node %d doesn't know the topic %s", n.id, topic)
		}
		for t := range img.Topics() {
			for i, p := range t.Partitions {
				if p.Leader < 0 || len(p.ISR) < len(p.Replicas) || len(p.Adding)+len(p.Removing) > 0 {
					return fmt.Sprintf("%s-%d has leader %d, ISR %v, ELR %v of the replicas %v (adding %v, removing %v), seen by node %d at offset %d", t.Name, i, p.Leader, p.ISR, p.ELR, p.Replicas, p.Adding, p.Removing, n.id, img.Offset)
				}
			}
		}
	}
	return ""
}

// writable waits until every partition takes new records.
func (m *machines) writable(l *load) bool {
	before := [loadPartitions]int{}
	for p := range before {
		before[p] = l.acknowledged(int32(p))
	}
	return m.until("writable", "the healed cluster takes no writes", func() string {
		for p := range before {
			if l.acknowledged(int32(p)) < before[p]+5 {
				return fmt.Sprintf("partition %d", p)
			}
		}
		return ""
	})
}

// rest waits until the producers have all acknowledgements.
func (m *machines) rest(l *load) bool {
	done := make(chan struct{})
	go func() {
		l.writers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return m.broken() == ""
	case <-time.After(nodeBound):
		m.failf("writable: producers still wait for acknowledgements %v after the last record", nodeBound)
		return false
	}
}

// replicas calls fn for each replica of each topic, in order of the nodes.
func (m *machines) replicas(fn func(n *machineNode, p *replica.Partition)) {
	for _, n := range m.nodes {
		nd := n.current()
		if nd == nil {
			continue
		}
		var ps []*replica.Partition
		nd.Replicas().Partitions(func(p *replica.Partition) bool { ps = append(ps, p); return true })
		slices.SortFunc(ps, func(a, b *replica.Partition) int {
			if a.Topic() != b.Topic() {
				if a.Topic() < b.Topic() {
					return -1
				}
				return 1
			}
			return int(a.Index() - b.Index())
		})
		for _, p := range ps {
			if p.Log() != nil {
				fn(n, p)
			}
		}
	}
}

// converged says which replicas still differ in their ends.
func (m *machines) converged() string {
	ends, why := map[string][2]int64{}, ""
	m.replicas(func(n *machineNode, p *replica.Partition) {
		tp, at := tpName(p.Topic(), p.Index()), [2]int64{p.LogEndOffset(), p.HighWatermark()}
		if at[0] != at[1] {
			why = fmt.Sprintf("%s on node %d ends at %d, its high watermark is %d", tp, n.id, at[0], at[1])
		}
		if other, ok := ends[tp]; ok && other != at {
			why = fmt.Sprintf("%s on node %d ends at %d, elsewhere at %d", tp, n.id, at[0], other[0])
		}
		ends[tp] = at
	})
	return why
}

// finalCheck compares the replicas and what they hold with the history.
func (m *machines) finalCheck(l *load) {
	m.replicas(func(n *machineNode, p *replica.Partition) {
		if p.Topic() != l.topic {
			return // compacted: its replicas may differ in what is left
		}
		tp, log := tpName(p.Topic(), p.Index()), p.Log()
		sums, recs, err := scan(log)
		if err != nil {
			m.failf("read of %s on node %d: %v", tp, n.id, err)
			return
		}
		m.history(func(h *history) {
			h.log(tp, int32(n.id), sums, log.StartOffset(), log.Epochs())
			h.replica(tp, int32(n.id), sums, everyone, func(batchSum) time.Time { return m.begin })
			h.final(tp, recs)
		})
	})
	if m.broken() == "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.logf("checked: %s", m.hist.counts())
	}
}

// autopsy writes to the event log what the nodes hold after a rule was broken: the partitions' history in the metadata, and their logs.
func (m *machines) autopsy() {
	if m.broken() == "" {
		return
	}
	m.replicas(func(n *machineNode, p *replica.Partition) {
		leader, epoch, self := p.Leader()
		m.logf("node %d: %s-%d ends at %d, high watermark %d, epochs %v, leader %d of epoch %d (self %v), ISR %v, producers %+v", n.id, p.Topic(), p.Index(),
			p.LogEndOffset(), p.HighWatermark(), p.Log().Epochs(), leader, epoch, self, p.InSync(), p.Log().ProducerStates())
	})
	for _, n := range m.nodes[:m.voters] {
		var out strings.Builder
		if _, err := offline.Dump(&out, n.fs, metadataDir); err != nil {
			m.logf("metadata of node %d: %v", n.id, err)
			continue
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "Partition") || strings.Contains(line, "Broker") {
				m.logf("metadata: %s", strings.TrimSpace(line))
			}
		}
		return
	}
}

// nodeFault does harm to the nodes.
type nodeFault struct {
	m     *machines
	topic string // which is to have its replicas before power may fail
	l     *load  // nil: others write
}

// run does faults for a while and undoes all of them.
func (f *nodeFault) run() {
	m := f.m
	end := time.Now().Add(nodeFaults)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { f.l.churn(ctx) })
	for time.Now().Before(end) && m.broken() == "" {
		n := m.nodes[m.rnd.IntN(len(m.nodes))]
		kind, pause, a, b := m.rnd.IntN(23), f.between(50, 1500), f.between(100, 3000), m.rnd.IntN(2) == 0
		other := m.nodes[m.rnd.IntN(len(m.nodes))]
		switch kind {
		case 0, 1, 2:
			wg.Go(func() { f.restart(ctx, n, kill, a) })
		case 3:
			f.powerLoss(ctx, n, b, a)
		case 4:
			wg.Go(func() { f.restart(ctx, n, leave, a) })
		case 5, 6:
			f.isolate(ctx, &wg, n, m.rnd.IntN(3), a)
		case 7:
			m.logf("line from node %d to node %d is cut", n.id, other.id)
			f.cut(ctx, &wg, [][2]string{{n.host(), other.host()}}, a)
		case 8:
			m.logf("connections of node %d break", n.id)
			m.net.reset(n.host(), "")
		case 9:
			m.logf("the network is slow")
			m.net.change(func() { m.net.delay, m.net.slow = 40*time.Millisecond, 0.1 })
			f.later(ctx, &wg, a, func() { m.net.change(func() { m.net.delay, m.net.slow = lineDelay, 0 }) })
		case 10:
			f.slowDown(ctx, &wg, n, f.between(1, 40), a)
		case 11:
			for _, c := range m.nodes {
				if nd := c.current(); nd != nil && nd.LeadsQuorum() {
					wg.Go(func() { f.restart(ctx, c, kill, a) })
				}
			}
		case 12:
			perm := m.rnd.Perm(len(m.nodes))
			wg.Go(func() { f.reassign(ctx, int32(pause)%loadPartitions, perm) })
		case 13:
			m.logf("restart storm")
			for _, c := range m.nodes {
				wg.Go(func() { f.restart(ctx, c, kill, a) })
			}
		case 14, 15:
			f.fill(ctx, &wg, n, m.rnd.Int64N(20_000), a)
		case 16, 17:
			if m.dynamic {
				wg.Go(func() { f.changeVoters(ctx, n) })
			}
		case 18, 19:
			to := logDirs[m.rnd.IntN(len(logDirs))]
			wg.Go(func() { f.moveDir(ctx, n, int32(pause)%loadPartitions, to) })
		case 20, 21:
			wg.Go(func() { f.failDir(ctx, n, a) })
		case 22:
			wg.Go(func() { f.changeMinISR(ctx, strconv.Itoa(1+int(a/time.Millisecond)%3)) })
		}
		nap(pause)
	}
	cancel()
	wg.Wait()
	m.net.change(func() { clear(m.net.cut); clear(m.net.busy); m.net.delay, m.net.slow = lineDelay, 0 })
	for _, n := range m.nodes {
		n.makeRoom()
		n.disk.set(func(s *badDisk) { s.delay = 0 })
	}
}

func (f *nodeFault) between(lo, hi int64) time.Duration {
	return time.Duration(lo+f.m.rnd.Int64N(hi-lo)) * time.Millisecond
}

// later undoes something after a while, or at the end.
func (f *nodeFault) later(ctx context.Context, wg *sync.WaitGroup, d time.Duration, undo func()) {
	wg.Go(func() {
		wait2(ctx, d)
		undo()
	})
}

func wait2(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (f *nodeFault) cut(ctx context.Context, wg *sync.WaitGroup, lines [][2]string, d time.Duration) {
	m := f.m
	m.net.change(func() {
		for _, x := range lines {
			m.net.cut[x] = true
		}
	})
	f.later(ctx, wg, d, func() {
		m.net.change(func() {
			for _, x := range lines {
				delete(m.net.cut, x)
			}
		})
		m.logf("lines are whole: %v", lines)
	})
}

// isolate cuts a node off from the other nodes, one way or both; clients still reach it.
func (f *nodeFault) isolate(ctx context.Context, wg *sync.WaitGroup, n *machineNode, way int, d time.Duration) {
	f.m.logf("node %d is cut off: %s", n.id, [...]string{"both ways", "it hears nobody", "nobody hears it"}[way])
	var lines [][2]string
	for _, o := range f.m.nodes {
		if o == n {
			continue
		}
		if way != 1 {
			lines = append(lines, [2]string{n.host(), o.host()})
		}
		if way != 2 {
			lines = append(lines, [2]string{o.host(), n.host()})
		}
	}
	f.cut(ctx, wg, lines, d)
}

func (f *nodeFault) restart(ctx context.Context, n *machineNode, how stop, d time.Duration) {
	n.stop(how)
	wait2(ctx, d)
	_ = n.ensure(ctx) // the end of the faults starts it otherwise
}

// powerLoss takes a node's unflushed bytes while all partitions have all their replicas in sync, and waits until they do again: nothing
// acknowledged may be lost then.
func (f *nodeFault) powerLoss(ctx context.Context, n *machineNode, isTorn bool, d time.Duration) {
	m := f.m
	m.net.change(func() { clear(m.net.cut) })
	whole := func() bool {
		for ctx.Err() == nil {
			if m.whole(f.topic) == "" {
				return true
			}
			wait2(ctx, 100*time.Millisecond)
		}
		return false
	}
	if !whole() {
		return
	}
	how := power
	if isTorn {
		how = torn
	}
	n.stop(how)
	wait2(ctx, d)
	if err := n.ensure(ctx); err == nil {
		whole()
	}
}

// reassign moves a partition to three nodes.
func (f *nodeFault) reassign(ctx context.Context, partition int32, perm []int) {
	cl, err := f.m.client("operator")
	if err != nil {
		return
	}
	defer cl.Close()
	var to []int32
	for _, i := range perm[:3] {
		to = append(to, int32(f.m.nodes[i].id))
	}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(f.topic, partition, to)
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err = kadm.NewClient(cl).AlterPartitionAssignments(short, req)
	f.m.logf("move %s to %v: %v", tpName(f.topic, partition), to, err)
}
