package replica

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/meta"
)

// fetchAs is a follower's fetch at off, with the epoch of its last batch.
func fetchAs(p *Partition, id int32, off int64, last int32) (ReadResult, error) {
	r, err := p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, MinOne: true, ReplicaID: id, ReplicaEpoch: -1, CurrentEpoch: -1, LastFetched: last})
	r.Release()
	return r, err
}

// What a follower was known to hold before the leader cut its log doesn't count afterwards: else the high watermark would pass records that
// the follower never got.
func TestCutForgetsFollowers(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 4)
	r.append(p, 6)
	if err := followed(p, 2, 10); err != nil || p.HighWatermark() != 10 {
		t.Fatalf("high watermark %d, %v", p.HighWatermark(), err)
	}
	if err := p.TruncateTo(4); err != nil || p.HighWatermark() != 4 {
		t.Fatalf("after the cut: high watermark %d, %v", p.HighWatermark(), err)
	}
	r.append(p, 3)
	if hw := p.HighWatermark(); hw != 4 {
		t.Fatalf("the high watermark passed records that the follower doesn't have: %d", hw)
	}
	if err := followed(p, 2, 7); err == nil {
		t.Fatal("a fetch from before the cut counts")
	}
	if err := followed(p, 2, 4); err != nil || p.HighWatermark() != 4 {
		t.Fatalf("high watermark %d, %v", p.HighWatermark(), err)
	}
	if err := followed(p, 2, 7); err != nil || p.HighWatermark() != 7 {
		t.Fatalf("high watermark %d, %v", p.HighWatermark(), err)
	}
}

// Phase 2 of a cut (spec 7.7, D5): every follower is cut to where the leader was, though the leader has as many records of the same epoch again;
// one that isn't in sync is not waited for, but cut whenever it comes.
func TestFollowersCut(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	told := 0
	p.OnAligned(func() { told++ })
	r.append(p, 4)
	r.append(p, 6)
	for _, id := range []int32{2, 3} {
		if _, err := fetchAs(p, id, 10, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	r.append(p, 8)
	if got := p.Unaligned(false); !slices.Equal(got, []int32{2}) {
		t.Errorf("waits for %v, only replica 2 is in sync", got)
	}
	if got := p.Unaligned(true); !slices.Equal(got, []int32{2, 3}) {
		t.Errorf("all replicas: waits for %v", got)
	}
	res, err := fetchAs(p, 2, 10, 0)
	if err != nil || res.DivergingEpoch != 0 || res.DivergingEnd != 4 || res.HighWatermark >= 0 {
		t.Fatalf("fetch beyond the cut: %+v, %v", res, err)
	}
	if res, err = fetchAs(p, 2, 4, 0); err != nil || res.Diverges() || told != 1 {
		t.Fatalf("fetch at the cut: %+v, %v, told %d times", res, err, told)
	}
	if got := p.Unaligned(false); len(got) != 0 {
		t.Errorf("waits for %v still", got)
	}
	if got := p.Unaligned(true); !slices.Equal(got, []int32{3}) {
		t.Errorf("all replicas: waits for %v", got)
	}
	// Raising the leader epoch changes nothing about that.
	r.lead(1, self, 5)
	if res, err = fetchAs(p, 3, 9, 0); err != nil || res.DivergingEnd != 4 {
		t.Fatalf("a replica that comes late: %+v, %v", res, err)
	}
	if _, err = fetchAs(p, 3, 4, 0); err != nil {
		t.Fatal(err)
	}
	if got := p.Unaligned(true); !slices.Equal(got, []int32{3}) {
		t.Errorf("replica 3 is not in sync yet: %v", got)
	}
	r.apply(metaISR(1, self, 2, 3))
	if got := p.Unaligned(true); len(got) != 0 {
		t.Errorf("all replicas: waits for %v still", got)
	}
}

// "A follower ahead of an empty leader ... cuts fully" (D5), and one that never had a batch has nothing to cut.
func TestFollowerOfAnEmptyLeader(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2, 3}), 0)
	p.AlignFollowers(true)
	res, err := fetchAs(p, 2, 7, 3)
	if err != nil || res.DivergingEpoch != 3 || res.DivergingEnd != 0 {
		t.Fatalf("a follower with 7 records: %+v, %v", res, err)
	}
	_, err = fetchAs(p, 3, 7, -1)
	wantCode(t, err, api.OffsetOutOfRange) // it looks for the ends of our log and begins there
	if _, err := fetchAs(p, 3, 0, -1); err != nil {
		t.Fatal(err)
	}
	if got := p.Unaligned(false); !slices.Equal(got, []int32{2}) {
		t.Errorf("waits for %v", got)
	}
}

// The guards of phase 1 (spec 7.7).
func TestMayCut(t *testing.T) {
	r := newRig(t)
	r.set.MinISR = 2
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	if err := p.MayCut(false); err != nil {
		t.Error(err)
	}
	wantCode(t, p.MayCut(true), api.NotEnoughReplicas)
	r.apply(metaISR(1, self))
	wantCode(t, p.MayCut(false), api.NotEnoughReplicas)
	r.apply(metaISR(1, self, 2, 3))
	if err := p.MayCut(true); err != nil {
		t.Error(err)
	}
	r.lead(1, 2, 1)
	wantCode(t, p.MayCut(false), api.NotLeaderOrFollower)
}

// "fetches served by a follower replica answer NOT_LEADER_OR_FOLLOWER until phase 2 is complete" (D5).
func TestFollowerServesNobodyDuringACut(t *testing.T) {
	r := newRig(t)
	r.m.SetAlignments(func(mt *meta.Topic, _ int32) *Alignment {
		if mt.Name == "t1" {
			return &Alignment{Pending: func() bool { return true }}
		}
		return nil
	})
	p := r.following(3)
	fromFollower := func(p *Partition) error {
		_, err := p.Read(ReadParams{MaxBytes: 100, ReplicaID: -1, AnyReplica: true, CurrentEpoch: -1, LastFetched: -1})
		return err
	}
	wantCode(t, fromFollower(p), api.NotLeaderOrFollower) // its leader has said nothing yet
	r.fetched(p, 3, 2, asIs(t, 0, 1, 2))
	if err := fromFollower(p); err != nil || p.HighWatermark() != 2 {
		t.Fatalf("after an ordinary answer: %v", err)
	}
	r.fetched(p, 3, -1)
	wantCode(t, fromFollower(p), api.NotLeaderOrFollower)
	if hw := p.HighWatermark(); hw != 2 {
		t.Errorf("high watermark %d", hw)
	}
	r.lead(1, 2, 4) // its own epoch was raised
	wantCode(t, fromFollower(p), api.NotLeaderOrFollower)
	r.fetched(p, 4, 2)
	if err := fromFollower(p); err != nil {
		t.Fatal(err)
	}
	r.lead(1, 2, 5)
	if err := fromFollower(p); err != nil {
		t.Fatalf("the same leader went on with another epoch: %v", err)
	}
	if err := fromFollower(r.get(r.topicOn(2, 1, []int32{2, self}, []int32{2, self}), 0)); err != nil {
		t.Errorf("a topic in no mirror: %v", err)
	}
}

// A leader tells its followers at once when a cut begins and when it is over, also where nothing else is new, and sends no consumer to
// them meanwhile.
func TestFollowersAreToldOfACut(t *testing.T) {
	r := newRig(t)
	var pending atomic.Bool
	r.m.SetAlignments(func(*meta.Topic, int32) *Alignment { return &Alignment{Pending: pending.Load} })
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	f, err := r.m.Sessions().Begin(&FetchRequest{ByID: true, ReplicaID: 2, Parts: []FetchPart{part(1, 0, 0)}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	look := func() (hw int64, now, named bool) {
		t.Helper()
		rs, _, now := r.m.Look(f.Set, Limits{ReplicaID: 2, ReplicaEpoch: -1}, nil)
		for i := range rs {
			if rs[i].Err != nil {
				t.Fatal(rs[i].Err)
			}
			hw, named = rs[i].HighWatermark, rs[i].Told()
		}
		return hw, now, named
	}
	if hw, _, named := look(); hw != 0 || !named {
		t.Fatalf("first answer: high watermark %d, named %t", hw, named)
	}
	for i, want := range []int64{-1, 0, -1, 0} {
		pending.Store(want < 0)
		p.AlignmentChanged()
		if hw, now, named := look(); hw != want || !now || !named {
			t.Errorf("change %d: high watermark %d, want %d, at once %t, named %t", i, hw, want, now, named)
		}
		if _, now, named := look(); now || named {
			t.Errorf("change %d is told twice", i)
		}
	}
	// A cut that began and ended between two looks is told of all the same.
	p.AlignFollowers(true)
	if hw, now, named := look(); hw != 0 || !now || !named {
		t.Errorf("a short cut: high watermark %d, at once %t, named %t", hw, now, named)
	}
}
