package cli

import (
	"fmt"
	"io"
	"time"
)

// counter shows how far a long command is on standard error, if that is a terminal. Its owner guards it.
type counter struct {
	w     io.Writer // nil: shows nothing
	what  string
	n     int64
	drawn time.Time
	shown bool
}

// counterEvery is how often the count is drawn.
const counterEvery = 250 * time.Millisecond

func (a *app) counter(what string) *counter {
	c := &counter{what: what, drawn: time.Now()}
	if a.env.StderrTerminal {
		c.w = a.env.Stderr
	}
	return c
}

func (c *counter) add(n int64) {
	c.n += n
	if c.w == nil {
		return
	}
	if now := time.Now(); now.Sub(c.drawn) >= counterEvery {
		c.drawn, c.shown = now, true
		fmt.Fprintf(c.w, "\r%d %s", c.n, c.what)
	}
}

// end shows the last count and ends the line, if any was drawn.
func (c *counter) end() {
	if c.shown {
		fmt.Fprintf(c.w, "\r%d %s\n", c.n, c.what)
		c.shown = false
	}
}
