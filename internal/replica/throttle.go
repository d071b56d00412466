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
	used    window
}

// set changes the rate; math.MaxInt64 is none.
func (q *quota) set(rate int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if limited := rate < math.MaxInt64; limited == q.limited && float64(rate) == q.rate {
		return // a change of another config gives no new burst
	}
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
	q.used.add(n, now)
	if !q.limited {
		return
	}
	q.refill(now)
	q.left -= float64(n)
}

// pace is how much to fetch at a time so that a pause is about a second long:
// the rate; math.MaxInt64 if there is none.
func (q *quota) pace() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.limited {
		return math.MaxInt64
	}
	return int64(q.rate)
}

// windowSeconds is how far back a window counts, as Kafka's replication quotas do.
const windowSeconds = 10

// window counts bytes of the last seconds.
type window struct {
	second [windowSeconds + 1]int64 // bytes by the second modulo its length
	last   int64                    // the second that was counted last
}

// roll forgets the seconds that are too long ago.
func (w *window) roll(now time.Time) {
	s := now.Unix()
	for i := max(w.last+1, s-windowSeconds); i <= s; i++ {
		w.second[i%int64(len(w.second))] = 0
	}
	w.last = max(w.last, s)
}

func (w *window) add(n int, now time.Time) {
	w.roll(now)
	w.second[w.last%int64(len(w.second))] += int64(n)
}

// rate is in bytes a second over the whole seconds before now.
func (w *window) rate(now time.Time) float64 {
	w.roll(now)
	sum := int64(0)
	for i, n := range w.second {
		if int64(i) != w.last%int64(len(w.second)) {
			sum += n
		}
	}
	return float64(sum) / windowSeconds
}

// The quotas of a manager.
const (
	leaderQuota = iota
	followerQuota
	mirrorQuota
)

// SetThrottles sets leader.replication.throttled.rate, follower.replication.throttled.rate
// and mirror.replication.throttled.rate, in bytes a second; math.MaxInt64: none.
func (m *Manager) SetThrottles(leader, follower, mirror int64) {
	m.quotas[leaderQuota].set(leader)
	m.quotas[followerQuota].set(follower)
	m.quotas[mirrorQuota].set(mirror)
}

// MirrorByteRate is how many bytes a second throttled mirror replicas fetched in
// the ten whole seconds before now.
func (m *Manager) MirrorByteRate(now time.Time) float64 {
	q := &m.quotas[mirrorQuota]
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used.rate(now)
}

// MirrorThrottle says whether what is mirrored into this replica counts against
// mirror.replication.throttled.rate, and whether more than that was used: then it
// must not be fetched now. There is no exception for replicas that are behind: a
// mirror is in no ISR of its source. pace is how many bytes to ask for at a time.
func (p *Partition) MirrorThrottle(now time.Time) (listed, exceeded bool, pace int64) {
	f := p.settings.Load().MirrorThrottled
	if f == nil || !f(p.index, p.m.opts.NodeID) {
		return false, false, math.MaxInt64
	}
	q := &p.m.quotas[mirrorQuota]
	return true, q.exceeded(now), q.pace()
}

// UseMirrorThrottle counts bytes that were mirrored into this replica against that rate.
func (p *Partition) UseMirrorThrottle(bytes int, now time.Time) {
	if listed, _, _ := p.MirrorThrottle(now); listed {
		p.m.quotas[mirrorQuota].use(bytes, now)
	}
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
