package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
	"milena/internal/peertest/history"
)

// clusterMoves moves leaders and group coordinators around under producers and groups of Java, librdkafka and franz-go. No
// group has a reset policy: a client that is told of lost data, or of an offset that isn't there, ends.
type clusterMoves struct {
	*part
	c       *peertest.Cluster
	servers []string
	adm     *kadm.Client
	h       *history.History

	mu    sync.Mutex
	acked [watchedPartitions]int

	probe     *history.Probe
	member    *history.Member
	producers []*peertest.Process
	consumers []*peertest.Process
	stopWatch func()
}

const (
	watchedTopic      = "watched"
	watchedPartitions = 3
	// moveRounds moves each partition once.
	moveRounds = 35
)

func moveGroups() []string { return []string{"java", "librdkafka", "franz-go"} }

func runClusterMoves(ctx context.Context, p *part) error {
	m := &clusterMoves{part: p, h: history.New()}
	return p.steps(ctx,
		step{"start three nodes and the clients", m.start},
		step{"a hundred leader moves by election", m.elections},
		step{"leaders move by a stop", func(ctx context.Context) error { return m.lose(ctx, (*peertest.Broker).Stop) }},
		step{"leaders move by kill -9", func(ctx context.Context) error { return m.lose(ctx, (*peertest.Broker).Kill) }},
		step{"everything is there once, in order", m.finish},
	)
}

func (m *clusterMoves) start(ctx context.Context) (err error) {
	if m.c, err = m.newCluster(ctx, "cluster", 3, map[string]string{"min.insync.replicas": "2"}); err != nil {
		return err
	}
	m.servers = strings.Split(m.c.Bootstrap(), ",")
	if m.adm, err = m.admin(m.c.Bootstrap()); err != nil {
		return err
	}
	if _, err := m.adm.CreateTopic(ctx, watchedPartitions, 3, nil, watchedTopic); err != nil {
		return err
	}
	var zero kadm.Offsets
	for p := range int32(watchedPartitions) {
		zero.AddOffset(watchedTopic, p, 0, -1)
	}
	for _, g := range moveGroups() {
		err := peertest.WaitFor(ctx, 20*time.Second, "first commit of "+g, func(ctx context.Context) error {
			rs, err := m.adm.CommitOffsets(ctx, g, zero)
			return errors.Join(err, rs.Error())
		})
		if err != nil {
			return err
		}
	}
	if err := m.startClients(); err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 40*time.Second, "each group reads", func(context.Context) error {
		_, reads := m.h.Counts()
		for _, g := range moveGroups() {
			if reads[g] == 0 {
				return fmt.Errorf("group %s has read nothing", g)
			}
		}
		return m.running()
	})
}

// javaClient is one of Kafka's verifiable tools with properties of its own.
func (m *clusterMoves) javaClient(tool string, props map[string]string, args ...string) (peertest.Command, error) {
	file := filepath.Join(m.dir, tool+".properties")
	if err := peertest.WriteProperties(file, props); err != nil {
		return peertest.Command{}, err
	}
	c := m.kafka.Command(tool, append([]string{"--bootstrap-server", m.c.Bootstrap(), "--topic", watchedTopic, "--command-config", file}, args...)...)
	c.Env = []string{"KAFKA_HEAP=128m", "KAFKA_LOG_LEVEL=error"}
	return c, nil
}

func (m *clusterMoves) startClients() error {
	producer, err := m.javaClient("verifiable-producer", map[string]string{
		// The tool itself asks for no retries, which an idempotent producer can't do without.
		"enable.idempotence": "true", "retries": "2147483647", "linger.ms": "5", "retry.backoff.max.ms": "500", "request.timeout.ms": "4000",
	}, "--max-messages", "-1", "--throughput", "100", "--value-prefix", "7", "--repeating-keys", "20", "--acks", "-1")
	if err != nil {
		return err
	}
	consumer, err := m.javaClient("verifiable-consumer", map[string]string{"metadata.max.age.ms": "5000"},
		"--group-id", "java", "--verbose", "--reset-policy", "none", "--session-timeout", "10000")
	if err != nil {
		return err
	}
	python := func(args ...string) peertest.Command {
		script := filepath.Join(m.root, "test", "chaos", "librdkafka_client.py")
		return peertest.Command{Path: filepath.Join(peertest.CacheDir(m.root), "venv", "bin", "python"), Args: append([]string{"-u", script}, args...)}
	}
	for _, c := range []struct {
		name, group string
		command     peertest.Command
		into        *[]*peertest.Process
	}{
		{"java-producer", "", producer, &m.producers},
		{"librdkafka-producer", "", python("produce", m.c.Bootstrap(), watchedTopic, "r", "100"), &m.producers},
		{"java-consumer", "java", consumer, &m.consumers},
		{"librdkafka-consumer", "librdkafka", python("consume", m.c.Bootstrap(), watchedTopic, "librdkafka", "error"), &m.consumers},
	} {
		c.command.Lines = func(l string) { m.h.Line(c.name, c.group, l) }
		p, err := m.part.start(c.name, c.command)
		if err != nil {
			return err
		}
		*c.into = append(*c.into, p)
	}
	if m.member, err = history.StartMember(m.servers, watchedTopic, "franz-go", m.h); err != nil {
		return err
	}
	m.onCleanUp(func() error { m.member.Close(); return nil })
	if m.probe, err = history.StartProbe(m.servers, watchedTopic, watchedPartitions, m.h, m.noteAck); err != nil {
		return err
	}
	watch, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := history.WatchCommits(watch, m.servers, watchedTopic, moveGroups(), m.h); err != nil {
			m.h.Breakf("watching committed offsets: %v", err)
		}
	}()
	m.stopWatch = sync.OnceFunc(func() { cancel(); <-done })
	m.onCleanUp(func() error { m.stopWatch(); return nil })
	return nil
}

func (m *clusterMoves) noteAck(partition int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked[partition]++
}

// running is nil as long as all clients run and nothing is broken.
func (m *clusterMoves) running() error {
	for _, p := range append(m.producers, m.consumers...) {
		if err := p.Running(); err != nil {
			return err
		}
	}
	if broken := m.h.Broken(); len(broken) > 0 {
		return errors.New(strings.Join(broken, "\n"))
	}
	return nil
}

// awaitWrites waits until each partition has taken records twice from now on.
func (m *clusterMoves) awaitWrites(ctx context.Context) error {
	m.mu.Lock()
	from := m.acked
	m.mu.Unlock()
	return peertest.WaitFor(ctx, 20*time.Second, "all partitions are written to", func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for p, n := range from {
			if m.acked[p] < n+2 {
				return fmt.Errorf("%s-%d takes no records", watchedTopic, p)
			}
		}
		return nil
	})
}

func (m *clusterMoves) elections(ctx context.Context) error {
	for round := range moveRounds {
		if err := m.elect(ctx, int32(1+round%3)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := errors.Join(m.awaitWrites(ctx), m.running()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	ts, err := m.adm.ListTopics(ctx, watchedTopic)
	if err != nil {
		return err
	}
	epochs := int32(0)
	for _, p := range ts[watchedTopic].Partitions {
		epochs += p.LeaderEpoch
	}
	if epochs < 100 {
		return fmt.Errorf("the leader epochs are %d in all, want 100 moves", epochs)
	}
	return nil
}

// elect makes a node the leader of all partitions, those of the groups included: first of the replicas, then elected.
func (m *clusterMoves) elect(ctx context.Context, to int32) error {
	topics := map[string]int32{watchedTopic: watchedPartitions, "__consumer_offsets": 5}
	order := []int32{to, 1 + to%3, 1 + (to+1)%3}
	var req kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	for topic, n := range topics {
		for p := range n {
			req.Assign(topic, p, order)
			set.Add(topic, p)
		}
	}
	resp, err := m.adm.AlterPartitionAssignments(ctx, req)
	if err := errors.Join(err, resp.Error()); err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 20*time.Second, fmt.Sprintf("node %d leads", to), func(ctx context.Context) error {
		if _, err := m.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		ts, err := m.adm.ListTopics(ctx, watchedTopic, "__consumer_offsets")
		if err != nil {
			return err
		}
		for topic, n := range topics {
			for p := range n {
				if got := ts[topic].Partitions[p].Leader; got != to {
					return fmt.Errorf("%s-%d is led by %d", topic, p, got)
				}
			}
		}
		return nil
	})
}

// lose makes node 2 the leader of everything, ends it, and starts it again.
func (m *clusterMoves) lose(ctx context.Context, end func(*peertest.Broker) error) error {
	if err := m.elect(ctx, 2); err != nil {
		return err
	}
	lost := m.c.Brokers[1]
	if err := end(lost); err != nil {
		return err
	}
	if err := m.awaitWrites(ctx); err != nil {
		return err
	}
	if err := lost.Start(ctx); err != nil {
		return err
	}
	err := peertest.WaitFor(ctx, 30*time.Second, "all replicas in sync", func(ctx context.Context) error {
		return history.ClusterHealth(ctx, m.servers, watchedTopic, 3)
	})
	return errors.Join(err, m.awaitWrites(ctx), m.running())
}

func (m *clusterMoves) finish(ctx context.Context) error {
	for _, p := range m.producers {
		if err := p.Stop(30 * time.Second); err != nil {
			return fmt.Errorf("a producer did not deliver its last records: %w", err)
		}
	}
	if err := m.probe.Close(); err != nil {
		return err
	}
	listed, err := m.adm.ListEndOffsets(ctx, watchedTopic)
	if err != nil {
		return err
	}
	ends := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset })
	err = peertest.WaitFor(ctx, 30*time.Second, "the groups come to the end", func(context.Context) error {
		return m.h.Reached(ends, moveGroups()...)
	})
	if err != nil {
		return err
	}
	for _, p := range m.consumers { // each has read on to the end
		if err := p.Running(); err != nil {
			return err
		}
	}
	m.stopWatch()
	back, err := history.ReadTopic(ctx, m.servers, watchedTopic, ends)
	if err != nil {
		return err
	}
	if broken := m.h.Check(ends, back); len(broken) > 0 {
		return errors.New(strings.Join(broken, "\n"))
	}
	for p := range int32(watchedPartitions) {
		for _, b := range m.c.Brokers[1:] {
			if _, err := peertest.Compare(m.c.Brokers[0].PartitionDir(watchedTopic, p), b.PartitionDir(watchedTopic, p), peertest.CompareOptions{}); err != nil {
				return fmt.Errorf("the replicas of %s-%d differ: %w", watchedTopic, p, err)
			}
		}
	}
	acked, _ := m.h.Counts()
	m.logf("%d records acknowledged, ends %v", acked, ends)
	return nil
}
