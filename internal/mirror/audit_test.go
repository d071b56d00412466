package mirror_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/fetchwire"
	"milena/internal/record"
	"milena/mirroradm"
)

// quickAudit are the configs of a mirror that compares all the time.
func quickAudit() []string {
	return []string{"mirror.audit.interval.ms", "20", "mirror.audit.bytes.per.second", "1000000000"}
}

// awaitAudit waits until the audit has that result for n partitions.
func (c *cluster) awaitAudit(result string, n float64) {
	c.t.Helper()
	eventually(c.t, func() error {
		if got, ok := c.metric("kafka_server_mirror_audit_partitions", "mirror", "m", "result", result); !ok || got != n {
			return fmt.Errorf("%v partitions are %s, want %v", got, result, n)
		}
		return nil
	})
}

// awaitDifference waits until describe shows a difference that the audit found, or none.
func (c *cluster) awaitDifference(found bool) string {
	c.t.Helper()
	return c.await("m", "t", 0, func(p mirroradm.Partition) bool {
		return p.State == "MIRRORING" && strings.Contains(p.LastError, "the audit found a difference") == found
	}).LastError
}

// "also as a background audit whose age is in the metrics": an equal copy is equal, a flipped byte is a difference that is logged, counted and
// shown with offset and both hashes, and nothing else happens to the partition.
func TestAudit(t *testing.T) {
	a, b := pair(t)
	a.topic("u", 2)
	a.produce("t", 0, 5)
	a.produce("t", 0, 5)
	a.produce("u", 1, 3)
	b.mirror("m", a, quickAudit()...)
	b.begin("m", "t", "u")
	b.awaitEnd("t", 0, 10)
	b.awaitEnd("u", 1, 3)
	b.awaitAudit("equal", 3)
	age, ok := b.metric("kafka_server_mirror_audit_age_seconds", "mirror", "m")
	if read, _ := b.metric("kafka_server_mirror_audit_bytes_total", "mirror", "m"); !ok || age < 0 || read == 0 {
		t.Errorf("age %v %t, %v bytes", age, ok, read)
	}
	if n, _ := b.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n != 0 {
		t.Errorf("%v differences", n)
	}
	_, bases := b.batches("t", 0, 0)
	last := bases[len(bases)-1]
	restore := b.damage("t")
	text := b.awaitDifference(true)
	if want := fmt.Sprintf("at offset %d: batches of different content", last); !strings.Contains(text, want) {
		t.Errorf("describe says %q, want %q", text, want)
	}
	b.awaitAudit("different", 1)
	b.awaitAudit("equal", 2)
	if n, _ := b.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n < 1 {
		t.Errorf("%v differences", n)
	}
	if log := b.logs.text(); !strings.Contains(log, "level=ERROR msg=\"the audit found a difference") || !strings.Contains(log, fmt.Sprintf("offset=%d ", last)) || !strings.Contains(log, "destination_sha256=") {
		t.Error("no error in the log")
	}
	restore()
	b.awaitDifference(false)
	b.awaitAudit("equal", 3)
	b.same(a, "t", 0, 0)
}

// "record-wise on compacted ranges as verify does": the source has compacted what the copy still holds.
func TestAuditCompacted(t *testing.T) {
	a, b := newCluster(t, "source", "log.cleaner.backoff.ms", "10"), newCluster(t, "destination", "log.cleaner.backoff.ms", "3600000")
	a.topic("t", 1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "1")
	put := func(key string) {
		t.Helper()
		value := make([]byte, 600<<10)
		if _, err := rand.Read(value); err != nil { // which no compression makes smaller
			t.Fatal(err)
		}
		r := &kgo.Record{Topic: "t", Key: []byte(key), Value: value}
		if err := a.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.mirror("m", a, quickAudit()...)
	b.begin("m", "t")
	for _, key := range []string{"a", "a", "b"} {
		put(key)
	}
	b.awaitEnd("t", 0, 3)
	if _, err := a.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.cleanable.dirty.ratio", Value: kadm.StringPtr("0.01")}}, "t"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		theirs, _ := a.batches("t", 0, 0)
		if ours, _ := b.batches("t", 0, 0); bytes.Equal(ours, theirs) {
			return fmt.Errorf("the source has not compacted")
		}
		return nil
	})
	b.restart() // what it found before is forgotten
	b.awaitAudit("equal", 1)
	if n, _ := b.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n != 0 {
		t.Errorf("%v differences", n)
	}
}

// A source that is gone leaves the partition undecided, and nothing is said of it; back again it is compared. A paused topic isn't.
func TestAuditSourceGone(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 5)
	b.mirror("m", a, append(quickAudit(), "mirror.fetch.backoff.ms", "10000", "request.timeout.ms", "500")...) // which keeps it MIRRORING meanwhile
	b.begin("m", "t")
	b.awaitEnd("t", 0, 5)
	b.awaitAudit("equal", 1)
	a.kill()
	b.awaitAudit("undecided", 1)
	if n, _ := b.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n != 0 {
		t.Errorf("%v differences", n)
	}
	a.start()
	b.awaitAudit("equal", 1)
	eventually(t, func() error {
		_, err := b.mir.Pause(t.Context(), "m", []string{"t"})
		return err
	})
	b.awaitState("m", "t", "PAUSED")
	if got, ok := b.metric("kafka_server_mirror_audit_partitions", "mirror", "m"); !ok || got != 0 {
		t.Errorf("%v partitions are audited", got)
	}
	if _, ok := b.metric("kafka_server_mirror_audit_age_seconds", "mirror", "m"); ok {
		t.Error("an age without a partition")
	}
}

// Whoever leads the partition compares it.
func TestAuditLeaderMoves(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1)
	a.produce("t", 0, 5)
	b.mirrorAt("m", a.addr, a.n.ClusterID(), quickAudit()...)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 5)
	restore := a.damage("t")
	defer restore()
	b.awaitDifference(true)
	old := b.leader("t")
	b.nodes.Stop(old)
	if id := b.leader("t"); id == old {
		t.Fatalf("node %d still leads", id)
	}
	b.awaitDifference(true)
}

// A batch that was skipped on purpose is no difference.
func TestAuditSkipped(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 2)
	a.produce("t", 0, 3)
	restore := a.damage("t")
	defer restore()
	_, bases := a.batches("t", 0, 0)
	bad := bases[len(bases)-1]
	b.mirror("m", a, append(quickAudit(), "mirror.skip.batches", fmt.Sprintf("t:0:%d", bad))...)
	b.begin("m", "t")
	a.produce("t", 0, 2)
	b.awaitEnd("t", 0, 7)
	b.restart() // what it found before is forgotten
	b.awaitAudit("equal", 1)
	if n, _ := b.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n != 0 {
		t.Errorf("%v differences", n)
	}
}

// "A difference has to be there twice, with a pause between": what is gone by then, as when a cut is under way, is none.
func TestAuditDifferenceThatPasses(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 2)
	dst := mirrorOf(t, f, "mirror.audit.interval.ms", "100", "mirror.audit.bytes.per.second", "1000000000")
	dst.awaitEnd("t", 0, 2)
	other, err := record.Build(record.BuilderOptions{LeaderEpoch: 1}, record.Record{Value: []byte("a")}, record.Record{Offset: 1, Value: []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	reads := 0 // of the audit: what is mirrored is fetched from the end
	f.set(func() {
		f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
			if q.FetchOffset != 0 {
				return nil
			}
			if reads++; reads > 1 {
				return nil
			}
			p := fetchwire.NewResponsePartition(q.Partition)
			p.HighWatermark, p.Records = 2, []record.Span{record.MemSpan(other)}
			return &p
		}
	})
	eventually(t, func() error { // until a comparison after the first was decided
		f.mu.Lock()
		defer f.mu.Unlock()
		if reads < 4 {
			return fmt.Errorf("the audit has read %d times", reads)
		}
		return nil
	})
	dst.awaitAudit("equal", 1)
	if n, _ := dst.metric("kafka_server_mirror_audit_differences_total", "mirror", "m"); n != 0 {
		t.Errorf("%v differences", n)
	}
}
