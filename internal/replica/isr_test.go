package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
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

// A fetch that was admitted in an earlier epoch says nothing in this one: between the look at the epoch and the count the metadata may
// have brought another leadership, whose leader had the follower's log cut.
func TestFetchOfAnEarlierEpochDoesNotCount(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 5)
	before := p.st.Load().epoch
	r.lead(1, self, before+2)
	err := p.Followed(FollowerFetch{Epoch: before, Broker: 2, BrokerEpoch: -1, Offset: 5}, time.Now())
	if code, _ := api.CodeOf(err); code != api.FencedLeaderEpoch || p.HighWatermark() != 0 {
		t.Errorf("high watermark %d, error %v", p.HighWatermark(), err)
	}
}

// A leader that misses another's epoch and leads again knows nothing of its followers' logs: the other may have had them cut.
func TestHighWatermarkForgetsFollowersWithTheEpoch(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2, 3}), 0)
	r.append(p, 5)
	fetch := func(id int32, off int64) {
		t.Helper()
		if _, err := p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, ReplicaID: id, CurrentEpoch: -1, LastFetched: -1}); err != nil {
			t.Fatal(err)
		}
	}
	fetch(2, 5)
	fetch(3, 2)
	r.lead(1, self, 7)
	fetch(3, 5)
	if hw := p.HighWatermark(); hw != 2 {
		t.Fatalf("high watermark %d: replica 2 was counted for what it had in another epoch", hw)
	}
	fetch(2, 5)
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d", hw)
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
	f.heard.at.Store(int64(500 * time.Second))
	f.outgrown(5, at(1000))
	if !f.inSync(6, at(1509), lag) || f.inSync(6, at(1511), lag) {
		t.Error("caught up until its broker's last fetch before the append")
	}
	f.heard.at.Store(int64(600 * time.Second))
	f.outgrown(6, at(1000)) // it lacks 5
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
		if err := p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: id, BrokerEpoch: 7, Offset: 5}, time.Now()); err != nil {
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
	if err := p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: 3, BrokerEpoch: 7, Offset: 10}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 10 {
		t.Fatalf("high watermark %d, want 10", hw)
	}
	// An earlier incarnation's fetch doesn't count, nor does one that isn't registered join.
	err := p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: 3, BrokerEpoch: 6, Offset: 10}, time.Now())
	wantCode(t, err, api.NotLeaderOrFollower)
	r.apply(metaISR(1, self, 2))
	if p.proposal != nil {
		t.Fatal("the proposal outlives a newer partition epoch")
	}
	if err := p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: 3, BrokerEpoch: 8, Offset: 10}, time.Now()); err != nil || p.proposal != nil {
		t.Fatalf("%v; a broker epoch that isn't registered was proposed: %+v", err, p.proposal)
	}
}

type neverAnswers struct{}

func (neverAnswers) Call(context.Context, kmsg.Request) (kmsg.Response, error) {
	return nil, errors.New("no controller")
}

// One delta raises min.insync.replicas to 2 and then takes broker 2 out of the ISR, whom the controller keeps as eligible because
// the high watermark doesn't move below the min ISR. It must not.
func TestSettingsComeBeforeTheISR(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 5)
	_ = followed(p, 2, 0)
	acked := false
	p.AwaitHW(0, 5, func(err error) { acked = err == nil })
	two := "2"
	left := metaISR(1, self).(*meta.PartitionChangeRecord)
	left.ELR = []int32{2}
	r.apply(&meta.ConfigRecord{ResourceType: meta.ResourceTopic, ResourceName: p.Topic(), Key: "min.insync.replicas", Value: &two}, left)
	if hw := p.HighWatermark(); hw != 0 || acked {
		t.Errorf("high watermark %d, acknowledged %v, with the ISR %v and an eligible replica that has nothing", hw, acked, p.InSync())
	}
}

// The controller's answer to a smaller ISR may come before the higher min.insync.replicas that it was given under: until the
// metadata tells of both, who left counts.
func TestSmallerISRWaitsForTheMetadata(t *testing.T) {
	r := newRig(t)
	r.m.opts.Controller = neverAnswers{}
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 5)
	_ = followed(p, 2, 0)
	p.shrink(time.Now().Add(time.Hour))
	pr := p.proposal
	if pr == nil || len(pr.isr) != 1 {
		t.Fatalf("proposal %+v", pr)
	}
	if p.altered(pr, alteration{epoch: p.st.Load().epoch, version: pr.version + 1, isr: []int32{self}}) {
		t.Error("what was accepted is asked for again")
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Errorf("high watermark %d by an answer alone", hw)
	}
	r.apply(metaISR(1, self))
	if hw := p.HighWatermark(); hw != 5 || p.proposal != nil {
		t.Errorf("high watermark %d, want 5; proposal %+v", hw, p.proposal)
	}
}

// Follower 3 was caught up and leaves the ISR, while its broker lives on. The high watermark waits for it to catch up again at most
// replica.lag.time.max.ms, also if nothing else happens in the partition; and no longer than until its directory is known to be lost.
func TestHighWatermarkDoesNotWaitForever(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.m.opts.Controller = neverAnswers{}
			dir := ids.UUID{0: 9}
			p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2, 3}), 0)
			r.apply(&meta.RegisterBrokerRecord{BrokerID: 2, BrokerEpoch: 6}, &meta.RegisterBrokerRecord{BrokerID: 3, BrokerEpoch: 7, LogDirs: []ids.UUID{dir, {0: 8}}})
			fetch := func(id int32, epoch, off int64) {
				if err := p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: id, BrokerEpoch: epoch, Offset: off}, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			r.append(p, 5)
			fetch(2, 6, 5)
			fetch(3, 7, 5)
			r.append(p, 1)
			acked := false
			p.AwaitHW(0, 6, func(err error) { acked = err == nil })
			fetch(2, 6, 6)
			left := metaISR(1, self, 2).(*meta.PartitionChangeRecord)
			left.Directories = []ids.UUID{{0: 1}, {0: 2}, dir}
			r.apply(left)
			if acked {
				t.Fatal("the leader runs away from a follower that is about to catch up")
			}
			if lost {
				r.apply(&meta.BrokerRegistrationChangeRecord{BrokerID: 3, BrokerEpoch: 7, LogDirs: []ids.UUID{{0: 8}}})
			} else {
				for range 40 { // broker 2 goes on fetching: its session doesn't name the partition, which has nothing new
					time.Sleep(time.Second)
					r.m.Heard(2, time.Now())
					p.shrink(time.Now())
				}
			}
			if !acked {
				t.Errorf("directory lost %v: high watermark %d of %d, ISR %v, which has everything; the produce waits on", lost, p.HighWatermark(), p.LogEndOffset(), p.InSync())
			}
		})
	}
}
