package mirroradm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const truncateKey = "mirror.truncate.unrelated.topics"

// UnrelatedPartition is a partition with records here of which nothing is known to come from a mirror's source.
type UnrelatedPartition struct {
	TopicPartition
	// Start and End are its log start and the end of what is committed. A mirror that may truncate the topic sets aside and cuts what of
	// it the source doesn't have.
	Start, End int64
}

// Unrelated finds what a mirror would refuse to cut, among the topics that are named: partitions with records on the cluster of dest that no
// mirror from the same source has stopped, and that are not mirrored now. Whether the source holds a point up to which both share their
// history, after a failover to it, is not asked: then less is cut. Sorted by topic and partition.
func Unrelated(ctx context.Context, dest *kgo.Client, mirror string, topics ...string) ([]UnrelatedPartition, error) {
	c := NewClient(dest)
	d, err := c.describeAll(ctx, mirror)
	if err != nil {
		return nil, err
	}
	related := map[TopicPartition]bool{}
	for _, p := range d.Partitions {
		if p.State != "FAILED" && p.State != stopped && p.State != "UNKNOWN" {
			related[TopicPartition{p.Topic, p.Partition}] = true
		}
	}
	stops, err := c.DescribeWith(ctx, DescribeOptions{SourceClusterID: d.SourceClusterID, State: true})
	if err == nil {
		err = stops.Error()
	}
	if err != nil {
		return nil, err
	}
	for _, m := range stops {
		for _, p := range m.Partitions {
			if p.LastMirrorOffset >= 0 {
				related[TopicPartition{p.Topic, p.Partition}] = true
			}
		}
	}
	return heldOf(ctx, kadm.NewClient(dest), topics, related)
}

// heldOf are the partitions of topics that hold records and are not among the related ones.
func heldOf(ctx context.Context, adm *kadm.Client, topics []string, related map[TopicPartition]bool) ([]UnrelatedPartition, error) {
	there, err := adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var exist []string
	for _, t := range topics {
		if there.Has(t) {
			exist = append(exist, t)
		}
	}
	if len(exist) == 0 {
		return nil, nil // no name would be all topics
	}
	starts, err := adm.ListStartOffsets(ctx, exist...)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, exist...)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(starts.Error(), ends.Error()); err != nil {
		return nil, fmt.Errorf("what the topics hold here is not known: %w", err)
	}
	var out []UnrelatedPartition
	ends.Each(func(o kadm.ListedOffset) {
		tp := TopicPartition{o.Topic, o.Partition}
		if from, ok := starts.Lookup(o.Topic, o.Partition); ok && o.Offset > from.Offset && !related[tp] {
			out = append(out, UnrelatedPartition{tp, from.Offset, o.Offset})
		}
	})
	slices.SortFunc(out, func(a, b UnrelatedPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// AllowTruncation adds topics to mirror.truncate.unrelated.topics: the mirror may then cut records of theirs that do not come from the source,
// after setting them aside (spec D3). It takes effect at the next start; partitions that are FAILED for such records need a Recover.
// It returns the topics that were not allowed already.
func (c *Client) AllowTruncation(ctx context.Context, mirror string, topics ...string) (added []string, err error) {
	all, err := c.truncatable(ctx, mirror)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if !slices.Contains(all, t) && !slices.Contains(added, t) {
			added = append(added, t)
		}
	}
	if len(added) == 0 {
		return nil, nil
	}
	return added, c.AlterConfigs(ctx, mirror, map[string]string{truncateKey: strings.Join(append(all, added...), ",")})
}

// ForbidTruncation takes topics off mirror.truncate.unrelated.topics.
func (c *Client) ForbidTruncation(ctx context.Context, mirror string, topics ...string) error {
	all, err := c.truncatable(ctx, mirror)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(all), func(t string) bool { return slices.Contains(topics, t) })
	if len(left) == len(all) {
		return nil
	}
	return c.AlterConfigs(ctx, mirror, map[string]string{truncateKey: strings.Join(left, ",")})
}

// truncatable are the topics in mirror.truncate.unrelated.topics.
func (c *Client) truncatable(ctx context.Context, mirror string) ([]string, error) {
	cs, err := c.Configs(ctx, mirror)
	if err != nil {
		return nil, err
	}
	for _, x := range cs {
		if x.Key == truncateKey && x.Value != nil && *x.Value != "" {
			return strings.Split(*x.Value, ","), nil
		}
	}
	return nil, nil
}
