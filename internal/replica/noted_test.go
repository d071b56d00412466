package replica

import (
	"context"
	"errors"
	"testing"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/partlog"
)

// unaligned has topic 1's partition 0 led by a broker, with the replicas that have to be cut.
func (r *rig) unaligned(leader, epoch int32, list ...meta.Unaligned) {
	r.t.Helper()
	r.apply(&meta.PartitionChangeRecord{TopicID: topicID(1), Leader: leader, LeaderEpoch: epoch, LeaderRecoveryState: -1, Unaligned: append([]meta.Unaligned{}, list...)})
}

// A leader that knows of a cut by the metadata only has those cut that it names, before it counts them, and nobody twice because the epoch was
// raised.
func TestUnalignedFollowers(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self}), 0)
	for range 5 {
		r.append(p, 2)
	}
	r.lead(1, 2, 1)
	r.unaligned(self, 2, meta.Unaligned{Replica: 3, Offset: 4})
	if res, err := fetchAs(p, 2, 8, 0); err != nil || res.Diverges() {
		t.Fatalf("a replica that isn't named: %+v, %v", res, err)
	}
	res, err := fetchAs(p, 3, 8, 0)
	if err != nil || res.DivergingEpoch != 0 || res.DivergingEnd != 4 || p.followers[3].end >= 0 {
		t.Fatalf("a replica that is named: %+v, %v", res, err)
	}
	for _, off := range []int64{4, 8} {
		if res, err = fetchAs(p, 3, off, 0); err != nil || res.Diverges() {
			t.Fatalf("at %d after the cut: %+v, %v", off, res, err)
		}
	}
	r.lead(1, self, 7)
	if res, err = fetchAs(p, 3, 8, 0); err != nil || res.Diverges() {
		t.Errorf("the epoch was raised: %+v, %v", res, err)
	}
	// Of two changes that come as one the first may have been another leader, who had others cut.
	change := func(epoch int32) meta.Record {
		return &meta.PartitionChangeRecord{TopicID: topicID(1), Leader: self, LeaderEpoch: epoch, LeaderRecoveryState: -1}
	}
	r.apply(change(8), change(9))
	if res, err = fetchAs(p, 3, 8, 0); err != nil || res.DivergingEnd != 4 {
		t.Errorf("another may have led: %+v, %v", res, err)
	}
}

// A replica that has to be cut serves no consumer as a follower, whatever its leader says.
func TestUnalignedFollowerServesNobody(t *testing.T) {
	r := newRig(t)
	p := r.following(3)
	r.fetched(p, 3, 2, asIs(t, 0, 1, 2))
	read := func() error {
		res, err := p.Read(ReadParams{MaxBytes: 100, ReplicaID: -1, AnyReplica: true, CurrentEpoch: -1, LastFetched: -1})
		res.Release()
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	r.unaligned(2, 3, meta.Unaligned{Replica: self, Offset: 1})
	wantCode(t, read(), api.NotLeaderOrFollower)
	r.unaligned(2, 3)
	if err := read(); err != nil {
		t.Fatal(err)
	}
}

// A replica that has to be cut and is chosen to lead does so after it has kept what goes, cut its log, and the metadata say that the controller
// knows.
func TestUnalignedLeader(t *testing.T) {
	r := newRig(t)
	r.m.opts.Controller = neverAnswers{}
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self}), 0)
	for range 3 {
		r.append(p, 2)
	}
	r.lead(1, 2, 1)
	r.unaligned(self, 2, meta.Unaligned{Replica: meta.AnyReplica, Offset: 1}, meta.Unaligned{Replica: self, Offset: 3})
	refused := func() {
		t.Helper()
		if _, _, leads := p.Leader(); leads {
			t.Error("it leads")
		}
		_, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch})
		wantCode(t, err, api.NotLeaderOrFollower)
		_, err = fetchAs(p, 2, 0, -1)
		wantCode(t, err, api.NotLeaderOrFollower)
	}
	refused()
	kept, full := int64(-1), errors.New("the disk is full")
	r.m.OnSelfCut(func(_ *Partition, to int64) error { kept = to; return full })
	if n := r.m.selves.step(context.Background(), r.m); n != 1 || kept != 3 || p.LogEndOffset() != 6 {
		t.Fatalf("with a full disk: %d partitions, kept from %d, the log ends at %d", n, kept, p.LogEndOffset())
	}
	full = nil
	// The cut lies inside of a batch, which goes whole.
	if n := r.m.selves.step(context.Background(), r.m); n != 1 || p.LogEndOffset() != 2 || p.HighWatermark() > 2 {
		t.Fatalf("%d partitions, the log ends at %d, high watermark %d", n, p.LogEndOffset(), p.HighWatermark())
	}
	refused()
	pr, err := p.cutSelf(nil)
	if err != nil || pr == nil || pr.cut >= 0 || pr.version != p.st.Load().version {
		t.Fatalf("what the controller is told: %+v, %v", pr, err)
	}
	r.unaligned(self, 2, meta.Unaligned{Replica: meta.AnyReplica, Offset: 1})
	if _, epoch, leads := p.Leader(); !leads || epoch != 2 {
		t.Fatalf("it leads: %v, epoch %d", leads, epoch)
	}
	r.append(p, 1)
	if n := r.m.selves.step(context.Background(), r.m); n != 0 {
		t.Errorf("%d partitions are to be cut still", n)
	}
}

// What is asked of followers is safe from a change of leader when the metadata say so: of those out of sync, and after a cut of those to come.
func TestNoted(t *testing.T) {
	r := newRig(t)
	r.m.opts.Controller = neverAnswers{}
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	r.append(p, 4)
	r.append(p, 2)
	if err := p.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	p.AlignFollowers(true)
	wantCode(t, p.Noted(), api.NotEnoughReplicas) // a level that doesn't know: all are waited for
	if p.proposal != nil {
		t.Fatal("the controller is asked for what it doesn't know")
	}
	r.apply(&meta.FeatureLevelRecord{Feature: meta.MirrorFeature, Level: meta.UnalignedLevel})
	wantCode(t, p.Noted(), api.NotEnoughReplicas)
	req, answered := r.m.TakeAlter()
	if req == nil {
		t.Fatal("the controller isn't asked")
	}
	x := &req.Topics[0].Partitions[0]
	if to := metafollow.Cut(&x.UnknownTags); to == nil || *to != 4 || len(x.NewEpochISR) != 2 {
		t.Fatalf("the controller is asked: %+v", x)
	}
	answered(nil, errors.New("no answer"))
	list := []meta.Unaligned{{Replica: meta.AnyReplica, Offset: 4}, {Replica: 3, Offset: 5}}
	for i, ok := range []bool{false, true} {
		list[1].Offset = int64(5 - i)
		r.apply(&meta.PartitionChangeRecord{TopicID: topicID(1), Leader: meta.NoLeaderChange, LeaderEpoch: -1, LeaderRecoveryState: -1, Unaligned: list})
		if err := p.Noted(); (err == nil) != ok {
			t.Errorf("with %v: %v", list, err)
		}
	}
	p.AlignFollowers(false)
	r.apply(metaISR(1, self, 2, 3))
	if err := p.Noted(); err != nil {
		t.Errorf("nobody is away: %v", err)
	}
}

// What comes from another cluster is appended only when the followers were marked in this leadership.
func TestMirrorAppendsAfterTheMarks(t *testing.T) {
	r := newRig(t)
	r.m.SetAlignments(func(*meta.Topic, int32) *Alignment { return &Alignment{Pending: func() bool { return false }} })
	p := r.get(r.topic(1, 1), 0)
	kicked := 0
	p.OnAligned(func() { kicked++ })
	put := func(base int64) error {
		_, err := p.AppendAsIs(asIs(t, base, 0, 1), AsIsOptions{Epoch: AnyEpoch})
		return err
	}
	wantCode(t, put(0), api.NotLeaderOrFollower)
	p.AlignFollowers(false)
	if err := put(0); err != nil {
		t.Fatal(err)
	}
	r.m.Suspend("test")
	r.m.Resume()
	if p.Marked() || kicked != 1 {
		t.Errorf("after another beginning: marked %v, told %d times", p.Marked(), kicked)
	}
	wantCode(t, put(1), api.NotLeaderOrFollower)
	if _, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch, Origin: partlog.OriginCoordinator}); err != nil {
		t.Error(err)
	}
}
