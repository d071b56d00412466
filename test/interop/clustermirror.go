package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// clusterMirror mirrors a real Apache Kafka to a cluster of three nodes, each of which is killed on the way.
type clusterMirror struct {
	*part
	src            *peertest.Broker
	c              *peertest.Cluster
	srcAdm, dstAdm *kadm.Client
	load           *load
}

// clusterMirrorBytes is what is produced while nodes are killed.
const clusterMirrorBytes = 24 << 20

// clusterMirrored are the topics with their numbers of partitions, those that load.mixed writes to.
func clusterMirrored() map[string]int32 { return map[string]int32{ordersTopic: 6, eventsTopic: 4} }

func runClusterMirror(ctx context.Context, p *part) error {
	m := &clusterMirror{part: p}
	return p.steps(ctx,
		step{"start Kafka and three nodes", m.start},
		step{"create the mirror", m.create},
		step{"produce while each node is killed", m.disturb},
		step{"catch up", m.catchUp},
		step{"equal batches on all replicas", m.compare},
		step{"offsets of a group", m.groups},
		step{"stop the mirror, write, lose a node", m.stop},
	)
}

func (m *clusterMirror) start(ctx context.Context) (err error) {
	m.src, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: m.kafka, Dir: filepath.Join(m.dir, "source")})
	if err != nil {
		return err
	}
	m.addBroker(m.src)
	if err := m.src.Launch(); err != nil {
		return err
	}
	m.c, err = m.newCluster(ctx, "cluster", 3, map[string]string{"min.insync.replicas": "2", "mirror.state.topic.num.partitions": "5"})
	if err != nil {
		return err
	}
	if m.dstAdm, err = m.admin(m.c.Bootstrap()); err != nil {
		return err
	}
	if err := m.src.AwaitReady(ctx); err != nil {
		return err
	}
	m.srcAdm, err = m.admin(m.src.Addr)
	return err
}

// cli runs a command of milena's own against the cluster.
func (m *clusterMirror) cli(ctx context.Context, args ...string) (string, error) {
	return m.run(ctx, m.c.Bootstrap(), args...)
}

func (m *clusterMirror) create(ctx context.Context) error {
	for topic, n := range clusterMirrored() {
		config := map[string]*string{"retention.ms": kadm.StringPtr("-1"), "max.message.bytes": kadm.StringPtr("10485760")}
		if _, err := m.srcAdm.CreateTopic(ctx, n, 1, config, topic); err != nil {
			return err
		}
	}
	m.load = newLoad(m.src.Addr)
	m.onCleanUp(m.load.close)
	if err := m.load.open(); err != nil {
		return err
	}
	if err := m.load.mixed(ctx, 1<<20); err != nil {
		return err
	}
	_, err := m.cli(ctx, "mirrors", "create", "dr", "--source", m.src.Addr, "--config", "mirror.groups.sync.interval.ms=500", "--topics", "orders.*", "--topics", eventsTopic)
	if err != nil {
		return err
	}
	return m.inSync(ctx)
}

// inSync waits until each mirrored partition has three replicas in sync and a leader.
func (m *clusterMirror) inSync(ctx context.Context) error {
	return peertest.WaitFor(ctx, time.Minute, "three replicas in sync", func(ctx context.Context) error {
		ts, err := m.dstAdm.ListTopics(ctx, ordersTopic, eventsTopic)
		if err != nil {
			return err
		}
		for topic, n := range clusterMirrored() {
			if len(ts[topic].Partitions) != int(n) {
				return fmt.Errorf("%s has %d partitions: %w", topic, len(ts[topic].Partitions), ts[topic].Err)
			}
			for _, p := range ts[topic].Partitions {
				if len(p.Replicas) != 3 || len(p.ISR) != 3 || p.Leader < 1 {
					return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v", topic, p.Partition, p.Leader, p.Replicas, p.ISR)
				}
			}
		}
		return nil
	})
}

// mirrored is how many records the mirror says it has, and what is wrong with its partitions, if anything.
func (m *clusterMirror) mirrored(ctx context.Context) (int64, []described, error) {
	all, err := m.mirrors(ctx, m.c.Bootstrap(), "dr")
	if err != nil {
		return 0, nil, err
	}
	var n int64
	for _, p := range all[0].Partitions {
		if p.DestinationOffset != nil {
			n += *p.DestinationOffset
		}
	}
	return n, all[0].Partitions, nil
}

// disturb kills one node after the other while records are produced and mirrored; each time the mirror must go on with
// the two that are left.
func (m *clusterMirror) disturb(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		for range 12 {
			if err := m.load.mixed(ctx, clusterMirrorBytes/12); err != nil {
				done <- err
				return
			}
			if err := peertest.Pause(ctx, time.Second); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for _, b := range m.c.Brokers {
		before, _, err := m.mirrored(ctx)
		if err != nil {
			return err
		}
		if err := b.Kill(); err != nil {
			return err
		}
		err = peertest.WaitFor(ctx, time.Minute, fmt.Sprintf("mirroring goes on without node %d", b.ID), func(ctx context.Context) error {
			// Not every partition has new records at every moment.
			if err := m.load.light(ctx); err != nil {
				return err
			}
			now, ps, err := m.mirrored(ctx)
			if err != nil {
				return err
			}
			for _, p := range ps {
				if p.State != "MIRRORING" {
					return fmt.Errorf("%s-%d is %s: %s", p.Topic, p.Partition, p.State, p.LastError)
				}
			}
			if now <= before {
				return fmt.Errorf("%d records, as before", now)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := b.Start(ctx); err != nil {
			return err
		}
		if err := m.inSync(ctx); err != nil {
			return err
		}
	}
	return <-done
}

// light produces one record to each partition of the orders, beside a load that runs.
func (l *load) light(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for p := range clusterMirrored()[ordersTopic] {
		recs = append(recs, &kgo.Record{Topic: ordersTopic, Partition: p, Value: []byte("light")})
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}

func (m *clusterMirror) catchUp(ctx context.Context) error {
	ends, err := m.srcAdm.ListEndOffsets(ctx, ordersTopic, eventsTopic)
	if err != nil {
		return err
	}
	return peertest.WaitFor(ctx, time.Minute, "caught up", func(ctx context.Context) error {
		_, ps, err := m.mirrored(ctx)
		if err != nil {
			return err
		}
		if len(ps) != 10 {
			return fmt.Errorf("%d partitions described", len(ps))
		}
		for _, p := range ps {
			end, ok := ends.Lookup(p.Topic, p.Partition)
			if !ok || p.State != "MIRRORING" || p.DestinationOffset == nil || *p.DestinationOffset != end.Offset {
				return fmt.Errorf("%s-%d is %s at %s of %d, last error %q", p.Topic, p.Partition, p.State, offset(p.DestinationOffset), end.Offset, p.LastError)
			}
		}
		return nil
	})
}

// compare wants the files of all three nodes equal to the source's, batch by batch and byte by byte.
func (m *clusterMirror) compare(ctx context.Context) error {
	var all peertest.Comparison
	for topic, n := range clusterMirrored() {
		for p := range n {
			for _, b := range m.c.Brokers {
				var c peertest.Comparison
				// A follower may be a fetch behind its leader.
				err := peertest.WaitFor(ctx, 20*time.Second, "equal batches", func(context.Context) (err error) {
					c, err = peertest.Compare(m.src.PartitionDir(topic, p), b.PartitionDir(topic, p), peertest.CompareOptions{})
					return err
				})
				if err != nil {
					return err
				}
				all.Batches, all.Records, all.Bytes = all.Batches+c.Batches, all.Records+c.Records, all.Bytes+c.Bytes
			}
		}
	}
	m.logf("equal on three nodes: %d batches, %d records, %d MiB", all.Batches, all.Records, all.Bytes>>20)
	if all.Bytes < clusterMirrorBytes {
		return fmt.Errorf("the load was too easy: %d bytes", all.Bytes)
	}
	return nil
}

func (m *clusterMirror) groups(ctx context.Context) error {
	ends, err := m.srcAdm.ListEndOffsets(ctx, ordersTopic)
	if err != nil {
		return err
	}
	var at kadm.Offsets
	ends.Each(func(e kadm.ListedOffset) { at.AddOffset(e.Topic, e.Partition, e.Offset/2, -1) })
	r, err := m.srcAdm.CommitOffsets(ctx, "billing", at)
	if err != nil {
		return err
	}
	if err := r.Error(); err != nil {
		return err
	}
	want, err := m.srcAdm.FetchOffsets(ctx, "billing")
	if err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 30*time.Second, "offsets of the group", func(ctx context.Context) error {
		got, err := m.dstAdm.FetchOffsets(ctx, "billing")
		if err != nil {
			return err
		}
		return sameCommitted(got, want)
	})
}

// stop makes the cluster writable without its source, and then a node may still be lost.
func (m *clusterMirror) stop(ctx context.Context) error {
	if err := m.src.Kill(); err != nil {
		return err
	}
	out, err := m.cli(ctx, "mirrors", "stop", "dr", "--topics", "orders.*", "--topics", eventsTopic)
	if err != nil {
		return err
	}
	if err := wantAll(out, "Stopped topic "+ordersTopic, "Stopped topic "+eventsTopic); err != nil {
		return err
	}
	if err := m.c.Brokers[0].Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(m.c.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for topic, n := range clusterMirrored() {
		for p := range n {
			for i := range 50 {
				recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Value: []byte("after the stop " + strconv.Itoa(i))})
			}
		}
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return err
	}
	if err := m.c.Brokers[0].Start(ctx); err != nil {
		return err
	}
	if err := m.inSync(ctx); err != nil {
		return err
	}
	for topic, n := range clusterMirrored() {
		for p := range n {
			if err := m.sameReplicas(ctx, topic, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *clusterMirror) sameReplicas(ctx context.Context, topic string, p int32) error {
	for _, b := range m.c.Brokers[1:] {
		err := peertest.WaitFor(ctx, 20*time.Second, "equal replicas", func(context.Context) error {
			_, err := peertest.Compare(m.c.Brokers[0].PartitionDir(topic, p), b.PartitionDir(topic, p), peertest.CompareOptions{})
			return err
		})
		if err != nil {
			return err
		}
		s, err := peertest.Inspect(b.PartitionDir(topic, p))
		if err != nil {
			return err
		}
		if s.Control == 0 || !slices.IsSorted(s.Epochs) {
			return fmt.Errorf("%s-%d on node %d: %d control batches, epochs %v; want the mark of the stop, and epochs that grow", topic, p, b.ID, s.Control, s.Epochs)
		}
	}
	return nil
}
