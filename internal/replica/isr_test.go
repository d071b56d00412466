package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
)

func TestCommitted(t *testing.T) {
	at := func(ends ...int64) map[int32]*follower {
		m := map[int32]*follower{}
		for i, e := range ends {
			m[int32(i+2)] = &follower{end: e}
		}
		return m
	}
	for _, c := range []struct {
		name      string
		end       int64
		isr       []int32
		followers map[int32]*follower
		want      int64
	}{
		{"alone", 7, []int32{1}, nil, 7},
		{"alone in the ISR, a follower lags", 7, []int32{1}, at(3), 7},
		{"the slowest in-sync replica decides", 7, []int32{1, 2, 3}, at(5, 6), 5},
		{"out of sync doesn't hold back", 7, []int32{1, 3}, at(0, 6), 6},
		{"a follower ahead doesn't push", 7, []int32{1, 2}, at(9), 7},
		{"unknown follower", 7, []int32{1, 2}, at(-1), -1},
		{"in the ISR but not a replica", 7, []int32{1, 9}, at(7), -1},
		{"empty", 0, []int32{1, 2}, at(0), 0},
	} {
		if got := committed(1, c.end, c.isr, c.followers); got != c.want {
			t.Errorf("%s: committed = %d, want %d", c.name, got, c.want)
		}
	}
}

func TestUnderMinISR(t *testing.T) {
	for _, c := range []struct {
		replicas, isr, min int
		want               bool
	}{
		{1, 1, 1, false}, {1, 1, 2, false}, {3, 1, 2, true}, {3, 2, 2, false}, {3, 3, 9, false}, {3, 2, 9, true}, {1, 0, 1, true},
	} {
		s := &state{replicas: make([]int32, c.replicas), isr: make([]int32, c.isr)}
		if got := underMinISR(s, c.min); got != c.want {
			t.Errorf("%d replicas, %d in sync, min %d: %v, want %v", c.replicas, c.isr, c.min, got, c.want)
		}
	}
}

func TestHighWatermarkFollowsTheISR(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	r.append(p, 5)
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d before a follower fetched", hw)
	}
	fetch := func(id int32, off int64) {
		t.Helper()
		if _, err := p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, ReplicaID: id, CurrentEpoch: -1, LastFetched: -1}); err != nil {
			t.Fatal(err)
		}
	}
	done := false
	p.AwaitHW(0, 5, func(err error) { done = err == nil })
	fetch(3, 5) // not in sync: doesn't count
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d by a replica out of sync", hw)
	}
	fetch(2, 5)
	if hw := p.HighWatermark(); hw != 5 || !done {
		t.Fatalf("high watermark %d, woken %v; want 5, true", hw, done)
	}
	r.append(p, 2)
	fetch(2, 5)
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d, want 5", hw)
	}
	r.apply(metaISR(1, self, 2, 3))
	fetch(3, 6)
	fetch(2, 7)
	if hw := p.HighWatermark(); hw != 6 {
		t.Fatalf("high watermark %d with three in sync, want 6", hw)
	}
	r.apply(metaISR(1, self, 2))
	if hw := p.HighWatermark(); hw != 7 {
		t.Fatalf("high watermark %d after the ISR shrank, want 7", hw)
	}
	if _, err := p.Read(ReadParams{ReplicaID: 9, CurrentEpoch: -1, LastFetched: -1}); err == nil {
		t.Fatal("a broker without a replica could fetch as one")
	}
}

// "Caught up" is by the time when a follower last had everything, which fetches
// and the leader's appends to a log it had all of tell.
func TestFollowerInSync(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	const lag = 10 * time.Second
	f := &follower{end: -1, start: -1, lastEnd: -1, heard: new(heard)}
	if f.inSync(0, at(1000), lag) {
		t.Fatal("in sync before its first fetch")
	}
	f.fetched(5, 0, 5, at(1000)) // has all
	if !f.inSync(5, at(5000), lag) {
		t.Error("out of sync although it has everything")
	}
	if f.inSync(6, at(1011), lag) {
		t.Error("in sync 11 s after it had everything")
	}
	// A quiet log: its broker went on fetching until just before the append.
	f.heard.at.Store(at(1500).UnixNano())
	f.outgrown(5)
	if !f.inSync(6, at(1509), lag) || f.inSync(6, at(1511), lag) {
		t.Error("caught up until its broker's last fetch before the append")
	}
	f.heard.at.Store(at(1600).UnixNano())
	f.outgrown(6) // it lacks 5
	if f.inSync(7, at(1605), lag) {
		t.Error("a follower that lags is not caught up by its broker's fetches")
	}
	// Always a step behind a busy leader, but never more than what came since the fetch before.
	for s := range 100 {
		f.fetched(int64(10+s), 0, int64(11+s), at(2000+s))
	}
	if !f.inSync(200, at(2100), lag) {
		t.Error("a follower that keeps pace is out of sync")
	}
	// One that falls further behind each time.
	for s := range 100 {
		f.fetched(int64(200+s), 0, int64(300+2*s), at(3000+s))
	}
	if f.inSync(600, at(3100), lag) {
		t.Error("a follower that falls behind is in sync")
	}
}

// A leader that asks the controller for a larger ISR waits for the new member
// already; for a smaller one it waits for the old (maximal ISR).
func TestProposedMembersHoldTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.m.opts.Controller = neverAnswers{}
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	r.apply(&meta.RegisterBrokerRecord{BrokerID: 3, BrokerEpoch: 7})
	r.append(p, 5)
	for id := int32(2); id <= 3; id++ {
		if err := p.Followed(FollowerFetch{Broker: id, BrokerEpoch: 7, Offset: 5}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if p.proposal == nil || len(p.proposal.isr) != 3 || p.proposal.brokerEpochs[2] != 7 {
		t.Fatalf("proposal %+v", p.proposal)
	}
	r.append(p, 5)
	_ = followed(p, 2, 10)
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d while broker 3 is about to be in the ISR", hw)
	}
	if err := p.Followed(FollowerFetch{Broker: 3, BrokerEpoch: 7, Offset: 10}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 10 {
		t.Fatalf("high watermark %d, want 10", hw)
	}
	// An earlier incarnation's fetch doesn't count, nor does one that isn't registered join.
	err := p.Followed(FollowerFetch{Broker: 3, BrokerEpoch: 6, Offset: 10}, time.Now())
	wantCode(t, err, api.NotLeaderOrFollower)
	r.apply(metaISR(1, self, 2))
	if p.proposal != nil {
		t.Fatal("the proposal outlives a newer partition epoch")
	}
	if err := p.Followed(FollowerFetch{Broker: 3, BrokerEpoch: 8, Offset: 10}, time.Now()); err != nil || p.proposal != nil {
		t.Fatalf("%v; a broker epoch that isn't registered was proposed: %+v", err, p.proposal)
	}
}

type neverAnswers struct{}

func (neverAnswers) Call(context.Context, kmsg.Request) (kmsg.Response, error) {
	return nil, errors.New("no controller")
}
