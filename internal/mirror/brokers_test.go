package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node"
	"milena/internal/node/nodetest"
	"milena/internal/replica"
	"milena/mirroradm"
)

// several is a destination of three brokers.
type several struct {
	*cluster // clients that know all brokers; it runs no node of its own
	*nodetest.Cluster
}

func newSeveral(t *testing.T) *several {
	t.Helper()
	c := nodetest.Start(t, nodetest.Options{Props: map[string]string{
		"mirror.metadata.refresh.interval.ms": "200", "mirror.failed.retry.initial.backoff.ms": "50", "mirror.failed.retry.max.backoff.ms": "200",
		"mirror.state.topic.num.partitions": "3", "mirror.coordinator.write.timeout.ms": "2000", "log.dir.reserve.bytes": "0", "request.timeout.ms": "5000",
	}})
	s := &several{&cluster{t: t}, c}
	s.cl = s.client(c.Addrs()...)
	s.adm, s.mir = kadm.NewClient(s.cl), mirroradm.NewClient(s.cl)
	s.adm.SetTimeoutMillis(5000)
	return s
}

func (s *several) client(addrs ...string) *kgo.Client {
	s.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.MaxVersions(nil), kgo.MetadataMinAge(10*time.Millisecond), kgo.ProducerLinger(0), kgo.DialTimeout(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RequestRetries(1000), kgo.RetryTimeout(20*time.Second))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(cl.Close)
	return cl
}

// bytesOf is a partition's whole log on a node.
func bytesOf(n *node.Node, topic string, partition int32) (string, error) {
	var p *replica.Partition
	p, err := n.Replicas().Get(topic, partition)
	if err != nil {
		return "", err
	}
	log := p.Log()
	info, err := log.Read(log.StartOffset(), 64<<20, log.EndOffset(), true)
	if err != nil {
		return "", err
	}
	defer info.Release()
	var b strings.Builder
	for _, span := range info.Spans {
		data, err := span.Bytes()
		if err != nil {
			return "", err
		}
		b.Write(data)
	}
	return b.String(), nil
}

// alike waits until every replica holds what the source holds, byte for byte.
func (s *several) alike(src *cluster, topic string, partitions int32) {
	s.t.Helper()
	nodetest.Eventually(s.t, 30*time.Second, func() error {
		for p := range partitions {
			want, err := bytesOf(src.n, topic, p)
			if err != nil {
				return err
			}
			for _, id := range s.IDs() {
				got, err := bytesOf(s.Node(id), topic, p)
				if err == nil && got != want {
					err = fmt.Errorf("%d bytes, the source has %d", len(got), len(want))
				}
				if err != nil {
					return fmt.Errorf("%s-%d on node %d: %w", topic, p, id, err)
				}
			}
		}
		return nil
	})
}

// described waits until each broker describes every partition as ok wants it.
func (s *several) described(topic string, partitions int, ok func(mirroradm.Partition) bool) {
	s.t.Helper()
	for i, id := range s.IDs() {
		if s.Node(id) == nil {
			continue
		}
		mir := mirroradm.NewClient(s.client(s.Addrs()[i]))
		nodetest.Eventually(s.t, 30*time.Second, func() error {
			ds, err := mir.Describe(s.t.Context(), "m")
			if err != nil {
				return err
			}
			n := 0
			for _, d := range ds {
				for _, p := range d.Partitions {
					if p.Topic != topic {
						continue
					}
					if n++; !ok(p) {
						return fmt.Errorf("by broker %d: %+v", id, p)
					}
				}
			}
			if n != partitions {
				return fmt.Errorf("broker %d shows %d of %d partitions", id, n, partitions)
			}
			return nil
		})
	}
}

// A destination of several brokers: every leader mirrors its own partitions and goes on from its local log when the lead moves;
// the replicas follow; states, progress and group offsets are the same whichever broker is asked (spec 4.10 to 4.13, 8.15,
// 8.19, 8.20, 8.23).
func TestThreeBrokersMirrorThroughTheLossOfEach(t *testing.T) {
	const partitions = 3
	src := newCluster(t, "source")
	src.topic("t", partitions)
	dst := newSeveral(t)
	dst.mirrorAt("m", src.addr, src.n.ClusterID())
	dst.begin("m", "t")

	ctx, stop := context.WithCancel(t.Context())
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			r := &kgo.Record{Topic: "t", Partition: int32(i % partitions), Value: fmt.Appendf(nil, "value %d", i)}
			if err := src.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				done <- err
				return
			}
			sent.Add(1)
		}
		done <- nil
	}()
	mirrored := func() (sum int64, err error) {
		ends, err := dst.adm.ListEndOffsets(t.Context(), "t")
		if err != nil {
			return 0, err
		}
		ends.Each(func(o kadm.ListedOffset) {
			err = errors.Join(err, o.Err)
			sum += o.Offset
		})
		return sum, err
	}
	// caughtUp waits until what the source has now is on the destination.
	caughtUp := func(when string) {
		t.Helper()
		want := sent.Load()
		nodetest.Eventually(t, 30*time.Second, func() error {
			got, err := mirrored()
			if err == nil && got < want {
				err = fmt.Errorf("%d of %d records are mirrored", got, want)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", when, err)
			}
			return nil
		})
	}
	caughtUp("at first")
	for _, id := range dst.IDs() {
		dst.Kill(id)
		more := sent.Load() + 20
		nodetest.Eventually(t, 30*time.Second, func() error {
			if n := sent.Load(); n < more {
				return fmt.Errorf("%d records were produced", n)
			}
			return nil
		})
		caughtUp(fmt.Sprintf("without node %d", id))
		dst.StartNodes(id)
		caughtUp(fmt.Sprintf("with node %d again", id))
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	dst.alike(src, "t", partitions)
	dst.described("t", partitions, level)

	// Group offsets go to the groups' coordinators, for partitions wherever they are led.
	offsets := kadm.Offsets{}
	for p := range int32(partitions) {
		offsets.Add(kadm.Offset{Topic: "t", Partition: p, At: int64(p + 1), LeaderEpoch: -1})
	}
	for _, g := range []string{"g-1", "g-2", "g-3"} {
		if err := src.adm.CommitAllOffsets(t.Context(), g, offsets); err != nil {
			t.Fatal(err)
		}
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		for _, g := range []string{"g-1", "g-2", "g-3"} {
			have, err := dst.adm.FetchOffsets(t.Context(), g)
			if err != nil {
				return err
			}
			for p := range int32(partitions) {
				if o, ok := have.Lookup("t", p); !ok || o.At != int64(p+1) {
					return fmt.Errorf("group %s is at %d of t-%d", g, o.At, p)
				}
			}
		}
		return nil
	})

	nodetest.Eventually(t, 20*time.Second, func() error { // or what follows would not show several leaders
		if _, err := dst.adm.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, nil); err != nil {
			return err
		}
		if led := leaders(dst, "t"); len(slices.Compact(slices.Sorted(slices.Values(led)))) < 2 {
			return fmt.Errorf("all partitions are led by one broker: %v", led)
		}
		return nil
	})
	dst.stop("m", "t")
	dst.described("t", partitions, func(p mirroradm.Partition) bool { return p.State == "STOPPED" && p.LastError == "" })
	for p := range int32(partitions) {
		dst.produce("t", p, 2)
	}

	// Mirrored again, what was written here goes on every replica, and with it the offsets committed behind it (spec 8.3, D3, D8).
	shared := map[int32]int64{}
	ahead := kadm.Offsets{}
	for p := range int32(partitions) {
		shared[p] = src.end("t", p)
		ahead.Add(kadm.Offset{Topic: "t", Partition: p, At: dst.end("t", p), LeaderEpoch: -1})
	}
	own := []string{"own-1", "own-2", "own-3", "own-4"}
	for _, g := range own {
		if err := dst.adm.CommitAllOffsets(t.Context(), g, ahead); err != nil {
			t.Fatal(err)
		}
	}
	dst.begin("m", "t")
	dst.described("t", partitions, level)
	for p := range int32(partitions) {
		src.produce("t", p, 3)
	}
	dst.alike(src, "t", partitions)
	dst.described("t", partitions, level)
	for _, g := range own {
		have, err := dst.adm.FetchOffsets(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(partitions) {
			if o, ok := have.Lookup("t", p); !ok || o.At != shared[p] {
				t.Errorf("group %s is at %d of t-%d, which was cut to %d", g, o.At, p, shared[p])
			}
		}
	}
}

func leaders(s *several, topic string) (out []int32) {
	for _, id := range s.IDs() {
		if n := s.Node(id); n != nil {
			for _, p := range n.Image().TopicByName(topic).Partitions {
				out = append(out, p.Leader)
			}
			return out
		}
	}
	return nil
}
