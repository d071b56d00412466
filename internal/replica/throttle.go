package replica

import (
	"math"
	"sync"
	"time"
)

// quota is a rate of replication, in bytes a second (KIP-73): what was used
// above it has to be waited for.
type quota struct {
	mu      sync.Mutex
	limited bool
	rate    float64
	left    float64 // what may still be used; negative: exceeded
	at      time.Time
}

// set changes the rate; math.MaxInt64 is none.
func (q *quota) set(rate int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limited, q.rate = rate < math.MaxInt64, float64(rate)
	q.left, q.at = q.rate, time.Time{}
}

// refill adds what the time since the last look allows, up to a second's worth.
// mu is held.
func (q *quota) refill(now time.Time) {
	if !q.at.IsZero() {
		q.left = min(q.left+now.Sub(q.at).Seconds()*q.rate, q.rate)
	}
	q.at = now
}

// exceeded reports whether more was used than the rate allows.
func (q *quota) exceeded(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.limited {
		return false
	}
	q.refill(now)
	return q.left <= 0
}

// use notes n bytes.
func (q *quota) use(n int, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.limited {
		return
	}
	q.refill(now)
	q.left -= float64(n)
}

// The quotas of a manager.
const (
	leaderQuota = iota
	followerQuota
)

// SetThrottles sets leader.replication.throttled.rate and
// follower.replication.throttled.rate, in bytes a second; math.MaxInt64: none.
func (m *Manager) SetThrottles(leader, follower int64) {
	m.quotas[leaderQuota].set(leader)
	m.quotas[followerQuota].set(follower)
}

// Throttled reports whether this replica must not fetch now: it is a throttled
// one and the rate of followers is used up.
func (p *Partition) Throttled(now time.Time) bool {
	f := p.settings.Load().FollowerThrottled
	return f != nil && f(p.index, p.m.opts.NodeID) && p.m.quotas[followerQuota].exceeded(now)
}

// UseThrottle counts fetched bytes against the rate of followers.
func (p *Partition) UseThrottle(bytes int, now time.Time) {
	if f := p.settings.Load().FollowerThrottled; f != nil && f(p.index, p.m.opts.NodeID) {
		p.m.quotas[followerQuota].use(bytes, now)
	}
}

// leaderThrottled reports whether what a follower gets counts against the rate
// of leaders: followers in the ISR are never slowed down.
func (p *Partition) leaderThrottled(s *state, broker int32) bool {
	f := p.settings.Load().LeaderThrottled
	if f == nil || !f(p.index, p.m.opts.NodeID) {
		return false
	}
	for _, id := range s.isr {
		if id == broker {
			return false
		}
	}
	return true
}
