package logdir

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
)

// testdata/formats keeps a data directory of every released format, and one
// that Apache Kafka 4.4 wrote. They are never changed: a new format gets a new
// directory (-write-format NAME).
var writeFormat = flag.String("write-format", "", "write a data directory of the present format to testdata/formats/NAME")

// loadTree copies a directory to the same disk that a test may change.
func loadTree(t *testing.T, from, to string) *disk.Mem {
	t.Helper()
	mem := disk.NewMem(1)
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return mem.Mkdir(dst)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := mem.Create(dst)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		return f.Close()
	}))
	return mem
}

// content lists a log's data records as a read_committed consumer sees them.
func content(t *testing.T, l *partlog.Log) (out []string) {
	t.Helper()
	info, err := l.Read(l.StartOffset(), 1<<30, l.EndOffset(), true)
	must(t, err)
	defer info.Release()
	aborted, err := l.AbortedTxns(l.StartOffset(), l.EndOffset())
	must(t, err)
	var buf bytes.Buffer
	for _, s := range info.Spans {
		_, err := s.WriteTo(&buf)
		must(t, err)
	}
	skip := map[int64]bool{}
	for b, err := range record.Batches(buf.Bytes()) {
		must(t, err)
		must(t, b.CheckCRC())
		for _, a := range aborted {
			if a.FirstOffset == b.BaseOffset() {
				skip[a.ProducerID] = true
			}
		}
		if b.IsControl() {
			delete(skip, b.ProducerID())
			continue
		}
		if b.IsTransactional() && skip[b.ProducerID()] {
			continue
		}
		for r, err := range b.Records(0) {
			must(t, err)
			out = append(out, fmt.Sprintf("%d:%s=%s", r.Offset, r.Key, r.Value))
		}
	}
	return out
}

func TestReleasedFormatsOpen(t *testing.T) {
	if *writeFormat != "" {
		writeSample(t, filepath.Join("testdata/formats", *writeFormat))
	}
	var plain []string
	for i := range 59 {
		plain = append(plain, fmt.Sprintf("%d:k=value-%d", i, i))
	}
	plain = append(plain, "59:k=")
	for name, want := range map[string]struct {
		cluster   string
		plain     []string
		compacted []string
		ends      [2]int64
		producers int // of the plain topic
	}{
		"kafka-4.4": {"AAAAAAAAAAAAAAAAAAAAAQ", append(plain[:60:60], "60:=txn-0", "61:=more", "66:=txn-2", "67:=more"),
			[]string{"35:k0=value-35", "36:k1=value-36", "37:k2=", "38:k3=value-38", "39:k4=value-39", "40:last=last"}, [2]int64{69, 41}, 2},
		"milena-1": {"cluster-a", append(plain[:60:60], "60:=txn-0", "64:=txn-2"),
			[]string{"35:k0=value-35", "36:k1=value-36", "37:k2=", "38:k3=value-38", "39:k4=value-39", "40:last=last"}, [2]int64{66, 41}, 2},
	} {
		for _, wasClean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/clean=%v", name, wasClean), func(t *testing.T) {
				mem := loadTree(t, filepath.Join("testdata/formats", name), "/a")
				if !wasClean {
					must(t, mem.Remove("/a/"+cleanFile))
					must(t, mem.Remove("/a/"+recoveryFile))
				}
				o := options(mem, "/a")
				o.ClusterID = want.cluster
				o.Config = func(string, ids.UUID) partlog.Config {
					c := partlog.DefaultConfig()
					c.ProducerIDExpiration = 0
					return c
				}
				s := open(t, o)
				check := func(topic string, end int64, recs []string) {
					t.Helper()
					l := s.Get(topic, 0)
					if l.EndOffset() != end || l.LatestEpoch() < 0 || l.TopicID().IsZero() {
						t.Fatalf("%s ends at %d, epoch %d, id %s", topic, l.EndOffset(), l.LatestEpoch(), l.TopicID())
					}
					if got := content(t, l); fmt.Sprint(got) != fmt.Sprint(recs) {
						t.Errorf("%s holds\n%v, want\n%v", topic, got, recs)
					}
				}
				check("plain", want.ends[0], want.plain)
				check("compacted", want.ends[1], want.compacted)
				if n := len(s.Get("plain", 0).ProducerStates()); n != want.producers {
					t.Errorf("%d producers", n)
				}
				if lso := s.Get("plain", 0).LastStableOffset(want.ends[0]); lso != want.ends[0] {
					t.Errorf("LSO %d", lso)
				}
				b, err := record.Build(record.BuilderOptions{}, record.Record{Value: []byte("new")})
				must(t, err)
				_, err = s.Get("plain", 0).Append(b, partlog.AppendOptions{LeaderEpoch: 9})
				must(t, err)
				must(t, s.Close(context.Background(), true, 1))
			})
		}
	}
}

// writeSample writes a data directory of the present format.
func writeSample(t *testing.T, dir string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
	formatted(t, disk.OS(), dir)
	s := open(t, options(disk.OS(), dir))
	build := func(o record.BuilderOptions, key string, val []byte) []byte {
		r := record.Record{Timestamp: 1_700_000_000_000, Value: val}
		if key != "" {
			r.Key = []byte(key)
		}
		b, err := record.Build(o, r)
		must(t, err)
		return b
	}
	put := func(l *partlog.Log, b []byte, epoch int32) {
		_, err := l.Append(b, partlog.AppendOptions{LeaderEpoch: epoch})
		must(t, err)
		l.UpdateHighWatermark(l.EndOffset())
	}
	c := partlog.DefaultConfig()
	c.SegmentBytes, c.IndexInterval = 2000, 200
	l, err := s.GetOrCreate(ids.UUID{1}, "plain", 0, c, ids.UnassignedDir)
	must(t, err)
	for i := range 60 {
		val := fmt.Appendf(nil, "value-%d", i)
		if i == 59 {
			val = nil
		}
		put(l, build(record.BuilderOptions{Producer: &record.Producer{ID: 1, BaseSequence: int32(i)},
			Compression: record.Compression{Codec: record.Codec(i % 5)}}, "k", val), int32(i/30))
	}
	for i := range 3 {
		put(l, build(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 2, BaseSequence: int32(i)}}, "", fmt.Appendf(nil, "txn-%d", i)), 2)
		_, err := l.Append(record.EndTxnMarker(i != 1, 0, 2, 0, 1_700_000_000_000), partlog.AppendOptions{Origin: partlog.OriginCoordinator, LeaderEpoch: 2})
		must(t, err)
	}
	c.Compact, c.Delete, c.SegmentBytes = true, false, 900
	l, err = s.GetOrCreate(ids.UUID{2}, "compacted", 0, c, ids.UnassignedDir)
	must(t, err)
	for i := range 40 {
		val := fmt.Appendf(nil, "value-%d", i)
		if i == 37 {
			val = nil
		}
		put(l, build(record.BuilderOptions{}, fmt.Sprintf("k%d", i%5), val), 0)
	}
	c.SegmentBytes = 100
	l.SetConfig(c)
	put(l, build(record.BuilderOptions{}, "last", []byte("last")), 0)
	_, err = l.Compact(partlog.CompactOptions{Now: time.UnixMilli(1_700_000_000_000), MapBytes: 1 << 20})
	must(t, err)
	must(t, s.Close(context.Background(), true, 7))
	must(t, os.Remove(filepath.Join(dir, lockFile)))
}
