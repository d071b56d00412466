package sim

import (
	"time"
)

// faults do harm to a cluster of cores, until they end and heal everything.
type faults struct {
	c    *cores
	over bool
}

func (f *faults) begin() { f.c.after(f.c.between(0, 500*time.Millisecond), f.next) }

func (f *faults) next() {
	if f.over || len(f.c.failed) > 0 {
		return
	}
	c := f.c
	h := pick(c.loop, c.hosts)
	switch c.rnd.IntN(26) {
	case 0, 1, 2:
		f.stop(h)
	case 3:
		f.stopController()
	case 4:
		if c.chance(0.3) {
			f.storm()
		}
	case 5, 6:
		f.isolate(h)
	case 7, 8:
		other := pick(c.loop, c.hosts)
		c.logf("line from host %d to host %d is cut", h.id, other.id)
		c.net.cut[[2]int{h.id, other.id}] = true
		f.later(3*time.Second, func() {
			c.logf("line from host %d to host %d is whole", h.id, other.id)
			delete(c.net.cut, [2]int{h.id, other.id})
		})
	case 9:
		c.net.loss = c.rnd.Float64() * 0.3
		c.logf("%.0f %% of messages are lost", c.net.loss*100)
		f.later(2*time.Second, func() { c.net.loss = 0 })
	case 10:
		c.net.slow, c.net.delay = c.rnd.Float64()*0.3, c.between(3*time.Millisecond, 60*time.Millisecond)
		c.logf("messages take up to %v, %.0f %% of them more", c.net.delay, c.net.slow*100)
		f.later(2*time.Second, func() { c.net.slow, c.net.delay = 0, 2*time.Millisecond })
	case 11:
		if h.up && !h.busy {
			h.leave()
			f.revive(h)
		}
	case 12:
		f.reassign()
	case 13:
		f.electPreferred()
	case 14:
		c.logf("the network heals")
		c.net.heal()
	case 15, 16:
		f.fill(h)
	case 17, 18:
		f.slowDown(h)
	case 19, 20:
		f.changeVoters()
	case 21:
		f.changeMinISR()
	case 22:
		f.failDir(h)
	case 23, 24:
		f.moveDir(h)
	case 25: // a pause
	}
	c.after(c.between(20*time.Millisecond, 900*time.Millisecond), f.next)
}

// later undoes a fault within d.
func (f *faults) later(d time.Duration, fn func()) {
	f.c.after(f.c.between(50*time.Millisecond, d), func() {
		if !f.over {
			fn()
		}
	})
}

func (f *faults) stop(h *host) {
	if h.up {
		h.end(stop(f.c.rnd.IntN(int(leave))))
		f.revive(h)
	}
}

// revive starts a host again after a while, or when it has stopped.
func (f *faults) revive(h *host) {
	f.c.after(f.c.between(50*time.Millisecond, 4*time.Second), func() {
		switch {
		case f.over:
		case h.up:
			if h.busy {
				f.revive(h)
			}
		default:
			h.start()
		}
	})
}

// stopController stops the active controller.
func (f *faults) stopController() {
	for _, h := range f.c.hosts[:f.c.controllers] {
		if h.up && h.ctl != nil && h.ctl.active {
			f.stop(h)
			return
		}
	}
}

// storm restarts all hosts, some more than once.
func (f *faults) storm() {
	f.c.logf("restart storm")
	for range 1 + f.c.rnd.IntN(2) {
		for _, h := range f.c.hosts {
			f.c.after(f.c.between(0, time.Second), func() {
				if !f.over && h.up {
					h.end(kill)
					f.c.after(f.c.between(50*time.Millisecond, 500*time.Millisecond), func() {
						if !f.over && !h.up {
							h.start()
						}
					})
				}
			})
		}
	}
}

func (f *faults) isolate(h *host) {
	c := f.c
	in, out := c.chance(0.7), c.chance(0.7)
	if !in && !out {
		in, out = true, true
	}
	c.logf("host %d is cut off: in %v, out %v", h.id, in, out)
	c.net.isolate(h.id, len(c.hosts), in, out)
	f.later(5*time.Second, func() {
		c.logf("host %d is back", h.id)
		for key := range c.net.cut {
			if key[0] == h.id || key[1] == h.id {
				delete(c.net.cut, key)
			}
		}
	})
}

// end heals everything.
func (f *faults) end() {
	f.over = true
	if len(f.c.failed) > 0 {
		return
	}
	f.c.logf("all is healed")
	f.c.net.heal()
	for _, h := range f.c.hosts {
		h.makeRoom()
		h.slow = 0
		if h.badDir {
			h.mendDir()
			h.end(kill) // a directory that failed is back with the next start
		}
		if h.up && h.busy { // a shutdown under way goes on
			h.end(kill)
		}
		if !h.up {
			h.start()
		}
	}
}
