package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// SwitchoverOptions say what a planned switchover is to do.
type SwitchoverOptions struct {
	// Reverse are the configs of a mirror at the source that copies back from this cluster: how the source reaches it. nil: none is made.
	Reverse map[string]string
	// ReverseName is that mirror's name; empty: the name of the mirror that is switched over.
	ReverseName string
	// MaxLag is how many offsets a partition may be behind at the beginning: writes are refused for as long as it takes to catch up.
	MaxLag int64
	// Quiet is how long a source that has no fence is watched: if something is produced meanwhile the switchover ends there.
	Quiet time.Duration
	// DenyACL creates, on a source that has no fence, an ACL for each topic that denies everybody to write.
	DenyACL bool
	// Waiting, if not nil, is told what Run is waiting for, when that has lasted for some seconds and then now and again.
	Waiting func(what string)
}

// SwitchoverStep is a step of a switchover that is done.
type SwitchoverStep struct {
	// Name is fence (or quiet, on a source without fences), drain, groups, stop, reverse, or release.
	Name string
	Took time.Duration
	// Note is what there was to do, in words.
	Note string
}

// SwitchoverPartition is a partition that is switched over.
type SwitchoverPartition struct {
	TopicPartition
	// State is its state here when the plan was made.
	State string
	// Lag is how far it was behind then, -1 if that wasn't known.
	Lag int64
	// SourceEnd is where the source's log ended when nobody could write any more, -1 before that was seen. Mirrored is the offset after
	// the last record that was mirrored, -1 before the stop.
	SourceEnd, Mirrored int64
}

// Lost is how many offsets the source has that are not here; false if that isn't known.
func (p SwitchoverPartition) Lost() (int64, bool) {
	if p.SourceEnd < 0 || p.Mirrored < 0 {
		return 0, false
	}
	return max(p.SourceEnd-p.Mirrored, 0), true
}

// Switchover is a planned switchover of a mirror: what it will do, and after Run what it did. Its fields are to be read only.
type Switchover struct {
	Mirror string
	// Source is the source's cluster id.
	Source string
	// Fence says that the source has fences; without one nothing keeps its clients from writing, unless DenyACL does.
	Fence bool
	// SourceMirroring says that the source has Cluster Mirroring, so that it can copy back.
	SourceMirroring bool
	// Topics are those that are switched over. LeftOut are topics of the mirror that are not, with the reason.
	Topics  []string
	LeftOut map[string]string
	// Partitions are those of Topics, sorted.
	Partitions []SwitchoverPartition
	// FencedHere are topics that are fenced on this cluster: the fence is lifted with the stop.
	FencedHere []string
	// Denied are the topics for which Run asked the source for an ACL that denies everybody to write; it may have created some of them only.
	Denied []string
	// Groups is what came of the last comparison of committed offsets, nil before.
	Groups *GroupSync
	// Include is what mirror.topics.include was before the stop emptied it.
	Include string
	// Steps are those that are done.
	Steps []SwitchoverStep
	// Done says that all of it is done.
	Done bool

	o            SwitchoverOptions
	c, src       *Client
	source, dest *kgo.Client
	reverse      *reverse
	ids          map[string]kadm.TopicDetail
	// fencedThere are topics that are fenced at the source when the plan is made.
	fencedThere map[string]bool
	// switched are topics that an interrupted run has stopped already.
	switched map[string]bool
}

// ReverseName is the name of the mirror that the source is to have, empty if none is made.
func (s *Switchover) ReverseName() string {
	if s.reverse == nil {
		return ""
	}
	return s.reverse.name
}

// Lost is how many offsets of all partitions were lost; false if that isn't known of each.
func (s *Switchover) Lost() (int64, bool) {
	var sum int64
	for _, p := range s.Partitions {
		n, ok := p.Lost()
		if !ok {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// PlanSwitchover looks whether a mirror can be switched over, and changes nothing: destination is the cluster that holds it, source the
// one that it copies. The error says what is in the way. Topics that an interrupted switchover has stopped are taken up where it ended.
func PlanSwitchover(ctx context.Context, source, destination *kgo.Client, mirror string, o SwitchoverOptions) (*Switchover, error) {
	s := &Switchover{Mirror: mirror, LeftOut: map[string]string{}, o: o, c: NewClient(destination), src: NewClient(source), source: source, dest: destination, switched: map[string]bool{}}
	ds, err := s.c.describeAll(ctx, mirror)
	if err != nil {
		return nil, err
	}
	s.Source = ds.SourceClusterID
	for _, step := range []func(context.Context, *Described) error{s.lookAtSource, s.lookAtReverse, s.chooseTopics, s.lookHere} {
		if err := step(ctx, ds); err != nil {
			return nil, s.stillFenced(err)
		}
	}
	return s, nil
}

// stillFenced adds to an error which topics take no writes at the source meanwhile, since an earlier run has fenced them.
func (s *Switchover) stillFenced(err error) error {
	var on []string
	for _, t := range slices.Sorted(maps.Keys(s.fencedThere)) {
		if s.fencedThere[t] {
			on = append(on, t)
		}
	}
	if len(on) == 0 {
		return err
	}
	return fmt.Errorf("%w; fenced at the source still, so that clients can't write there: %s (milena mirrors unfence at the source ends that)", err, strings.Join(on, ", "))
}

// describeAll describes one mirror with the last mirror offsets of its stopped partitions.
func (c *Client) describeAll(ctx context.Context, mirror string) (*Described, error) {
	ms, err := c.List(ctx, mirror)
	if err != nil {
		return nil, err
	}
	if len(ms) != 1 {
		return nil, failure(int16(UnknownClusterMirror), nil)
	}
	ds, err := c.DescribeWith(ctx, DescribeOptions{Mirrors: []string{mirror}, State: true, Offsets: true, SourceClusterID: ms[0].SourceClusterID})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, err
	}
	if len(ds) != 1 {
		return nil, failure(int16(UnknownClusterMirror), nil)
	}
	if len(ds[0].Partitions) == 0 {
		return nil, errors.New("it has no topics")
	}
	return &ds[0], nil
}

func (d *Described) byTopic() (names []string, parts map[string][]Partition) {
	parts = map[string][]Partition{}
	for _, p := range d.Partitions {
		if parts[p.Topic] == nil {
			names = append(names, p.Topic)
		}
		parts[p.Topic] = append(parts[p.Topic], p)
	}
	slices.Sort(names)
	return names, parts
}

// lookAtSource finds out who the source is and what it can do.
func (s *Switchover) lookAtSource(ctx context.Context, d *Described) error {
	names, _ := d.byTopic()
	m, err := kadm.NewClient(s.source).Metadata(ctx, names...)
	if err != nil {
		return fmt.Errorf("asking the source: %w", err)
	}
	if m.Cluster != d.SourceClusterID {
		return fmt.Errorf("the cluster at the source's address is %s, the mirror's source is %s", m.Cluster, d.SourceClusterID)
	}
	s.ids = m.Topics
	s.fencedThere, err = s.src.Fences(ctx, names...)
	if s.Fence = err == nil; err != nil && !errors.Is(err, ErrNoFence) {
		return fmt.Errorf("asking the source for fences: %w", err)
	}
	_, err = s.src.List(ctx)
	if s.SourceMirroring = err == nil; err != nil && !errors.Is(err, ErrNoMirroring) {
		return fmt.Errorf("asking the source for its mirrors: %w", err)
	}
	if s.Fence && s.o.DenyACL {
		return errors.New("the source has fences: an ACL that denies writes is not needed")
	}
	return nil
}

// lookAtReverse tries the way back.
func (s *Switchover) lookAtReverse(ctx context.Context, _ *Described) error {
	if s.o.Reverse == nil {
		return nil
	}
	if !s.SourceMirroring {
		return fmt.Errorf("a mirror back can't be made at the source: %w", ErrNoMirroring)
	}
	here, err := kadm.NewClient(s.dest).BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	s.reverse = &reverse{at: s.src, name: s.o.ReverseName, configs: maps.Clone(s.o.Reverse), from: here.Cluster, waiting: s.o.Waiting}
	if s.reverse.name == "" {
		s.reverse.name = s.Mirror
	}
	if err := s.reverse.check(ctx); err != nil {
		return fmt.Errorf("the mirror back, %s: %w", s.reverse.name, err)
	}
	return nil
}

// chooseTopics takes the topics that are mirrored, and those that an interrupted switchover has stopped.
func (s *Switchover) chooseTopics(ctx context.Context, d *Described) error {
	names, parts := d.byTopic()
	elsewhere, back, err := s.mirrorsOfSource(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range names {
		switch theirs, ok := s.ids[t]; {
		case !ok || theirs.Err != nil:
			s.LeftOut[t] = "the source has no such topic any more"
			if !allAre(parts[t], stopped) {
				errs = append(errs, fmt.Errorf("topic %s is not on the source any more, and not stopped here: stop it first (milena mirrors stop)", t))
			}
		case elsewhere[t] != "":
			errs = append(errs, fmt.Errorf("topic %s is itself mirrored at the source, by mirror %s: switch that over first", t, elsewhere[t]))
		case allAre(parts[t], stopped):
			if why := s.stoppedBefore(ctx, t, parts[t], back[t]); why != "" {
				s.LeftOut[t] = why
			} else {
				s.take(t, parts[t])
				s.switched[t] = true
			}
		default:
			errs = append(errs, s.movable(t, parts[t], len(theirs.Partitions)))
			s.take(t, parts[t])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch {
	case len(s.Topics) == 0:
		return fmt.Errorf("there is nothing to switch over: %s", reasons(s.LeftOut))
	case len(s.open()) == 0 && s.reverse == nil:
		return fmt.Errorf("there is nothing left to do: topics %s are switched over already, and fenced at the source", strings.Join(s.Topics, ", "))
	case s.reverse != nil:
		return s.reverse.excluded(ctx, s.Topics)
	}
	return nil
}

func reasons(m map[string]string) string {
	var out []string
	for _, t := range slices.Sorted(maps.Keys(m)) {
		out = append(out, "topic "+t+": "+m[t])
	}
	return strings.Join(out, "; ")
}

func allAre(ps []Partition, state string) bool {
	return !slices.ContainsFunc(ps, func(p Partition) bool { return p.State != state })
}

func (s *Switchover) take(topic string, ps []Partition) {
	s.Topics = append(s.Topics, topic)
	for _, p := range ps {
		x := SwitchoverPartition{TopicPartition: TopicPartition{topic, p.Partition}, State: p.State, Lag: -1, SourceEnd: -1, Mirrored: -1}
		if lag, ok := p.Lag(); ok && p.State != stopped {
			x.Lag = lag
		}
		if p.State == stopped {
			x.Mirrored = p.LastMirrorOffset
		}
		s.Partitions = append(s.Partitions, x)
	}
}

// mirrorsOfSource are the mirrors at the source in which topics are active: in others than the one back, and in that.
func (s *Switchover) mirrorsOfSource(ctx context.Context) (others map[string]string, back map[string]bool, err error) {
	switch {
	case !s.SourceMirroring:
		return nil, nil, nil
	case s.reverse != nil:
		return s.reverse.actives(ctx)
	}
	return (&reverse{at: s.src}).actives(ctx)
}

// stoppedBefore says why a topic that is stopped is not part of this switchover; empty if an interrupted run has stopped it.
func (s *Switchover) stoppedBefore(ctx context.Context, topic string, ps []Partition, back bool) string {
	if back {
		return "" // it is mirrored back already
	}
	fenced, err := s.src.Fences(ctx, topic)
	switch {
	case errors.Is(err, ErrNoFence), err == nil && !fenced[topic]:
		return "it is stopped already, and the source takes writes"
	case err != nil:
		return fmt.Sprintf("it is stopped already, and the source can't be asked for its fence: %v", err)
	}
	ends, err := logEnds(ctx, s.source, []string{topic})
	if err != nil {
		return fmt.Sprintf("it is stopped already, and the source can't be asked for its end: %v", err)
	}
	for _, p := range ps {
		if end := ends[TopicPartition{topic, p.Partition}]; end != p.LastMirrorOffset {
			return fmt.Sprintf("it is stopped already, and partition %d ended at %d then, which is %d on the source now", p.Partition, p.LastMirrorOffset, end)
		}
	}
	return ""
}

// movable says what of a topic that is not stopped is in the way.
func (s *Switchover) movable(topic string, ps []Partition, theirs int) error {
	if theirs != len(ps) {
		return fmt.Errorf("topic %s has %d partitions on the source and %d here: the next refresh of the mirror brings them together", topic, theirs, len(ps))
	}
	var errs []error
	for _, p := range ps {
		lag, known := p.Lag()
		switch why := (error)(nil); {
		case p.State == stopped || p.State == "STOPPING": // of an interrupted run
		case p.State != mirroring:
			why = fmt.Errorf("%s-%d is %s", topic, p.Partition, p.State)
			if p.LastError != "" {
				why = fmt.Errorf("%w (%s)", why, p.LastError)
			}
			if p.State == "FAILED" {
				why = fmt.Errorf("%w; milena mirrors recover %s --topics %s tries it again at once", why, s.Mirror, regexp.QuoteMeta(topic))
			}
			errs = append(errs, why)
		case !known:
			errs = append(errs, fmt.Errorf("the lag of %s-%d is not known: the source has not answered of late", topic, p.Partition))
		case lag > s.o.MaxLag:
			errs = append(errs, fmt.Errorf("%s-%d is %d offsets behind, allowed at the beginning are %d", topic, p.Partition, lag, s.o.MaxLag))
		}
	}
	return errors.Join(errs...)
}

// lookHere finds fences on this cluster, which would keep a stopped topic from taking writes.
func (s *Switchover) lookHere(ctx context.Context, _ *Described) error {
	fenced, err := s.c.Fences(ctx, s.Topics...)
	if err != nil && !errors.Is(err, ErrNoFence) {
		return err
	}
	for _, t := range s.Topics {
		if fenced[t] {
			s.FencedHere = append(s.FencedHere, t)
		}
	}
	return nil
}

// topicSet are the topics that are switched over.
func (s *Switchover) topicSet() map[string]bool {
	out := map[string]bool{}
	for _, t := range s.Topics {
		out[t] = true
	}
	return out
}
