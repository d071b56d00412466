package obs

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTimingBucketsCoverTheirValues(t *testing.T) {
	last := -1
	for us := uint64(0); us < 1<<40; us += us/16 + 1 {
		b := timingBucket(us)
		if b < last || b >= timingBucketCount {
			t.Fatalf("bucket of %d us is %d after %d", us, b, last)
		}
		last = b
		if got, want := timingValue(b)*1000, float64(us)+0.5; b < timingBucketCount-1 && (got > want*1.126+0.01 || got < want*0.874-0.01) {
			t.Fatalf("%d us is shown as %.1f us", us, got)
		}
	}
	if last != timingBucketCount-1 {
		t.Fatalf("the largest duration is in bucket %d, not the last", last)
	}
}

func TestTimingQuantilesAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewTimingVec("x_ms", "x", "request")
		tm := v.With("Fetch")
		for i := range 1000 {
			tm.Observe(time.Duration(i+1) * time.Millisecond)
		}
		tm.Observe(-time.Second)
		count, sum, q := tm.read(time.Now())
		if count != 1001 || sum != 500500 {
			t.Fatalf("count %d sum %v, want 1001 and 500500", count, sum)
		}
		for quant, want := range map[float64]float64{0.5: 500, 0.99: 990} {
			if got := q[quant]; got < want*0.87 || got > want*1.13 {
				t.Errorf("quantile %v = %v, want about %v", quant, got, want)
			}
		}
		// What is older than two windows is forgotten by the quantiles alone.
		for range 3 {
			time.Sleep(TimingWindow)
			tm.read(time.Now())
		}
		tm.Observe(time.Millisecond)
		count, _, q = tm.read(time.Now())
		if count != 1002 || q[0.999] > 1.2 {
			t.Fatalf("after three windows: count %d, 0.999 quantile %v; want 1002 and about 1", count, q[0.999])
		}
	})
}

func TestTimingVecCollects(t *testing.T) {
	reg := prometheus.NewRegistry()
	v := NewTimingVec(RequestTotalTime, "Time of a request in all.", LabelRequest)
	if err := Register(reg, v); err != nil {
		t.Fatal(err)
	}
	if err := Register(reg, v); err == nil || !strings.Contains(err.Error(), "register metric") {
		t.Fatalf("registering twice: %v", err)
	}
	if err := Register(nil, v); err != nil {
		t.Fatal(err)
	}
	v.With("Unused")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				v.With("Produce").Observe(3 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	fams, err := reg.Gather()
	if err != nil || len(fams) != 1 || len(fams[0].Metric) != 1 {
		t.Fatalf("gathered %v, %v; want one family with one member", fams, err)
	}
	if s := fams[0].Metric[0].GetSummary(); s.GetSampleCount() != 400 || s.GetSampleSum() != 1200 {
		t.Fatalf("summary %v", s)
	}
}

func BenchmarkTimingObserve(b *testing.B) {
	tm := newTiming(time.Now())
	b.ReportAllocs()
	for i := range b.N {
		tm.Observe(time.Duration(i))
	}
}
