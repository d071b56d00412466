package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/peertest/history"
	"milena/mirroradm"
)

const (
	mirrorName = "dr"
	// loadTopic is written to all the time; the other topics only have to be failed over.
	loadTopic      = "load"
	loadPartitions = 6
	group          = "readers"
	// perTopic is how many partitions each of the other topics has.
	perTopic = 100
	// healWithin bounds how long after a fault everything must be mirrored again.
	healWithin = 2 * time.Minute
)

// rig is the source, the nodes and the clients of one run. Used by one goroutine.
type rig struct {
	o      options
	began  time.Time
	rand   *rand.Rand
	tools  *peertest.KafkaTools
	src    *peertest.Broker
	c      *peertest.Cluster
	cl     *kgo.Client // of the nodes
	adm    *kadm.Client
	mirror *mirroradm.Client
	srcAdm *kadm.Client
	h      *history.History
	member *history.Member
	closes []func()
	// healed is the longest time until everything was mirrored again, by kind of fault.
	healed map[string]time.Duration
}

func (r *rig) printf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%7.1f %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *rig) run(ctx context.Context) error {
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"start", r.start}, {"mirror", r.begin}, {"faults", r.faults}, {"failover", r.failover},
	} {
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (r *rig) cleanUp() {
	for _, c := range r.closes {
		c()
	}
	var errs []error
	if r.src != nil {
		errs = append(errs, r.src.Kill())
	}
	if r.c != nil {
		for _, b := range r.c.Brokers {
			errs = append(errs, b.Kill())
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.printf("cleaning up: %v", err)
	}
}

func (r *rig) client(servers []string) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(history.Quick(servers), kgo.MaxVersions(nil))...)
	if err == nil {
		r.closes = append(r.closes, cl.Close)
	}
	return cl, err
}

func (r *rig) start(ctx context.Context) (err error) {
	r.src, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: r.tools, Dir: filepath.Join(r.o.dir, "source"), Heap: "768m",
		Properties: map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	if err != nil {
		return err
	}
	if err := r.src.Launch(); err != nil {
		return err
	}
	r.c, err = peertest.NewCluster(ctx, peertest.ClusterOptions{Binary: r.o.milena, Dir: filepath.Join(r.o.dir, "nodes"), Nodes: 3,
		Properties: map[string]string{"min.insync.replicas": "2", "mirror.state.topic.num.partitions": "10"}})
	if err != nil {
		return err
	}
	if err := errors.Join(r.c.Start(ctx), r.src.AwaitReady(ctx)); err != nil {
		return err
	}
	if r.cl, err = r.client(strings.Split(r.c.Bootstrap(), ",")); err != nil {
		return err
	}
	source, err := r.client([]string{r.src.Addr})
	if err != nil {
		return err
	}
	r.adm, r.srcAdm, r.mirror = kadm.NewClient(r.cl), kadm.NewClient(source), mirroradm.NewClient(r.cl)
	return nil
}

// topics are all with their numbers of partitions.
func (r *rig) topics() map[string]int32 {
	all := map[string]int32{loadTopic: loadPartitions}
	for i, left := 0, r.o.partitions; left > 0; i, left = i+1, left-perTopic {
		all[fmt.Sprintf("many-%d", i)] = int32(min(left, perTopic))
	}
	return all
}

// begin creates the topics, gives each partition some records, mirrors all, and starts the clients.
func (r *rig) begin(ctx context.Context) error {
	for topic, n := range r.topics() {
		if _, err := r.srcAdm.CreateTopic(ctx, n, 1, nil, topic); err != nil {
			return err
		}
		if err := produce(ctx, []string{r.src.Addr}, topic, n); err != nil {
			return err
		}
	}
	args := []string{"mirrors", "create", mirrorName, "--source", r.src.Addr, "--config", "mirror.groups.sync.interval.ms=1000", "--topics", loadTopic, "--topics", "many-.*", "--bootstrap-server", r.c.Bootstrap()}
	if _, err := peertest.Run(ctx, peertest.Command{Path: r.o.milena, Args: args, Timeout: time.Minute}); err != nil {
		return err
	}
	if err := r.mirrored(ctx, 5*time.Minute); err != nil {
		return err
	}
	r.printf("%d partitions are mirrored", loadPartitions+r.o.partitions)
	r.h = history.New()
	if _, err := history.StartProbe([]string{r.src.Addr}, loadTopic, loadPartitions, r.h, func(int32) {}); err != nil {
		return err
	}
	var err error
	r.member, err = history.StartMember([]string{r.src.Addr}, loadTopic, group, r.h)
	return err
}

// mirrored waits until every partition is mirrored, with all replicas in sync and, but for those that are written to, all records.
func (r *rig) mirrored(ctx context.Context, within time.Duration) error {
	return peertest.WaitFor(ctx, within, "everything is mirrored", func(ctx context.Context) error {
		ds, err := r.mirror.Describe(ctx, mirrorName)
		if err == nil {
			err = ds.Error()
		}
		if err != nil {
			return err
		}
		if n := len(ds[0].Partitions); n != loadPartitions+r.o.partitions {
			return fmt.Errorf("%d partitions", n)
		}
		for _, p := range ds[0].Partitions {
			if p.State != "MIRRORING" || p.Topic != loadTopic && (p.DestinationOffset < 1 || p.DestinationOffset != p.SourceOffset) {
				return fmt.Errorf("%s-%d is %s at %d of %d: %s", p.Topic, p.Partition, p.State, p.DestinationOffset, p.SourceOffset, p.LastError)
			}
		}
		return r.inSync(ctx)
	})
}

func (r *rig) inSync(ctx context.Context) error {
	ts, err := r.adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	for _, t := range ts {
		for _, p := range t.Partitions {
			if len(p.ISR) != len(p.Replicas) || p.Leader < 0 {
				return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v", t.Topic, p.Partition, p.Leader, p.Replicas, p.ISR)
			}
		}
	}
	return nil
}

// groupsInLog wants no group of the nodes to stand beyond the log, at any time.
func (r *rig) groupsInLog(ctx context.Context) error {
	at, err := r.adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil // its coordinator is being moved
	}
	ends, err := r.adm.ListEndOffsets(ctx, loadTopic)
	if err != nil {
		return nil
	}
	var broken error
	at.Each(func(o kadm.OffsetResponse) {
		if end, ok := ends.Lookup(o.Topic, o.Partition); ok && end.Err == nil && o.Err == nil && o.At > end.Offset {
			broken = fmt.Errorf("group %s is at %d of %s-%d, which ends at %d", group, o.At, o.Topic, o.Partition, end.Offset)
		}
	})
	return broken
}

// produce writes a record to each partition.
func produce(ctx context.Context, servers []string, topic string, partitions int32) error {
	cl, err := kgo.NewClient(append(history.Quick(servers), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for p := range partitions {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Value: []byte("written by chaos-mirror")})
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}
