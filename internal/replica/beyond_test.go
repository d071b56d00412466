package replica

import (
	"testing"

	"milena/internal/api"
)

// A produce that waits for the high watermark was appended at some leader epoch. Once the broker leads at another, what lies
// at those offsets may be somebody else's: the mark says nothing of the produce, whether it began to wait before or after.
func TestAReplacedEpochAcknowledgesNothing(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 4)
	var before error
	p.AwaitHW(0, 4, func(err error) { before = err })
	r.lead(1, 2, 1)
	r.lead(1, self, 2)
	wantCode(t, before, api.NotLeaderOrFollower)
	called, after := 0, error(nil)
	p.AwaitHW(0, 4, func(err error) { called, after = called+1, err })
	if called != 1 {
		t.Fatalf("a wait at a past epoch was called %d times", called)
	}
	wantCode(t, after, api.NotLeaderOrFollower)
	if err := followed(p, 2, 4); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 4 || p.Committed(0, 4) || !p.Committed(2, 4) {
		t.Errorf("high watermark %d; committed at epoch 0: %v, at 2: %v", hw, p.Committed(0, 4), p.Committed(2, 4))
	}
	p.AwaitHW(0, 4, func(err error) { called, after = called+1, err })
	if called != 2 {
		t.Fatalf("a wait at a past epoch was called %d times", called-1)
	}
	wantCode(t, after, api.NotLeaderOrFollower)
}

// A follower that fetches beyond its leader's log end doesn't have what the leader has: it counts for nothing until it has
// been told where it parts from the leader, or that it is out of range.
func TestAFollowerBeyondTheEndDoesNotCount(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 5)
	fetch := func(off int64, last int32) (ReadResult, error) {
		return p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, ReplicaID: 2, CurrentEpoch: 0, LastFetched: last})
	}
	_, err := fetch(9, -1)
	wantCode(t, err, api.OffsetOutOfRange)
	res, err := fetch(9, 0)
	if err != nil || !res.Diverges() || res.DivergingEpoch != 0 || res.DivergingEnd != 5 {
		t.Fatalf("beyond the end by epoch: %+v, %v", res, err)
	}
	r.append(p, 5) // the log has offset 9 now, which isn't the follower's
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d by a follower that was beyond the end", hw)
	}
	if _, err := fetch(5, 0); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d, want 5", hw)
	}
}
