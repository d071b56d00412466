package group

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of Kafka's group coordinator, under the names that the JMX
// exporter's usual rules give them.
type metrics struct {
	s     *Service
	descs []metric

	// Totals over all shards there ever were.
	rebalances, commits, expired, deleted atomic.Int64
	maxLoad                               atomic.Int64 // milliseconds
}

// metric is one value that is found out at a scrape.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	stats func(*stats) int // summed over the shards, or
	total *atomic.Int64
}

func newMetrics(s *Service, r prometheus.Registerer) *metrics {
	m := &metrics{s: s}
	inState := func(st State) func(*stats) int { return func(v *stats) int { return v.groups[st] } }
	all := func(v *stats) (n int) {
		for _, c := range v.groups {
			n += c
		}
		return n
	}
	const manager = "kafka_coordinator_group_groupmetadatamanager_"
	const coordinator = "kafka_server_group_coordinator_metrics_"
	m.gauge(manager+"numgroups", "Groups coordinated here.", all)
	m.gauge(manager+"numoffsets", "Committed offsets held here.", func(v *stats) int { return v.offsets })
	m.gauge(manager+"numgroupsempty", "Groups without members.", inState(Empty))
	m.gauge(manager+"numgroupspreparingrebalance", "Groups that wait for their members to join.", inState(PreparingRebalance))
	m.gauge(manager+"numgroupscompletingrebalance", "Groups that wait for their leader's assignment.", inState(CompletingRebalance))
	m.gauge(manager+"numgroupsstable", "Groups at work.", inState(Stable))
	m.counter(coordinator+"group_completed_rebalance_count", "Generations formed.", &m.rebalances)
	m.counter(coordinator+"offset_commit_count", "Offsets committed.", &m.commits)
	m.counter(coordinator+"offset_expiration_count", "Offsets expired.", &m.expired)
	m.counter(coordinator+"group_deletion_count", "Groups deleted or expired.", &m.deleted)
	m.descs = append(m.descs, metric{
		desc: prometheus.NewDesc(coordinator+"partition_load_time_max",
			"The longest that loading a partition of __consumer_offsets took, in milliseconds.", nil, nil),
		kind:  prometheus.GaugeValue,
		total: &m.maxLoad,
	})
	if r != nil {
		r.MustRegister(m)
	}
	return m
}

func (m *metrics) gauge(name, help string, value func(*stats) int) {
	m.descs = append(m.descs, metric{
		desc: prometheus.NewDesc(name, help, nil, nil), kind: prometheus.GaugeValue, stats: value,
	})
}

func (m *metrics) counter(name, help string, total *atomic.Int64) {
	m.descs = append(m.descs, metric{
		desc: prometheus.NewDesc(name, help, nil, nil), kind: prometheus.CounterValue, total: total,
	})
}

func (m *metrics) loaded(d time.Duration) {
	ms := d.Milliseconds()
	for old := m.maxLoad.Load(); ms > old && !m.maxLoad.CompareAndSwap(old, ms); old = m.maxLoad.Load() {
	}
}

// count adds what a shard did since it was last counted.
func (m *metrics) count(before, now *stats) {
	add := func(c *atomic.Int64, n int) {
		if n != 0 {
			c.Add(int64(n))
		}
	}
	add(&m.rebalances, now.rebalances-before.rebalances)
	add(&m.commits, now.commits-before.commits)
	add(&m.expired, now.expired-before.expired)
	add(&m.deleted, now.deleted-before.deleted)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		out <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	sums := make([]int64, len(m.descs))
	shards := m.s.hosts.All()
	for i, d := range m.descs {
		if d.total != nil {
			sums[i] = d.total.Load()
			continue
		}
		for _, sh := range shards {
			sv, ok := sh.Machine()
			if !ok {
				continue
			}
			if st := sv.stats.Load(); st != nil {
				sums[i] += int64(d.stats(st))
			}
		}
	}
	for i, d := range m.descs {
		out <- prometheus.MustNewConstMetric(d.desc, d.kind, float64(sums[i]))
	}
}
