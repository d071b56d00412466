package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/internal/client"
	"milena/mirroradm"
)

// mirrorStart is what the command was asked.
type mirrorStart struct {
	a                   *app
	plain               []mirroradm.StartTopic
	patterns, exclude   []string
	truncate, confirmed bool
}

func (a *app) mirrorsStart() *cobra.Command {
	var topics []string
	s := &mirrorStart{a: a}
	c := &cobra.Command{
		Use: "start NAME --topics …", Short: "Start the mirroring of topics", Args: exactly("NAME"),
		Long: "A plain name is started now, or as soon as the source has it. A regular expression is stored; the topics of the\n" +
			"source that match are started as they are found.\n\n" +
			"A topic that holds records here that do not come from the source is not mirrored: its partitions are FAILED. With\n" +
			"--truncate-unrelated such records of the named topics are cut. It shows what they hold and asks (--yes doesn't), then adds them to\n" +
			"mirror.truncate.unrelated.topics. What is cut is set aside before (milena mirrors cut list).",
		Example: "  milena mirrors start dr --topics orders,payments.*\n  milena mirrors start dr --topics orders --truncate-unrelated",
		RunE: func(cmd *cobra.Command, args []string) error {
			names := splitList(topics)
			if len(names) == 0 {
				return usagef("mirrors start needs --topics")
			}
			s.exclude = splitList(s.exclude)
			s.plain, s.patterns = startTopics(names)
			switch {
			case s.truncate && len(s.patterns) > 0:
				return usagef("--truncate-unrelated needs the topics by their names: %s is a pattern", s.patterns[0])
			case s.truncate && a.json && !s.confirmed:
				return usagef("--json needs --yes: nothing is asked then")
			}
			return s.run(cmd, args[0])
		},
	}
	f := c.Flags()
	f.StringArrayVar(&topics, "topics", nil, "names and regular expressions, comma separated; may be repeated")
	f.StringArrayVar(&s.exclude, "exclude", nil, "regular expressions of topics not to mirror")
	f.BoolVar(&s.truncate, "truncate-unrelated", false, "cut records of the named topics here that do not come from the source, after setting them aside")
	f.BoolVar(&s.confirmed, "yes", false, "don't ask")
	return a.clientFlags(c)
}

// run asks before the command's time-out begins, since somebody may think about the answer.
func (s *mirrorStart) run(cmd *cobra.Command, mirror string) error {
	if s.truncate {
		if err := s.consent(cmd, mirror); err != nil {
			return err
		}
	}
	return s.a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
		var added []string
		if s.truncate {
			var err error
			if added, err = m.AllowTruncation(ctx, mirror, s.names()...); err != nil {
				return ofMirror(mirror, err)
			}
		}
		rs, err := s.start(ctx, m, mirror)
		err = s.withdraw(ctx, m, mirror, added, rs, err)
		if err := s.a.topicResults(mirror, rs, err, "Started"); err != nil {
			return err
		}
		if len(s.patterns) > 0 && !s.a.json {
			s.a.printf("Topics of the source that match %s are started as they are found.\n", strings.Join(s.patterns, ","))
		}
		return nil
	})
}

// withdraw takes a consent back that a start which was refused has not used: it must not stay for later. What was not answered may still
// be started, so the consent is left, and said.
func (s *mirrorStart) withdraw(ctx context.Context, m *mirroradm.Client, mirror string, added []string, rs mirroradm.TopicResults, err error) error {
	var unused []string
	for _, t := range added {
		if r, ok := rs.On(t); ok && r.Err != nil || !ok && err != nil {
			unused = append(unused, t)
		}
	}
	if len(unused) == 0 {
		return err
	}
	why := errors.Join(rs.Error(), err)
	undone := errors.New("the start was not answered")
	if !mirroradm.Unanswered(err) || err == nil {
		if undone = m.ForbidTruncation(ctx, mirror, unused...); undone == nil {
			return err
		}
	}
	return fmt.Errorf("%w; the consent to cut stays in mirror.truncate.unrelated.topics for %s (%w): milena mirrors configs %s --set mirror.truncate.unrelated.topics=… takes it back", why, strings.Join(unused, ", "), undone, mirror)
}

func (s *mirrorStart) names() []string {
	var out []string
	for _, t := range s.plain {
		out = append(out, t.Name)
	}
	return out
}

// consent shows what the topics hold that may be cut, and asks.
func (s *mirrorStart) consent(cmd *cobra.Command, mirror string) error {
	a := s.a
	cl, err := a.connect(cmd, client.OwnSoftware())
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.timeout)*time.Millisecond)
	defer cancel()
	held, err := mirroradm.Unrelated(ctx, cl, mirror, s.names()...)
	if err = a.noMirroring(err); err != nil {
		return ofMirror(mirror, err)
	}
	if len(held) == 0 || a.json {
		return nil
	}
	t := table{header: []string{"TOPIC", "PARTITION", "FROM", "UP-TO", "OFFSETS"}}
	var sum int64
	for _, p := range held {
		sum += p.End - p.Start
		t.add(p.Topic, p.Partition, p.Start, p.End, p.End-p.Start)
	}
	a.printf("%s", t.String())
	a.printf("What of these does not come from the source of mirror %s is set aside for mirror.cut.retention.ms, and cut.\n", mirror)
	if s.confirmed {
		return nil
	}
	return a.confirm(fmt.Sprintf("Cut up to %d records of %s here?", sum, strings.Join(topicsOf(held), ", ")))
}

func topicsOf(held []mirroradm.UnrelatedPartition) []string {
	var out []string
	for _, p := range held {
		if !slices.Contains(out, p.Topic) {
			out = append(out, p.Topic)
		}
	}
	return out
}

// start starts the topics. With consent those with FAILED partitions are taken up where they are, since they are started already.
func (s *mirrorStart) start(ctx context.Context, m *mirroradm.Client, mirror string) (mirroradm.TopicResults, error) {
	plain := s.plain
	var failed []string
	if s.truncate {
		var err error
		if failed, _, err = s.failed(ctx, m, mirror); err != nil {
			return nil, err
		}
		plain = slices.DeleteFunc(slices.Clone(plain), func(t mirroradm.StartTopic) bool { return slices.Contains(failed, t.Name) })
	}
	var rs mirroradm.TopicResults
	if len(plain)+len(s.patterns)+len(s.exclude) > 0 {
		var err error
		if rs, err = m.Start(ctx, mirror, plain, s.patterns, s.exclude); err != nil {
			return rs, err
		}
	}
	for _, t := range failed {
		rs = append(rs, mirroradm.TopicResult{Topic: t})
	}
	if len(failed) > 0 {
		return rs, s.recover(ctx, m, mirror)
	}
	return rs, nil
}

// failed are the named topics with partitions that are FAILED for good, and why one is.
func (s *mirrorStart) failed(ctx context.Context, m *mirroradm.Client, mirror string) (topics []string, why, err error) {
	ds, err := m.Describe(ctx, mirror)
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, nil, err
	}
	for _, d := range ds {
		for _, p := range d.Partitions {
			if p.State == "FAILED" && p.RetryAttempt < 0 && slices.Contains(s.names(), p.Topic) && !slices.Contains(topics, p.Topic) {
				topics = append(topics, p.Topic)
				why = fmt.Errorf("%s-%d is FAILED: %s", p.Topic, p.Partition, p.LastError)
			}
		}
	}
	return topics, why, nil
}

// recover takes up partitions that are FAILED from before the consent, until none is.
func (s *mirrorStart) recover(ctx context.Context, m *mirroradm.Client, mirror string) error {
	for {
		topics, why, err := s.failed(ctx, m, mirror)
		if err != nil || len(topics) == 0 {
			return err
		}
		rs, err := m.Recover(ctx, mirror, topics)
		if err = errors.Join(err, rs.Error()); err != nil && !errors.Is(err, mirroradm.InvalidClusterMirrorStates) { // it may have left FAILED meanwhile
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // a broker may learn of the consent a moment later
		case <-ctx.Done():
			return why
		}
	}
}

// startTopics tells names from patterns.
func startTopics(list []string) (plain []mirroradm.StartTopic, patterns []string) {
	for _, n := range list {
		if isPlain(n) {
			plain = append(plain, mirroradm.StartTopic{Name: n})
		} else {
			patterns = append(patterns, n)
		}
	}
	return plain, patterns
}

// isPlain says whether s is a topic name and not a pattern. A dot is taken as part of a name.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}
