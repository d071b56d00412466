package controller

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// seeded is a random source that gives the same bytes for the same seed.
func seeded(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// rules know one list ("cleanup.policy") and one number ("retention.ms").
type rules struct{}

func (rules) Validate(_ int8, _, key, value string) error {
	switch {
	case key == "cleanup.policy", key == "a", key == "b", key == "retention.ms" && strings.Trim(value, "-0123456789") == "":
		return nil
	default:
		return fmt.Errorf("invalid value %s for configuration %s", value, key)
	}
}

func (rules) ValidateAll(_ int8, _ string, entries map[string]string) error {
	if entries["a"] != "" && entries["a"] == entries["b"] {
		return errors.New("a and b must differ")
	}
	return nil
}

func (rules) List(_ int8, key string) (string, bool) { return "delete", key == "cleanup.policy" }

// bench runs commands on a state without goroutines, as the machine would.
type bench struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	s      *State
	now    time.Time
	log    []machine.Record
	timers map[string]timer
}

type timer struct {
	at  time.Time
	cmd machine.Command
}

func (b *bench) After(key string, d time.Duration, cmd machine.Command) {
	b.timers[key] = timer{b.now.Add(d), cmd}
}
func (b *bench) Cancel(key string) { delete(b.timers, key) }

func newBench(t interface {
	Helper()
	Fatalf(string, ...any)
}, edit func(*Options)) *bench {
	o := Options{
		ClusterID: "c", Random: seeded(1), Configs: rules{}, DeleteTopics: true,
		Defaults:  func(*meta.Image) (int32, int16) { return 4, 2 },
		Bootstrap: []meta.Record{&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 33}},
	}
	if edit != nil {
		edit(&o)
	}
	b := &bench{t: t, s: New(o), now: time.Unix(1000, 0), timers: map[string]timer{}}
	b.s.Bind(b)
	b.s.Loaded(b.now)
	b.run(b.s.Activate(b.now))
	return b
}

// run does what a command's result says and returns its reply.
func (b *bench) run(r machine.Result) any {
	b.t.Helper()
	if r.Err != nil {
		return r.Err
	}
	for _, rec := range r.Records {
		b.s.Apply(int64(len(b.log)), rec)
		b.log = append(b.log, rec)
	}
	if b.s.broken != nil {
		b.t.Fatalf("a command's records can't be applied: %v", b.s.broken)
	}
	return r.Reply
}

// pass lets time go by and runs the timers that are due, in order.
func (b *bench) pass(d time.Duration) {
	end := b.now.Add(d)
	for {
		first := ""
		for key, t := range b.timers {
			if !t.at.After(end) && (first == "" || t.at.Before(b.timers[first].at) || t.at.Equal(b.timers[first].at) && key < first) {
				first = key
			}
		}
		if first == "" {
			break
		}
		t := b.timers[first]
		delete(b.timers, first)
		b.now = t.at
		b.run(t.cmd(b.now))
	}
	b.now = end
}

func incarnation(broker int32, n byte) ids.UUID { return ids.UUID{0: 9, 14: byte(broker), 15: n} }

func (b *bench) register(broker int32, n byte, rack string) any {
	r := Registration{
		BrokerID: broker, ClusterID: "c", Incarnation: incarnation(broker, n),
		Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 9092}},
		Features:  []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}},
		LogDirs:   []ids.UUID{{0: 8, 15: byte(broker)}},
	}
	if rack != "" {
		r.Rack = &rack
	}
	return b.run(b.s.RegisterBroker(b.now, r))
}

func (b *bench) beat(broker int32, edit func(*Heartbeat)) any {
	h := Heartbeat{BrokerID: broker, BrokerEpoch: b.s.Image().Broker(broker).Epoch, MetadataOffset: int64(len(b.log))}
	if edit != nil {
		edit(&h)
	}
	return b.run(b.s.Heartbeat(b.now, h))
}

// up registers and unfences brokers.
func (b *bench) up(brokers ...int32) {
	b.t.Helper()
	for _, id := range brokers {
		if _, ok := b.register(id, 1, "").(int64); !ok {
			b.t.Fatalf("broker %d was not registered", id)
		}
		if r := b.beat(id, nil); r != (HeartbeatReply{CaughtUp: true}) {
			b.t.Fatalf("broker %d: heartbeat answers %+v", id, r)
		}
	}
}

func (b *bench) create(topics ...NewTopic) []TopicResult {
	b.t.Helper()
	r, ok := b.run(b.s.CreateTopics(b.now, topics, false)).([]TopicResult)
	if !ok {
		b.t.Fatalf("CreateTopics has no reply")
	}
	return r
}

func topic(name string, partitions int32, rf int16) NewTopic {
	return NewTopic{Name: name, Partitions: partitions, ReplicationFactor: rf}
}

func code(err *api.Error) api.Code {
	if err == nil {
		return api.NoError
	}
	return err.Code
}

func str(s string) *string { return &s }

// check tests the invariants of the package comment.
func (b *bench) check() {
	b.t.Helper()
	img := b.s.Image()
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			if len(p.ISR) == 0 || len(p.Dirs) != len(p.Replicas) {
				b.t.Fatalf("%s-%d has ISR %v, directories %v for replicas %v", t.Name, i, p.ISR, p.Dirs, p.Replicas)
			}
			for _, r := range p.ISR {
				if !slices.Contains(p.Replicas, r) {
					b.t.Fatalf("%s-%d: %d is in the ISR %v but not in the replicas %v", t.Name, i, r, p.ISR, p.Replicas)
				}
			}
			if p.Leader == meta.NoLeader {
				continue
			}
			if !slices.Contains(p.ISR, p.Leader) || !img.Alive(p.Leader) {
				b.t.Fatalf("%s-%d: leader %d, ISR %v, alive %v", t.Name, i, p.Leader, p.ISR, img.Alive(p.Leader))
			}
		}
	}
}

// Whatever happens, the invariants hold, epochs only grow, and a replay of the log gives
// the same metadata.
func TestInvariantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t, nil)
		incarnations := map[int32]byte{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			before := b.s.Image()
			broker := rapid.Int32Range(1, 4).Draw(t, "broker")
			known := before.Broker(broker) != nil
			switch rapid.IntRange(0, 8).Draw(t, "step") {
			case 0:
				incarnations[broker]++
				b.register(broker, incarnations[broker], rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack"))
			case 1, 2:
				if known {
					b.beat(broker, func(h *Heartbeat) { h.WantFence = rapid.IntRange(0, 5).Draw(t, "fence") == 0 })
				}
			case 3:
				if known {
					b.beat(broker, func(h *Heartbeat) { h.WantShutdown = true })
				}
			case 4:
				b.pass(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second)
			case 5, 6:
				b.create(topic(fmt.Sprintf("t%d", len(b.log)), rapid.Int32Range(1, 5).Draw(t, "partitions"), rapid.Int16Range(1, 3).Draw(t, "rf")))
			case 7:
				for x := range before.Topics() {
					b.run(b.s.CreatePartitions(b.now, []MorePartitions{{Name: x.Name, Count: int32(len(x.Partitions)) + 1}}, false))
					b.run(b.s.BumpLeaderEpochs(b.now, []EpochBump{{Topic: x.Name, Min: rapid.Int32Range(0, 20).Draw(t, "min")}}))
					break
				}
			case 8:
				for x := range before.Topics() {
					b.run(b.s.DeleteTopics(b.now, []DeleteTopic{{ID: x.ID}}))
					break
				}
			}
			b.check()
			for x := range b.s.Image().Topics() {
				old := before.TopicByID(x.ID)
				for i, p := range x.Partitions {
					if o := old.Partition(int32(i)); o != nil && (p.LeaderEpoch < o.LeaderEpoch || p.PartitionEpoch < o.PartitionEpoch ||
						o.Leader != p.Leader && p.LeaderEpoch == o.LeaderEpoch) {
						t.Fatalf("%s-%d went from %+v to %+v", x.Name, i, *o, *p)
					}
				}
			}
		}
		again := New(b.s.o)
		for i, r := range b.log {
			again.Apply(int64(i), r)
		}
		d := meta.Diff(b.s.Image(), again.Image())
		if len(d.Topics)+len(d.Brokers)+len(d.Configs)+len(d.Features) > 0 || again.Image().NextProducerID() != b.s.Image().NextProducerID() {
			t.Fatalf("the replay differs: %+v", d)
		}
	})
}

func TestActivate(t *testing.T) {
	b := newBench(t, nil)
	if got := b.s.Image().Feature(meta.MetadataVersionFeature); got != 33 {
		t.Errorf("an empty log begins with metadata.version %d, want 33", got)
	}
	if r := b.s.Activate(b.now); len(r.Records) != 0 {
		t.Errorf("a log that isn't empty gets %d records", len(r.Records))
	}
	open := mustEncode(&meta.BeginTransactionRecord{})
	b.run(machine.Result{Records: []machine.Record{open}})
	b.run(b.s.Activate(b.now))
	if b.s.draft.InTransaction() {
		t.Error("an open transaction is not taken back")
	}
}

func TestABrokenLogIsRefused(t *testing.T) {
	s := New(Options{ClusterID: "c", Configs: rules{}, Random: seeded(1)})
	s.Apply(0, machine.Record{Value: []byte("?")})
	if r := s.RegisterBroker(time.Now(), Registration{BrokerID: 1, ClusterID: "c", Incarnation: incarnation(1, 1), Endpoints: make([]meta.Endpoint, 1)}); r.Err == nil {
		t.Error("a command ran on a log that can't be applied")
	}
}
