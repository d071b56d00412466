package partlog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/record"
)

// A client has five batches unacknowledged and sends the older of them again too, to a log that knows but the last from a snapshot.
func TestOlderBatchesAreKnownAgain(t *testing.T) {
	again := map[string]func(fs *disk.Mem, l *Log) *Log{
		"clean restart": func(fs *disk.Mem, l *Log) *Log {
			must(t, l.Close(true))
			return openLog(t, fs, small(), clean)
		},
		"kill behind a snapshot": func(fs *disk.Mem, l *Log) *Log {
			l.mu.Lock()
			err := l.roll(l.EndOffset())
			l.mu.Unlock()
			must(t, err)
			must(t, l.Flush(-1))
			return openLog(t, fs, small(), rp(l.RecoveryPoint()))
		},
		"truncation": func(_ *disk.Mem, l *Log) *Log {
			l.mu.Lock()
			err := l.roll(l.EndOffset())
			l.mu.Unlock()
			must(t, err)
			end := l.EndOffset()
			appendVals(t, l, 0, "cut", "off")
			_, err = l.TruncateTo(end)
			must(t, err)
			return l
		},
	}
	for name, do := range again {
		t.Run(name, func(t *testing.T) {
			fs := testFS(t)
			l := openLog(t, fs, small())
			const first = math.MaxInt32 - 7 // so that the sequences go on at 0
			batch := func(i int) []byte {
				return producerBatch(t, 1, 2, record.AddSequence(first, int32(2*i)), fmt.Sprint("a", i), fmt.Sprint("b", i))
			}
			for i := range 7 { // offsets 4i and 4i+1
				client(t, l, batch(i))
				client(t, l, producerBatch(t, 2, 0, int32(2*i), "x", "y"))
			}
			states := l.ProducerStates()
			l = do(fs, l)
			refused(t, l, batch(8), api.OutOfOrderSequenceNumber)
			for i := 2; i < 7; i++ {
				if info := client(t, l, batch(i)); !info.Duplicate || info.FirstOffset != int64(4*i) || info.LastOffset != int64(4*i+1) {
					t.Fatalf("batch %d: %+v", i, info)
				}
			}
			if got := l.ProducerStates(); !slices.Equal(got, states) { // what DescribeProducers answers
				t.Fatalf("producers are %+v, they were %+v", got, states)
			}
			refused(t, l, batch(1), api.OutOfOrderSequenceNumber) // no client may have so many under way
			refused(t, l, producerBatch(t, 1, 2, record.AddSequence(first, 6), "other bounds"), api.OutOfOrderSequenceNumber)
			if info := client(t, l, batch(7)); info.Duplicate {
				t.Fatalf("the next batch is %+v", info)
			}
			if info := client(t, l, producerBatch(t, 2, 0, 4, "x", "y")); !info.Duplicate || info.FirstOffset != 10 {
				t.Fatalf("the other producer's: %+v", info)
			}
		})
	}
}

// What isn't of the same run of sequences is no duplicate.
func TestWhatIsNotKnownAgain(t *testing.T) {
	reopen := func(fs *disk.Mem, l *Log) *Log {
		must(t, l.Close(true))
		return openLog(t, fs, small(), clean)
	}
	t.Run("an older epoch", func(t *testing.T) {
		fs := testFS(t)
		l := openLog(t, fs, small())
		client(t, l, producerBatch(t, 1, 0, 0, "a"))
		client(t, l, producerBatch(t, 1, 1, 0, "b"))
		client(t, l, producerBatch(t, 1, 1, 1, "c"))
		l = reopen(fs, l)
		refused(t, l, producerBatch(t, 1, 0, 0, "a"), api.InvalidProducerEpoch)
		if info := client(t, l, producerBatch(t, 1, 1, 0, "b")); !info.Duplicate || info.FirstOffset != 1 {
			t.Fatalf("%+v", info)
		}
	})
	t.Run("before a reset of all producers", func(t *testing.T) {
		fs := testFS(t)
		l := openLog(t, fs, small())
		client(t, l, producerBatch(t, 1, 0, 4, "of another cluster"))
		client(t, l, producerBatch(t, 2, 0, 3, "of another cluster"))
		l.mu.Lock()
		err := l.roll(2) // the reset stands in the next segment
		l.mu.Unlock()
		must(t, err)
		client(t, l, producerBatch(t, 2, 0, 4, "of another cluster"))
		_, err = l.Append(record.MirrorPIDReset(nowMs()), AppendOptions{Origin: OriginCoordinator})
		must(t, err)
		client(t, l, producerBatch(t, 1, 0, 5, "ours"))
		client(t, l, producerBatch(t, 2, 0, 5, "ours"))
		l = reopen(fs, l)
		refused(t, l, producerBatch(t, 1, 0, 4, "ours too"), api.OutOfOrderSequenceNumber)
		refused(t, l, producerBatch(t, 2, 0, 4, "ours too"), api.OutOfOrderSequenceNumber)
	})
	t.Run("before the producer was forgotten", func(t *testing.T) {
		fs := testFS(t)
		l := openLog(t, fs, small())
		client(t, l, producerBatch(t, 1, 0, 3, "a"))
		l.producers.expire(time.Now().Add(time.Hour), time.Minute)
		client(t, l, producerBatch(t, 1, 0, 8, "b"))
		l = reopen(fs, l)
		refused(t, l, producerBatch(t, 1, 0, 3, "a"), api.OutOfOrderSequenceNumber)
		client(t, l, producerBatch(t, 1, 0, 9, "c"))
	})
	t.Run("what retention took", func(t *testing.T) {
		fs := testFS(t)
		l := openLog(t, fs, small())
		client(t, l, producerBatch(t, 1, 0, 0, "a"))
		client(t, l, producerBatch(t, 1, 0, 1, "b"))
		l = reopen(fs, l)
		l.UpdateHighWatermark(2)
		_, err := l.AdvanceStart(2)
		must(t, err)
		l.mu.Lock()
		err = l.roll(2)
		l.mu.Unlock()
		must(t, err)
		if n, err := l.RetentionPass(time.Now()); n != 1 || err != nil {
			t.Fatalf("%d segments went, %v", n, err)
		}
		refused(t, l, producerBatch(t, 1, 0, 0, "a"), api.OutOfOrderSequenceNumber)
		client(t, l, producerBatch(t, 1, 0, 2, "c"))
	})
}

// Older batches are read when one is sent again, and only as much of the log as that takes.
func TestOlderBatchesAreReadWhenNeeded(t *testing.T) {
	mem := testFS(t)
	c := DefaultConfig()
	l := openLog(t, mem, c)
	client(t, l, producerBatch(t, 1, 0, 0, "a"))
	client(t, l, producerBatch(t, 1, 0, 1, "b"))
	filler := strings.Repeat("x", 256<<10)
	for range 12 {
		appendVals(t, l, 0, filler)
	}
	client(t, l, producerBatch(t, 1, 0, 2, "c"))
	client(t, l, producerBatch(t, 1, 0, 3, "d"))
	must(t, l.Close(true))
	var read []string
	broken := false
	l = openLog(t, disk.Faulty(mem, func(op disk.Op, name string) error {
		if op == disk.OpRead && strings.HasSuffix(name, logSuffix) {
			read = append(read, name)
			if broken {
				return errors.New("no such sector")
			}
		}
		return nil
	}), c, clean)
	opened := len(read) // the end of the last segment
	refused(t, l, producerBatch(t, 1, 0, 5, "gap"), api.OutOfOrderSequenceNumber)
	info := client(t, l, producerBatch(t, 1, 0, 3, "d"))
	if len(read) > opened || !info.Duplicate {
		t.Fatalf("%d reads for the last batch: %+v", len(read)-opened, info)
	}
	opened = len(read)
	if info := client(t, l, producerBatch(t, 1, 0, 2, "c")); !info.Duplicate || info.FirstOffset != 14 {
		t.Fatalf("%+v", info)
	}
	near := len(read) - opened
	if info := client(t, l, producerBatch(t, 1, 0, 0, "a")); !info.Duplicate || info.FirstOffset != 0 {
		t.Fatalf("%+v", info)
	}
	if far := len(read) - opened - near; near == 0 || near > 9 || far == 0 {
		t.Fatalf("%d and %d reads", near, far)
	}
	opened = len(read)
	refused(t, l, producerBatch(t, 1, 0, math.MaxInt32, "z"), api.OutOfOrderSequenceNumber)
	refused(t, l, producerBatch(t, 1, 0, math.MaxInt32, "z"), api.OutOfOrderSequenceNumber)
	if len(read) > opened {
		t.Fatalf("%d reads although all is known", len(read)-opened)
	}
	must(t, l.Close(true))
	l = openLog(t, l.opts.FS, c, clean)
	l.producers.recallLeft = 1000 // more is not read for it
	opened = len(read)
	refused(t, l, producerBatch(t, 1, 0, 0, "a"), api.OutOfOrderSequenceNumber)
	if n := len(read) - opened; n > 9 {
		t.Fatalf("%d reads for a batch that is far away", n)
	}
	must(t, l.Close(true))
	l = openLog(t, l.opts.FS, c, clean)
	broken = true
	refused(t, l, producerBatch(t, 1, 0, 0, "a"), api.KafkaStorageError)
}

// Many small segments may lie between a producer's batches.
func TestOlderBatchesAreFoundBehindManySegments(t *testing.T) {
	fs := testFS(t)
	c := small()
	c.SegmentBytes = 100
	l := openLog(t, fs, c)
	client(t, l, producerBatch(t, 1, 0, 0, "a"))
	for range 80 {
		appendVals(t, l, 0, "x")
	}
	client(t, l, producerBatch(t, 1, 0, 1, "b"))
	if n := l.SegmentCount(); n < 80 {
		t.Fatalf("%d segments", n)
	}
	must(t, l.Close(true))
	l = openLog(t, fs, c, clean)
	if info := client(t, l, producerBatch(t, 1, 0, 0, "a")); !info.Duplicate || info.FirstOffset != 0 {
		t.Fatalf("%+v", info)
	}
}

// Whatever happens to a log, the last five batches of a producer's epoch are known again with their offsets, and nothing else is taken for one.
func TestDuplicatesAreKnownWhateverHappens(t *testing.T) {
	type batch struct {
		id    int64
		epoch int16
		seq   int32
		n     int
		base  int64
	}
	rapid.Check(t, func(t *rapid.T) {
		c := small()
		c.SegmentBytes = rapid.Int64Range(300, 3000).Draw(t, "segment")
		fs := testFS(t)
		l := openLog(t, fs, c)
		var all []batch
		send := func(b batch) (AppendInfo, error) {
			return l.Append(producerBatch(t, b.id, b.epoch, b.seq, strings.Split(strings.Repeat("v", b.n), "")...), AppendOptions{})
		}
		of := func(id int64) (own []batch) { // of the latest epoch
			for _, b := range all {
				if b.id != id {
					continue
				}
				if len(own) > 0 && b.epoch != own[0].epoch {
					own = nil
				}
				own = append(own, b)
			}
			return own
		}
		check := func(b batch, known bool) {
			end := l.EndOffset()
			info, err := send(b)
			switch {
			case known && (err != nil || !info.Duplicate || info.FirstOffset != b.base || info.LastOffset != b.base+int64(b.n)-1):
				t.Fatalf("%+v sent again: %+v, %v", b, info, err)
			case !known:
				wantCode(t, err, api.OutOfOrderSequenceNumber)
			}
			if l.EndOffset() != end {
				t.Fatalf("%+v is appended twice", b)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.Int64Range(1, 3).Draw(t, "producer")
			own := of(id)
			next := batch{id: id, seq: math.MaxInt32 - 9}
			if n := len(own); n > 0 {
				next.epoch, next.seq = own[n-1].epoch, record.AddSequence(own[n-1].seq, int32(own[n-1].n))
			}
			next.n, next.base = rapid.IntRange(1, 4).Draw(t, "records"), l.EndOffset()
			switch what := rapid.IntRange(0, 13).Draw(t, "what"); {
			case what < 6:
				if len(own) > 0 && what == 0 {
					next.epoch++
					next.seq = 0
				}
				info, err := send(next)
				must(t, err)
				if info.Duplicate || info.FirstOffset != next.base {
					t.Fatalf("%+v: %+v", next, info)
				}
				all = append(all, next)
			case what < 9:
				if len(own) > 0 {
					k := rapid.IntRange(1, min(7, len(own))).Draw(t, "which")
					check(own[len(own)-k], k <= keptBatches)
				}
			case what == 9:
				if len(own) > 0 {
					next.seq = record.AddSequence(next.seq, 1)
					check(next, false)
				}
			case what == 10:
				must(t, l.Close(true))
				l = openLog(t, fs, c, clean)
			case what == 11:
				must(t, l.Flush(-1))
				must(t, l.Close(false))
				l = openLog(t, fs, c, rp(l.RecoveryPoint()))
			case what == 12:
				must(t, l.Close(false))
				l = openLog(t, fs, c, rp(l.RecoveryPoint()))
			case len(all) > 0:
				to := all[rapid.IntRange(0, len(all)-1).Draw(t, "cut")].base
				_, err := l.TruncateTo(to)
				must(t, err)
				for n := len(all); n > 0 && all[n-1].base >= to; n-- {
					all = all[:n-1]
				}
			}
		}
	})
}
