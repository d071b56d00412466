package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FailoverPartition is what a failover made of a partition.
type FailoverPartition struct {
	Topic     string
	Partition int32
	// State is the partition's state at the end; STOPPED takes writes.
	State string
	// Error is why it is in that state, if there is a reason.
	Error string
	// LastMirrored is the offset after the last mirrored record, -1 if it isn't known: of a partition whose log is not known to hold only what
	// was mirrored it is what its last stop stored.
	LastMirrored int64
	// LastRecord is the timestamp of the last mirrored record, zero if it isn't known.
	LastRecord time.Time
	// SourceEnd is the last end of the source that was seen, -1 if none was, and SourceSeen how long before the failover.
	SourceEnd  int64
	SourceSeen time.Duration
	// Start is the first offset that is held, End the one after the last; -1 if it isn't known.
	Start, End int64
}

// LastOffset is the last mirrored offset; false if it isn't known, or there is none.
func (p FailoverPartition) LastOffset() (int64, bool) {
	if p.LastMirrored <= 0 || p.LastMirrored == p.Start {
		return 0, false
	}
	return p.LastMirrored - 1, true
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
	// Include is what mirror.topics.include was, if it was emptied, which keeps anything from being found and started again. It is empty too
	// if there was nothing to empty; that it failed is among Warnings.
	Include string
	// Refused are the topics that are not all STOPPED since the cluster refuses their stop, with its reason. Unanswered are those of which it
	// did not answer the stop in time: whether they will be stopped is open.
	Refused, Unanswered map[string]error
	// Controllerless says that no controller answered while the stops were waited for: without a majority of them nothing can be stopped.
	Controllerless bool
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
// with a partition whose log is being aligned with the source (LOG_TRUNCATION) can't be stopped; it is tried again until little is left
// of ctx's time, in which what there is then is read. The error says why nothing was done; a failover that is not complete is no error,
// see Failover.Done.
func StopAll(ctx context.Context, cl *kgo.Client, mirror string) (*Failover, error) {
	c := NewClient(cl)
	c.SetTimeout(stopTry)
	begun := time.Now()
	stops, cancel := stopTime(ctx, begun)
	defer cancel()
	if end, ok := stops.Deadline(); ok {
		c.SetTimeout(min(stopTry, end.Sub(begun)/2)) // a coordinator that is gone must not take all the time
	}
	ds, err := c.Describe(stops, mirror)
	c.SetTimeout(stopTry)
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("nothing was stopped: %w", err)
	}
	f := &failover{c: c, cl: cl, mirror: mirror, before: ds[0], stopped: map[string]bool{}, refused: map[string]error{}, unanswered: map[string]error{}}
	controllers := f.controllers(stops)
	f.stop(stops)
	f.await(stops)
	out := &Failover{Took: time.Since(begun), Weaker: ds[0].Weaker, Refused: f.refused, Unanswered: f.unanswered, Controllerless: len(f.unanswered) > 0 && !controllers()}
	rest, cancelRest := reportTime(ctx, begun)
	defer cancelRest()
	f.report(rest, out)
	return out, nil
}

// stopTime is ctx without the time that the report takes.
func stopTime(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(reportReserve, end.Sub(now)/3)))
}

// reportTime lasts no longer than ctx was to. If that was ended before, it is short.
func reportTime(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	d := reportTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		d = reportReserve
	}
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

const (
	// stopAll bounds the stop request for all topics together.
	stopAll = 10 * time.Second
	// stopTry bounds one for a topic alone: a partition in LOG_TRUNCATION is waited for by asking again.
	stopTry = time.Second
	// stopPause is the pause between looks at the states.
	stopPause = 50 * time.Millisecond
	// reportTimeout bounds what is read after the stops, and reportReserve is kept for it of the time that there is.
	reportTimeout = 30 * time.Second
	reportReserve = 5 * time.Second
	// side is how many requests are under way at once where each is about one topic or partition.
	side = 16
)

type failover struct {
	c      *Client
	cl     *kgo.Client
	mirror string
	before Described

	mu sync.Mutex
	// stopped are the topics whose stop was accepted; of others, why the last try was not.
	stopped             map[string]bool
	refused, unanswered map[string]error
}

// controllers asks something of the controllers; what it returns says whether they have answered yet.
func (f *failover) controllers(ctx context.Context) func() bool {
	answered := make(chan bool, 1)
	go func() { answered <- ControllersAnswer(ctx, f.cl) }()
	return func() bool {
		select {
		case ok := <-answered:
			return ok
		default:
			return false
		}
	}
}

// ControllersAnswer says whether the cluster's controllers answer before ctx ends; without a majority of them they don't, and nothing can
// be changed. A cluster that can't be asked for its controllers counts as one whose controllers answer.
func ControllersAnswer(ctx context.Context, cl *kgo.Client) bool {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = append(req.Topics, t)
	_, err := cl.Request(ctx, req)
	return err == nil || errors.Is(noMirroring(err), ErrNoMirroring)
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
	f.try(ctx, stopAll, aligned)
	f.c.SetTimeout(stopTry)
	f.stopEach(ctx, slices.DeleteFunc(aligned, func(t string) bool { return f.stopped[t] }))
}

// try asks for the stop of topics, and keeps what came of it.
func (f *failover) try(ctx context.Context, within time.Duration, topics []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*(within+perBroker)) // a second broker has its turn
	defer cancel()
	rs, err := f.c.Stop(ctx, f.mirror, topics, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range topics {
		why := err
		if r, ok := rs.On(t); ok {
			why = r.Err
		}
		delete(f.refused, t)
		delete(f.unanswered, t)
		switch {
		case why == nil:
			f.stopped[t] = true
		case Unanswered(why):
			f.unanswered[t] = why
		default:
			f.refused[t] = why
		}
	}
}

func (f *failover) stopEach(ctx context.Context, topics []string) {
	each(topics, func(t string) {
		if ctx.Err() == nil {
			f.try(ctx, stopTry, []string{t}) // it is tried again, or reported
		}
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
func (f *failover) undiscover(ctx context.Context, out *Failover) error {
	if out.Controllerless {
		return fmt.Errorf("mirror.topics.include of mirror %s was not emptied, since no controller answers", f.mirror)
	}
	var err error
	out.Include, err = f.c.undiscover(ctx, f.mirror)
	return err
}

// found is what there is at the end.
type found struct {
	ds     DescribedMirrors
	fenced map[string]bool
	starts kadm.ListedOffsets
	topics kadm.TopicDetails
}

// look finds out what there is now. What can't be told keeps nothing else from being told: all is asked side by side.
func (f *failover) look(ctx context.Context, out *Failover) *found {
	all, _ := f.topics(f.before.Partitions)
	adm := kadm.NewClient(f.cl)
	r := &found{}
	errs := make([]error, 5)
	if end, ok := ctx.Deadline(); ok {
		f.c.SetTimeout(max(time.Until(end)/2, stopPause)) // so that what some brokers can't tell doesn't keep the rest
	}
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = f.undiscover(ctx, out) })
	wg.Go(func() {
		var err error
		r.ds, err = f.c.DescribeWith(ctx, DescribeOptions{Mirrors: []string{f.mirror}, State: true, Offsets: true, SourceClusterID: f.before.SourceClusterID})
		if err == nil {
			err = r.ds.Error()
		}
		if err == nil && len(r.ds) != 1 {
			err = failure(int16(UnknownClusterMirror), nil)
		}
		if err != nil {
			errs[1] = fmt.Errorf("the states shown are those before the failover, since those now could not be read: %w", err)
			r.ds = DescribedMirrors{f.before}
		}
	})
	wg.Go(func() {
		var err error
		if r.fenced, err = f.c.Fences(ctx, all...); err != nil && !errors.Is(err, ErrNoFence) {
			errs[2] = fmt.Errorf("whether topics are fenced here is not known: %w", err)
		}
	})
	wg.Go(func() {
		var err error
		if r.starts, err = adm.ListStartOffsets(ctx, all...); err != nil && len(all) > 0 {
			errs[3] = fmt.Errorf("where logs begin is not known of all partitions: %w", err)
		}
	})
	wg.Go(func() {
		var err error
		if r.topics, err = adm.ListTopics(ctx, all...); err != nil && len(all) > 0 {
			errs[4] = fmt.Errorf("the times of the last records are not known, since the topics could not be looked up: %w", err)
		}
	})
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			out.Warnings = append(out.Warnings, err)
		}
	}
	return r
}

// mirroredEnd is the offset after the last mirrored record of a partition, -1 if that isn't known. What a log holds is all mirrored while
// it is aligned; before it may be a client's, or a stop's.
func mirroredEnd(p *Partition) int64 {
	switch p.State {
	case stopped, "LOG_TRUNCATION", "FAILED", "UNKNOWN":
		return p.LastMirrorOffset
	}
	return p.DestinationOffset
}

// report finds out what there is now, a part of the time being for the times of the last records.
func (f *failover) report(ctx context.Context, out *Failover) {
	looking := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		looking, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
		defer cancel()
	}
	r := f.look(looking, out)
	ds, starts, topics := r.ds, r.starts, r.topics
	all, _ := f.topics(ds[0].Partitions)
	for _, t := range all {
		if r.fenced[t] {
			out.Fenced = append(out.Fenced, t)
		}
	}
	type at struct {
		topic     string
		partition int32
	}
	ends := map[at]Partition{}
	for _, p := range f.before.Partitions {
		ends[at{p.Topic, p.Partition}] = p
	}
	for _, p := range ds[0].Partitions {
		x := FailoverPartition{Topic: p.Topic, Partition: p.Partition, State: p.State, Error: p.LastError, LastMirrored: mirroredEnd(&p), SourceEnd: -1, Start: -1, End: p.DestinationOffset}
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
