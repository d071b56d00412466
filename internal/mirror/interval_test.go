package mirror

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// Intervals are dynamic configs: one that is made shorter ends a wait by the old one, of the group sync, the refresh and the audit.
func TestIntervalChangesWhileItIsWaitedFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		mi := &mirror{mgr: &Manager{tasks: goroutines{}}}
		mi.ctx, mi.stop = context.WithCancel(t.Context())
		defer mi.stop()
		var interval atomic.Int64
		interval.Store(int64(time.Hour))
		began := time.Now()
		time.AfterFunc(time.Minute, func() { interval.Store(int64(time.Second)) })
		if !mi.every(began, func() time.Duration { return time.Duration(interval.Load()) }, nil) || time.Since(began) > time.Minute+noticed {
			t.Errorf("an hour that became a second after a minute took %s", time.Since(began))
		}
		interval.Store(int64(time.Hour))
		wake := make(chan struct{}, 1)
		began = time.Now()
		time.AfterFunc(time.Minute, func() { wake <- struct{}{} })
		if !mi.every(began, func() time.Duration { return time.Duration(interval.Load()) }, wake) || time.Since(began) != time.Minute {
			t.Errorf("a wait that was ended after a minute took %s", time.Since(began))
		}
		time.AfterFunc(time.Minute, mi.stop)
		if mi.pause(time.Hour) {
			t.Error("the wait of a closed mirror went on")
		}
	})
}

// When a partition is compared next goes by the interval of then, and by the retry of what could not be decided if that is shorter.
func TestAuditIsDueByThePresentInterval(t *testing.T) {
	a := &audit{}
	if !a.dueAt(time.Hour).IsZero() {
		t.Error("the first comparison waits")
	}
	a.looked = time.Unix(1000, 0)
	for interval, want := range map[time.Duration]time.Duration{24 * time.Hour: 24 * time.Hour, time.Second: time.Second} {
		if got := a.dueAt(interval).Sub(a.looked); got != want {
			t.Errorf("interval %s: due after %s", interval, got)
		}
	}
	a.soon = auditRetry
	for interval, want := range map[time.Duration]time.Duration{24 * time.Hour: auditRetry, time.Second: time.Second} {
		if got := a.dueAt(interval).Sub(a.looked); got != want {
			t.Errorf("interval %s, undecided: due after %s", interval, got)
		}
	}
	a.from = 900
	if a.cut(100); a.from != 100 {
		t.Errorf("after a cut at 100 the comparison goes on at %d", a.from)
	}
}
