//go:build synctests

package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/replica"
	"milena/mirroradm"
)

// mirrorCheck holds two clusters that mirror each other against the invariants of docs/architecture.md. Its rules, with their numbers:
//
//	lost        1    an acknowledged record isn't there, and no cut took it
//	moved       1    it is at another offset
//	repeated    1    a record is there twice
//	order       1    a writer's records are not in its order
//	unknown     1    a record that nobody wrote
//	mirror      2    a mirror's batch isn't the source's
//	visible     3    a consumer was served a record that is not below the high watermark
//	cache       4    an epoch cache isn't what the log's batches give
//	ahead       5    a batch, or a committed offset, has an epoch above the partition's own
//	readonly    6    a record is there whose write was refused
//	aside       7    a cut took a record that was acknowledged, or that could be read or was served, and didn't keep it
//	group       8    a group's offset is above the log, or not the source's in the end
//	states      9    a state was overwritten by one with an older epoch, or followed one that it can't follow
//	lag         10   the source's end is shown as one that it has left behind
//	converge    11   the mirror doesn't get equal to its source
//	writable         it doesn't get writable, or to the state that was asked for
type mirrorCheck struct {
	p            *pair
	*mirrorRules // guarded by verdict.mu
	// shared is up to where the sides shared their records by the last stop; related says of which partitions they ever did.
	shared  [mirrorPartitions]int64
	related [mirrorPartitions]bool

	// Guarded by verdict.mu.
	leg    *leg // that is compared while it goes on
	states [mirrorPartitions]string
	reads  [2]int // records that consumers were served

	// Of the goroutine that watches: of the leg that it compares.
	seen  *leg
	canon [mirrorPartitions]map[int64]batchSum
	upTo  [mirrorPartitions]int64
	pos   [mirrorPartitions]int64
	read  [mirrorPartitions]int64
	most  [mirrorPartitions]int64 // that the log of the mirror ever held
	// sights are the source's high watermarks; lagsSeen counts the lags that were held against them.
	sights   [mirrorPartitions][]sight
	lagsSeen int
	settled  *leg // of which all partitions were MIRRORING once
}

func newMirrorCheck(p *pair) *mirrorCheck {
	return &mirrorCheck{p: p, mirrorRules: newMirrorRules([2]string{"a", "b"}, p.unclean)}
}

// begin has a leg compared while it goes on, end ends that.
func (k *mirrorCheck) begin(l *leg) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.leg, k.states = l, [mirrorPartitions]string{}
}

func (k *mirrorCheck) end() { k.begin(nil) }

func (k *mirrorCheck) current() (*leg, [mirrorPartitions]string) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	return k.leg, k.states
}

// leader is the side's replica that leads a partition, nil if none is known to. Of two the later one counts.
func (s *side) leader(part int32) (best *replica.Partition) {
	most := int32(-1)
	s.each(part, func(_ *machineNode, p *replica.Partition) {
		if _, epoch, self := p.Leader(); self && epoch > most {
			best, most = p, epoch
		}
	})
	return best
}

// each calls fn for each replica of a partition that the side's nodes have now.
func (s *side) each(part int32, fn func(n *machineNode, p *replica.Partition)) {
	for _, n := range s.m.nodes {
		if nd := n.current(); nd != nil && nd.Replicas() != nil {
			if p, err := nd.Replicas().Get(mirrorTopic, part); err == nil && p.Log() != nil {
				fn(n, p)
			}
		}
	}
}

// watch compares a mirror with its source all the time, as far as nodes are up.
func (k *mirrorCheck) watch(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		for part := range int32(mirrorPartitions) {
			k.epochs(part)
			k.look(part)
		}
		if n%4 == 0 {
			k.ask(ctx)
		}
		wait2(ctx, 60*time.Millisecond)
	}
}

// epochs checks that no batch is ahead of its partition's leader epoch.
func (k *mirrorCheck) epochs(part int32) {
	for _, s := range k.p.sides {
		s.each(part, func(n *machineNode, p *replica.Partition) {
			latest := p.Log().LatestEpoch()
			if _, epoch, _ := p.Leader(); latest > epoch {
				k.p.failf("ahead: %s-%d on %s has batches of epoch %d, its leader epoch is %d", mirrorTopic, part, n.host(), latest, epoch)
			}
		})
	}
}

// look compares what is new of a mirror's committed records with what the source has committed.
func (k *mirrorCheck) look(part int32) {
	l, states := k.current()
	if l == nil {
		return
	}
	if k.seen != l {
		k.most, k.sights = [mirrorPartitions]int64{}, [mirrorPartitions][]sight{}
		k.seen, k.canon, k.pos, k.upTo, k.read = l, [mirrorPartitions]map[int64]batchSum{}, [mirrorPartitions]int64{}, [mirrorPartitions]int64{}, [mirrorPartitions]int64{}
	}
	if k.canon[part] == nil {
		k.canon[part] = map[int64]batchSum{}
	}
	src, dst := l.src.leader(part), l.dst.leader(part)
	k.sight(l, part)
	if dst != nil {
		k.most[part] = max(k.most[part], dst.LogEndOffset())
	}
	if states[part] != mirrormsg.Mirroring.String() {
		return
	}
	if src != nil && !k.p.unclean {
		k.upTo[part] = committed(src, k.upTo[part], k.canon[part])
	}
	if dst == nil {
		return
	}
	hw := dst.HighWatermark()
	_, recs := between(dst.Log(), min(k.read[part], hw), hw)
	sums, _ := between(dst.Log(), k.pos[part], hw)
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	if k.leg != l {
		return // it is being stopped: what comes now is its own
	}
	for _, r := range recs {
		k.readable[l.dst.i][r.value] = r.offset
		k.read[part] = r.offset + 1
	}
	for _, b := range sums {
		if b.next > k.upTo[part] {
			break
		}
		if want := k.canon[part][b.base]; want != b {
			k.p.failed = append(k.p.failed, fmt.Sprintf("mirror: %s-%d of %s has offsets %d to %d of epoch %d (%08x), its source %d to %d of epoch %d (%08x)",
				mirrorTopic, part, l.dst.m.name, b.base, b.next-1, b.epoch, b.sum, want.base, want.next-1, want.epoch, want.sum))
			return
		}
		k.pos[part] = b.next
	}
}

// ask asks for the states of the leg that is compared, and for the group's offsets.
func (k *mirrorCheck) ask(ctx context.Context) {
	l, _ := k.current()
	if l == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := time.Now()
	ps, err := l.dst.describe(short, "")
	if err != nil {
		return
	}
	k.lags(l, asked, ps)
	k.p.mu.Lock()
	if k.leg == l {
		for _, p := range ps {
			k.states[p.Partition] = p.State
		}
	}
	k.p.mu.Unlock()
	// From the first time on that all are MIRRORING, when a cut is over and has taken the group's offsets back, whatever fails later.
	_, states := k.current()
	if states == [mirrorPartitions]string{mirrormsg.Mirroring.String(), mirrormsg.Mirroring.String()} {
		k.settled = l
	}
	if k.settled == l && !k.p.unclean {
		k.offsets(short, l)
	}
}

// offsets checks the group's offsets in a mirror.
func (k *mirrorCheck) offsets(ctx context.Context, l *leg) {
	got, err := l.dst.adm.FetchOffsets(ctx, mirrorGroup)
	if err != nil {
		return
	}
	for part := range int32(mirrorPartitions) {
		o, ok := got.Lookup(mirrorTopic, part)
		p := l.dst.leader(part)
		if !ok || o.Err != nil || p == nil {
			continue
		}
		// What is committed was below the high watermark of a leader, and whoever leads after it has that much; but for what a cut took, until the
		// coordinator is told.
		_, epoch, _ := p.Leader()
		k.most[part] = max(k.most[part], p.LogEndOffset())
		k.p.mu.Lock()
		late := l.dst.unanswered[groupOffset{part, o.At, o.LeaderEpoch}]
		k.p.mu.Unlock()
		if now, _ := k.current(); now == l && !late && (o.At > k.most[part] || o.LeaderEpoch > epoch) {
			k.p.failf("group: %s has offset %d of epoch %d for %s-%d of %s, which ended at %d at most, with leader epoch %d", mirrorGroup, o.At, o.LeaderEpoch, mirrorTopic, part, l.dst.m.name, k.most[part], epoch)
		}
	}
}

// describe is what the side shows of its mirror's partitions of the topic; source adds what the last stop stored.
func (s *side) describe(ctx context.Context, source string) ([]mirroradm.Partition, error) {
	ds, err := s.mir.DescribeWith(ctx, mirroradm.DescribeOptions{Mirrors: []string{s.mirror}, State: true, Offsets: true, SourceClusterID: source,
		Topics: map[string][]int32{mirrorTopic: nil}})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, err
	}
	var out []mirroradm.Partition
	for _, d := range ds {
		for _, p := range d.Partitions {
			if p.Topic == mirrorTopic && p.Partition < mirrorPartitions {
				out = append(out, p)
			}
		}
	}
	if len(out) != mirrorPartitions {
		return nil, fmt.Errorf("describe shows %d partitions", len(out))
	}
	return out, nil
}

// mirrored says what a mirror lacks of its source, to which nobody writes now.
func (k *mirrorCheck) mirrored(ctx context.Context, l *leg) string {
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ps, err := l.dst.describe(short, "")
	if err != nil {
		return err.Error()
	}
	for _, p := range ps {
		if p.State != mirrormsg.Mirroring.String() {
			return fmt.Sprintf("partition %d is %s: %s", p.Partition, p.State, p.LastError)
		}
	}
	for part := range int32(mirrorPartitions) {
		end := int64(-1)
		for _, s := range k.p.sides {
			n, why := 0, ""
			s.each(part, func(node *machineNode, p *replica.Partition) {
				n++
				if end < 0 {
					end = p.LogEndOffset()
				}
				if e, hw := p.LogEndOffset(), p.HighWatermark(); e != end || hw != end {
					why = fmt.Sprintf("%s-%d on %s ends at %d, its high watermark is %d, elsewhere it ends at %d", mirrorTopic, part, node.host(), e, hw, end)
				}
			})
			if n == 0 || why != "" {
				return fmt.Sprintf("%d replicas of partition %d on %s; %s", n, part, s.m.name, why)
			}
		}
	}
	if why := k.groupsEqual(short, l); why != "" {
		return why
	}
	return k.p.strayState(short, l)
}

// groupsEqual says in what the group's offsets differ.
func (k *mirrorCheck) groupsEqual(ctx context.Context, l *leg) string {
	var at [2]kadm.OffsetResponses
	for i, s := range []*side{l.src, l.dst} {
		var err error
		if at[i], err = s.adm.FetchOffsets(ctx, mirrorGroup); err != nil {
			return err.Error()
		}
	}
	for part := range int32(mirrorPartitions) {
		a, ok := at[0].Lookup(mirrorTopic, part)
		b, _ := at[1].Lookup(mirrorTopic, part)
		if err := errors.Join(a.Err, b.Err); err != nil {
			return err.Error()
		}
		if p := l.src.leader(part); ok && p != nil && a.At > p.LogEndOffset() {
			continue // the source lost what the group had read; the mirror clamps it
		}
		if ok && a.At != b.At {
			return fmt.Sprintf("group: the offset of partition %d is %d at the source, %d in the mirror", part, a.At, b.At)
		}
	}
	return ""
}

// ends are where the logs end, for comparison before and after a restart.
func (k *mirrorCheck) ends() string {
	return logEnds(func(side int, part int32) *replica.Partition { return k.p.sides[side].leader(part) })
}

// halted waits for STOPPED, and takes over what the stop stored.
func (k *mirrorCheck) halted(ctx context.Context, l *leg) string {
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ps, err := l.dst.describe(short, l.src.m.clusterID)
	if err != nil {
		return err.Error()
	}
	for _, p := range ps {
		if p.State != mirrormsg.Stopped.String() {
			return fmt.Sprintf("partition %d is %s: %s", p.Partition, p.State, p.LastError)
		}
	}
	for _, p := range ps {
		if p.LastMirrorOffset >= 0 { // else it never got to share anything
			k.shared[p.Partition], k.related[p.Partition] = p.LastMirrorOffset, true
		}
	}
	k.p.logf("stopped at %v", k.shared)
	return ""
}

// prefix compares what a stopped mirror has of its source with the source: it must be all equal.
func (k *mirrorCheck) prefix(l *leg) {
	if k.p.unclean {
		return
	}
	for part := range int32(mirrorPartitions) {
		upTo := k.shared[part]
		var want []batchSum
		for i, s := range []*side{l.src, l.dst} {
			s.each(part, func(n *machineNode, p *replica.Partition) {
				got, _ := between(p.Log(), 0, upTo)
				if want == nil && i == 0 {
					want = got
				}
				if !slices.Equal(got, want) {
					k.p.failf("mirror: %s-%d on %s has %s below offset %d, where the mirror was stopped; the source has %s", mirrorTopic, part, n.host(), brief(got), upTo, brief(want))
				}
			})
		}
	}
}

// compare compares all replicas of both sides, which are at rest, and accounts for every record that was acknowledged.
func (k *mirrorCheck) compare(ctx context.Context, l *leg) {
	rules := newHistory(func(rule, format string, args ...any) { k.p.failf("%s: %s", rule, fmt.Sprintf(format, args...)) })
	found := map[string]int64{}
	for part := range int32(mirrorPartitions) {
		var want []batchSum
		for _, s := range k.p.sides {
			s.each(part, func(n *machineNode, p *replica.Partition) {
				sums, recs, err := scan(p.Log())
				if err != nil {
					k.p.failf("read of %s-%d on %s: %v", mirrorTopic, part, n.host(), err)
					return
				}
				rules.log(tpName(mirrorTopic, part)+" of "+s.m.name, int32(n.id), sums, p.Log().StartOffset(), p.Log().Epochs())
				if want == nil {
					want = sums
					k.p.mu.Lock()
					why := k.content(part, recs, found)
					k.p.mu.Unlock()
					if why != "" {
						k.p.failf("%s", why)
					}
				}
				if !slices.Equal(sums, want) {
					k.p.failf("mirror: %s-%d on %s has %s, another replica %s", mirrorTopic, part, n.host(), brief(sums), brief(want))
				}
			})
		}
	}
	k.epochsOfGroup(ctx)
	if k.p.broken() == "" {
		cuts := [2]map[string]bool{}
		aside := func(i int, value string) bool {
			if cuts[i] == nil {
				cuts[i] = k.p.sides[i].cutRecords(ctx)
			}
			return cuts[i][value]
		}
		k.p.mu.Lock()
		rules := k.mirrorRules.clone()
		k.p.mu.Unlock()
		if why := rules.account(found, aside); why != "" {
			k.p.failf("%s", why)
		}
	}
	for _, s := range k.p.sides {
		if log := s.stateLog(); log != nil {
			if why := checkStates(log, s.m.name); why != "" {
				k.p.failf("%s", why)
			}
		}
	}
}

// cutRecords are the records that the side has set aside.
func (s *side) cutRecords(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	s.p.until("aside", "what was set aside can't be read", func() string {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cuts, err := s.mir.Cuts(short, mirroradm.CutFilter{Topics: []string{mirrorTopic}})
		if err != nil {
			return err.Error()
		}
		for r, err := range s.mir.CutRecords(short, cuts) {
			if err != nil {
				return err.Error()
			}
			out[string(r.Value)] = true
		}
		s.m.logf("%d cuts hold %d records", len(cuts), len(out))
		return ""
	})
	return out
}

// epochsOfGroup checks the epochs of committed offsets, when all is at rest.
func (k *mirrorCheck) epochsOfGroup(ctx context.Context) {
	for _, s := range k.p.sides {
		got, err := s.adm.FetchOffsets(ctx, mirrorGroup)
		if err != nil {
			k.p.failf("group: offsets of %s: %v", s.m.name, err)
			return
		}
		got.Each(func(o kadm.OffsetResponse) {
			p := s.leader(o.Partition)
			if o.Topic != mirrorTopic || o.Err != nil || p == nil {
				return
			}
			if _, epoch, _ := p.Leader(); o.LeaderEpoch > epoch || o.At > p.LogEndOffset() && (!k.p.unclean || s == k.p.legs[len(k.p.legs)-1].dst) {
				k.p.failf("group: %s has offset %d of epoch %d for %s-%d of %s, which ends at %d with leader epoch %d", mirrorGroup, o.At, o.LeaderEpoch, mirrorTopic, o.Partition, s.m.name, p.LogEndOffset(), epoch)
			}
		})
	}
}

// autopsy logs what is set aside.
func (k *mirrorCheck) autopsy() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, s := range k.p.sides {
		cuts, err := s.mir.Cuts(ctx, mirroradm.CutFilter{})
		s.m.logf("cuts: %+v %v", cuts, err)
		ps, err := s.describe(ctx, "")
		s.m.logf("mirror: %+v %v", ps, err)
	}
}

func (k *mirrorCheck) counts() string {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	acked := 0
	for _, w := range k.records {
		if w.acked {
			acked++
		}
	}
	return fmt.Sprintf("%d records written, %d acknowledged, %d and %d seen, %d and %d served, %d lags", len(k.records), acked, len(k.readable[0]), len(k.readable[1]), k.reads[0], k.reads[1], k.lagsSeen)
}

// stateLog is a log of the mirror's partition states on this side, nil if it never had a mirror.
func (s *side) stateLog() (log *partlog.Log) {
	for _, n := range s.m.nodes {
		if nd := n.current(); nd != nil {
			if p, err := nd.Replicas().Get(mirrorstate.Topic, 0); err == nil {
				log = p.Log()
			}
		}
	}
	return log
}

// clone is a copy whose maps are its own.
func (k *mirrorRules) clone() *mirrorRules {
	out := *k
	out.records, out.readable = maps.Clone(k.records), [2]map[string]int64{maps.Clone(k.readable[0]), maps.Clone(k.readable[1])}
	out.legs = slices.Clone(k.legs)
	return &out
}
