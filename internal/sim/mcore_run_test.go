package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/replica"
)

// mirrorCores are two clusters of cores that mirror each other in turn, with a line between them, under one event loop.
type mirrorCores struct {
	*loop
	seed    uint64
	line    *wires // from one cluster to the other
	sides   [2]*cores
	names   [2]string // of the mirror that a side has of the other one
	check   *coreMirrorCheck
	legs    []*coreLeg
	holding bool // clients begin nothing new
	busy    int  // writes that aren't answered
	pids    int64
	topic   ids.UUID // of the mirrored topic, on both sides
	unclean bool     // leaders may be elected out of sync at the source: it loses records
	acked   [2][mirrorPartitions]int
	stray   *strays
	views   [2][]*view // of the clients of a side
	remade  [2]time.Time
}

// coreLeg is one time that one side mirrors the other, from its start to its stop.
type coreLeg struct {
	legSpan
	dst, src *cores
}

// coreMirrorBound is by when a mirror must be where it should be after all is healed.
const coreMirrorBound = 60 * time.Second

// runMirrorCores runs one seed. It is called in a bubble.
func runMirrorCores(seed uint64, tune func(*mirrorCores)) *mirrorCores {
	l := &loop{rnd: rand.New(rand.NewPCG(seed, 0x317)), begin: time.Now(), trace: newLoop(seed).trace, keep: 20_000}
	p := &mirrorCores{loop: l, seed: seed, line: newWires(l), names: [2]string{"of-b", "of-a"}}
	p.line.side, p.line.delay = 100, 5*time.Millisecond
	p.unclean = seed%4 == 3
	p.check = &coreMirrorCheck{p: p, mirrorRules: newMirrorRules([2]string{"a", "b"}, p.unclean)}
	if tune != nil {
		tune(p)
	}
	sizes := [][2]int{{3, 3}, {3, 1}, {1, 3}, {3, 3}}[seed%4]
	for i := range p.sides {
		p.sides[i] = p.cluster(i, sizes[i])
	}
	l.settle = func() {
		for _, c := range p.sides {
			for _, h := range c.hosts {
				if h.touched && h.up && h.brk != nil && h.brk.mirrors != nil {
					h.brk.mirrors.settle()
				}
			}
		}
	}
	defer p.endTasks()
	if len(l.failed) > 0 {
		return p
	}
	for _, c := range p.sides {
		for _, h := range c.hosts {
			h.start()
		}
		c.every(200*time.Millisecond, func() { c.check.look(false) })
	}
	if p.setUp(); len(l.failed) > 0 {
		return p
	}
	dst, src := p.sides[1], p.sides[0]
	for n := 1 + l.rnd.IntN(3); n >= 0; n-- {
		if !p.leg(dst, src, n == 0) {
			return p
		}
		if l.rnd.IntN(4) > 0 {
			dst, src = src, dst
		}
	}
	p.restartAll()
	return p
}

func (p *mirrorCores) other(c *cores) *cores { return p.sides[1-c.side] }

// cluster makes one of the two.
func (p *mirrorCores) cluster(side, n int) *cores {
	name := string(rune('a' + side))
	c := &cores{loop: p.loop, clusterID: "c2ltLWNsdXN0ZXItaWQt" + strings.ToUpper(name) + "Q", tag: name + ": ", factor: n, voters: n, controllers: n,
		mirroring: p, side: side, net: newWires(p.loop), acked: map[topicPartition]int{}, born: map[uint64]time.Time{}}
	c.faults = &faults{c: c}
	c.hist = newHistory(func(rule, format string, args ...any) { c.failf("%s: %s", rule, fmt.Sprintf(format, args...)) })
	c.check = &coreCheck{c: c, checked: map[replicaKey]int64{}, known: map[topicPartition]*meta.Partition{}, members: map[topicPartition][]int32{}, draft: meta.Empty(c.clusterID).Draft()}
	c.segmentBytes, c.snapshotBytes = 1<<uint(11+p.rnd.IntN(9)), int64(20_000+p.rnd.IntN(200_000))
	c.tps = []topicPartition{{topic: group.Topic}}
	for part := range int32(mirrorPartitions) {
		c.also = append(c.also, topicPartition{topic: mirrorTopic, partition: part})
	}
	for i := range n {
		h := &host{c: c, id: i, fs: disk.NewMem(p.seed*100 + uint64(side*10+i))}
		h.meta = h.fs
		if err := h.format(); err != nil {
			c.failf("format: %v", err)
			return c
		}
		c.hosts = append(c.hosts, h)
	}
	return c
}

// endTasks ends what is left of the hosts' tasks.
func (p *mirrorCores) endTasks() {
	for _, c := range p.sides {
		for _, h := range c.hosts {
			if h.brk != nil && h.brk.mirrors != nil {
				h.brk.mirrors.end()
			}
		}
	}
}

// until runs on until ok, which must be so within the bound; else the rule is broken.
func (p *mirrorCores) until(rule, what string, ok func() string) bool {
	why := ""
	for end := p.elapsed() + coreMirrorBound; p.elapsed() < end && len(p.failed) == 0; p.run(p.elapsed() + 100*time.Millisecond) {
		if why = ok(); why == "" {
			return true
		}
	}
	if len(p.failed) == 0 {
		p.failf("%s: %s within %v: %s", rule, what, coreMirrorBound, why)
	}
	return false
}

// insist has a side's controller told something again until it is so.
func (p *mirrorCores) insist(c *cores, what string, done func() bool, may func() string, cmd func() controller.Command) bool {
	return p.until("writable", c.tag+what, func() string {
		switch why := may(); {
		case done():
			return ""
		case why != "":
			return why
		}
		c.command(what, cmd())
		return "not done yet"
	})
}

func always() string { return "" }

// newest is the newest metadata that a broker was seen to have.
func (c *cores) newest() *meta.Image {
	if c.seen == nil {
		c.seen = meta.Empty(c.clusterID)
	}
	for _, h := range c.hosts {
		if h.up && h.brk.img.Offset > c.seen.Offset {
			c.seen = h.brk.img
		}
	}
	return c.seen
}

// knownLeader is who leads a partition as far as is known, nil if nobody does.
func (c *cores) knownLeader(topic string, partition int32) *host {
	if p := c.newest().Partition(topic, partition); p != nil && p.Leader >= 0 {
		return c.hosts[p.Leader]
	}
	return nil
}

// replicaOf is the replica that leads a partition of the mirrored topic, nil if none is known to. Of two the later one counts.
func (c *cores) replicaOf(part int32) (best *replica.Partition) {
	most := int32(-1)
	c.eachReplica(part, func(_ *host, p *replica.Partition) {
		if _, epoch, self := p.Leader(); self && epoch > most {
			best, most = p, epoch
		}
	})
	return best
}

// eachReplica calls fn for each replica of a partition of the mirrored topic on hosts that are up.
func (c *cores) eachReplica(part int32, fn func(h *host, p *replica.Partition)) {
	for _, h := range c.hosts {
		if !h.up {
			continue
		}
		if p, err := h.brk.mgr.Get(mirrorTopic, part); err == nil && p.Log() != nil {
			fn(h, p)
		}
	}
}

// mirror is the name of the mirror that a side has.
func (c *cores) mirror() string { return c.mirroring.names[c.side] }

func (c *cores) wish() mirrormsg.State {
	if t := c.newest().TopicByName(mirrorTopic); t != nil && t.MirrorName != "" {
		return mirrormsg.State(t.MirrorDesired)
	}
	return mirrormsg.Unknown
}

// status is what the coordinator of partition states holds of a partition of the side's mirror; false if none is loaded.
func (c *cores) status(part int32) (mirrorstate.Status, bool) {
	return c.statusOf(mirrorstate.Key{Mirror: c.mirror(), TopicID: c.mirroring.topic, Partition: part})
}

func (c *cores) statusOf(k mirrorstate.Key) (mirrorstate.Status, bool) {
	var best *mirrorHost
	for _, h := range c.hosts {
		if h.up && h.brk.mirrors.states.core != nil && (best == nil || h.brk.mirrors.states.epoch > best.states.epoch) {
			best = h.brk.mirrors
		}
	}
	if best == nil {
		return mirrorstate.NoStatus(), false
	}
	r := best.shard.Read([]mirrorstate.Key{k}, nil)(time.Now())
	return r.Reply.([]mirrorstate.Status)[0], true
}

// inStates says why not all partitions are in one of the states.
func (c *cores) inStates(states ...mirrormsg.State) string {
	for part := range int32(mirrorPartitions) {
		st, ok := c.status(part)
		if !ok {
			return "no coordinator of states"
		}
		if !slices.Contains(states, st.State) {
			return fmt.Sprintf("partition %d is %s: %s", part, st.State, st.Error)
		}
	}
	return ""
}

// setUp makes the topics, and has the clients begin.
func (p *mirrorCores) setUp() {
	for _, c := range p.sides {
		compact := "compact"
		topics := []controller.NewTopic{{Name: group.Topic, Partitions: 1, ReplicationFactor: int16(c.factor), Configs: map[string]*string{"cleanup.policy": &compact}}}
		if c.side == 0 {
			topics = append(topics, p.mirroredTopic(c))
		}
		done := func() bool { return c.newest().TopicByName(topics[len(topics)-1].Name) != nil }
		live := func() string {
			if n := len(slices.Collect(c.newest().Brokers())); n < len(c.hosts) {
				return fmt.Sprintf("%d brokers", n)
			}
			return ""
		}
		if !p.insist(c, "create topics", done, live, func() controller.Command {
			return func(s *controller.State, now time.Time) machine.Result { return s.CreateTopics(now, topics, false) }
		}) {
			return
		}
		if c.side == 0 {
			p.topic = c.newest().TopicByName(mirrorTopic).ID
		}
		for id := range 2 {
			w := &mirrorWriter{p: p, c: c, id: id}
			p.after(p.between(0, 100*time.Millisecond), w.next)
		}
		r := &mirrorReader{p: p, c: c}
		r.begin()
		p.after(0, (&mirrorCommitter{p: p, c: c}).next)
	}
	p.after(0, p.check.look)
}

// mirroredTopic is the topic as it is made at first.
func (p *mirrorCores) mirroredTopic(c *cores) controller.NewTopic {
	t := controller.NewTopic{Name: mirrorTopic, Partitions: mirrorPartitions, ReplicationFactor: int16(c.factor), Configs: map[string]*string{}}
	set := func(key, value string) { t.Configs[key] = &value }
	if p.unclean {
		t.ReplicationFactor = min(2, t.ReplicationFactor)
		set(minISRKey, "1")
		set("unclean.leader.election.enable", "true")
	}
	return t
}

// remake deletes the topic on a side that is about to mirror the same source again: what was written there is gone, on purpose.
func (p *mirrorCores) remake(dst *cores) bool {
	p.holding = true
	if !p.until("writable", "writers get no answers", p.writersRest) {
		return false
	}
	for _, w := range p.check.records {
		if w.side == dst.side {
			w.acked = false
		}
	}
	p.check.shared, p.check.related = [mirrorPartitions]int64{}, [mirrorPartitions]bool{}
	// By a pattern that names it the topic would be found and made again at once.
	res, nothing := meta.Resource{Type: meta.ResourceClusterMirror, Name: dst.mirror()}, "nothing"
	if !p.insist(dst, "mirror.topics.include", func() bool { return dst.newest().Config(res.Type, res.Name)["mirror.topics.include"] == nothing }, always, func() controller.Command {
		return func(s *controller.State, now time.Time) machine.Result {
			return s.AlterConfigs(now, []controller.AlterResource{{Resource: res, Changes: []controller.ConfigChange{{Key: "mirror.topics.include", Value: &nothing}}}}, false)
		}
	}) {
		return false
	}
	gone := func() bool { return dst.newest().Offset >= 0 && dst.newest().TopicByName(mirrorTopic) == nil }
	ok := p.insist(dst, "delete the topic", gone, always, func() controller.Command {
		return func(s *controller.State, now time.Time) machine.Result {
			return s.DeleteTopics(now, []controller.DeleteTopic{{Name: mirrorTopic}})
		}
	})
	for _, v := range p.views[dst.side] {
		v.epoch = 0 // leader epochs begin anew
	}
	clear(p.check.readable[dst.side])
	p.remade[dst.side] = time.Now()
	p.holding = false
	return ok
}

func (p *mirrorCores) writersRest() string {
	if p.busy > 0 {
		return fmt.Sprintf("%d writes are under way", p.busy)
	}
	return ""
}

// begin has dst mirror src.
func (p *mirrorCores) begin(dst, src *cores) bool {
	name := dst.mirror()
	configs := map[string]string{
		"bootstrap.servers": "sim:9000", sourceIDKey: src.clusterID, "mirror.fetch.wait.max.ms": "100", "mirror.fetch.backoff.ms": "50", "mirror.groups.sync.interval.ms": "200",
		"mirror.audit.interval.ms": "0", "mirror.fetch.response.max.bytes": "65536", "mirror.fetch.max.bytes": "3000", "request.timeout.ms": "2000", "mirror.socket.timeout.ms": "2000",
	}
	if !p.insist(dst, "create mirror", func() bool { return len(dst.newest().Config(meta.ResourceClusterMirror, name)) > 0 }, always, func() controller.Command {
		req := &mirrormsg.CreateClusterMirrorRequest{MirrorName: name}
		for _, k := range sortedKeys(configs) {
			v := configs[k]
			req.Config = append(req.Config, mirrormsg.CreateClusterMirrorConfig{Name: k, Value: &v})
		}
		return mirrorCommands(dst).Create(req)
	}) {
		return false
	}
	if st := (topicPartition{topic: mirrorstate.Topic}); !slices.Contains(dst.tps, st) {
		dst.tps = append(dst.tps, st)
	}
	if len(p.legs) > 1 && p.check.related != [mirrorPartitions]bool{true, true} && !p.consent(dst) {
		return false
	}
	if p.unclean && p.seed%8 == 7 { // after a cut all replicas are waited for
		key, value := "mirror.support.unclean.leader.election", "true"
		p.after(500*time.Millisecond, func() {
			dst.command(key, func(s *controller.State, now time.Time) machine.Result {
				return s.AlterConfigs(now, []controller.AlterResource{{Resource: meta.Resource{Type: meta.ResourceTopic, Name: mirrorTopic}, Changes: []controller.ConfigChange{{Key: key, Value: &value}}}}, false)
			})
		})
	}
	started := func() bool { return dst.wish() == mirrormsg.Mirroring || dst.wish() == mirrormsg.Paused } // a fault may have paused it since
	return p.insist(dst, "start", started, func() string {
		if dst.newest().TopicByName(mirrorTopic) == nil {
			return ""
		}
		return dst.inStates(mirrormsg.Stopped, mirrormsg.Unknown)
	}, func() controller.Command {
		req := mirrormsg.NewStartMirrorTopicsRequest()
		req.MirrorName, req.StateOffset = name, -1
		req.Topics = []mirrormsg.StartMirrorTopic{{TopicName: mirrorTopic, TopicID: p.topic, NumPartitions: mirrorPartitions}}
		return mirrorCommands(dst).Start(&req)
	})
}

// consent allows a cut of records that share nothing with the source.
func (p *mirrorCores) consent(dst *cores) bool {
	key, value := "mirror.truncate.unrelated.topics", mirrorTopic
	res := meta.Resource{Type: meta.ResourceClusterMirror, Name: dst.mirror()}
	return p.insist(dst, "consent to a cut", func() bool { return dst.newest().Config(res.Type, res.Name)[key] == value }, always, func() controller.Command {
		return func(s *controller.State, now time.Time) machine.Result {
			return s.AlterConfigs(now, []controller.AlterResource{{Resource: res, Changes: []controller.ConfigChange{{Key: key, Value: &value}}}}, false)
		}
	})
}

// change has a side's topic wished to be in another state, once its partitions are in those that a broker lets that be asked for in.
func (p *mirrorCores) change(c *cores, what string, to mirrormsg.State, from []mirrormsg.State, cmd func(mirrors.Commands) controller.Command) bool {
	return p.insist(c, what, func() bool { return c.wish() == to }, func() string { return c.inStates(from...) }, func() controller.Command { return cmd(mirrorCommands(c)) })
}

func (p *mirrorCores) halt(c *cores) bool {
	from := []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused, mirrormsg.Failed, mirrormsg.EpochFencing, mirrormsg.ULELogTruncation, mirrormsg.Pausing}
	return p.change(c, "stop", mirrormsg.Stopped, from, func(k mirrors.Commands) controller.Command {
		req := mirrormsg.NewStopMirrorTopicsRequest()
		req.MirrorName, req.StateOffset, req.Topics = c.mirror(), -1, []mirrormsg.StopMirrorTopic{{TopicName: mirrorTopic}}
		return k.Stop(&req)
	})
}

func pauseCommand(c *cores) controller.Command {
	req := mirrormsg.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.StateOffset, req.Topics = c.mirror(), -1, []mirrormsg.PauseMirrorTopic{{TopicName: mirrorTopic}}
	return mirrorCommands(c).Pause(&req)
}

func resumeCommand(c *cores) controller.Command {
	req := mirrormsg.NewResumeMirrorTopicsRequest()
	req.MirrorName, req.StateOffset, req.Topics = c.mirror(), -1, []mirrormsg.ResumeMirrorTopic{{TopicName: mirrorTopic}}
	return mirrorCommands(c).Resume(&req)
}

// resume ends a pause that is left.
func (p *mirrorCores) resume(c *cores) bool {
	return p.change(c, "resume", mirrormsg.Mirroring, []mirrormsg.State{mirrormsg.Paused}, func(mirrors.Commands) controller.Command { return resumeCommand(c) })
}

// leg has dst mirror src for a while, under faults, and then stops it, but for the last time.
func (p *mirrorCores) leg(dst, src *cores, last bool) bool {
	if n := len(p.legs); n > 0 && p.legs[n-1].dst == dst && p.chance(0.4) && !p.remake(dst) {
		return false
	}
	l := &coreLeg{dst: dst, src: src, legSpan: legSpan{to: dst.side, base: p.check.shared}}
	p.legs = append(p.legs, l)
	p.check.legs = append(p.check.legs, &l.legSpan)
	p.logf("leg %d: %s mirrors %s, from %v on", len(p.legs), dst.mirror(), src.clusterID, l.base)
	f := &coreMirrorFaults{p: p, l: l}
	f.begin()
	f.away()
	most := 8 * time.Second
	if f.awayFrom != nil || p.unclean {
		most = 14 * time.Second
	}
	least := 2 * time.Second
	if f.awayFrom != nil && p.unclean { // until the host may have been chosen to lead
		least, most = 16*time.Second, 22*time.Second
	}
	p.after(p.between(least, most), f.end)
	if !p.begin(dst, src) {
		return false
	}
	p.check.begin(l)
	planned := last || f.awayFrom != nil || p.rnd.IntN(5) < 2
	if planned {
		for !f.over && len(p.failed) == 0 {
			p.run(p.elapsed() + 100*time.Millisecond)
		}
	} else {
		p.run(p.elapsed() + p.between(0, 6*time.Second))
	}
	if len(p.failed) > 0 || planned && !p.equal(l) {
		return false
	}
	if last {
		return true
	}
	p.check.begin(nil)
	if !p.halt(dst) {
		return false
	}
	p.holding = false
	f.end()
	return p.heal() && p.stopped(l) && p.apart(l)
}

// heal waits until both clusters are whole again.
func (p *mirrorCores) heal() bool {
	return p.until("writable", "the healed clusters are not whole", func() string {
		for _, c := range p.sides {
			if why := c.whole(); why != "" {
				return c.tag + why
			}
		}
		return ""
	})
}

// equal waits until the mirror holds all that its source has, with no writes under way, and compares everything.
func (p *mirrorCores) equal(l *coreLeg) bool {
	if !p.heal() || !p.resume(l.dst) {
		return false
	}
	p.holding = true
	if !p.until("writable", "writers get no answers", p.writersRest) || !p.until("converge", "the mirror doesn't get equal to its source", func() string {
		if l.dst.wish() == mirrormsg.Paused && l.dst.inStates(mirrormsg.Paused) == "" { // by a pause that was done after the resume above
			l.dst.command("resume", resumeCommand(l.dst))
		}
		return p.check.mirrored(l)
	}) {
		return false
	}
	l.aligned = time.Now()
	p.check.compare(l)
	return len(p.failed) == 0
}

// stopped waits for the end of a stop, and notes up to where the sides share their records now.
func (p *mirrorCores) stopped(l *coreLeg) bool {
	if !p.until("writable", "the stopped mirror doesn't get writable", func() string { return p.check.halted(l) }) ||
		!p.until("converge", "not all replicas have what was mirrored", func() string { return p.check.held(l) }) {
		return false
	}
	p.check.prefix(l)
	before := p.acked[l.dst.side]
	return p.until("writable", "the stopped mirror takes no writes", func() string {
		for i, n := range p.acked[l.dst.side] {
			if n < before[i]+3 {
				return fmt.Sprintf("partition %d", i)
			}
		}
		return ""
	})
}

// apart has both sides go on by themselves for a while, now and then with the same leader epochs: epochs alone don't tell then whose records
// are whose.
func (p *mirrorCores) apart(l *coreLeg) bool {
	if p.chance(0.5) {
		var least [mirrorPartitions]int32
		for i := range least {
			if r := l.dst.replicaOf(int32(i)); r != nil {
				_, epoch, _ := r.Leader()
				least[i] = epoch - 1
			}
		}
		p.raiseEpochs(l.src, least)
	}
	p.run(p.elapsed() + p.between(200*time.Millisecond, 1700*time.Millisecond))
	return len(p.failed) == 0
}

// raiseEpochs has a side's leaders lead with epochs above those given.
func (p *mirrorCores) raiseEpochs(c *cores, least [mirrorPartitions]int32) {
	c.command(fmt.Sprintf("leader epochs above %v", least), func(s *controller.State, now time.Time) machine.Result {
		var bumps []controller.EpochBump
		for i, e := range least {
			bumps = append(bumps, controller.EpochBump{Topic: mirrorTopic, Partition: int32(i), Min: e})
		}
		return s.BumpLeaderEpochs(now, bumps)
	})
}

// restartAll restarts all hosts of both clusters: nothing may change by that.
func (p *mirrorCores) restartAll() {
	l := p.legs[len(p.legs)-1]
	before := p.check.ends()
	p.check.begin(nil)
	p.logf("restart of all")
	for _, c := range p.sides {
		for _, h := range c.hosts {
			h.end(kill)
		}
		for _, h := range c.hosts {
			h.start()
		}
	}
	if !p.heal() || !p.until("converge", "the mirror isn't equal after a restart of all", func() string { return p.check.mirrored(l) }) {
		return
	}
	if after := p.check.ends(); before != after {
		p.failf("converge: the logs ended at %s, after a restart of all they end at %s", before, after)
		return
	}
	p.check.compare(l)
}
