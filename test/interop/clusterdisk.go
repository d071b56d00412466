package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
)

// lostDisk takes the second directory of node 4 away while it leads a partition there: others lead, the tool shows the error, and
// with an empty directory in its place the node has its replica again.
func (c *clusterTools) lostDisk(ctx context.Context) error {
	if _, err := c.kafkaTool(ctx, "leader-election", "--election-type", "preferred", "--topic", movesTopic, "--partition", "0"); err != nil {
		return err
	}
	second := filepath.Join(c.dir, "cluster", "node4", "data2")
	err := c.awaitPartition(ctx, movesTopic, 0, "is led by 4", func(d kadm.PartitionDetail) bool { return d.Leader == 4 && len(d.ISR) == 3 })
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(second, movesTopic+"-0")); err != nil {
		return err
	}
	if err := os.Rename(second, filepath.Join(c.dir, "cluster", "node4", "lost")); err != nil {
		return err
	}
	err = c.awaitPartition(ctx, movesTopic, 0, "is led by another", func(d kadm.PartitionDetail) bool {
		return d.Leader > 0 && d.Leader != 4 && !slices.Contains(d.ISR, 4)
	})
	if err != nil {
		return err
	}
	if err := c.fill(ctx, movesTopic, 3, 1000); err != nil {
		return err
	}
	dirs, err := c.logDirs(ctx, "4")
	if err != nil {
		return err
	}
	if len(dirs) != 2 || dirs[0].failed() != nil || dirs[1].failed() == nil || !strings.Contains(dirs[1].failed().Error(), "KafkaStorageException") {
		return fmt.Errorf("log-dirs with a lost directory: %+v", dirs)
	}
	if l, err := c.describe(ctx, "--topic", movesTopic); err != nil || slices.Contains(l["moves-0"].isr, 4) || !slices.Contains(l["moves-1"].isr, 4) {
		return errors.Join(err, fmt.Errorf("topics --describe with a lost directory: %+v", l))
	}
	if err := c.fourth.Stop(); err != nil {
		return err
	}
	if err := os.Mkdir(second, 0o755); err != nil {
		return err
	}
	format := []string{"storage", "format", "--cluster-id", c.c.ID, "--config", c.fourth.Config, "--no-initial-controllers", "--ignore-formatted"}
	run := peertest.Command{Path: c.milena, Args: format, Timeout: time.Minute}
	if c.setting.target == "kafka" {
		run = c.kafka.Command(format[0], format[1:]...)
	}
	if _, err := peertest.Run(ctx, run); err != nil {
		return err
	}
	if err := c.fourth.Start(ctx); err != nil {
		return err
	}
	err = c.awaitPartition(ctx, movesTopic, 0, "is in sync on 4 again", func(d kadm.PartitionDetail) bool { return len(d.ISR) == 3 })
	if err != nil {
		return err
	}
	if dirs, err = c.logDirs(ctx, "4"); err != nil {
		return err
	}
	for _, d := range dirs {
		if err := d.failed(); err != nil {
			return err
		}
	}
	_, err = peertest.Compare(peertest.LogDirOf(c.fourth, movesTopic, 0), c.c.Brokers[1].PartitionDir(movesTopic, 0), peertest.CompareOptions{})
	return err
}

// loggers changes the level of a logger of a node and takes that back.
func (c *clusterTools) loggers(ctx context.Context) error {
	entity := []string{"--entity-type", "broker-loggers", "--entity-name", "1"}
	logger := "handle.data"
	if c.setting.target == "kafka" {
		logger = "kafka.server.KafkaApis"
	}
	for _, change := range [][]string{{"--alter", "--add-config", logger + "=DEBUG"}, {"--alter", "--delete-config", logger}} {
		if _, err := c.kafkaTool(ctx, "configs", append(slices.Clone(entity), change...)...); err != nil {
			return err
		}
		out, err := c.kafkaTool(ctx, "configs", append(slices.Clone(entity), "--describe")...)
		if err != nil {
			return err
		}
		if debug := strings.Contains(out, logger+"=DEBUG"); debug != (change[1] == "--add-config") {
			return fmt.Errorf("configs of broker-loggers after %v: %s", change, out)
		}
	}
	if _, err := c.kafkaTool(ctx, "configs", append(slices.Clone(entity), "--alter", "--add-config", "no.such.logger=DEBUG")...); err == nil {
		return errors.New("configs of broker-loggers: a logger that isn't there was changed")
	}
	return nil
}
