package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type topicJSON struct {
	Topic             string            `json:"topic"`
	ID                string            `json:"id"`
	Internal          bool              `json:"internal"`
	PartitionCount    int               `json:"partition_count"`
	ReplicationFactor int               `json:"replication_factor"`
	Configured        *int              `json:"configured_replication_factor,omitempty"` // of an internal topic, if it is told
	Configs           map[string]string `json:"configs"`
	Partitions        []partitionJSON   `json:"partitions"`
}

// partitionJSON is a partition. ELR and LastKnownELR are null where the cluster doesn't tell them.
type partitionJSON struct {
	Partition    int32   `json:"partition"`
	Leader       int32   `json:"leader"`
	LeaderEpoch  int32   `json:"leader_epoch"`
	Replicas     []int32 `json:"replicas"`
	ISR          []int32 `json:"isr"`
	ELR          []int32 `json:"elr"`
	LastKnownELR []int32 `json:"last_known_elr"`
	Offline      []int32 `json:"offline"`
	Error        string  `json:"error,omitempty"`
}

// which says which partitions are shown; all of those that are set must hold.
type which struct {
	underReplicated, unavailable, underMinISR bool
}

func (w which) any() bool { return w.underReplicated || w.unavailable || w.underMinISR }

// shows tells whether a partition is one of them; minISR is the topic's min.insync.replicas.
func (w which) shows(p partitionJSON, minISR int) bool {
	return (!w.underReplicated || len(p.ISR) < len(p.Replicas)) && (!w.unavailable || p.Leader < 0) &&
		(!w.underMinISR || len(p.ISR) < min(minISR, len(p.Replicas)))
}

func (a *app) topicsDescribe() *cobra.Command {
	var w which
	c := &cobra.Command{
		Use: "describe [NAME…]", Short: "Show partitions, replicas and configs of topics",
		Long: `Shows topics and their partitions: the leader, the replicas in order of preference, those in sync (Isr), those that hold every
committed record without being in sync (Elr, KIP-966), the last known ones where none is left (LastKnownElr), and those whose
broker or disk is gone (Offline). A "-" stands for what the cluster doesn't tell; Apache Kafka before 3.7 has no Elr.`,
		Example: "  milena topics describe orders\n  milena topics describe --under-replicated",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				return a.describeTopics(ctx, adm, args, w)
			})
		},
	}
	c.Flags().BoolVar(&w.underReplicated, "under-replicated", false, "only partitions with fewer replicas in sync than they have")
	c.Flags().BoolVar(&w.unavailable, "unavailable", false, "only partitions without a leader")
	c.Flags().BoolVar(&w.underMinISR, "under-min-isr", false, "only partitions with fewer replicas in sync than min.insync.replicas, which take no writes with acks=all")
	return a.clientFlags(c)
}

func (a *app) describeTopics(ctx context.Context, adm *admin, names []string, w which) error {
	ts, err := adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return err
	}
	for _, t := range ts.Sorted() {
		if err := answer("topic "+t.Topic, t.Err, ""); err != nil {
			return err
		}
	}
	configs := map[string]map[string]string{}
	minISR := map[string]int{}
	if len(ts) > 0 {
		rs, err := adm.DescribeTopicConfigs(ctx, ts.Names()...)
		if err != nil {
			return err
		}
		for _, r := range rs {
			configs[r.Name], minISR[r.Name] = overrides(r), minInSync(r)
		}
	}
	factors, err := configuredFactors(ctx, adm, ts)
	if err != nil {
		return err
	}
	eligible, err := eligibleReplicas(ctx, adm, ts.Names())
	if err != nil {
		return err
	}
	out := []topicJSON{}
	for _, t := range ts.Sorted() {
		j := topicJSON{Topic: t.Topic, ID: kafkaID(t.ID), Internal: t.IsInternal, PartitionCount: len(t.Partitions), Configs: configs[t.Topic], Partitions: []partitionJSON{}}
		for _, p := range t.Partitions.Sorted() {
			pj := describePartition(p, eligible)
			j.ReplicationFactor = max(j.ReplicationFactor, len(p.Replicas))
			if w.shows(pj, minISR[t.Topic]) {
				j.Partitions = append(j.Partitions, pj)
			}
		}
		j.Configured = factors[t.Topic]
		if len(j.Partitions) > 0 || !w.any() {
			out = append(out, j)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"topics": out})
	}
	for _, t := range out {
		// As in Kafka's tool, partitions that were picked stand alone.
		if !w.any() {
			a.printf("Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n", t.Topic, t.ID, t.PartitionCount, t.ReplicationFactor, joinConfigs(t.Configs))
			if t.Configured != nil && t.ReplicationFactor < *t.Configured {
				a.printf("\tDegraded: %s has %d of %d replicas (%s)\n", t.Topic, t.ReplicationFactor, *t.Configured, internalFactor(t.Topic))
			}
		}
		for _, p := range t.Partitions {
			a.printf("\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s\tElr: %s\tLastKnownElr: %s\tOffline: %s\n", t.Topic, p.Partition, leaderText(p.Leader),
				joinInts(p.Replicas), joinInts(p.ISR), knownInts(p.ELR), knownInts(p.LastKnownELR), joinInts(p.Offline))
		}
	}
	return nil
}

func describePartition(p kadm.PartitionDetail, eligible map[topicPartition]eligibility) partitionJSON {
	e := eligible[topicPartition{p.Topic, p.Partition}]
	pj := partitionJSON{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: listed(p.Replicas), ISR: listed(p.ISR),
		ELR: e.elr, LastKnownELR: e.lastKnown, Offline: listed(p.OfflineReplicas)}
	// A partition without a leader is shown as one; any other error is said.
	if p.Err != nil && !errors.Is(p.Err, kerr.LeaderNotAvailable) {
		pj.Error = p.Err.Error()
	}
	return pj
}

// internalFactor is the broker config with the replication factor of a topic that is raised as brokers join; empty: it is no such topic.
func internalFactor(topic string) (key string) {
	switch topic {
	case "__consumer_offsets":
		return "offsets.topic.replication.factor"
	case "__mirror_state":
		return "mirror.state.topic.replication.factor"
	}
	return ""
}

// configuredFactors are the replication factors that the internal topics among ts shall have, as far as a broker tells.
func configuredFactors(ctx context.Context, adm *admin, ts kadm.TopicDetails) (map[string]*int, error) {
	out := map[string]*int{}
	internal := slices.DeleteFunc(ts.Names(), func(name string) bool { return internalFactor(name) == "" })
	if len(internal) == 0 {
		return out, nil
	}
	brokers, err := adm.ListBrokers(ctx)
	if err != nil || len(brokers) == 0 {
		return out, err
	}
	configs, err := adm.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	if err != nil {
		return nil, err
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			for _, name := range internal {
				if n, err := strconv.Atoi(c.MaybeValue()); c.Key == internalFactor(name) && err == nil {
					out[name] = &n
				}
			}
		}
	}
	return out, nil
}

// listed is never nil, so that JSON has a list.
func listed(xs []int32) []int32 { return append([]int32{}, xs...) }

// knownInts tells an unknown list from an empty one.
func knownInts(xs []int32) string {
	if xs == nil {
		return "-"
	}
	return joinInts(xs)
}

func leaderText(id int32) string {
	if id < 0 {
		return "none"
	}
	return fmt.Sprint(id)
}

// minInSync is the topic's min.insync.replicas, 1 if it isn't told.
func minInSync(r kadm.ResourceConfig) int {
	i := slices.IndexFunc(r.Configs, func(c kadm.Config) bool { return c.Key == "min.insync.replicas" })
	if i < 0 {
		return 1
	}
	n, err := strconv.Atoi(r.Configs[i].MaybeValue())
	if err != nil {
		return 1
	}
	return n
}

type topicPartition struct {
	topic     string
	partition int32
}

type eligibility struct{ elr, lastKnown []int32 }

// eligibleReplicas asks for eligible leader replicas, which Metadata doesn't carry. A cluster that doesn't know the
// request (Kafka before 3.7) tells none.
func eligibleReplicas(ctx context.Context, adm *admin, topics []string) (map[topicPartition]eligibility, error) {
	out := map[topicPartition]eligibility{}
	versions, err := adm.ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		if _, ok := v.KeyMaxVersion(int16(kmsg.DescribeTopicPartitions)); !ok || v.Err != nil {
			return out, nil
		}
	}
	slices.Sort(topics)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, t := range topics {
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = t
		req.Topics = append(req.Topics, rt)
	}
	for len(topics) > 0 {
		resp, err := req.RequestWith(ctx, adm.raw)
		if err != nil {
			return nil, err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if t.Topic != nil { // a partition with an error, such as one without a leader, has its lists all the same
					out[topicPartition{*t.Topic, p.Partition}] = eligibility{listed(p.EligibleLeaderReplicas), listed(p.LastKnownELR)}
				}
			}
		}
		if resp.NextCursor == nil {
			break
		}
		next := kmsg.NewDescribeTopicPartitionsRequestCursor()
		next.Topic, next.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		req.Cursor = &next
	}
	return out, nil
}
