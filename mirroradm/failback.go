package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/compare"
	"milena/internal/ids"
)

// FailbackOptions say how the old source is to copy back.
type FailbackOptions struct {
	// Reverse are the configs of the mirror at the old source: how it reaches this cluster.
	Reverse map[string]string
	// ReverseName is that mirror's name; empty: the name of the mirror that was failed over.
	ReverseName string
}

// FailbackPartition is what a failback does to a partition of the old source.
type FailbackPartition struct {
	TopicPartition
	// CutTo is where the old source's log will be cut, End where it ends now: equal if nothing is cut.
	CutTo, End int64
	// Records and Bytes are what would be cut of what clients can read; the records are set aside there.
	Records, Bytes int64
	// Copied is how many offsets come over from this cluster then.
	Copied int64
	// Refused says why the old source would not copy the partition; empty if it would.
	Refused string
}

// Failback is how an old source comes to copy the cluster that took over from it: what that will cut, and after Run what it did.
type Failback struct {
	Mirror string
	// Source is the old source's cluster id.
	Source string
	// Topics are those that are copied back; New of them are not at the old source and will be created there. LeftOut are topics of the
	// mirror that are not copied, with the reason.
	Topics, New []string
	LeftOut     map[string]string
	// Partitions are those of Topics that the old source has, sorted.
	Partitions []FailbackPartition
	// Fence says that the old source has fences: Run fences its topics first, so that nothing more is cut than was shown.
	Fence bool
	// Steps are those that are done.
	Steps []SwitchoverStep
	// Aside is what the old source has set aside in Run, as far as it could be asked.
	Aside []Cut

	o            FailbackOptions
	c, src       *Client
	source, dest *kgo.Client
	reverse      *reverse
	here         kadm.Metadata
}

// ReverseName is the name of the mirror at the old source.
func (f *Failback) ReverseName() string { return f.reverse.name }

// Cut is how many records and bytes are cut of all partitions.
func (f *Failback) Cut() (records, bytes int64) {
	for _, p := range f.Partitions {
		records, bytes = records+p.Records, bytes+p.Bytes
	}
	return records, bytes
}

// Refused are the partitions that would not be copied, as errors; nil if there is none.
func (f *Failback) Refused() error {
	var errs []error
	for _, p := range f.Partitions {
		if p.Refused != "" {
			errs = append(errs, fmt.Errorf("%s: %s", p, p.Refused))
		}
	}
	return errors.Join(errs...)
}

// PlanFailback finds out what the old source of a mirror would lose if it copied this cluster from now on, and changes nothing:
// destination is the cluster that holds the mirror, source its old source. The error says what is in the way.
func PlanFailback(ctx context.Context, source, destination *kgo.Client, mirror string, o FailbackOptions) (*Failback, error) {
	f := &Failback{Mirror: mirror, LeftOut: map[string]string{}, o: o, c: NewClient(destination), src: NewClient(source), source: source, dest: destination}
	d, err := f.c.describeAll(ctx, mirror)
	if err != nil {
		return nil, err
	}
	f.Source = d.SourceClusterID
	for _, step := range []func(context.Context, *Described) error{f.lookAround, f.chooseTopics} {
		if err := step(ctx, d); err != nil {
			return nil, err
		}
	}
	return f, f.measure(ctx)
}

// lookAround finds out who is who, and tries the way from the old source to here.
func (f *Failback) lookAround(ctx context.Context, d *Described) error {
	names, _ := d.byTopic()
	there, err := kadm.NewClient(f.source).BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("asking the old source: %w", err)
	}
	if there.Cluster != d.SourceClusterID {
		return fmt.Errorf("the cluster at the old source's address is %s, the mirror's source is %s", there.Cluster, d.SourceClusterID)
	}
	if _, err := f.src.List(ctx); err != nil {
		return fmt.Errorf("asking the old source for its mirrors: %w", err)
	}
	_, err = f.src.redirected(ctx)
	if f.Fence = err == nil; err != nil && !errors.Is(err, ErrNoFence) {
		return fmt.Errorf("asking the old source for fences: %w", err)
	}
	if f.here, err = kadm.NewClient(f.dest).Metadata(ctx, names...); err != nil {
		return err
	}
	f.reverse = &reverse{at: f.src, name: f.o.ReverseName, configs: maps.Clone(f.o.Reverse), from: f.here.Cluster}
	if f.reverse.name == "" {
		f.reverse.name = f.Mirror
	}
	if f.reverse.configs == nil {
		f.reverse.configs = map[string]string{}
	}
	if err := f.reverse.check(ctx); err != nil {
		return fmt.Errorf("the mirror back, %s: %w", f.reverse.name, err)
	}
	return nil
}

// chooseTopics takes the topics that are stopped here and not copied back yet.
func (f *Failback) chooseTopics(ctx context.Context, d *Described) error {
	others, back, err := f.reverse.actives(ctx)
	if err != nil {
		return err
	}
	names, parts := d.byTopic()
	theirs, err := kadm.NewClient(f.source).ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("topics of the old source: %w", err)
	}
	for _, t := range names {
		own := f.here.Topics[t]
		switch other, there := theirs[t]; {
		case back[t]:
			f.LeftOut[t] = "it is copied back already"
		case others[t] != "":
			f.LeftOut[t] = fmt.Sprintf("at the old source it is mirrored by %s: stop it there first", others[t])
		case !allAre(parts[t], stopped):
			f.LeftOut[t] = "it is not stopped here: milena mirrors failover or switchover comes first"
		case own.Err != nil:
			f.LeftOut[t] = fmt.Sprintf("it can't be read here: %v", own.Err)
		case !there || other.Err != nil:
			f.Topics, f.New = append(f.Topics, t), append(f.New, t)
		case other.ID != own.ID:
			f.LeftOut[t] = fmt.Sprintf("the old source has another topic of that name (id %s, here %s): delete it there first", ids.UUID(other.ID), ids.UUID(own.ID))
		case len(other.Partitions) > len(own.Partitions):
			f.LeftOut[t] = fmt.Sprintf("the old source has %d partitions of it, there are %d here", len(other.Partitions), len(own.Partitions))
		default:
			f.Topics = append(f.Topics, t)
			for _, p := range other.Partitions.Sorted() {
				f.Partitions = append(f.Partitions, FailbackPartition{TopicPartition: TopicPartition{t, p.Partition}})
			}
		}
	}
	if len(f.Topics) == 0 {
		return fmt.Errorf("there is nothing to fail back: %s", reasons(f.LeftOut))
	}
	return f.reverse.excluded(ctx, f.Topics)
}

// shared are the last mirror epochs that either cluster holds for partitions: the higher of both (spec D3).
func (f *Failback) shared(ctx context.Context) (map[TopicPartition]int32, error) {
	out := map[TopicPartition]int32{}
	for who, x := range map[string]struct {
		c    *Client
		from string
	}{"this cluster": {f.c, f.Source}, "the old source": {f.src, f.reverse.from}} {
		ds, err := x.c.DescribeWith(ctx, DescribeOptions{State: true, SourceClusterID: x.from})
		if err == nil {
			err = ds.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("last mirror epochs of %s: %w", who, err)
		}
		for _, d := range ds {
			for _, p := range d.Partitions {
				if p.LastMirrorOffset < 0 && p.LastMirrorEpoch < 0 {
					continue // no stop has stored one
				}
				tp := TopicPartition{p.Topic, p.Partition}
				if had, ok := out[tp]; !ok || p.LastMirrorEpoch > had {
					out[tp] = p.LastMirrorEpoch
				}
			}
		}
	}
	return out, nil
}

// measure finds out what is cut of each partition, and reads that.
func (f *Failback) measure(ctx context.Context) error {
	if len(f.Partitions) == 0 {
		return nil
	}
	shared, err := f.shared(ctx)
	if err != nil {
		return err
	}
	var topics []string
	for _, p := range f.Partitions {
		if !slices.Contains(topics, p.Topic) {
			topics = append(topics, p.Topic)
		}
	}
	ends, err := logEnds(ctx, f.source, topics)
	if err != nil {
		return fmt.Errorf("the old source: %w", err)
	}
	committed, err := committedEnds(ctx, f.source, topics)
	if err != nil {
		return fmt.Errorf("the old source: %w", err)
	}
	here, err := committedEnds(ctx, f.dest, topics)
	if err != nil {
		return err
	}
	starts, err := kadm.NewClient(f.source).ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("the old source: %w", err)
	}
	errs := make([]error, len(f.Partitions))
	indexes := make([]int, len(f.Partitions))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) {
		p := &f.Partitions[i]
		start, _ := starts.Lookup(p.Topic, p.Partition)
		m := measured{start: start.Offset, end: ends[p.TopicPartition], committed: committed[p.TopicPartition]}
		m.last, m.known = shared[p.TopicPartition]
		if errs[i] = f.measureOne(ctx, p, m); errs[i] == nil {
			p.Copied = max(here[p.TopicPartition]-p.CutTo, 0)
		}
	})
	return errors.Join(errs...)
}

// measured is what is known of a partition at the old source.
type measured struct {
	start, end, committed int64
	last                  int32 // the last mirror epoch, if known
	known                 bool
}

func (f *Failback) measureOne(ctx context.Context, p *FailbackPartition, m measured) error {
	p.CutTo, p.End = m.end, m.end
	consent := slices.Contains(strings.Split(strings.ReplaceAll(f.reverse.configs["mirror.truncate.unrelated.topics"], " ", ""), ","), p.Topic)
	switch {
	case m.start >= m.end:
		return nil
	case !m.known && !consent:
		p.CutTo = m.start
		p.Refused = "neither cluster knows up to where both logs are the same, so all of its records would be cut, which needs consent: " +
			"add the topic to mirror.truncate.unrelated.topics of the mirror back"
	case !m.known || m.last < 0:
		p.CutTo = m.start
	default:
		to, err := f.commonEnd(ctx, p.TopicPartition, m)
		if err != nil {
			return err
		}
		p.CutTo = to
	}
	if p.CutTo >= m.committed {
		return nil
	}
	var err error
	p.Records, p.Bytes, err = f.weigh(ctx, p.TopicPartition, max(p.CutTo, m.start), m.committed)
	return err
}

// commonEnd is where the old source's log parts from the one here: first by the last mirror epoch, then as its first fetches will find.
func (f *Failback) commonEnd(ctx context.Context, tp TopicPartition, m measured) (int64, error) {
	ask := func(cl *kgo.Client, epoch int32) (epochEnd, error) {
		got, err := epochEnds(ctx, cl, map[TopicPartition]int32{tp: epoch}, false)
		return got[tp], err
	}
	own, err := ask(f.source, m.last)
	if err != nil {
		return 0, fmt.Errorf("the old source: %w", err)
	}
	if own.end < 0 { // its epochs are all below: nothing is cut by the last mirror epoch
		if own, err = f.latest(ctx, tp); err != nil {
			return 0, err
		}
	}
	to := min(own.end, m.end)
	for own.epoch >= 0 && to > m.start {
		theirs, err := ask(f.dest, own.epoch)
		switch {
		case err != nil:
			return 0, err
		case theirs.end < 0:
			return m.start, nil
		case theirs.epoch == own.epoch:
			return max(min(to, theirs.end), m.start), nil
		}
		if own, err = ask(f.source, theirs.epoch); err != nil {
			return 0, fmt.Errorf("the old source: %w", err)
		}
		if to = min(to, theirs.end); own.end >= 0 {
			to = min(to, own.end)
		}
	}
	return max(to, m.start), nil
}

// latest is the last epoch of the old source's log, with its end.
func (f *Failback) latest(ctx context.Context, tp TopicPartition) (epochEnd, error) {
	ts, err := kadm.NewClient(f.source).ListTopics(ctx, tp.Topic)
	if err != nil {
		return epochEnd{}, err
	}
	got, err := epochEnds(ctx, f.source, map[TopicPartition]int32{tp: ts[tp.Topic].Partitions[tp.Partition].LeaderEpoch}, false)
	return got[tp], err
}

// weigh reads what is between two offsets at the old source.
func (f *Failback) weigh(ctx context.Context, tp TopicPartition, from, to int64) (records, bytes int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := &compare.ClusterLog{Client: f.source, Topic: tp.Topic, ID: f.here.Topics[tp.Topic].ID, Partition: tp.Partition}
	s := compare.NewStream(ctx, "old source", log, from, to)
	defer s.Close()
	for {
		b, err := s.Next()
		switch {
		case errors.Is(err, compare.ErrShrunk):
			return f.weigh(ctx, tp, s.Start, to) // its retention went on
		case err != nil || b == nil:
			return records, bytes, err
		}
		bytes += b.Len()
		if !b.IsControl() {
			records += int64(b.Count())
		}
	}
}

// Run fences the old source, if it has fences, looks again what is cut, and unless that is more than was planned makes the mirror back,
// starts it, and waits until it has caught up. done, if not nil, is told of each step when it is over.
func (f *Failback) Run(ctx context.Context, done func(SwitchoverStep)) error {
	steps := []step{{"fence", f.fence}, {"check", f.again}, {"start", f.start}, {"copy", f.copy}, {"release", f.release}}
	if !f.Fence {
		steps = steps[1:4]
	}
	return runSteps(ctx, steps, &f.Steps, done)
}

// old are the topics that the old source has.
func (f *Failback) old() []string {
	var out []string
	for _, t := range f.Topics {
		if !slices.Contains(f.New, t) {
			out = append(out, t)
		}
	}
	return out
}

func (f *Failback) fence(ctx context.Context) (string, error) {
	old := f.old()
	rs, err := f.src.Fence(ctx, old...)
	if failed := errors.Join(rs.Error(), err); failed != nil {
		return "", failed
	}
	return "the old source refuses writes to " + count(len(old), "topic"), nil
}

// again measures anew and refuses to cut more than was shown.
func (f *Failback) again(ctx context.Context) (string, error) {
	was := map[TopicPartition]FailbackPartition{}
	for _, p := range f.Partitions {
		was[p.TopicPartition] = p
	}
	if err := f.measure(ctx); err != nil {
		return "", err
	}
	if err := f.Refused(); err != nil {
		return "", err
	}
	for _, p := range f.Partitions {
		if w := was[p.TopicPartition]; p.Records > w.Records {
			return "", fmt.Errorf("%d records of %s would be cut now, %d were shown: look at them again", p.Records, p, w.Records)
		}
	}
	n, b := f.Cut()
	return fmt.Sprintf("%d records, %d bytes will be cut, as shown", n, b), nil
}

func (f *Failback) start(ctx context.Context) (string, error) {
	if err := f.reverse.create(ctx); err != nil {
		return "", fmt.Errorf("creating mirror %s at the old source: %w", f.reverse.name, err)
	}
	var topics []StartTopic
	for _, t := range f.Topics {
		d := f.here.Topics[t]
		topics = append(topics, StartTopic{Name: t, ID: d.ID, Partitions: int32(len(d.Partitions))})
	}
	if err := f.reverse.start(ctx, topics); err != nil {
		return "", fmt.Errorf("starting mirror %s at the old source: %w", f.reverse.name, err)
	}
	return fmt.Sprintf("mirror %s at the old source started with %s", f.reverse.name, count(len(topics), "topic")), nil
}

// copy waits until the old source is a copy, and asks what it has set aside.
func (f *Failback) copy(ctx context.Context) (string, error) {
	set := map[string]bool{}
	for _, t := range f.Topics {
		set[t] = true
	}
	if err := f.reverse.caughtUp(ctx, set); err != nil {
		return "", fmt.Errorf("at the old source, %w", err)
	}
	cuts, err := f.src.Cuts(ctx, CutFilter{Mirror: f.reverse.name, Topics: f.Topics})
	var records int64
	for _, c := range cuts {
		records += c.Records
	}
	f.Aside = cuts
	note := fmt.Sprintf("the old source has come to this cluster's end; %d records are set aside there for mirror %s", records, f.reverse.name)
	if err != nil {
		note += fmt.Sprintf(", and perhaps more: %v", err)
	}
	return note, nil
}

func (f *Failback) release(ctx context.Context) (string, error) {
	rs, err := f.src.Unfence(ctx, f.old()...)
	if failed := errors.Join(rs.Error(), err); failed != nil {
		return "", failed
	}
	return "the fence at the old source is lifted; its topics are read-only as copies", nil
}
