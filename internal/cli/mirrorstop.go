package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

// mirrorStop is what the command was asked.
type mirrorStop struct {
	a     *app
	force bool
}

func (a *app) mirrorsStop() *cobra.Command {
	var topics []string
	s := &mirrorStop{a: a}
	c := &cobra.Command{
		Use: "stop NAME --topics …", Short: "End the mirroring of topics and make them writable (failover)", Args: exactly("NAME"),
		Long: "Stops the topics that match. Nothing of the source is needed: it may be down. Names and patterns of mirror.topics.include that are\n" +
			"given leave it, also if they match no topic yet; a name that one of its patterns finds later is added to mirror.topics.exclude. A\n" +
			"start by name takes it out of there again.\n" +
			"A topic whose log is being aligned with the source (LOG_TRUNCATION) can't be stopped, except with --force.",
		RunE: func(cmd *cobra.Command, args []string) error {
			patterns := splitList(topics)
			if len(patterns) == 0 {
				return usagef("mirrors stop needs --topics")
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error { return s.run(ctx, m, args[0], patterns) })
		},
	}
	c.Flags().StringArrayVar(&topics, "topics", nil, "names and regular expressions of the mirror's topics, comma separated; may be repeated")
	c.Flags().BoolVar(&s.force, "force", false, "stop them also while their log is being aligned with the source (LOG_TRUNCATION): they take writes as they are")
	return a.clientFlags(c)
}

func (s *mirrorStop) run(ctx context.Context, m *mirroradm.Client, mirror string, patterns []string) error {
	names, without, err := matchingTopics(ctx, m, mirror, patterns)
	if err != nil {
		return err
	}
	exclude, found, err := undiscover(ctx, m, mirror, patterns, without)
	if err != nil {
		return err
	}
	if s.force && len(names) > 0 {
		if err := forceStop(ctx, m, mirror, names); err != nil {
			return ofMirror(mirror, err)
		}
	}
	rs, err := m.Stop(ctx, mirror, names, exclude)
	if err == nil {
		err = awaitStopped(ctx, m, mirror, names)
	}
	more := map[string]any{}
	if len(without) > 0 && err == nil {
		more["taken_out"] = without
	}
	if err := s.a.topicResultsWith(mirror, rs, err, "Stopped", more); err != nil {
		return err
	}
	for _, p := range without {
		if !s.a.json {
			s.a.printf("No topic of mirror %s matches %s; it is taken out of discovery.\n", mirror, p)
		}
	}
	if len(found) > 0 {
		s.a.notef("Topics that appear at the source and match mirror.topics.include (%s) are still started.\n", strings.Join(found, ","))
	}
	return nil
}

// undiscover takes names and patterns out of mirror.topics.include that are in it. exclude are the names that another of its patterns would
// still find; found are patterns that stay and may find what one of those that were given matches. It fails, and changes nothing, if one
// of those that match no topic is none by which one is to come: it is a slip of the pen then.
func undiscover(ctx context.Context, m *mirroradm.Client, mirror string, patterns, without []string) (exclude, found []string, err error) {
	cs, err := m.Configs(ctx, mirror)
	if err != nil {
		return nil, nil, ofMirror(mirror, err)
	}
	const key = "mirror.topics.include"
	var include, left []string
	for _, x := range cs {
		if x.Key == key && x.Value != nil {
			include = splitList([]string{*x.Value})
		}
	}
	for _, i := range include {
		if !slices.Contains(patterns, i) {
			left = append(left, i)
		}
	}
	for _, p := range without {
		later := isPlain(p) && slices.ContainsFunc(left, func(i string) bool {
			re, err := regexp.Compile("^(?:" + i + ")$")
			return err == nil && re.MatchString(p)
		})
		switch {
		case later:
			exclude = append(exclude, p)
		case !slices.Contains(include, p):
			return nil, nil, fmt.Errorf("mirror %s has no topic that matches %s, and none is to come by it: see milena mirrors describe %s, and %s in milena mirrors configs %s", mirror, p, mirror, key, mirror)
		}
	}
	if len(left) < len(include) {
		if err := m.AlterConfigs(ctx, mirror, map[string]string{key: strings.Join(left, ",")}); err != nil {
			return nil, nil, ofMirror(mirror, err)
		}
	}
	if slices.ContainsFunc(patterns, func(p string) bool { return !isPlain(p) && !slices.Contains(include, p) }) {
		found = slices.DeleteFunc(left, isPlain)
	}
	return exclude, found, nil
}

// forceStop has the controller stop topics in whatever state they are. An exclude pattern does so (spec 4.4), where a stop is refused
// for a log that is not aligned; it stays in the exclude list until the topic is started by its name.
func forceStop(ctx context.Context, m *mirroradm.Client, mirror string, topics []string) error {
	exclude := make([]string, len(topics))
	for i, t := range topics {
		exclude[i] = regexp.QuoteMeta(t)
	}
	_, err := m.Start(ctx, mirror, nil, nil, exclude)
	return err
}

// awaitStopped waits until every partition of the topics is STOPPED, so that the command's success means they take writes.
func awaitStopped(ctx context.Context, m *mirroradm.Client, mirror string, topics []string) error {
	for {
		ds, err := m.Describe(ctx, mirror)
		if err != nil {
			return err
		}
		var waiting string
		for _, d := range ds {
			for _, p := range d.Partitions {
				if slices.Contains(topics, p.Topic) && p.State != "STOPPED" {
					waiting = fmt.Sprintf("%s-%d is %s", p.Topic, p.Partition, p.State)
				}
			}
		}
		if waiting == "" {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not all partitions stopped in time: %s", waiting)
		}
	}
}
