package partlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"milena/internal/record"
)

// Appends, reads, lookups, flushes, retention, compaction and deletion of
// files go on at the same time; readers always see whole, good batches in
// order.
func TestConcurrentUse(t *testing.T) {
	c := compacted()
	c.Delete, c.FileDeleteDelay = true, 0
	l := openLog(t, testFS(t), c)
	const appends = 1500
	var done atomic.Bool
	var wg sync.WaitGroup
	loop := func(fn func() error) {
		wg.Go(func() {
			for !done.Load() {
				if err := fn(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		defer done.Store(true)
		for i := range appends {
			b, err := record.Build(record.BuilderOptions{Producer: &record.Producer{ID: 1, BaseSequence: int32(i)}},
				record.Record{Key: []byte(fmt.Sprint(i % 100)), Value: []byte("value"), Timestamp: nowMs()})
			if err == nil {
				_, err = l.Append(b, AppendOptions{})
			}
			if err != nil {
				t.Error(err)
				return
			}
			l.UpdateHighWatermark(l.EndOffset())
		}
	})
	for range 2 {
		off := int64(0)
		loop(func() error {
			info, err := l.Read(off, 700, l.EndOffset(), true)
			if errors.Is(err, ErrOffsetOutOfRange) {
				off = l.StartOffset()
				return nil
			}
			if err != nil {
				return err
			}
			defer info.Release()
			for _, s := range info.Spans {
				data, err := s.Bytes()
				if err != nil {
					return err
				}
				for b, err := range record.Batches(data) {
					if err != nil {
						return err
					}
					if b.LastOffset() < off {
						return fmt.Errorf("batch %d-%d at offset %d", b.BaseOffset(), b.LastOffset(), off)
					}
					if err := b.CheckCRC(); err != nil {
						return err
					}
					off = b.NextOffset()
				}
			}
			if off >= l.EndOffset() {
				off = l.StartOffset()
			}
			return nil
		})
	}
	loop(func() error { return l.Flush(-1) })
	loop(func() error {
		_, err := l.Compact(CompactOptions{Now: time.Now(), MapBytes: 1 << 16})
		return err
	})
	loop(func() error {
		if _, err := l.AdvanceStart(max(l.EndOffset()-500, 0)); err != nil {
			return err
		}
		if _, err := l.RetentionPass(time.Now()); err != nil {
			return err
		}
		l.idled.Store(0)
		l.CloseIdle(time.Now())
		return l.Reap(time.Now())
	})
	loop(func() error {
		_, err := l.OffsetForTimestamp(nowMs() - 5)
		if err == nil {
			_, err = l.MaxTimestampOffset()
		}
		_, _, _ = l.Segments(), l.ProducerStates(), l.Epochs()
		return err
	})
	wg.Wait()
	if l.EndOffset() != appends {
		t.Fatalf("end %d", l.EndOffset())
	}
	must(t, l.Close(true))
}
