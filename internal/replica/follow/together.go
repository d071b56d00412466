package follow

import (
	"time"

	"golang.org/x/sync/errgroup"

	"milena/internal/fetchwire"
)

// sideBySide is how many partitions a loop syncs or appends to at once. Where records count only on disk, and where many partitions get a
// new leader epoch, each takes syncs of its own, which the disk makes together if they come together: one after the other a
// thousand partitions would hold up each other, and whatever else the leader waits for, for seconds.
const sideBySide = 32

// SideBySide has the core sync and append to that many partitions at once; 1, which it begins with, repeats exactly.
func (c *Core) SideBySide(n int) { c.together = max(n, 1) }

// each calls fn for 0 to n-1, side by side.
func (c *Core) each(n int, fn func(i int)) {
	if c.together <= 1 || n <= 1 {
		for i := range n {
			fn(i)
		}
		return
	}
	var g errgroup.Group
	g.SetLimit(c.together)
	for i := range n {
		g.Go(func() error { fn(i); return nil })
	}
	_ = g.Wait() // fn keeps its own errors
}

// flush makes durable what the next request vouches for. An error shows again when the position is asked for.
func (c *Core) flush() {
	if c.together <= 1 {
		return // Position does it
	}
	var behind []*target
	for _, t := range c.list() {
		if leader, _, ok := t.p.Following(); ok && leader == c.leader && t.p.Undurable() {
			behind = append(behind, t)
		}
	}
	c.each(len(behind), func(i int) { _, _ = behind[i].p.Position() })
}

// taken is one partition's part of an answer, with what became of it.
type taken struct {
	a   *ask
	rp  *fetchwire.ResponsePartition
	err error
}

// takeAll takes in the parts of an answer, none of a partition twice.
func (c *Core) takeAll(parts []taken, now time.Time) {
	c.each(len(parts), func(i int) { parts[i].err = c.take(parts[i].a, parts[i].rp, now) })
	for _, x := range parts {
		c.finish(x.a.t, now, x.err)
	}
}
