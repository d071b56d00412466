package replica

import (
	"context"
	"errors"
	"slices"
	"sync"

	"milena/internal/api"
	"milena/internal/meta"
)

// note is what a leader has told its followers of cuts and the controller has yet to note, for the leaders to come.
type note struct {
	due bool
	to  int64 // the lowest offset that they must not go beyond
	cut bool  // the log was cut there, or may have been
}

func (n *note) add(to int64, cut bool) {
	if !n.due || to < n.to {
		n.to = to
	}
	n.due, n.cut = true, n.cut || cut
}

// unmark begins a leadership: nothing was asked of the followers, but for what the metadata says. mu is held alone.
func (p *Partition) unmark() {
	p.marked.Store(false)
	p.hwMu.Lock()
	p.note = note{}
	p.hwMu.Unlock()
}

// Noted says why what AlignFollowers asked for isn't safe yet from a change of leader, nil if it is: the metadata say of each replica
// outside of the ISR that it must be cut. It asks the controller if they don't; the answer comes as metadata. The replicas in
// the ISR have to be waited for before: see Unaligned.
func (p *Partition) Noted() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := p.st.Load()
	switch {
	case s.gone != nil:
		return s.gone
	case !s.self:
		return p.errNotLeader()
	}
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	n := p.note
	if !n.due {
		return nil
	}
	away := slices.DeleteFunc(slices.Clone(s.replicas), func(r int32) bool { return slices.Contains(s.isr, r) })
	level := p.m.Image().Feature(meta.MirrorFeature)
	switch {
	case p.m.opts.Controller == nil, n.noted(s, away):
		p.note = note{}
		return nil
	case level >= meta.UnalignedLevel:
		if p.proposal == nil {
			p.proposeWith(&proposal{epoch: s.epoch, version: s.version, isr: s.isr, cut: n.to})
		}
		return api.Errorf(api.NotEnoughReplicas, "waiting for the controller to note that replicas %v of %s have to cut their logs to %d when they are back", away, p.name(), n.to)
	case n.cut && len(away) > 0:
		return api.Errorf(api.NotEnoughReplicas, "waiting for replicas %v of %s: with %s below %d only the present leader knows that they have to cut their logs to %d; start them, or raise it by "+
			"milena features upgrade %s=%d", away, p.name(), meta.MirrorFeature, meta.UnalignedLevel, n.to, meta.MirrorFeature, meta.UnalignedLevel)
	default:
		// A new leader that has cut nothing: as safe as it was before that level.
		p.note = note{}
		return nil
	}
}

// noted reports whether the metadata have all that is to be noted.
func (n note) noted(s *state, away []int32) bool {
	if n.cut {
		away = append(away, meta.AnyReplica)
	}
	return !slices.ContainsFunc(away, func(r int32) bool {
		to, ok := meta.UnalignedAt(s.unaligned, r)
		return !ok || to > n.to
	})
}

// selfAligner sees to the partitions that this broker was chosen to lead while the metadata say that it holds records which they have
// given up: it cuts its log and says so, and leads when it isn't said any more.
type selfAligner struct {
	mu    sync.Mutex
	parts map[*Partition]bool
	aside func(p *Partition, to int64) error
	wake  chan struct{} // capacity 1: there are entries
}

func (a *selfAligner) init() {
	a.parts, a.wake = map[*Partition]bool{}, make(chan struct{}, 1)
}

// OnSelfCut has fn called before a log is cut to an offset because its broker was chosen to lead the partition: fn keeps what goes.
// While it fails nothing is cut, and nothing led.
func (m *Manager) OnSelfCut(fn func(p *Partition, to int64) error) {
	m.selves.mu.Lock()
	defer m.selves.mu.Unlock()
	m.selves.aside = fn
}

// check notes whether a partition has to be seen to.
func (a *selfAligner) check(m *Manager, p *Partition, mp *meta.Partition) {
	_, must := mp.UnalignedAt(m.opts.NodeID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !must || mp.Leader != m.opts.NodeID || p.st.Load().gone != nil {
		delete(a.parts, p)
		return
	}
	a.parts[p] = true
	poke(a.wake)
}

func (a *selfAligner) run(ctx context.Context, m *Manager) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.step(ctx, m) > 0 && ctx.Err() == nil {
			pause(ctx, 10*controllerBackoff)
		}
	}
}

// step cuts what is to be cut, tells the controller, and returns how much there was: the metadata say later what came of it.
func (a *selfAligner) step(ctx context.Context, m *Manager) int {
	due, list := a.cut(m)
	if len(list) > 0 {
		m.alterPartitions(ctx, list)
	}
	return due
}

// cut cuts what is to be cut, and returns how much there was, and what to tell the controller.
func (a *selfAligner) cut(m *Manager) (due int, list []proposing) {
	a.mu.Lock()
	parts := make([]*Partition, 0, len(a.parts))
	for p := range a.parts {
		if p.st.Load().gone != nil {
			delete(a.parts, p)
			continue
		}
		parts = append(parts, p)
	}
	aside := a.aside
	a.mu.Unlock()
	slices.SortFunc(parts, byName)
	for _, p := range parts {
		switch pr, err := p.cutSelf(aside); {
		case err != nil:
			m.log.Error("a partition can't be led: its log has records that were given up, and can't be cut", "topic", p.topic.name, "partition", p.index, "error", err)
		case pr != nil:
			list = append(list, proposing{p, pr})
		}
	}
	return len(parts), list
}

// errNotChosen says that another was chosen to lead, or that the log needn't be cut any more.
var errNotChosen = errors.New("replica: not chosen to lead")

// chosen returns the state, and to where to cut, while this broker is to lead but has to cut its log first.
func (p *Partition) chosen() (s *state, to int64, ok bool) {
	s = p.st.Load()
	to, ok = meta.UnalignedAt(s.unaligned, p.m.opts.NodeID)
	return s, to, ok && s.leader == p.m.opts.NodeID && s.gone == nil
}

// cutSelf cuts the log of a partition that this broker was chosen to lead, and returns what to tell the controller: nil if there is
// nothing to tell.
func (p *Partition) cutSelf(aside func(p *Partition, to int64) error) (*proposal, error) {
	s, to, ok := p.chosen()
	if !ok {
		return nil, nil
	}
	if end := p.l().EndOffset(); to < end {
		if aside != nil {
			if err := aside(p, to); err != nil {
				return nil, err
			}
		}
		epoch := s.epoch
		err := p.truncate(func() error {
			if s, now, ok := p.chosen(); !ok || now != to || s.epoch != epoch {
				return errNotChosen
			}
			return nil
		}, func() (int64, error) { return p.cutWhole(to) })
		switch {
		case errors.Is(err, errNotChosen):
			return nil, nil
		case err != nil:
			return nil, err
		}
		p.m.log.Warn("this replica was away when the partition was cut, and was chosen to lead it: its log was cut as well", "topic", p.topic.name, "partition", p.index,
			"epoch", epoch, "from", end, "to", p.l().EndOffset())
	}
	return &proposal{epoch: s.epoch, version: s.version, isr: s.isr, brokerEpochs: unknownEpochs(len(s.isr)), cut: -1}, nil
}

func unknownEpochs(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = -1
	}
	return out
}
