package formats

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/disk"
	"milena/internal/peertest"
	"milena/mirroradm"
)

var update = flag.Bool("update", false, "write the newest format, while it is not released")

// newest is the format that this release writes; releasedUpTo is the newest that a release has written.
const (
	newest       = 1
	releasedUpTo = 0
)

// maxSize keeps what is checked in small.
const maxSize = 300 << 10

func formatDir(v int) string { return fmt.Sprintf("../../testdata/formats/v%d", v) }

// epoch of the records: far enough back to be no accident, and the same in every run.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestWrite writes the newest format with -update. Without, it only checks that a released one is not to be written again.
func TestWrite(t *testing.T) {
	if !*update {
		if _, err := os.Stat(formatDir(newest)); err != nil {
			t.Fatalf("the newest format has no data directory: %v", err)
		}
		return
	}
	if newest <= releasedUpTo {
		t.Fatalf("format %d is released: raise newest and write the next one", newest)
	}
	dir := filepath.Join(t.TempDir(), "data")
	fill(t, dir)
	to := formatDir(newest)
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if n := copyDir(t, dir, filepath.Join(to, "data")); n > maxSize {
		t.Errorf("the data directory has %d bytes, more than %d", n, maxSize)
	}
	data, err := json.MarshalIndent(open(t, filepath.Join(to, "data")).read(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "expected.json"), append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies files but for locks and returns their bytes.
func copyDir(t *testing.T, from, to string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if d.Name() == ".lock" || d.Name() == ".quorum.lock" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		total += int64(len(data))
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// fill runs a node in dir through everything that leaves something on disk, and stops it cleanly.
func fill(t *testing.T, dir string) {
	source := start(t, disk.NewMem(1), settings("/source", nil))
	r := start(t, nil, settings(dir, map[string]string{
		"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "50", "metadata.log.max.record.bytes.between.snapshots": "600",
	}))
	r.codecs(t)
	r.indexed(t)
	r.compacted(t)
	r.groups(t)
	r.broker(t)
	r.mirror(t, source)
	stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.n.Shutdown(stop); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) create(t *testing.T, name string, partitions int32, configs ...string) {
	t.Helper()
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if _, err := r.adm.CreateTopic(t.Context(), partitions, 1, m, name); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// record i of a topic; every fifth has no key, every seventh no value.
func rec(topic string, i int) *kgo.Record {
	r := &kgo.Record{Topic: topic, Timestamp: epoch.Add(time.Duration(i) * time.Second), Key: fmt.Appendf(nil, "key-%d", i%4), Value: fmt.Appendf(nil, "value-%d", i)}
	if i%5 == 4 {
		r.Key = nil
	}
	if i%7 == 6 {
		r.Value = nil
	}
	if i%3 == 0 {
		r.Headers = []kgo.RecordHeader{{Key: "n", Value: fmt.Appendf(nil, "%d", i)}, {Key: "empty"}}
	}
	return r
}

// codecs has batches of every codec, with and without a producer id, each in a segment of its own, and records deleted
// from its start.
func (r *rig) codecs(t *testing.T) {
	r.create(t, "codecs", 2, "retention.ms", "-1", "segment.ms", "1")
	n := 0
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner())}
		if i%2 == 1 {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		cl := client(t, r.n, opts...)
		for p := range int32(2) {
			var recs []*kgo.Record
			for range 4 {
				x := rec("codecs", n)
				x.Partition, x.Value = p, bytes.Repeat([]byte("squeeze me "), 20) // kgo keeps a batch that does not shrink uncompressed
				recs, n = append(recs, x), n+1
			}
			produce(t, cl, recs...)
		}
	}
	o := kadm.Offsets{}
	o.AddOffset("codecs", 1, 6, -1)
	if _, err := r.adm.DeleteRecords(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// indexed has several batches in a segment, each with an entry in the indexes.
func (r *rig) indexed(t *testing.T) {
	r.create(t, "indexed", 1, "retention.ms", "-1", "index.interval.bytes", "0")
	for i := range 6 {
		produce(t, r.cl, rec("indexed", i))
	}
}

// compacted is a topic that has been compacted, with a tombstone.
func (r *rig) compacted(t *testing.T) {
	r.create(t, "compacted", 1, "cleanup.policy", "compact", "segment.ms", "1", "min.cleanable.dirty.ratio", "0", "delete.retention.ms", "9223372036854775807")
	for i := range 12 {
		x := rec("compacted", i)
		x.Key = fmt.Appendf(nil, "key-%d", i%3)
		if i == 9 {
			x.Value = nil
		}
		produce(t, r.cl, x)
	}
	peertest.Eventually(t, settle, func() error {
		if n := len(r.records(t, "compacted", 0).Records); n > 4 {
			return fmt.Errorf("%d records are left", n)
		}
		return nil
	})
}

// groups are one that has had a member, and one that has only offsets.
func (r *rig) groups(t *testing.T) {
	cl := client(t, r.n, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("codecs"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if fs := cl.PollRecords(t.Context(), 3); fs.Err() != nil {
		t.Fatal(fs.Err())
	}
	if err := cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	cl.CloseAllowingRebalance()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: "codecs", Partition: 1, At: 9, LeaderEpoch: -1, Metadata: "by hand"})
	if err := r.adm.CommitAllOffsets(t.Context(), "admin", o); err != nil {
		t.Fatal(err)
	}
}

// broker sets a dynamic config.
func (r *rig) broker(t *testing.T) {
	v := "2097152"
	if _, err := r.adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "message.max.bytes", Value: &v}}); err != nil {
		t.Fatal(err)
	}
}

// mirror leaves a topic that is being mirrored, and one that was stopped, written to, started again (so that what was
// written here is cut and set aside) and stopped again.
func (r *rig) mirror(t *testing.T, source *rig) {
	ctx := t.Context()
	for _, name := range []string{"mirrored", "failed-over"} {
		source.create(t, name, 1, "retention.ms", "-1")
		for i := range 6 {
			produce(t, source.cl, rec(name, i))
		}
	}
	m := mirroradm.NewClient(r.cl)
	if err := m.Create(ctx, "dr", map[string]string{"bootstrap.servers": source.n.Addr(), "mirror.source.cluster.id": source.n.ClusterID()}); err != nil {
		t.Fatal(err)
	}
	state := func(topic, want string, end int64) {
		t.Helper()
		peertest.Eventually(t, settle, func() error {
			ds, err := m.Describe(ctx, "dr")
			if err != nil || len(ds) != 1 || ds[0].Err != nil {
				return fmt.Errorf("describe: %+v, %v", ds, err)
			}
			for _, p := range ds[0].Partitions {
				if p.Topic == topic && p.State == want && p.DestinationOffset >= end {
					return nil
				}
			}
			return fmt.Errorf("waiting for %s to be %s: %+v", topic, want, ds[0].Partitions)
		})
	}
	begin := func(topic string) {
		t.Helper()
		rs, err := m.Start(ctx, "dr", []mirroradm.StartTopic{{Name: topic}}, nil, nil)
		if err != nil || len(rs) != 1 || rs[0].Err != nil {
			t.Fatalf("start: %+v, %v", rs, err)
		}
		state(topic, "MIRRORING", 6)
	}
	end := func(topic string) {
		t.Helper()
		if _, err := m.Stop(ctx, "dr", []string{topic}, nil); err != nil {
			t.Fatal(err)
		}
		state(topic, "STOPPED", 0)
	}
	begin("mirrored")
	begin("failed-over")
	end("failed-over")
	peertest.Eventually(t, settle, func() error { return r.cl.ProduceSync(ctx, rec("failed-over", 6), rec("failed-over", 7)).FirstErr() })
	begin("failed-over")
	produce(t, source.cl, rec("failed-over", 8))
	state("failed-over", "MIRRORING", 7)
	end("failed-over")
}
