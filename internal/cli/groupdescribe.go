package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupSource are the requests that describe groups; *kadm.Client has them.
type groupSource interface {
	ListGroups(ctx context.Context, states ...string) (kadm.ListedGroups, error)
	Lag(ctx context.Context, groups ...string) (kadm.DescribedGroupLags, error)
	DescribeConsumerGroups(ctx context.Context, groups ...string) (kadm.DescribedConsumerGroups, error)
	FetchManyOffsets(ctx context.Context, groups ...string) kadm.FetchOffsetsResponses
	ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
}

// Types of groups as ListGroups tells them (KIP-848).
const (
	classicGroup  = "classic"
	consumerGroup = "consumer"
)

// describeGroups describes the groups that are named, all without names, sorted by name, whichever protocol their members speak
// (KIP-848). others are groups that no request here describes, with their types; failed are the named ones that could not be
// described.
func describeGroups(ctx context.Context, src groupSource, names []string) (out []groupJSON, others, failed []error) {
	listed, err := src.ListGroups(ctx)
	if err != nil {
		return nil, nil, []error{err}
	}
	all := len(names) == 0
	if all {
		names = listed.Groups()
	}
	names = slices.Clone(names)
	slices.Sort(names)
	var classic, consumer []string
	for _, g := range slices.Compact(names) {
		switch kind := listed[g].GroupType; kind {
		case "", classicGroup:
			classic = append(classic, g)
		case consumerGroup:
			consumer = append(consumer, g)
		default:
			others = append(others, fmt.Errorf("group %s is a %s group, which has no committed offsets to describe: use Kafka's own tools for it", g, kind))
		}
	}
	if !all {
		others, failed = nil, others
	}
	out, missing, errs := describeClassic(ctx, src, classic)
	failed = append(failed, errs...)
	// What is unknown there may be a group of the new protocol that the listing didn't have yet.
	for _, g := range append(consumer, slices.Sorted(maps.Keys(missing))...) {
		j, err := describeConsumer(ctx, src, g)
		if err != nil && missing[g] != nil {
			err = missing[g]
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, j)
	}
	slices.SortFunc(out, func(x, y groupJSON) int { return strings.Compare(x.Group, y.Group) })
	return out, others, failed
}

// describeClassic describes groups of the classic protocol; missing are those that the cluster doesn't know as such.
func describeClassic(ctx context.Context, src groupSource, names []string) (out []groupJSON, missing map[string]error, failed []error) {
	out, missing = []groupJSON{}, map[string]error{}
	if len(names) == 0 { // no names would be all groups
		return out, missing, nil
	}
	lags, err := src.Lag(ctx, names...)
	if err != nil {
		return out, missing, []error{err}
	}
	for _, l := range lags.Sorted() {
		g, err := describeGroup(l)
		switch {
		case err == nil:
			out = append(out, g)
		case errors.Is(err, kerr.GroupIDNotFound), l.State == "Dead":
			missing[l.Group] = err
		default:
			failed = append(failed, err)
		}
	}
	return out, missing, failed
}

// describeConsumer describes a group of the new protocol.
func describeConsumer(ctx context.Context, src groupSource, name string) (groupJSON, error) {
	described, err := src.DescribeConsumerGroups(ctx, name)
	if err != nil {
		return groupJSON{}, answer("group "+name, err, "")
	}
	d, ok := described[name]
	if !ok {
		return groupJSON{}, fmt.Errorf("group %s: the cluster gave no answer for it", name)
	}
	fetched := src.FetchManyOffsets(ctx, name)[name]
	if err := answer("group "+name, errors.Join(d.Err, fetched.Err), ""); err != nil {
		return groupJSON{}, err
	}
	owner := map[topicPartition]kadm.ConsumerGroupMember{}
	topics := map[string]bool{}
	for _, m := range d.Members {
		for _, t := range m.SubscribedTopics {
			topics[t] = true
		}
		for t, ps := range m.Assignment {
			topics[t] = true
			for p := range ps {
				owner[topicPartition{t, p}] = m
			}
		}
	}
	for t := range fetched.Fetched {
		topics[t] = true
	}
	g := groupJSON{Group: name, State: d.State, Protocol: d.AssignorName, Members: len(d.Members), Partitions: []lagJSON{},
		Coordinator: fmt.Sprintf("%s:%d (%d)", d.Coordinator.Host, d.Coordinator.Port, d.Coordinator.NodeID)}
	if len(topics) == 0 {
		return g, nil
	}
	ends, err := src.ListEndOffsets(ctx, slices.Sorted(maps.Keys(topics))...)
	var partly *kadm.ShardErrors
	if err != nil && !errors.As(err, &partly) { // a partition without a leader has an unknown end
		return groupJSON{}, err
	}
	unknown := func(t string, p int32) {
		if _, ok := ends.Lookup(t, p); !ok {
			if ends[t] == nil {
				ends[t] = map[int32]kadm.ListedOffset{}
			}
			ends[t][p] = kadm.ListedOffset{Topic: t, Partition: p, Err: kerr.LeaderNotAvailable}
		}
	}
	if partly != nil {
		fetched.Fetched.Each(func(o kadm.OffsetResponse) { unknown(o.Topic, o.Partition) })
		for tp := range owner {
			unknown(tp.topic, tp.partition)
		}
	}
	for t, ps := range ends {
		for p, end := range ps {
			if p < 0 { // the topic is gone
				continue
			}
			j := lagJSON{Topic: t, Partition: p}
			if end.Err == nil {
				j.LogEndOffset = &end.Offset
			}
			if c, ok := fetched.Fetched.Lookup(t, p); ok && c.Err == nil && c.At >= 0 {
				j.CurrentOffset = &c.At
				if end.Err == nil {
					lag := max(end.Offset-c.At, 0)
					j.Lag = &lag
				}
			}
			if m, ok := owner[topicPartition{t, p}]; ok {
				j.ConsumerID, j.Host, j.ClientID = m.MemberID, m.ClientHost, m.ClientID
			}
			g.Partitions = append(g.Partitions, j)
		}
	}
	slices.SortFunc(g.Partitions, func(x, y lagJSON) int {
		if x.Topic != y.Topic {
			return strings.Compare(x.Topic, y.Topic)
		}
		return int(x.Partition - y.Partition)
	})
	return g, nil
}

// groupDeleter are the requests that delete groups; *kadm.Client has them.
type groupDeleter interface {
	ListGroups(ctx context.Context, states ...string) (kadm.ListedGroups, error)
	DeleteGroups(ctx context.Context, groups ...string) (kadm.DeleteGroupResponses, error)
}

// listPatience is how long a listing of groups is asked for again while a coordinator loads or moves.
const listPatience = 10 * time.Second

// listBefore lists the groups; what it can't tell is missing.
func listBefore(ctx context.Context, adm groupDeleter) kadm.ListedGroups {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for {
		listed, err := adm.ListGroups(ctx)
		if err == nil || !retriable(err) {
			return listed
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return listed
		}
	}
}

// deleteGroups deletes groups one by one: a client that sends a request for several again because one could not be deleted yet is
// told that the others are unknown. A request whose answer was lost is sent again, too, so a group that was there before and is
// unknown to the delete is deleted.
func deleteGroups(ctx context.Context, adm groupDeleter, names []string) (deleted []string, failed []error) {
	deleted = []string{}
	names = slices.Clone(names)
	slices.Sort(names)
	before := listBefore(ctx, adm)
	for _, g := range slices.Compact(names) {
		rs, err := adm.DeleteGroups(ctx, g)
		if err == nil {
			r, ok := rs[g]
			if err = r.Err; !ok {
				err = errors.New("the cluster gave no answer for it")
			}
		}
		if _, was := before[g]; was && errors.Is(err, kerr.GroupIDNotFound) {
			err = nil
		}
		if err := answer("group "+g, err, ""); err != nil {
			failed = append(failed, err)
			continue
		}
		deleted = append(deleted, g)
	}
	return deleted, failed
}
