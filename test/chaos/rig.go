package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/peertest/history"
)

const (
	topic      = "chaos"
	partitions = int32(6)
	// diskBytes is the size of each node's file system.
	diskBytes = 768 << 20
	// javaPrefix is the producer of Kafka's verifiable producer, whose prefixes are numbers.
	javaPrefix = "7"
	// perSecond is what the Java and the librdkafka producer send, each.
	perSecond = 150
	// healWithin is how long a cluster may take, from the end of a fault, until all replicas are in sync.
	healWithin = 90 * time.Second
)

// rig is the cluster, the clients and what they said. Used by one goroutine, but for what says otherwise.
type rig struct {
	o       options
	root    string
	rand    *rand.Rand
	net     *network
	cluster *peertest.Cluster
	servers []string
	kafka   *peertest.KafkaTools
	h       *history.History
	gaps    *gaps
	log     *eventLog

	probe     *history.Probe
	members   []*history.Member
	producers []*peertest.Process
	consumers []*peertest.Process
	stopWatch func()
	// mayExit are nodes that may end by themselves now: their disk is full.
	mayExit map[int32]bool
	down    map[int32]bool // killed by this test
}

func inside(ctx context.Context, o options) (int, error) {
	began := time.Now()
	r := &rig{o: o, h: history.New(), gaps: newGaps(began), rand: rand.New(rand.NewPCG(o.seed, 0)), mayExit: map[int32]bool{}, down: map[int32]bool{}}
	events, err := os.Create(filepath.Join(o.dir, "events.log"))
	if err != nil {
		return 2, err
	}
	defer events.Close()
	r.log = &eventLog{began: began, write: func(s string) {
		fmt.Fprint(os.Stderr, s)
		fmt.Fprint(events, s)
	}}
	r.log.printf("chaos --target %s --minutes %g --seed %d --phases %s", o.target, o.minutes, o.seed, o.phases)
	broken, err := r.run(ctx)
	r.end()
	if err != nil && ctx.Err() != nil {
		return 2, fmt.Errorf("interrupted: %w", err)
	}
	lines, longest := r.gaps.report()
	for _, l := range lines {
		r.log.printf("%s", l)
	}
	acked, reads := r.h.Counts()
	r.log.printf("longest time a partition was not writable: %.1f s; %d records acknowledged; read by the groups: %v", longest.Seconds(), acked, reads)
	if err != nil {
		broken = append(broken, err.Error())
	}
	if len(broken) > 0 {
		for _, b := range broken {
			r.log.printf("BROKEN: %s", b)
		}
		r.keepData()
		fmt.Printf("chaos FAILED %.0f\n", time.Since(began).Seconds())
		return 1, nil
	}
	fmt.Printf("chaos ok %.0f\n", time.Since(began).Seconds())
	return 0, nil
}

// run is the whole test; it returns the promises that were broken, or an error that kept it from its end.
func (r *rig) run(ctx context.Context) ([]string, error) {
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"set up", r.setUp}, {"start clients", r.startClients}, {"steady", r.steady},
	} {
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, name := range r.o.phaseNames() {
		r.log.printf("phase %s", name)
		if err := phases()[name](r, ctx); err != nil {
			return r.h.Broken(), fmt.Errorf("phase %s: %w", name, err)
		}
	}
	return r.finish(ctx)
}

func (r *rig) setUp(ctx context.Context) (err error) {
	if r.root, err = peertest.ModuleRoot(); err != nil {
		return err
	}
	if r.kafka, err = peertest.FindKafkaTools(r.root); err != nil {
		return err
	}
	if err := privateMounts(); err != nil {
		return err
	}
	if r.net, err = newNetwork(ctx, r.o.nodes); err != nil {
		return err
	}
	for i := 1; i <= r.o.nodes; i++ {
		if err := mountSized(r.disk(int32(i)), diskBytes); err != nil {
			return err
		}
	}
	o := peertest.ClusterOptions{Binary: r.o.milena, Tools: r.kafka, Dir: r.o.dir, Nodes: r.o.nodes,
		Place: func(node int) peertest.Place {
			return peertest.Place{Host: nodeAddr(node), Netns: netnsName(node), DataDir: filepath.Join(r.disk(int32(node)), "data")}
		},
		Properties: map[string]string{"log.segment.bytes": "4194304", "min.insync.replicas": strconv.Itoa(min(2, r.o.nodes)),
			"num.network.threads": "2", "num.io.threads": "4"}}
	if r.o.target == "kafka" {
		o.Binary = ""
	}
	if r.cluster, err = peertest.NewCluster(ctx, o); err != nil {
		return err
	}
	if err := r.cluster.Start(ctx); err != nil {
		return err
	}
	r.servers = strings.Split(r.cluster.Bootstrap(), ",")
	r.log.printf("%d nodes of %s run", r.o.nodes, r.o.target)
	return r.createTopic(ctx)
}

// disk is where the file system of a node's data is mounted.
func (r *rig) disk(node int32) string { return filepath.Join(r.o.dir, fmt.Sprintf("disk%d", node)) }

func (r *rig) createTopic(ctx context.Context) error {
	cl, err := kgo.NewClient(history.Quick(r.servers)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	made, err := adm.CreateTopic(ctx, partitions, int16(min(r.o.nodes, 3)), nil, topic)
	if err := errors.Join(err, made.Err); err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	// Each group begins at the beginning, so that no reset policy is needed: a reset would hide a loss.
	var zero kadm.Offsets
	for p := range partitions {
		zero.AddOffset(topic, p, 0, -1)
	}
	for _, g := range groups() {
		err := peertest.WaitFor(ctx, 30*time.Second, "first commit of "+g, func(ctx context.Context) error {
			rs, err := adm.CommitOffsets(ctx, g, zero)
			return errors.Join(err, rs.Error())
		})
		if err != nil {
			return err
		}
	}
	return r.awaitHealth(ctx, 30*time.Second)
}

func groups() []string { return []string{"franz-go", "java", "librdkafka"} }

// awaitHealth waits until all replicas of everything are in sync and all partitions take writes.
func (r *rig) awaitHealth(ctx context.Context, within time.Duration) error {
	from := time.Now()
	err := peertest.WaitFor(ctx, within, "all replicas in sync", func(ctx context.Context) error {
		if err := r.supervise(ctx); err != nil {
			return err
		}
		if r.probe != nil {
			if p, d := r.gaps.since(); d > 3*time.Second {
				return fmt.Errorf("partition %d is not writable for %.1f s", p, d.Seconds())
			}
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return history.ClusterHealth(ctx, r.servers, topic, r.o.nodes)
	})
	if err == nil && r.probe != nil {
		r.log.printf("all replicas in sync after %.1f s", time.Since(from).Seconds())
	}
	return err
}

// supervise starts nodes again that ended by themselves, which only a full disk excuses.
func (r *rig) supervise(context.Context) error {
	for _, b := range r.cluster.Brokers {
		if r.down[b.ID] || b.Running() == nil {
			continue
		}
		r.log.printf("node %d ended by itself: %s", b.ID, firstLine(b.Running().Error()))
		if !r.mayExit[b.ID] {
			r.h.Breakf("node %d ended by itself", b.ID)
		}
		if err := b.Launch(); err != nil {
			return err
		}
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (r *rig) pause(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := r.supervise(ctx); err != nil {
			return err
		}
		if err := peertest.Pause(ctx, min(200*time.Millisecond, time.Until(end))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *rig) steady(ctx context.Context) error {
	r.gaps.during("nothing happens")
	if err := r.pause(ctx, 8*time.Second); err != nil {
		return err
	}
	acked, reads := r.h.Counts()
	r.log.printf("%d records acknowledged, read %v", acked, reads)
	for _, g := range groups() {
		if reads[g] == 0 {
			// A JVM on a busy machine takes its time.
			err := peertest.WaitFor(ctx, 40*time.Second, "group "+g+" reads", func(context.Context) error {
				if _, reads := r.h.Counts(); reads[g] == 0 {
					return errors.New("nothing read yet")
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// end ends what is left. The kernel would, too.
func (r *rig) end() {
	if r.stopWatch != nil {
		r.stopWatch()
	}
	for _, p := range append(r.producers, r.consumers...) {
		_ = p.Kill() // it may have ended
	}
	if r.cluster != nil {
		for _, b := range r.cluster.Brokers {
			_ = b.Kill() // it may have ended
		}
	}
}

// keepData copies the nodes' data out of their file systems, which end with this process.
func (r *rig) keepData() {
	for i := 1; i <= r.o.nodes; i++ {
		from, to := filepath.Join(r.disk(int32(i)), "data"), filepath.Join(r.o.dir, fmt.Sprintf("node%d", i), "data")
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			r.log.printf("keep the data of node %d: %v", i, err)
		}
	}
}
