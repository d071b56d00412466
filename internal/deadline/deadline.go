// Package deadline has the read and write deadlines of connections that live in memory.
package deadline

import (
	"sync"
	"time"
)

// Deadline is a point in time that can be moved while others wait for it. The zero value is none. Waiting is on channels, never on
// its mutex.
type Deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed when the deadline has come; nil: no deadline
	moved chan struct{} // closed and replaced when the deadline is set
}

// Set moves it to t; the zero time removes it, a time that is over makes it come at once.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.past = nil
	if !t.IsZero() {
		past := make(chan struct{})
		d.past = past
		if left := time.Until(t); left <= 0 {
			close(past)
		} else {
			d.timer = time.AfterFunc(left, func() { close(past) })
		}
	}
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// Watch returns a channel that is closed when the deadline has come (nil: there is none), and one that is closed when it is set
// anew.
func (d *Deadline) Watch() (past, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(chan struct{})
	}
	return d.past, d.moved
}
