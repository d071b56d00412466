package replica

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/meta"
)

// Alignment says of a partition of a mirror that its log is cut, at times, to agree with another cluster's (spec 7.7, D5).
type Alignment struct {
	// Pending reports, where this broker leads, that the log may be about to be cut, or that replicas that count have not cut it
	// yet. It is called while fetches are answered and must not block.
	Pending func() bool
}

// notOpen is Partition.opened while the replica serves nobody.
const notOpen int32 = -1

// SetAlignments installs f, which is asked for the Alignment of a partition as the gate factory is for its gate; nil: its log
// is never cut.
func (m *Manager) SetAlignments(f func(t *meta.Topic, partition int32) *Alignment) {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.alignments = f
	m.Partitions(func(p *Partition) bool {
		if mt := m.Image().TopicByID(p.topic.id); mt != nil {
			p.align.Store(f(mt, p.index))
		}
		return true
	})
}

// aligning reports whether this leader's log may be about to be cut. Followers are told so by a high watermark of -1.
func (p *Partition) aligning(s *state) bool {
	a := p.align.Load()
	return a != nil && s.self && a.Pending()
}

// openTo reports whether this follower answers consumers: of a partition whose log may be cut, only once its leader has said that
// no cut is under way.
func (p *Partition) openTo(s *state) bool {
	if _, must := meta.UnalignedAt(s.unaligned, p.m.opts.NodeID); must {
		return false // what it holds may not be the partition's
	}
	return p.align.Load() == nil || p.opened.Load() == s.leader
}

// hear notes what an answer of the leader says of cuts. mu is held.
func (p *Partition) hear(leader int32, hw int64) {
	if hw < 0 {
		leader = notOpen
	}
	p.opened.Store(leader)
}

// AlignFollowers has every follower show that its log goes no further than this leader's does now, by a fetch that is answered
// from here on; those that go beyond are cut, whatever their epochs say: two clusters may have used the same. Truncations
// of a leader do the same. Those that are out of sync now may come back to another leader, so the controller has to note them:
// see Noted. cut says that this log was cut, or may have been by a leader before; else only the leadership is new.
//
// Before the first call of a leadership nothing is appended that comes from another cluster.
func (p *Partition) AlignFollowers(cut bool) {
	p.mu.Lock()
	s := p.st.Load()
	p.markFollowers(s)
	if s.self {
		p.hwMu.Lock()
		p.note.add(p.l().EndOffset(), cut)
		p.hwMu.Unlock()
		p.marked.Store(true)
	}
	p.mu.Unlock()
	p.AlignmentChanged()
}

// Marked reports whether AlignFollowers was called since this broker began to lead: what it began then still holds.
func (p *Partition) Marked() bool { return p.marked.Load() }

// markFollowers is AlignFollowers without telling. mu is held alone.
func (p *Partition) markFollowers(s *state) {
	if !s.self {
		return
	}
	end := p.l().EndOffset()
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	for _, f := range p.followers {
		if f.cutTo < 0 || f.cutTo > end {
			f.cutTo = end
		}
		// What was known of its log is of no use: it may have had what was cut.
		f.end, f.lastEnd = -1, -1
	}
}

// AlignmentChanged has the followers told at once what Alignment.Pending says now.
func (p *Partition) AlignmentChanged() {
	p.turn.Add(1)
	p.touchAll()
}

// OnAligned has fn called when a follower has shown that it goes no further than the leader's log; nil: nothing. fn must neither
// block nor call the partition.
func (p *Partition) OnAligned(fn func()) {
	if fn == nil {
		p.onAligned.Store(nil)
		return
	}
	p.onAligned.Store(&fn)
}

// mustCut is where a follower that fetches at offset has to cut its log first, -1 if it hasn't to. One that never had a batch
// (last, its last epoch, is -1) has nothing to cut.
func (p *Partition) mustCut(follower int32, offset int64, last int32) int64 {
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	f := p.followers[follower]
	if f == nil || f.cutTo < 0 || offset <= f.cutTo {
		return -1
	}
	if last < 0 {
		f.cutTo = max(f.cutTo, offset)
		return -1
	}
	return f.cutTo
}

// aligned notes a fetch at offset of a follower that may have had to cut. The error is for one that still has to. hwMu is held.
func (p *Partition) aligned(f *follower, offset int64) (changed bool, err error) {
	switch {
	case f.cutTo < 0:
		return false, nil
	case offset > f.cutTo:
		return false, api.Errorf(api.NotLeaderOrFollower, "%s was cut to %d meanwhile; fetch again", p.name(), f.cutTo)
	}
	f.cutTo = -1
	return true, nil
}

// Unaligned lists the replicas that count and have not shown since the last cut that they go no further than this leader's
// log: those that are in sync or about to be, or all there are, which then must be in sync as well. It is empty where this broker
// doesn't lead.
func (p *Partition) Unaligned(all bool) []int32 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := p.st.Load()
	if !s.self || s.gone != nil {
		return nil
	}
	now, end := time.Now(), p.l().EndOffset()
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	var out []int32
	for id, f := range p.followers {
		inSync := slices.Contains(s.isr, id)
		switch {
		case f.cutTo < 0 && (inSync || !all):
			continue
		case all, inSync, p.proposal != nil && slices.Contains(p.proposal.isr, id),
			f.inSync(end, now, p.m.opts.LagTimeMax) && p.eligible(id, f.brokerEpoch):
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// MayCut says why a leader's log must not be cut now, nil if it may: there are fewer in-sync replicas than min.insync.replicas or,
// with all set, than replicas.
func (p *Partition) MayCut(all bool) error {
	s := p.st.Load()
	switch {
	case s.gone != nil:
		return s.gone
	case !s.self:
		return p.errNotLeader()
	case all && len(s.isr) < len(s.replicas):
		return api.Errorf(api.NotEnoughReplicas, "only replicas %v of %v are in sync, a cut of %s waits for all", s.isr, s.replicas, p.name())
	case underMinISR(s, p.settings.Load().MinISR):
		return api.Errorf(api.NotEnoughReplicas, "%s has %d in-sync replicas, min.insync.replicas is %d: a cut waits", p.name(), len(s.isr), p.settings.Load().MinISR)
	}
	return nil
}
