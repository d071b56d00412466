package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/config"
)

// GroupSync is what came of a last comparison of committed offsets between two clusters.
type GroupSync struct {
	// Groups is how many groups have offsets in the topics on the source, Written how many offsets were written here.
	Groups, Written int
	// ActiveAtSource have members on the source still: what they commit from now on doesn't come over.
	ActiveAtSource []string
	// Active have members here, which commit for themselves: their offsets were left alone.
	Active []string
}

// groupSyncer takes committed offsets over from a source.
type groupSyncer struct {
	source, dest *kadm.Client
	in, out      config.Patterns
	topics       map[string]bool
	// ends are where the logs end on both sides: no offset above is committed.
	ends map[TopicPartition]int64
}

func newGroupSyncer(ctx context.Context, c *Client, source, dest *kgo.Client, mirror string) (*groupSyncer, error) {
	cs, err := c.Configs(ctx, mirror)
	if err != nil {
		return nil, err
	}
	g := &groupSyncer{source: kadm.NewClient(source), dest: kadm.NewClient(dest), topics: map[string]bool{}}
	for _, x := range cs {
		to := map[string]*config.Patterns{"mirror.groups.include": &g.in, "mirror.groups.exclude": &g.out}[x.Key]
		if to == nil || x.Value == nil {
			continue
		}
		if *to, err = config.ParsePatterns(*x.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Key, err)
		}
	}
	return g, nil
}

// run writes the offsets that differ; only raises those that are lower here, if raise is set.
func (g *groupSyncer) run(ctx context.Context, raise bool) (*GroupSync, error) {
	listed, err := g.source.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the groups of the source: %w", err)
	}
	var names []string
	out := &GroupSync{}
	for _, l := range listed.Sorted() {
		if (l.ProtocolType == "" || l.ProtocolType == "consumer") && g.in.Match(l.Group) && !g.out.Match(l.Group) {
			names = append(names, l.Group)
		}
	}
	if len(names) == 0 {
		return out, nil
	}
	theirs, ours := g.source.FetchManyOffsets(ctx, names...), g.dest.FetchManyOffsets(ctx, names...)
	var errs []error
	for _, n := range names {
		t, ok := theirs[n]
		if !ok || t.Err != nil {
			errs = append(errs, fmt.Errorf("offsets of group %s on the source: %w", n, errOr(t.Err)))
			continue
		}
		open, has := g.differ(t.Fetched, ours[n], raise)
		if !has {
			continue
		}
		out.Groups++
		if s := listed[n].State; s != "Empty" && s != "Dead" && s != "" {
			out.ActiveAtSource = append(out.ActiveAtSource, n)
		}
		if len(open) == 0 {
			continue
		}
		active, err := g.write(ctx, n, open)
		if active {
			out.Active = append(out.Active, n)
		} else {
			out.Written += len(open)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

func errOr(err error) error {
	if err == nil {
		return errors.New("no answer")
	}
	return err
}

// differ are the offsets to write, and whether the group has any in the topics.
func (g *groupSyncer) differ(theirs kadm.OffsetResponses, ours kadm.FetchOffsetsResponse, raise bool) (open []kadm.Offset, has bool) {
	theirs.Each(func(o kadm.OffsetResponse) {
		if o.Err != nil || o.At < 0 || !g.topics[o.Topic] {
			return
		}
		has = true
		want := o.Offset
		if end, ok := g.ends[TopicPartition{o.Topic, o.Partition}]; ok && want.At > end {
			want.At, want.LeaderEpoch = end, -1
		}
		have, ok := ours.Fetched.Lookup(o.Topic, o.Partition)
		if ok && have.Err == nil && (have.At == want.At || raise && have.At > want.At) {
			return
		}
		open = append(open, want)
	})
	return open, has
}

// write commits offsets of a group, unless it has members.
func (g *groupSyncer) write(ctx context.Context, group string, open []kadm.Offset) (active bool, err error) {
	os := kadm.Offsets{}
	for _, o := range open {
		os.Add(o)
	}
	rs, err := g.dest.CommitOffsets(ctx, group, os)
	if err == nil {
		err = rs.Error()
	}
	if err == nil {
		return false, nil
	}
	if ds, derr := g.dest.DescribeGroups(ctx, group); derr == nil && !slices.Contains([]string{"Empty", "Dead", ""}, ds[group].State) {
		return true, nil
	}
	return false, fmt.Errorf("offsets of group %s: %w", group, err)
}
