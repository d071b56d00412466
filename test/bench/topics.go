package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peertest"
)

// creations measures on three nodes how long it takes to create many partitions in each of the ways there are: until the
// last request is answered, and until every partition is led, which it is when its leader tells its end.
func (f *flags) creations(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "milena-bench")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			fmt.Println("the nodes' logs are in", dir)
		}
	}()
	binary, err := filepath.Abs(f.binary)
	if err != nil {
		return err
	}
	c, err := peertest.NewCluster(ctx, peertest.ClusterOptions{Binary: binary, Dir: dir, Nodes: 3})
	if err != nil {
		return err
	}
	defer func() {
		for _, b := range c.Brokers {
			_ = b.Kill() // its data goes
		}
	}()
	if err := c.Start(ctx); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	t := &creations{c: c, cl: cl, adm: kadm.NewClient(cl), n: f.topics}
	t.adm.SetTimeoutMillis(int32(10 * time.Minute / time.Millisecond))
	for _, factor := range []int16{1, 3} {
		for _, way := range []struct {
			name string
			run  func(context.Context, string, int16) error
		}{
			{"one request of %d topics", t.atOnce},
			{"%d requests of one topic, 8 clients", t.oneByOne},
			{"CreatePartitions, 10 topics to %d partitions", t.partitions},
		} {
			if err := t.measure(ctx, fmt.Sprintf(way.name, f.topics), factor, way.run); err != nil {
				return fmt.Errorf("%s: %w", fmt.Sprintf(way.name, f.topics), err)
			}
		}
	}
	return nil
}

// creations is a cluster whose topics are counted.
type creations struct {
	c    *peertest.Cluster
	cl   *kgo.Client
	adm  *kadm.Client
	n    int
	runs int
}

func (t *creations) measure(ctx context.Context, what string, factor int16, run func(context.Context, string, int16) error) error {
	t.runs++
	prefix := fmt.Sprintf("run%d-", t.runs)
	var before [3]float64
	for i, b := range t.c.Brokers {
		user, sys, err := cpu(b.Pid())
		if err != nil {
			return err
		}
		before[i] = user + sys
	}
	began := time.Now()
	if err := run(ctx, prefix, factor); err != nil {
		return err
	}
	answered := time.Since(began)
	if err := t.awaitLed(ctx, prefix); err != nil {
		return err
	}
	led := time.Since(began)
	var spent []string
	for i, b := range t.c.Brokers {
		user, sys, err := cpu(b.Pid())
		if err != nil {
			return err
		}
		spent = append(spent, fmt.Sprintf("%.1f", user+sys-before[i]))
	}
	fmt.Printf("%s, replication factor %d: answered after %.1f s, all led after %.1f s; CPU seconds of the nodes %s, peak memory %s\n",
		what, factor, answered.Seconds(), led.Seconds(), strings.Join(spent, ", "), peak(t.c.Brokers[0].Pid()))
	return t.drop(ctx, prefix)
}

func (t *creations) names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func (t *creations) atOnce(ctx context.Context, prefix string, factor int16) error {
	rs, err := t.adm.CreateTopics(ctx, 1, factor, nil, t.names(prefix, t.n)...)
	return errors.Join(err, rs.Error())
}

func (t *creations) oneByOne(ctx context.Context, prefix string, factor int16) error {
	names := make(chan string, t.n)
	for _, n := range t.names(prefix, t.n) {
		names <- n
	}
	close(names)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = t.createFrom(ctx, names, factor) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// createFrom is one client that creates topic after topic.
func (t *creations) createFrom(ctx context.Context, names <-chan string, factor int16) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(t.c.Bootstrap(), ",")...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for name := range names {
		if _, err := adm.CreateTopic(ctx, 1, factor, nil, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (t *creations) partitions(ctx context.Context, prefix string, factor int16) error {
	names := t.names(prefix, 10)
	if rs, err := t.adm.CreateTopics(ctx, 1, factor, nil, names...); errors.Join(err, rs.Error()) != nil {
		return errors.Join(err, rs.Error())
	}
	rs, err := t.adm.UpdatePartitions(ctx, t.n/10, names...)
	return errors.Join(err, rs.Error())
}

// awaitLed waits until the leader of every partition of the run tells its end.
func (t *creations) awaitLed(ctx context.Context, prefix string) error {
	return peertest.WaitFor(ctx, 10*time.Minute, "all partitions led", func(ctx context.Context) error {
		resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, t.cl)
		if err != nil {
			return err
		}
		by := map[int32]map[string][]int32{} // partitions by leader and topic
		n := 0
		for _, mt := range resp.Topics {
			if !strings.HasPrefix(*mt.Topic, prefix) {
				continue
			}
			for _, p := range mt.Partitions {
				if by[p.Leader] == nil {
					by[p.Leader] = map[string][]int32{}
				}
				by[p.Leader][*mt.Topic] = append(by[p.Leader][*mt.Topic], p.Partition)
				n++
			}
		}
		if n != t.n {
			return fmt.Errorf("%d of %d partitions are there", n, t.n)
		}
		for leader, topics := range by {
			if err := t.askEnds(ctx, leader, topics); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *creations) askEnds(ctx context.Context, leader int32, topics map[string][]int32) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for topic, ps := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		for _, p := range ps {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := t.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d on node %d: %w", rt.Topic, rp.Partition, leader, err)
			}
		}
	}
	return nil
}

// drop deletes the run's topics.
func (t *creations) drop(ctx context.Context, prefix string) error {
	names, err := t.adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	var mine []string
	for _, n := range names.Names() {
		if strings.HasPrefix(n, prefix) {
			mine = append(mine, n)
		}
	}
	began := time.Now()
	rs, err := t.adm.DeleteTopics(ctx, mine...)
	if err := errors.Join(err, rs.Error()); err != nil {
		return err
	}
	err = peertest.WaitFor(ctx, time.Minute, "topics gone", func(ctx context.Context) error {
		now, err := t.adm.ListTopics(ctx)
		if err == nil && len(now) > 0 {
			err = fmt.Errorf("%d topics are left", len(now))
		}
		return err
	})
	fmt.Printf("  deleted %d topics in %.1f s\n", len(mine), time.Since(began).Seconds())
	return err
}
