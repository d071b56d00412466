package mirror

import (
	"sync"
	"time"

	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/replica"
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
	// aligned is set once the source's OffsetForLeaderEpoch agreed that our log is a prefix of its.
	aligned bool
	// fetched is set after the first good answer.
	fetched bool
	// until is when the partition may be asked for again after an error.
	until time.Time
	// corrupt counts failed checks at corruptAt (spec D14).
	corrupt   int
	corruptAt int64
	// sent is what the source's fetch session holds of the partition; nil if nothing.
	sent *fetchwire.RequestPartition

	mu      sync.Mutex // held while a fetched answer is taken in; guards removed
	removed bool
}

// remove makes the fetcher let go of the target. When it returns no append of the target is under way, and none follows.
func (t *target) remove() {
	t.mu.Lock()
	t.removed = true
	t.mu.Unlock()
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
