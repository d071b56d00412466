package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

// skipConfig is the config of a mirror that lists the batches to leave out.
const skipConfig = "mirror.skip.batches"

func (a *app) mirrorsSkip() *cobra.Command {
	var topic string
	var partition int32
	var offset int64
	c := &cobra.Command{
		Use: "skip NAME --topic TOPIC", Short: "Go on behind a damaged batch of the source", Args: exactly("NAME"),
		Long: "A batch of the source that fails its check in three fetches makes a partition FAILED. This leaves that batch out: its offsets\n" +
			"are a gap in the copy. The batch is added to the mirror's config " + skipConfig + ", and the partition is tried again.",
		Example: "  milena mirrors skip dr --topic orders --partition 3 --offset 1042",
		RunE: func(cmd *cobra.Command, args []string) error {
			if topic == "" {
				return usagef("mirrors skip needs --topic")
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				at, err := damagedAt(ctx, m, args[0], topic, partition)
				if err != nil {
					return err
				}
				if cmd.Flags().Changed("offset") && offset != at {
					return fmt.Errorf("partition %s-%d of mirror %s failed at offset %d, not at %d", topic, partition, args[0], at, offset)
				}
				batch := fmt.Sprintf("%s:%d:%d", topic, partition, at)
				if err := addSkip(ctx, m, args[0], batch); err != nil {
					return ofMirror(args[0], err)
				}
				rs, err := m.Recover(ctx, args[0], []string{topic})
				if failed := rs.Error(); failed != nil {
					return failed
				}
				if err != nil {
					return ofMirror(args[0], err)
				}
				if a.json {
					return a.printJSON(map[string]any{"mirror": args[0], "skipped": batch})
				}
				a.printf("Mirror %s leaves out the batch at offset %d of %s-%d; the partition is tried again.\n", args[0], at, topic, partition)
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&topic, "topic", "", "the topic's `NAME`")
	f.Int32Var(&partition, "partition", 0, "the partition's `NUMBER`")
	f.Int64Var(&offset, "offset", 0, "the damaged batch's `OFFSET`; the one that the partition failed at by default")
	return a.clientFlags(c)
}

// damagedAt is the offset at which a partition failed for a damaged batch: where its log ends.
func damagedAt(ctx context.Context, m *mirroradm.Client, mirror, topic string, partition int32) (int64, error) {
	ds, err := m.DescribeWith(ctx, mirroradm.DescribeOptions{Mirrors: []string{mirror}, Topics: map[string][]int32{topic: {partition}}, State: true, Offsets: true})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return 0, err
	}
	if len(ds) == 0 || len(ds[0].Partitions) == 0 {
		return 0, fmt.Errorf("mirror %s has no partition %s-%d", mirror, topic, partition)
	}
	p := ds[0].Partitions[0]
	if p.State != "FAILED" || !strings.Contains(p.LastError, "failed its check") {
		return 0, fmt.Errorf("partition %s-%d of mirror %s is %s and has not failed for a damaged batch", topic, partition, mirror, p.State)
	}
	var at int64
	if _, err := fmt.Sscanf(p.LastError, "the batch at offset %d of the source", &at); err != nil {
		at = p.DestinationOffset
	}
	return at, nil
}

// addSkip adds a batch to those that the mirror leaves out.
func addSkip(ctx context.Context, m *mirroradm.Client, mirror, batch string) error {
	cs, err := m.Configs(ctx, mirror)
	if err != nil {
		return err
	}
	var list []string
	for _, x := range cs {
		if x.Key == skipConfig && x.Value != nil {
			list = splitList([]string{*x.Value})
		}
	}
	if slices.Contains(list, batch) {
		return nil
	}
	return m.AlterConfigs(ctx, mirror, map[string]string{skipConfig: strings.Join(append(list, batch), ",")})
}
