package mirror

import (
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/replica"
)

// outcome is why a fetcher let go of a target, for the partition to act on.
type outcome struct {
	kind outcomeKind
	err  error
	// retryable says of a failure whether trying again may help.
	retryable bool
	// epoch is the batch epoch that was above our leader epoch.
	epoch int32
	// cutTo is where the log is to be cut, and why says what proves it.
	cutTo int64
	why   string
}

type outcomeKind int

const (
	// outcomeFence: a batch carries an epoch above our leader epoch.
	outcomeFence outcomeKind = iota + 1
	// outcomeMoved: the source's leader moved to where the cache now says.
	outcomeMoved
	// outcomeCut: the source's log parts from ours, which proves an unclean election there, and ours has to be cut.
	outcomeCut
	// outcomeFailed: an error.
	outcomeFailed
)

// target is a partition that a fetcher fetches. The fetcher's goroutine owns the fields without a guard.
type target struct {
	p   *Partition
	rep *replica.Partition
	key tp
	// topicID is the topic's id on the source.
	topicID ids.UUID
	// sle is the source leader epoch, the CurrentLeaderEpoch of requests; -1: unknown.
	sle int32
	// more is set while the source is known to hold more than the last answer brought.
	more bool
	// watched is when the source was last asked how far it is while the partition could not be fetched.
	watched time.Time
	// aligned is set once the source's OffsetForLeaderEpoch agreed that our log is a prefix of its.
	aligned bool
	// highest is the highest batch epoch of the last answer.
	highest int32
	// until is when the partition may be asked for again after an error.
	until time.Time
	// leaderless is since when the source says that its broker does not lead the partition, and doesn't say who does; zero if it doesn't.
	leaderless time.Time
	// corrupt counts failed checks at corruptAt (spec D14).
	corrupt   int
	corruptAt int64
	// behind is where the log may go on behind a damaged batch at its end, -1 where that can't be told. skipTo is where it does so.
	behind, skipTo int64
	// sent is what the source's fetch session holds of the partition; nil if nothing.
	sent *fetchwire.RequestPartition

	// fetched is set after the first good answer.
	fetched atomic.Bool

	mu      sync.Mutex // held while a fetched answer is taken in; guards the fields below
	removed bool
	result  *outcome // why the fetcher let go; nil if it was told to
}

// offset is where to go on: our log end, or behind a damaged batch there that is skipped.
func (t *target) offset() int64 { return max(t.rep.LogEndOffset(), t.skipTo) }

// position is what to ask the source for: what comes after where our log ends, or will end.
func (t *target) position(at foreseen, maxBytes int32) fetchwire.RequestPartition {
	p := fetchwire.NewRequestPartition(t.key.partition, at.offset, maxBytes)
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = t.sle, at.epoch
	return p
}

// remove makes the fetcher let go of the target. When it returns no append of the target is under way, and none follows.
func (t *target) remove() {
	t.mu.Lock()
	t.removed = true
	t.mu.Unlock()
}

// finish lets go of the target and tells its partition why. It does nothing if the target was removed: what happened to it is
// no longer of interest.
func (t *target) finish(o outcome) {
	t.mu.Lock()
	first := !t.removed
	if first {
		t.removed, t.result = true, &o
	}
	t.mu.Unlock()
	if first {
		t.p.kick()
	}
}

// take runs fn unless the target was removed, and keeps it from being removed meanwhile.
func (t *target) take(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed {
		return false
	}
	fn()
	return true
}

func (t *target) gone() bool { return !t.take(func() {}) }

// ended reports whether the target was let go of, and why if the fetcher did it.
func (t *target) ended() (bool, *outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removed, t.result
}
