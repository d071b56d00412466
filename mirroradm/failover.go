package mirroradm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FailoverPartition is what a failover made of a partition.
type FailoverPartition struct {
	Topic     string
	Partition int32
	// State is the partition's state at the end; STOPPED takes writes.
	State string
	// Error is why it is in that state, if there is a reason.
	Error string
	// LastMirrored is the offset after the last mirrored record, -1 if it isn't known. Of a partition that is not STOPPED it is
	// the end of what it holds.
	LastMirrored int64
	// LastRecord is the timestamp of the last mirrored record, zero if it isn't known.
	LastRecord time.Time
	// SourceEnd is the last end of the source that was seen, -1 if none was, and SourceSeen how long before the failover.
	SourceEnd  int64
	SourceSeen time.Duration
	// Start is the first offset that is held.
	Start int64
}

// Missing is how many offsets the source is known to have had that are not here; false if that isn't known.
func (p FailoverPartition) Missing() (int64, bool) {
	if p.LastMirrored < 0 || p.SourceEnd < 0 {
		return 0, false
	}
	return max(p.SourceEnd-p.LastMirrored, 0), true
}

// Failover is what came of a failover.
type Failover struct {
	// Partitions are all partitions of the mirror, sorted.
	Partitions []FailoverPartition
	// Took is the time until the last of them was STOPPED, or the failover gave up.
	Took time.Duration
	// Weaker is in what topics are weaker here than they were on the source when it was last asked, as "TOPIC: WHAT".
	Weaker []string
	// Include is what mirror.topics.include was: a failover empties it, so that nothing is found and started again.
	Include string
	// Fenced are topics whose writes a fence of this cluster refuses all the same: see Client.Unfence.
	Fenced []string
	// Warnings are what could not be done or found out beside the stops.
	Warnings []error
}

// Done says whether all partitions are STOPPED.
func (f *Failover) Done() bool {
	return !slices.ContainsFunc(f.Partitions, func(p FailoverPartition) bool { return p.State != stopped })
}

// States by name.
const (
	stopped   = "STOPPED"
	mirroring = "MIRRORING"
)

// StopAll fails a mirror over: it stops all its topics at once, whatever state they are in, and asks nothing of the source. A topic
// with a partition whose log is being aligned with the source (LOG_TRUNCATION) can't be stopped; it is tried again until ctx ends.
// The error says why nothing was done; a failover that is not complete is no error, see Failover.Done. What is read at the end is
// read within a time-out of its own.
func StopAll(ctx context.Context, cl *kgo.Client, mirror string) (*Failover, error) {
	c := NewClient(cl)
	c.SetTimeout(stopTry)
	begun := time.Now()
	ds, err := c.Describe(ctx, mirror)
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, err
	}
	f := &failover{c: c, cl: cl, mirror: mirror, before: ds[0], stopped: map[string]bool{}}
	f.stop(ctx)
	f.await(ctx)
	out := &Failover{Took: time.Since(begun), Weaker: ds[0].Weaker}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	f.undiscover(rest, out)
	f.report(rest, out)
	return out, nil
}

const (
	// stopAll bounds the stop request for all topics together.
	stopAll = 10 * time.Second
	// stopTry bounds one for a topic alone: a partition in LOG_TRUNCATION is waited for by asking again.
	stopTry = time.Second
	// stopPause is the pause between looks at the states.
	stopPause = 50 * time.Millisecond
	// reportTimeout bounds what is read after the stops.
	reportTimeout = 30 * time.Second
	// side is how many requests are under way at once where each is about one topic or partition.
	side = 16
)

type failover struct {
	c      *Client
	cl     *kgo.Client
	mirror string
	before Described

	mu sync.Mutex
	// stopped are the topics whose stop was accepted.
	stopped map[string]bool
}

// topics are the mirror's, by name; aligned leaves out those that have a partition in LOG_TRUNCATION.
func (f *failover) topics(ps []Partition) (all, aligned []string) {
	waiting := map[string]bool{}
	for _, p := range ps {
		if !slices.Contains(all, p.Topic) {
			all = append(all, p.Topic)
		}
		if p.State == "LOG_TRUNCATION" {
			waiting[p.Topic] = true
		}
	}
	for _, t := range all {
		if !waiting[t] {
			aligned = append(aligned, t)
		}
	}
	return all, aligned
}

// stop asks for all topics together that can be stopped now, and where that is refused for each alone.
func (f *failover) stop(ctx context.Context) {
	_, aligned := f.topics(f.before.Partitions)
	if len(aligned) == 0 {
		return
	}
	f.c.SetTimeout(stopAll)
	rs, err := f.c.Stop(ctx, f.mirror, aligned, nil)
	f.c.SetTimeout(stopTry)
	f.accept(rs)
	if err != nil || rs.Error() != nil {
		f.stopEach(ctx, aligned)
	}
}

func (f *failover) accept(rs TopicResults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range rs.Succeeded() {
		f.stopped[t] = true
	}
}

func (f *failover) stopEach(ctx context.Context, topics []string) {
	each(topics, func(t string) {
		rs, _ := f.c.Stop(ctx, f.mirror, []string{t}, nil) // it is tried again, or reported
		f.accept(rs)
	})
}

// each runs fn for all items, a few side by side.
func each[T any](items []T, fn func(T)) {
	var wg sync.WaitGroup
	gate := make(chan struct{}, side)
	for _, x := range items {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			fn(x)
		})
	}
	wg.Wait()
}

// await waits until all partitions are STOPPED, and stops what could not be stopped before.
func (f *failover) await(ctx context.Context) {
	for {
		ds, err := f.c.DescribeWith(ctx, DescribeOptions{Mirrors: []string{f.mirror}, State: true})
		if err == nil && ds.Error() == nil && len(ds) == 1 {
			if !slices.ContainsFunc(ds[0].Partitions, func(p Partition) bool { return p.State != stopped }) {
				return
			}
			_, aligned := f.topics(ds[0].Partitions)
			f.mu.Lock()
			again := slices.DeleteFunc(aligned, func(t string) bool { return f.stopped[t] })
			f.mu.Unlock()
			f.stopEach(ctx, again)
		}
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			return
		}
	}
}

// undiscover keeps a source that comes back from adding topics to a mirror that was failed over.
func (f *failover) undiscover(ctx context.Context, out *Failover) {
	was, err := f.c.undiscover(ctx, f.mirror)
	if out.Include = was; err != nil {
		out.Warnings = append(out.Warnings, err)
	}
}

// report finds out what there is now.
func (f *failover) report(ctx context.Context, out *Failover) {
	f.c.SetTimeout(reportTimeout)
	ds, err := f.c.DescribeWith(ctx, DescribeOptions{Mirrors: []string{f.mirror}, State: true, Offsets: true, SourceClusterID: f.before.SourceClusterID})
	if err == nil {
		err = ds.Error()
	}
	if err == nil && len(ds) != 1 {
		err = failure(int16(UnknownClusterMirror), nil)
	}
	if err != nil {
		out.Warnings = append(out.Warnings, err)
		ds = DescribedMirrors{f.before}
	}
	type at struct {
		topic     string
		partition int32
	}
	ends := map[at]Partition{}
	for _, p := range f.before.Partitions {
		ends[at{p.Topic, p.Partition}] = p
	}
	adm := kadm.NewClient(f.cl)
	all, _ := f.topics(ds[0].Partitions)
	fenced, err := f.c.Fences(ctx, all...)
	if err != nil && !errors.Is(err, ErrNoFence) {
		out.Warnings = append(out.Warnings, err)
	}
	for _, t := range all {
		if fenced[t] {
			out.Fenced = append(out.Fenced, t)
		}
	}
	starts, errStarts := adm.ListStartOffsets(ctx, all...)
	topics, errTopics := adm.ListTopics(ctx, all...)
	if err := errors.Join(errStarts, errTopics); err != nil && len(all) > 0 {
		out.Warnings = append(out.Warnings, err)
	}
	for _, p := range ds[0].Partitions {
		x := FailoverPartition{Topic: p.Topic, Partition: p.Partition, State: p.State, Error: p.LastError, LastMirrored: p.LastMirrorOffset, SourceEnd: -1, Start: -1}
		if p.State != stopped {
			x.LastMirrored = p.DestinationOffset
		}
		// A stopped partition has left its source; what it saw last is still told, unless its leader has changed since.
		if b := ends[at{p.Topic, p.Partition}]; b.LastSourceOffset >= 0 {
			x.SourceEnd, x.SourceSeen = b.LastSourceOffset, b.LastSourceAge
		} else if p.LastSourceOffset >= 0 {
			x.SourceEnd, x.SourceSeen = p.LastSourceOffset, p.LastSourceAge
		}
		if o, ok := starts.Lookup(p.Topic, p.Partition); ok && o.Err == nil {
			x.Start = o.Offset
		}
		out.Partitions = append(out.Partitions, x)
	}
	slices.SortFunc(out.Partitions, func(a, b FailoverPartition) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition) - int(b.Partition)
	})
	indexes := make([]int, len(out.Partitions))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) {
		p := &out.Partitions[i]
		if when, ok, err := LastTimestamp(ctx, f.cl, p.Topic, topics[p.Topic].ID, p.Partition, p.LastMirrored); err == nil && ok {
			p.LastRecord = when
		}
	})
}
