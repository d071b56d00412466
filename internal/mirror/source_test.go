package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/record"
	"milena/mirroradm"
)

// leaderEpoch is the leader epoch of t-0 as the cluster's metadata says.
func (c *cluster) leaderEpoch() int32 {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr("t")
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(c.t.Context(), c.cl)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].LeaderEpoch
}

// 8.5: "reactive: batch epoch > DLE: batch refused, EPOCH_FENCING, bump to SLE + 10 (+1), MIRRORING"; "proactive: batch epoch >
// DLE - 3: batch accepted, background bump".
func TestEpochMaintenance(t *testing.T) {
	f := newFake(t, 1)
	f.set(func() { f.epoch = 50 })
	f.add(50, 3)
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 3)
	if e := dst.leaderEpoch(); e < 61 {
		t.Errorf("leader epoch %d, want at least 61", e)
	}
	at := dst.leaderEpoch()
	f.set(func() { f.epoch, f.told = at-1, at-1 })
	f.add(at-1, 2)
	dst.awaitEnd("t", 0, 5)
	eventually(t, func() error {
		if e := dst.leaderEpoch(); e <= at+5 {
			return fmt.Errorf("leader epoch %d did not run ahead of %d", e, at-1)
		}
		return nil
	})
	_, bases := dst.batches("t", 0, 0)
	if fmt.Sprint(bases) != "[0 3]" {
		t.Errorf("batches at %v", bases)
	}
}

// 8.4: "E > SLE known for this fetch: reject, drop, refresh metadata, -> FAILED retryable"; and "at the first successful fetch
// after a failure, error text, retry count and previous state are cleared" (7.6).
func TestEpochAboveTheSourceLeaders(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 1)
	f.set(func() { f.told = 1 })
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 1)
	f.add(2, 1) // an old source that told nobody of its election
	p := dst.awaitState("m", "t", "FAILED")
	if p.RetryAttempt < 1 || !strings.Contains(p.LastError, "leader changed") {
		t.Errorf("failed: %+v", p)
	}
	f.set(func() { f.told = 2 })
	dst.awaitEnd("t", 0, 2)
	// The records are there a moment before the failure is cleared.
	dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return level(p) && p.RetryAttempt == 0 && p.LastError == "" })
}

// 8.4, table: "if it has node endpoints (v16+) and the leader moved: move the partition to the fetcher of the new leader, keeping
// offset", without a failure.
func TestSourceLeaderMoves(t *testing.T) {
	one, two := newFake(t, 1), newFake(t, 2)
	one.add(1, 2)
	two.add(1, 2)
	dst := mirrorOf(t, one)
	dst.awaitEnd("t", 0, 2)
	before := len(dst.logs.text())
	two.set(func() { two.epoch = 2 })
	two.add(2, 3)
	one.set(func() { one.leader = two })
	dst.awaitEnd("t", 0, 5)
	if p := dst.await("m", "t", 0, level); p.RetryAttempt != 0 {
		t.Errorf("moved: %+v", p)
	}
	if strings.Contains(dst.logs.text()[before:], "to=FAILED") {
		t.Error("the partition failed on the way to the new leader")
	}
}

// 8.4: "FENCED_LEADER_EPOCH ... Otherwise drop, refresh metadata", and then on with the new epoch.
func TestSourceLeaderEpochRises(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 2)
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 2)
	before := len(dst.logs.text())
	for e := range int32(4) {
		f.set(func() { f.epoch = 2 + e })
		f.add(2+e, 1)
		dst.awaitEnd("t", 0, int64(3+e))
	}
	if strings.Contains(dst.logs.text()[before:], "to=FAILED") {
		t.Error("the partition failed on the way to the new epoch")
	}
}

// A source broker that shuts down in order answers for a while that it doesn't lead, and names nobody who does: that changes no state.
// Only when it lasts for ten back-offs the partition fails.
func TestNobodyLeadsAtTheSource(t *testing.T) {
	for _, code := range []api.Code{api.FencedLeaderEpoch, api.NotLeaderOrFollower} {
		t.Run(code.Name(), func(t *testing.T) {
			f := newFake(t, 1)
			f.add(1, 2)
			dst := mirrorOf(t, f, "mirror.fetch.backoff.ms", "100")
			dst.awaitEnd("t", 0, 2)
			before, left := len(dst.logs.text()), 2
			f.set(func() {
				f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
					p := fetchwire.NewResponsePartition(q.Partition)
					if p.ErrorCode = code; left == 0 {
						return nil
					}
					left--
					return &p
				}
			})
			f.add(1, 1)
			dst.awaitEnd("t", 0, 3)
			if strings.Contains(dst.logs.text()[before:], "to=FAILED") {
				t.Error("the partition failed while nobody led")
			}
			f.set(func() { left = -1 })
			f.add(1, 1)
			p := dst.awaitState("m", "t", "FAILED")
			if !strings.Contains(p.LastError, "named no new leader") {
				t.Errorf("failed: %+v", p)
			}
		})
	}
}

// 8.4 item 3: "truncate to min(end offset of the returned epoch in the local cache, returned end offset)"; D4: "Before any cut the
// records above the cut are set aside"; mirror.max.cut.records: "a cut in MIRRORING of more than that moves the partition to FAILED,
// non-retryable, with the numbers".
func TestDivergence(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 4)
	f.add(1, 4)
	f.add(1, 4)
	dst := mirrorOf(t, f, "mirror.max.cut.records", "4")
	dst.awaitEnd("t", 0, 12)
	f.set(func() { f.batches, f.epoch = f.batches[:2], 3 }) // an unclean election
	f.add(3, 2)
	dst.awaitEnd("t", 0, 10)
	if got := dst.cutBatches(); fmt.Sprint(got) != "[8]" {
		t.Errorf("set aside: %v", got)
	}
	f.set(func() { f.batches, f.epoch = f.batches[:1], 4 })
	f.add(4, 1)
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, "6 records would be cut, mirror.max.cut.records allows 4") {
		t.Errorf("reason: %q", p.LastError)
	}
	if end := dst.end("t", 0); end != 10 {
		t.Errorf("it was cut to %d all the same", end)
	}
}

// 8.4, table: "OFFSET_OUT_OF_RANGE: if local LEO > source end: truncate to source end". The source ends below our log start even.
func TestSourceEndsBelow(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 4)
	f.add(1, 4)
	f.set(func() { f.start = 4 })
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 8)
	f.set(func() { f.start, f.batches = 0, nil }) // a wiped disk
	dst.awaitEnd("t", 0, 0)
	if got := dst.cutBatches(); fmt.Sprint(got) != "[4]" {
		t.Errorf("set aside: %v", got)
	}
	f.add(1, 3)
	dst.awaitEnd("t", 0, 3)
}

// An answer that says the session is not known opens a new one (KIP-227); a source that always says so is not asked without a
// pause. Answers that end half way are an error of the connection, which heals.
func TestSourceAnswersNonsense(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 1)
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 1)
	for _, code := range []api.Code{api.FetchSessionIDNotFound, api.InvalidFetchSessionEpoch, api.FetchSessionTopicIDError} {
		f.set(func() { f.session = code })
		before, began := f.count(), time.Now()
		eventually(t, func() error {
			if n := f.count() - before; n < 5 {
				return fmt.Errorf("%d fetches", n)
			}
			return nil
		})
		if d := time.Since(began); d < 40*time.Millisecond {
			t.Errorf("%s: five fetches in %s", code.Name(), d)
		}
	}
	f.set(func() { f.session, f.garbage = 0, true })
	p := dst.awaitState("m", "t", "FAILED")
	if p.RetryAttempt < 1 {
		t.Errorf("failed: %+v", p)
	}
	f.set(func() { f.garbage = false })
	f.add(1, 1)
	dst.awaitEnd("t", 0, 2)
}

// D6 "Lag is never falsely zero": an error in the place of an answer is no confirmation of what was seen before.
func TestErrorsDoNotConfirm(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 2)
	dst := mirrorOf(t, f)
	dst.await("m", "t", 0, level)
	f.set(func() {
		f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
			p := fetchwire.NewResponsePartition(q.Partition)
			p.ErrorCode = api.UnknownLeaderEpoch
			return &p
		}
	})
	f.add(1, 5) // which nobody here can know of
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.SourceAge > 400*time.Millisecond })
	if p.State != "MIRRORING" || !strings.Contains(p.LastError, "UNKNOWN_LEADER_EPOCH") {
		t.Errorf("partition: %+v", p)
	}
	f.set(func() { f.fetch = nil })
	dst.awaitEnd("t", 0, 7)
}

// 8.8: "per partition one ABORT marker for each open transaction plus one PID reset record. Example: one partition, two pending
// transactions -> destination end offset = source end offset + 3". D2: the LME is that of before, so that a start in the same
// direction cuts what the stop appended.
func TestOpenTransactionsAtStop(t *testing.T) {
	f := newFake(t, 1)
	for pid := range int64(3) {
		f.addBatch(record.BuilderOptions{LeaderEpoch: 1, Transactional: true, Producer: &record.Producer{ID: 100 + pid, Epoch: 4}}, 2)
	}
	done := record.EndTxnMarker(true, 0, 102, 4, 1)
	done.SetBaseOffset(6)
	done.SetLeaderEpoch(1)
	f.set(func() { f.batches = append(f.batches, done) })
	dst := mirrorOf(t, f)
	dst.awaitEnd("t", 0, 7)
	for round := range 2 {
		dst.stop("m", "t")
		dst.awaitState("m", "t", "STOPPED")
		if end := dst.end("t", 0); end != 10 {
			t.Fatalf("round %d: the log ends at %d, want 7 + 2 + 1", round, end)
		}
		data, _ := dst.batches("t", 0, 7)
		kinds := map[record.ControlType]int{}
		for b, err := range record.Batches(data) {
			if err != nil {
				t.Fatal(err)
			}
			c, ok, err := b.Control()
			if err != nil || !ok || b.LeaderEpoch() <= 1 {
				t.Fatalf("batch at %d: epoch %d, %v", b.BaseOffset(), b.LeaderEpoch(), err)
			}
			kinds[c.Type]++
		}
		if kinds[record.ControlAbort] != 2 || kinds[record.ControlMirrorPIDReset] != 1 || len(kinds) != 2 {
			t.Fatalf("control batches: %v", kinds)
		}
		dst.produce("t", 0, 1)
		dst.begin("m", "t")
		dst.awaitEnd("t", 0, 7)
		dst.await("m", "t", 0, level)
	}
}

// overtake raises the leader epoch with a record, and doesn't answer Metadata until hang is closed.
func (f *fake) overtake(epoch int32) {
	f.set(func() {
		f.hang, f.epoch = make(chan struct{}), epoch
		f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
			if q.CurrentLeaderEpoch == epoch {
				return nil
			}
			p := fetchwire.NewResponsePartition(q.Partition)
			p.ErrorCode, p.CurrentLeader = api.FencedLeaderEpoch, &fetchwire.LeaderAndEpoch{LeaderID: f.node, LeaderEpoch: epoch}
			return &p
		}
	})
	f.add(epoch, 1)
}

// A wish to stop ends the wait for a source that does not answer (7.3: "STOPPING is reachable from working states").
func TestStopDuringEpochFencing(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 2)
	dst := mirrorOf(t, f, "request.timeout.ms", "30000")
	dst.awaitEnd("t", 0, 2)
	f.overtake(90)
	dst.awaitState("m", "t", "EPOCH_FENCING")
	// The operator excludes the topic: a wish that asks for no state.
	began := time.Now()
	if _, err := dst.mir.Start(t.Context(), "m", nil, nil, []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitState("m", "t", "STOPPED")
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the stop took %s", d)
	}
	dst.produce("t", 0, 1)
}
