package mirror

import (
	"sync"
	"time"
)

// sourceView is what a partition last saw of its source (spec D6).
type sourceView struct {
	mu sync.Mutex
	// offset is the source's high watermark, -1 until the first answer since the fetcher started.
	offset int64
	// at is when the source last confirmed it.
	at time.Time
	// last and lastAt are offset and at of the last answer there was, whatever became of its fetcher.
	last   int64
	lastAt time.Time
	// caughtUp is when our log end last equalled a high watermark of the source, zero if never.
	caughtUp time.Time
	// err is the last error that did not change the state, empty after the next good answer.
	err string
}

func (v *sourceView) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	// When we were level with the source last stays true whatever happens to the fetcher: with the source gone it is what
	// counts.
	v.offset, v.at, v.err = -1, time.Time{}, ""
}

// sawSource notes the source's high watermark of an answer. One below our own isn't the source's end: its leader has just begun to lead
// and doesn't know yet how far its log is committed. By it we would look level with a source that has more, so it confirms nothing.
func (p *Partition) sawSource(hw int64, now time.Time) {
	if hw < p.rep.HighWatermark() {
		return
	}
	end := p.rep.LogEndOffset()
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	v.offset, v.at, v.err = hw, now, ""
	v.last, v.lastAt = hw, now
	if end >= hw {
		v.caughtUp = now
	}
}

// behindSource notes the source's high watermark of an answer that could not be taken in.
func (p *Partition) behindSource(hw int64, now time.Time) {
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	v.offset, v.at, v.last, v.lastAt = hw, now, hw, now
}

// confirmSource notes that an incremental answer left the partition out: nothing is new there.
func (p *Partition) confirmSource(now time.Time) {
	end := p.rep.LogEndOffset()
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.offset < 0 {
		return
	}
	v.at, v.lastAt = now, now
	if end >= v.offset {
		v.caughtUp = now
	}
}

func (p *Partition) sawError(err error) {
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err.Error()
}

// Progress is how far a partition led here has come.
type Progress struct {
	// SourceOffset is the source's high watermark as last seen, -1 if it was not seen since the fetcher started.
	SourceOffset int64
	// Age is how long ago the source confirmed it, negative if it never did.
	Age time.Duration
	// LastSourceOffset is the last SourceOffset there was, -1 if this leader has seen none, and LastSourceAge how long ago.
	LastSourceOffset int64
	LastSourceAge    time.Duration
	// DestinationOffset is our high watermark.
	DestinationOffset int64
	// Behind is the time since our log end last equalled a high watermark of the source; negative if it never did.
	Behind time.Duration
	// Error is the last error that did not change the state, or the difference to the source that the audit found.
	Error string
	// Stale is the age from which the source offset counts as unknown.
	Stale time.Duration
}

// staleAfter is that age but for the fetch wait, which an idle source makes use of.
const staleAfter = 10 * time.Second

// Known reports whether the source offset is fresh enough to compare with (spec D6).
func (p Progress) Known() bool { return p.SourceOffset >= 0 && p.Age >= 0 && p.Age <= p.Stale }

// Progress reads how far the partition has come.
func (p *Partition) Progress(now time.Time) Progress {
	out := Progress{DestinationOffset: p.rep.HighWatermark(), Age: -1, Behind: -1, Stale: staleAfter, LastSourceOffset: -1, LastSourceAge: -1}
	if m, err := p.mgr.mirror(p.mirror); err == nil {
		out.Stale += m.set().FetchWait
	}
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	out.SourceOffset, out.Error = v.offset, v.err
	if !v.at.IsZero() {
		out.Age = max(now.Sub(v.at), 0)
	}
	if mutant == "lag" {
		out.SourceOffset, out.Age = out.DestinationOffset, 0
	}
	if !v.lastAt.IsZero() {
		out.LastSourceOffset, out.LastSourceAge = v.last, max(now.Sub(v.lastAt), 0)
	}
	if !v.caughtUp.IsZero() {
		out.Behind = max(now.Sub(v.caughtUp), 0)
	}
	if out.Error == "" {
		_, _, out.Error = p.audit.snapshot()
	}
	return out
}
