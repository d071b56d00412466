package partlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/record"
)

func TestCleanReopenScansNothing(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	fill(t, l, 1, 40)
	must(t, l.Close(true))
	sizes := map[string]int{}
	for _, s := range l.view.Load().segs {
		sizes[s.log.path()] = int(s.size.Load())
	}
	counted := &countFS{FS: mem}
	l = openLog(t, counted, small(), clean)
	if counted.bytes > 4096 {
		t.Errorf("clean open read %d bytes", counted.bytes)
	}
	wantRecs(t, l, seq(0, 40)...)
	if l.RecoveryPoint() != 40 || l.LatestEpoch() != 1 {
		t.Fatalf("recovery point %d, epoch %d", l.RecoveryPoint(), l.LatestEpoch())
	}
	fill(t, l, 1, 10)
	wantRecs(t, l, seq(0, 50)...)
}

// countFS counts bytes read from .log files.
type countFS struct {
	disk.FS
	bytes int
}

type countFile struct {
	disk.File
	c *countFS
}

func (c *countFS) OpenAppend(name string) (disk.File, error) {
	f, err := c.FS.OpenAppend(name)
	if err != nil || !strings.HasSuffix(name, logSuffix) {
		return f, err
	}
	return countFile{f, c}, nil
}

func (f countFile) ReadAt(p []byte, off int64) (int, error) {
	f.c.bytes += len(p)
	return f.File.ReadAt(p, off)
}

// Recovery reads what was not flushed, and little more.
func TestRecoveryReadsOnlyWhatWasNotFlushed(t *testing.T) {
	mem := testFS(t)
	c := small()
	c.SegmentBytes = 1 << 20
	l := openLog(t, mem, c)
	fill(t, l, 0, 2000)
	must(t, l.Flush(-1))
	must(t, l.takeSnapshot())
	point := l.RecoveryPoint()
	size := l.Size()
	fill(t, l, 0, 10)
	fresh := l.Size() - size
	// A process that dies leaves what it wrote; index entries in memory are lost.
	must(t, l.view.Load().active().flushIndexes())
	counted := &countFS{FS: mem}
	l2 := openLog(t, counted, c, rp(point))
	if limit := int(fresh) + 16<<10; counted.bytes > limit {
		t.Errorf("recovery read %d bytes, %d were not flushed", counted.bytes, fresh)
	}
	wantRecs(t, l2, seq(0, 2010)...)
}

func TestTornTailIsCut(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"half a batch": func(b []byte) []byte { return b[:len(b)-20] },
		"zeros":        func(b []byte) []byte { return append(b, make([]byte, 300)...) },
		"flipped byte": func(b []byte) []byte { b[len(b)-1] ^= 0xff; return b },
		"wrong length": func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[bytes.LastIndex(b, []byte("v19"))-67+8:], 1<<30)
			return b
		},
		"half a header": func(b []byte) []byte { return append(b, make([]byte, 30)...) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := testFS(t)
			c := small()
			c.SegmentBytes = 1 << 20
			l := openLog(t, mem, c)
			end := fill(t, l, 0, 20)
			must(t, l.Close(true))
			file := l.Segments()[0].Name
			data, err := disk.ReadFile(mem, file)
			must(t, err)
			whole := len(data)
			data = damage(data)
			writeFile(t, mem, file, data)
			l = openLog(t, mem, c)
			if len(data) <= whole {
				end--
			}
			wantRecs(t, l, seq(0, end)...)
			fill(t, l, 0, 5)
			wantRecs(t, l, seq(0, end+5)...)
		})
	}
}

// What a write to a full disk left in part doesn't come back with a power loss, in a segment that others follow.
func TestPartOfAFailedAppendStaysGone(t *testing.T) {
	for seed := range uint64(20) {
		mem := testFS(t)
		l := openLog(t, mem, small())
		end := fill(t, l, 0, 5)
		must(t, l.Flush(-1))
		free, total, err := mem.Free("/data")
		must(t, err)
		mem.SetCapacity(total - free + 12)
		if _, err := l.Append(values(t, 0, "no"), AppendOptions{}); !disk.Full(err) {
			t.Fatalf("append to a full disk: %v", err)
		}
		mem.SetCapacity(total)
		l.mu.Lock()
		err = l.roll(end)
		l.mu.Unlock()
		must(t, err)
		l = openLog(t, mem.CrashClone(true, seed), small(), rp(l.RecoveryPoint()))
		wantRecs(t, l, seq(0, end)...)
		end = fill(t, l, 0, 3)
		wantRecs(t, l, seq(0, end)...)
	}
}

func writeFile(t tb, fsys disk.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.Write(data)
	must(t, err)
	must(t, f.Close())
}

func TestDamagedFilesAreRebuilt(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, fs disk.FS, l *Log){
		"no index": func(t *testing.T, fs disk.FS, l *Log) {
			for _, s := range l.Segments() {
				must(t, fs.Remove(strings.Replace(s.Name, ".log", ".index", 1)))
			}
		},
		"no time index": func(t *testing.T, fs disk.FS, l *Log) {
			for _, s := range l.Segments() {
				must(t, fs.Remove(strings.Replace(s.Name, ".log", ".timeindex", 1)))
			}
		},
		"index cut inside an entry": func(t *testing.T, fs disk.FS, l *Log) {
			for _, s := range l.Segments() {
				name := strings.Replace(s.Name, ".log", ".index", 1)
				b, err := disk.ReadFile(fs, name)
				must(t, err)
				if len(b) > 0 {
					writeFile(t, fs, name, b[:len(b)-3])
				}
			}
		},
		"index of garbage": func(t *testing.T, fs disk.FS, l *Log) {
			for _, s := range l.Segments() {
				writeFile(t, fs, strings.Replace(s.Name, ".log", ".index", 1), []byte("\x00\x00\x00\x02\x00\x00\x00\x07\x00\x00\x00\x05\x00\x00\x00\x99"))
			}
		},
		"index of zeros": func(t *testing.T, fs disk.FS, l *Log) {
			for _, s := range l.Segments() {
				writeFile(t, fs, strings.Replace(s.Name, ".log", ".index", 1), make([]byte, 64))
			}
		},
		"no epoch checkpoint": func(t *testing.T, fs disk.FS, l *Log) {
			must(t, fs.Remove(testDir+"/"+epochFile))
		},
		"damaged epoch checkpoint": func(t *testing.T, fs disk.FS, l *Log) {
			writeFile(t, fs, testDir+"/"+epochFile, []byte("0\n2\n1 0\n"))
		},
		"damaged snapshots": func(t *testing.T, fs disk.FS, l *Log) {
			offs, err := l.snapshots()
			must(t, err)
			for _, o := range offs {
				writeFile(t, fs, testDir+"/"+offsetName(o)+snapshotSuffix, []byte("not a snapshot"))
			}
		},
		"stray files": func(t *testing.T, fs disk.FS, l *Log) {
			writeFile(t, fs, testDir+"/00000000000000000900.index", make([]byte, 8))
			writeFile(t, fs, testDir+"/00000000000000000000.log.deleted", []byte("x"))
			writeFile(t, fs, testDir+"/00000000000000000005.log.cleaned", []byte("x"))
			writeFile(t, fs, testDir+"/00000000000000000005.index.swap", []byte("x"))
			writeFile(t, fs, testDir+"/notes.txt", []byte("x"))
		},
	} {
		for _, wasClean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/clean=%v", name, wasClean), func(t *testing.T) {
				mem := testFS(t)
				l := openLog(t, mem, small())
				idem := producerBatch(t, 7, 0, 0, "p")
				for i := range 3 {
					fill(t, l, int32(i), 12)
				}
				_, err := l.Append(idem, AppendOptions{LeaderEpoch: 2})
				must(t, err)
				epochs := fmt.Sprint(l.Epochs())
				must(t, l.Close(true))
				damage(t, mem, l)
				edit := rp(l.RecoveryPoint())
				if wasClean {
					edit = clean
				}
				l = openLog(t, mem, small(), edit)
				wantRecs(t, l, append(seq(0, 36), rec{36, "p"})...)
				if got := fmt.Sprint(l.Epochs()); got != epochs {
					t.Errorf("epochs %s, want %s", got, epochs)
				}
				if st := l.ProducerStates(); len(st) != 1 || st[0].ID != 7 || st[0].LastSequence != 0 {
					t.Errorf("producers %+v", st)
				}
				for off := range int64(36) {
					info, err := l.Read(off, 1, 36, true)
					must(t, err)
					if info.FirstOffset != off {
						t.Fatalf("read %d starts at %d", off, info.FirstOffset)
					}
					info.Release()
				}
			})
		}
	}
}

func producerBatch(t tb, id int64, epoch int16, seq int32, vals ...string) []byte {
	t.Helper()
	var recs []record.Record
	for _, v := range vals {
		recs = append(recs, record.Record{Timestamp: nowMs(), Value: []byte(v)})
	}
	return build(t, record.BuilderOptions{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: seq}}, recs...)
}

func txnBatch(t tb, id int64, epoch int16, seq int32, vals ...string) []byte {
	t.Helper()
	var recs []record.Record
	for _, v := range vals {
		recs = append(recs, record.Record{Timestamp: nowMs(), Value: []byte(v)})
	}
	return build(t, record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: seq}}, recs...)
}

// The sparse index helps even if it was lost in a crash after the flush.
func TestUnflushedIndexAfterFlushedLog(t *testing.T) {
	mem := testFS(t)
	c := small()
	c.SegmentBytes = 1 << 20
	l := openLog(t, mem, c)
	fill(t, l, 0, 100)
	must(t, l.Flush(-1))
	mem.Crash()
	l = openLog(t, mem, c, rp(100))
	wantRecs(t, l, seq(0, 100)...)
	if n := l.view.Load().active().index.count(); n < 10 {
		t.Fatalf("%d index entries after recovery", n)
	}
}

func TestLogEndBelowStartEmptiesTheLog(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	fill(t, l, 0, 10)
	must(t, l.Close(true))
	l = openLog(t, mem, small(), func(o *Options) { o.LogStart = 50 })
	if l.StartOffset() != 50 || l.EndOffset() != 50 {
		t.Fatalf("start %d end %d", l.StartOffset(), l.EndOffset())
	}
}

// D1: the epoch of the last batch is known even after retention took the batch.
func TestLatestEpochOutlivesItsBatch(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	fill(t, l, 4, 10)
	l.UpdateHighWatermark(10)
	_, err := l.AdvanceStart(10)
	must(t, err)
	for _, edit := range []func(*Options){clean, rp(10)} {
		must(t, l.Close(true))
		l = openLog(t, mem, small(), edit, func(o *Options) { o.LogStart = 10 })
		if l.LatestEpoch() != 4 {
			t.Fatalf("latest epoch %d", l.LatestEpoch())
		}
	}
}

// Without a recovery point a gap between segments proves nothing: all is kept.
func TestLostRecoveryPointKeepsSegmentsBehindAGap(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	far := int64(1) << 33
	_, err := l.AppendAsIs(append(at(t, 0, 0, "a"), at(t, far, 0, "b")...), AppendOptions{MaxEpoch: -1})
	must(t, err)
	l = openLog(t, mem, small(), rp(-1))
	wantRecs(t, l, rec{0, "a"}, rec{far, "b"})
}

// Nor does a cleaner's gap above a recovery point that Kafka left behind.
func TestGapOfACompactedLogIsKept(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, compacted())
	for i := range 40 {
		kv(t, l, fmt.Sprint("k", i%3), fmt.Sprint(i))
	}
	seal(t, l)
	compact(t, l, time.Now())
	kv(t, l, "last", "x")
	want := fmt.Sprint(committed(t, l))
	must(t, l.Close(false))
	for _, point := range []int64{-1, 0, 5} {
		l = openLog(t, mem, compacted(), rp(point))
		if got := fmt.Sprint(committed(t, l)); got != want || l.EndOffset() != 41 {
			t.Fatalf("recovery point %d: %s, want %s", point, got, want)
		}
	}
}
