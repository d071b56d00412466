package controller

import (
	"testing"

	"milena/internal/meta"
)

// 119. Leader change with PartitionChangeRecord v3: explicit epoch = old + 1.
func TestScenario119(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2, 3)
	b.create(assigned("a", []int32{2, 3, 1}, []int32{1, 2, 3}))
	b.run(b.s.BumpLeaderEpochs(b.now, []EpochBump{{"a", 0, 40}}))
	before := *b.s.Image().Partition("a", 0)
	from := len(b.log)
	b.beat(2, func(h *Heartbeat) { h.WantShutdown = true })
	found := 0
	for _, r := range b.log[from:] {
		read, err := meta.Decode(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		x, ok := read.(*meta.PartitionChangeRecord)
		if !ok || x.PartitionID != 0 {
			continue
		}
		// What follows the frame and the type is the version: one below 3 leaves counting to the reader.
		if found++; r.Value[2] != 3 || x.Leader != 3 || x.LeaderEpoch != 42 {
			t.Errorf("record %x reads %+v", r.Value, x)
		}
	}
	if before.LeaderEpoch != 41 || found != 1 {
		t.Fatalf("leader epoch %d before, then %d changes of the partition", before.LeaderEpoch, found)
	}
	if p := b.s.Image().Partition("a", 0); p.Leader != 3 || p.LeaderEpoch != 42 || p.PartitionEpoch != before.PartitionEpoch+1 {
		t.Errorf("%+v after %+v", *p, before)
	}
	// A change of the ISR alone leaves the epoch.
	other := b.s.Image().Partition("a", 1)
	if other.Leader != 1 || other.LeaderEpoch != 0 || len(other.ISR) != 2 {
		t.Errorf("the partition that 2 only followed: %+v", *other)
	}
}
