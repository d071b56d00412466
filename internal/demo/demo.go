// Package demo plays the product's main job in one process: two clusters on loopback, a producer and a consumer group on the
// first, a mirror of it on the second, then the failover to the second.
//
// Once plays it as a proof: what it reports was compared or read back, byte for byte where bytes matter. Live plays it for
// people to watch. Both use the clusters only as any client would, and read segment files as any tool would.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options are what a demo needs from outside.
type Options struct {
	// Out gets the story: plain lines, or with Terminal a picture that is redrawn.
	Out      io.Writer
	Terminal bool
	// Dir is where the data directories are made; empty: the system's directory for temporary files. They are removed at the end.
	Dir string
	// Logger gets the logs of both clusters, nil for none.
	Logger *slog.Logger
	// Version is the version of the process.
	Version string
	// Steady is how long Live mirrors before the first cluster is lost; 0: 20 s.
	Steady time.Duration
	// Records is how many records Once writes to each partition of orders, half of them while it mirrors; 0: 4000.
	Records int
}

// Result is what was done and verified. OK is set only if everything was.
type Result struct {
	OK                    bool   `json:"ok"`
	RecordsMirrored       int64  `json:"records_mirrored"`
	BatchesCompared       int64  `json:"batches_compared"`
	BytesCompared         int64  `json:"bytes_compared"`
	Partitions            int    `json:"partitions"`
	SegmentsIdentical     bool   `json:"segments_identical"`
	CodecsVerified        bool   `json:"codecs_verified"`
	CompactionGaps        int64  `json:"compaction_gaps"`
	GroupOffsetsIdentical bool   `json:"group_offsets_identical"`
	GroupOffsetsCompared  int    `json:"group_offsets_compared"`
	ReadOnlyWhileMirrored bool   `json:"read_only_while_mirrored"`
	FailoverMs            int64  `json:"failover_ms"`
	StandbyWriteReadBack  bool   `json:"standby_write_read_back"`
	GroupContinued        bool   `json:"group_continued"`
	DurationMs            int64  `json:"duration_ms"`
	Error                 string `json:"error,omitempty"`
}

// demo is one run.
type demo struct {
	o       Options
	began   time.Time
	dir     string
	source  *cluster
	standby *cluster
	told    bool // the story came to its end
	result  Result

	mu    sync.Mutex
	lines []string // of the story so far, for the picture of Live
}

// Once plays the story without a terminal and verifies each step. The error says what failed; the result holds what was
// verified before.
func Once(ctx context.Context, o Options) (Result, error) {
	o.Terminal = false
	return run(ctx, o, (*demo).once)
}

// Live plays the story until it is told, and then keeps the second cluster running until ctx ends.
func Live(ctx context.Context, o Options) (Result, error) { return run(ctx, o, (*demo).live) }

func run(ctx context.Context, o Options, play func(*demo, context.Context) error) (Result, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Steady == 0 {
		o.Steady = 20 * time.Second
	}
	if o.Records == 0 {
		o.Records = 4000
	}
	dir, err := os.MkdirTemp(o.Dir, "milena-demo-")
	if err != nil {
		return Result{Error: err.Error()}, err
	}
	d := &demo{o: o, began: time.Now(), dir: dir}
	err = play(d, ctx)
	err = errors.Join(err, d.close())
	d.result.DurationMs = time.Since(d.began).Milliseconds()
	d.result.OK = err == nil && d.told
	if err != nil {
		d.result.Error = err.Error()
	}
	return d.result, err
}

func (d *demo) close() error {
	var errs []error
	for _, c := range []*cluster{d.source, d.standby} {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// say adds a line to the story, with the time since the start. On a terminal the picture shows it.
func (d *demo) say(format string, args ...any) {
	line := fmt.Sprintf("%6.2fs  %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
	if !d.o.Terminal {
		fmt.Fprintln(d.o.Out, line)
	}
}

// startClusters starts both clusters.
func (d *demo) startClusters(ctx context.Context) error {
	var err error
	if d.source, err = startCluster(ctx, d.o, "source", filepath.Join(d.dir, "source")); err != nil {
		return err
	}
	if d.standby, err = startCluster(ctx, d.o, "standby", filepath.Join(d.dir, "standby")); err != nil {
		return err
	}
	d.say("two clusters run: source at %s, standby at %s", d.source.addr, d.standby.addr)
	return nil
}
