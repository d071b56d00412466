package quorum

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are named as the JMX exporter names Kafka's raft-metrics.
type metrics struct {
	all   []prometheus.Collector
	sync  prometheus.Histogram
	count prometheus.Counter
}

func (n *Node) register() error {
	m := &metrics{
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "milena_quorum_append_seconds",
			Help:    "Time to write entries to the raft log and make them durable.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 14),
		}),
		count: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_quorum_appended_entries_total",
			Help: "Entries appended to the raft log.",
		}),
	}
	gauge := func(name, help string, value func(*Status) float64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(n.status()) }))
	}
	gauge("kafka_server_raft_metrics_high_watermark", "Committed metadata offset.",
		func(s *Status) float64 { return float64(s.HighWatermark) })
	gauge("kafka_server_raft_metrics_log_end_offset", "End offset of the local metadata log.",
		func(s *Status) float64 { return float64(s.EndOffset) })
	gauge("kafka_server_raft_metrics_current_epoch", "Epoch of the metadata quorum.",
		func(s *Status) float64 { return float64(s.Epoch) })
	gauge("kafka_server_raft_metrics_current_leader", "Node id of the leader, -1 if unknown.",
		func(s *Status) float64 {
			if !s.HasLeader {
				return -1
			}
			return float64(s.Leader.ID)
		})
	m.all = append(m.all, m.sync, m.count)
	n.metrics = m
	if n.o.Registerer == nil {
		return nil
	}
	for i, c := range m.all {
		if err := n.o.Registerer.Register(c); err != nil {
			for _, c := range m.all[:i] {
				n.o.Registerer.Unregister(c)
			}
			return err
		}
	}
	return nil
}

func (n *Node) unregister() {
	if n.o.Registerer == nil {
		return
	}
	for _, c := range n.metrics.all {
		n.o.Registerer.Unregister(c)
	}
}

func (n *Node) observeSync(d time.Duration, entries int) {
	n.metrics.sync.Observe(d.Seconds())
	n.metrics.count.Add(float64(entries))
}
