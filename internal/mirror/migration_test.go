package mirror_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
	"milena/mirroradm"
)

// migrated are the topics of scenarios 29 to 35 with their partitions.
func migrated() map[string]int32 {
	return map[string]int32{"my-topic-a": 3, "my-topic-b": 1, "new-topic": 2}
}

// 29. Mirroring and sync: 3 topics (3P, 1P, 2P), A restarted to raise epochs, 100 records each, a group on one topic, retention.ms=100002
// set; mirror with two start commands (my-topic.*, new-topic); lag 0, the group appears on B, retention.ms is equal on B.
func TestScenario29(t *testing.T) {
	a, b := migration(t)
	a.commitTo("g", "new-topic", map[int32]int64{0: 40, 1: 50})
	eventually(t, func() error {
		got, err := b.adm.FetchOffsets(t.Context(), "g")
		if err != nil {
			return err
		}
		for p, want := range map[int32]int64{0: 40, 1: 50} {
			if o, ok := got.Lookup("new-topic", p); !ok || o.At != want {
				return fmt.Errorf("the group is at %d of partition %d, want %d", o.At, p, want)
			}
		}
		return nil
	})
	for topic := range migrated() {
		if got := b.config(topic, "retention.ms"); got != "100002" {
			t.Errorf("retention.ms of %s is %q", topic, got)
		}
	}
}

// 31. (continues 29) Stop both patterns; all STOPPED; every topic on B yields at least 100 records.
func TestScenario31(t *testing.T) {
	a, b := migration(t)
	stopMigration(t, a, b)
	for topic, n := range migrated() {
		if records := b.consume(topic, n); records < 100 {
			t.Errorf("%s yields %d records", topic, records)
		}
	}
}

// 34. Migration from 2.1.1 ZooKeeper (older): 3 topics, 100 records each, two start commands, lag 0, stop; segments equal on A and B (before
// the PID reset existed).
func TestScenario34(t *testing.T) {
	a, b := migration(t)
	stopMigration(t, a, b)
}

// 35. Migration from 3.9.1 KRaft (older): same. Topic ids and leader epochs are above zero there: A was restarted.
func TestScenario35(t *testing.T) {
	a, b := migration(t)
	stopMigration(t, a, b)
	theirs, err := a.adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := b.adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for topic, n := range migrated() {
		if ours[topic].ID != theirs[topic].ID {
			t.Errorf("%s has id %s, the source's is %s", topic, ours[topic].ID, theirs[topic].ID)
		}
		for p := range n {
			if e, s := ours[topic].Partitions[p].LeaderEpoch, theirs[topic].Partitions[p].LeaderEpoch; s < 1 || e <= s {
				t.Errorf("%s-%d has leader epoch %d, the source's is %d", topic, p, e, s)
			}
		}
	}
}

// migration mirrors three topics with two start commands, and waits until all is equal.
func migration(t *testing.T) (a, b *cluster) {
	a, b = newCluster(t, "source"), newCluster(t, "destination")
	for topic, n := range migrated() {
		a.topic(topic, n, "retention.ms", "100002")
	}
	a.restart()
	for topic, n := range migrated() {
		for i := range 100 {
			a.produce(topic, int32(i)%n, 1)
		}
	}
	b.mirror("m", a)
	b.startWith("m", []string{"my-topic.*"}, nil)
	b.begin("m", "new-topic")
	for topic, n := range migrated() {
		for p := range n {
			b.await("m", topic, p, level)
			b.awaitEnd(topic, p, a.end(topic, p))
			b.same(a, topic, p, 0)
		}
	}
	return a, b
}

// stopMigration stops both patterns. What was mirrored is the source's, to the byte; above it there is the stop's reset of the producers.
func stopMigration(t *testing.T, a, b *cluster) {
	t.Helper()
	for _, patterns := range [][]string{{"my-topic.*"}, {"new-topic"}} {
		var topics []string
		for topic := range migrated() {
			if strings.HasPrefix(topic, strings.TrimSuffix(patterns[0], ".*")) {
				topics = append(topics, topic)
			}
		}
		rs, err := b.mir.Stop(t.Context(), "m", topics, patterns)
		if err = errors.Join(err, rs.Error()); err != nil {
			t.Fatal(err)
		}
	}
	for topic, n := range migrated() {
		for p := range n {
			b.await("m", topic, p, func(p mirroradm.Partition) bool {
				return p.State == "STOPPED" && p.DestinationOffset == a.end(topic, p.Partition)+1
			})
			want, _ := a.batches(topic, p, 0)
			got, bases := b.batches(topic, p, 0)
			if end := a.end(topic, p); len(got) <= len(want) || string(got[:len(want)]) != string(want) || bases[len(bases)-1] != end {
				t.Errorf("%s-%d: %d bytes with batches at %v, the source has %d bytes up to %d", topic, p, len(got), bases, len(want), end)
			}
		}
	}
}

// 32. Unclean election migration: topic with unclean.leader.election.enable on A; A restarted; 1 record via A0; mirror; (newer: ULE flag set
// on B's topic); stop A0; 1 record via A1; hashes converge; stop A1, start A0 (it becomes leader uncleanly); 2 records via A0; hashes converge
// again; stop: STOPPED.
func TestScenario32(t *testing.T) {
	nodes := nodetest.Start(t, nodetest.Options{Controllers: 1, Brokers: 2, Props: map[string]string{"min.insync.replicas": "1", "default.replication.factor": "2"}})
	logs := &logBuffer{}
	a, b := &trio{cluster: clientsOf(t, nodes, logs), nodes: nodes}, newCluster(t, "destination")
	if _, err := a.adm.CreateTopic(t.Context(), 1, 2, map[string]*string{"unclean.leader.election.enable": kadm.StringPtr("true")}, "t"); err != nil {
		t.Fatal(err)
	}
	placed, err := a.adm.ListTopics(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	a0, a1 := placed["t"].Partitions[0].Replicas[0], placed["t"].Partitions[0].Replicas[1] // A0 is the preferred leader, and leads again at the end
	for _, id := range []int32{a0, a1} {
		a.nodes.Stop(id)
		a.nodes.StartNodes(id)
	}
	a.inSync(a0, a1)
	a.leads(a0)
	a.produce("t", 0, 1)
	b.mirrorAt("m", strings.Join(a.nodes.Addrs(), ","), a.nodes.ID)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.setTopic("t", "mirror.support.unclean.leader.election", "true")
	converges := func(id int32, end int64) {
		t.Helper()
		eventually(t, func() error {
			if got := b.end("t", 0); got != end {
				return fmt.Errorf("the mirror ends at %d, want %d", got, end)
			}
			want, err := content(a.replica(id, "t"))
			if err != nil {
				return err
			}
			if got, _ := b.batches("t", 0, 0); string(got) != want {
				return errors.New("the logs differ")
			}
			return nil
		})
	}
	a.nodes.Stop(a0)
	a.leads(a1)
	a.produce("t", 0, 1)
	converges(a1, 2)
	a.nodes.Stop(a1)
	a.nodes.StartNodes(a0)
	a.leads(a0)
	a.produce("t", 0, 2)
	converges(a0, 3)
	b.awaitTopic("m", "t")
	if got := b.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[1:value 0]" {
		t.Errorf("set aside are the records %v, want that of A1", got)
	}
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
}

// inSync waits until partition 0 of topic t has these replicas in sync.
func (c *trio) inSync(ids ...int32) {
	c.t.Helper()
	eventually(c.t, func() error {
		p := c.nodes.Node(ids[0]).Image().Partition("t", 0)
		if len(p.ISR) != len(ids) {
			return fmt.Errorf("in sync are %v", p.ISR)
		}
		return nil
	})
}

// leads has a node lead partition 0 of topic t, which it prefers or which is the only one left.
func (c *trio) leads(id int32) {
	c.t.Helper()
	eventually(c.t, func() error {
		set := kadm.TopicsSet{}
		set.Add("t", 0)
		if _, err := c.adm.ElectLeaders(c.t.Context(), kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		if p := c.nodes.Node(id).Image().Partition("t", 0); p.Leader != id {
			return fmt.Errorf("node %d leads", p.Leader)
		}
		return nil
	})
}

// commitTo commits offsets of partitions of a topic.
func (c *cluster) commitTo(group, topic string, at map[int32]int64) {
	c.t.Helper()
	o := kadm.Offsets{}
	for p, n := range at {
		o.Add(kadm.Offset{Topic: topic, Partition: p, At: n, LeaderEpoch: -1})
	}
	if err := c.adm.CommitAllOffsets(c.t.Context(), group, o); err != nil {
		c.t.Fatal(err)
	}
}

// consume reads all partitions of a topic from their starts to their ends, and counts the records.
func (c *cluster) consume(topic string, partitions int32) (n int) {
	c.t.Helper()
	from, open := map[int32]kgo.Offset{}, map[int32]int64{}
	for p := range partitions {
		if from[p] = kgo.NewOffset().AtStart(); c.end(topic, p) > 0 {
			open[p] = c.end(topic, p)
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.KeepControlRecords(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	for len(open) > 0 {
		fs := cl.PollFetches(c.t.Context())
		if err := fs.Err(); err != nil {
			c.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if r.Offset+1 >= open[r.Partition] {
				delete(open, r.Partition)
			}
		})
	}
	return n
}
