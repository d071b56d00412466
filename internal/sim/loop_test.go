package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"testing/synctest"
	"time"
)

// loop is a seeded event loop in the virtual time of a synctest bubble. One goroutine owns it.
type loop struct {
	rnd   *rand.Rand
	begin time.Time
	queue eventHeap
	seq   uint64

	trace  hash64
	lines  []string // of the event log, the newest last
	keep   int      // how many lines are kept; 0: all
	echo   io.Writer
	failed []string

	settle  func() // runs after each event; nil: nothing does
	current *task  // the one that runs; nil: the loop itself does
}

type hash64 interface {
	io.Writer
	Sum64() uint64
}

type event struct {
	at  time.Time
	seq uint64
	fn  func()
}

func newLoop(seed uint64) *loop {
	return &loop{rnd: rand.New(rand.NewPCG(seed, 0x5eed)), begin: time.Now(), trace: fnv.New64a(), keep: 20_000}
}

// after runs fn d from now. Events of one instant run in the order they were made.
func (l *loop) after(d time.Duration, fn func()) {
	l.seq++
	heap.Push(&l.queue, event{at: time.Now().Add(max(d, 0)), seq: l.seq, fn: fn})
}

// run handles events until d after the beginning, or until a rule was broken.
func (l *loop) run(d time.Duration) {
	until := l.begin.Add(d)
	for len(l.queue) > 0 && len(l.failed) == 0 {
		if l.queue[0].at.After(until) {
			break
		}
		e := heap.Pop(&l.queue).(event)
		if wait := time.Until(e.at); wait > 0 {
			nap(wait)
			if l.settle != nil {
				synctest.Wait() // contexts that end now have ended
			}
		}
		e.fn()
		if l.settle != nil {
			l.settle()
		}
	}
	if wait := time.Until(until); wait > 0 && len(l.failed) == 0 {
		nap(wait)
	}
}

func (l *loop) elapsed() time.Duration { return time.Since(l.begin) }

// logf writes a line to the event log, which is the trace.
func (l *loop) logf(format string, args ...any) {
	_, _ = io.WriteString(l.trace, l.notef(format, args...))
}

// notef writes a line that isn't part of the trace: of something whose order doesn't matter.
func (l *loop) notef(format string, args ...any) string {
	line := fmt.Sprintf("%10.4f  ", l.elapsed().Seconds()) + fmt.Sprintf(format, args...)
	if l.echo != nil {
		_, _ = fmt.Fprintln(l.echo, line)
	}
	if l.keep > 0 && len(l.lines) >= 2*l.keep {
		l.lines = append(l.lines[:0], l.lines[len(l.lines)-l.keep:]...)
	}
	l.lines = append(l.lines, line)
	return line
}

// failf notes a broken rule; the run ends.
func (l *loop) failf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	l.logf("BROKEN %s", msg)
	l.failed = append(l.failed, msg)
}

// between returns a random duration in [lo, hi).
func (l *loop) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(l.rnd.Int64N(int64(hi-lo)))
}

// chance is true with probability p.
func (l *loop) chance(p float64) bool { return l.rnd.Float64() < p }

func pick[T any](l *loop, from []T) T { return from[l.rnd.IntN(len(from))] }

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = event{}
	*h = old[:n]
	return e
}
