package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
)

// voters adds a fourth node, makes it a voter and takes that back.
func (c *clusterTools) voters(ctx context.Context) error {
	var err error
	// Two log directories, for a move to one of them.
	second := filepath.Join(c.dir, "cluster", "node4", "data2")
	c.fourth, err = c.c.Add(ctx, "broker,controller", map[string]string{
		"log.dirs": filepath.Join(c.dir, "cluster", "node4", "data") + "," + second})
	if err != nil {
		return err
	}
	c.addBroker(c.fourth)
	if err := c.fourth.Start(ctx); err != nil {
		return err
	}
	err = peertest.WaitFor(ctx, 20*time.Second, "node 4 is an observer", func(ctx context.Context) error {
		s, err := c.status(ctx)
		if err != nil {
			return err
		}
		if !slices.Equal(memberIDs(s.voters), []int32{1, 2, 3}) || !slices.Contains(memberIDs(s.observers), 4) {
			return fmt.Errorf("quorum with node 4: %+v", s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	out, err := c.kafkaTool(ctx, "metadata-quorum", "--command-config", c.fourth.Config, "add-controller")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Added controller 4 with directory id"); err != nil {
		return err
	}
	s, err := c.status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.voters, func(m quorumMember) bool { return m.ID == 4 })
	if i < 0 || len(s.voters) != 4 || !slices.Equal(s.voters[i].Endpoints, []string{"CONTROLLER://" + c.fourth.ControllerAddr}) {
		return fmt.Errorf("quorum with controller 4 added: %+v", s)
	}
	// It is one already.
	_, err = c.kafkaTool(ctx, "metadata-quorum", "--command-config", c.fourth.Config, "add-controller")
	var exit *peertest.ExitError
	if !errors.As(err, &exit) || !strings.Contains(exit.Output.Stdout+exit.Output.Stderr, "DuplicateVoterException") {
		return fmt.Errorf("controller 4 added twice: %w", err)
	}
	if _, err = c.kafkaTool(ctx, "metadata-quorum", "remove-controller", "--controller-id", "4", "--controller-directory-id", s.voters[i].DirectoryID); err != nil {
		return err
	}
	if s, err = c.status(ctx); err != nil {
		return err
	}
	if !slices.Equal(memberIDs(s.voters), []int32{1, 2, 3}) {
		return fmt.Errorf("quorum with controller 4 removed: %+v", s)
	}
	return nil
}

// plan is the JSON that kafka-reassign-partitions reads and writes.
type plan struct {
	Version    int             `json:"version"`
	Partitions []planPartition `json:"partitions"`
}

type planPartition struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Replicas  []int32  `json:"replicas"`
	LogDirs   []string `json:"log_dirs,omitempty"`
}

// writeJSON writes a file into the part's folder and returns its path.
func (c *clusterTools) writeJSON(name string, v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, name)
	return path, os.WriteFile(path, text, 0o644)
}

// throttled are the throttle configs that are set: of the topic, and of brokers 1 to 4.
func (c *clusterTools) throttled(ctx context.Context) (map[string]string, error) {
	out, err := c.adm.DescribeTopicConfigs(ctx, movesTopic)
	if err != nil {
		return nil, err
	}
	brokers, err := c.adm.DescribeBrokerConfigs(ctx, 1, 2, 3, 4)
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	for _, r := range append(out, brokers...) {
		if r.Err != nil {
			return nil, r.Err
		}
		for _, x := range r.Configs {
			if strings.Contains(x.Key, "replication.throttled") && strings.HasPrefix(x.Source.String(), "DYNAMIC_") && x.MaybeValue() != "" {
				set[r.Name+"/"+x.Key] = x.MaybeValue()
			}
		}
	}
	return set, nil
}

// reassignCancelled starts a move that its throttle makes too slow to end, and cancels it.
func (c *clusterTools) reassignCancelled(ctx context.Context) error {
	topics, err := c.writeJSON("topics.json", map[string]any{"version": 1, "topics": []map[string]string{{"topic": movesTopic}}})
	if err != nil {
		return err
	}
	out, err := c.kafkaTool(ctx, "reassign-partitions", "--topics-to-move-json-file", topics, "--broker-list", "2,3,4", "--generate")
	if err != nil {
		return err
	}
	_, proposed, ok := strings.Cut(out, "Proposed partition reassignment configuration")
	var generated plan
	if err := json.Unmarshal([]byte(strings.TrimSpace(proposed)), &generated); err != nil || !ok || len(generated.Partitions) != 3 {
		return fmt.Errorf("reassign-partitions --generate: %w: %s", err, out)
	}
	for _, p := range generated.Partitions {
		if slices.Sort(p.Replicas); !slices.Equal(p.Replicas, []int32{2, 3, 4}) {
			return fmt.Errorf("reassign-partitions --generate: %s", out)
		}
	}
	file, err := c.writeJSON("slow.json", plan{Version: 1, Partitions: []planPartition{{Topic: movesTopic, Partition: 0, Replicas: []int32{1, 2, 4}}}})
	if err != nil {
		return err
	}
	if out, err = c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--execute", "--throttle", "20000"); err != nil {
		return err
	}
	if err := wantAll(out, "The inter-broker throttle limit was set to 20000 B/s", "Successfully started partition reassignment for moves-0"); err != nil {
		return err
	}
	set, err := c.throttled(ctx)
	if err != nil {
		return err
	}
	if set["1/leader.replication.throttled.rate"] != "20000" || set["4/follower.replication.throttled.rate"] != "20000" ||
		!strings.Contains(set[movesTopic+"/follower.replication.throttled.replicas"], "0:4") || !strings.Contains(set[movesTopic+"/leader.replication.throttled.replicas"], "0:1") {
		return fmt.Errorf("throttles: %v", set)
	}
	if out, err = c.kafkaTool(ctx, "configs", "--entity-type", "brokers", "--entity-name", "4", "--describe"); err != nil {
		return err
	}
	if err := wantAll(out, "follower.replication.throttled.rate=20000"); err != nil {
		return err
	}
	if out, err = c.kafkaTool(ctx, "reassign-partitions", "--list"); err != nil {
		return err
	}
	if err := wantAll(out, "moves-0: replicas: ", "adding: 4", "removing: 3"); err != nil {
		return err
	}
	if out, err = c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--verify"); err != nil {
		return err
	}
	if err := wantAll(out, "Reassignment of partition moves-0 is still in progress"); err != nil {
		return err
	}
	if out, err = c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--cancel"); err != nil {
		return err
	}
	if err := wantAll(out, "Successfully cancelled partition reassignment for: moves-0"); err != nil {
		return err
	}
	if set, err = c.throttled(ctx); err != nil || len(set) != 0 {
		return fmt.Errorf("throttles after the cancel: %v, %w", set, err)
	}
	return c.awaitPartition(ctx, movesTopic, 0, "is where it was", func(d kadm.PartitionDetail) bool {
		return slices.Equal(d.Replicas, []int32{1, 2, 3}) && len(d.ISR) == 3
	})
}

// reassign moves all partitions of the topic to nodes 2, 3 and 4, one of them to a log directory by name.
func (c *clusterTools) reassign(ctx context.Context) error {
	dirs, err := c.logDirs(ctx, "4")
	if err != nil {
		return err
	}
	if len(dirs) != 2 {
		return fmt.Errorf("log-dirs: node 4 has %d directories, want 2", len(dirs))
	}
	target := dirs[1].LogDir
	var p plan
	p.Version = 1
	for i, replicas := range [][]int32{{4, 2, 3}, {2, 3, 4}, {3, 4, 2}} {
		p.Partitions = append(p.Partitions, planPartition{Topic: movesTopic, Partition: int32(i), Replicas: replicas})
	}
	p.Partitions[0].LogDirs = []string{target, "any", "any"}
	file, err := c.writeJSON("move.json", p)
	if err != nil {
		return err
	}
	if _, err := c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--execute", "--throttle", "50000000"); err != nil {
		return err
	}
	for i, want := range p.Partitions {
		err := c.awaitPartition(ctx, movesTopic, int32(i), "has moved", func(d kadm.PartitionDetail) bool {
			return slices.Equal(d.Replicas, want.Replicas) && len(d.ISR) == 3
		})
		if err != nil {
			return err
		}
	}
	var out string
	err = peertest.WaitFor(ctx, 30*time.Second, "reassign-partitions --verify", func(ctx context.Context) error {
		if out, err = c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--verify"); err != nil {
			return err
		}
		return wantAll(out, "Reassignment of partition moves-0 is completed", "Reassignment of partition moves-1 is completed", "Reassignment of partition moves-2 is completed",
			"Reassignment of replica moves-0-4 completed successfully")
	})
	if err != nil {
		return err
	}
	if set, err := c.throttled(ctx); err != nil || len(set) != 0 {
		return fmt.Errorf("throttles after --verify: %v, %w", set, err)
	}
	// What the nodes hold now, by their own account.
	sizes := map[int32]int64{}
	for _, node := range []string{"1", "2", "3", "4"} {
		dirs, err := c.logDirs(ctx, node)
		if err != nil {
			return err
		}
		for _, d := range dirs {
			if err := d.failed(); err != nil {
				return err
			}
			for _, p := range d.Partitions {
				topic, n, _ := cutLast(p.Partition, "-")
				if topic != movesTopic {
					continue
				}
				if node == "1" {
					return fmt.Errorf("log-dirs: node 1 still has %s", p.Partition)
				}
				if node == "4" && n == "0" && d.LogDir != target || p.OffsetLag != 0 || p.IsFuture {
					return fmt.Errorf("log-dirs: node %s: %s in %s: %+v", node, p.Partition, d.LogDir, p)
				}
				i, err := strconv.ParseInt(n, 10, 32)
				if err != nil {
					return err
				}
				if before, ok := sizes[int32(i)]; p.Size < movesBytes || ok && before != p.Size {
					return fmt.Errorf("log-dirs: node %s: %s has %d bytes, another replica %d", node, p.Partition, p.Size, before)
				}
				sizes[int32(i)] = p.Size
			}
		}
	}
	if len(sizes) != 3 {
		return fmt.Errorf("log-dirs: sizes %v, want those of three partitions", sizes)
	}
	return nil
}

// logDir is a log directory as kafka-log-dirs describes it.
type logDir struct {
	LogDir     string
	Error      *string
	Partitions []struct {
		Partition string
		Size      int64
		OffsetLag int64
		IsFuture  bool
	}
}

// failed is the error that the directory is described with, nil if none.
func (d logDir) failed() error {
	if d.Error == nil {
		return nil
	}
	return fmt.Errorf("log-dirs: %s: %s", d.LogDir, *d.Error)
}

// logDirs are a node's directories, by path.
func (c *clusterTools) logDirs(ctx context.Context, node string) ([]logDir, error) {
	out, err := c.kafkaTool(ctx, "log-dirs", "--describe", "--broker-list", node)
	if err != nil {
		return nil, err
	}
	var all struct {
		Brokers []struct {
			Broker  int32
			LogDirs []logDir
		}
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			return nil, fmt.Errorf("log-dirs: %w: %s", err, out)
		}
	}
	if len(all.Brokers) != 1 || strconv.Itoa(int(all.Brokers[0].Broker)) != node {
		return nil, fmt.Errorf("log-dirs --broker-list %s: %s", node, out)
	}
	slices.SortFunc(all.Brokers[0].LogDirs, func(a, b logDir) int { return strings.Compare(a.LogDir, b.LogDir) })
	return all.Brokers[0].LogDirs, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// unclean loses both replicas of a partition one after the other; the first one that is back misses records, and leads
// only when that is accepted.
func (c *clusterTools) unclean(ctx context.Context) error {
	if _, err := c.kafkaTool(ctx, "topics", "--create", "--topic", pairTopic, "--replica-assignment", "4:3"); err != nil {
		return err
	}
	if err := c.fill(ctx, pairTopic, 1, 1000); err != nil {
		return err
	}
	third := c.c.Brokers[2]
	if err := c.fourth.Kill(); err != nil {
		return err
	}
	err := c.awaitPartition(ctx, pairTopic, 0, "is led by 3 alone", func(d kadm.PartitionDetail) bool { return d.Leader == 3 && slices.Equal(d.ISR, []int32{3}) })
	if err != nil {
		return err
	}
	if err := c.fill(ctx, pairTopic, 1, 1000); err != nil {
		return err
	}
	if err := third.Kill(); err != nil {
		return err
	}
	if err := c.awaitPartition(ctx, pairTopic, 0, "has no leader", func(d kadm.PartitionDetail) bool { return d.Leader == -1 }); err != nil {
		return err
	}
	if err := c.fourth.Start(ctx); err != nil {
		return err
	}
	// It is there and must not lead: it lacks a record.
	got, err := c.describe(ctx, "--topic", pairTopic, "--unavailable-partitions")
	if err != nil {
		return err
	}
	if l, ok := got["pair-0"]; !ok || l.leader > 0 {
		return fmt.Errorf("pair-0 with its last leader gone: %+v", got)
	}
	if _, err := c.kafkaTool(ctx, "leader-election", "--election-type", "preferred", "--topic", pairTopic, "--partition", "0"); err == nil {
		return errors.New("leader-election preferred: a replica that lacks records was elected")
	}
	out, err := c.kafkaTool(ctx, "leader-election", "--election-type", "unclean", "--topic", pairTopic, "--partition", "0")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Successfully completed leader election (UNCLEAN) for partitions pair-0"); err != nil {
		return err
	}
	if err := third.Start(ctx); err != nil {
		return err
	}
	err = c.awaitPartition(ctx, pairTopic, 0, "is led by 4, with 3 in sync", func(d kadm.PartitionDetail) bool { return d.Leader == 4 && len(d.ISR) == 2 })
	if err != nil {
		return err
	}
	ends, err := c.adm.ListEndOffsets(ctx, pairTopic)
	if err != nil {
		return err
	}
	if end, _ := ends.Lookup(pairTopic, 0); end.Err != nil || end.Offset != 1 {
		return fmt.Errorf("pair-0 ends at %d after the unclean election, %w; want 1: the second record is lost", end.Offset, end.Err)
	}
	_, err = peertest.Compare(peertest.LogDirOf(c.fourth, pairTopic, 0), third.PartitionDir(pairTopic, 0), peertest.CompareOptions{})
	return err
}

func (c *clusterTools) features(ctx context.Context) error {
	feature, newest := "mirror.version", "2"
	if c.setting.target == "kafka" {
		feature, newest = "group.version", "1"
	}
	level := func() (string, error) {
		out, err := c.kafkaTool(ctx, "features", "describe")
		if err != nil {
			return "", err
		}
		if err := wantAll(out, "Feature: metadata.version ", "Feature: "+feature+" "); err != nil {
			return "", err
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 7 && f[1] == feature {
				return f[7], nil // Feature: NAME SupportedMinVersion: N SupportedMaxVersion: N FinalizedVersionLevel: N Epoch: N
			}
		}
		return "", fmt.Errorf("features describe: %s", out)
	}
	change := func(how, to, said string) error {
		out, err := c.kafkaTool(ctx, "features", how, "--feature", feature+"="+to)
		if err != nil {
			return err
		}
		if err := wantAll(out, feature+" was "+said+" to "+to); err != nil {
			return err
		}
		got, err := level()
		if err == nil && got != to {
			err = fmt.Errorf("features: %s is at %s after %s to %s", feature, got, how, to)
		}
		return err
	}
	now, err := level()
	if err != nil {
		return err
	}
	if now != newest {
		return fmt.Errorf("features: a new cluster has %s at %s, want %s", feature, now, newest)
	}
	if err := change("downgrade", "0", "downgraded"); err != nil {
		return err
	}
	if err := change("upgrade", newest, "upgraded"); err != nil {
		return err
	}
	// Beyond what is supported.
	if _, err := c.kafkaTool(ctx, "features", "upgrade", "--feature", feature+"=99"); err == nil {
		return fmt.Errorf("features: %s was upgraded to 99", feature)
	}
	return nil
}

func (c *clusterTools) unregister(ctx context.Context) error {
	// It holds replicas; those move off it first.
	file, err := c.writeJSON("off.json", plan{Version: 1, Partitions: []planPartition{
		{Topic: movesTopic, Partition: 0, Replicas: []int32{1, 2, 3}}, {Topic: movesTopic, Partition: 1, Replicas: []int32{2, 3, 1}},
		{Topic: movesTopic, Partition: 2, Replicas: []int32{3, 1, 2}}, {Topic: pairTopic, Partition: 0, Replicas: []int32{3}},
	}})
	if err != nil {
		return err
	}
	if _, err := c.kafkaTool(ctx, "reassign-partitions", "--reassignment-json-file", file, "--execute"); err != nil {
		return err
	}
	for _, t := range []struct {
		topic string
		n     int32
	}{{movesTopic, 3}, {pairTopic, 1}} {
		for p := range t.n {
			err := c.awaitPartition(ctx, t.topic, p, "has left node 4", func(d kadm.PartitionDetail) bool {
				return !slices.Contains(d.Replicas, 4) && len(d.ISR) == len(d.Replicas) && d.Leader > 0
			})
			if err != nil {
				return err
			}
		}
	}
	if err := c.fourth.Stop(); err != nil {
		return err
	}
	out, err := c.clusterTool(ctx, "unregister", "--id", "4")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Broker 4 is no longer registered."); err != nil {
		return err
	}
	if out, err = c.clusterTool(ctx, "list-endpoints", "--include-fenced-brokers"); err != nil {
		return err
	}
	if len(fields(out, 0, "4")) != 0 || len(fields(out, 0, "1")) != 1 {
		return fmt.Errorf("cluster list-endpoints after unregister: %s", out)
	}
	return c.fill(ctx, movesTopic, 3, 1000)
}
