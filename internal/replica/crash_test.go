package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// node is a manager over real log directories.
type node struct {
	dirs *logdir.Set
	m    *replica.Manager
}

var topicID = ids.UUID{1, 15: 1}

func start(t *testing.T, fs disk.FS, cfg partlog.Config) *node {
	t.Helper()
	paths := []string{"/disk1", "/disk2"}
	var next byte
	err := logdir.Format(logdir.FormatOptions{
		FS: fs, Dirs: paths, NodeID: 1, ClusterID: "cluster-of-the-tests00", IgnoreFormatted: true,
		NewID: func() (ids.UUID, error) { next++; return ids.UUID{9, 15: next}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	n.dirs, err = logdir.Open(logdir.Options{
		FS: fs, Dirs: paths, NodeID: 1, Logger: slog.New(slog.DiscardHandler),
		Config:       func(string, ids.UUID) partlog.Config { return cfg },
		ReserveBytes: 64 << 10, SpaceInterval: time.Second,
		OnOffline: func(dir string, _ ids.UUID, err error) { n.m.DirectoryOffline(dir, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.m, err = replica.New(replica.Options{
		NodeID: 1, Dirs: n.dirs, Logger: slog.New(slog.DiscardHandler),
		Settings: func(*meta.Image, string) replica.Settings { return replica.Settings{Log: cfg, MinISR: 1} },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := meta.Empty("cluster-of-the-tests00").Draft()
	recs := []meta.Record{&meta.TopicRecord{TopicName: "t", TopicID: topicID}}
	for i := range int32(4) {
		recs = append(recs, &meta.PartitionRecord{
			PartitionID: i, TopicID: topicID, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, Directories: make([]ids.UUID, 1),
		})
	}
	for i, r := range recs {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	n.m.Apply(d.Delta())
	return n
}

func (n *node) get(t *testing.T, partition int32) *replica.Partition {
	t.Helper()
	p, err := n.m.Get("t", partition)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(p *replica.Partition, value string) (partlog.AppendInfo, error) {
	b, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: 1000, Value: []byte(value)})
	if err != nil {
		return partlog.AppendInfo{}, err
	}
	return p.Append(b, replica.AppendOptions{Acks: -1, Epoch: replica.AnyEpoch})
}

// values are the partition's records by offset.
func values(t *testing.T, p *replica.Partition) map[int64]string {
	t.Helper()
	out := map[int64]string{}
	off := p.LogStartOffset()
	for off < p.HighWatermark() {
		res, err := p.Read(replica.ReadParams{Offset: off, MaxBytes: 1 << 20, MinOne: true, ReplicaID: -1, CurrentEpoch: -1, LastFetched: -1})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range res.Spans {
			buf, err := span.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			for b, err := range record.Batches(buf) {
				if err != nil {
					t.Fatal(err)
				}
				for rec, err := range b.Records(0) {
					if err != nil {
						t.Fatal(err)
					}
					out[rec.Offset] = string(rec.Value)
				}
				off = b.NextOffset()
			}
		}
		res.Release()
	}
	return out
}

// With flush.messages=1 what was acknowledged survives a power cut.
func TestAcknowledgedSurvivesAPowerCut(t *testing.T) {
	cfg := partlog.DefaultConfig()
	cfg.FlushMessages = 1
	cfg.SegmentBytes = 2 << 10
	mem := disk.NewMem(7)
	n := start(t, mem, cfg)
	acked := map[int32]map[int64]string{}
	for i := range 200 {
		part := int32(i % 4)
		info, err := write(n.get(t, part), fmt.Sprint("value ", i))
		if err != nil {
			t.Fatal(err)
		}
		if acked[part] == nil {
			acked[part] = map[int64]string{}
		}
		acked[part][info.FirstOffset] = fmt.Sprint("value ", i)
		if i%50 != 49 {
			continue
		}
		after := start(t, mem.CrashClone(true, uint64(i)), cfg)
		for part, want := range acked {
			got := values(t, after.get(t, part))
			for off, v := range want {
				if got[off] != v {
					t.Fatalf("after %d writes: partition %d has %q at %d, acknowledged was %q", i+1, part, got[off], off, v)
				}
			}
			if _, err := write(after.get(t, part), "goes on"); err != nil {
				t.Fatal(err)
			}
		}
		stop(t, after)
	}
	stop(t, n)
}

func stop(t *testing.T, n *node) {
	t.Helper()
	if err := n.m.Close(); err != nil {
		t.Error(err)
	}
	if err := n.dirs.Close(context.Background(), true, 1); err != nil {
		t.Error(err)
	}
}

// A directory below its reserve refuses clients, keeps coordinators, readers
// and deletions going, and takes writes again once there is space.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(7)
		mem.SetCapacity(1 << 20)
		n := start(t, mem, partlog.DefaultConfig())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		n.dirs.Start(ctx)
		p := n.get(t, 0)
		if _, err := write(p, "before"); err != nil {
			t.Fatal(err)
		}
		mem.SetCapacity(60 << 10)
		time.Sleep(2 * time.Second)
		_, err := write(p, "refused")
		if c, _ := api.CodeOf(err); c != api.KafkaStorageError || !errors.Is(err, logdir.ErrNoSpace) {
			t.Fatalf("write below the reserve: %v", err)
		}
		if got := values(t, p); got[0] != "before" {
			t.Fatalf("read below the reserve: %v", got)
		}
		l := p.MachineLog(0, func(int64) {}, func(error) {})
		if _, err := l.Append([]machine.Record{{Key: []byte("k")}}); err != nil {
			t.Fatalf("a coordinator below the reserve: %v", err)
		}
		l.Close()
		p.DeleteRecords(1, func(_ int64, err error) {
			if err != nil {
				t.Errorf("deletion below the reserve: %v", err)
			}
		})
		mem.SetCapacity(1 << 20)
		time.Sleep(2 * time.Second)
		if _, err := write(p, "after"); err != nil {
			t.Fatalf("write after space came back: %v", err)
		}
		stop(t, n)
	})
}
