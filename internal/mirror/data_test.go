package mirror_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/disk"
	"milena/internal/fetchwire"
	"milena/internal/record"
	"milena/mirroradm"
)

// trim moves a source partition's log start.
func (c *cluster) trim(topic string, to int64) {
	c.t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, 0, to, -1)
	rs, err := c.adm.DeleteRecords(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := rs.Error(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) first(topic string) int64 {
	c.t.Helper()
	o, err := c.adm.ListStartOffsets(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	x, _ := o.Lookup(topic, 0)
	return x.Offset
}

// "advance the local log start offset to the source's log start offset" (8.4); "the resumed fetch gets OFFSET_OUT_OF_RANGE and
// restarts at the source's log start" (8.6). A log start inside a batch is one too: the batch comes whole.
func TestSourceLogStart(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 10) // one batch
	src.trim("t", 4)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 10)
	if at := dst.first("t"); at != 4 {
		t.Errorf("log start %d, the source's is 4", at)
	}
	src.trim("t", 7)
	eventually(t, func() error {
		if at := dst.first("t"); at != 7 {
			return fmt.Errorf("log start %d, the source's is 7", at)
		}
		return nil
	})
	if _, err := dst.mir.Pause(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitState("m", "t", "PAUSED")
	src.produce("t", 0, 10)
	src.produce("t", 0, 10)
	src.trim("t", 22)
	if _, err := dst.mir.Resume(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitEnd("t", 0, 30)
	dst.same(src, "t", 0, 20)
	if at := dst.first("t"); at != 22 {
		t.Errorf("log start %d, the source's is 22", at)
	}
	dst.await("m", "t", 0, level)
}

// D13: "A mirror append ignores max.message.bytes; mirror.fetch.max.bytes never blocks a bigger first batch".
//
// 173. A batch of 8 MiB, above the destination's max.message.bytes and the fetch limits, is mirrored.
func TestScenario173(t *testing.T) {
	src, dst := pair(t)
	src.topic("big", 1, "max.message.bytes", "20000000")
	value := make([]byte, 8<<20)
	if _, err := rand.Read(value); err != nil {
		t.Fatal(err)
	}
	src.produce("big", 0, 1)
	if err := src.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "big", Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	src.produce("big", 0, 1)
	dst.mirror("m", src, "mirror.fetch.max.bytes", "1000", "mirror.fetch.response.max.bytes", "2000", "mirror.topic.properties.exclude", "max.message.bytes")
	dst.begin("m", "big")
	dst.awaitEnd("big", 0, 3)
	dst.same(src, "big", 0, 0)
}

// damage flips a byte in the records of the last batch of a partition's first segment.
func (c *cluster) damage(topic string) (restore func()) {
	c.t.Helper()
	name := filepath.Join("/data", topic+"-0", "00000000000000000000.log")
	f, err := c.mem.OpenAppend(name)
	if err != nil {
		c.t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		c.t.Fatal(err)
	}
	old := make([]byte, 1)
	if _, err := f.ReadAt(old, size-3); err != nil {
		c.t.Fatal(err)
	}
	put := func(b byte) {
		if _, err := f.WriteAt([]byte{b}, size-3); err != nil {
			c.t.Fatal(err)
		}
	}
	put(old[0] ^ 0xff)
	return func() { put(old[0]); _ = f.Close() }
}

// D14: "A batch that fails its CRC at the same offset in three fetches makes the partition FAILED with the offset". What comes
// before it is mirrored, also where it came in the same answer.
func TestDamagedBatch(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 5)
	src.produce("t", 0, 5)
	_, bases := src.batches("t", 0, 0)
	bad := bases[len(bases)-1]
	restore := src.damage("t")
	dst.mirror("m", src)
	dst.begin("m", "t")
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, fmt.Sprintf("offset %d ", bad)) {
		t.Errorf("reason: %q", p.LastError)
	}
	if end := dst.end("t", 0); end != bad {
		t.Errorf("the log ends at %d, want %d", end, bad)
	}
	restore()
	if _, err := dst.mir.Recover(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitEnd("t", 0, 10)
	dst.same(src, "t", 0, 0)
}

// 174. One flipped byte in a source batch on the wire and on the source's disk: first refetched, then FAILED with the offset; skip continues
// behind it and the gap is shown.
func TestScenario174(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 3)
	f.add(1, 2)
	f.add(1, 1)
	flips, flip := 2, int64(0) // as often, the batch at that offset
	f.set(func() {
		f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
			if q.FetchOffset != flip || flips == 0 {
				return nil
			}
			flips--
			p := fetchwire.NewResponsePartition(q.Partition)
			p.HighWatermark = f.end()
			for _, b := range f.batches {
				if b.LastOffset() < flip {
					continue
				}
				if b.BaseOffset() == flip {
					b = bytes.Clone(b)
					b[len(b)-1] ^= 1
				}
				p.Records = append(p.Records, record.MemSpan(b))
			}
			return &p
		}
	})
	b := mirrorOf(t, f)
	b.awaitEnd("t", 0, 6)
	if strings.Contains(b.logs.text(), "to=FAILED") {
		t.Error("a byte that flipped on the wire failed the partition")
	}
	f.set(func() { flips, flip = 1<<30, 6 })
	f.add(1, 2)
	f.add(1, 1)
	p := b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if !strings.Contains(p.LastError, "offset 6 ") {
		t.Errorf("reason: %s", p.LastError)
	}
	if err := b.mir.AlterConfigs(t.Context(), "m", map[string]string{"mirror.skip.batches": "t:0:6"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the config is known everywhere a moment later
		if _, err := b.mir.Recover(t.Context(), "m", []string{"t"}); err != nil {
			return err
		}
		if end := b.end("t", 0); end != 9 {
			return fmt.Errorf("the log ends at %d", end)
		}
		return nil
	})
	cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{})
	if err != nil || len(cuts) != 1 || cuts[0].First != 6 || cuts[0].End != 8 || !strings.Contains(cuts[0].Reason, "gap: ") {
		t.Errorf("gaps: %+v, %v", cuts, err)
	}
	b.holds("t", "v0", "v1", "v2", "v0", "v1", "v0", "v0")
}

// D14: "milena mirrors skip continues behind it and records a gap": by the config mirror.skip.batches and a recover. The batches before
// and behind the damaged one are the source's.
func TestScenario174Skip(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 5)
	src.produce("t", 0, 5)
	_, bases := src.batches("t", 0, 0)
	bad := bases[len(bases)-1]
	defer src.damage("t")()
	src.produce("t", 0, 5)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	if err := dst.mir.AlterConfigs(t.Context(), "m", map[string]string{"mirror.skip.batches": fmt.Sprintf("other:0:1,t:0:%d", bad)}); err != nil {
		t.Fatal(err)
	}
	if _, err := dst.mir.Recover(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitEnd("t", 0, 15)
	theirs, _ := src.batches("t", 0, 0)
	ours, _ := dst.batches("t", 0, 0)
	var want []byte
	for b, err := range record.Batches(theirs) {
		if err != nil {
			t.Fatal(err)
		}
		if b.BaseOffset() < bad || b.BaseOffset() >= bad+5 {
			want = append(want, b...)
		}
	}
	if !bytes.Equal(ours, want) {
		t.Errorf("%d bytes and not the %d of the batches around the damaged one", len(ours), len(want))
	}
}

// D7: "Retention and compaction don't run on a mirror topic until its configs were synced once; the first sync is part of
// Start": records that are two years old are there after the first retention passes.
func TestOldRecordsSurvive(t *testing.T) {
	src := newCluster(t, "source")
	dst := newCluster(t, "destination", "log.retention.check.interval.ms", "10")
	src.topic("t", 1, "retention.ms", "-1", "segment.bytes", "1048576", "min.insync.replicas", "1", "cleanup.policy", "delete")
	old := time.Now().AddDate(-2, 0, 0)
	for range 3 {
		v := bytes.Repeat([]byte("x"), 600<<10)
		if err := src.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: v, Timestamp: old}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 3)
	dst.same(src, "t", 0, 0)
	dst.restart()
	dst.await("m", "t", 0, level)
	if at := dst.first("t"); at != 0 {
		t.Errorf("retention took records up to %d", at)
	}
	got, err := dst.adm.DescribeTopicConfigs(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, c := range got[0].Configs {
		if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			set[c.Key] = *c.Value
		}
	}
	if set["retention.ms"] != "-1" || set["segment.bytes"] != "1048576" {
		t.Errorf("configs are not carried: %v", set)
	}
	if v, ok := set["min.insync.replicas"]; ok {
		t.Errorf("an excluded config was carried: %s", v) // D16
	}
	// A change at the source follows; a config that the sync sets is not a client's to change (D7).
	src.setTopic("t", "retention.ms", "123456789")
	eventually(t, func() error {
		rs, err := dst.adm.DescribeTopicConfigs(t.Context(), "t")
		if err != nil {
			return err
		}
		for _, c := range rs[0].Configs {
			if c.Key == "retention.ms" && *c.Value == "123456789" {
				return nil
			}
		}
		return fmt.Errorf("retention.ms of the mirror topic did not follow")
	})
	if err := dst.trySetTopic("t", "retention.ms", "1"); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		t.Errorf("change of a synced config: %v", err)
	}
	if err := dst.trySetTopic("t", "min.insync.replicas", "1"); err != nil {
		t.Errorf("change of a config that is not synced: %v", err)
	}
}

func (c *cluster) trySetTopic(topic, key, value string) error {
	rs, err := c.adm.AlterTopicConfigs(c.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		return err
	}
	return rs[0].Err
}

func (c *cluster) setTopic(topic, key, value string) {
	c.t.Helper()
	if err := c.trySetTopic(topic, key, value); err != nil {
		c.t.Fatal(err)
	}
}

// A directory with too little space left "refuses client and mirror writes with a retriable error ... and recovers by itself".
func TestDiskFull(t *testing.T) {
	src := newCluster(t, "source")
	src.topic("t", 1)
	dst := newCluster(t, "destination", "log.dir.reserve.bytes", "4194304")
	dst.mirror("m", src)
	dst.begin("m", "t")
	src.produce("t", 0, 1)
	dst.awaitEnd("t", 0, 1)
	free, total, err := dst.mem.Free("/data")
	if err != nil {
		t.Fatal(err)
	}
	dst.mem.SetCapacity(total - free + 1<<20)
	var produced int64 = 1
	eventually(t, func() error { // the space is looked at once a second
		src.produce("t", 0, 1)
		produced++
		if p, err := dst.state("m", "t", 0); err != nil || p.LastError == "" {
			return fmt.Errorf("batches are still appended (%v)", err)
		}
		return nil
	})
	p := dst.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.LastError != "" })
	if p.State != "MIRRORING" || !strings.Contains(p.LastError, "reserve") {
		t.Errorf("with a full disk: %+v", p)
	}
	dst.mem.SetCapacity(total)
	dst.awaitEnd("t", 0, produced)
	dst.same(src, "t", 0, 0)
}

// 8.9 and D3 (a): "what the source answers for this topic and this cluster (failback)": only the difference moves, and what
// the old source took in meanwhile is set aside.
func TestFailback(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 6)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 6)
	// While B mirrors A, A can't mirror B.
	a.mirror("back", b)
	a.begin("back", "t")
	p := a.awaitState("back", "t", "FAILED")
	if !strings.Contains(p.LastError, "Detected mirror loop for mirror back") {
		t.Errorf("reason: %q", p.LastError)
	}
	a.stop("back", "t")
	a.awaitState("back", "t", "STOPPED")
	b.awaitEnd("t", 0, 7) // the mark of that stop, too
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	a.produce("t", 0, 2)
	b.produce("t", 0, 4)
	a.begin("back", "t")
	a.await("back", "t", 0, level)
	a.same(b, "t", 0, 0)
	if data := a.cutBatches(); len(data) != 1 || data[0] != 7 {
		t.Errorf("set aside: %v", data)
	}
}

// cutBatches are the base offsets of the batches that were set aside.
func (c *cluster) cutBatches() (bases []int64) {
	c.t.Helper()
	ents, err := c.mem.ReadDir("/data/cut")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range ents {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue // what is said of one
		}
		data, err := disk.ReadFile(c.mem, "/data/cut/"+e.Name())
		if err != nil {
			c.t.Fatal(err)
		}
		for b, err := range record.Batches(data) {
			if err != nil {
				c.t.Fatal(err)
			}
			bases = append(bases, b.BaseOffset())
		}
	}
	return bases
}
