package sim

import (
	"errors"
	"time"
)

// errNet is what a caller gets whose request or answer was lost.
var errNet = errors.New("sim: no answer")

// wires is the network of the cores: which host reaches which, and how fast.
type wires struct {
	l     *loop
	cut   map[[2]int]bool      // from, to: nothing passes
	loss  float64              // of messages
	slow  float64              // share of messages that take up to slowBy
	delay time.Duration        // the most that an ordinary message takes
	late  map[[2]int]time.Time // nothing arrives before that
	side  int                  // added to the ids of hosts, by the cluster they are of, in cut: where the wires lead from one to the other
}

const slowBy = 400 * time.Millisecond

func newWires(l *loop) *wires {
	return &wires{l: l, cut: map[[2]int]bool{}, late: map[[2]int]time.Time{}, delay: 2 * time.Millisecond}
}

// heal ends all faults.
func (w *wires) heal() {
	clear(w.cut)
	clear(w.late)
	w.loss, w.slow, w.delay = 0, 0, 2*time.Millisecond
}

// isolate cuts a host off from the others among n, in both directions or one.
func (w *wires) isolate(host, n int, in, out bool) {
	for other := range n {
		if other == host {
			continue
		}
		if in {
			w.cut[[2]int{other, host}] = true
		}
		if out {
			w.cut[[2]int{host, other}] = true
		}
	}
}

// line is a pair of hosts in cut.
func (w *wires) line(from, to *host) [2]int {
	return [2]int{from.id + w.side*from.c.side, to.id + w.side*to.c.side}
}

// send delivers fn at the host to, unless it is lost: messages may overtake each other.
func (w *wires) send(from, to *host, fn func()) {
	if from == to {
		w.l.after(w.l.between(0, 100*time.Microsecond), to.live(func() { to.work(fn) }))
		return
	}
	d := w.l.between(100*time.Microsecond, w.delay)
	if w.slow > 0 && w.l.chance(w.slow) {
		d += w.l.between(0, slowBy)
	}
	d = max(d, time.Until(w.late[w.line(from, to)]))
	if w.loss > 0 && w.l.chance(w.loss) || w.cut[w.line(from, to)] || !to.up {
		return
	}
	deliver := to.live(func() { to.work(fn) })
	w.l.after(d, func() {
		if !w.cut[w.line(from, to)] { // what is under way when a line breaks is lost
			deliver()
		}
	})
}

// call runs serve at the host to and hands its answer to done at from, or errNet after the time-out. done is called once,
// unless from stops meanwhile.
func call[T any](w *wires, from, to *host, timeout time.Duration, serve func(reply func(T, error)), done func(T, error)) {
	answered, gen := false, from.gen
	end := func(v T, err error) {
		if !answered && from.gen == gen { // an answer to an earlier process is nobody's
			answered = true
			done(v, err)
		}
	}
	w.send(from, to, func() {
		serve(func(v T, err error) {
			w.send(to, from, func() { end(v, err) })
		})
	})
	w.l.after(timeout, from.live(func() {
		var none T
		end(none, errNet)
	}))
}
