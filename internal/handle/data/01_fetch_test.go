package data

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/record"
)

func (r *rig) produce(n byte, records int) {
	r.t.Helper()
	p, err := r.m.GetByID(topicID(n), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	c := r.client("producer")
	resp := call[*kmsg.ProduceResponse](c, produceRequest(n, p.Topic(), 1, 0, batch(r.t, records, nil)), 13)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		r.t.Fatal(api.Code(code))
	}
	_ = c.conn.Close()
}

// summary of a fetch response: topic-partition, error or records.
func summary(t *testing.T, resp *kmsg.FetchResponse) (out []string) {
	t.Helper()
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			s := topic.Topic
			if s == "" {
				s = "#" + strconv.Itoa(int(topic.TopicID[15]))
			}
			s += "-" + strconv.Itoa(int(p.Partition))
			if p.ErrorCode != 0 {
				s += " " + api.Code(p.ErrorCode).Name()
			}
			n := 0
			for b, err := range record.Batches(p.RecordBatches) {
				if err != nil {
					t.Fatal(err)
				}
				if err := b.CheckCRC(); err != nil {
					t.Fatal(err)
				}
				n += int(b.Count())
			}
			if n > 0 {
				s += " " + strconv.Itoa(n)
			}
			out = append(out, s)
		}
	}
	return out
}

func wantSummary(t *testing.T, resp *kmsg.FetchResponse, want ...string) {
	t.Helper()
	if got := summary(t, resp); !slices.Equal(got, want) {
		t.Fatalf("response names %q (error %v), want %q", got, api.Code(resp.ErrorCode), want)
	}
}

func TestFetchVersions(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 2)
	r.topic(2, "", 1)
	r.produce(1, 3)
	r.produce(1, 2)
	c := r.client("test")
	for v := int16(4); v <= 18; v++ {
		resp := call[*kmsg.FetchResponse](c, fetchRequest(0, 1, 1, 2, 7), v)
		if v >= 13 {
			wantSummary(t, resp, "#1-0 5", "#2-0", "#7-0 UNKNOWN_TOPIC_ID")
		} else {
			wantSummary(t, resp, "t1-0 5", "t2-0", "t7-0 UNKNOWN_TOPIC_OR_PARTITION")
		}
		p := resp.Topics[0].Partitions[0]
		if p.HighWatermark != 5 || p.LastStableOffset != 5 || v >= 5 && p.LogStartOffset != 0 || p.AbortedTransactions != nil {
			t.Fatalf("version %d: %+v", v, p)
		}
		if bad := resp.Topics[2].Partitions[0]; bad.HighWatermark != -1 {
			t.Fatalf("version %d: %+v", v, bad)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	r.produce(1, 3)
	r.lead(1, self, 5)
	c := r.client("test")
	try := func(version int16, tune func(*kmsg.FetchRequestTopicPartition)) *kmsg.FetchResponse {
		t.Helper()
		req := fetchRequest(5000, 1, 1)
		tune(&req.Topics[0].Partitions[0])
		return call[*kmsg.FetchResponse](c, req, version)
	}
	wantSummary(t, try(12, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 4 }), "t1-0 OFFSET_OUT_OF_RANGE")
	wantSummary(t, try(12, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 4 }), "t1-0 FENCED_LEADER_EPOCH")
	wantSummary(t, try(12, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 6 }), "t1-0 UNKNOWN_LEADER_EPOCH")
	wantSummary(t, try(12, func(p *kmsg.FetchRequestTopicPartition) { p.Partition = 3 }), "t1-3 UNKNOWN_TOPIC_OR_PARTITION")
	resp := try(12, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset, p.LastFetchedEpoch = 3, 2 })
	wantSummary(t, resp, "t1-0")
	if d := resp.Topics[0].Partitions[0].DivergingEpoch; d.Epoch != 0 || d.EndOffset != 3 {
		t.Fatalf("diverging epoch %+v", d)
	}
	r.lead(1, 2, 6)
	resp = try(16, func(*kmsg.FetchRequestTopicPartition) {})
	wantSummary(t, resp, "#1-0 NOT_LEADER_OR_FOLLOWER")
	if l := resp.Topics[0].Partitions[0].CurrentLeader; l.LeaderID != 2 || l.LeaderEpoch != 6 {
		t.Fatalf("current leader %+v", l)
	}
	if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "two.example" {
		t.Fatalf("brokers %+v", resp.Brokers)
	}
}

func TestFetchLimits(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	r.topic(2, "", 1)
	for range 3 {
		r.produce(1, 10)
		r.produce(2, 10)
	}
	size := int32(len(batch(t, 10, nil)))
	c := r.client("test")
	for _, tc := range []struct {
		max, partMax int32
		want         []string
	}{
		{1 << 20, 1 << 20, []string{"#1-0 30", "#2-0 30"}},
		{1, 1, []string{"#1-0 10", "#2-0"}},       // the first batch comes whole
		{0, 1 << 20, []string{"#1-0 10", "#2-0"}}, // even with no room at all
		{1 << 20, size, []string{"#1-0 10", "#2-0 10"}},
		{4 * size, 1 << 20, []string{"#1-0 30", "#2-0 10"}},
		{1 << 20, size + size/2, []string{"#1-0 10", "#2-0 10"}}, // a cut batch isn't counted
	} {
		req := fetchRequest(0, 1, 1, 2)
		req.MaxBytes = tc.max
		for i := range req.Topics {
			req.Topics[i].Partitions[0].PartitionMaxBytes = tc.partMax
		}
		wantSummary(t, call[*kmsg.FetchResponse](c, req, 13), tc.want...)
	}
}

func TestFetchSession(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	r.topic(2, "", 1)
	r.produce(1, 3)
	c := r.client("test")
	req := fetchRequest(0, 1, 1, 2)
	req.SessionEpoch = 0
	resp := call[*kmsg.FetchResponse](c, req, 13)
	wantSummary(t, resp, "#1-0 3", "#2-0")
	id := resp.SessionID
	if id == 0 {
		t.Fatal("no session")
	}
	next := func(epoch int32, want api.Code, tune func(*kmsg.FetchRequest), names ...string) {
		t.Helper()
		req := fetchRequest(0, 1)
		req.SessionID, req.SessionEpoch = id, epoch
		if tune != nil {
			tune(req)
		}
		resp := call[*kmsg.FetchResponse](c, req, 13)
		wantCode(t, resp.ErrorCode, want)
		if want == api.NoError && resp.SessionID != id {
			t.Fatalf("session %d, want %d", resp.SessionID, id)
		}
		wantSummary(t, resp, names...)
	}
	next(1, api.NoError, func(req *kmsg.FetchRequest) {
		req.Topics = fetchRequest(0, 1, 1).Topics
		req.Topics[0].Partitions[0].FetchOffset = 3
	})
	r.produce(2, 1)
	next(2, api.NoError, nil, "#2-0 1")
	r.topic(3, "", 1)
	r.produce(3, 4)
	next(3, api.NoError, func(req *kmsg.FetchRequest) {
		req.Topics = fetchRequest(0, 1, 3).Topics
		f := kmsg.NewFetchRequestForgottenTopic()
		f.TopicID, f.Partitions = topicID(2), []int32{0}
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}, "#3-0 4")
	next(9, api.InvalidFetchSessionEpoch, nil)
	req = fetchRequest(0, 1)
	req.SessionID, req.SessionEpoch = id+1, 4
	wantCode(t, call[*kmsg.FetchResponse](c, req, 13).ErrorCode, api.FetchSessionIDNotFound)
}

func TestFetchWaitsForBytes(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	c := r.client("test")
	for _, session := range []int32{-1, 0} {
		req := fetchRequest(60_000, 1, 1)
		req.SessionEpoch = session
		p, err := r.m.GetByID(topicID(1), 0)
		if err != nil {
			t.Fatal(err)
		}
		req.Topics[0].Partitions[0].FetchOffset = p.LogEndOffset()
		id := c.send(req, 13)
		r.produce(1, 2)
		var resp kmsg.FetchResponse
		c.recv(&resp, 13, id)
		wantSummary(t, &resp, "#1-0 2")
	}
	// A change of leader ends the wait with its error.
	req := fetchRequest(60_000, 1, 1)
	req.Topics[0].Partitions[0].FetchOffset = 4
	id := c.send(req, 13)
	r.lead(1, 2, 1)
	var resp kmsg.FetchResponse
	c.recv(&resp, 13, id)
	wantSummary(t, &resp, "#1-0 NOT_LEADER_OR_FOLLOWER")
	// So does the deletion.
	r.lead(1, self, 2)
	id = c.send(req, 13)
	r.apply(&meta.RemoveTopicRecord{TopicID: topicID(1)})
	c.recv(&resp, 13, id)
	wantSummary(t, &resp, "#1-0 UNKNOWN_TOPIC_ID")
}

func TestFetchWaitEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.topic(1, "", 1)
		r.produce(1, 1)
		c := r.client("test")
		start := time.Now()
		wantSummary(t, call[*kmsg.FetchResponse](c, fetchRequest(500, 1<<20, 1), 13), "#1-0 1")
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("the wait for too many bytes took %v", took)
		}
		start = time.Now()
		req := fetchRequest(500, 1, 1)
		req.Topics[0].Partitions[0].FetchOffset = 1
		wantSummary(t, call[*kmsg.FetchResponse](c, req, 13), "#1-0")
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("the wait for anything took %v", took)
		}
		start = time.Now()
		wantSummary(t, call[*kmsg.FetchResponse](c, fetchRequest(500, 1), 13))
		if took := time.Since(start); took != 0 {
			t.Errorf("a fetch of nothing took %v", took)
		}
		// The connection goes while the fetch waits: its watch must too.
		req.MaxWaitMillis = 1 << 30
		c.send(req, 13)
		synctest.Wait()
		_ = c.conn.Close()
		synctest.Wait()
		p, err := r.m.GetByID(topicID(1), 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Watches(); n != 0 {
			t.Errorf("%d watches are left behind a closed connection", n)
		}
		r.stop()
	})
}

func TestFetchReadCommitted(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	p, err := r.m.GetByID(topicID(1), 0)
	if err != nil {
		t.Fatal(err)
	}
	txn := batch(t, 2, func(o *record.BuilderOptions) {
		o.Transactional, o.Producer = true, &record.Producer{ID: 9}
	})
	appendInternal(t, p, txn)
	c := r.client("test")
	fetch := func(off int64) *kmsg.FetchResponse {
		t.Helper()
		req := fetchRequest(0, 1, 1)
		req.IsolationLevel = 1
		req.Topics[0].Partitions[0].FetchOffset = off
		return call[*kmsg.FetchResponse](c, req, 13)
	}
	resp := fetch(0)
	wantSummary(t, resp, "#1-0") // the transaction is open
	if got := resp.Topics[0].Partitions[0]; got.LastStableOffset != 0 || got.HighWatermark != 2 {
		t.Fatalf("%+v", got)
	}
	wantSummary(t, call[*kmsg.FetchResponse](c, fetchRequest(0, 1, 1), 13), "#1-0 2")
	appendInternal(t, p, record.EndTxnMarker(false, 0, 9, 0, time.Now().UnixMilli()))
	resp = fetch(0)
	wantSummary(t, resp, "#1-0 3") // two records and the marker
	got := resp.Topics[0].Partitions[0]
	if len(got.AbortedTransactions) != 1 || got.AbortedTransactions[0].ProducerID != 9 || got.AbortedTransactions[0].FirstOffset != 0 {
		t.Fatalf("aborted transactions %+v", got.AbortedTransactions)
	}
}

func TestPipelinedFetchesOfASession(t *testing.T) {
	r := newRig(t)
	r.topic(1, "", 1)
	c := r.client("test")
	req := fetchRequest(0, 1, 1)
	req.SessionEpoch = 0
	id := call[*kmsg.FetchResponse](c, req, 13).SessionID
	req = fetchRequest(60_000, 1)
	req.SessionID = id
	for epoch := int32(1); epoch < 200; epoch += 2 { // often, since the two race
		req.SessionEpoch, req.MaxWaitMillis = epoch, 60_000
		first := c.send(req, 13)
		req.SessionEpoch, req.MaxWaitMillis = epoch+1, 0
		second := c.send(req, 13)
		for _, n := range []int32{first, second} { // the second ends the first's wait
			var resp kmsg.FetchResponse
			c.recv(&resp, 13, n)
			wantCode(t, resp.ErrorCode, api.NoError)
			wantSummary(t, &resp)
		}
	}
}
