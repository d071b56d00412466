package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (a *app) topicsCommand() *cobra.Command {
	return group("topics", "Create, list, describe, alter and delete topics",
		a.topicsCreate(), a.topicsList(), a.topicsDescribe(), a.topicsAlter(), a.topicsDelete())
}

func (a *app) topicsCreate() *cobra.Command {
	var partitions int32
	var factor int16
	var configs []string
	var ifNotExists bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: exactly("NAME"),
		Example: "  milena topics create orders --partitions 12 --config retention.ms=-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			kv, err := keyValues("config", configs)
			if err != nil {
				return err
			}
			values := map[string]*string{}
			for k, v := range kv {
				values[k] = kadm.StringPtr(v)
			}
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				rs, err := adm.CreateTopics(ctx, partitions, factor, values, args[0])
				if err != nil {
					return err
				}
				for _, r := range rs.Sorted() {
					if ifNotExists && isCode(r.Err, "TOPIC_ALREADY_EXISTS") {
						a.notef("Topic %s exists already.\n", r.Topic)
						continue
					}
					if err := answer("topic "+r.Topic, r.Err, r.ErrMessage); err != nil {
						return err
					}
					if a.json {
						return a.printJSON(map[string]any{"topic": r.Topic, "id": kafkaID(r.ID), "partitions": r.NumPartitions, "replication_factor": r.ReplicationFactor})
					}
					a.printf("Created topic %s.\n", r.Topic)
				}
				return nil
			})
		},
	}
	c.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions; -1 takes the cluster's num.partitions")
	c.Flags().Int16Var(&factor, "replication-factor", -1, "replicas of each partition; -1 takes the cluster's default.replication.factor")
	c.Flags().StringArrayVar(&configs, "config", nil, "a topic config, `KEY=VALUE`; may be repeated")
	c.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "succeed if the topic exists already")
	return a.clientFlags(c)
}

func (a *app) topicsList() *cobra.Command {
	var excludeInternal bool
	c := &cobra.Command{
		Use: "list", Short: "List topics", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				ts, err := adm.ListTopicsWithInternal(ctx)
				if err != nil {
					return err
				}
				names := []string{}
				for _, t := range ts.Sorted() {
					if t.Err == nil && (!t.IsInternal || !excludeInternal) {
						names = append(names, t.Topic)
					}
				}
				if a.json {
					return a.printJSON(map[string]any{"topics": names})
				}
				for _, n := range names {
					a.printf("%s\n", n)
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&excludeInternal, "exclude-internal", false, "leave internal topics out")
	return a.clientFlags(c)
}

type topicJSON struct {
	Topic             string            `json:"topic"`
	ID                string            `json:"id"`
	Internal          bool              `json:"internal"`
	PartitionCount    int               `json:"partition_count"`
	ReplicationFactor int               `json:"replication_factor"`
	Configs           map[string]string `json:"configs"`
	Partitions        []partitionJSON   `json:"partitions"`
}

type partitionJSON struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Error       string  `json:"error,omitempty"`
}

func (a *app) topicsDescribe() *cobra.Command {
	c := &cobra.Command{
		Use: "describe [NAME…]", Short: "Show partitions, replicas and configs of topics",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				return a.describeTopics(ctx, adm, args)
			})
		},
	}
	return a.clientFlags(c)
}

func (a *app) describeTopics(ctx context.Context, adm *admin, names []string) error {
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
	if len(ts) > 0 {
		rs, err := adm.DescribeTopicConfigs(ctx, ts.Names()...)
		if err != nil {
			return err
		}
		for _, r := range rs {
			configs[r.Name] = overrides(r)
		}
	}
	out := []topicJSON{}
	for _, t := range ts.Sorted() {
		j := topicJSON{Topic: t.Topic, ID: kafkaID(t.ID), Internal: t.IsInternal, PartitionCount: len(t.Partitions), Configs: configs[t.Topic], Partitions: []partitionJSON{}}
		for _, p := range t.Partitions.Sorted() {
			pj := partitionJSON{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR}
			if p.Err != nil {
				pj.Error = p.Err.Error()
			}
			j.ReplicationFactor = max(j.ReplicationFactor, len(p.Replicas))
			j.Partitions = append(j.Partitions, pj)
		}
		out = append(out, j)
	}
	if a.json {
		return a.printJSON(map[string]any{"topics": out})
	}
	for _, t := range out {
		a.printf("Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n", t.Topic, t.ID, t.PartitionCount, t.ReplicationFactor, joinConfigs(t.Configs))
		for _, p := range t.Partitions {
			a.printf("\tTopic: %s\tPartition: %d\tLeader: %d\tReplicas: %s\tIsr: %s\n", t.Topic, p.Partition, p.Leader, joinInts(p.Replicas), joinInts(p.ISR))
		}
	}
	return nil
}

// overrides are the configs set on the resource itself.
func overrides(r kadm.ResourceConfig) map[string]string {
	out := map[string]string{}
	for _, c := range r.Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			out[c.Key] = c.MaybeValue()
		}
	}
	return out
}

func joinConfigs(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

func joinInts(xs []int32) string {
	parts := make([]string, len(xs))
	for i, x := range xs {
		parts[i] = fmt.Sprint(x)
	}
	return strings.Join(parts, ",")
}

func (a *app) topicsAlter() *cobra.Command {
	var partitions int
	c := &cobra.Command{
		Use: "alter NAME --partitions N", Short: "Raise the number of partitions", Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if partitions <= 0 {
				return usagef("topics alter needs --partitions N; topic configs are changed by milena configs alter")
			}
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				rs, err := adm.UpdatePartitions(ctx, partitions, args[0])
				if err != nil {
					return err
				}
				for _, r := range rs.Sorted() {
					if err := answer("topic "+r.Topic, r.Err, r.ErrMessage); err != nil {
						return err
					}
				}
				if a.json {
					return a.printJSON(map[string]any{"topic": args[0], "partitions": partitions})
				}
				a.printf("Topic %s has %d partitions.\n", args[0], partitions)
				return nil
			})
		},
	}
	c.Flags().IntVar(&partitions, "partitions", 0, "the new number of partitions")
	return a.clientFlags(c)
}

func (a *app) topicsDelete() *cobra.Command {
	var ifExists bool
	c := &cobra.Command{
		Use: "delete NAME…", Short: "Delete topics with all their records",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("topics delete needs NAME: see milena topics delete --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				rs, err := adm.DeleteTopics(ctx, args...)
				if err != nil {
					return err
				}
				deleted, failed := []string{}, []error{}
				for _, r := range rs.Sorted() {
					if ifExists && isCode(r.Err, "UNKNOWN_TOPIC_OR_PARTITION") {
						continue
					}
					if err := answer("topic "+r.Topic, r.Err, r.ErrMessage); err != nil {
						failed = append(failed, err)
						continue
					}
					deleted = append(deleted, r.Topic)
				}
				sort.Strings(deleted)
				if a.json {
					if err := a.printJSON(map[string]any{"deleted": deleted}); err != nil {
						return err
					}
				} else {
					for _, t := range deleted {
						a.printf("Deleted topic %s.\n", t)
					}
				}
				return errors.Join(failed...)
			})
		},
	}
	c.Flags().BoolVar(&ifExists, "if-exists", false, "succeed if a topic does not exist")
	return a.clientFlags(c)
}
