package server

import (
	"sync"
	"time"
)

// How much is logged of what any client can cause: in each quietFor at most quietKinds lines, and each text once.
const (
	quietFor   = time.Second
	quietKinds = 50
)

// quiet keeps strangers from filling the log: what is said twice within a second is held back the second time. The metrics
// count all of it.
type quiet struct {
	mu    sync.Mutex
	until int64 // Server.now at which all may be said again
	said  map[string]bool
	held  int64
}

// pass says whether a line with this text may be written at now, and how many were held back since the last that was.
func (q *quiet) pass(now int64, text string) (held int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now >= q.until || q.said == nil {
		q.until, q.said = now+int64(quietFor), map[string]bool{}
	}
	if q.said[text] || len(q.said) >= quietKinds {
		q.held++
		return 0, false
	}
	q.said[text] = true
	held, q.held = q.held, 0
	return held, true
}
