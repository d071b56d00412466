package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// coreMirrorCheck holds two clusters of cores that mirror each other against the rules of mirrorCheck, but for lag.
type coreMirrorCheck struct {
	p *mirrorCores
	*mirrorRules
	// shared is up to where the sides shared their records by the last stop; related says of which partitions they ever did.
	shared  [mirrorPartitions]int64
	related [mirrorPartitions]bool

	leg     *coreLeg // that is compared while it goes on
	canon   [mirrorPartitions]map[int64]batchSum
	upTo    [mirrorPartitions]int64
	pos     [mirrorPartitions]int64
	read    [mirrorPartitions]int64
	most    [mirrorPartitions]int64 // that the log of the mirror ever held
	settled bool                    // all partitions were MIRRORING once
}

// begin has a leg compared while it goes on; nil ends that.
func (k *coreMirrorCheck) begin(l *coreLeg) {
	k.leg, k.settled = l, false
	for i := range k.canon {
		k.canon[i], k.upTo[i], k.pos[i], k.read[i], k.most[i] = map[int64]batchSum{}, 0, 0, 0, 0
	}
}

// look compares what is new, again and again.
func (k *coreMirrorCheck) look() {
	for part := range int32(mirrorPartitions) {
		for _, c := range k.p.sides {
			c.eachReplica(part, func(h *host, p *replica.Partition) {
				latest := p.Log().LatestEpoch()
				if _, epoch, _ := p.Leader(); latest > epoch {
					c.failf("ahead: %s-%d on host %d has batches of epoch %d, its leader epoch is %d", mirrorTopic, part, h.id, latest, epoch)
				}
			})
		}
		if k.leg != nil {
			k.mirror(k.leg, part)
		}
	}
	if k.leg != nil {
		k.settled = k.settled || k.leg.dst.inStates(mirrormsg.Mirroring) == ""
		if k.settled && !k.unclean {
			k.offsets(k.leg)
		}
	}
	k.p.after(100*time.Millisecond, k.look)
}

// mirror compares what is new of a mirror's committed records with what the source has committed.
func (k *coreMirrorCheck) mirror(l *coreLeg, part int32) {
	src, dst := l.src.replicaOf(part), l.dst.replicaOf(part)
	if dst != nil {
		k.most[part] = max(k.most[part], dst.LogEndOffset())
	}
	if st, ok := l.dst.status(part); !ok || st.State != mirrormsg.Mirroring {
		return
	}
	if src != nil && !k.unclean {
		k.upTo[part] = committed(src, k.upTo[part], k.canon[part])
	}
	if dst == nil {
		return
	}
	hw := dst.HighWatermark()
	_, recs := between(dst.Log(), min(k.read[part], hw), hw)
	for _, r := range recs {
		k.readable[l.dst.side][r.value] = r.offset
		k.read[part] = r.offset + 1
	}
	sums, _ := between(dst.Log(), k.pos[part], hw)
	for _, b := range sums {
		if b.next > k.upTo[part] {
			break
		}
		if want := k.canon[part][b.base]; want != b {
			l.dst.failf("mirror: %s-%d has offsets %d to %d of epoch %d (%08x), its source %d to %d of epoch %d (%08x)",
				mirrorTopic, part, b.base, b.next-1, b.epoch, b.sum, want.base, want.next-1, want.epoch, want.sum)
			return
		}
		k.pos[part] = b.next
	}
}

// served notes that a consumer was served a record.
func (k *coreMirrorCheck) served(c *cores, part int32, r record.Record, hw int64) {
	if r.Offset >= hw {
		c.failf("visible: offset %d of partition %d was served, the high watermark is %d", r.Offset, part, hw)
	}
	if !k.unclean { // else the source may lose it
		k.readable[c.side][string(r.Value)] = r.Offset
	}
}

// committed is the group's offset of a partition as its coordinator has it; false if none is loaded.
func (c *cores) committed(part int32) (got group.FetchedPartition, ok bool) {
	var best *coordinator
	for _, h := range c.hosts {
		if h.up && h.brk.group.core != nil && (best == nil || h.brk.group.epoch > best.epoch) {
			best = h.brk.group
		}
	}
	if best == nil {
		return group.FetchedPartition{Offset: -1}, false
	}
	r := best.g.Fetch(&group.FetchRequest{Group: mirrorGroup, Topics: []group.FetchTopic{{TopicRef: group.TopicRef{Name: mirrorTopic}, Partitions: []int32{part}}}})
	return r.Topics[0].Partitions[0], true
}

// offsets checks the group's offsets in a mirror: what is committed was below the high watermark of a leader, and whoever leads after it has
// that much; but for what a cut took, until the coordinator is told.
func (k *coreMirrorCheck) offsets(l *coreLeg) {
	for part := range int32(mirrorPartitions) {
		p := l.dst.replicaOf(part)
		o, ok := l.dst.committed(part)
		if !ok || p == nil || o.Offset < 0 {
			continue
		}
		if _, epoch, _ := p.Leader(); o.Offset > k.most[part] || o.LeaderEpoch > epoch {
			l.dst.failf("group: %s has offset %d of epoch %d for %s-%d, which ended at %d at most, with leader epoch %d", mirrorGroup, o.Offset, o.LeaderEpoch, mirrorTopic, part, k.most[part], epoch)
		}
	}
}

// mirrored says what a mirror lacks of its source, to which nobody writes now.
func (k *coreMirrorCheck) mirrored(l *coreLeg) string {
	if why := l.dst.inStates(mirrormsg.Mirroring); why != "" {
		return why
	}
	for part := range int32(mirrorPartitions) {
		end := int64(-1)
		for _, c := range k.p.sides {
			n, why := 0, ""
			c.eachReplica(part, func(h *host, p *replica.Partition) {
				n++
				if end < 0 {
					end = p.LogEndOffset()
				}
				if e, hw := p.LogEndOffset(), p.HighWatermark(); e != end || hw != end {
					why = fmt.Sprintf("%s-%d on host %d ends at %d, its high watermark is %d, elsewhere it ends at %d", mirrorTopic, part, h.id, e, hw, end)
				}
			})
			if n == 0 || why != "" {
				return fmt.Sprintf("%s%d replicas of partition %d; %s", c.tag, n, part, why)
			}
		}
		a, ok := l.src.committed(part)
		b, ok2 := l.dst.committed(part)
		if !ok || !ok2 {
			return "no group coordinator"
		}
		if a.Offset >= 0 && a.Offset <= end && a.Offset != b.Offset {
			return fmt.Sprintf("group: the offset of partition %d is %d at the source, %d in the mirror", part, a.Offset, b.Offset)
		}
	}
	if k.p.stray != nil {
		if why := k.p.stray.state(); why != "" {
			return why
		}
	}
	for _, c := range k.p.sides {
		if why := c.converged(); why != "" {
			return c.tag + why
		}
	}
	return ""
}

// ends are where the logs end, for comparison before and after a restart.
func (k *coreMirrorCheck) ends() string {
	return logEnds(func(side int, part int32) *replica.Partition { return k.p.sides[side].replicaOf(part) })
}

// halted waits for STOPPED, and takes over what the stop stored.
func (k *coreMirrorCheck) halted(l *coreLeg) string {
	if why := l.dst.inStates(mirrormsg.Stopped); why != "" {
		return why
	}
	for part := range int32(mirrorPartitions) {
		if st, _ := l.dst.status(part); st.LastMirrorOffset >= 0 { // else it never got to share anything
			k.shared[part], k.related[part] = st.LastMirrorOffset, true
		}
	}
	k.p.logf("stopped at %v", k.shared)
	return ""
}

// held says which replicas lack what was mirrored until the stop.
func (k *coreMirrorCheck) held(l *coreLeg) (why string) {
	for part := range int32(mirrorPartitions) {
		for _, c := range []*cores{l.src, l.dst} {
			n := 0
			c.eachReplica(part, func(h *host, p *replica.Partition) {
				if n++; p.HighWatermark() < k.shared[part] {
					why = fmt.Sprintf("partition %d on host %d of %s is committed up to %d", part, h.id, c.tag, p.HighWatermark())
				}
			})
			if mp := c.newest().Partition(mirrorTopic, part); mp == nil || n < len(mp.Replicas) {
				why = fmt.Sprintf("%d replicas of partition %d of %s", n, part, c.tag)
			}
		}
	}
	return why
}

// prefix compares what a stopped mirror has of its source with the source: it must be all equal.
func (k *coreMirrorCheck) prefix(l *coreLeg) {
	if k.unclean {
		return
	}
	for part := range int32(mirrorPartitions) {
		var want []batchSum
		for i, c := range []*cores{l.src, l.dst} {
			c.eachReplica(part, func(h *host, p *replica.Partition) {
				got, _ := between(p.Log(), 0, k.shared[part])
				if want == nil && i == 0 {
					want = got
				}
				if !slices.Equal(got, want) {
					c.failf("mirror: %s-%d on host %d has %s below offset %d, where the mirror was stopped; the source has %s", mirrorTopic, part, h.id, brief(got), k.shared[part], brief(want))
				}
			})
		}
	}
}

// compare compares all replicas of both sides, which are at rest, and accounts for every record that was acknowledged.
func (k *coreMirrorCheck) compare(l *coreLeg) {
	rules := newHistory(func(rule, format string, args ...any) { k.p.failf("%s: %s", rule, fmt.Sprintf(format, args...)) })
	found := map[string]int64{}
	for part := range int32(mirrorPartitions) {
		var want []batchSum
		for _, c := range k.p.sides {
			c.eachReplica(part, func(h *host, p *replica.Partition) {
				sums, recs, err := scan(p.Log())
				if err != nil {
					c.failf("read of %s-%d on host %d: %v", mirrorTopic, part, h.id, err)
					return
				}
				rules.log(c.tag+tpName(mirrorTopic, part), int32(h.id), sums, p.Log().StartOffset(), p.Log().Epochs())
				if want == nil {
					want = sums
					if why := k.content(part, recs, found); why != "" {
						c.failf("%s", why)
					}
				}
				if !slices.Equal(sums, want) {
					c.failf("mirror: %s-%d on host %d has %s, another replica %s", mirrorTopic, part, h.id, brief(sums), brief(want))
				}
			})
			if o, ok := c.committed(part); ok && o.Offset >= 0 {
				p := c.replicaOf(part)
				if _, epoch, _ := p.Leader(); o.LeaderEpoch > epoch || o.Offset > p.LogEndOffset() && (!k.unclean || c == l.dst) {
					c.failf("group: %s has offset %d of epoch %d for %s-%d, which ends at %d with leader epoch %d", mirrorGroup, o.Offset, o.LeaderEpoch, mirrorTopic, part, p.LogEndOffset(), epoch)
				}
			}
		}
	}
	if len(k.p.failed) > 0 {
		return
	}
	var cuts [2]map[string]bool
	aside := func(side int, value string) bool {
		if cuts[side] == nil {
			cuts[side] = k.p.sides[side].cutRecords()
		}
		return cuts[side][value]
	}
	if why := k.account(found, aside); why != "" {
		k.p.failf("%s", why)
	}
	for _, c := range k.p.sides {
		if log := c.stateLog(); log != nil {
			if why := checkStates(log, strings.TrimSuffix(c.tag, ": ")); why != "" {
				c.failf("%s", why)
			}
		}
	}
	if len(k.p.failed) == 0 {
		k.p.logf("equal: %d records written, %d found", len(k.records), len(found))
	}
}

// stateLog is a log of the mirror's partition states on this side, nil if it never had a mirror.
func (c *cores) stateLog() (log *partlog.Log) {
	for _, h := range c.hosts {
		if h.up {
			if p, err := h.brk.mgr.Get(mirrorstate.Topic, 0); err == nil {
				log = p.Log()
			}
		}
	}
	return log
}

// cutRecords are the records that the side has set aside.
func (c *cores) cutRecords() map[string]bool {
	out := map[string]bool{}
	for _, h := range c.hosts {
		if !h.up {
			continue
		}
		for _, cut := range h.brk.mirrors.mgr.Cuts() {
			for pos := int64(0); ; {
				raw, err := h.brk.mirrors.mgr.ReadCut(cut.Name, pos, 1<<20)
				if err != nil {
					c.failf("aside: %s of host %d can't be read: %v", cut.Name, h.id, err)
				}
				if err != nil || len(raw) == 0 {
					break
				}
				pos += int64(len(raw))
				for b, err := range record.Batches(raw) {
					if err != nil || b.IsControl() {
						continue
					}
					for r, err := range b.Records(0) {
						if err == nil {
							out[string(r.Value)] = true
						}
					}
				}
			}
		}
	}
	return out
}
