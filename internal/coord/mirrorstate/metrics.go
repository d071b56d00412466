package mirrorstate

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the coordinator runtime that the specification names (section 11, group cluster-mirror-coordinator-metrics), as far
// as there is what they measure: commands have no thread of their own that could idle.
type metrics struct {
	s                        *Service
	loadMax, loadAvg, shards *prometheus.Desc
	fenced                   prometheus.Counter

	mu    sync.Mutex
	loads int
	total time.Duration
	max   time.Duration
}

func newMetrics(s *Service, r prometheus.Registerer) *metrics {
	const prefix = "kafka_server_cluster_mirror_coordinator_metrics_"
	m := &metrics{
		s:       s,
		loadMax: prometheus.NewDesc(prefix+"partition_load_time_max", "The longest that loading a partition of __mirror_state took, in milliseconds; absent before the first.", nil, nil),
		loadAvg: prometheus.NewDesc(prefix+"partition_load_time_avg", "Mean time that loading a partition of __mirror_state took, in milliseconds; absent before the first.", nil, nil),
		shards:  prometheus.NewDesc(prefix+"num_partitions", "Partitions of __mirror_state led here: loading, active, or failed, which a newer release has to load.", []string{"state"}, nil),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "fenced_writes_total",
			Help: "Writes of a mirror partition's state that were refused because a newer leader or a newer state was known."}),
	}
	if r != nil {
		r.MustRegister(m)
	}
	return m
}

// loaded notes how long a load took.
func (m *metrics) loaded(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	m.total += d
	m.max = max(m.max, d)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.loadMax
	ch <- m.loadAvg
	ch <- m.shards
	m.fenced.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m.mu.Lock()
	loads, total, longest := m.loads, m.total, m.max
	m.mu.Unlock()
	if loads > 0 {
		gauge(m.loadMax, float64(longest.Microseconds())/1000)
		gauge(m.loadAvg, float64(total.Microseconds())/1000/float64(loads))
	}
	loading, active, failed := m.s.hosts.States()
	gauge(m.shards, float64(loading), "loading")
	gauge(m.shards, float64(active), "active")
	gauge(m.shards, float64(failed), "failed")
	m.fenced.Collect(ch)
}
