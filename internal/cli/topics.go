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
						if a.json {
							return a.printJSON(map[string]any{"topic": r.Topic, "created": false})
						}
						continue
					}
					if err := answer("topic "+r.Topic, r.Err, r.ErrMessage); err != nil {
						return err
					}
					if a.json {
						return a.printJSON(map[string]any{"topic": r.Topic, "created": true, "id": kafkaID(r.ID), "partitions": r.NumPartitions, "replication_factor": r.ReplicationFactor})
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
