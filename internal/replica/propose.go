package replica

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/meta"
)

// proposal is a change of a partition's ISR that the controller is asked for
// (KIP-497). It is immutable.
type proposal struct {
	epoch   int32 // leader epoch
	version int32 // partition epoch that it builds on
	isr     []int32
	// brokerEpochs are those the followers fetched with, parallel to isr; -1: not known.
	brokerEpochs []int64
	// cut, if not negative, is an offset to note as one that the log was cut to; the ISR stays.
	cut int64
}

// withdraw forgets the proposal. mu is held alone.
func (p *Partition) withdraw() {
	p.hwMu.Lock()
	p.proposal = nil
	p.hwMu.Unlock()
}

// expand proposes to add a follower that has just fetched, if it is caught up:
// up to the high watermark and to where this leadership began. With named not
// set its fetch went on with the partition without naming it, and it must still
// be in sync. mu is held.
func (p *Partition) expand(s *state, now time.Time, fetched int32, named bool) {
	if !s.self || s.gone != nil || len(s.isr) >= len(s.replicas) || slices.Contains(s.isr, fetched) {
		return
	}
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	f := p.followers[fetched]
	if p.proposal != nil || f == nil || f.end < max(p.hw.Load(), s.epochStart) || !p.eligible(fetched, f.brokerEpoch) {
		return
	}
	if !named && !f.inSync(p.l().EndOffset(), now, p.m.opts.LagTimeMax) {
		return
	}
	p.m.metrics.expands.Add(1)
	p.propose(s, append(slices.Clip(s.isr), fetched))
}

// lookAgain has the next fetch of each follower outside of the ISR look whether
// it may join, whatever partitions it names: what kept it out may be over.
func (p *Partition) lookAgain(s *state) {
	if !s.self || s.gone != nil || len(s.isr) >= len(s.replicas) {
		return
	}
	for _, id := range s.replicas {
		if !slices.Contains(s.isr, id) {
			p.m.heardOf(id).again.Store(true)
		}
	}
}

// shrink proposes to take the followers out of the ISR that have not been
// caught up for replica.lag.time.max.ms. It is called every now and then.
func (p *Partition) shrink(now time.Time) {
	p.mu.RLock()
	s := p.st.Load()
	if !s.self || s.gone != nil || len(s.replicas) <= 1 {
		p.mu.RUnlock()
		return
	}
	p.hwMu.Lock()
	if p.proposal == nil {
		end := p.l().EndOffset()
		isr := make([]int32, 0, len(s.isr))
		for _, id := range s.isr {
			if f := p.followers[id]; f == nil && id != p.m.opts.NodeID || f != nil && !f.inSync(end, now, p.m.opts.LagTimeMax) {
				continue
			}
			isr = append(isr, id)
		}
		if len(isr) < len(s.isr) {
			p.m.metrics.shrinks.Add(1)
			p.m.log.Info("followers lag behind and leave the ISR", "topic", p.topic.name, "partition", p.index, "epoch", s.epoch, "isr", s.isr, "next", isr, "end", end, "high_watermark", p.hw.Load())
			p.propose(s, isr)
		}
	}
	p.hwMu.Unlock()
	p.lookAgain(s)
	// The high watermark may have waited for a follower outside of the ISR that was about to catch up, and has stopped since:
	// without an append or a fetch that names the partition nobody else looks.
	mv := p.advance(s, 0)
	p.mu.RUnlock()
	p.announce(mv)
}

// propose asks the controller for an ISR. hwMu is held.
func (p *Partition) propose(s *state, isr []int32) {
	if p.m.opts.Controller == nil {
		return
	}
	p.proposeWith(&proposal{epoch: s.epoch, version: s.version, isr: isr, cut: -1})
}

// proposeWith is propose for a proposal without broker epochs. hwMu is held.
func (p *Partition) proposeWith(pr *proposal) {
	isr := pr.isr
	pr.brokerEpochs = make([]int64, len(isr))
	for i, id := range isr {
		pr.brokerEpochs[i] = -1
		if f := p.followers[id]; f != nil {
			pr.brokerEpochs[i] = f.brokerEpoch
		}
	}
	p.proposal = pr
	p.m.alters.add(p, pr)
}

// proposed reports whether pr still is what the partition asks for.
func (p *Partition) proposed(pr *proposal) bool {
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	return p.proposal == pr
}

// alteration is the controller's answer to a proposal.
type alteration struct {
	code    api.Code
	epoch   int32 // leader epoch
	version int32 // partition epoch
	isr     []int32
}

// altered takes over the controller's answer and reports whether the proposal
// has to be sent again.
//
// Only a refusal that says that the controller knew our partition epoch and
// changed nothing takes the proposal back. After others it stays in force, and
// the high watermark respects it, until the metadata tells what became of it.
func (p *Partition) altered(pr *proposal, a alteration) (again bool) {
	now := time.Now()
	p.mu.Lock()
	s := p.st.Load()
	if s.gone != nil || !s.self || !p.proposed(pr) {
		p.mu.Unlock()
		return false
	}
	next := s
	switch a.code {
	case api.NoError:
		if a.epoch != s.epoch || a.version <= s.version && !slices.Equal(a.isr, s.isr) {
			p.mu.Unlock()
			return false // a later leadership: the metadata says more
		}
		if pr.cut >= 0 && a.version > s.version {
			p.mu.Unlock()
			return false // what was noted comes with the metadata
		}
		if slices.ContainsFunc(s.isr, func(r int32) bool { return !slices.Contains(a.isr, r) }) {
			// Who left may be eligible by a min.insync.replicas that isn't known here yet. The metadata brings both, in order; until
			// then everyone counts for the high watermark.
			p.mu.Unlock()
			return false
		}
		n := *s
		n.isr, n.version = a.isr, max(a.version, s.version)
		n.unaligned = slices.DeleteFunc(slices.Clone(s.unaligned), func(u meta.Unaligned) bool { return slices.Contains(a.isr, u.Replica) })
		next = &n
	case api.IneligibleReplica, api.OperationNotAttempted, api.InvalidRequest:
	case api.UnknownTopicOrPartition, api.UnknownTopicID, api.FencedLeaderEpoch, api.InvalidUpdateVersion, api.NewLeaderElected:
		p.mu.Unlock()
		p.m.metrics.failedUpdates.Add(1)
		return false
	default:
		p.mu.Unlock()
		p.m.metrics.failedUpdates.Add(1)
		return true
	}
	p.withdraw()
	if next != s {
		p.st.Store(next)
		p.syncFollowers(next, s, now)
	} else {
		p.m.metrics.failedUpdates.Add(1)
	}
	woken := p.takeFailed(next, false)
	mv := p.advance(next, 0)
	p.lookAgain(next)
	p.mu.Unlock()
	fail(woken, p.waitError(next))
	p.announce(mv)
	return false
}
