package logdir

import (
	"errors"
	"time"

	"milena/internal/partlog"
)

// cleanerLoop compacts the log that needs it most, one after the other, and
// rests for Backoff when there is none.
func (s *Set) cleanerLoop() {
	broken := map[*partlog.Log]bool{} // damaged: left alone until the next start
	for {
		for s.run.ctx.Err() == nil && s.cleaner.Load().Enable {
			l := s.dirtiest(time.Now(), broken)
			if l == nil {
				break
			}
			if !s.clean(l, broken) {
				break
			}
		}
		wait := max(s.cleaner.Load().Backoff, 100*time.Millisecond)
		select {
		case <-s.run.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// dirtiest is the log to compact next: overdue ones first, then by dirty ratio.
func (s *Set) dirtiest(now time.Time, broken map[*partlog.Log]bool) *partlog.Log {
	var best *partlog.Log
	var most partlog.Cleanable
	for _, e := range s.list() {
		cfg := e.log.Config()
		if !cfg.Compact || broken[e.log] || s.Future(e.log.Topic(), e.log.Partition()) != nil {
			continue // a copy of the log that is under way must get the tombstones of what it has
		}
		c, err := e.log.Cleanable(now)
		if err != nil {
			s.uncleanable(e.log, err, broken)
			continue
		}
		if !c.Due(cfg) {
			continue
		}
		if best == nil || (c.Overdue && !most.Overdue) || (c.Overdue == most.Overdue && c.Ratio > most.Ratio) {
			best, most = e.log, c
		}
	}
	return best
}

// clean compacts l and reports whether it makes sense to go on at once.
func (s *Set) clean(l *partlog.Log, broken map[*partlog.Log]bool) bool {
	began := time.Now()
	o := *s.cleaner.Load()
	st, err := l.Compact(partlog.CompactOptions{Now: began, MapBytes: o.DedupeBytes, Pace: s.pacer()})
	if errors.Is(err, partlog.ErrStopped) {
		return true
	}
	if e := s.entry(l.Topic(), l.Partition()); passing(err) && e != nil {
		s.failIO(e.dir, err)
		return false
	}
	if err == nil && st.To <= st.From {
		err = errors.New("compaction made no progress")
	}
	if err != nil {
		s.uncleanable(l, err, broken)
		return true
	}
	s.log.Info("log compacted", "topic", l.Topic(), "partition", l.Partition(), "from", st.From, "to", st.To,
		"records", st.Records, "kept", st.Kept, "read", st.Read, "written", st.Written, "took", time.Since(began))
	s.checkpoint()
	return true
}

func (s *Set) uncleanable(l *partlog.Log, err error, broken map[*partlog.Log]bool) {
	broken[l] = true
	if !errors.Is(err, partlog.ErrClosed) {
		s.log.Error("log can't be compacted and is left alone until the next start",
			"topic", l.Topic(), "partition", l.Partition(), "error", err)
	}
}

// pacer limits the bytes that a compaction reads and writes per second.
func (s *Set) pacer() func(int64) {
	var budget float64 // bytes that may pass without a wait; negative: owed
	last := time.Now()
	return func(n int64) {
		rate := s.cleaner.Load().IOBytesPerSecond
		if rate <= 0 {
			return
		}
		now := time.Now()
		budget = min(budget+now.Sub(last).Seconds()*rate, rate/10) - float64(n)
		last = now
		if budget < 0 {
			select {
			case <-s.run.ctx.Done():
			case <-time.After(time.Duration(-budget / rate * float64(time.Second))):
			}
		}
	}
}
