package demo

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"time"
)

// show draws what happens while Live plays: a picture on a terminal, a line now and then elsewhere.
type show struct {
	d       *demo
	traffic atomic.Pointer[traffic]
	stop    context.CancelFunc
	done    chan struct{}
}

func (d *demo) startShow(ctx context.Context) *show {
	ctx, stop := context.WithCancel(ctx)
	s := &show{d: d, stop: stop, done: make(chan struct{})}
	every := report
	if d.o.Terminal {
		every = redraw
	}
	go func() {
		defer close(s.done)
		for {
			s.once(ctx)
			if pause(ctx, every) != nil {
				return
			}
		}
	}()
	return s
}

func (s *show) end() {
	s.stop()
	<-s.done
}

// row is a mirrored partition as it is shown; offsets are -1 if unknown.
type row struct {
	partition
	state             string
	source, dest, lag int64
	lastError         string
}

// look asks the standby for the mirror and the group. What can't be told now is left out.
func (s *show) look(ctx context.Context) (rows []row, committed int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	committed = -1
	ds, err := s.d.mirrors().Describe(ctx, mirrorName)
	if err != nil {
		return nil, committed
	}
	for _, m := range ds {
		for _, p := range m.Partitions {
			r := row{partition{p.Topic, p.Partition}, p.State, p.SourceOffset, p.DestinationOffset, -1, p.LastError}
			if lag, ok := p.Lag(); ok {
				r.lag = lag
			}
			rows = append(rows, r)
		}
	}
	sort.Slice(rows, func(i, j int) bool {
		a, b := rows[i], rows[j]
		return a.topic < b.topic || a.topic == b.topic && a.number < b.number
	})
	if os, err := s.d.standby.adm.FetchOffsets(ctx, "billing"); err == nil {
		committed = 0
		for _, o := range os.Sorted() {
			committed += max(o.At, 0)
		}
	}
	return rows, committed
}

func (s *show) once(ctx context.Context) {
	rows, committed := s.look(ctx)
	if ctx.Err() != nil {
		return
	}
	produced, consumed := int64(0), int64(0)
	if t := s.traffic.Load(); t != nil {
		produced, consumed = t.produced.Load(), t.consumed.Load()
	}
	if s.d.o.Terminal {
		fmt.Fprint(s.d.o.Out, s.picture(rows, committed, produced, consumed))
		return
	}
	if len(rows) > 0 {
		s.d.say("%s; produced %d, consumed %d; billing on the standby at %s", sum(rows), produced, consumed, known(committed))
	}
}

// sum is a line about all partitions.
func sum(rows []row) string {
	states, lag, unknown := map[string]int{}, int64(0), 0
	for _, r := range rows {
		states[r.state]++
		switch {
		case r.state != "MIRRORING":
		case r.lag < 0:
			unknown++
		default:
			lag += r.lag
		}
	}
	var parts []string
	for s, n := range states {
		parts = append(parts, fmt.Sprintf("%d %s", n, s))
	}
	sort.Strings(parts)
	text := strings.Join(parts, ", ")
	switch {
	case unknown > 0:
		return text + fmt.Sprintf(", lag unknown of %d", unknown)
	case states["MIRRORING"] > 0:
		return text + fmt.Sprintf(", lag %d", lag)
	}
	return text
}

func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// picture is the whole screen, the story's last lines below the tables.
func (s *show) picture(rows []row, committed, produced, consumed int64) string {
	const home, clear, bold, plain = "\x1b[H", "\x1b[2J", "\x1b[1m", "\x1b[0m"
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s%smilena demo%s   source %s  --->  standby %s\n\n", home, clear, bold, plain, s.d.source.addr, s.d.standby.addr)
	fmt.Fprintf(&b, "producer: %d records acknowledged    group billing: %d read, %s committed on the standby\n\n", produced, consumed, known(committed))
	fmt.Fprintf(&b, "%s%-14s %-16s %12s %12s %8s%s\n", bold, "PARTITION", "STATE", "SOURCE", "STANDBY", "LAG", plain)
	for _, r := range rows {
		fmt.Fprintf(&b, "%-14s %-16s %12s %12s %8s  %s\n", r.partition, r.state, known(r.source), known(r.dest), known(r.lag), r.lastError)
	}
	if len(rows) == 0 {
		b.WriteString("(no mirror yet)\n")
	}
	b.WriteString("\n")
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, l := range s.d.lines[max(0, len(s.d.lines)-10):] {
		b.WriteString(l + "\n")
	}
	fmt.Fprintf(&b, "\nlook closer: milena mirrors describe --bootstrap-server %s\n", s.d.standby.addr)
	return b.String()
}
