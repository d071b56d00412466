package partlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/record"
)

func TestAppendStampsOffsetsAndEpoch(t *testing.T) {
	l := openLog(t, testFS(t), small())
	info := appendVals(t, l, 3, "v0", "v1")
	if info.FirstOffset != 0 || info.LastOffset != 1 || info.LastEpoch != 3 || info.Records != 2 {
		t.Fatalf("info %+v", info)
	}
	appendVals(t, l, 4, "v2")
	wantRecs(t, l, seq(0, 3)...)
	if got := fmt.Sprint(l.Epochs()); got != "[{3 0} {4 2}]" {
		t.Fatalf("epochs %s", got)
	}
	if l.LatestEpoch() != 4 || l.EndOffset() != 3 {
		t.Fatalf("latest %d end %d", l.LatestEpoch(), l.EndOffset())
	}
}

func TestReadBounds(t *testing.T) {
	l := openLog(t, testFS(t), small())
	fill(t, l, 0, 40)
	if n := len(l.Segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	wantRecs(t, l, seq(0, 40)...)
	for _, off := range []int64{-1, 41} {
		if _, err := l.Read(off, 100, 40, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("offset %d: %v", off, err)
		}
	}
	info, err := l.Read(40, 100, 40, true)
	if err != nil || len(info.Spans) != 0 {
		t.Fatalf("at the end: %+v %v", info, err)
	}
	// Nothing at or above upTo, whatever the batch boundaries.
	for upTo := int64(0); upTo <= 40; upTo++ {
		info, err := l.Read(0, 1<<20, upTo, true)
		must(t, err)
		last := int64(-1)
		for _, s := range info.Spans {
			b, err := s.Bytes()
			must(t, err)
			for b, err := range record.Batches(b) {
				must(t, err)
				last = b.LastOffset()
			}
		}
		info.Release()
		if last != upTo-1 {
			t.Fatalf("upTo %d: last offset %d", upTo, last)
		}
	}
	info, err = l.Read(5, 10, 40, false)
	if err != nil || !info.FirstTooBig || len(info.Spans) != 0 {
		t.Fatalf("small fetch without minOne: %+v %v", info, err)
	}
	info, err = l.Read(5, 10, 40, true)
	if err != nil || len(info.Spans) != 1 || info.FirstOffset != 5 {
		t.Fatalf("small fetch with minOne: %+v %v", info, err)
	}
	info.Release()
}

func TestClientBatchesAreChecked(t *testing.T) {
	now := time.Now().UnixMilli()
	c := small()
	c.MaxMessageBytes = 500
	l := openLog(t, testFS(t), c)
	ok := values(t, now, "x")
	bad := append([]byte(nil), ok...)
	bad[len(bad)-1] ^= 1
	based := append([]byte(nil), ok...)
	record.Batch(based).SetBaseOffset(7)
	huge := values(t, now, string(make([]byte, 600)))
	control := record.EndTxnMarker(true, 0, 1, 0, now)
	future := values(t, now+2*time.Hour.Milliseconds(), "x")
	for name, tc := range map[string]struct {
		batch []byte
		code  api.Code
	}{
		"wrong checksum":  {bad, api.CorruptMessage},
		"base offset":     {based, api.InvalidRecord},
		"too large":       {huge, api.MessageTooLarge},
		"control batch":   {control, api.InvalidRecord},
		"two batches":     {append(append([]byte(nil), ok...), ok...), api.InvalidRecord},
		"partial batch":   {ok[:len(ok)-1], api.CorruptMessage},
		"nothing":         {nil, api.CorruptMessage},
		"from the future": {future, api.InvalidTimestamp},
	} {
		_, err := l.Append(tc.batch, AppendOptions{})
		if err == nil {
			t.Fatalf("%s: accepted", name)
		}
		if got, _ := api.CodeOf(err); got != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code.Name())
		}
	}
	var list *InvalidRecords
	_, err := l.Append(future, AppendOptions{})
	if !errors.As(err, &list) || len(list.Records) != 1 || list.Records[0].BatchIndex != 0 {
		t.Fatalf("record errors of %v: %+v", err, list)
	}
	if l.EndOffset() != 0 {
		t.Fatal("something was appended")
	}
}

func TestCompactedTopicNeedsKeys(t *testing.T) {
	c := small()
	c.Compact, c.Delete = true, false
	l := openLog(t, testFS(t), c)
	b := build(t, record.BuilderOptions{}, record.Record{Key: []byte("k")}, record.Record{}, record.Record{Key: []byte{}})
	_, err := l.Append(b, AppendOptions{})
	wantCode(t, err, api.InvalidRecord)
	var list *InvalidRecords
	if !errors.As(err, &list) || len(list.Records) != 1 || list.Records[0].BatchIndex != 1 {
		t.Fatalf("record errors: %+v", list)
	}
}

func TestRecompression(t *testing.T) {
	for _, want := range []struct {
		c     Compression
		codec record.Codec
	}{{CompressionNone, record.None}, {CompressionGzip, record.Gzip}, {CompressionSnappy, record.Snappy},
		{CompressionLZ4, record.LZ4}, {CompressionZstd, record.Zstd}, {CompressionProducer, record.Snappy}} {
		c := small()
		c.Compression = want.c
		l := openLog(t, testFS(t), c)
		b := build(t, record.BuilderOptions{Compression: record.Compression{Codec: record.Snappy}},
			record.Record{Timestamp: 5, Value: []byte("v0")}, record.Record{Timestamp: 6, Value: []byte("v1")})
		_, err := l.Append(b, AppendOptions{LeaderEpoch: 2})
		must(t, err)
		info, err := l.Read(0, 1000, 2, true)
		must(t, err)
		data, err := info.Spans[0].Bytes()
		must(t, err)
		if got := record.Batch(data).Codec(); got != want.codec {
			t.Errorf("compression %d: stored as %s", want.c, got)
		}
		info.Release()
		wantRecs(t, l, seq(0, 2)...)
	}
}

func TestLogAppendTime(t *testing.T) {
	c := small()
	c.LogAppendTime = true
	l := openLog(t, testFS(t), c)
	before := time.Now().UnixMilli()
	info, err := l.Append(values(t, 5, "v0"), AppendOptions{})
	must(t, err)
	if info.LogAppendTime < before || info.MaxTimestamp != info.LogAppendTime {
		t.Fatalf("info %+v", info)
	}
	r, err := l.OffsetForTimestamp(before)
	if err != nil || r.Offset != 0 || r.Timestamp != info.LogAppendTime {
		t.Fatalf("lookup %+v %v", r, err)
	}
	wantRecs(t, l, seq(0, 1)...)
}

func TestAppendAsIs(t *testing.T) {
	l := openLog(t, testFS(t), small())
	_, err := l.AppendAsIs(append(at(t, 10, 1, "a"), at(t, 20, 3, "b", "c")...), AppendOptions{MaxEpoch: 3})
	must(t, err)
	wantRecs(t, l, rec{10, "a"}, rec{20, "b"}, rec{21, "c"})
	for name, tc := range map[string]struct {
		batch []byte
		max   int32
		want  error
	}{
		"below the end":     {at(t, 21, 3, "x"), -1, ErrOffsetOrder},
		"falling offsets":   {append(at(t, 30, 3, "x"), at(t, 25, 3, "y")...), -1, ErrOffsetOrder},
		"falling epoch":     {at(t, 22, 2, "x"), -1, ErrEpochOrder},
		"epoch above bound": {append(at(t, 22, 3, "x"), at(t, 23, 5, "y")...), 4, ErrEpochAbove},
		"garbage":           {make([]byte, 100), -1, ErrCorrupt},
	} {
		if _, err := l.AppendAsIs(tc.batch, AppendOptions{MaxEpoch: tc.max}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.EndOffset() != 22 || l.LatestEpoch() != 3 {
		t.Fatalf("end %d epoch %d", l.EndOffset(), l.LatestEpoch())
	}
	// A partial last batch is left out.
	b := at(t, 22, 3, "d")
	info, err := l.AppendAsIs(append(b, b[:40]...), AppendOptions{MaxEpoch: -1})
	if err != nil || info.LastOffset != 22 || info.Bytes != int64(len(b)) {
		t.Fatalf("partial: %+v %v", info, err)
	}
}

// A.3 and D1 of the spec.
func TestEpochEnd(t *testing.T) {
	l := openLog(t, testFS(t), small())
	check := func(e int32, wantEpoch int32, wantEnd int64) {
		t.Helper()
		if ge, gend := l.EpochEnd(e); ge != wantEpoch || gend != wantEnd {
			t.Errorf("end of %d is (%d, %d), want (%d, %d)", e, ge, gend, wantEpoch, wantEnd)
		}
	}
	check(-1, -1, -1)
	check(5, -1, 0) // D1: empty cache answers (-1, LEO)
	_, err := l.AppendAsIs(append(append(at(t, 10, 2, "a", "b"), at(t, 12, 4, "c")...), at(t, 20, 7, "d")...), AppendOptions{MaxEpoch: -1})
	must(t, err)
	check(-1, -1, -1)
	check(0, 0, 10) // below the first: its start
	check(2, 2, 12)
	check(3, 2, 12)
	check(4, 4, 20)
	check(6, 4, 20)
	check(7, 7, 21)
	check(9, 7, 21) // D1: above the latest, not undefined
}

func TestOffsetOverflowRolls(t *testing.T) {
	l := openLog(t, testFS(t), small())
	far := int64(1) << 33
	_, err := l.AppendAsIs(append(append(at(t, 0, 0, "a"), at(t, 5, 0, "b")...), at(t, far, 0, "c")...), AppendOptions{MaxEpoch: -1})
	must(t, err)
	_, err = l.AppendAsIs(at(t, 2*far, 0, "d"), AppendOptions{MaxEpoch: -1})
	must(t, err)
	want := []rec{{0, "a"}, {5, "b"}, {far, "c"}, {2 * far, "d"}}
	wantRecs(t, l, want...)
	if n := len(l.Segments()); n != 3 {
		t.Fatalf("%d segments: %+v", n, l.Segments())
	}
	must(t, l.Close(true))
	l = openLog(t, l.opts.FS, small(), clean)
	wantRecs(t, l, want...)
}

func TestTruncate(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, small())
	fill(t, l, 1, 20)
	fill(t, l, 2, 20)
	cut, err := l.TruncateTo(30)
	if err != nil || !cut {
		t.Fatal(cut, err)
	}
	wantRecs(t, l, seq(0, 30)...)
	// D1: entries at or above the cut go even if nothing else does.
	l.epochs.assign(9, 30)
	if cut, err = l.TruncateTo(30); cut || err != nil {
		t.Fatal(cut, err)
	}
	if l.LatestEpoch() != 2 {
		t.Fatalf("latest epoch %d", l.LatestEpoch())
	}
	_, err = l.TruncateTo(15)
	must(t, err)
	if got := fmt.Sprint(l.Epochs()); got != "[{1 0}]" {
		t.Fatalf("epochs %s", got)
	}
	fill(t, l, 5, 10)
	wantRecs(t, l, seq(0, 25)...)
	must(t, l.TruncateFullyAndStartAt(100))
	if l.StartOffset() != 100 || l.EndOffset() != 100 || l.LatestEpoch() != -1 || l.RecoveryPoint() != 100 {
		t.Fatalf("start %d end %d epoch %d", l.StartOffset(), l.EndOffset(), l.LatestEpoch())
	}
	fill(t, l, 5, 3)
	must(t, l.Close(true))
	l = openLog(t, fs, small(), clean, func(o *Options) { o.LogStart = 100 })
	wantRecs(t, l, seq(100, 103)...)
}

func TestTruncateInsideABatchRemovesItWhole(t *testing.T) {
	l := openLog(t, testFS(t), small())
	appendVals(t, l, 0, "v0", "v1")
	appendVals(t, l, 0, "v2", "v3", "v4")
	_, err := l.TruncateTo(3)
	must(t, err)
	if l.EndOffset() != 3 {
		t.Fatalf("end %d", l.EndOffset())
	}
	wantRecs(t, l, seq(0, 2)...)
	appendVals(t, l, 0, "v3")
	wantRecs(t, l, rec{0, "v0"}, rec{1, "v1"}, rec{3, "v3"})
}

func TestSpansSurviveDeletion(t *testing.T) {
	l := openLog(t, testFS(t), small())
	fill(t, l, 0, 30)
	info, err := l.Read(0, 200, 30, true)
	must(t, err)
	l.UpdateHighWatermark(30)
	_, err = l.AdvanceStart(25)
	must(t, err)
	n, err := l.RetentionPass(time.Now())
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	must(t, l.Reap(time.Now().Add(time.Hour)))
	b, err := info.Spans[0].Bytes()
	must(t, err)
	must(t, record.Batch(b[:record.Batch(b).Len()]).CheckCRC())
	must(t, l.Delete())
	if _, err := info.Spans[0].Bytes(); err != nil {
		t.Fatal(err)
	}
	info.Release()
	if _, err := l.Append(values(t, 1, "x"), AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append to a deleted log: %v", err)
	}
}

func TestTopicIDIsKept(t *testing.T) {
	fs := testFS(t)
	id := ids.UUID{1, 2, 3}
	l := openLog(t, fs, small(), func(o *Options) { o.TopicID = id })
	must(t, l.Close(true))
	l = openLog(t, fs, small(), clean)
	if l.TopicID() != id {
		t.Fatalf("id %s", l.TopicID())
	}
	must(t, l.Close(true))
	if _, err := Open(Options{FS: fs, Dir: testDir, Topic: "t", Config: small(), TopicID: ids.UUID{9}}); err == nil {
		t.Fatal("another topic's log was opened")
	}
}
