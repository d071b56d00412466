package replica

import (
	"errors"
	"testing"

	"milena/internal/api"
	"milena/internal/partlog"
	"milena/internal/record"
)

func TestDivergingPoint(t *testing.T) {
	for _, c := range []struct {
		name              string
		epoch             int32
		leaderEnd         int64
		ownEpoch          int32
		ownEnd, end, want int64
	}{
		{"the leader's part of the same epoch is shorter", 3, 8, 3, 12, 12, 8},
		{"ours is shorter", 3, 20, 3, 12, 15, 12},
		{"an epoch we don't have: to the end of the next smaller", 2, 15, 1, 10, 20, 10},
		{"never above the log end", 3, 50, 3, 40, 12, 12},
		{"no epoch at all here", 3, 8, -1, 12, 12, 8},
		{"no epoch here, the leader ends above", 3, 30, -1, 12, 12, 12},
	} {
		if got := divergingPoint(c.epoch, c.leaderEnd, c.ownEpoch, c.ownEnd, c.end); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// following is a partition that follows broker 2 at an epoch.
func (r *rig) following(epoch int32) *Partition {
	r.t.Helper()
	p := r.get(r.topicOn(1, 1, []int32{2, self}, []int32{2, self}), 0)
	if epoch > 0 {
		r.lead(1, 2, epoch)
	}
	return p
}

func (r *rig) fetched(p *Partition, epoch int32, hw int64, bs ...record.Batch) {
	r.t.Helper()
	var buf []byte
	for _, b := range bs {
		buf = append(buf, b...)
	}
	if _, err := p.AppendFetched(Fetched{Leader: 2, Epoch: epoch, Batches: buf, HighWatermark: hw}); err != nil {
		r.t.Fatal(err)
	}
}

func TestAppendFetched(t *testing.T) {
	r := newRig(t)
	p := r.following(3)
	r.fetched(p, 3, 100, asIs(t, 0, 1, 2), asIs(t, 2, 3, 3))
	if hw, end := p.HighWatermark(), p.LogEndOffset(); hw != 5 || end != 5 {
		t.Fatalf("high watermark %d, end %d; the leader's is bounded by our end", hw, end)
	}
	r.fetched(p, 3, 4)
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark went back to %d", hw)
	}
	if _, err := p.AppendFetched(Fetched{Leader: 2, Epoch: 3, HighWatermark: 5, LogStart: 4}); err != nil || p.LogStartOffset() != 4 {
		t.Fatalf("log start %d, %v", p.LogStartOffset(), err)
	}
	for _, c := range []struct {
		name string
		f    Fetched
		want error
	}{
		{"another leader", Fetched{Leader: 3, Epoch: 3}, ErrNotFollowing},
		{"an older epoch", Fetched{Leader: 2, Epoch: 2, Batches: asIs(t, 5, 2, 1)}, ErrNotFollowing},
		{"an epoch above the leader's", Fetched{Leader: 2, Epoch: 3, Batches: asIs(t, 5, 4, 1)}, ErrEpochAboveLeader},
		{"an epoch below the log's", Fetched{Leader: 2, Epoch: 3, Batches: asIs(t, 5, 2, 1)}, partlog.ErrEpochOrder},
		{"below the end", Fetched{Leader: 2, Epoch: 3, Batches: asIs(t, 4, 3, 1)}, partlog.ErrOffsetOrder},
	} {
		if _, err := p.AppendFetched(c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if end := p.LogEndOffset(); end != 5 {
		t.Fatalf("end %d after refused appends", end)
	}
	r.lead(1, self, 4)
	if _, err := p.AppendFetched(Fetched{Leader: 2, Epoch: 3}); !errors.Is(err, ErrNotFollowing) {
		t.Fatalf("as the leader: %v", err)
	}
	if _, err := p.TruncateDiverging(2, 3, 1, 0); !errors.Is(err, ErrNotFollowing) || p.LogEndOffset() != 5 {
		t.Fatalf("a leader was truncated to %d: %v", p.LogEndOffset(), err)
	}
}

func TestTruncateDiverging(t *testing.T) {
	r := newRig(t)
	p := r.following(5)
	r.fetched(p, 5, 4, asIs(t, 0, 1, 4), asIs(t, 4, 3, 4), asIs(t, 8, 5, 2))
	// The leader has epoch 2 up to 9: we have no epoch 2, the next smaller ends at 4.
	if to, err := p.TruncateDiverging(2, 5, 2, 9); err != nil || to != 4 {
		t.Fatalf("cut to %d, %v", to, err)
	}
	pos, err := p.Position()
	if err != nil || pos != (Position{Offset: 4, LastEpoch: 1, HighWatermark: 4}) {
		t.Fatalf("position %+v, %v", pos, err)
	}
}

// A leader that had no batch ends, when it is asked, inside of a batch of ours:
// all of that batch goes, and is fetched anew from its beginning.
func TestCutInsideABatchTakesTheOffsetBack(t *testing.T) {
	r := newRig(t)
	p := r.following(2)
	r.fetched(p, 2, 0, asIs(t, 0, 1, 2), asIs(t, 2, 1, 4))
	if err := p.TruncateToLeader(2, 2, 3); err != nil {
		t.Fatal(err)
	}
	if pos, err := p.Position(); err != nil || pos.Offset != 2 {
		t.Fatalf("the follower goes on at %+v, %v; offset 2 would never be fetched again", pos, err)
	}
}

func TestAlign(t *testing.T) {
	r := newRig(t)
	p := r.following(2)
	// The leader's log starts inside of its first batch.
	if err := p.RestartAt(2, 2, 3); err != nil {
		t.Fatal(err)
	}
	b := asIs(t, 0, 1, 5)
	if fits, err := p.Align(2, 2, b); err != nil || !fits {
		t.Fatalf("an empty log: %v, %v", fits, err)
	}
	r.fetched(p, 2, 5, b)
	// The leader deleted up to 7, its epoch 2 began at 6; ours has a batch of epoch 1 there.
	r.fetched(p, 2, 5, asIs(t, 5, 1, 1), asIs(t, 6, 1, 1))
	b = asIs(t, 6, 2, 3)
	if fits, err := p.Align(2, 2, b); err != nil || !fits {
		t.Fatalf("an overlap: %v, %v", fits, err)
	}
	r.fetched(p, 2, 9, b)
	if fits, err := p.Align(2, 2, asIs(t, 2, 2, 2)); err != nil || fits {
		t.Fatalf("a batch far below: %v, %v", fits, err)
	}
}

func TestReadFromFollower(t *testing.T) {
	r := newRig(t)
	p := r.following(2)
	r.fetched(p, 2, 2, asIs(t, 0, 1, 2), asIs(t, 2, 2, 2))
	read := func(rp ReadParams) (ReadResult, error) {
		rp.ReplicaID, rp.MaxBytes, rp.MinOne = -1, 1<<20, true
		res, err := p.Read(rp)
		res.Release()
		return res, err
	}
	res, err := read(ReadParams{AnyReplica: true, CurrentEpoch: 2, LastFetched: -1})
	if err != nil || res.Bytes == 0 || res.HighWatermark != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = read(ReadParams{Offset: 3, AnyReplica: true, CurrentEpoch: -1, LastFetched: 2}); err != nil || res.Bytes != 0 || res.Diverges() {
		t.Fatalf("above the high watermark: %+v, %v", res, err)
	}
	for _, c := range []struct {
		rp   ReadParams
		want api.Code
	}{
		{ReadParams{CurrentEpoch: 2, LastFetched: -1}, api.NotLeaderOrFollower},
		{ReadParams{AnyReplica: true, CurrentEpoch: 1, LastFetched: -1}, api.FencedLeaderEpoch},
		{ReadParams{AnyReplica: true, CurrentEpoch: 3, LastFetched: -1}, api.UnknownLeaderEpoch},
		{ReadParams{Offset: 5, AnyReplica: true, CurrentEpoch: 2, LastFetched: -1}, api.OffsetOutOfRange},
	} {
		_, err := read(c.rp)
		wantCode(t, err, c.want)
	}
	if _, err := p.FindOffset(2, TimeLatest, ReadUncommitted); err == nil {
		t.Fatal("a follower answers ListOffsets")
	}
}
