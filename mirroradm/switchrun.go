package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Run does what was planned; done, if not nil, is told of each step when it is over. It ends with the first step that fails, or when ctx
// does, and leaves everything as that step has left it: see Where. Running a new plan goes on from there.
func (s *Switchover) Run(ctx context.Context, done func(SwitchoverStep)) error {
	steps := []step{{"fence", s.fence}, {"drain", s.drain}, {"groups", s.groups}, {"stop", s.stop}}
	if !s.Fence {
		steps[0] = step{"quiet", s.quiet}
	}
	if s.reverse != nil {
		steps = append(steps, step{"reverse", s.mirrorBack})
		if s.Fence {
			steps = append(steps, step{"release", s.release})
		}
	}
	err := runSteps(ctx, steps, &s.Steps, done)
	s.Done = err == nil
	return err
}

// step is one of a procedure; run says in words what there was to do.
type step struct {
	name string
	run  func(context.Context) (string, error)
}

// runSteps runs steps until one fails, notes those that are done, and tells of each.
func runSteps(ctx context.Context, steps []step, out *[]SwitchoverStep, done func(SwitchoverStep)) error {
	for _, x := range steps {
		begun := time.Now()
		note, err := x.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		st := SwitchoverStep{Name: x.name, Took: time.Since(begun), Note: note}
		*out = append(*out, st)
		if done != nil {
			done(st)
		}
	}
	return nil
}

// open are the topics that are still to be stopped.
func (s *Switchover) open() []string {
	var out []string
	for _, t := range s.Topics {
		if !s.switched[t] {
			out = append(out, t)
		}
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fence has the source refuse writes. What is mirrored back already is read-only there.
func (s *Switchover) fence(ctx context.Context) (string, error) {
	open := s.open()
	rs, err := s.src.Fence(ctx, open...)
	if failed := rs.Error(); failed != nil {
		return "", failed
	}
	if err != nil {
		return "", err
	}
	return "the source refuses writes to " + count(len(open), "topic"), nil
}

// quiet makes as sure as it can that nobody writes to a source that has no fence.
func (s *Switchover) quiet(ctx context.Context) (string, error) {
	open := s.open()
	var bare []string
	if s.o.DenyACL && len(open) > 0 {
		s.Denied = open
		var err error
		if bare, err = denyWrites(ctx, s.source, open); err != nil {
			if errors.Is(err, errDenyUndone) {
				s.Denied = nil
			}
			return "", err
		}
	}
	before, err := logEnds(ctx, s.source, open)
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(s.o.Quiet):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	after, err := logEnds(ctx, s.source, open)
	if err != nil {
		return "", err
	}
	for tp, end := range after {
		if end != before[tp] {
			return "", fmt.Errorf("something is still being produced on the source: %s grew by %d offsets within %s; stop its producers first", tp, end-before[tp], s.o.Quiet)
		}
	}
	note := fmt.Sprintf("nothing was produced on the source for %s; it has no fence, and nothing keeps its clients from writing", s.o.Quiet)
	if s.o.DenyACL {
		note = fmt.Sprintf("ACLs on the source deny everybody to write to %s, and nothing was produced for %s; not bound by them are its super users and its brokers' own writes", count(len(open), "topic"), s.o.Quiet)
		if len(bare) > 0 {
			note += fmt.Sprintf("; %s had no ACL before: if the source allows everything without one, readers there need one now", strings.Join(bare, ", "))
		}
	}
	return note, nil
}

// drain waits until everything that the source has is here.
func (s *Switchover) drain(ctx context.Context) (string, error) {
	open := s.open()
	set := map[string]bool{}
	for _, t := range open {
		set[t] = true
	}
	ends, err := logEnds(ctx, s.source, s.Topics)
	if err != nil {
		return "", err
	}
	r := reverse{at: s.c, name: s.Mirror, waiting: s.o.Waiting}
	if err := r.until(ctx, set, func(p *Partition) string {
		end := ends[TopicPartition{p.Topic, p.Partition}]
		switch {
		case p.State == stopped || p.State == "STOPPING": // of an interrupted run; what it held is compared after the stop
			return ""
		case p.State != mirroring:
			return "is " + p.State
		case p.DestinationOffset < end:
			return fmt.Sprintf("has come to %d, the source ends at %d", p.DestinationOffset, end)
		}
		return ""
	}); err != nil {
		return "", err
	}
	var sum int64
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if s.switched[p.Topic] {
			p.SourceEnd = p.Mirrored // as it was found when the plan was made
			continue
		}
		p.SourceEnd = ends[p.TopicPartition]
		sum += max(p.Lag, 0)
	}
	return fmt.Sprintf("%s at the source's end, %d offsets came since the plan was made", count(len(s.Partitions), "partition"), sum), nil
}

// groups takes committed offsets over once more.
func (s *Switchover) groups(ctx context.Context) (string, error) {
	g, err := s.groupSyncer(ctx)
	if err != nil {
		return "", err
	}
	if s.Groups, err = g.run(ctx, false); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s with offsets, %d written", count(s.Groups.Groups, "group"), s.Groups.Written), nil
}

func (s *Switchover) groupSyncer(ctx context.Context) (*groupSyncer, error) {
	g, err := newGroupSyncer(ctx, s.c, s.source, s.dest, s.Mirror)
	if err != nil {
		return nil, err
	}
	g.ends = map[TopicPartition]int64{}
	for _, t := range s.open() {
		g.topics[t] = true
	}
	for _, p := range s.Partitions {
		g.ends[p.TopicPartition] = p.SourceEnd
	}
	return g, nil
}

// stop makes the topics writable here, and compares what was mirrored with what the source has.
func (s *Switchover) stop(ctx context.Context) (string, error) {
	open := s.open()
	g, err := s.groupSyncer(ctx)
	if err != nil {
		return "", err
	}
	if len(open) > 0 {
		rs, err := s.c.Stop(ctx, s.Mirror, open, nil)
		if failed := rs.Error(); failed != nil {
			return "", failed
		}
		if err != nil {
			return "", err
		}
	}
	r := reverse{at: s.c, name: s.Mirror, waiting: s.o.Waiting}
	if err := r.until(ctx, s.topicSet(), func(p *Partition) string {
		if p.State != stopped {
			return "is " + p.State
		}
		return ""
	}); err != nil {
		return "", err
	}
	if err := s.compare(ctx); err != nil {
		return "", err
	}
	// The brokers' own sync may have written an offset that it had read before the last one was committed.
	again, err := g.run(ctx, true)
	if err != nil {
		return "", err
	}
	s.Groups.Written += again.Written
	if len(s.FencedHere) > 0 {
		rs, err := s.c.Unfence(ctx, s.FencedHere...)
		if failed := errors.Join(rs.Error(), err); failed != nil {
			return "", fmt.Errorf("lifting the fence on this cluster: %w", failed)
		}
	}
	if s.Include, err = s.c.undiscover(ctx, s.Mirror); err != nil {
		return "", fmt.Errorf("the topics are stopped, but mirror.topics.include could not be emptied: %w", err)
	}
	lost, _ := s.Lost()
	return fmt.Sprintf("%s writable here, %d offsets lost", count(len(s.Topics), "topic"), lost), nil
}

// compare reads where the mirrored part of each partition ends and where the source does now.
func (s *Switchover) compare(ctx context.Context) error {
	d, err := s.c.describeAll(ctx, s.Mirror)
	if err != nil {
		return err
	}
	ends, err := logEnds(ctx, s.source, s.open())
	if err != nil {
		return fmt.Errorf("the topics are stopped; whether the source has records that are not here could not be found out: %w", err)
	}
	mirrored := map[TopicPartition]int64{}
	for _, p := range d.Partitions {
		mirrored[TopicPartition{p.Topic, p.Partition}] = p.LastMirrorOffset
	}
	var lost int64
	var worst string
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.Mirrored = mirrored[p.TopicPartition]; !s.switched[p.Topic] {
			p.SourceEnd = ends[p.TopicPartition]
		}
		if n, ok := p.Lost(); ok && n > 0 {
			lost += n
			worst = p.String()
		}
	}
	if lost > 0 {
		return fmt.Errorf("the source has %d offsets that are not here (%s among them): they were written after the mirror had come to its end", lost, worst)
	}
	return nil
}

// mirrorBack makes and starts the mirror at the source.
func (s *Switchover) mirrorBack(ctx context.Context) (string, error) {
	if err := s.reverse.create(ctx); err != nil {
		return "", fmt.Errorf("creating mirror %s at the source: %w", s.reverse.name, err)
	}
	if err := s.reverse.start(ctx, s.startTopics()); err != nil {
		return "", fmt.Errorf("starting mirror %s at the source: %w", s.reverse.name, err)
	}
	if err := s.reverse.await(ctx, s.topicSet()); err != nil {
		return "", fmt.Errorf("at the source, %w", err)
	}
	return fmt.Sprintf("mirror %s at the source copies %s of this cluster", s.reverse.name, count(len(s.Topics), "topic")), nil
}

func (s *Switchover) startTopics() []StartTopic {
	var out []StartTopic
	for _, t := range s.Topics {
		d := s.ids[t]
		out = append(out, StartTopic{Name: t, ID: d.ID, Partitions: int32(len(d.Partitions))})
	}
	return out
}

// release takes the fence off the source: the mirror back keeps its topics read-only.
func (s *Switchover) release(ctx context.Context) (string, error) {
	rs, err := s.src.Unfence(ctx, s.Topics...)
	if failed := errors.Join(rs.Error(), err); failed != nil {
		return "", failed
	}
	return "the fence at the source is lifted; its topics are read-only as copies", nil
}

// undiscover empties mirror.topics.include, so that the mirror finds no more topics, and returns what it was, if it did.
func (c *Client) undiscover(ctx context.Context, mirror string) (string, error) {
	const key = "mirror.topics.include"
	cs, err := c.Configs(ctx, mirror)
	if err != nil {
		return "", fmt.Errorf("%s of mirror %s was not emptied, since it can't be read: %w", key, mirror, err)
	}
	for _, x := range cs {
		if x.Key == key && x.Value != nil && *x.Value != "" {
			if err := c.AlterConfigs(ctx, mirror, map[string]string{key: ""}); err != nil {
				return "", fmt.Errorf("%s of mirror %s is %s, which was to be emptied: %w%s", key, mirror, *x.Value, err, openOutcome(err))
			}
			return *x.Value, nil
		}
	}
	return "", nil
}
