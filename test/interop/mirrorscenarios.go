package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"milena/internal/peertest"
)

// scenarios play the spec's scenarios with one long-running Apache Kafka 4.4 of two brokers as the source A and three nodes as the
// destination B. Where a scenario mirrors back, which Kafka 4.4 can't, it is played up to there.
type scenarios struct {
	*nodes
	src *peertest.Cluster
	adm *kadm.Client // of the source
}

func runMirrorScenarios(ctx context.Context, p *part) error {
	s := &scenarios{nodes: &nodes{part: p}}
	return p.steps(ctx,
		step{"start Kafka and three nodes", s.startBoth},
		step{"1 and 2: failover", s.failover},
		step{"3: pause and resume", s.pause},
		step{"5: mirror deletion", s.deletion},
		step{"7 and 9: topics by the start command", s.byStart},
		step{"11: topics by config", s.byConfig},
		step{"12: topic property exclusion", s.properties},
		step{"13: group filtering", s.groupFilter},
		step{"20 and 21: consumer group sync", s.groupSync},
		step{"6: source topic deletion", s.sourceDeletion},
		step{"4: mirror config update", s.configUpdate},
		step{"14: log convergence", s.convergence},
		step{"28: failed retry", s.failedRetry},
	)
}

func (s *scenarios) startBoth(ctx context.Context) (err error) {
	s.src, err = peertest.NewCluster(ctx, peertest.ClusterOptions{Tools: s.kafka, Dir: filepath.Join(s.dir, "source"), Nodes: 2,
		Properties: map[string]string{"auto.create.topics.enable": "false", "broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}})
	if err != nil {
		return err
	}
	for _, b := range s.src.Brokers {
		s.addBroker(b)
		if err := b.Launch(); err != nil {
			return err
		}
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	for _, b := range s.src.Brokers {
		if err := b.AwaitReady(ctx); err != nil {
			return err
		}
	}
	s.adm, err = s.admin(s.src.Bootstrap())
	return err
}

// topic creates a topic of one partition at the source and writes n records to it.
func (s *scenarios) topic(ctx context.Context, name string, n int) error {
	if _, err := s.adm.CreateTopic(ctx, 1, 2, nil, name); err != nil {
		return err
	}
	return s.produce(ctx, name, n)
}

func (s *scenarios) produce(ctx context.Context, topic string, n int) error {
	return produceEach(ctx, s.src.Bootstrap(), topic, 1, n)
}

// mirror makes a mirror of the source; more are flags and their values.
func (s *scenarios) mirror(ctx context.Context, name string, more ...string) error {
	return s.command(ctx, append([]string{"mirrors", "create", name, "--source", s.src.Bootstrap(), "--config", "mirror.groups.sync.interval.ms=500"}, more...)...)
}

func (s *scenarios) command(ctx context.Context, args ...string) error {
	_, err := s.cli(ctx, args...)
	return err
}

// refused wants a command to fail.
func (s *scenarios) refused(ctx context.Context, want string, args ...string) error {
	out, err := peertest.Run(ctx, peertest.Command{Path: s.milena, Args: append(args, "--bootstrap-server", s.c.Bootstrap()), Timeout: time.Minute})
	if err == nil {
		return fmt.Errorf("milena %s: %s: want a refusal", strings.Join(args, " "), out.Stdout)
	}
	return wantAll(err.Error(), want)
}

// written wants the nodes' copy to take a record, or not, as wanted.
func (s *scenarios) written(ctx context.Context, topic string, want bool) error {
	err := produceEach(ctx, s.c.Bootstrap(), topic, 1, 1)
	if want || err == nil {
		if err == nil && !want {
			return fmt.Errorf("%s took a record", topic)
		}
		return err
	}
	if !errors.Is(err, kerr.PolicyViolation) {
		return fmt.Errorf("a write to %s: %w, want POLICY_VIOLATION", topic, err)
	}
	return nil
}

// readable wants the nodes to yield n records of a topic.
func (s *scenarios) readable(ctx context.Context, topic string, n int) error {
	return peertest.WaitFor(ctx, time.Minute, "records of "+topic, func(ctx context.Context) error {
		out, err := s.cli(ctx, "consume", topic, "--from-beginning", "--exit-at-end")
		if got := strings.Count(out, "\n"); err == nil && got != n {
			err = fmt.Errorf("%d records, want %d", got, n)
		}
		return err
	})
}

// sourceDir is a partition's folder on the first of the source's brokers.
func (s *scenarios) sourceDir(topic string, p int32) string {
	return s.src.Brokers[0].PartitionDir(topic, p)
}

// 1. Basic failover and failback (older form): topic 1P RF2, 3 records on A; create mirror, start, wait lag 0, try to produce to B, stop,
// produce 1 to B, 2 to A, then mirror back B to A; B has 3 records, the produce to B while mirroring is refused, after stop B accepts 1
// record, A's 2 unmirrored records vanish, A ends with 4 records.
//
// 2. Failover and failback with different mirror names (current form): 3 records, rolling restart of A (raises epoch), 3 more; mirror
// `a-to-b`, lag 0; B has 6; stop, STOPPED; produce 1 to B and 2 to A (A has 8); …
func (s *scenarios) failover(ctx context.Context) error {
	const topic = "failover"
	if err := s.topic(ctx, topic, 3); err != nil {
		return err
	}
	for _, b := range s.src.Brokers {
		if err := b.Restart(ctx); err != nil {
			return err
		}
	}
	if err := s.produce(ctx, topic, 3); err != nil {
		return err
	}
	if err := s.mirror(ctx, "a-to-b"); err != nil {
		return err
	}
	if err := s.command(ctx, "mirrors", "start", "a-to-b", "--topics", topic); err != nil {
		return err
	}
	if err := s.states(ctx, "a-to-b", "MIRRORING", 1); err != nil {
		return err
	}
	if err := s.equal(ctx, s.sourceDir, map[string]int32{topic: 1}); err != nil {
		return err
	}
	if in, err := peertest.Inspect(s.sourceDir(topic, 0)); err != nil || len(in.Epochs) < 2 {
		return fmt.Errorf("the restart left the epochs %v: %w", in.Epochs, err)
	}
	if err := errors.Join(s.readable(ctx, topic, 6), s.written(ctx, topic, false)); err != nil {
		return err
	}
	if err := s.command(ctx, "mirrors", "stop", "a-to-b", "--topics", topic); err != nil {
		return err
	}
	if err := errors.Join(s.states(ctx, "a-to-b", "STOPPED", 1), s.written(ctx, topic, true), s.produce(ctx, topic, 2)); err != nil {
		return err
	}
	return s.readable(ctx, topic, 7)
}

// 3. Pause and resume: 3 records mirrored; pause, produce 1 to A; state PAUSED, B still has 3, produce to B is refused; resume: MIRRORING,
// lag 0, B has 4.
func (s *scenarios) pause(ctx context.Context) error {
	const topic = "paused"
	if err := errors.Join(s.topic(ctx, topic, 3), s.mirror(ctx, "pause", "--topics", topic)); err != nil {
		return err
	}
	if err := s.states(ctx, "pause", "MIRRORING", 1); err != nil {
		return err
	}
	if err := errors.Join(s.command(ctx, "mirrors", "pause", "pause", "--topics", topic), s.states(ctx, "pause", "PAUSED", 1)); err != nil {
		return err
	}
	if err := errors.Join(s.produce(ctx, topic, 1), s.readable(ctx, topic, 3), s.written(ctx, topic, false)); err != nil {
		return err
	}
	if err := errors.Join(s.command(ctx, "mirrors", "resume", "pause", "--topics", topic), s.states(ctx, "pause", "MIRRORING", 1)); err != nil {
		return err
	}
	return s.readable(ctx, topic, 4)
}

// 5. Mirror deletion: topic MIRRORING; delete mirror; then stop, wait STOPPED, delete again; first delete fails and the mirror is still
// listed, second succeeds and it is gone from the list.
func (s *scenarios) deletion(ctx context.Context) error {
	if err := s.refused(ctx, "INVALID_CLUSTER_MIRROR_STATES", "mirrors", "delete", "pause"); err != nil {
		return err
	}
	if out, err := s.cli(ctx, "mirrors", "list"); err != nil || !strings.Contains(out, "pause") {
		return fmt.Errorf("mirrors list: %w: %s", err, out)
	}
	if err := errors.Join(s.command(ctx, "mirrors", "stop", "pause", "--topics", "paused"), s.states(ctx, "pause", "STOPPED", 1)); err != nil {
		return err
	}
	if err := s.command(ctx, "mirrors", "delete", "pause"); err != nil {
		return err
	}
	if out, err := s.cli(ctx, "mirrors", "list"); err != nil || strings.Contains(out, "pause") {
		return fmt.Errorf("mirrors list after the deletion: %w: %s", err, out)
	}
	return nil
}

// 7. Topic filtering by start command: four topics orders-us, orders-eu, orders-internal, payments with 3, 3, 2, 2 records; start
// `orders-.*` with exclude `orders-internal`; only orders-us and orders-eu exist on B with 3 records each.
//
// 9. (continues 7) Create orders-jp on A with 3 records; it is discovered, MIRRORING, lag 0, 3 records on B.
func (s *scenarios) byStart(ctx context.Context) error {
	return s.filtered(ctx, "filter", "", func() error {
		return errors.Join(s.mirror(ctx, "filter"), s.command(ctx, "mirrors", "start", "filter", "--topics", "orders-.*", "--exclude", "orders-internal"))
	})
}

// 11. Same as 7 and 9 but include and exclude are set with the config tool before any start command (newer); same results, discovery
// alone starts the topics.
func (s *scenarios) byConfig(ctx context.Context) error {
	return s.filtered(ctx, "config", "cfg-", func() error {
		return errors.Join(s.mirror(ctx, "config"), s.command(ctx, "mirrors", "configs", "config", "--set", "mirror.topics.include=cfg-orders-.*", "--set", "mirror.topics.exclude=cfg-orders-internal"))
	})
}

func (s *scenarios) filtered(ctx context.Context, mirror, prefix string, begin func() error) error {
	for name, n := range map[string]int{"orders-us": 3, "orders-eu": 3, "orders-internal": 2, "payments": 2} {
		if err := s.topic(ctx, prefix+name, n); err != nil {
			return err
		}
	}
	if err := errors.Join(begin(), s.states(ctx, mirror, "MIRRORING", 2)); err != nil {
		return err
	}
	if err := errors.Join(s.topic(ctx, prefix+"orders-jp", 3), s.states(ctx, mirror, "MIRRORING", 3)); err != nil {
		return err
	}
	for _, name := range []string{"orders-us", "orders-eu", "orders-jp"} {
		if err := s.readable(ctx, prefix+name, 3); err != nil {
			return err
		}
	}
	ts, err := s.dstAdm.ListTopics(ctx)
	if err != nil {
		return err
	}
	if ts.Has(prefix+"orders-internal") || ts.Has(prefix+"payments") {
		return fmt.Errorf("topics at the destination: %v", ts.Names())
	}
	return nil
}

// 12. Topic property exclusion: mirror with properties exclude = retention.bytes, min.insync.replicas; change retention.ms, retention.bytes,
// min.insync.replicas on A, wait a refresh; retention.ms is equal on B, the other two are not.
func (s *scenarios) properties(ctx context.Context) error {
	const topic = "properties"
	err := errors.Join(s.topic(ctx, topic, 1), s.mirror(ctx, "props", "--topics", topic, "--config", "mirror.topic.properties.exclude=retention.bytes,min.insync.replicas"))
	if err != nil {
		return err
	}
	if err := s.states(ctx, "props", "MIRRORING", 1); err != nil {
		return err
	}
	var alter []kadm.AlterConfig
	for k, v := range map[string]string{"retention.ms": "123456789", "retention.bytes": "123456789", "min.insync.replicas": "2"} {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
	}
	r, err := s.adm.AlterTopicConfigs(ctx, alter, topic)
	if err != nil || r[0].Err != nil {
		return errors.Join(err, r[0].Err)
	}
	return peertest.WaitFor(ctx, time.Minute, "configs of "+topic, func(ctx context.Context) error {
		rs, err := s.dstAdm.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		for _, c := range rs[0].Configs {
			switch v := c.MaybeValue(); c.Key {
			case "retention.ms":
				if v != "123456789" {
					return fmt.Errorf("%s is %s", c.Key, v)
				}
			case "retention.bytes", "min.insync.replicas":
				if v == "123456789" || v == "2" {
					return fmt.Errorf("%s came over", c.Key)
				}
			}
		}
		return nil
	})
}

// commit commits offsets of a group at the source.
func (s *scenarios) commit(ctx context.Context, group string, at map[string]int64) error {
	var o kadm.Offsets
	for topic, n := range at {
		o.AddOffset(topic, 0, n, -1)
	}
	r, err := s.adm.CommitOffsets(ctx, group, o)
	return errors.Join(err, r.Error())
}

// groups waits until the nodes know a group's offsets as wanted, by topic.
func (s *scenarios) committed(ctx context.Context, group string, want map[string]int64) error {
	return peertest.WaitFor(ctx, time.Minute, "offsets of "+group, func(ctx context.Context) error {
		got, err := s.dstAdm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		have := map[string]int64{}
		got.Each(func(o kadm.OffsetResponse) { have[o.Topic] = o.At })
		if !maps.Equal(have, want) {
			return fmt.Errorf("%v, want %v", have, want)
		}
		return nil
	})
}

// 13. Group filtering: groups app-group1, app-group2, internal-group1 committed on A; mirror with groups include `app-.*`, exclude
// `app-group2`; after a refresh B lists only app-group1.
func (s *scenarios) groupFilter(ctx context.Context) error {
	const topic = "grouped"
	if err := s.topic(ctx, topic, 3); err != nil {
		return err
	}
	for _, g := range []string{"app-group1", "app-group2", "internal-group1"} {
		if err := s.commit(ctx, g, map[string]int64{topic: 2}); err != nil {
			return err
		}
	}
	if err := s.mirror(ctx, "grouped", "--topics", topic, "--config", "mirror.groups.include=app-.*", "--config", "mirror.groups.exclude=app-group2"); err != nil {
		return err
	}
	if err := errors.Join(s.states(ctx, "grouped", "MIRRORING", 1), s.committed(ctx, "app-group1", map[string]int64{topic: 2})); err != nil {
		return err
	}
	gs, err := s.dstAdm.ListGroups(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(gs.Groups(), func(g string) bool { return g == "app-group2" || g == "internal-group1" }) {
		return fmt.Errorf("groups at the destination: %v", gs.Groups())
	}
	return nil
}

// 20. Consumer group sync: my-topic and other-topic, group committed on both at 3; mirror only my-topic; after a refresh B's group shows
// my-topic and not other-topic.
//
// 21. (continues 20) Two more records consumed on A, lag 0, refresh, stop; B's committed offset for my-topic is 5.
func (s *scenarios) groupSync(ctx context.Context) error {
	if err := errors.Join(s.topic(ctx, "my-topic", 5), s.topic(ctx, "other-topic", 5)); err != nil {
		return err
	}
	if err := s.commit(ctx, "reader", map[string]int64{"my-topic": 3, "other-topic": 3}); err != nil {
		return err
	}
	if err := errors.Join(s.mirror(ctx, "reading", "--topics", "my-topic"), s.committed(ctx, "reader", map[string]int64{"my-topic": 3})); err != nil {
		return err
	}
	if err := errors.Join(s.commit(ctx, "reader", map[string]int64{"my-topic": 5}), s.states(ctx, "reading", "MIRRORING", 1)); err != nil {
		return err
	}
	if err := s.committed(ctx, "reader", map[string]int64{"my-topic": 5}); err != nil {
		return err
	}
	if err := errors.Join(s.command(ctx, "mirrors", "stop", "reading", "--topics", "my-topic"), s.states(ctx, "reading", "STOPPED", 1)); err != nil {
		return err
	}
	return s.committed(ctx, "reader", map[string]int64{"my-topic": 5})
}

// 6. Source topic deletion: topic MIRRORING; delete topic on A, wait a refresh; all partitions of the topic FAILED (a very old variant
// expected STOPPED).
func (s *scenarios) sourceDeletion(ctx context.Context) error {
	const topic = "deleted"
	if err := errors.Join(s.topic(ctx, topic, 3), s.mirror(ctx, "deletion", "--topics", topic), s.states(ctx, "deletion", "MIRRORING", 1)); err != nil {
		return err
	}
	if _, err := s.adm.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	return errors.Join(s.states(ctx, "deletion", "FAILED", 1), s.readable(ctx, topic, 3))
}

// 4. Mirror config update: topic RF1 mirroring; alter with unknown key `invalid.config`; then alter `bootstrap.servers` to the second A
// broker; unknown key is refused; after the second alter the fetchers reconnect, state MIRRORING, 3 new records arrive.
func (s *scenarios) configUpdate(ctx context.Context) error {
	const topic = "update"
	if err := errors.Join(s.topic(ctx, topic, 3), s.mirror(ctx, "update", "--topics", topic), s.states(ctx, "update", "MIRRORING", 1)); err != nil {
		return err
	}
	if err := s.refused(ctx, "invalid.config", "mirrors", "configs", "update", "--set", "invalid.config=1"); err != nil {
		return err
	}
	if err := s.command(ctx, "mirrors", "configs", "update", "--set", "bootstrap.servers="+s.src.Brokers[1].Addr); err != nil {
		return err
	}
	return errors.Join(s.produce(ctx, topic, 3), s.readable(ctx, topic, 6), s.states(ctx, "update", "MIRRORING", 1))
}

// 14. Log convergence: three topics (3P, 2P, 1P) with 100 records each, A restarted before; two mirrors, both MIRRORING; background
// producers on A while brokers are bounced in the order B0, B1, A1, B0, A0, B1; kill producers; lag 0 for both mirrors and all segment
// hashes converge on all replicas.
func (s *scenarios) convergence(ctx context.Context) error {
	topics := map[string]int32{"logs-a": 3, "logs-b": 2, "more-logs": 1}
	for topic, n := range topics {
		if _, err := s.adm.CreateTopic(ctx, n, 2, nil, topic); err != nil {
			return err
		}
		if err := produceEach(ctx, s.src.Bootstrap(), topic, n, 100); err != nil {
			return err
		}
	}
	err := errors.Join(s.mirror(ctx, "logs", "--topics", "logs-.*"), s.mirror(ctx, "more", "--topics", "more-logs"),
		s.states(ctx, "logs", "MIRRORING", 5), s.states(ctx, "more", "MIRRORING", 1))
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		var err error
		for writing.Err() == nil && err == nil {
			for topic, n := range topics {
				err = errors.Join(err, produceEach(ctx, s.src.Bootstrap(), topic, n, 10))
			}
		}
		done <- err
	}()
	a, b := s.src.Brokers, s.c.Brokers
	for _, x := range []*peertest.Broker{b[0], b[1], a[1], b[0], a[0], b[1]} {
		if err := x.Restart(ctx); err != nil {
			return err
		}
	}
	stop()
	if err := <-done; err != nil {
		return err
	}
	return errors.Join(s.states(ctx, "logs", "MIRRORING", 5), s.states(ctx, "more", "MIRRORING", 1), s.equal(ctx, s.sourceDir, topics))
}

// 28. Failed retry: 3P RF1 topic, 3 records, MIRRORING; stop all A brokers; start them again; partitions become FAILED, then MIRRORING by
// automatic retry; 3 more records arrive, B has 6.
func (s *scenarios) failedRetry(ctx context.Context) error {
	const topic = "retried"
	if _, err := s.adm.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
		return err
	}
	if err := produceEach(ctx, s.src.Bootstrap(), topic, 3, 1); err != nil {
		return err
	}
	if err := errors.Join(s.mirror(ctx, "retry", "--topics", topic), s.states(ctx, "retry", "MIRRORING", 3)); err != nil {
		return err
	}
	for _, b := range s.src.Brokers {
		if err := b.Kill(); err != nil {
			return err
		}
	}
	if err := s.states(ctx, "retry", "FAILED", 3); err != nil {
		return err
	}
	for _, b := range s.src.Brokers {
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range s.src.Brokers {
		if err := b.AwaitReady(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(s.states(ctx, "retry", "MIRRORING", 3), produceEach(ctx, s.src.Bootstrap(), topic, 3, 1)); err != nil {
		return err
	}
	return s.readable(ctx, topic, 6)
}
