package mirror_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// pair is a source and a destination with topic "t" of one partition on the source.
func pair(t *testing.T) (src, dst *cluster) {
	t.Helper()
	src, dst = newCluster(t, "source"), newCluster(t, "destination")
	src.topic("t", 1)
	return src, dst
}

// pause pauses a topic and waits until it is; resume lets it go on.
func (c *cluster) pause(mirror, topic string) {
	c.t.Helper()
	if rs, err := c.mir.Pause(c.t.Context(), mirror, []string{topic}); err != nil || rs.Error() != nil {
		c.t.Fatal(rs, err)
	}
	c.awaitState(mirror, topic, "PAUSED")
}

func (c *cluster) resume(mirror, topic string) {
	c.t.Helper()
	if rs, err := c.mir.Resume(c.t.Context(), mirror, []string{topic}); err != nil || rs.Error() != nil {
		c.t.Fatal(rs, err)
	}
}

func level(p mirroradm.Partition) bool {
	lag, known := p.Lag()
	return p.State == "MIRRORING" && known && lag == 0
}

// "record batches are appended as received" (1.1); "end offset = source end + 1 per open transaction + 1" (8.8).
func TestMirrorStopWrite(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 20)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 20)
	src.produce("t", 0, 5)
	dst.awaitEnd("t", 0, 25)
	dst.same(src, "t", 0, 0)

	// D10: an ordinary produce to a mirror topic is answered POLICY_VIOLATION, with READ_ONLY_TOPIC in the words.
	err := dst.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Fatalf("produce to a mirror topic: %v", err)
	}
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	if end := dst.end("t", 0); end != 26 {
		t.Fatalf("after the stop the log ends at %d, want 26: one reset of the producers", end)
	}
	dst.produce("t", 0, 1)
}

// "PAUSED: read-only, no fetcher" (7.6); "Resume goes straight to MIRRORING (fetch from local LEO, no truncation)".
func TestPauseResume(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 3)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.await("m", "t", 0, level)
	if _, err := dst.mir.Pause(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	p := dst.awaitState("m", "t", "PAUSED")
	if _, known := p.Lag(); known {
		t.Errorf("a paused partition shows a lag: %+v", p) // D6
	}
	src.produce("t", 0, 3)
	if _, err := dst.mir.Pause(t.Context(), "m", []string{"t"}); !hasCode(err, "INVALID_CLUSTER_MIRROR_STATES") {
		t.Errorf("pause of a paused topic: %v", err)
	}
	err := dst.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("produce to a paused mirror topic: %v", err)
	}
	if end := dst.end("t", 0); end != 3 {
		t.Errorf("a paused partition went on to offset %d", end)
	}
	if _, err := dst.mir.Resume(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitEnd("t", 0, 6)
	dst.same(src, "t", 0, 0)
}

// "Works without the source: no source RPC is needed in STOPPING" (8.8).
func TestStopWithSourceGone(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 7)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 7)
	src.kill()
	dst.awaitState("m", "t", "FAILED")
	began := time.Now()
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("the failover took %s", d)
	}
	dst.produce("t", 0, 1)
	if end := dst.end("t", 0); end != 9 {
		t.Errorf("the log ends at %d, want 9", end)
	}
}

// "All state is persistent. After restart the broker replays its __mirror_state partitions" (8.23): it goes on where it was.
func TestRestarts(t *testing.T) {
	src, dst := pair(t)
	dst.mirror("m", src)
	src.produce("t", 0, 10)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 10)
	src.produce("t", 0, 10)
	dst.crash() // what was not flushed is fetched again
	dst.awaitEnd("t", 0, 20)
	dst.same(src, "t", 0, 0)
	// The source comes back with a higher leader epoch; the epochs of its batches stay as they are here.
	src.restart()
	src.produce("t", 0, 2)
	dst.awaitEnd("t", 0, 22)
	dst.same(src, "t", 0, 0)
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	dst.crash()
	dst.awaitState("m", "t", "STOPPED")
	dst.produce("t", 0, 1)
}

// D3 (b): "what this cluster itself holds for this topic from a mirror with that source cluster ID (restart in the same
// direction, 8.3)": nothing is copied again, what was written after the stop goes, set aside (D4).
func TestStartAfterStop(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 10)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 10)
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	dst.produce("t", 0, 4)
	src.produce("t", 0, 3)
	// A mirror of another name takes over: the topic's history is the same.
	dst.mirror("m2", src)
	dst.begin("m2", "t")
	dst.await("m2", "t", 0, level)
	dst.same(src, "t", 0, 0)
	if cuts, err := dst.mir.Cuts(t.Context(), mirroradm.CutFilter{Mirror: "m2"}); err != nil || len(cuts) != 1 || cuts[0].Topic != "t" || cuts[0].First != 10 {
		t.Errorf("records that were cut are not set aside: %+v %v", cuts, err)
	}
	if _, err := dst.mir.Stop(t.Context(), "m", []string{"t"}, nil); err != nil {
		t.Fatal(err)
	}
	rs, _ := dst.mir.Stop(t.Context(), "m", []string{"t"}, nil)
	if topicCode(rs, "t") != "TOPIC_NOT_IN_CLUSTER_MIRROR" {
		t.Errorf("stop of a topic taken over by another mirror: %v", rs)
	}
}

// 4.4: TOPIC_ALREADY_EXISTS if "the name exists on the destination with another ID".
func TestStartOnAnotherTopic(t *testing.T) {
	src, dst := pair(t)
	dst.topic("t", 1)
	dst.produce("t", 0, 5)
	dst.mirror("m", src)
	rs, err := dst.mir.Start(t.Context(), "m", []mirroradm.StartTopic{{Name: "t"}}, nil, nil)
	if topicCode(rs, "t") != "TOPIC_ALREADY_EXISTS" || err == nil {
		t.Fatalf("start on a topic with another id: %v %v", rs, err)
	}
	dst.produce("t", 0, 1) // it stays an ordinary topic
}

// D3: "If there is neither ... and the local log is not empty: FAILED, non-retryable, naming the number of records that would
// go; consent is the mirror-level config mirror.truncate.unrelated.topics". A stop of the failed partition is no consent.
func TestUnrelatedRecords(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 3)
	dst.mirror("old", src)
	dst.begin("old", "t")
	dst.awaitEnd("t", 0, 3)
	dst.stop("old", "t")
	dst.awaitState("old", "t", "STOPPED")
	dst.produce("t", 0, 4)
	if err := dst.mir.Delete(t.Context(), "old"); err != nil { // and with it what is known of the shared history
		t.Fatal(err)
	}
	dst.mirror("m", src)
	for i := range int64(2) {
		dst.begin("m", "t")
		p := dst.awaitState("m", "t", "FAILED")
		if p.RetryAttempt != -1 || !strings.Contains(p.LastError, fmt.Sprintf("%d records", 8+i)) {
			t.Fatalf("unrelated records: %+v", p)
		}
		if end := dst.end("t", 0); end != 8+i {
			t.Fatalf("they were cut: end %d", end)
		}
		dst.stop("m", "t")
		dst.awaitState("m", "t", "STOPPED")
		if end := dst.end("t", 0); end != 9+i {
			t.Fatalf("end after the stop: %d", end)
		}
	}
	consent := kadm.AlterConfig{Op: kadm.SetConfig, Name: "mirror.truncate.unrelated.topics", Value: kadm.StringPtr("t")}
	dst.alterMirror("m", consent)
	dst.begin("m", "t")
	dst.await("m", "t", 0, level)
	dst.awaitEnd("t", 0, 3)
	dst.same(src, "t", 0, 0)
	if cuts, err := dst.mir.Cuts(t.Context(), mirroradm.CutFilter{}); err != nil || len(cuts) != 1 {
		t.Errorf("what was cut is not set aside: %+v %v", cuts, err)
	}
}

// "Source topic deleted: FAILED non-retryable, text says that the source topic was deleted" (8.14 step 4), and "stopped topics
// must be left alone" (box in 8.14).
func TestSourceTopicDeleted(t *testing.T) {
	src, dst := pair(t)
	src.topic("s", 1)
	src.produce("t", 0, 2)
	src.produce("s", 0, 2)
	dst.mirror("m", src)
	dst.begin("m", "t", "s")
	dst.awaitEnd("t", 0, 2)
	dst.awaitEnd("s", 0, 2)
	dst.stop("m", "s")
	dst.awaitState("m", "s", "STOPPED")
	if _, err := src.adm.DeleteTopics(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, "deleted") {
		t.Errorf("reason: %q", p.LastError)
	}
	// Created again it is another topic, which is never followed.
	src.topic("t", 1)
	src.cl.PurgeTopicsFromClient("t")
	src.produce("t", 0, 9)
	if end := dst.end("t", 0); end != 2 {
		t.Errorf("the mirror followed a topic that was created again: end %d", end)
	}
	if s, err := dst.state("m", "s", 0); err != nil || s.State != "STOPPED" {
		t.Errorf("the stopped topic is %v (%v)", s, err)
	}
	dst.produce("s", 0, 1)
	dst.stop("m", "t") // from FAILED
	dst.awaitState("m", "t", "STOPPED")
}

// "Changing bootstrap servers to another cluster is caught by the cluster ID check" (8.24), before anything is fetched from it
// or cut for it.
func TestAnotherClusterBehindTheAddress(t *testing.T) {
	src, dst := pair(t)
	other := newCluster(t, "other")
	other.topic("t", 1)
	other.produce("t", 0, 1)
	src.produce("t", 0, 8)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 8)
	addr := src.addr
	src.kill()
	other.kill()
	other.addr = addr
	other.start() // same topic name, another cluster, at the source's address
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, "cluster id") {
		t.Errorf("reason: %q", p.LastError)
	}
	if end := dst.end("t", 0); end != 8 {
		t.Errorf("the log was cut to %d", end)
	}
	if _, err := dst.mem.ReadDir("/data/cut"); err == nil {
		t.Error("something was set aside for a cut")
	}
	// The operator brings the source back and says so.
	other.kill()
	src.start()
	src.produce("t", 0, 1)
	if _, err := dst.mir.Recover(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitEnd("t", 0, 9)
	p = dst.await("m", "t", 0, level)
	if p.LastError != "" || p.RetryAttempt != 0 {
		t.Errorf("after the recovery an error is left: %+v", p)
	}
}

// "Expand partitions when the source has more" (8.14 step 6); "pattern discovery" (step 12) and exclusion (step 13).
func TestDiscoveryAndGrowth(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 2)
	dst.mirror("m", src, "mirror.topics.include", "t.*")
	dst.awaitEnd("t", 0, 2)
	if _, err := src.adm.CreatePartitions(t.Context(), 2, "t"); err != nil {
		t.Fatal(err)
	}
	src.topic("t2", 1)
	src.topic("other", 1)
	eventually(t, func() error {
		src.cl.ForceMetadataRefresh()
		return src.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 2, Value: []byte("v")}).FirstErr()
	})
	dst.awaitEnd("t", 2, 1)
	dst.await("m", "t2", 0, level)
	if _, err := dst.state("m", "other", 0); err == nil {
		t.Error("a topic that no pattern matches is mirrored")
	}
	rs, err := dst.adm.CreatePartitions(t.Context(), 1, "t") // the guard is for clients, not for the mirror's own requests (4.15)
	if err != nil {
		t.Fatal(err)
	}
	if r := rs["t"]; !errors.Is(r.Err, kerr.PolicyViolation) {
		t.Errorf("more partitions for a mirror topic: %v", r.Err)
	}
}

// 16.3, 6: "state records of deleted topics stay in __mirror_state until the mirror is deleted. [R]: write tombstones on topic deletion":
// a topic that is deleted here and mirrored again has the id of before, and nothing of its states.
func TestDeletedHereAndMirroredAgain(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 5)
	dst.mirror("m", src)
	for range 2 {
		dst.begin("m", "t")
		dst.await("m", "t", 0, level)
		dst.awaitEnd("t", 0, 5)
		dst.same(src, "t", 0, 0)
		dst.stop("m", "t")
		dst.awaitState("m", "t", "STOPPED")
		if _, err := dst.mir.Stop(t.Context(), "m", []string{"t"}, []string{"t"}); err != nil {
			t.Fatal(err)
		}
		if rs, err := dst.adm.DeleteTopics(t.Context(), "t"); err != nil || rs.Error() != nil {
			t.Fatal(rs, err)
		}
		dst.alterMirror("m", kadm.AlterConfig{Op: kadm.SetConfig, Name: "mirror.topics.exclude", Value: kadm.StringPtr("")})
	}
}
