package controller

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

func TestRegistrationIsRefused(t *testing.T) {
	good := func() Registration {
		return Registration{
			BrokerID: 1, ClusterID: "c", Incarnation: incarnation(1, 2),
			Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 1}},
			Features:  []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 40}},
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*Registration)
		want api.Code
	}{
		{"another cluster", func(r *Registration) { r.ClusterID = "d" }, api.InconsistentClusterID},
		{"a negative id", func(r *Registration) { r.BrokerID = -1 }, api.InvalidRegistration},
		{"no incarnation", func(r *Registration) { r.Incarnation = ids.UUID{} }, api.InvalidRegistration},
		{"no listener", func(r *Registration) { r.Endpoints = nil }, api.InvalidRegistration},
		{"too many directories", func(r *Registration) { r.LogDirs = make([]ids.UUID, maxClaims+1) }, api.InvalidRegistration},
		{"a directory twice", func(r *Registration) { r.LogDirs = []ids.UUID{{0: 1}, {0: 1}} }, api.InvalidRegistration},
		{"a reserved directory", func(r *Registration) { r.LogDirs = []ids.UUID{ids.LostDir} }, api.InvalidRegistration},
		{"too old for the cluster", func(r *Registration) { r.Features[0].Max = 32 }, api.UnsupportedVersion},
		{"no feature", func(r *Registration) { r.Features = nil }, api.UnsupportedVersion},
		{"while another is alive", func(*Registration) {}, api.DuplicateBrokerRegistration},
	} {
		b := newBench(t, nil)
		b.up(1)
		r := good()
		tt.edit(&r)
		err, _ := b.run(b.s.RegisterBroker(b.now, r)).(error)
		if err == nil {
			t.Errorf("%s: registered", tt.name)
			continue
		}
		if got, _ := api.CodeOf(err); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// A broker that comes back leads again, with a leader epoch for each loss and gain.
func TestRestartRaisesLeaderEpochs(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	b.create(topic("a", 1, 1))
	state := func() (leader, epoch int32) {
		p := b.s.Image().Partition("a", 0)
		return p.Leader, p.LeaderEpoch
	}
	want := func(when string, leader, epoch int32) {
		t.Helper()
		if l, e := state(); l != leader || e != epoch {
			t.Errorf("%s: leader %d epoch %d, want %d, %d", when, l, e, leader, epoch)
		}
	}
	want("created", 1, 0)
	b.pass(10 * time.Second) // its session ends
	want("fenced", meta.NoLeader, 1)
	b.register(1, 2, "")
	want("registered", meta.NoLeader, 1)
	if first := b.beat(1, func(h *Heartbeat) { h.MetadataOffset = 1 }); first != (HeartbeatReply{Fenced: true}) {
		t.Errorf("a broker that is behind is answered %+v, want fenced", first)
	}
	b.beat(1, nil)
	want("unfenced", 1, 2)
	if r := b.beat(1, func(h *Heartbeat) { h.WantShutdown = true }); r != (HeartbeatReply{CaughtUp: true}) {
		t.Errorf("a shutdown begins with %+v", r)
	}
	want("shutting down", meta.NoLeader, 3)
	if r := b.beat(1, func(h *Heartbeat) { h.WantShutdown = true }); r != (HeartbeatReply{CaughtUp: true, ShouldShutDown: true}) {
		t.Errorf("with nobody left to tell the answer is %+v, want to shut down", r)
	}
	// A new controller has not heard from the old incarnation: the next start is no duplicate.
	b.failover()
	if _, ok := b.register(1, 3, "").(int64); !ok {
		t.Error("a broker can't register at a new controller")
	}
	b.beat(1, nil)
	want("after a clean restart", 1, 4)
	if isr := b.s.Image().Partition("a", 0).ISR; !slices.Equal(isr, []int32{1}) {
		t.Errorf("ISR %v", isr)
	}
}

func TestLeadershipMovesWhenABrokerGoes(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2, 3)
	b.create(NewTopic{Name: "a", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: {2, 3, 1}}})
	b.beat(2, func(h *Heartbeat) { h.WantShutdown = true })
	p := b.s.Image().Partition("a", 0)
	if p.Leader != 3 || p.LeaderEpoch != 1 || !slices.Equal(p.ISR, []int32{3, 1}) {
		t.Errorf("after 2 shuts down: %+v, want leader 3, ISR [3 1]", *p)
	}
	if r := b.beat(2, func(h *Heartbeat) { h.WantShutdown = true }); r != (HeartbeatReply{CaughtUp: true}) {
		t.Errorf("before the others know, 2 is answered %+v", r)
	}
	b.beat(1, nil)
	b.beat(3, nil)
	if r := b.beat(2, func(h *Heartbeat) { h.WantShutdown = true }); r != (HeartbeatReply{CaughtUp: true, ShouldShutDown: true}) {
		t.Errorf("when the others know, 2 is answered %+v", r)
	}
	// Only 1 keeps its session.
	for range 4 {
		b.pass(4 * time.Second)
		b.beat(1, nil)
	}
	p = b.s.Image().Partition("a", 0)
	if p.Leader != 1 || !slices.Equal(p.ISR, []int32{1}) || !b.s.Image().Broker(3).Fenced || b.s.Image().Broker(1).Fenced {
		t.Errorf("after 3 is gone: %+v", *p)
	}
}

// A process that stood still must not fence brokers whose heartbeats stood still with it.
func TestALateTimerGivesGrace(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	late := b.now.Add(time.Hour)
	b.run(b.s.Expire(late, 1))
	if b.s.Image().Broker(1).Fenced {
		t.Error("a timer that came an hour late fenced the broker at once")
	}
	b.now = late
	b.pass(9 * time.Second)
	if !b.s.Image().Broker(1).Fenced {
		t.Error("a broker that stays silent is not fenced")
	}
}

// A broker is fenced when it was silent for its session timeout, at that moment and never before; at a new controller
// one that it hasn't heard from yet has the grace on top.
func TestWhenBrokersAreFenced(t *testing.T) {
	const timeout, grace = 9 * time.Second, time.Second
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t, func(o *Options) { o.SessionTimeout, o.Grace = timeout, grace })
		b.up(1, 2, 3)
		due := map[int32]time.Time{}
		heard := func(broker int32) { due[broker] = b.now.Add(timeout) }
		for id := range int32(3) {
			heard(id + 1)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0:
				b.failover()
				for id := range due {
					if !b.s.Image().Broker(id).Fenced {
						due[id] = b.now.Add(timeout + grace)
					}
				}
			case what < 5:
				id := rapid.Int32Range(1, 3).Draw(t, "broker")
				b.beat(id, nil) // lets in who was fenced
				heard(id)
			default:
				b.pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			}
			for id, at := range due {
				if got, want := b.s.Image().Broker(id).Fenced, !b.now.Before(at); got != want {
					t.Fatalf("%s: broker %d fenced %v, want %v: it is due at %s", b.now, id, got, want, at)
				}
			}
		}
	})
}

func TestHeartbeatOfAStranger(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	for _, tt := range []struct {
		broker int32
		epoch  int64
		want   api.Code
	}{{2, 0, api.BrokerIDNotRegistered}, {1, 99, api.StaleBrokerEpoch}} {
		r := b.s.Heartbeat(b.now, Heartbeat{BrokerID: tt.broker, BrokerEpoch: tt.epoch})
		if got, _ := api.CodeOf(r.Err); got != tt.want {
			t.Errorf("broker %d epoch %d: %v, want %v", tt.broker, tt.epoch, r.Err, tt.want)
		}
	}
}

// A partition whose directory has failed gets another leader, or none.
func TestAFailedDirectoryLosesItsLeaderships(t *testing.T) {
	b := newBench(t, nil)
	dirs := []ids.UUID{{0: 1}, {0: 2}}
	r := Registration{
		BrokerID: 5, ClusterID: "c", Incarnation: incarnation(5, 1), LogDirs: dirs,
		Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 1}},
		Features:  []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}},
	}
	b.run(b.s.RegisterBroker(b.now, r))
	b.beat(5, nil)
	b.up(6)
	b.create(NewTopic{Name: "a", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: {5, 6}, 1: {5, 6}}},
		NewTopic{Name: "b", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: {5}}})
	for i, tp := range []string{"a", "a", "b"} {
		c := meta.NewPartitionChange(b.s.Image().TopicByName(tp).ID, int32(i)%2)
		c.Directories = append([]ids.UUID{dirs[(i+1)%2]}, b.s.Image().Partition(tp, int32(i)%2).Dirs[1:]...)
		b.run(b.s.Result(nil, c))
	}
	fail := func(h *Heartbeat) { h.OfflineDirs = dirs[1:] }
	b.beat(5, fail)
	img := b.s.Image()
	if p := img.Partition("a", 0); p.Leader != 6 || !slices.Equal(p.ISR, []int32{6}) || p.LeaderEpoch != 1 {
		t.Errorf("in the failed directory: %+v, want leader 6", *p)
	}
	if p := img.Partition("a", 1); p.Leader != 5 || len(p.ISR) != 2 || p.LeaderEpoch != 0 {
		t.Errorf("in the other directory: %+v, want leader 5", *p)
	}
	if p := img.Partition("b", 0); p.Leader != meta.NoLeader || len(p.ISR) > 0 || !slices.Equal(p.LastKnownELR, []int32{5}) {
		t.Errorf("without another replica: %+v, want no leader", *p)
	}
	if got := img.Broker(5).LogDirs; !slices.Equal(got, dirs[:1]) {
		t.Errorf("the broker has directories %v", got)
	}
	before := len(b.log)
	if b.beat(5, fail); len(b.log) != before {
		t.Error("the same news made records again")
	}
	r.Incarnation, r.LogDirs = incarnation(5, 2), dirs[:1]
	b.beat(5, func(h *Heartbeat) { h.WantFence = true })
	b.run(b.s.RegisterBroker(b.now, r))
	b.beat(5, nil)
	if p := b.s.Image().Partition("b", 0); p.Leader != meta.NoLeader {
		t.Errorf("back without the directory: %+v, want no leader", *p)
	}
	r.Incarnation, r.LogDirs = incarnation(5, 3), dirs
	b.beat(5, func(h *Heartbeat) { h.WantFence = true })
	b.run(b.s.RegisterBroker(b.now, r))
	b.beat(5, nil)
	if p := b.s.Image().Partition("b", 0); p.Leader != 5 {
		t.Errorf("back with the directory: %+v, want leader 5", *p)
	}
}
