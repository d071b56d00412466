package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
	"milena/mirroradm"
)

// produceAs writes one record as an idempotent producer with its first sequence, and returns its offset.
func (c *cluster) produceAs(topic string, p record.Producer, value string) int64 {
	c.t.Helper()
	b, err := record.Build(record.BuilderOptions{Producer: &p}, record.Record{Timestamp: 1_700_000_000_000, Value: []byte(value)})
	if err != nil {
		c.t.Fatal(err)
	}
	ts, err := c.adm.ListTopics(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, ts[topic].ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = b
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(c.t.Context(), c.cl)
	if err != nil {
		c.t.Fatal(err)
	}
	x := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(x.ErrorCode); err != nil {
		c.t.Fatal(err)
	}
	return x.BaseOffset
}

// 144. Chained A->B->C, failover of B: C receives ABORT and PID reset and stays consistent.
func TestScenario144(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 1)
	f.addBatch(record.BuilderOptions{LeaderEpoch: 1, Transactional: true, Producer: &record.Producer{ID: 100, Epoch: 4}}, 2)
	b, c := mirrorOf(t, f), newCluster(t, "end of the chain")
	b.awaitEnd("t", 0, 3)
	c.mirror("m", b)
	c.begin("m", "t")
	c.awaitEnd("t", 0, 3)
	if o, err := c.adm.ListCommittedOffsets(t.Context(), "t"); err != nil {
		t.Fatal(err)
	} else if x, _ := o.Lookup("t", 0); x.Offset != 1 {
		t.Errorf("the last stable offset is %d with an open transaction from 1 on", x.Offset)
	}
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	b.say("t", "b")
	c.awaitEnd("t", 0, 6)
	c.same(b, "t", 0, 0)
	c.refuses("t")
	data, _ := c.batches("t", 0, 3)
	kinds, err := controls(string(data), 3)
	if err != nil || kinds[record.ControlAbort] != 1 || kinds[record.ControlMirrorPIDReset] != 1 {
		t.Errorf("the end of the chain has %v, %v", kinds, err)
	}
	if got := c.values("t", kgo.FetchIsolationLevel(kgo.ReadCommitted())); fmt.Sprint(got) != "[v0 b]" {
		t.Errorf("a read_committed consumer reads %v", got)
	}
	// B mirrors again: what its stop wrote is cut there, and in the chain, where it is set aside too.
	f.add(1, 2)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 5)
	c.awaitEnd("t", 0, 5)
	c.awaitTopic("m", "t")
	c.same(b, "t", 0, 0)
	for _, x := range []*cluster{b, c} {
		if got := x.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[5:b]" {
			t.Errorf("set aside: %v", got)
		}
	}
}

// 143. Producer on B with a PID equal to a mirrored PID: accepted after stop, no false duplicate.
func TestScenario143(t *testing.T) { equalProducers(t) }

// FieldCase 80: "Producer id clash in chains": A→B→C, idempotent producers with equal ids on each; fail over B then C; no false duplicate
// drop.
func TestFieldCase80(t *testing.T) {
	b := equalProducers(t)
	c := newCluster(t, "end of the chain")
	c.mirror("m", b)
	c.begin("m", "t")
	c.awaitEnd("t", 0, b.end("t", 0))
	c.stop("m", "t")
	c.awaitState("m", "t", "STOPPED")
	want := c.end("t", 0)
	if at := c.produceAs("t", equalProducer(), "of c"); at != want {
		t.Errorf("the record is at %d, want %d", at, want)
	}
	c.holds("t", "v0", "of b", "of c")
}

func equalProducer() record.Producer { return record.Producer{ID: 7} }

// equalProducers fails a topic over whose source had a record of a producer, and has the same producer id write its first record here.
func equalProducers(t *testing.T) *cluster {
	f := newFake(t, 1)
	p := equalProducer()
	f.addBatch(record.BuilderOptions{LeaderEpoch: 1, Producer: &p}, 1)
	b := mirrorOf(t, f)
	b.awaitEnd("t", 0, 1)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	if at := b.produceAs("t", p, "of b"); at != 2 {
		t.Errorf("the record is at %d, want 2", at)
	}
	b.kill() // recovery reads the log again
	b.start()
	b.awaitState("m", "t", "STOPPED")
	b.holds("t", "v0", "of b")
	return b
}

// 145. Three-cluster ring: refused or documented. The third side has records that are not its source's: they are not cut unasked.
func TestScenario145(t *testing.T) {
	a, b := pair(t)
	c := newCluster(t, "third")
	a.say("t", "1", "2")
	b.mirror("m", a)
	b.begin("m", "t")
	c.mirror("m", b)
	c.begin("m", "t")
	c.awaitEnd("t", 0, 2)
	a.mirror("ring", c)
	a.begin("ring", "t")
	p := a.await("ring", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, "do not come from this source") {
		t.Errorf("reason: %s", p.LastError)
	}
	a.stop("ring", "t")
	a.awaitState("ring", "t", "STOPPED")
	a.say("t", "3")
	for _, x := range []*cluster{b, c} {
		x.awaitEnd("t", 0, a.end("t", 0))
		x.holds("t", "1", "2", "3")
	}
}
