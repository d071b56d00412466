package mirror

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// FieldCase 35: "5 MB/s topic falls hours behind on a high-delay line with plenty of bandwidth: one fetch at a time": throughput does not fall as
// 1/delay. 100 ms round trip, one partition at least 50 MB/s; here also with twice that, and with idle partitions beside it.
func TestFieldCase35(t *testing.T) {
	for _, c := range []struct {
		name       string
		delay      time.Duration // each way
		partitions int
		n          int // batches that one of them is behind
	}{{"100 ms", 50 * time.Millisecond, 1, 40}, {"200 ms", 100 * time.Millisecond, 64, 64}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 1_000_000
				s := newSource(t, c.partitions, &link{delay: c.delay, bandwidth: 125e6})
				defer s.close()
				s.fill(0, c.n, size)
				d := newDestination(t, s, nil)
				defer d.close()
				until(t, 10*time.Second, func() bool { return d.part(0).LogEndOffset() > 0 })
				first := d.part(0).LogEndOffset()
				took := d.level(s, 0, time.Minute)
				if rate := float64(int64(c.n)-first) * size / took.Seconds(); rate < 50e6 {
					t.Errorf("%.0f MB/s", rate/1e6)
				}
			})
		})
	}
}

// An operator's bounds hold on a long line too.
func TestConfiguredBoundsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100_000
		s := newSource(t, 1, &link{delay: 50 * time.Millisecond})
		defer s.close()
		s.fill(0, 30, size)
		d := newDestination(t, s, nil, "mirror.fetch.max.bytes", "250000")
		defer d.close()
		until(t, 10*time.Second, func() bool { return d.part(0).LogEndOffset() > 0 })
		// Two batches each 100 ms: 14 more answers.
		if took := d.level(s, 0, time.Minute); took < 1400*time.Millisecond {
			t.Errorf("27 batches and more within %s: mirror.fetch.max.bytes does not bound answers", took)
		}
	})
}

// slowly makes appends from the source take d.
func (d *destination) slowly(wait time.Duration) {
	d.gate(func() error { time.Sleep(wait); return nil })
}

// gate has fn asked before each append from the source.
func (d *destination) gate(fn func() error) {
	d.m.SetGateFactory(func(*meta.Topic, int32) replica.Gate {
		return func(o partlog.Origin) error {
			if o == partlog.OriginMirror {
				return fn()
			}
			return nil
		}
	})
}

// The next fetch is sent before the answer to the last is appended: a slow disk and a long line don't add up.
func TestFetchAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		s := newSource(t, 1, &link{delay: 50 * time.Millisecond})
		defer s.close()
		s.fill(0, n, 100_000)
		d := newDestination(t, s, nil, "mirror.fetch.max.bytes", "100000")
		defer d.close()
		d.slowly(100 * time.Millisecond)
		until(t, 10*time.Second, func() bool { return d.part(0).LogEndOffset() > 0 })
		if took := d.level(s, 0, time.Minute); took > n*110*time.Millisecond {
			t.Errorf("%d answers that take 100 ms to come and 100 ms to be appended took %s", n, took)
		}
	})
}

// What was read ahead of an append that failed is not appended, and read again.
func TestFetchAheadIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 2, &link{delay: 50 * time.Millisecond})
		defer s.close()
		s.fill(0, 12, 10_000)
		s.fill(1, 12, 10_000)
		d := newDestination(t, s, nil, "mirror.fetch.max.bytes", "20000", "mirror.fetch.backoff.ms", "30")
		defer d.close()
		var asked atomic.Int32
		d.gate(func() error {
			if n := asked.Add(1); n%5 == 3 {
				return api.Errorf(api.KafkaStorageError, "the disk is full")
			}
			return nil
		})
		for i := range int32(2) {
			d.level(s, i, time.Minute)
			d.same(s, i)
			if gone, o := d.parts[i].target.Load().ended(); gone {
				t.Errorf("partition %d is not fetched any more: %+v", i, o)
			}
		}
		if asked.Load() < 5 {
			t.Error("no append failed")
		}
	})
}

// same compares the logs of a partition byte for byte.
func (d *destination) same(s *source, partition int32) {
	d.t.Helper()
	if a, b := d.log(partition), s.log(partition); !bytes.Equal(a, b) || len(a) == 0 {
		d.t.Errorf("partition %d: %d bytes here, %d at the source, and not the same", partition, len(a), len(b))
	}
}

// log is all bytes of a partition's segments.
func (b *broker) log(partition int32) (all []byte) {
	b.t.Helper()
	dir := fmt.Sprintf("/data/t-%d", partition)
	files, err := b.fs.ReadDir(dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".log") {
			continue
		}
		data, err := disk.ReadFile(b.fs, filepath.Join(dir, f.Name()))
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}

// FieldCase 32: "Four to five times the traffic, compression lost": wire bytes are about the source's bytes, measured on the line.
func TestFieldCase32(t *testing.T) {
	for _, codec := range []record.Codec{record.Zstd, record.Gzip} {
		synctest.Test(t, func(t *testing.T) {
			const partitions = 8
			s := newSource(t, partitions, &link{delay: 5 * time.Millisecond, bandwidth: 50e6})
			defer s.close()
			want, raw := 0, 0
			for p := range int32(partitions) {
				for range 20 {
					var rs []record.Record
					for i := range 200 {
						rs = append(rs, record.Record{Offset: int64(i), Timestamp: 1, Value: fmt.Appendf(nil, "order %d of customer %d: 3 pieces, to be sent to the usual address", rand.IntN(1e9), i)})
						raw += len(rs[i].Value)
					}
					b, err := record.Build(record.BuilderOptions{Compression: record.Compression{Codec: codec}}, rs...)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.part(p).Append(b, replica.AppendOptions{Epoch: replica.AnyEpoch, Origin: partlog.OriginClient}); err != nil {
						t.Fatal(err)
					}
				}
				want += len(s.log(p))
			}
			if want*2 > raw {
				t.Fatalf("%d bytes were compressed to %d only", raw, want)
			}
			d := newDestination(t, s, nil)
			defer d.close()
			for p := range int32(partitions) {
				d.level(s, p, time.Minute)
				d.same(s, p)
			}
			if got := s.link.bytes.Load(); got > int64(want)*11/10 {
				t.Errorf("%d bytes came over the line for %d of the source", got, want)
			}
		})
	}
}

// FieldCase 76: "Catch-up after hours starves local producers": 5,000 partitions behind, line at its limit; p99 local produce <10 ms. Scaled to
// fit: what all fetchers together ask for stays within mirror.fetch.memory.bytes, and a local append waits for none of theirs.
func TestFieldCase76(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, memory, size = 201, 4 << 20, 20_000
		s := newSource(t, partitions, &link{delay: 10 * time.Millisecond, bandwidth: 20e6})
		defer s.close()
		for p := range int32(partitions - 1) {
			s.fill(p, 8, size)
		}
		d := newDestination(t, s, func(o *Options, _ *replica.Settings) {
			o.FetchMemory, o.Fetchers = memory, func() int { return 8 }
		}, "mirror.fetch.response.max.bytes", "1000000")
		defer d.close()
		d.slowly(2 * time.Millisecond) // a disk that is at its limit too
		local := d.part(partitions - 1)
		d.parts[partitions-1].end()
		batch, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: 1, Value: make([]byte, 100)})
		if err != nil {
			t.Fatal(err)
		}
		most, slowest := int64(0), time.Duration(0)
		until(t, time.Minute, func() bool {
			most = max(most, d.mgr.held.Load())
			begun := time.Now()
			if _, err := local.Append(slices.Clone(batch), replica.AppendOptions{Epoch: replica.AnyEpoch, Origin: partlog.OriginClient}); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(begun))
			for p := range int32(partitions - 1) {
				if d.part(p).LogEndOffset() < 8 {
					return false
				}
			}
			return true
		})
		if most > memory || most < memory/2 {
			t.Errorf("fetches under way were allowed to bring %d bytes, mirror.fetch.memory.bytes is %d", most, memory)
		}
		if slowest >= 10*time.Millisecond {
			t.Errorf("a local append took %s", slowest)
		}
	})
}

// mirror.num.replica.fetchers changes while the mirror runs: partitions move to their new fetchers, and go on where they were.
func TestFetchersAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 16
		s := newSource(t, partitions, &link{delay: time.Millisecond})
		defer s.close()
		d := newDestination(t, s, nil)
		defer d.close()
		for _, n := range []int32{1, 2, 4, 2} {
			d.count.Store(n)
			for p := range int32(partitions) {
				s.fill(p, 2, 1000)
			}
			until(t, time.Minute, func() bool {
				d.follow()
				for p := range int32(partitions) {
					if d.part(p).LogEndOffset() != s.part(p).LogEndOffset() {
						return false
					}
				}
				d.mi.mu.Lock()
				defer d.mi.mu.Unlock()
				return len(d.mi.fetchers) == int(n) // one that has nothing ends
			})
			d.mi.mu.Lock()
			for k, f := range d.mi.fetchers {
				for _, x := range f.live() {
					if x.key.shard(n) != k.shard {
						t.Errorf("%d fetchers: %v is at fetcher %d", n, x.key, k.shard)
					}
				}
			}
			d.mi.mu.Unlock()
		}
		for p := range int32(partitions) {
			d.same(s, p)
		}
	})
}

// A source leader that has just begun to lead may know a high watermark that is below what we have: that is no end of the source, and no
// lag of 0 (spec D6).
func TestSourceThatKnowsLess(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newSource(t, 1, &link{delay: time.Millisecond})
		defer s.close()
		s.fill(0, 3, 100)
		d := newDestination(t, s, nil)
		defer d.close()
		d.level(s, 0, time.Minute)
		p := d.parts[0]
		end := p.rep.HighWatermark()
		before := p.Progress(time.Now())
		if end < 1 || before.SourceOffset != end {
			t.Fatalf("the high watermark is %d, the source's %d", end, before.SourceOffset)
		}
		time.Sleep(20 * time.Millisecond)
		p.sawSource(0, time.Now())
		if now := p.Progress(time.Now()); now.SourceOffset != end || now.Age < 20*time.Millisecond {
			t.Errorf("after an answer with high watermark 0 the source's is %d, %s old", now.SourceOffset, now.Age)
		}
	})
}
