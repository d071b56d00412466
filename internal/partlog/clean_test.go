package partlog

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/disk"
	"milena/internal/record"
)

func compacted() Config {
	c := small()
	c.Compact, c.Delete = true, false
	c.DeleteRetention = time.Hour
	c.MinCleanableRatio = 0.5
	return c
}

func kv(t tb, l *Log, pairs ...string) {
	t.Helper()
	var recs []record.Record
	for i := 0; i < len(pairs); i += 2 {
		r := record.Record{Timestamp: nowMs(), Key: []byte(pairs[i])}
		if v := pairs[i+1]; v != "" {
			r.Value = []byte(v)
		}
		recs = append(recs, r)
	}
	_, err := l.Append(build(t, record.BuilderOptions{}, recs...), AppendOptions{})
	must(t, err)
	l.UpdateHighWatermark(l.EndOffset())
}

// seal rolls the active segment, so that all so far can be compacted.
func seal(t tb, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	must(t, l.roll(l.view.Load().end))
}

func compact(t tb, l *Log, now time.Time) CompactStats {
	t.Helper()
	st, err := l.Compact(CompactOptions{Now: now, MapBytes: 1 << 20})
	must(t, err)
	return st
}

// view2 is a record as a test sees it.
type seen struct {
	off      int64
	key, val string
	null     bool
}

// committed lists the records that a read_committed consumer sees.
func committed(t tb, l *Log) []seen {
	t.Helper()
	aborted, err := l.AbortedTxns(l.StartOffset(), l.EndOffset())
	must(t, err)
	skip := map[int64]bool{}
	var out []seen
	for _, b := range batches(t, l) {
		for i := 0; i < len(aborted); i++ {
			if aborted[i].FirstOffset <= b.LastOffset() {
				skip[aborted[i].ProducerID] = true
				aborted = append(aborted[:i:i], aborted[i+1:]...)
				i--
			}
		}
		if b.IsControl() {
			if c, ok, err := b.Control(); err == nil && ok && c.Type == record.ControlAbort {
				delete(skip, b.ProducerID())
			}
			continue
		}
		if b.IsTransactional() && skip[b.ProducerID()] {
			continue
		}
		for r, err := range b.Records(0) {
			must(t, err)
			out = append(out, seen{r.Offset, string(r.Key), string(r.Value), r.Value == nil})
		}
	}
	return out
}

func batches(t tb, l *Log) []record.Batch {
	t.Helper()
	var out []record.Batch
	for off := l.StartOffset(); off < l.EndOffset(); {
		info, err := l.Read(off, 1<<20, l.EndOffset(), true)
		must(t, err)
		if len(info.Spans) == 0 {
			break
		}
		for _, s := range info.Spans {
			data, err := s.Bytes()
			must(t, err)
			for b, err := range record.Batches(data) {
				must(t, err)
				must(t, b.CheckCRC())
				out = append(out, b)
				off = b.NextOffset()
			}
		}
		info.Release()
	}
	return out
}

func TestCompactionKeepsTheLastOfEachKey(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, compacted())
	for i := range 60 {
		kv(t, l, fmt.Sprint("k", i%7), fmt.Sprint("v", i), "once"+fmt.Sprint(i), "x")
	}
	seal(t, l)
	kv(t, l, "k0", "in the active segment")
	size := l.Size()
	st := compact(t, l, time.Now())
	if st.To != 120 || st.Kept != 67 || l.CleanedTo() != 120 || l.Size() >= size {
		t.Fatalf("stats %+v, size %d of %d", st, l.Size(), size)
	}
	check := func(l *Log) {
		t.Helper()
		n := map[string]int{}
		last := map[string]string{}
		for _, r := range committed(t, l) {
			n[r.key]++
			last[r.key] = r.val
		}
		for i := range 7 {
			want, copies := fmt.Sprint("v", 53+(i+3)%7), 1
			if i == 0 { // the active segment is left alone, and not looked at
				want, copies = "in the active segment", 2
			}
			if k := fmt.Sprint("k", i); n[k] != copies || last[k] != want {
				t.Errorf("%s: %d times, last %q, want %q", k, n[k], last[k], want)
			}
		}
		if len(n) != 67 {
			t.Errorf("%d keys", len(n))
		}
	}
	check(l)
	// Offsets in gaps are answered by the next batch.
	info, err := l.Read(0, 100, l.EndOffset(), true)
	if err != nil || info.FirstOffset < 0 {
		t.Fatalf("read at 0: %+v %v", info, err)
	}
	info.Release()
	if again, err := l.Cleanable(time.Now()); err != nil || again.Due(l.Config()) {
		t.Fatalf("due again: %+v %v", again, err)
	}
	must(t, l.Close(true))
	check(openLog(t, fs, compacted(), clean, func(o *Options) { o.CleanedTo = 120 }))
}

func TestTombstonesStayForDeleteRetention(t *testing.T) {
	l := openLog(t, testFS(t), compacted())
	now := time.Now()
	kv(t, l, "a", "1", "b", "1")
	kv(t, l, "a", "")
	kv(t, l, "fill", "1")
	seal(t, l)
	st := compact(t, l, now)
	if st.Kept != 3 {
		t.Fatalf("stats %+v", st)
	}
	horizon := int64(-1)
	for _, b := range batches(t, l) {
		if h, ok := b.DeleteHorizon(); ok {
			horizon = h
		}
	}
	if want := now.Add(time.Hour).UnixMilli(); horizon != want {
		t.Fatalf("delete horizon %d, want %d", horizon, want)
	}
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{{59 * time.Minute, "[b a fill x]"}, {61 * time.Minute, "[b fill x y]"}} {
		kv(t, l, map[time.Duration]string{59 * time.Minute: "x", 61 * time.Minute: "y"}[tc.after], "1")
		seal(t, l)
		compact(t, l, now.Add(tc.after))
		var keys []string
		for _, r := range committed(t, l) {
			keys = append(keys, r.key)
		}
		if fmt.Sprint(keys) != tc.want {
			t.Fatalf("after %s: keys %v, want %s", tc.after, keys, tc.want)
		}
	}
}

func TestCompactionLags(t *testing.T) {
	c := compacted()
	c.MinCompactionLag = time.Hour
	l := openLog(t, testFS(t), c)
	kv(t, l, "a", "1")
	kv(t, l, "a", "2")
	seal(t, l)
	now := time.Now()
	if w, err := l.Cleanable(now); err != nil || w.From != w.To {
		t.Fatalf("young records: %+v %v", w, err)
	}
	w, err := l.Cleanable(now.Add(2 * time.Hour))
	if err != nil || w.To != 2 || !w.Due(c) {
		t.Fatalf("old records: %+v %v", w, err)
	}
	// max.compaction.lag.ms overrides the dirty ratio.
	c.MinCompactionLag, c.MaxCompactionLag, c.MinCleanableRatio = 0, time.Hour, 1
	l.SetConfig(c)
	for after, due := range map[time.Duration]bool{time.Minute: false, 2 * time.Hour: true} {
		if w, err := l.Cleanable(now.Add(after)); err != nil || w.Due(c) != due {
			t.Fatalf("after %s: %+v %v", after, w, err)
		}
	}
}

func TestUndecidedTransactionsAreNotCompacted(t *testing.T) {
	l := openLog(t, testFS(t), compacted())
	kv(t, l, "a", "1")
	kv(t, l, "a", "2")
	b := build(t, record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 5}}, record.Record{Key: []byte("a"), Timestamp: nowMs()})
	_, err := l.Append(b, AppendOptions{})
	must(t, err)
	kv(t, l, "a", "3")
	seal(t, l)
	st := compact(t, l, time.Now())
	if st.To != 2 {
		t.Fatalf("stats %+v", st)
	}
	if got := committed(t, l); len(got) != 3 || got[0].val != "2" {
		t.Fatalf("records %v", got)
	}
}

func TestLastBatchOfAProducerIsKeptEmpty(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, compacted())
	b := func(seq int32) []byte {
		return build(t, record.BuilderOptions{Producer: &record.Producer{ID: 9, Epoch: 2, BaseSequence: seq}},
			record.Record{Key: []byte("k"), Value: []byte(fmt.Sprint(seq)), Timestamp: nowMs()})
	}
	for seq := range int32(3) {
		client(t, l, b(seq))
	}
	kv(t, l, "k", "later")
	seal(t, l)
	compact(t, l, time.Now())
	if got := committed(t, l); len(got) != 1 || got[0].val != "later" {
		t.Fatalf("records %v", got)
	}
	// The state is rebuilt from what is left.
	must(t, l.Close(false))
	offs, err := l.snapshots()
	must(t, err)
	for _, o := range offs {
		must(t, l.removeSnapshot(o))
	}
	l = openLog(t, fs, compacted())
	if info := client(t, l, b(2)); !info.Duplicate || info.FirstOffset != 2 {
		t.Fatalf("duplicate: %+v", info)
	}
	client(t, l, b(3))
}

func TestSmallKeyMapCleansInSteps(t *testing.T) {
	l := openLog(t, testFS(t), compacted())
	for i := range 100 {
		kv(t, l, fmt.Sprint("k", i%50), fmt.Sprint(i))
	}
	seal(t, l)
	var to int64
	for rounds := 0; to < 100; rounds++ {
		st, err := l.Compact(CompactOptions{Now: time.Now(), MapBytes: 16 * slotSize})
		must(t, err)
		if st.To <= to || rounds > 20 {
			t.Fatalf("round %d: %+v", rounds, st)
		}
		to = st.To
	}
	if got := committed(t, l); len(got) != 50 {
		t.Fatalf("%d records are left", len(got))
	}
}

func TestUnreadableBatchDoesNotStopTheCleaner(t *testing.T) {
	l := openLog(t, testFS(t), compacted())
	kv(t, l, "a", "1")
	bad := record.Batch(build(t, record.BuilderOptions{BaseOffset: 1, Compression: record.Compression{Codec: record.Zstd}}, record.Record{Key: []byte("a"), Value: []byte("2")}))
	bad[len(bad)-3] ^= 0xff
	bad.SetProducer(-1, -1, -1) // sets the checksum anew: the batch is as good as its producer made it
	_, err := l.AppendAsIs(bad, AppendOptions{MaxEpoch: -1})
	must(t, err)
	kv(t, l, "a", "3")
	seal(t, l)
	st := compact(t, l, time.Now())
	if st.Unreadable == 0 || st.To != 3 {
		t.Fatalf("stats %+v", st)
	}
	if bs := batches(t, l); len(bs) != 2 || string(bs[0]) != string(bad) {
		t.Fatalf("%d batches", len(bs))
	}
}

// cleanModel is what a compacted log must show: the last committed value of
// each key.
type cleanModel struct {
	t      *rapid.T
	fs     *disk.Mem
	cfg    Config
	log    *Log
	now    time.Time
	keys   map[string]string // "" is a tombstone
	all    map[int64]seen    // every record ever committed, by offset
	open   map[int64][]seen  // by producer
	seqs   map[int64]int32
	ckpt   [3]int64
	values int
}

func (m *cleanModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *cleanModel) reopen(fsys disk.FS, clean bool) {
	m.t.Helper()
	l, err := Open(Options{FS: fsys, Dir: testDir, Topic: "t", Config: m.cfg, Clean: clean,
		RecoveryPoint: m.ckpt[0], LogStart: m.ckpt[1], CleanedTo: m.ckpt[2],
		Checkpoint: func() error {
			m.ckpt = [3]int64{m.log.RecoveryPoint(), m.log.StartOffset(), m.log.CleanedTo()}
			return nil
		}})
	m.must(err)
	m.log = l
	l.UpdateHighWatermark(l.EndOffset())
}

func (m *cleanModel) commit(s seen) {
	m.all[s.off] = s
	m.keys[s.key] = s.val
}

func (m *cleanModel) record() (record.Record, seen) {
	m.values++
	s := seen{key: fmt.Sprint("k", rapid.IntRange(0, 6).Draw(m.t, "key")), val: fmt.Sprint("v", m.values)}
	r := record.Record{Key: []byte(s.key), Timestamp: int64(m.values), Value: []byte(s.val)}
	if rapid.IntRange(0, 4).Draw(m.t, "tombstone") == 0 {
		r.Value, s.val, s.null = nil, "", true
	}
	return r, s
}

func (m *cleanModel) append(b []byte, o AppendOptions) int64 {
	m.t.Helper()
	info, err := m.log.Append(b, o)
	m.must(err)
	m.log.UpdateHighWatermark(m.log.EndOffset())
	return info.FirstOffset
}

func (m *cleanModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"plain": func(t *rapid.T) {
			var recs []record.Record
			var list []seen
			for range rapid.IntRange(1, 3).Draw(t, "records") {
				r, s := m.record()
				recs, list = append(recs, r), append(list, s)
			}
			codec := rapid.SampledFrom([]record.Codec{record.None, record.Zstd}).Draw(t, "codec")
			off := m.append(build(t, record.BuilderOptions{Compression: record.Compression{Codec: codec}}, recs...), AppendOptions{})
			for i, s := range list {
				s.off = off + int64(i)
				m.commit(s)
			}
		},
		"transactional": func(t *rapid.T) {
			id := rapid.Int64Range(1, 3).Draw(t, "producer")
			r, s := m.record()
			b := build(t, record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: id, BaseSequence: m.seqs[id]}}, r)
			s.off = m.append(b, AppendOptions{})
			m.seqs[id]++
			m.open[id] = append(m.open[id], s)
		},
		"end": func(t *rapid.T) {
			id := rapid.Int64Range(1, 3).Draw(t, "producer")
			commit := rapid.Bool().Draw(t, "commit")
			m.append(record.EndTxnMarker(commit, 0, id, 0, int64(m.values)), AppendOptions{Origin: OriginCoordinator})
			if commit {
				for _, s := range m.open[id] {
					m.commit(s)
				}
			}
			delete(m.open, id)
		},
		"roll":    func(t *rapid.T) { seal(t, m.log) },
		"time":    func(t *rapid.T) { m.now = m.now.Add(40 * time.Minute) },
		"compact": func(t *rapid.T) { m.compact(m.log) },
		"reap":    func(t *rapid.T) { m.must(m.log.Reap(m.now.Add(time.Hour))) },
		"kill":    func(t *rapid.T) { m.reopen(m.fs, false) },
		"restart": func(t *rapid.T) { m.must(m.log.Close(true)); m.must(m.log.opts.Checkpoint()); m.reopen(m.fs, true) },
		"compact and crash": func(t *rapid.T) {
			m.must(m.log.Flush(-1))
			m.must(m.log.opts.Checkpoint())
			m.must(m.log.Close(false))
			n := rapid.IntRange(1, 60).Draw(t, "operations")
			armed := false
			m.reopen(disk.Faulty(m.fs, func(op disk.Op, _ string) error {
				if op == disk.OpRead || !armed {
					return nil
				}
				if n--; n <= 0 {
					return errors.New("power cut")
				}
				return nil
			}), false)
			armed = true
			_, _ = m.log.Compact(CompactOptions{Now: m.now, MapBytes: 1 << 16}) // fails, or not
			m.fs.CrashTorn()
			m.reopen(m.fs, false)
		},
		"": m.check,
	}
}

func (m *cleanModel) compact(l *Log) {
	bytes := rapid.SampledFrom([]int64{16 * slotSize, 1 << 16}).Draw(m.t, "map")
	_, err := l.Compact(CompactOptions{Now: m.now, MapBytes: bytes})
	m.must(err)
}

func (m *cleanModel) check(t *rapid.T) {
	keys := map[string]string{}
	lso := m.log.LastStableOffset(m.log.EndOffset())
	for _, s := range committed(t, m.log) {
		if s.off >= lso {
			break
		}
		if want, ok := m.all[s.off]; !ok || want != s {
			t.Fatalf("log shows %+v, appended and committed was %+v (%v)", s, want, ok)
		}
		keys[s.key] = s.val
	}
	want := map[string]string{}
	offs := map[string]int64{}
	for off, s := range m.all {
		if off < lso && (offs[s.key] == 0 || off >= offs[s.key]) {
			want[s.key], offs[s.key] = s.val, off
		}
	}
	drop := func(_ string, v string) bool { return v == "" } // tombstones may be gone
	maps.DeleteFunc(keys, drop)
	maps.DeleteFunc(want, drop)
	if !maps.Equal(keys, want) {
		t.Fatalf("last values are %v, want %v", keys, want)
	}
}

// TestCompactionAgainstModel: compaction never changes the last committed value
// of a key nor any record it keeps, wherever it crashes.
func TestCompactionAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := compacted()
		c.SegmentBytes = rapid.Int64Range(200, 1500).Draw(t, "segment")
		c.TimestampAfterMax = forever
		c.ProducerIDExpiration = 0
		m := &cleanModel{t: t, fs: disk.NewMem(rapid.Uint64().Draw(t, "seed")), cfg: c, now: time.Now(),
			keys: map[string]string{}, all: map[int64]seen{}, open: map[int64][]seen{}, seqs: map[int64]int32{}}
		m.must(m.fs.Mkdir("/data"))
		m.must(m.fs.SyncDir("/"))
		m.reopen(m.fs, false)
		t.Repeat(m.actions())
	})
}
