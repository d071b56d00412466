package replica

import (
	"slices"
	"sync/atomic"
	"time"
)

// heard is what is known of a broker as a follower of whatever this one leads.
type heard struct {
	at    atomic.Int64 // when it last fetched, ns since the manager's beginning: steps of the wall clock don't count
	again atomic.Bool  // its next fetch looks whether it may join ISRs
}

// brokersChanged looks at what depends on which brokers are alive: who may join
// an ISR, and whose log start counts.
func (m *Manager) brokersChanged() {
	m.Partitions(func(p *Partition) bool {
		if s := p.st.Load(); !s.self || len(s.replicas) <= 1 {
			return true
		}
		p.mu.RLock()
		s := p.st.Load()
		var lows lowWaiters
		mv := moved{hw: -1}
		if s.self && s.gone == nil {
			p.lookAgain(s)
			lows = p.takeLow(false)
			mv = p.advance(s, 0) // it may have waited for a follower that won't join any more
		}
		p.mu.RUnlock()
		p.announce(mv)
		lows.tell(p, s)
		return true
	})
}

// eligible reports whether a follower that fetches with that broker epoch (-1:
// not said) may be in the partition's ISR: its broker is alive, stays, and is that
// incarnation (KIP-841, KIP-903), and the directory of its replica is online (KIP-858).
func (p *Partition) eligible(broker int32, epoch int64) bool {
	img := p.m.Image()
	b := img.Broker(broker)
	if b == nil || b.Fenced || b.ShuttingDown || epoch >= 0 && epoch != b.Epoch {
		return false
	}
	t := img.TopicByID(p.topic.id)
	if t == nil {
		return true
	}
	mp := t.Partition(p.index)
	if mp == nil {
		return true
	}
	i := slices.Index(mp.Replicas, broker)
	return i < 0 || i >= len(mp.Dirs) || b.HasDir(mp.Dirs[i])
}

// heardOf is what is known of a broker as a follower.
func (m *Manager) heardOf(broker int32) *heard {
	v, ok := m.heard.Load(broker)
	if !ok {
		v, _ = m.heard.LoadOrStore(broker, new(heard))
	}
	return v.(*heard)
}

// Heard notes a follower's fetch request. A session goes on with partitions
// that it doesn't name, so those that wait for the follower are looked at here.
func (m *Manager) Heard(broker int32, now time.Time) {
	h := m.heardOf(broker)
	h.at.Store(int64(now.Sub(m.began)))
	if !h.again.Swap(false) {
		return
	}
	m.Partitions(func(p *Partition) bool {
		if s := p.st.Load(); !s.self || !slices.Contains(s.replicas, broker) || slices.Contains(s.isr, broker) {
			return true
		}
		p.mu.RLock()
		p.expand(p.st.Load(), now, broker, false)
		p.mu.RUnlock()
		return true
	})
}

// Suspend ends every leadership of this broker by itself: requests that only a
// leader answers get NOT_LEADER_OR_FOLLOWER, machines lose their logs. It is for
// a broker that the controller may have given up.
func (m *Manager) Suspend(reason string) { m.setSuspended(true, reason) }

// Resume lets the broker lead again what the metadata says it leads.
func (m *Manager) Resume() { m.setSuspended(false, "") }

func (m *Manager) setSuspended(on bool, reason string) {
	m.apply.Lock()
	defer m.apply.Unlock()
	if m.suspended == on {
		return
	}
	m.suspended = on
	if on {
		m.log.Warn("this broker stops leading", "reason", reason)
	} else {
		m.log.Info("this broker leads again")
	}
	for mt := range m.Image().Topics() {
		m.mu.RLock()
		t := m.byID[mt.ID]
		m.mu.RUnlock()
		if t == nil {
			continue
		}
		for _, p := range m.local(t) {
			if mp := mt.Partition(p.index); mp != nil && mp.Leader == m.opts.NodeID {
				m.changed(p, mp, true)
			}
		}
	}
}
