package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"milena/internal/mirrormsg"
)

// Listed is a mirror as List shows it.
type Listed struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string
	// ActiveTopics is how many topics are wished to be mirrored now, neither paused nor stopped.
	ActiveTopics int32
	// Topics are those wished to be in the states that were asked for: MIRRORING and PAUSED, if none was.
	Topics []string
}

// ListFilter restricts List. Each part that is empty restricts nothing.
type ListFilter struct {
	Mirrors          []string
	SourceClusterIDs []string
	// States are names of desired states: MIRRORING, PAUSED, STOPPED. They choose the topics of each mirror and never leave a
	// mirror out.
	States []string
}

// List lists the mirrors, all without names.
func (c *Client) List(ctx context.Context, names ...string) ([]Listed, error) {
	return c.ListWith(ctx, ListFilter{Mirrors: names})
}

// ListWith lists the mirrors that pass the filter.
func (c *Client) ListWith(ctx context.Context, f ListFilter) ([]Listed, error) {
	r, err := ask[*mirrormsg.ListClusterMirrorsResponse](ctx, c, &mirrormsg.ListClusterMirrorsRequest{
		MirrorNameFilter: f.Mirrors, SourceClusterIDFilter: f.SourceClusterIDs, DesiredMirrorStateFilter: f.States,
	})
	if err != nil {
		return nil, err
	}
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	var out []Listed
	for _, m := range r.Mirrors {
		out = append(out, Listed{m.MirrorName, m.SourceBootstrap, m.SourceClusterID, m.TopicCount, m.TopicNames})
	}
	return out, nil
}

// Described is a mirror with its partitions. Err is an *Error if this mirror could not be described.
type Described struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string
	// Operations are the ACL operations that the caller may do, a bit each as in DescribeCluster, if they were asked for.
	Operations int32
	Partitions []Partition
	// Weaker is in what topics are weaker here than on the source, as "TOPIC: WHAT", as the cluster last compared them: in
	// min.insync.replicas, unclean.leader.election.enable, or replication factor. Only where states were asked for.
	Weaker []string
	// GroupsGone are the groups that were deleted at the source and are kept here, as far as the cluster has seen.
	GroupsGone []string
	// Problems are what went wrong in the last runs of the mirror's periodic work, as "refresh: WHY" or "groups: WHY". Only where states were
	// asked for.
	Problems []string
	Err      error
}

// DescribedMirrors are mirrors in the order that they were answered in.
type DescribedMirrors []Described

// Error is the failures of all mirrors, nil if there is none. Each names its mirror.
func (ds DescribedMirrors) Error() error {
	var errs []error
	for _, d := range ds {
		if d.Err != nil {
			errs = append(errs, fmt.Errorf("mirror %s: %w", d.Name, d.Err))
		}
	}
	return errors.Join(errs...)
}

// Partition is the state and progress of a mirror partition.
type Partition struct {
	Topic     string
	Partition int32
	// State is the partition's state by name, UNKNOWN if none is known.
	State string
	// SourceOffset is the source's high watermark as last seen, -1 if unknown; SourceAge is how long ago, negative if never.
	SourceOffset int64
	SourceAge    time.Duration
	// DestinationOffset is the mirror's high watermark, -1 if unknown.
	DestinationOffset int64
	// RetryAttempt counts automatic retries of a FAILED partition; -1: it is not retried.
	RetryAttempt int16
	// LastError says why the partition is FAILED, or what went wrong last.
	LastError string
	// LastMirrorEpoch and LastMirrorOffset are what the last stop stored: the leader epoch of the last mirrored batch, and the
	// offset after it. -1 if no stop did, and unless DescribeOptions.SourceClusterID was given.
	LastMirrorEpoch  int32
	LastMirrorOffset int64
	// LastSourceOffset is the last SourceOffset that the partition's leader saw, though it may not ask the source any more; -1 if
	// it saw none since it leads. LastSourceAge is how long ago.
	LastSourceOffset int64
	LastSourceAge    time.Duration
}

// staleAfter is the age from which a source offset is not compared with any more.
const staleAfter = 11 * time.Second

// Lag is how many offsets the mirror is behind; false if that is not known.
func (p Partition) Lag() (int64, bool) {
	if p.SourceOffset < 0 || p.DestinationOffset < 0 || p.SourceAge < 0 || p.SourceAge > staleAfter {
		return 0, false
	}
	return max(p.SourceOffset-p.DestinationOffset, 0), true
}

// DescribeOptions choose what DescribeWith answers.
type DescribeOptions struct {
	// Mirrors are the mirrors; nil: all.
	Mirrors []string
	// Topics restrict the answer to these topics and partitions, all partitions of a topic where none is named; nil: all topics.
	Topics map[string][]int32
	// State and Offsets ask for what a partition is and how far it has come. What is not asked for is unknown in the answer.
	State, Offsets bool
	// Operations asks what the caller may do.
	Operations bool
	// SourceClusterID, if not empty, leaves out the mirrors of other sources, and asks for last mirror epochs and offsets. A
	// mirror for which one of them can't be told then has an error.
	SourceClusterID string
}

// Describe collects states and progress of mirrors, all without names.
func (c *Client) Describe(ctx context.Context, names ...string) (DescribedMirrors, error) {
	if len(names) == 0 {
		names = nil // null asks for all, an empty list for none
	}
	return c.DescribeWith(ctx, DescribeOptions{Mirrors: names, State: true, Offsets: true})
}

// DescribeWith collects what the options ask for. Many topics are asked for in several requests, so that no answer is huge.
func (c *Client) DescribeWith(ctx context.Context, o DescribeOptions) (DescribedMirrors, error) {
	if o.Topics == nil {
		if pages := c.pages(ctx, o); len(pages) > 1 {
			return c.describePages(ctx, o, pages)
		}
	}
	return c.describeOnce(ctx, o)
}

func (c *Client) describeOnce(ctx context.Context, o DescribeOptions) (DescribedMirrors, error) {
	req := &mirrormsg.DescribeClusterMirrorsRequest{
		MirrorNames: o.Mirrors, IncludeMirrorState: o.State, IncludeMirrorLags: o.Offsets, IncludeAuthorizedOperations: o.Operations, TimeoutMs: c.millis(),
	}
	if o.SourceClusterID != "" {
		req.ClusterID = &o.SourceClusterID
	}
	if o.Topics != nil {
		req.TopicPartitions = []mirrormsg.DescribeMirrorTopicFilter{}
		for _, t := range slices.Sorted(maps.Keys(o.Topics)) {
			req.TopicPartitions = append(req.TopicPartitions, mirrormsg.DescribeMirrorTopicFilter{TopicName: t, Partitions: o.Topics[t]})
		}
	}
	r, err := ask[*mirrormsg.DescribeClusterMirrorsResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	var out DescribedMirrors
	for _, m := range r.Mirrors {
		d := Described{Name: m.MirrorName, SourceBootstrap: deref(m.SourceBootstrap), SourceClusterID: deref(m.SourceClusterID), Operations: m.AuthorizedOperations,
			Weaker: m.Weaker, GroupsGone: m.GroupsGone, Problems: m.Problems, Err: failure(m.ErrorCode, m.ErrorMessage)}
		for _, t := range m.Topics {
			for i := range t.Partitions {
				d.Partitions = append(d.Partitions, described(t.TopicName, &t.Partitions[i]))
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func described(topic string, p *mirrormsg.DescribedMirrorPartition) Partition {
	return Partition{
		Topic: topic, Partition: p.PartitionIndex, State: p.StateValue, SourceOffset: p.SourceOffset, SourceAge: time.Duration(p.SourceOffsetAgeMs) * time.Millisecond,
		DestinationOffset: p.DestinationOffset, RetryAttempt: p.RetryAttempt, LastError: deref(p.ErrorMessage),
		LastMirrorEpoch: p.LastMirrorEpoch, LastMirrorOffset: p.LastMirrorOffset,
		LastSourceOffset: p.LastSourceOffset, LastSourceAge: time.Duration(p.LastSourceOffsetAgeMs) * time.Millisecond,
	}
}
