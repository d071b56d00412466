package follow

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/obs"
)

// lagGauge is how many records below the leader's high watermark a replica
// lacks; -1: not known.
type lagGauge struct{ v atomic.Int64 }

func (g *lagGauge) set(n int64) { g.v.Store(n + 1) }
func (g *lagGauge) unknown()    { g.v.Store(0) }
func (g *lagGauge) get() int64  { return g.v.Load() - 1 }

// MaxLag is that of all loops.
func (f *Fetchers) MaxLag() (lag int64, unknown int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.loops {
		n, u := l.core.MaxLag()
		lag, unknown = max(lag, n), unknown+u
	}
	return lag, unknown
}

// collector implements prometheus.Collector.
type collector struct{ f *Fetchers }

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	lag, unknown := c.f.MaxLag()
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
	}
	gauge(obs.FetcherMaxLag, "Largest number of committed records that a followed partition lacks here.", float64(lag))
	gauge(obs.FetcherFailedPartitions, "Followed partitions whose fetch fails, or has not been answered yet.", float64(unknown))
}
