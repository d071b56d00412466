package server

import (
	"sync/atomic"
	"time"
)

// quietFor is how long nothing more is logged of what any client can cause, after a line about it.
const quietFor = time.Second

// quiet keeps strangers from filling the log: it lets one line a second through and counts what it holds back. The metrics
// count them all.
type quiet struct {
	next atomic.Int64 // Server.now from which a line may be written
	held atomic.Int64
}

// pass says whether a line may be written at now, and how many were held back since the last.
func (q *quiet) pass(now int64) (held int64, ok bool) {
	next := q.next.Load()
	if now < next || !q.next.CompareAndSwap(next, now+int64(quietFor)) {
		q.held.Add(1)
		return 0, false
	}
	return q.held.Swap(0), true
}
