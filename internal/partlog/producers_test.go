package partlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/record"
)

func client(t testing.TB, l *Log, b []byte) AppendInfo {
	t.Helper()
	info, err := l.Append(b, AppendOptions{})
	must(t, err)
	return info
}

func refused(t testing.TB, l *Log, b []byte, code api.Code) {
	t.Helper()
	end := l.EndOffset()
	_, err := l.Append(b, AppendOptions{})
	wantCode(t, err, code)
	if l.EndOffset() != end {
		t.Fatal("a refused batch was appended")
	}
}

func TestIdempotence(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, small())
	// After loss or expiry any sequence may come first (KIP-360).
	client(t, l, producerBatch(t, 1, 0, 17, "a", "b"))
	for i := range 6 {
		client(t, l, producerBatch(t, 1, 0, 19+int32(i), fmt.Sprint("c", i)))
	}
	// The last five batches are known as duplicates, the sixth is not.
	for i := 1; i < 6; i++ {
		info := client(t, l, producerBatch(t, 1, 0, 19+int32(i), fmt.Sprint("c", i)))
		if !info.Duplicate || info.FirstOffset != int64(2+i) || info.LastOffset != int64(2+i) {
			t.Fatalf("batch %d: %+v", i, info)
		}
	}
	refused(t, l, producerBatch(t, 1, 0, 19, "c0"), api.OutOfOrderSequenceNumber)
	refused(t, l, producerBatch(t, 1, 0, 26, "gap"), api.OutOfOrderSequenceNumber)
	// A new epoch starts at 0 and fences the old one.
	refused(t, l, producerBatch(t, 1, 1, 5, "x"), api.OutOfOrderSequenceNumber)
	client(t, l, producerBatch(t, 1, 1, 0, "d"))
	refused(t, l, producerBatch(t, 1, 0, 25, "zombie"), api.InvalidProducerEpoch)
	// The state outlives restarts, clean or not; its batches are known again.
	must(t, l.Close(true))
	l = openLog(t, fs, small(), clean)
	if info := client(t, l, producerBatch(t, 1, 1, 0, "d")); !info.Duplicate || info.FirstOffset != 8 {
		t.Fatalf("after a restart: %+v", info)
	}
	refused(t, l, producerBatch(t, 1, 1, 2, "x"), api.OutOfOrderSequenceNumber)
	client(t, l, producerBatch(t, 1, 1, 1, "e"))
	l = openLog(t, fs, small())
	if info := client(t, l, producerBatch(t, 1, 1, 1, "e")); !info.Duplicate || info.FirstOffset != 9 {
		t.Fatalf("after a kill: %+v", info)
	}
}

func TestSequencesWrap(t *testing.T) {
	l := openLog(t, testFS(t), small())
	client(t, l, producerBatch(t, 1, 0, math.MaxInt32-1, "a", "b", "c")) // MaxInt32-1, MaxInt32, 0
	if st := l.ProducerStates()[0]; st.LastSequence != 0 {
		t.Fatalf("last sequence %d", st.LastSequence)
	}
	if info := client(t, l, producerBatch(t, 1, 0, math.MaxInt32-1, "a", "b", "c")); !info.Duplicate || info.FirstOffset != 0 || info.LastOffset != 2 {
		t.Fatalf("duplicate over the wrap: %+v", info)
	}
	client(t, l, producerBatch(t, 1, 0, 1, "d"))
	client(t, l, producerBatch(t, 2, 0, math.MaxInt32, "a"))
	client(t, l, producerBatch(t, 2, 0, 0, "b"))
}

func TestTruncationTakesProducerStateBack(t *testing.T) {
	l := openLog(t, testFS(t), small())
	for i := range int32(30) {
		client(t, l, producerBatch(t, 1, 0, i, fmt.Sprint("v", i)))
	}
	_, err := l.TruncateTo(12)
	must(t, err)
	if st := l.ProducerStates()[0]; st.LastSequence != 11 {
		t.Fatalf("last sequence %d", st.LastSequence)
	}
	refused(t, l, producerBatch(t, 1, 0, 30, "x"), api.OutOfOrderSequenceNumber)
	client(t, l, producerBatch(t, 1, 0, 12, "v12"))
	must(t, l.TruncateFullyAndStartAt(100))
	if st := l.ProducerStates(); len(st) != 0 {
		t.Fatalf("producers %+v", st)
	}
}

func TestProducersExpire(t *testing.T) {
	c := small()
	c.ProducerIDExpiration = time.Hour
	l := openLog(t, testFS(t), c)
	client(t, l, producerBatch(t, 1, 0, 0, "a"))
	client(t, l, txnBatch(t, 2, 0, 0, "b"))
	_, err := l.RetentionPass(time.Now().Add(30 * time.Minute))
	must(t, err)
	if n := len(l.ProducerStates()); n != 2 {
		t.Fatalf("%d producers", n)
	}
	_, err = l.RetentionPass(time.Now().Add(2 * time.Hour))
	must(t, err)
	if st := l.ProducerStates(); len(st) != 1 || st[0].ID != 2 { // an open transaction holds its producer
		t.Fatalf("producers %+v", st)
	}
	client(t, l, producerBatch(t, 1, 0, 55, "after expiry"))
}

func mark(t testing.TB, l *Log, commit bool, id int64, epoch int16, version int16) error {
	t.Helper()
	_, err := l.Append(record.EndTxnMarker(commit, 5, id, epoch, nowMs()), AppendOptions{Origin: OriginCoordinator, TxnVersion: version})
	return err
}

func TestTransactions(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, small())
	lso := func(hw, want int64) {
		t.Helper()
		if got := l.LastStableOffset(hw); got != want {
			t.Fatalf("LSO at %d is %d, want %d", hw, got, want)
		}
	}
	aborted := func(from, to int64, want string) {
		t.Helper()
		got, err := l.AbortedTxns(from, to)
		must(t, err)
		if fmt.Sprint(got) != want {
			t.Fatalf("aborted in [%d, %d): %v, want %s", from, to, got, want)
		}
	}
	appendVals(t, l, 0, "plain")            // 0
	client(t, l, txnBatch(t, 1, 0, 0, "a")) // 1
	client(t, l, txnBatch(t, 2, 0, 0, "b")) // 2
	lso(1, 1)
	lso(3, 1)
	refused(t, l, producerBatch(t, 1, 0, 1, "not transactional"), api.InvalidTxnState)
	must(t, mark(t, l, true, 1, 0, 0)) // 3
	lso(3, 1)                          // the marker isn't replicated yet
	lso(4, 2)
	must(t, mark(t, l, false, 2, 0, 0)) // 4
	lso(4, 2)
	lso(5, 5)
	aborted(0, 5, "[{2 2}]")
	aborted(0, 2, "[]")
	aborted(4, 5, "[{2 2}]")
	aborted(5, 9, "[]")
	// Markers: epoch rules of transaction version 0 and 2 (KIP-890, KAFKA-19999).
	client(t, l, txnBatch(t, 3, 4, 0, "c")) // 5
	wantCode(t, mark(t, l, true, 3, 3, 0), api.InvalidProducerEpoch)
	wantCode(t, mark(t, l, true, 3, 4, 2), api.InvalidProducerEpoch)
	must(t, mark(t, l, true, 3, 5, 2)) // 6
	must(t, mark(t, l, true, 3, 5, 2)) // 7: a retry
	_, err := l.Append(record.EndTxnMarker(true, 4, 3, 5, nowMs()), AppendOptions{Origin: OriginCoordinator})
	wantCode(t, err, api.TransactionCoordinatorFenced)
	// Open and aborted transactions outlive a clean restart and a kill.
	client(t, l, txnBatch(t, 4, 0, 0, "d")) // 8
	for range 10 {
		appendVals(t, l, 0, "more")
	}
	must(t, l.Flush(-1))
	for _, edit := range []func(*Options){clean, rp(0), rp(19)} {
		must(t, l.Close(true))
		l = openLog(t, fs, small(), edit)
		lso(19, 8)
		aborted(0, 19, "[{2 2}]")
	}
	must(t, mark(t, l, false, 4, 0, 0)) // 19
	aborted(0, 20, "[{2 2} {4 8}]")
	l = openLog(t, fs, small(), rp(19)) // killed
	aborted(0, 20, "[{2 2} {4 8}]")
	aborted(10, 20, "[{4 8}]")
	lso(20, 20)
	_, err = l.TruncateTo(19)
	must(t, err)
	aborted(0, 19, "[{2 2}]")
	lso(19, 8)
}

// MIRROR_PID_RESET empties the producer state, at append, on followers, and in recovery.
func TestMirrorPIDReset(t *testing.T) {
	fs := testFS(t)
	l := openLog(t, fs, small())
	client(t, l, producerBatch(t, 1, 3, 7, "a"))
	_, err := l.Append(record.MirrorPIDReset(nowMs()), AppendOptions{Origin: OriginCoordinator, LeaderEpoch: 6})
	must(t, err)
	check := func(l *Log) {
		t.Helper()
		if st := l.ProducerStates(); len(st) != 0 {
			t.Fatalf("producers %+v", st)
		}
	}
	check(l)
	info, err := l.Read(0, 1<<20, l.EndOffset(), true)
	must(t, err)
	data, err := info.Spans[0].Bytes()
	must(t, err)
	follower := openLog(t, testFS(t), small())
	_, err = follower.AppendAsIs(data, AppendOptions{Origin: OriginReplication, MaxEpoch: -1})
	must(t, err)
	check(follower)
	check(openLog(t, fs, small())) // killed
	// The same id starts anew, at a lower epoch too, with any sequence.
	_, err = l.Append(producerBatch(t, 1, 0, 3, "b"), AppendOptions{LeaderEpoch: 6})
	must(t, err)
}

func TestSnapshotFormat(t *testing.T) {
	p := producer{id: 0x0102030405060708, epoch: 9, coordEpoch: 11, lastTime: 1234, txnStart: -1}
	p.add(batchMeta{lastSeq: 20, offsetDelta: 2, lastOffset: 77, timestamp: 1234})
	b := encodeSnapshot([]producer{p})
	const want = "0001" + "%s" + "00000001" + "0102030405060708" + "0009" + "00000014" + "000000000000004d" +
		"00000002" + "00000000000004d2" + "0000000b" + "ffffffffffffffff"
	if got := hex.EncodeToString(b); got != fmt.Sprintf(want, hex.EncodeToString(b[2:6])) {
		t.Fatalf("snapshot is %s", got)
	}
	list, err := decodeSnapshot(b)
	must(t, err)
	if !reflect.DeepEqual(list, []producer{p}) {
		t.Fatalf("decoded %+v", list)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		want := ErrCorrupt
		if i == 1 {
			want = ErrNewerFormat // of the version
		}
		if _, err := decodeSnapshot(bad); !errors.Is(err, want) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := decodeSnapshot(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}
