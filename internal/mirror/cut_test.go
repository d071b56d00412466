package mirror_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// cutRecords are the values of what is set aside, in order.
func (c *cluster) cutRecords(f mirroradm.CutFilter) (out []string) {
	c.t.Helper()
	cuts, err := c.mir.Cuts(c.t.Context(), f)
	if err != nil {
		c.t.Fatal(err)
	}
	for r, err := range c.mir.CutRecords(c.t.Context(), cuts) {
		if err != nil {
			c.t.Fatal(err)
		}
		s := fmt.Sprintf("%d:%s", r.Offset, r.Value)
		if !r.Committed {
			s += "?"
		}
		out = append(out, s)
	}
	return out
}

// What a failback cut can be listed, read record by record and removed through any broker; records of transactions are told apart by
// how those ended.
func TestCutsCanBeReadAndPurged(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 2)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 2)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	tx, err := kgo.NewClient(kgo.SeedBrokers(a.addr), kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	for _, v := range []string{"x", "y"} {
		if err := tx.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte(v), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	a.mirror("back", b)
	a.begin("back", "t")
	a.await("back", "t", 0, level)
	cuts, err := a.mir.Cuts(t.Context(), mirroradm.CutFilter{Mirror: "back"})
	if err != nil || len(cuts) != 1 {
		t.Fatalf("cuts: %+v, %v", cuts, err)
	}
	if c := cuts[0]; c.Topic != "t" || c.Partition != 0 || c.First != 2 || c.End != 4 || c.Records != 2 || c.Mirror != "back" || time.Since(c.Created) > time.Minute || c.Reason == "" {
		t.Errorf("cut: %+v", c)
	}
	if got := fmt.Sprint(a.cutRecords(mirroradm.CutFilter{Topics: []string{"t"}})); got != "[2:x 3:y]" {
		t.Errorf("records: %s", got)
	}
	for name, f := range map[string]mirroradm.CutFilter{"mirror": {Mirror: "m"}, "topic": {Topics: []string{"u"}}, "age": {Before: time.Now().Add(-time.Hour)}} {
		if got := a.cutRecords(f); len(got) != 0 {
			t.Errorf("another %s: %v", name, got)
		}
	}
	if err := a.mir.PurgeCuts(context.Background(), cuts); err != nil {
		t.Fatal(err)
	}
	if cuts, err := a.mir.Cuts(t.Context(), mirroradm.CutFilter{}); err != nil || len(cuts) != 0 {
		t.Errorf("after the purge: %v, %v", cuts, err)
	}
	if ents, err := a.mem.ReadDir("/data/cut"); err != nil || len(ents) != 0 {
		t.Errorf("on disk: %v, %v", ents, err)
	}
}
