package replica

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
)

func metaISR(n byte, isr ...int32) meta.Record {
	return &meta.PartitionChangeRecord{TopicID: topicID(n), ISR: isr, Leader: meta.NoLeaderChange, LeaderEpoch: -1, LeaderRecoveryState: -1}
}

func read(t *testing.T, p *Partition, off int64) ReadResult {
	t.Helper()
	res, err := p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, MinOne: true, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// offsets are the base offsets and epochs of a result's batches.
func offsets(t *testing.T, res ReadResult) (bases []int64, epochs []int32) {
	t.Helper()
	defer res.Release()
	for _, s := range res.Spans {
		buf, err := s.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range record.Batches(buf) {
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			bases, epochs = append(bases, b.BaseOffset()), append(epochs, b.LeaderEpoch())
		}
	}
	return bases, epochs
}

func TestAppendAndRead(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	if info := r.append(p, 3); info.FirstOffset != 0 || info.LastOffset != 2 {
		t.Fatalf("first append: %+v", info)
	}
	r.lead(1, self, 4)
	if info := r.append(p, 2); info.FirstOffset != 3 {
		t.Fatalf("second append: %+v", info)
	}
	if hw, end := p.HighWatermark(), p.LogEndOffset(); hw != 5 || end != 5 {
		t.Fatalf("high watermark %d, log end %d, want 5", hw, end)
	}
	bases, epochs := offsets(t, read(t, p, 0))
	if !slices.Equal(bases, []int64{0, 3}) || !slices.Equal(epochs, []int32{0, 4}) {
		t.Fatalf("batches at %v of epochs %v", bases, epochs)
	}
	if res := read(t, p, 5); res.Bytes != 0 || res.More {
		t.Fatalf("read at the end: %+v", res)
	}
	for _, off := range []int64{-1, 6} {
		_, err := p.Read(ReadParams{Offset: off, MaxBytes: 100, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
		wantCode(t, err, api.OffsetOutOfRange)
	}
}

func TestEpochFencing(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.lead(1, self, 5)
	for _, c := range []struct {
		epoch int32
		want  api.Code
	}{{-1, api.NoError}, {5, api.NoError}, {4, api.FencedLeaderEpoch}, {6, api.UnknownLeaderEpoch}} {
		wantCode(t, p.CheckEpoch(c.epoch), c.want)
		_, err := p.Read(ReadParams{ReplicaID: -1, CurrentEpoch: c.epoch, LastFetched: -1})
		wantCode(t, err, c.want)
		_, err = p.FindOffset(c.epoch, TimeLatest, ReadUncommitted)
		wantCode(t, err, c.want)
		_, err = p.Append(batch(t, 1), AppendOptions{Epoch: c.epoch})
		wantCode(t, err, c.want)
	}
	r.lead(1, 2, 6)
	wantCode(t, p.CheckEpoch(-1), api.NotLeaderOrFollower)
	wantCode(t, p.CheckEpoch(5), api.FencedLeaderEpoch)
	_, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch})
	wantCode(t, err, api.NotLeaderOrFollower)
}

func TestDivergence(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	fetch := func(off int64, last int32) (ReadResult, error) {
		return p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, MinOne: true, ReplicaID: -1, CurrentEpoch: -1, LastFetched: last})
	}
	// A log that never had a batch disagrees with nobody.
	if res, err := fetch(0, 0); err != nil || res.Diverges() {
		t.Fatalf("fetch of an empty log: %+v, %v", res, err)
	}
	r.append(p, 3) // epoch 0: 0 to 2
	r.lead(1, self, 2)
	r.append(p, 2) // epoch 2: 3 and 4
	r.lead(1, self, 5)
	for _, c := range []struct {
		off      int64
		last     int32
		epoch    int32
		end      int64
		diverges bool
	}{
		{off: 3, last: 0},
		{off: 2, last: 0},
		{off: 5, last: 2},
		{off: 4, last: 0, epoch: 0, end: 3, diverges: true}, // holds a batch of epoch 0 at 3, the leader doesn't
		{off: 5, last: 1, epoch: 0, end: 3, diverges: true}, // an epoch the leader never had
		{off: 5, last: 4, epoch: 2, end: 5, diverges: true}, // above the latest: (latest, log end)
		{off: 5, last: 5, epoch: 2, end: 5, diverges: true},
	} {
		res, err := fetch(c.off, c.last)
		if err != nil || res.Diverges() != c.diverges {
			t.Fatalf("offset %d, last epoch %d: %+v, %v", c.off, c.last, res, err)
		}
		if c.diverges && (res.DivergingEpoch != c.epoch || res.DivergingEnd != c.end || res.Bytes != 0) {
			t.Errorf("offset %d, last epoch %d: diverges at %d, %d, want %d, %d", c.off, c.last, res.DivergingEpoch, res.DivergingEnd, c.epoch, c.end)
		}
		res.Release()
	}
	_, err := fetch(5, 6)
	wantCode(t, err, api.OffsetOutOfRange)
}

func TestEpochEnd(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	check := func(epoch, wantEpoch int32, wantEnd int64) {
		t.Helper()
		e, end, err := p.EpochEnd(-1, epoch)
		if err != nil || e != wantEpoch || end != wantEnd {
			t.Errorf("end of epoch %d: %d, %d, %v; want %d, %d", epoch, e, end, err, wantEpoch, wantEnd)
		}
	}
	check(0, -1, 0) // D1: an empty cache gives the log end
	r.append(p, 3)
	r.lead(1, self, 2)
	r.append(p, 2)
	r.lead(1, self, 5)
	check(-1, -1, -1)
	check(0, 0, 3)
	check(1, 0, 3)
	check(2, 2, 5)
	check(3, 2, 5) // D1: above the latest, not above the leader's
	check(5, 2, 5)
	check(6, -1, -1)
}

// A leader that may have been replaced doesn't tell readers of the one after it that what they have is lost.
func TestOutdatedLeaderSaysNothingDefinite(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.append(p, 3)
	current := false
	r.m.opts.Current = func() bool { return current }
	ask := func() (fetch, epochFetch, epochEnd error) {
		_, fetch = p.Read(ReadParams{Offset: 4, MaxBytes: 1 << 20, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
		_, epochFetch = p.Read(ReadParams{Offset: 3, MaxBytes: 1 << 20, ReplicaID: -1, CurrentEpoch: -1, LastFetched: 1})
		_, _, epochEnd = p.EpochEnd(-1, 1)
		return fetch, epochFetch, epochEnd
	}
	fetch, epochFetch, epochEnd := ask()
	wantCode(t, fetch, api.UnknownLeaderEpoch)
	wantCode(t, epochFetch, api.UnknownLeaderEpoch)
	wantCode(t, epochEnd, api.UnknownLeaderEpoch)
	current = true
	fetch, epochFetch, epochEnd = ask()
	wantCode(t, fetch, api.OffsetOutOfRange)
	wantCode(t, epochFetch, api.OffsetOutOfRange)
	if epochEnd != nil {
		t.Fatalf("end of an epoch nobody had: %v", epochEnd)
	}
	current = false // what this leader can say by itself, it does
	if _, err := p.Read(ReadParams{Offset: 2, MaxBytes: 1 << 20, ReplicaID: -1, CurrentEpoch: -1, LastFetched: 0}); err != nil {
		t.Fatal(err)
	}
	if e, end, err := p.EpochEnd(0, 0); e != 0 || end != 3 || err != nil {
		t.Fatalf("end of epoch 0: %d, %d, %v", e, end, err)
	}
}

func TestGate(t *testing.T) {
	r := newRig(t)
	refused := errors.New("read-only")
	r.m.SetGateFactory(func(mt *meta.Topic, partition int32) Gate {
		return func(o partlog.Origin) error {
			if o == partlog.OriginClient {
				return refused
			}
			return nil
		}
	})
	p := r.get(r.topic(1, 1), 0)
	if _, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch}); !errors.Is(err, refused) {
		t.Fatalf("client append: %v", err)
	}
	if _, err := deleteRecords(p, 0); !errors.Is(err, refused) {
		t.Fatalf("delete records: %v", err)
	}
	if _, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch, Origin: partlog.OriginCoordinator}); err != nil {
		t.Fatalf("coordinator append: %v", err)
	}
	p.SetGate(nil)
	r.append(p, 1)
}

func asIs(t *testing.T, base int64, epoch int32, n int) record.Batch {
	b := batch(t, n)
	b.SetBaseOffset(base)
	b.SetLeaderEpoch(epoch)
	return b
}

func TestAppendAsIs(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.lead(1, self, 3)
	if _, err := p.AppendAsIs(asIs(t, 10, 4, 2), AsIsOptions{Epoch: 3}); !errors.Is(err, ErrEpochAboveLeader) {
		t.Fatalf("batch above the leader epoch: %v", err)
	}
	_, err := p.AppendAsIs(asIs(t, 10, 1, 2), AsIsOptions{Epoch: 2})
	wantCode(t, err, api.FencedLeaderEpoch)
	for _, b := range []record.Batch{asIs(t, 10, 1, 2), asIs(t, 20, 3, 2)} {
		want := slices.Clone(b)
		if _, err := p.AppendAsIs(b, AsIsOptions{Epoch: 3}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b, want) {
			t.Fatal("the batch was changed")
		}
	}
	if hw := p.HighWatermark(); hw != 22 {
		t.Fatalf("high watermark %d, want 22", hw)
	}
	bases, epochs := offsets(t, read(t, p, 10))
	if !slices.Equal(bases, []int64{10, 20}) || !slices.Equal(epochs, []int32{1, 3}) {
		t.Fatalf("batches at %v of epochs %v", bases, epochs)
	}
	if _, err := p.AppendAsIs(asIs(t, 21, 3, 2), AsIsOptions{Epoch: 3}); !errors.Is(err, partlog.ErrOffsetOrder) {
		t.Fatalf("overlapping batch: %v", err)
	}
	if _, err := p.AppendAsIs(asIs(t, 22, 3, 1), AsIsOptions{Epoch: 3, LogStart: 20}); err != nil {
		t.Fatal(err)
	}
	if start := p.LogStartOffset(); start != 20 {
		t.Fatalf("log start %d, want 20", start)
	}
	if _, err := p.AppendAsIs(nil, AsIsOptions{Epoch: 3, LogStart: 500}); err != nil {
		t.Fatal(err)
	}
	if start := p.LogStartOffset(); start != 23 {
		t.Fatalf("log start %d beyond the high watermark, want 23", start)
	}
}

func TestTruncate(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	for range 3 {
		r.append(p, 2)
	}
	var got []error
	for _, off := range []int64{2, 6} {
		p.AwaitHW(0, off, func(err error) { got = append(got, err) })
	}
	if err := p.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("%d waiters were called, want only the one behind the cut", len(got))
	}
	wantCode(t, got[0], api.NotLeaderOrFollower)
	if end := p.LogEndOffset(); end != 4 {
		t.Fatalf("log end %d, want 4", end)
	}
	if err := p.TruncateFullyAndStartAt(100); err != nil {
		t.Fatal(err)
	}
	if start, hw, end := p.LogStartOffset(), p.HighWatermark(), p.LogEndOffset(); start != 100 || hw != 100 || end != 100 {
		t.Fatalf("start %d, high watermark %d, end %d; want 100", start, hw, end)
	}
}

func TestDeleteRecords(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.append(p, 5)
	if low, err := deleteRecords(p, 2); err != nil || low != 2 {
		t.Fatalf("to 2: %d, %v", low, err)
	}
	_, err := p.Read(ReadParams{Offset: 1, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
	wantCode(t, err, api.OffsetOutOfRange)
	for _, off := range []int64{6, -2} {
		_, err := deleteRecords(p, off)
		wantCode(t, err, api.OffsetOutOfRange)
	}
	if low, err := deleteRecords(p, -1); err != nil || low != 5 {
		t.Fatalf("to the high watermark: %d, %v", low, err)
	}
	r2 := newRigOn(t, disk.NewMem(2), func(s *Settings) { s.Log.Delete, s.Log.Compact = false, true })
	p = r2.get(r2.topic(1, 1), 0)
	_, err = deleteRecords(p, 0)
	wantCode(t, err, api.PolicyViolation)
}

func TestFindOffset(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.append(p, 3) // times 1000 to 1002
	r.append(p, 1) // time 1000
	for _, c := range []struct {
		time, offset, at int64
		epoch            int32
	}{
		{TimeEarliest, 0, -1, 0},
		{TimeLatest, 4, -1, 0},
		{TimeEarliestLocal, 0, -1, 0},
		{TimeLatestTiered, -1, -1, -1},
		{TimeMax, 2, 1002, 0},
		{1001, 1, 1001, 0},
		{0, 0, 1000, 0},
		{1003, -1, -1, -1},
	} {
		got, err := p.FindOffset(-1, c.time, ReadUncommitted)
		if want := (partlog.TimestampOffset{Timestamp: c.at, Offset: c.offset, Epoch: c.epoch}); err != nil || got != want {
			t.Errorf("time %d: %+v, %v; want %+v", c.time, got, err, want)
		}
	}
	_, err := p.FindOffset(-1, -7, ReadUncommitted)
	wantCode(t, err, api.UnsupportedVersion)
}

func TestNewLeaderWaitsForTheOldMark(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2}), 0)
	r.append(p, 3)
	r.lead(1, self, 7)
	_, err := p.FindOffset(-1, TimeLatest, ReadUncommitted)
	wantCode(t, err, api.OffsetNotAvailable)
	if got, err := p.FindOffset(-1, TimeEarliest, ReadUncommitted); err != nil || got.Offset != 0 {
		t.Fatalf("earliest: %+v, %v", got, err)
	}
	if err := followed(p, 2, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := p.FindOffset(-1, TimeLatest, ReadUncommitted); err != nil || got.Offset != 3 {
		t.Fatalf("latest: %+v, %v", got, err)
	}
}

func TestMinISR(t *testing.T) {
	r := newRig(t)
	two := "2"
	r.apply(&meta.ConfigRecord{ResourceType: meta.ResourceTopic, ResourceName: "t1", Key: "min.insync.replicas", Value: &two})
	p := r.get(r.topicOn(1, 1, []int32{self, 2}, []int32{self}), 0)
	_, err := p.Append(batch(t, 1), AppendOptions{Acks: -1, Epoch: AnyEpoch})
	wantCode(t, err, api.NotEnoughReplicas)
	if _, err := p.Append(batch(t, 1), AppendOptions{Acks: 1, Epoch: AnyEpoch}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.CheckMinISR(), api.NotEnoughReplicasAfterAppend)
	one := "1"
	r.apply(&meta.ConfigRecord{ResourceType: meta.ResourceTopic, ResourceName: "t1", Key: "min.insync.replicas", Value: &one})
	r.append(p, 1)
}

func TestWaiters(t *testing.T) {
	r := newRig(t)
	name := r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2})
	p := r.get(name, 0)
	r.append(p, 4)
	calls := map[string]error{}
	wait := func(what string, off int64) func() bool {
		_, epoch, _ := p.Leader()
		return p.AwaitHW(epoch, off, func(err error) {
			if _, twice := calls[what]; twice {
				t.Errorf("%s was called twice", what)
			}
			calls[what] = err
		})
	}
	wait("reached", 0)
	wait("four", 4)
	cancelled := wait("cancelled", 3)
	if !cancelled() || cancelled() {
		t.Fatal("a wait can be cancelled once")
	}
	two := wait("two", 2)
	_ = followed(p, 2, 2)
	if len(calls) != 2 || calls["two"] != nil {
		t.Fatalf("called: %v", calls)
	}
	if two() {
		t.Fatal("a wait that is over can't be cancelled")
	}
	r.lead(1, 2, 1)
	if len(calls) != 3 {
		t.Fatalf("called: %v", calls)
	}
	wantCode(t, calls["four"], api.NotLeaderOrFollower)
	wait("follower", 4)
	wantCode(t, calls["follower"], api.NotLeaderOrFollower)
	r.lead(1, self, 2)
	wait("deleted", 9)
	r.apply(&meta.RemoveTopicRecord{TopicID: topicID(1)})
	wantCode(t, calls["deleted"], api.UnknownTopicOrPartition)
	_, err := r.m.Get(name, 0)
	wantCode(t, err, api.UnknownTopicOrPartition)
	_, err = r.m.GetByID(topicID(1), 0)
	wantCode(t, err, api.UnknownTopicID)
	_, err = p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch})
	wantCode(t, err, api.UnknownTopicOrPartition)
}

func TestConcurrentAppendsCommitAll(t *testing.T) {
	r := newRigOn(t, disk.NewMem(3), func(s *Settings) { s.Log.FlushMessages = 1 })
	p := r.get(r.topic(1, 1), 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				info, err := p.Append(batch(t, 2), AppendOptions{Acks: -1, Epoch: AnyEpoch})
				if err != nil {
					t.Error(err)
					return
				}
				if hw := p.HighWatermark(); hw <= info.LastOffset {
					t.Errorf("high watermark %d after a durable append to %d", hw, info.LastOffset)
				}
				if rp := p.Log().RecoveryPoint(); rp < p.HighWatermark() && rp <= info.LastOffset {
					t.Errorf("recovery point %d after a durable append to %d", rp, info.LastOffset)
				}
			}
		})
	}
	wg.Wait()
	if hw := p.HighWatermark(); hw != 320 {
		t.Fatalf("high watermark %d, want 320", hw)
	}
}

func TestDamageIsNotRetriable(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, 1)
	p := r.get(name, 0)
	r.append(p, 3)
	f, err := r.dirs.fs.OpenAppend(dirName(name, 0) + "/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{9}, 16); err != nil { // the magic of the first batch
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = p.Read(ReadParams{Offset: 0, MaxBytes: 1000, MinOne: true, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
	wantCode(t, err, api.CorruptMessage)
}
