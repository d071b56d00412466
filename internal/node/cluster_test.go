package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
)

// clusterClient is one of the whole cluster, that waits for what has to move.
func clusterClient(t *testing.T, c *nodetest.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(20 * time.Millisecond), kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RecordDeliveryTimeout(30 * time.Second), kgo.RetryTimeout(20 * time.Second), kgo.UnknownTopicRetries(-1), kgo.DialTimeout(time.Second), kgo.RequestRetries(1000),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// createTopic waits for enough brokers: one may be fenced for a moment on a slow machine.
func createTopic(t *testing.T, cl *kgo.Client, name string, partitions int32, factor int16) {
	t.Helper()
	nodetest.Eventually(t, 20*time.Second, func() error {
		_, err := kadm.NewClient(cl).CreateTopic(ctx(t), partitions, factor, nil, name)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
}

// replicasEqual waits until every broker's replica of every partition of the topic holds the same records.
func replicasEqual(t *testing.T, c *nodetest.Cluster, topic string) {
	t.Helper()
	nodetest.Eventually(t, 20*time.Second, func() error { return compareReplicas(c, topic) })
}

func compareReplicas(c *nodetest.Cluster, topic string) error {
	type log struct {
		node  int32
		bytes string
	}
	have := map[int32]log{}
	for _, id := range c.IDs() {
		n := c.Node(id)
		if n == nil || n.Replicas() == nil {
			continue
		}
		mt := n.Image().TopicByName(topic)
		if mt == nil {
			return fmt.Errorf("node %d: no topic %s", id, topic)
		}
		for i := range mt.Partitions {
			p, err := n.Replicas().Get(topic, int32(i))
			if err != nil {
				continue // no replica here
			}
			l := p.Log()
			info, err := l.Read(l.StartOffset(), 64<<20, l.EndOffset(), true)
			if err != nil {
				return err
			}
			var b []byte
			for _, s := range info.Spans {
				part := make([]byte, s.Len())
				if _, err := s.ReadAt(part, 0); err != nil {
					info.Release()
					return err
				}
				b = append(b, part...)
			}
			info.Release()
			other, ok := have[int32(i)]
			switch {
			case !ok:
				have[int32(i)] = log{id, string(b)}
			case other.bytes != string(b):
				return fmt.Errorf("%s-%d: %d bytes on node %d, %d on node %d", topic, i, len(other.bytes), other.node, len(b), id)
			}
		}
	}
	if len(have) == 0 {
		return errors.New("no replica was found")
	}
	return nil
}

func leader(t *testing.T, c *nodetest.Cluster, topic string, partition int32) (id int32) {
	t.Helper()
	nodetest.Eventually(t, 20*time.Second, func() error {
		for _, n := range c.IDs() {
			if nd := c.Node(n); nd != nil {
				if p := nd.Image().Partition(topic, partition); p != nil && p.Leader >= 0 && c.Node(p.Leader) != nil {
					id = p.Leader
					return nil
				}
			}
		}
		return fmt.Errorf("%s-%d has no leader", topic, partition)
	})
	return id
}

func controller(t *testing.T, c *nodetest.Cluster) (id int32) {
	t.Helper()
	nodetest.Eventually(t, 20*time.Second, func() error {
		if id = c.ActiveController(); id == 0 {
			return errors.New("there is no active controller")
		}
		return nil
	})
	return id
}

// Three nodes of both roles go on through the loss of a partition's leader, and end up equal.
func TestThreeNodesLoseALeader(t *testing.T) {
	surviveLoss(t, func(c *nodetest.Cluster) int32 { return leader(t, c, "orders", 0) })
}

// Likewise through the loss of the active controller.
func TestThreeNodesLoseTheController(t *testing.T) {
	surviveLoss(t, func(c *nodetest.Cluster) int32 { return controller(t, c) })
}

func surviveLoss(t *testing.T, victim func(c *nodetest.Cluster) int32) {
	t.Helper()
	c := nodetest.Start(t, nodetest.Options{})
	cl := clusterClient(t, c)
	createTopic(t, cl, "orders", 3, 3)
	produce(t, cl, "orders", 0, 100)
	id := victim(c)
	c.Kill(id)
	produce(t, cl, "orders", 100, 200)
	c.StartNodes(id)
	produce(t, cl, "orders", 200, 300)
	got := consume(t, clusterClient(t, c, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 300)
	seen := map[string]int{}
	for _, v := range got {
		seen[v]++
	}
	for i := range 300 {
		if n := seen[fmt.Sprintf("v%d", i)]; n != 1 {
			t.Errorf("record v%d was read %d times", i, n)
		}
	}
	replicasEqual(t, c, "orders")
}

// within is a context of a client's step in a test.
func within(t *testing.T, d time.Duration) context.Context {
	c, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return c
}
