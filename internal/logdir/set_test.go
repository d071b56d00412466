package logdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var topicID = ids.UUID{7}

func options(fs disk.FS, dirs ...string) Options {
	return Options{FS: fs, Dirs: dirs, NodeID: 1, ClusterID: "cluster-a", Logger: slog.New(slog.DiscardHandler), ReserveBytes: 0}
}

func formatted(t testing.TB, fs disk.FS, dirs ...string) {
	t.Helper()
	n := byte(0)
	must(t, Format(FormatOptions{FS: fs, Dirs: dirs, NodeID: 1, ClusterID: "cluster-a", NewID: func() (ids.UUID, error) {
		n++
		return ids.UUID{15: n + 100}, nil
	}}))
}

func open(t testing.TB, o Options) *Set {
	t.Helper()
	s, err := Open(o)
	must(t, err)
	return s
}

func create(t testing.TB, s *Set, topic string, p int32) *partlog.Log {
	t.Helper()
	l, err := s.GetOrCreate(topicID, topic, p, partlog.DefaultConfig(), ids.UnassignedDir)
	must(t, err)
	return l
}

func add(t testing.TB, l *partlog.Log, n int) {
	t.Helper()
	for range n {
		b, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: 1, Value: []byte("v")})
		must(t, err)
		_, err = l.Append(b, partlog.AppendOptions{})
		must(t, err)
	}
}

func TestLogsSurviveRestarts(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	for i := range int32(4) {
		add(t, create(t, s, "t", i), int(i)+1)
	}
	if s.DirOf("t", 0) == s.DirOf("t", 1) {
		t.Error("two logs went to the same directory")
	}
	_, err := s.Get("t", 3).AdvanceStart(2)
	must(t, err)
	must(t, s.CheckpointHighWatermarks(func(topic string, p int32) (int64, bool) { return int64(p), p != 2 }))
	must(t, s.Close(context.Background(), true, 42))

	s = open(t, options(mem, "/a", "/b"))
	if s.CleanShutdownEpoch() != 42 {
		t.Errorf("clean shutdown epoch %d", s.CleanShutdownEpoch())
	}
	for i := range int32(4) {
		if got := s.Get("t", i).EndOffset(); got != int64(i)+1 {
			t.Errorf("partition %d ends at %d", i, got)
		}
	}
	if s.Get("t", 3).StartOffset() != 2 || s.HighWatermark("t", 3) != 3 || s.HighWatermark("t", 2) != 0 {
		t.Errorf("start %d, high watermarks %d %d", s.Get("t", 3).StartOffset(), s.HighWatermark("t", 3), s.HighWatermark("t", 2))
	}
	// A crash now is not a clean shutdown.
	must(t, s.Get("t", 0).Flush(-1))
	add(t, s.Get("t", 0), 1)
	s.checkpoint()
	mem.Crash()
	s = open(t, options(mem, "/a", "/b"))
	if s.CleanShutdownEpoch() != -1 {
		t.Errorf("after a crash: clean shutdown epoch %d", s.CleanShutdownEpoch())
	}
	if got := s.Get("t", 0).EndOffset(); got != 1 {
		t.Errorf("after a crash: end %d, want the flushed 1", got)
	}
	must(t, s.Close(context.Background(), false, 0))
}

func TestStartIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, fs disk.FS, o *Options)
		want    error
		says    string
	}{
		"not formatted":      {func(t *testing.T, fs disk.FS, o *Options) { must(t, fs.Remove("/a/"+metaFile)) }, ErrNotFormatted, "/a"},
		"missing":            {func(t *testing.T, fs disk.FS, o *Options) { o.Dirs = []string{"/nowhere"} }, ErrNotFormatted, "/nowhere"},
		"foreign cluster.id": {func(t *testing.T, fs disk.FS, o *Options) { o.ClusterID = "cluster-b" }, ErrForeign, "cluster-a"},
		"foreign node.id":    {func(t *testing.T, fs disk.FS, o *Options) { o.NodeID = 9 }, ErrForeign, "node 1"},
		"newer meta.properties": {func(t *testing.T, fs disk.FS, o *Options) {
			must(t, disk.WriteFileAtomic(fs, "/a/"+metaFile, []byte("version=2\ncluster.id=cluster-a\nnode.id=1\n")))
		}, ErrNewerFormat, "version 2"},
		"newer checkpoint": {func(t *testing.T, fs disk.FS, o *Options) {
			must(t, disk.WriteFileAtomic(fs, "/a/"+recoveryFile, []byte("3\n0\n")))
		}, ErrNewerFormat, recoveryFile},
		"newer partition.metadata": {func(t *testing.T, fs disk.FS, o *Options) {
			must(t, fs.Mkdir("/a/t-0"))
			must(t, disk.WriteFileAtomic(fs, "/a/t-0/partition.metadata", []byte("version: 5\ntopic_id: x\n")))
		}, partlog.ErrNewerFormat, "version 5"},
		"copied directory": {func(t *testing.T, fs disk.FS, o *Options) {
			b, err := disk.ReadFile(fs, "/a/"+metaFile)
			must(t, err)
			must(t, fs.Mkdir("/b"))
			must(t, disk.WriteFileAtomic(fs, "/b/"+metaFile, b))
			o.Dirs = []string{"/a", "/b"}
		}, ErrForeign, "copy"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := disk.NewMem(1)
			formatted(t, mem, "/a")
			o := options(mem, "/a")
			tc.prepare(t, mem, &o)
			_, err := Open(o)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v, want %v saying %q", err, tc.want, tc.says)
			}
			// The lock was given up.
			if c, err := mem.Lock("/a/" + lockFile); err != nil {
				t.Fatal(err)
			} else {
				must(t, c.Close())
			}
		})
	}
}

func TestSecondProcessIsRefusedByPid(t *testing.T) {
	dir := t.TempDir()
	formatted(t, disk.OS(), dir)
	s := open(t, options(disk.OS(), dir))
	_, err := Open(options(disk.OS(), dir))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("error %v does not name the process", err)
	}
	must(t, s.Close(context.Background(), true, 1))
	s = open(t, options(disk.OS(), dir))
	must(t, s.Close(context.Background(), true, 1))
}

func TestDamagedCheckpointsAreLeftOut(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	add(t, create(t, s, "t", 0), 5)
	must(t, s.Close(context.Background(), true, 1))
	must(t, disk.WriteFileAtomic(mem, "/a/"+recoveryFile, []byte("0\n3\nt 0 5\n")))
	must(t, disk.WriteFileAtomic(mem, "/a/"+startFile, []byte("garbage")))
	s = open(t, options(mem, "/a"))
	if got := s.Get("t", 0).EndOffset(); got != 5 {
		t.Fatalf("end %d", got)
	}
}

func TestFailedDirectoryGoesOfflineAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a", "/b")
		var mu sync.Mutex
		broken := false
		faulty := disk.Faulty(mem, func(op disk.Op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && op == disk.OpWrite && strings.HasPrefix(name, "/a/") {
				return errors.New("input/output error")
			}
			return nil
		})
		o := options(faulty, "/a", "/b")
		var offline []string
		o.OnOffline = func(dir string, id ids.UUID, err error) { offline = append(offline, dir) }
		s := open(t, o)
		var inA, inB *partlog.Log
		for i := range int32(2) {
			l := create(t, s, "t", i)
			add(t, l, 1)
			if filepath.Dir(l.Dir()) == "/a" {
				inA = l
			} else {
				inB = l
			}
		}
		mu.Lock()
		broken = true
		mu.Unlock()
		b, err := record.Build(record.BuilderOptions{}, record.Record{Value: []byte("v")})
		must(t, err)
		_, err = inA.Append(b, partlog.AppendOptions{})
		if code, _ := api.CodeOf(err); code != api.KafkaStorageError {
			t.Fatalf("append on the broken disk: %v", err)
		}
		synctest.Wait()
		if len(offline) != 1 || offline[0] != "/a" {
			t.Fatalf("offline: %v", offline)
		}
		if s.Get(inA.Topic(), inA.Partition()) != nil {
			t.Error("a log of the failed directory is still there")
		}
		add(t, inB, 1)
		for i := int32(10); i < 13; i++ {
			if l := create(t, s, "t", i); filepath.Dir(l.Dir()) != "/b" {
				t.Errorf("new log in %s", l.Dir())
			}
		}
		if d := s.Dirs(); d[0].Online || !d[1].Online || d[0].Err == nil {
			t.Errorf("dirs %+v", d)
		}
		must(t, s.Close(context.Background(), true, 1))
		// At the next start the broken disk is still broken, and the other one fine.
		if _, err := mem.Stat("/a/" + cleanFile); err == nil {
			t.Error("the failed directory was marked clean")
		}
	})
}

func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a")
		o := options(mem, "/a")
		o.DeleteDelay, o.SpaceInterval = time.Minute, time.Second
		s := open(t, o)
		s.Start(t.Context())
		l := create(t, s, "t", 0)
		add(t, l, 3)
		must(t, s.Delete("t", 0))
		if s.Get("t", 0) != nil {
			t.Fatal("still there")
		}
		left := func() (n int) {
			entries, err := mem.ReadDir("/a")
			must(t, err)
			for _, e := range entries {
				if strings.HasSuffix(e.Name(), deleteSuffix) {
					n++
				}
			}
			return n
		}
		if left() != 1 {
			t.Fatalf("%d directories to delete", left())
		}
		if l := create(t, s, "t", 0); l.EndOffset() != 0 {
			t.Fatal("the new log holds old records")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if left() != 0 {
			t.Fatalf("%d directories were not deleted", left())
		}
		// Another topic of the same name replaces what is there.
		add(t, s.Get("t", 0), 2)
		l, err := s.GetOrCreate(ids.UUID{9}, "t", 0, partlog.DefaultConfig(), ids.UnassignedDir)
		must(t, err)
		if l.EndOffset() != 0 || l.TopicID() != (ids.UUID{9}) {
			t.Fatalf("end %d id %s", l.EndOffset(), l.TopicID())
		}
		must(t, s.Close(context.Background(), true, 1))
		// What a process left as -delete goes at the next start.
		s = open(t, o)
		s.Start(t.Context())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if left() != 0 {
			t.Fatalf("%d directories were not deleted after a restart", left())
		}
		must(t, s.Close(context.Background(), true, 1))
	})
}

// Offsets of a deleted partition must not vouch for a new one of its name.
func TestRecreatedPartitionDoesNotInheritItsRecoveryPoint(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	l := create(t, s, "t", 0)
	add(t, l, 10)
	must(t, l.Flush(-1))
	s.checkpoint()
	must(t, s.Delete("t", 0))
	create(t, s, "t", 0)
	o, err := readCheckpoint(mem, "/a/"+recoveryFile)
	must(t, err)
	if o[TopicPartition{"t", 0}] != 0 {
		t.Fatalf("recovery point %d", o[TopicPartition{"t", 0}])
	}
}

func TestReserveRefusesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		mem.SetCapacity(10 << 20)
		formatted(t, mem, "/a")
		o := options(mem, "/a")
		o.ReserveBytes, o.SpaceInterval = 9<<20, time.Second
		s := open(t, o)
		s.Start(t.Context())
		l := create(t, s, "t", 0)
		must(t, s.CheckSpace(l, 1))
		f, err := mem.Create("/a/ballast")
		must(t, err)
		_, err = f.Write(make([]byte, 2<<20))
		must(t, err)
		time.Sleep(2 * time.Second)
		err = s.CheckSpace(l, 1)
		if code, _ := api.CodeOf(err); code != api.KafkaStorageError || !code.Retriable() || !errors.Is(err, ErrNoSpace) {
			t.Fatalf("no space: %v", err)
		}
		if !s.Dirs()[0].Low {
			t.Error("not shown as short of space")
		}
		add(t, l, 1) // what the log itself is asked to write is written
		must(t, mem.Remove("/a/ballast"))
		time.Sleep(2 * time.Second)
		must(t, s.CheckSpace(l, 1))
		must(t, s.Close(context.Background(), true, 1))
	})
}

// A writer that is faster than the poll of free space does not get into the reserve.
func TestFastWriterStaysOutOfTheReserve(t *testing.T) {
	const reserve = 4 << 20
	mem := disk.NewMem(1)
	mem.SetCapacity(8 << 20)
	formatted(t, mem, "/a")
	o := options(mem, "/a")
	o.ReserveBytes, o.SpaceInterval = reserve, time.Hour
	s := open(t, o)
	l := create(t, s, "t", 0)
	batch, err := record.Build(record.BuilderOptions{}, record.Record{Value: make([]byte, 64<<10)})
	must(t, err)
	n := 0
	for err = s.CheckSpace(l, batch.Len()); err == nil; err = s.CheckSpace(l, batch.Len()) {
		_, appendErr := l.Append(slices.Clone(batch), partlog.AppendOptions{})
		must(t, appendErr)
		n++
	}
	free, _, freeErr := mem.Free("/a")
	must(t, freeErr)
	if !errors.Is(err, ErrNoSpace) || free < reserve || n < 40 {
		t.Errorf("after %d appends: %v with %d bytes free, the reserve is %d", n, err, free, reserve)
	}
	must(t, s.Close(context.Background(), true, 1))
}

// A full disk refuses an append and nothing else.
func TestFullDisk(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	l := create(t, s, "t", 0)
	add(t, l, 3)
	free, total, err := mem.Free("/a")
	must(t, err)
	mem.SetCapacity(total - free + 20)
	b, err := record.Build(record.BuilderOptions{}, record.Record{Value: []byte("v")})
	must(t, err)
	_, err = l.Append(b, partlog.AppendOptions{})
	if code, msg := api.CodeOf(err); code != api.KafkaStorageError || !strings.Contains(msg, "full") {
		t.Fatalf("append: %v", err)
	}
	mem.SetCapacity(total)
	add(t, l, 1)
	if l.EndOffset() != 4 || !s.Dirs()[0].Online {
		t.Fatalf("end %d, %+v", l.EndOffset(), s.Dirs())
	}
	must(t, s.Close(context.Background(), true, 1))
	s = open(t, options(mem, "/a"))
	if s.Get("t", 0).EndOffset() != 4 {
		t.Fatalf("after a restart: end %d", s.Get("t", 0).EndOffset())
	}
	must(t, s.Close(context.Background(), true, 1))
}

func TestFlushAfterRollAndByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a")
		o := options(mem, "/a")
		o.FlushCheckpointInterval, o.FlushCheckInterval = time.Minute, time.Second
		s := open(t, o)
		s.Start(t.Context())
		c := partlog.DefaultConfig()
		c.SegmentBytes = 200
		l, err := s.GetOrCreate(topicID, "t", 0, c, ids.UnassignedDir)
		must(t, err)
		add(t, l, 10)
		synctest.Wait()
		if l.RecoveryPoint() < 8 {
			t.Errorf("recovery point %d after rolls", l.RecoveryPoint())
		}
		add(t, l, 1)
		c.FlushInterval = 10 * time.Second
		s.SetConfig("t", c)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if l.RecoveryPoint() != 11 {
			t.Errorf("recovery point %d after flush.ms", l.RecoveryPoint())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := readCheckpoint(mem, "/a/"+recoveryFile)
		must(t, err)
		if got[TopicPartition{"t", 0}] != 11 {
			t.Errorf("checkpoint %v", got)
		}
		must(t, s.Close(context.Background(), true, 1))
	})
}

func TestFormat(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	o := FormatOptions{FS: mem, Dirs: []string{"/a", "/b"}, NodeID: 1, ClusterID: "cluster-a",
		NewID: func() (ids.UUID, error) { return ids.UUID{1}, nil }}
	if err := Format(o); err == nil || !strings.Contains(err.Error(), "formatted already") {
		t.Fatalf("error %v", err)
	}
	o.IgnoreFormatted = true
	must(t, Format(o))
	m, err := ReadMeta(mem, "/b")
	if err != nil || m != (Meta{"cluster-a", 1, ids.UUID{1}}) {
		t.Fatalf("%+v %v", m, err)
	}
	o.ClusterID = "cluster-b"
	if err := Format(o); !errors.Is(err, ErrForeign) {
		t.Fatalf("error %v", err)
	}
}

func TestCleanerLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a")
		o := options(mem, "/a")
		o.Cleaner = CleanerOptions{Enable: true, Backoff: 15 * time.Second, DedupeBytes: 1 << 20, IOBytesPerSecond: 10_000}
		s := open(t, o)
		s.Start(t.Context())
		c := partlog.DefaultConfig()
		c.Compact, c.Delete, c.SegmentBytes = true, false, 1000
		l, err := s.GetOrCreate(topicID, "t", 0, c, ids.UnassignedDir)
		must(t, err)
		for range 200 {
			b, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte("v")})
			must(t, err)
			_, err = l.Append(b, partlog.AppendOptions{})
			must(t, err)
		}
		l.UpdateHighWatermark(l.EndOffset())
		size := l.Size()
		time.Sleep(time.Minute)
		synctest.Wait()
		if l.Size() > size/5 || l.CleanedTo() < 180 {
			t.Errorf("size %d of %d, cleaned to %d", l.Size(), size, l.CleanedTo())
		}
		got, err := readCheckpoint(mem, "/a/"+cleanerFile)
		must(t, err)
		if got[TopicPartition{"t", 0}] != l.CleanedTo() {
			t.Errorf("checkpoint %v, cleaned to %d", got, l.CleanedTo())
		}
		must(t, s.Close(context.Background(), true, 1))
		s = open(t, o)
		if c := s.Get("t", 0).CleanedTo(); c < 180 {
			t.Errorf("after a restart: cleaned to %d", c)
		}
		must(t, s.Close(context.Background(), true, 1))
	})
}

// A damaged checkpoint is told of once: the next clean stop has written them anew, one without entries too.
func TestDamagedCheckpointsAreWrittenAnew(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	add(t, create(t, s, "t", 0), 3)
	must(t, s.Close(t.Context(), true, 1))
	for _, name := range []string{recoveryFile, startFile, cleanerFile} { // the replicas write high watermarks
		must(t, disk.WriteFileAtomic(mem, "/a/"+name, []byte("0\nscribbles")))
	}
	for _, want := range []int{3, 0} {
		var log bytes.Buffer
		o := options(mem, "/a")
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := open(t, o)
		s.Start(t.Context())
		if l := create(t, s, "t", 0); l.EndOffset() != 3 {
			t.Errorf("the log ends at %d", l.EndOffset())
		}
		must(t, s.Close(t.Context(), true, 1))
		if n := strings.Count(log.String(), "checkpoint is damaged"); n != want {
			t.Errorf("%d checkpoints are damaged, want %d\n%s", n, want, log.String())
		}
	}
}

func TestStrayLogsAreSetAside(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	add(t, create(t, s, "known", 0), 1)
	add(t, create(t, s, "gone", 1), 2)
	must(t, s.SetAside(func(topic string, id ids.UUID, p int32) bool { return topic == "known" && id == topicID && p == 0 }))
	if s.Get("known", 0) == nil || s.Get("gone", 1) != nil {
		t.Fatal("the wrong log was set aside")
	}
	must(t, s.Close(t.Context(), true, 1))
	s = open(t, options(mem, "/a"))
	s.Start(t.Context())
	if s.Get("gone", 1) != nil {
		t.Fatal("it came back at the next start")
	}
	if l := create(t, s, "gone", 1); l.EndOffset() != 0 {
		t.Fatalf("a new topic of that name has %d old records", l.EndOffset())
	}
	must(t, s.Close(t.Context(), true, 1))
	entries, err := mem.ReadDir("/a")
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "gone-1.") && strings.HasSuffix(e.Name(), straySuffix) {
			return
		}
	}
	t.Fatal("its records are not there any more")
}

func TestSavedLogStartSurvivesACrash(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	l := create(t, s, "t", 0)
	add(t, l, 5)
	must(t, l.Flush(-1))
	_, err := l.AdvanceStart(3)
	must(t, err)
	must(t, s.SaveOffsets())
	after := mem.CrashClone(false, 2)
	must(t, s.Close(t.Context(), false, -1))
	s = open(t, options(after, "/a"))
	if start := s.Get("t", 0).StartOffset(); start != 3 {
		t.Fatalf("log start %d", start)
	}
	must(t, s.Close(t.Context(), false, -1))
}

// A disk without a free byte is no broken disk: checkpoints and new logs wait.
// A directory that was offline may come back with the log of a partition that has had another one since.
func TestOlderTwinIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a", "/b")
		for i, name := range []string{"/b/t-0", "/a/t-0"} {
			l, err := partlog.Open(partlog.Options{FS: mem, Dir: name, Topic: "t", TopicID: ids.UUID{byte(i + 1)}, Config: partlog.DefaultConfig()})
			must(t, err)
			add(t, l, 3+i)
			must(t, l.Close(true))
			time.Sleep(time.Second)
		}
		s := open(t, options(mem, "/a", "/b"))
		if l := s.Get("t", 0); l == nil || l.Dir() != "/a/t-0" || l.EndOffset() != 4 {
			t.Fatalf("in use: %v", l)
		}
		entries, err := mem.ReadDir("/b")
		must(t, err)
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), straySuffix) }) {
			t.Errorf("the other is not set aside: %v", entries)
		}
		must(t, s.Close(context.Background(), true, 1))
	})
}

// The high watermark of a topic that was deleted isn't that of the next one of its name, whose records may not be committed.
func TestHighWatermarkIsNotInherited(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	add(t, create(t, s, "t", 0), 5)
	must(t, s.CheckpointHighWatermarks(func(string, int32) (int64, bool) { return 4, true }))
	must(t, s.Delete("t", 0))
	l, err := s.GetOrCreate(ids.UUID{9}, "t", 0, partlog.DefaultConfig(), ids.UnassignedDir)
	must(t, err)
	add(t, l, 3)
	mem.Kill()
	s = open(t, options(mem, "/a"))
	if hw := s.HighWatermark("t", 0); hw != 0 {
		t.Fatalf("the high watermark is %d", hw)
	}
	must(t, s.Close(context.Background(), true, 1))
}

// A log whose creation a full disk cut short gets its topic's id when it is used: the next topic of that name must not take it for its own.
func TestLogCutShortByAFullDiskGetsItsTopicID(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	free, total, err := mem.Free("/a")
	must(t, err)
	mem.SetCapacity(total - free)
	if _, err := s.GetOrCreate(topicID, "u", 0, partlog.DefaultConfig(), ids.UnassignedDir); err == nil {
		t.Fatal("a log was created on a full disk")
	}
	mem.Kill()
	mem.SetCapacity(total)
	must(t, mem.Mkdir("/a/u-0")) // as a kill at the wrong moment leaves it
	must(t, mem.SyncDir("/a"))
	free, _, err = mem.Free("/a")
	must(t, err)
	mem.SetCapacity(total - free)
	s = open(t, options(mem, "/a"))
	if l := s.Get("u", 0); l == nil || !l.TopicID().IsZero() {
		t.Fatalf("what is left has the topic id %v", l.TopicID())
	}
	if _, err := s.GetOrCreate(topicID, "u", 0, partlog.DefaultConfig(), ids.UnassignedDir); err == nil {
		t.Fatal("a log without a topic id was used on a full disk")
	}
	mem.SetCapacity(total)
	add(t, create(t, s, "u", 0), 3)
	must(t, s.Close(context.Background(), true, 1))
	s = open(t, options(mem, "/a"))
	if id := s.Get("u", 0).TopicID(); id != topicID {
		t.Fatalf("after a restart the topic id is %s", id)
	}
	l, err := s.GetOrCreate(ids.UUID{9}, "u", 0, partlog.DefaultConfig(), ids.UnassignedDir)
	must(t, err)
	if l.EndOffset() != 0 {
		t.Fatalf("another topic of that name has %d records of the first", l.EndOffset())
	}
	must(t, s.Close(context.Background(), true, 1))
}

func TestFullDiskIsNotAFailedDirectory(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	l := create(t, s, "t", 0)
	add(t, l, 3)
	create(t, s, "v", 0)
	free, total, err := mem.Free("/a")
	must(t, err)
	mem.SetCapacity(total - free)
	s.checkpoint()
	_ = s.CheckpointHighWatermarks(func(string, int32) (int64, bool) { return 3, true })
	if _, err := s.GetOrCreate(topicID, "u", 0, partlog.DefaultConfig(), ids.UnassignedDir); err == nil {
		t.Fatal("a log was created on a full disk")
	}
	must(t, s.Delete("v", 0))
	_ = l.Flush(-1) // the epochs' file finds no space
	s.housekeeping(time.Now())
	s.retention(time.Now())
	if d := s.Dirs()[0]; !d.Online {
		t.Fatalf("the directory went offline: %v", d.Err)
	}
	if l.Failed() != nil {
		t.Fatalf("the log failed: %v", l.Failed())
	}
	mem.SetCapacity(total)
	add(t, l, 1)
	create(t, s, "u", 0)
	must(t, s.CheckpointHighWatermarks(func(string, int32) (int64, bool) { return 4, true }))
	must(t, s.Close(t.Context(), true, 1))
}

// A node starts and stops on a full disk, after a crash and after a clean stop; only the mark of a clean stop finds no place.
func TestStartOnAFullDisk(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := disk.NewMem(1)
		formatted(t, mem, "/a")
		s := open(t, options(mem, "/a"))
		l := create(t, s, "t", 0)
		add(t, l, 3)
		must(t, l.Flush(-1))
		must(t, s.Close(t.Context(), clean, 1))
		free, total, err := mem.Free("/a")
		must(t, err)
		mem.SetCapacity(total - free)
		s = open(t, options(mem, "/a"))
		if d := s.Dirs()[0]; !d.Online || s.Get("t", 0).EndOffset() != 3 {
			t.Fatalf("clean %v: %+v", clean, d)
		}
		if err := s.Close(t.Context(), true, 2); err != nil && !disk.Full(err) {
			t.Errorf("clean %v: close: %v", clean, err)
		}
		mem.SetCapacity(total)
		s = open(t, options(mem, "/a"))
		if n := s.Get("t", 0).EndOffset(); n != 3 {
			t.Errorf("clean %v: the log ends at %d", clean, n)
		}
		must(t, s.Close(t.Context(), true, 3))
	}
}

// After a clean stop no record is read: what recovery would read is what a crash may have lost.
func TestCleanStartReadsNoSegment(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a")
	s := open(t, options(mem, "/a"))
	c := partlog.DefaultConfig()
	c.SegmentBytes, c.IndexInterval = 2000, 100
	l, err := s.GetOrCreate(topicID, "t", 0, c, ids.UnassignedDir)
	must(t, err)
	add(t, l, 200)
	size := l.Size()
	read := func(clean bool) int64 {
		t.Helper()
		var n atomic.Int64
		o := options(disk.Faulty(mem, func(op disk.Op, name string) error {
			if op == disk.OpRead && strings.HasSuffix(name, ".log") {
				n.Add(1)
			}
			return nil
		}), "/a")
		s := open(t, o)
		if got := s.Get("t", 0).EndOffset(); got != 200 {
			t.Errorf("the log ends at %d", got)
		}
		got := n.Load()
		must(t, s.Close(t.Context(), clean, 1))
		return got
	}
	must(t, s.Close(t.Context(), true, 1))
	after := read(false)
	if scan := read(true); after > 4 || scan < 4*max(after, 1) {
		t.Errorf("of a log of %d bytes: %d reads after a clean stop, %d after a crash", size, after, scan)
	}
}

// While a directory is offline a replica that is assigned to it is offline too,
// and not created anew elsewhere.
func TestAssignedDirectory(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	a, b := s.Dirs()[0].ID, s.Dirs()[1].ID
	for i := range int32(3) {
		_, err := s.GetOrCreate(topicID, "t", i, partlog.DefaultConfig(), b)
		must(t, err)
		if s.DirOf("t", i) != b {
			t.Errorf("t-%d lies in %s", i, s.DirOf("t", i))
		}
	}
	// A directory that was taken out of the configuration: anywhere.
	_, err := s.GetOrCreate(topicID, "u", 0, partlog.DefaultConfig(), ids.UUID{1, 2, 3})
	must(t, err)
	s.Fail("/b", errors.New("broken"))
	if _, err := s.GetOrCreate(topicID, "t", 7, partlog.DefaultConfig(), b); !errors.Is(err, ErrOffline) {
		t.Errorf("assigned to the offline directory: %v", err)
	}
	if _, err := s.GetOrCreate(topicID, "t", 8, partlog.DefaultConfig(), ids.LostDir); !errors.Is(err, ErrOffline) {
		t.Errorf("assigned to a lost directory: %v", err)
	}
	for i, in := range []ids.UUID{a, ids.UnassignedDir} {
		_, err := s.GetOrCreate(topicID, "n", int32(i), partlog.DefaultConfig(), in)
		must(t, err)
	}
	must(t, s.Close(t.Context(), true, 1))
}
