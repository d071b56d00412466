package obs

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Timing counts durations and estimates their quantiles, as Kafka's histograms
// of request times do, at the cost of a few atomic additions. Quantiles are
// within an eighth of the true value and cover the last one to two
// [TimingWindow]s before a scrape; count and sum are since the start. Any
// goroutine may call Observe.
type Timing struct {
	count  atomic.Uint64
	micros atomic.Uint64
	recent atomic.Pointer[timingBuckets]

	mu      sync.Mutex // for Collect
	before  *timingBuckets
	rotated time.Time
}

// TimingWindow is the least time that the quantiles of a [Timing] cover.
const TimingWindow = time.Minute

// Buckets are four to each power of two of microseconds, the first four of one
// microsecond each; the last takes everything from about 2.4 hours on.
const timingBucketCount = 4 * 32

type timingBuckets [timingBucketCount]atomic.Uint32

func newTiming(now time.Time) *Timing {
	t := &Timing{rotated: now, before: new(timingBuckets)}
	t.recent.Store(new(timingBuckets))
	return t
}

// Observe counts a duration. A negative one counts as zero.
func (t *Timing) Observe(d time.Duration) {
	us := uint64(max(d, 0)) / 1000
	t.count.Add(1)
	t.micros.Add(us)
	t.recent.Load()[timingBucket(us)].Add(1)
}

func timingBucket(us uint64) int {
	if us < 4 {
		return int(us)
	}
	e := bits.Len64(us) // 3 and up
	return min(4*(e-2)+int(us>>(e-3)&3), timingBucketCount-1)
}

// timingValue returns the middle of a bucket, in milliseconds.
func timingValue(b int) float64 {
	if b < 4 {
		return (float64(b) + 0.5) / 1000
	}
	shift := b/4 - 1
	low := uint64(4+b%4) << shift
	return (float64(low) + float64(uint64(1)<<shift)/2) / 1000
}

var timingQuantiles = [...]float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// read returns count, sum in milliseconds and quantiles, and starts a new
// window if the old one is over.
func (t *Timing) read(now time.Time) (count uint64, sum float64, quantiles map[float64]float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all [timingBucketCount]uint64
	var total uint64
	recent := t.recent.Load()
	for i := range all {
		all[i] = uint64(recent[i].Load()) + uint64(t.before[i].Load())
		total += all[i]
	}
	quantiles = make(map[float64]float64, len(timingQuantiles))
	for _, q := range timingQuantiles {
		quantiles[q] = quantile(&all, total, q)
	}
	if now.Sub(t.rotated) >= TimingWindow {
		t.rotated = now
		t.before = recent
		t.recent.Store(new(timingBuckets))
	}
	return t.count.Load(), float64(t.micros.Load()) / 1000, quantiles
}

func quantile(all *[timingBucketCount]uint64, total uint64, q float64) float64 {
	if total == 0 {
		return 0
	}
	rank, seen := uint64(q*float64(total-1)), uint64(0)
	for i, n := range all {
		if seen += n; seen > rank {
			return timingValue(i)
		}
	}
	return timingValue(timingBucketCount - 1)
}

// TimingVec is a family of [Timing]s that differ in one label. It is a
// prometheus.Collector that shows each as a summary in milliseconds.
type TimingVec struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	byLabel map[string]*Timing
}

// NewTimingVec returns a family without members.
func NewTimingVec(name, help, label string) *TimingVec {
	return &TimingVec{
		desc:    prometheus.NewDesc(name, help, []string{label}, nil),
		byLabel: make(map[string]*Timing),
	}
}

// With returns the member with the label's value, made if need be. Keep it:
// the look-up takes a lock.
func (v *TimingVec) With(value string) *Timing {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.byLabel[value]
	if !ok {
		t = newTiming(time.Now())
		v.byLabel[value] = t
	}
	return t
}

// Describe implements prometheus.Collector.
func (v *TimingVec) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v *TimingVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	members := make(map[string]*Timing, len(v.byLabel))
	for value, t := range v.byLabel {
		members[value] = t
	}
	v.mu.Unlock()
	now := time.Now()
	for value, t := range members {
		count, sum, quantiles := t.read(now)
		if count > 0 {
			ch <- prometheus.MustNewConstSummary(v.desc, count, sum, quantiles, value)
		}
	}
}

// Register registers collectors with r; nil r does nothing. The error says
// which one could not be.
func Register(r prometheus.Registerer, cs ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("register metric: %w", err))
		}
	}
	return errors.Join(errs...)
}
