package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/peertest/history"
)

// javaClient is a Java tool with properties of its own.
func (r *rig) javaClient(name, tool string, props map[string]string, args ...string) (peertest.Command, error) {
	file := filepath.Join(r.o.dir, name+".properties")
	all := map[string]string{"reconnect.backoff.max.ms": "500", "socket.connection.setup.timeout.ms": "2000", "metadata.max.age.ms": "5000"}
	for k, v := range props {
		all[k] = v
	}
	if err := peertest.WriteProperties(file, all); err != nil {
		return peertest.Command{}, err
	}
	c := r.kafka.Command(tool, append([]string{"--bootstrap-server", r.cluster.Bootstrap(), "--topic", topic, "--command-config", file}, args...)...)
	c.Env = []string{"KAFKA_HEAP=128m", "KAFKA_LOG_LEVEL=error"}
	return c, nil
}

func (r *rig) python(args ...string) peertest.Command {
	script := filepath.Join(r.root, "test", "chaos", "librdkafka_client.py")
	return peertest.Command{Path: filepath.Join(peertest.CacheDir(r.root), "venv", "bin", "python"), Args: append([]string{"-u", script}, args...)}
}

// launch starts a client whose lines go to line.
func (r *rig) launch(name string, c peertest.Command, line func(string)) (*peertest.Process, error) {
	c.Lines = line
	return peertest.Start(c, filepath.Join(r.o.dir, name+".log"))
}

func (r *rig) startClients(ctx context.Context) error {
	java, err := r.javaClient("java-producer", "verifiable-producer", map[string]string{
		// The tool itself asks for no retries, which an idempotent producer can't do without.
		"enable.idempotence": "true", "retries": "2147483647", "delivery.timeout.ms": "3600000", "request.timeout.ms": "4000",
		"max.block.ms": "3600000", "linger.ms": "5", "retry.backoff.max.ms": "500", "compression.type": "zstd",
	}, "--max-messages", "-1", "--throughput", fmt.Sprint(perSecond), "--value-prefix", javaPrefix, "--repeating-keys", "50", "--acks", "-1")
	if err != nil {
		return err
	}
	javaConsumer, err := r.javaClient("java-consumer", "verifiable-consumer", nil, "--group-id", "java", "--verbose", "--reset-policy", "none", "--session-timeout", "10000")
	if err != nil {
		return err
	}
	servers := r.cluster.Bootstrap()
	for _, c := range []struct {
		name, group string
		command     peertest.Command
		reads       bool
	}{
		{"java-producer", "", java, false},
		{"librdkafka-producer", "", r.python("produce", servers, topic, "r", fmt.Sprint(perSecond)), false},
		{"java-consumer", "java", javaConsumer, true},
		{"librdkafka-consumer", "librdkafka", r.python("consume", servers, topic, "librdkafka", "error"), true},
	} {
		p, err := r.launch(c.name, c.command, func(l string) { r.h.Line(c.name, c.group, l) })
		if err != nil {
			return err
		}
		if c.reads {
			r.consumers = append(r.consumers, p)
		} else {
			r.producers = append(r.producers, p)
		}
	}
	for range 2 {
		m, err := history.StartMember(r.servers, topic, "franz-go", r.h)
		if err != nil {
			return err
		}
		r.members = append(r.members, m)
	}
	watch, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := history.WatchCommits(watch, r.servers, topic, groups(), r.h); err != nil {
			r.h.Breakf("watching committed offsets: %v", err)
		}
	}()
	r.stopWatch = func() { cancel(); <-done }
	r.probe, err = history.StartProbe(r.servers, topic, partitions, r.h, r.gaps.acked)
	return err
}

// clientsRun is nil as long as all clients run.
func (r *rig) clientsRun() error {
	for _, p := range append(r.producers, r.consumers...) {
		if err := p.Running(); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the producers, lets the groups come to the end, reads all back and compares the replicas.
func (r *rig) finish(ctx context.Context) ([]string, error) {
	r.log.printf("phase end")
	r.gaps.during("nothing happens")
	if err := r.clientsRun(); err != nil {
		return nil, fmt.Errorf("a client: %w", err)
	}
	if err := r.pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	for _, p := range r.producers {
		if err := p.Stop(90 * time.Second); err != nil {
			r.h.Breakf("a producer did not deliver its last records: %v", err)
		}
	}
	if err := r.probe.Close(); err != nil {
		r.h.Breakf("%v", err)
	}
	ends, err := r.ends(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.drain(ctx, ends); err != nil {
		r.h.Breakf("%v", err)
	}
	r.stopWatch()
	r.stopWatch = nil
	for _, m := range r.members {
		m.Close()
	}
	for _, p := range r.consumers {
		if err := p.Stop(30 * time.Second); err != nil {
			r.log.printf("stop a consumer: %v", err)
		}
	}
	backs, err := r.readBack(ctx, ends)
	if err != nil {
		r.h.Breakf("%v", err)
	}
	r.log.printf("read back by franz-go, Java and librdkafka; ends %v", ends)
	broken := r.h.Check(ends, backs...)
	return append(broken, r.compareReplicas()...), nil
}

func (r *rig) ends(ctx context.Context) (map[int32]int64, error) {
	cl, err := kgo.NewClient(history.Quick(r.servers)...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	out := map[int32]int64{}
	err = peertest.WaitFor(ctx, 30*time.Second, "end offsets", func(ctx context.Context) error {
		listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		listed.Each(func(l kadm.ListedOffset) {
			if l.Err != nil {
				err = l.Err
			}
			out[l.Partition] = l.Offset
		})
		if err == nil && len(out) != int(partitions) {
			err = fmt.Errorf("%d partitions listed", len(out))
		}
		return err
	})
	return out, err
}

// drain waits until every group has committed the ends.
func (r *rig) drain(ctx context.Context, ends map[int32]int64) error {
	return peertest.WaitFor(ctx, time.Minute, "the groups come to the end", func(context.Context) error {
		return r.h.Reached(ends, groups()...)
	})
}

// readBack lets each kind of client read the topic from its beginning.
func (r *rig) readBack(ctx context.Context, ends map[int32]int64) ([]*history.ReadBack, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	franz, err := history.ReadTopic(ctx, r.servers, topic, ends)
	if err != nil {
		return []*history.ReadBack{franz}, err
	}
	java, rdkafka := history.NewReadBack("Java"), history.NewReadBack("librdkafka")
	javaCommand, err := r.javaClient("java-read-back", "verifiable-consumer", nil, "--group-id", "java-read-back", "--verbose", "--reset-policy", "earliest")
	if err != nil {
		return []*history.ReadBack{franz}, err
	}
	var errs []error
	for _, c := range []struct {
		name    string
		back    *history.ReadBack
		command peertest.Command
	}{{"Java", java, javaCommand}, {"librdkafka", rdkafka, r.python("consume", r.cluster.Bootstrap(), topic, "librdkafka-read-back", "earliest")}} {
		p, err := r.launch(c.name+"-read-back", c.command, c.back.Line)
		if err != nil {
			return []*history.ReadBack{franz}, err
		}
		errs = append(errs, peertest.WaitFor(ctx, time.Minute, c.name+" reads all back", func(context.Context) error {
			return errors.Join(p.Running(), c.back.Reached(ends))
		}))
		// What it has read is what counts; how it ends doesn't.
		_ = p.Kill()
	}
	return []*history.ReadBack{franz, java, rdkafka}, errors.Join(errs...)
}

// compareReplicas wants the batches of all replicas of all partitions equal, byte for byte.
func (r *rig) compareReplicas() []string {
	var broken []string
	var all peertest.Comparison
	for p := range partitions {
		for _, b := range r.cluster.Brokers[1:] {
			c, err := peertest.Compare(r.cluster.Brokers[0].PartitionDir(topic, p), b.PartitionDir(topic, p), peertest.CompareOptions{})
			if err != nil {
				broken = append(broken, fmt.Sprintf("replicas differ: %v", err))
				continue
			}
			all.Batches, all.Bytes = all.Batches+c.Batches, all.Bytes+c.Bytes
		}
	}
	r.log.printf("replicas compared: %d batches, %d MiB equal", all.Batches, all.Bytes>>20)
	return broken
}
