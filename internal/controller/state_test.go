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
	case key == "cleanup.policy", key == "a", key == "b", key == minISRKey, key == uncleanKey, key == "retention.ms" && strings.Trim(value, "-0123456789") == "":
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

func (rules) Canonical(_ int8, key string) string    { return key }
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
	// replaced are topics with a replica that was made anew on another disk: of those it may
	// be true that nobody is known any more who has the records.
	replaced map[ids.UUID]bool
	// observe, if not nil, follows each command that left records.
	observe func(before *meta.Image)
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
	before := b.s.Image()
	for _, rec := range r.Records {
		b.s.Apply(int64(len(b.log)), rec)
		b.log = append(b.log, rec)
	}
	if b.s.broken != nil {
		b.t.Fatalf("a command's records can't be applied: %v", b.s.broken)
	}
	if b.observe != nil && len(r.Records) > 0 {
		b.observe(before)
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

// failover gives the log to a new controller.
func (b *bench) failover() {
	b.t.Helper()
	s := New(b.s.o)
	for i, r := range b.log {
		s.Apply(int64(i), r)
	}
	b.s, b.timers = s, map[string]timer{}
	s.Bind(b)
	s.Loaded(b.now)
	b.run(s.Activate(b.now))
}

func incarnation(broker int32, n byte) ids.UUID { return ids.UUID{0: 9, 14: byte(broker), 15: n} }

func (b *bench) registration(broker int32, n byte) Registration {
	return Registration{
		BrokerID: broker, ClusterID: "c", Incarnation: incarnation(broker, n),
		Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 9092}},
		Features:  Features(), PreviousEpoch: -1,
		LogDirs: []ids.UUID{{0: 8, 15: byte(broker)}},
	}
}

func (b *bench) register(broker int32, n byte, rack string) any {
	r := b.registration(broker, n)
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

// assigned is a topic with these replicas, partition by partition.
func assigned(name string, replicas ...[]int32) NewTopic {
	t := NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{}}
	for i, r := range replicas {
		t.Assignments[int32(i)] = r
	}
	return t
}

// with sets a config on a topic to be created.
func (t NewTopic) with(key, value string) NewTopic {
	if t.Configs == nil {
		t.Configs = map[string]*string{}
	}
	t.Configs[key] = &value
	return t
}

// silence lets the sessions of the brokers end, while the others keep theirs.
func (b *bench) silence(brokers ...int32) {
	for range 5 {
		b.pass(b.s.o.SessionTimeout / 4)
		for br := range b.s.Image().Brokers() {
			if !br.Fenced && !slices.Contains(brokers, br.ID) {
				b.beat(br.ID, nil)
			}
		}
	}
}

func str(s string) *string { return &s }

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

// min.insync.replicas is one value for leaders and controllers: the first controller that has more than 1 writes it down, and what
// the metadata has wins over every properties file from then on (KIP-966).
func TestMinISRIsFixedForTheCluster(t *testing.T) {
	minISR := func(n int) func(*Options) { return func(o *Options) { o.MinISR = n } }
	stored := func(b *bench) string { return b.s.Image().Config(meta.ResourceBroker, "")[minISRKey] }
	one := newBench(t, minISR(1))
	if got := stored(one); got != "" {
		t.Errorf("the default was written down: %s", got)
	}
	two := newBench(t, minISR(2))
	if got := stored(two); got != "2" {
		t.Errorf("stored %q, want 2", got)
	}
	two.s.o.MinISR = 3 // a controller with another file takes over
	if r := two.s.Activate(two.now); len(r.Records) != 0 || two.s.minISR(two.s.Image(), "a") != 2 {
		t.Errorf("another file changed it: %d records", len(r.Records))
	}
	cluster := AlterResource{Resource: meta.Resource{Type: meta.ResourceBroker}, Changes: []ConfigChange{{Key: minISRKey, Op: DeleteConfig}}}
	if _, err := two.s.PlanConfigs(cluster); code(err) != api.InvalidConfig {
		t.Errorf("it was removed: %v", err)
	}
	one.s.o.MinISR = 2 // in a log that isn't empty
	if one.run(one.s.Activate(one.now)); stored(one) != "2" {
		t.Errorf("stored %q, want 2", stored(one))
	}
}

func TestABrokenLogIsRefused(t *testing.T) {
	s := New(Options{ClusterID: "c", Configs: rules{}, Random: seeded(1)})
	s.Apply(0, machine.Record{Value: []byte("?")})
	if r := s.RegisterBroker(time.Now(), Registration{BrokerID: 1, ClusterID: "c", Incarnation: incarnation(1, 1), Endpoints: make([]meta.Endpoint, 1)}); r.Err == nil {
		t.Error("a command ran on a log that can't be applied")
	}
}

// assign is AssignDirs of one replica.
func (b *bench) assign(broker int32, epoch int64, a DirAssignment) any {
	b.t.Helper()
	img := b.s.Image()
	if p := img.TopicByID(a.Topic).Partition(a.Partition); p != nil && madeAnew(img.Broker(broker), p, a.Dir) {
		if b.replaced == nil {
			b.replaced = map[ids.UUID]bool{}
		}
		b.replaced[a.Topic] = true
	}
	return b.run(b.s.AssignDirs(b.now, broker, epoch, []DirAssignment{a}))
}
