package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"milena/internal/compare"
	"milena/internal/ids"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
)

// The audit compares, slowly, what this broker's mirror partitions hold with what the source holds, as milena mirrors verify does.
// It takes one partition after the other, the one first that was compared longest ago. It only ever says what it finds.

const (
	// auditStart is how long after a mirror begins to work its audit does, at most.
	auditStart = time.Minute
	// auditRetry is when a partition that could not be decided is due again, at most.
	auditRetry = 10 * time.Minute
	// auditConfirm is how long a difference has to last to be one: a cut may be under way, on either side.
	auditConfirm = 10 * time.Second
	// auditBytes is what the audit reads at once, on each side; a larger batch comes whole.
	auditBytes = 256 << 10
	// auditLacking bounds what is kept of a compacted log: keys that one side lacks.
	auditLacking = 100_000
)

// auditResult is what came of the last comparison of a partition.
type auditResult int

const (
	auditPending auditResult = iota // not compared yet by this leader
	auditEqual
	auditDifferent
	auditUndecided
)

// String is how the metrics name it.
func (r auditResult) String() string {
	return [...]string{"pending", "equal", "different", "undecided"}[r]
}

// audit is what is known of a partition's comparisons during one leadership.
type audit struct {
	mu     sync.Mutex
	result auditResult
	// decided is when the last comparison came to an end that decided, at first when the leadership began.
	decided time.Time
	// looked is when the last comparison ended, however, zero before the first. The next is due an interval after it, and after soon at
	// the latest if that isn't 0.
	looked time.Time
	soon   time.Duration
	// from is where a comparison that was interrupted goes on.
	from int64
	// said is the difference that was found last, empty if there was none.
	said string
}

// snapshot returns what the last comparison said, and when it was decided.
func (a *audit) snapshot() (r auditResult, decided time.Time, said string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.result, a.decided, a.said
}

// dueAt is when the next comparison is due at an interval, zero before the first.
func (a *audit) dueAt(interval time.Duration) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.looked.IsZero():
		return a.looked
	case a.soon > 0:
		interval = min(interval, a.soon)
	}
	return a.looked.Add(interval)
}

// cut notes that the log was cut: what comes from there on is new.
func (a *audit) cut(to int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.from = min(a.from, to)
}

// auditLoop compares the mirror's partitions that are led here, as long as its configs want that.
func (mi *mirror) auditLoop() {
	wait := func() time.Duration { return min(auditStart, max(mi.set().AuditInterval, leastGap)) }
	for mi.every(time.Now(), wait, nil) {
		for mi.ctx.Err() == nil {
			s := mi.set()
			if s.AuditInterval <= 0 || s.AuditRate <= 0 || mi.source.cl == nil {
				break
			}
			p := mi.auditNext(s.AuditInterval)
			if p == nil || time.Until(p.audit.dueAt(s.AuditInterval)) > 0 {
				break // others may begin to mirror meanwhile
			}
			mi.auditPartition(p)
		}
	}
}

// auditNext is the partition that is due first; nil if none is mirrored here.
func (mi *mirror) auditNext(interval time.Duration) *Partition {
	ps := mi.mgr.partitions(func(p *Partition) bool { return p.mirror == mi.name && p.State() == mirrormsg.Mirroring })
	if len(ps) == 0 {
		return nil
	}
	return slices.MinFunc(ps, func(a, b *Partition) int {
		return cmp.Or(a.audit.dueAt(interval).Compare(b.audit.dueAt(interval)), strings.Compare(a.tp.topic, b.tp.topic), cmp.Compare(a.tp.partition, b.tp.partition))
	})
}

// errAuditEnded says that the partition is not being mirrored any more, or not by this broker.
var errAuditEnded = errors.New("the partition is not being mirrored here any more")

// auditPartition compares one partition and notes what came of it.
func (mi *mirror) auditPartition(p *Partition) {
	ctx, cancel := context.WithCancel(mi.ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	res, err := mi.auditRange(ctx, p)
	if err == nil {
		err = mi.auditCompare(ctx, p, &res)
	}
	if ctx.Err() != nil || errors.Is(err, errAuditEnded) {
		p.audit.mu.Lock()
		defer p.audit.mu.Unlock()
		p.audit.keep(&res)
		p.audit.looked, p.audit.soon = time.Now(), refreshGap
		return
	}
	mi.auditNote(p, &res, err)
}

// auditNote says what a comparison found and when the next is due.
func (mi *mirror) auditNote(p *Partition, res *compare.Result, err error) {
	a := &p.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looked, a.soon = time.Now(), 0
	switch d := res.Difference; {
	case err != nil:
		if a.result != auditUndecided {
			p.log.Warn("the audit could not compare a partition with its source", "from", res.From, "to", res.To, "compared_to", res.Proven, "error", err)
		}
		a.result, a.soon = auditUndecided, auditRetry
		a.keep(res)
		return
	case d != nil:
		a.result, a.said = auditDifferent, fmt.Sprintf("the audit found a difference to the source at offset %d: %s (SHA-256 here %s, there %s)", d.Offset, d.What, d.Destination, d.Source)
		mi.mgr.metrics.auditDifferences.WithLabelValues(mi.name).Inc()
		p.log.Error("the audit found a difference to the source", "offset", d.Offset, "what", d.What, "source_sha256", d.Source, "destination_sha256", d.Destination)
	default:
		a.result, a.said = auditEqual, ""
		p.log.Debug("the audit found the partition equal to its source", "from", res.From, "to", res.To)
	}
	a.from, a.decided = 0, a.looked
}

// keep notes where to go on. In the midst of a compacted range nothing is proven yet.
func (a *audit) keep(res *compare.Result) {
	if !res.Compacted {
		a.from = max(a.from, res.Proven)
	}
}

// auditRange is what can be compared now: from where the last comparison was interrupted to where the shorter log ends.
func (mi *mirror) auditRange(ctx context.Context, p *Partition) (compare.Result, error) {
	p.audit.mu.Lock()
	from := p.audit.from
	p.audit.mu.Unlock()
	res := compare.Result{Range: compare.Range{Topic: p.tp.topic, Partition: p.tp.partition, From: from}, Proven: from}
	if err := mi.source.Verify(ctx); err != nil {
		return res, err
	}
	leader, ok := mi.source.Leader(p.tp.topic, p.tp.partition)
	if !ok {
		return res, errors.New("the source's leader is not known")
	}
	if id := leader.TopicID; !id.IsZero() && id != p.key.TopicID {
		return res, errRecreated(id, p.key.TopicID)
	}
	compacts, err := mi.auditCompacts(ctx, p)
	if err != nil {
		return res, err
	}
	src := mi.sourceLog(p, leader.TopicID)
	start, err := src.Start(ctx)
	if err != nil {
		return res, fmt.Errorf("asking the source for its log start: %w", err)
	}
	here := localLog{p}
	end, err := here.End(ctx)
	if err != nil {
		return res, err
	}
	// The source's comes later: what we have, it had.
	there, err := src.End(ctx)
	if err != nil {
		return res, fmt.Errorf("asking the source for its log end: %w", err)
	}
	if res.SourceID, res.DestinationID, res.Compacted = leader.TopicID, p.key.TopicID, compacts; compacts {
		from = 0
	}
	res.From = max(from, start, p.rep.LogStartOffset())
	res.To = max(min(end, there), res.From)
	res.Proven = res.From
	return res, nil
}

// auditCompacts says whether either side may compact the topic.
func (mi *mirror) auditCompacts(ctx context.Context, p *Partition) (bool, error) {
	if log := p.rep.Log(); log != nil && log.Config().Compact {
		return true, nil
	}
	rs, err := mi.source.link.DescribeTopicConfigs(ctx, p.tp.topic)
	if err != nil {
		return false, fmt.Errorf("asking the source for the configs of %s: %w", p.tp.topic, err)
	}
	for _, r := range rs {
		if r.Err != nil {
			return false, fmt.Errorf("configs of %s on the source: %w", p.tp.topic, r.Err)
		}
		for _, c := range r.Configs {
			if c.Key == "cleanup.policy" && strings.Contains(c.MaybeValue(), "compact") {
				return true, nil
			}
		}
	}
	return false, nil
}

// auditCompare compares a range. A difference has to be there twice, with a pause between: a cut on either side looks like one.
func (mi *mirror) auditCompare(ctx context.Context, p *Partition, res *compare.Result) error {
	o := compare.Options{MaxLacking: auditLacking, Left: func(b record.Batch) bool { return mi.set().Skip[skipKey(p.tp, b.BaseOffset())] }}
	run := func(from, to int64) {
		compare.Run(ctx, res, from, to, mi.sourceLog(p, ids.UUID(res.SourceID)), localLog{p}, o)
	}
	for from := res.From; ; from = res.Proven {
		run(from, res.To)
		found := res.Difference
		if res.Err != nil || found == nil {
			return res.Err
		}
		if !mi.pause(min(auditConfirm, mi.set().AuditInterval)) {
			return ctx.Err()
		}
		again, err := mi.auditRange(ctx, p)
		if err != nil {
			res.Difference = nil
			return err
		}
		*res = compare.Result{Range: again.Range, Proven: res.Proven}
		if from, to := found.Offset, found.Offset+1; !res.Compacted {
			if to > res.To || from < res.From {
				return nil // cut, or removed by retention: the rest is for the next time
			}
			run(from, to)
		} else {
			run(res.From, res.To)
		}
		if res.Err != nil || res.Compacted && res.Difference == nil || res.Difference != nil && *res.Difference == *found {
			return res.Err
		}
		res.Difference = nil
	}
}

// sourceLog is the source's side. Its reads are metered by mirror.audit.bytes.per.second.
func (mi *mirror) sourceLog(p *Partition, id ids.UUID) *compare.ClusterLog {
	size := int32(min(auditBytes, max(mi.set().AuditRate, 1)))
	return &compare.ClusterLog{Client: mi.source.cl, Topic: p.tp.topic, ID: id, Partition: p.tp.partition, MaxBytes: size, Patience: mi.set().Client.RequestTimeout,
		Metered: func(ctx context.Context, bytes int) error {
			mi.mgr.metrics.auditBytes.WithLabelValues(mi.name).Add(float64(bytes))
			mi.mgr.tasks.Wait(ctx, time.Duration(float64(bytes)/float64(max(mi.set().AuditRate, 1))*float64(time.Second)), nil)
			return ctx.Err()
		}}
}

// localLog is our side: what is committed of a partition while it is being mirrored here.
type localLog struct{ p *Partition }

// End implements compare.Log.
func (l localLog) End(context.Context) (int64, error) {
	if l.p.ctx.Err() != nil || l.p.State() != mirrormsg.Mirroring || l.p.rep.Log() == nil {
		return 0, errAuditEnded
	}
	return l.p.rep.HighWatermark(), nil
}

// Read implements compare.Log.
func (l localLog) Read(ctx context.Context, at int64) ([]record.Batch, error) {
	hw, err := l.End(ctx)
	if err != nil || at >= hw {
		return nil, err
	}
	log := l.p.rep.Log()
	if start := log.StartOffset(); start > at {
		return nil, &compare.ShrunkError{Start: start}
	}
	info, err := log.Read(at, auditBytes, hw, true)
	defer info.Release()
	switch {
	case errors.Is(err, partlog.ErrOffsetOutOfRange) && log.StartOffset() > at:
		return nil, &compare.ShrunkError{Start: log.StartOffset()}
	case err != nil:
		return nil, err
	}
	var out []record.Batch
	for _, s := range info.Spans {
		buf, err := s.Bytes()
		if err != nil {
			return nil, err
		}
		for b, err := range record.Batches(buf) {
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
	}
	return out, nil
}
