package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
	"milena/mirroradm"
)

// between is a random time.
func (r *rig) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.rand.Int64N(int64(to-from)))
}

// faults kills nodes and restarts the source at random; after each everything must be mirrored again.
func (r *rig) faults(ctx context.Context) error {
	end := time.Now().Add(time.Duration(r.o.minutes * float64(time.Minute)))
	n := 0
	for ; time.Now().Before(end); n++ {
		kind, err := r.fault(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		from := time.Now()
		if err := r.mirrored(ctx, healWithin); err != nil {
			return fmt.Errorf("after %s: %w", kind, err)
		}
		r.healed[kind] = max(r.healed[kind], time.Since(from))
		if broken := r.h.Broken(); len(broken) > 0 {
			return fmt.Errorf("the source's clients: %s", strings.Join(broken, "; "))
		}
		if err := r.groupsInLog(ctx); err != nil {
			return err
		}
		if err := peertest.Pause(ctx, r.between(0, 3*time.Second)); err != nil {
			return err
		}
	}
	r.printf("%d faults", n)
	for kind, d := range r.healed {
		r.printf("mirrored again after %s: at most %.1f s", kind, d.Seconds())
	}
	return nil
}

func (r *rig) fault(ctx context.Context) (kind string, err error) {
	node := r.c.Brokers[r.rand.IntN(len(r.c.Brokers))]
	switch dice := r.rand.IntN(100); {
	case dice < 50:
		return "a node was killed", r.bounce(ctx, node)
	case dice < 65:
		return "all nodes were killed", r.bounce(ctx, r.c.Brokers...)
	case dice < 80:
		r.printf("kill -9 the source")
		return "the source was killed", errors.Join(r.src.Kill(), peertest.Pause(ctx, r.between(0, 6*time.Second)), r.src.Start(ctx))
	case dice < 90:
		r.printf("stop the source")
		return "the source was restarted", errors.Join(r.src.Stop(), r.src.Start(ctx))
	default:
		r.printf("kill -9 the source")
		return "the source and a node were killed", errors.Join(r.src.Kill(), r.bounce(ctx, node), r.src.Start(ctx))
	}
}

// bounce kills nodes and starts them again after a while.
func (r *rig) bounce(ctx context.Context, nodes ...*peertest.Broker) error {
	for _, b := range nodes {
		r.printf("kill -9 node %d", b.ID)
		if err := b.Kill(); err != nil {
			return err
		}
	}
	if err := peertest.Pause(ctx, r.between(0, 12*time.Second)); err != nil {
		return err
	}
	for _, b := range nodes {
		r.printf("start node %d", b.ID)
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range nodes {
		if err := b.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// failover kills the source under load, fails over, and looks at what there is then.
func (r *rig) failover(ctx context.Context) error {
	acked, reads := r.h.Counts()
	r.printf("kill -9 the source; %d records were acknowledged there, %v read", acked, reads)
	if err := r.src.Kill(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	from := time.Now()
	f, err := mirroradm.StopAll(bounded, r.cl, mirrorName)
	if err != nil {
		return err
	}
	if !f.Done() {
		return fmt.Errorf("the failover is not complete: %+v", f.Partitions)
	}
	servers := strings.Split(r.c.Bootstrap(), ",")
	for topic, n := range r.topics() {
		if err := produce(bounded, servers, topic, n); err != nil {
			return fmt.Errorf("write to %s after the failover: %w", topic, err)
		}
	}
	r.printf("failover of %d partitions: %.2f s until all were STOPPED, %.2f s until all had taken a write", len(f.Partitions), f.Took.Seconds(), time.Since(from).Seconds())
	if err := r.equal(ctx, f.Partitions); err != nil {
		return err
	}
	return r.groupsKept(ctx)
}

// equal wants all nodes' batches to be the source's up to the last mirrored offset, and those behind it to be equal among the nodes.
func (r *rig) equal(ctx context.Context, ps []mirroradm.FailoverPartition) error {
	var all peertest.Comparison
	for _, p := range ps {
		if p.LastMirrored < 1 {
			return fmt.Errorf("%s-%d: last mirrored offset %d", p.Topic, p.Partition, p.LastMirrored)
		}
		first := r.c.Brokers[0].PartitionDir(p.Topic, p.Partition)
		for _, b := range r.c.Brokers {
			dir := b.PartitionDir(p.Topic, p.Partition)
			c, err := peertest.Compare(r.src.PartitionDir(p.Topic, p.Partition), dir, peertest.CompareOptions{To: p.LastMirrored})
			if err != nil {
				return err
			}
			all.Batches, all.Records, all.Bytes = all.Batches+c.Batches, all.Records+c.Records, all.Bytes+c.Bytes
			err = peertest.WaitFor(ctx, time.Minute, "equal replicas", func(context.Context) error {
				_, err := peertest.Compare(first, dir, peertest.CompareOptions{})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	r.printf("equal to the source on three nodes: %d batches, %d records, %d MiB", all.Batches, all.Records, all.Bytes>>20)
	return nil
}

// groupsKept wants the group's offsets here, at most at the end of the log.
func (r *rig) groupsKept(ctx context.Context) error {
	at, err := r.adm.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	n := 0
	at.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.Topic == loadTopic && o.At > 0 {
			n++
		}
	})
	if n != loadPartitions {
		return fmt.Errorf("group %s has offsets of %d partitions, want %d", group, n, loadPartitions)
	}
	return r.groupsInLog(ctx)
}
