package transport_test

import (
	"testing"
	"time"
)

// BenchmarkFailover measures the time from the kill of the leader of three voters to the
// first record that the next leader has committed, with the default ticks.
func BenchmarkFailover(b *testing.B) {
	r := newRig(b, nil)
	all := r.begin(3)
	end := 0
	r.write(end, 1, all...)
	end++
	var sum, longest time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		r.same(end, all...)
		lead := r.leader(all...)
		rest := without(all, lead)
		b.StartTimer()
		begin := time.Now()
		r.kill(lead)
		r.write(end, 1, rest...)
		took := time.Since(begin)
		b.StopTimer()
		end++
		sum += took
		longest = max(longest, took)
		r.start(lead, nil)
		b.StartTimer()
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/failover")
	b.ReportMetric(float64(longest.Milliseconds()), "ms-longest")
}

// BenchmarkPropose measures one record at a time, committed by three voters on loopback.
func BenchmarkPropose(b *testing.B) {
	r := newRig(b, nil)
	all := r.begin(3)
	r.write(0, 1, all...)
	b.ResetTimer()
	for i := range b.N {
		r.write(1+i, 1, all...)
	}
}
