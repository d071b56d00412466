package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// gaps measures how long each partition was not writable. Safe for concurrent use.
type gaps struct {
	mu sync.Mutex
	// kind is what is being done to the cluster now.
	kind  string
	began time.Time
	last  map[int32]time.Time
	// worst is the longest gap of each kind.
	worst map[string]gap
	kinds []string // in order of appearance
}

type gap struct {
	partition int32
	at        time.Duration // since the start
	took      time.Duration
	count     int // gaps over a second of this kind
}

func newGaps(began time.Time) *gaps {
	return &gaps{began: began, last: map[int32]time.Time{}, worst: map[string]gap{}}
}

// during says what is done from now on. A gap counts as what was done when it ended: a fault is named before it is made.
func (g *gaps) during(kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kind = kind
	if !slices.Contains(g.kinds, kind) {
		g.kinds = append(g.kinds, kind)
	}
}

// acked notes an acknowledgement in a partition.
func (g *gaps) acked(partition int32) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, ok := g.last[partition]; ok {
		took := now.Sub(last)
		w := g.worst[g.kind]
		if took > time.Second {
			w.count++
		}
		if took > w.took {
			w.partition, w.at, w.took = partition, last.Sub(g.began), took
		}
		g.worst[g.kind] = w
	}
	g.last[partition] = now
}

// since is how long ago the partition that waits longest was written to.
func (g *gaps) since() (partition int32, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, t := range g.last {
		if x := time.Since(t); x > d {
			partition, d = p, x
		}
	}
	return partition, d
}

// report is a line for each kind, and the longest of all.
func (g *gaps) report() (lines []string, longest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.kinds {
		w := g.worst[k]
		longest = max(longest, w.took)
		lines = append(lines, fmt.Sprintf("not writable for at most %.1f s (partition %d at %.1f s; %d times over a second): %s",
			w.took.Seconds(), w.partition, w.at.Seconds(), w.count, k))
	}
	return lines, longest
}

// eventLog writes what happens, with the time since the start.
type eventLog struct {
	mu    sync.Mutex
	began time.Time
	write func(string)
}

func (l *eventLog) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(fmt.Sprintf("%7.1f %s\n", time.Since(l.began).Seconds(), strings.TrimRight(fmt.Sprintf(format, args...), "\n")))
}
