package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
)

// oldVersions are those that setup.sh fetches. 2.1 is the oldest that a present Java runs.
func oldVersions() []string { return []string{"2.1.1", "2.8.2", "3.9.1"} }

// runMirrorOld mirrors old Apache Kafkas, which keep their metadata in ZooKeeper, to three nodes: scenarios 29, 31 and 32 with each.
func runMirrorOld(ctx context.Context, p *part) error {
	m := &nodes{part: p}
	steps := []step{{"start three nodes", m.start}}
	for _, v := range oldVersions() {
		s := &oldSource{nodes: m, version: v, tag: strings.ReplaceAll(v, ".", "-")}
		steps = append(steps, step{v + ": start", s.start}, step{v + ": mirroring and sync", s.sync}, step{v + ": stop", s.stop},
			step{v + ": unclean election", s.unclean}, step{v + ": end", s.end})
	}
	return p.steps(ctx, steps...)
}

// oldSource is one of the sources.
type oldSource struct {
	*nodes
	version, tag string
	k            *peertest.OldKafka
	zk           *peertest.Process
	adm          *kadm.Client
}

// topics are those of scenario 29 with their partitions; the names differ by version, since all come to the same nodes.
func (s *oldSource) topics() map[string]int32 {
	return map[string]int32{"my-topic-a." + s.tag: 3, "my-topic-b." + s.tag: 1, s.newTopic(): 2}
}

func (s *oldSource) newTopic() string { return "new-topic." + s.tag }
func (s *oldSource) myTopics() string { return `my-topic-.*\.` + s.tag }

func (s *oldSource) start(ctx context.Context) (err error) {
	s.k, err = peertest.NewOldKafka(peertest.OldKafkaOptions{Tools: s.kafka, Version: s.version, Dir: filepath.Join(s.dir, "source-"+s.version), Brokers: 2})
	if err != nil {
		return err
	}
	if s.zk, err = s.part.start("zookeeper-"+s.version, s.k.ZooKeeper); err != nil {
		return err
	}
	for _, b := range s.k.Brokers {
		s.addBroker(b)
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range s.k.Brokers {
		if err := b.AwaitReady(ctx); err != nil {
			return err
		}
	}
	s.adm, err = s.admin(s.bootstrap())
	return err
}

func (s *oldSource) bootstrap() string { return s.k.Brokers[0].Addr + "," + s.k.Brokers[1].Addr }

func (s *oldSource) create(ctx context.Context, topic string, partitions int32, config map[string]*string) error {
	_, err := s.adm.CreateTopic(ctx, partitions, 2, config, topic)
	return err
}

// sync is scenario 29. Mirroring and sync: 3 topics (3P, 1P, 2P), A restarted to raise epochs, 100 records each, a group on one topic,
// retention.ms=100002 set; mirror with two start commands (`my-topic.*`, `new-topic`); lag 0, the group appears on B, retention.ms is
// equal on B.
func (s *oldSource) sync(ctx context.Context) error {
	retention := map[string]*string{"retention.ms": kadm.StringPtr("100002")}
	for topic, n := range s.topics() {
		if err := s.create(ctx, topic, n, retention); err != nil {
			return err
		}
	}
	for _, b := range s.k.Brokers {
		if err := b.Restart(ctx); err != nil {
			return err
		}
	}
	if err := s.wholeISR(ctx); err != nil {
		return err
	}
	for topic, n := range s.topics() {
		if err := produceEach(ctx, s.bootstrap(), topic, n, 100); err != nil {
			return err
		}
	}
	group := "group-" + s.tag
	at := kadm.Offsets{}
	at.AddOffset(s.newTopic(), 0, 40, -1)
	at.AddOffset(s.newTopic(), 1, 100, -1)
	if r, err := s.adm.CommitOffsets(ctx, group, at); err != nil || r.Error() != nil {
		return errors.Join(err, r.Error())
	}
	_, err := s.cli(ctx, "mirrors", "create", s.tag, "--source", s.bootstrap(), "--config", "mirror.groups.sync.interval.ms=500")
	if err != nil {
		return err
	}
	for _, topics := range []string{s.myTopics(), s.newTopic()} {
		if _, err := s.cli(ctx, "mirrors", "start", s.tag, "--topics", topics); err != nil {
			return err
		}
	}
	if err := s.states(ctx, s.tag, "MIRRORING", 6); err != nil {
		return err
	}
	if err := s.equal(ctx, s.k.Brokers[0].PartitionDir, s.topics()); err != nil {
		return err
	}
	return peertest.WaitFor(ctx, time.Minute, "group and configs", func(ctx context.Context) error {
		got, err := s.dstAdm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p, want := range map[int32]int64{0: 40, 1: 100} {
			if o, ok := got.Lookup(s.newTopic(), p); !ok || o.At != want {
				return fmt.Errorf("group %s is at %d of partition %d, want %d", group, o.At, p, want)
			}
		}
		for topic := range s.topics() {
			configs, err := s.dstAdm.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return err
			}
			for _, c := range configs[0].Configs {
				if c.Key == "retention.ms" && c.MaybeValue() != "100002" {
					return fmt.Errorf("%s of %s is %s", c.Key, topic, c.MaybeValue())
				}
			}
		}
		return nil
	})
}

// stop is scenario 31. Stop both patterns; all STOPPED; every topic on B yields at least 100 records.
func (s *oldSource) stop(ctx context.Context) error {
	for _, topics := range []string{s.myTopics(), s.newTopic()} {
		if _, err := s.cli(ctx, "mirrors", "stop", s.tag, "--topics", topics); err != nil {
			return err
		}
	}
	if err := s.states(ctx, s.tag, "STOPPED", 6); err != nil {
		return err
	}
	for topic := range s.topics() {
		out, err := s.cli(ctx, "consume", topic, "--from-beginning", "--exit-at-end")
		if err != nil {
			return err
		}
		if n := strings.Count(out, "\n"); n < 100 {
			return fmt.Errorf("%s yields %d records", topic, n)
		}
	}
	return nil
}

// unclean is scenario 32. Unclean election migration: topic with unclean.leader.election.enable on A; A restarted; 1 record via A0;
// mirror; (newer: ULE flag set on B's topic); stop A0; 1 record via A1; hashes converge; stop A1, start A0 (it becomes leader uncleanly);
// 2 records via A0; hashes converge again; stop: STOPPED.
func (s *oldSource) unclean(ctx context.Context) error {
	topic, name := "unclean."+s.tag, "unclean-"+s.tag
	a0, a1 := s.k.Brokers[0], s.k.Brokers[1]
	if err := s.create(ctx, topic, 1, map[string]*string{"unclean.leader.election.enable": kadm.StringPtr("true")}); err != nil {
		return err
	}
	for _, b := range s.k.Brokers {
		if err := b.Restart(ctx); err != nil {
			return err
		}
	}
	if err := s.wholeISR(ctx); err != nil {
		return err
	}
	if err := produceEach(ctx, a0.Addr, topic, 1, 1); err != nil {
		return err
	}
	if _, err := s.cli(ctx, "mirrors", "create", name, "--source", s.bootstrap(), "--topics", `unclean\.`+s.tag); err != nil {
		return err
	}
	if err := s.states(ctx, name, "MIRRORING", 1); err != nil {
		return err
	}
	if _, err := s.cli(ctx, "configs", "alter", "--topic", topic, "--set", "mirror.support.unclean.leader.election=true"); err != nil {
		return err
	}
	if err := a0.Stop(); err != nil {
		return err
	}
	if err := produceEach(ctx, a1.Addr, topic, 1, 1); err != nil {
		return err
	}
	one := map[string]int32{topic: 1}
	if err := s.equal(ctx, a1.PartitionDir, one); err != nil {
		return err
	}
	if err := a1.Stop(); err != nil {
		return err
	}
	if err := a0.Start(ctx); err != nil {
		return err
	}
	if err := produceEach(ctx, a0.Addr, topic, 1, 2); err != nil {
		return err
	}
	if err := s.equal(ctx, a0.PartitionDir, one); err != nil {
		return err
	}
	if err := s.states(ctx, name, "MIRRORING", 1); err != nil {
		return err
	}
	if out, err := s.cli(ctx, "mirrors", "cut", "list", "--mirror", name); err != nil || !strings.Contains(out, topic) {
		return fmt.Errorf("the record that the source lost is not set aside: %w: %s", err, out)
	}
	if _, err := s.cli(ctx, "mirrors", "stop", name, "--topics", topic); err != nil {
		return err
	}
	return s.states(ctx, name, "STOPPED", 1)
}

// end makes room for the next.
func (s *oldSource) end(context.Context) error {
	var errs []error
	for _, b := range s.k.Brokers {
		errs = append(errs, b.Kill())
	}
	return errors.Join(append(errs, s.zk.Kill())...)
}

// wholeISR waits until both brokers have every replica.
func (s *oldSource) wholeISR(ctx context.Context) error {
	return peertest.WaitFor(ctx, time.Minute, "whole ISRs at the source", func(ctx context.Context) error {
		ts, err := s.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, t := range ts {
			for _, p := range t.Partitions {
				if len(p.ISR) != 2 {
					return fmt.Errorf("%s-%d: in sync %v", t.Topic, p.Partition, p.ISR)
				}
			}
		}
		return nil
	})
}
