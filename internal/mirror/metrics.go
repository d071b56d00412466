package mirror

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// metrics of the mirrors on this broker. States and lags are read at scrape time.
type metrics struct {
	m           *Manager
	bytes       *prometheus.CounterVec // mirror
	fetchErrors *prometheus.CounterVec // mirror, error
	syncErrors  *prometheus.CounterVec // mirror, sync
	cutRecords  *prometheus.CounterVec // mirror
	gaps        *prometheus.CounterVec // mirror

	cutBytes   *prometheus.Desc
	cutFiles   *prometheus.Desc
	states     *prometheus.Desc
	lag        *prometheus.Desc
	lagSeconds *prometheus.Desc
	syncAge    *prometheus.Desc
}

func newMetrics(m *Manager, r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_server_mirror_" + name, Help: help}, append([]string{"mirror"}, labels...))
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_server_mirror_"+name, help, append([]string{"mirror"}, labels...), nil)
	}
	x := &metrics{
		m:           m,
		bytes:       counter("fetched_bytes_total", "Bytes of batches appended from the source."),
		fetchErrors: counter("fetch_errors_total", "Errors of fetches at the source, by the name of the error.", "error"),
		syncErrors:  counter("sync_errors_total", "Failed runs of a mirror's periodic work, by kind.", "sync"),
		cutRecords:  counter("cut_records_total", "Records that were cut from mirror partitions and set aside."),
		gaps:        counter("gap_records_total", "Offsets that the source's retention took before they were mirrored."),
		cutBytes:    desc("cut_bytes", "Bytes set aside by cuts that are kept on this broker."),
		cutFiles:    desc("cut_files", "Files of records set aside by cuts that are kept on this broker."),
		states:      desc("partitions", "Mirror partitions led here, by state.", "state"),
		lag:         desc("lag_offsets", "Source high watermark minus own; absent while the source's is unknown.", "topic", "partition"),
		lagSeconds:  desc("lag_seconds", "Time since the log end last equalled a source high watermark; absent while unknown.", "topic", "partition"),
		syncAge:     desc("sync_age_seconds", "Time since the last successful run of a mirror's periodic work; absent before the first.", "sync"),
	}
	if r == nil {
		return x, nil
	}
	return x, r.Register(x)
}

// Describe implements prometheus.Collector.
func (x *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []*prometheus.CounterVec{x.bytes, x.fetchErrors, x.syncErrors, x.cutRecords, x.gaps} {
		c.Describe(ch)
	}
	ch <- x.cutBytes
	ch <- x.cutFiles
	ch <- x.states
	ch <- x.lag
	ch <- x.lagSeconds
	ch <- x.syncAge
}

// Collect implements prometheus.Collector.
func (x *metrics) Collect(ch chan<- prometheus.Metric) {
	for name := range x.m.image.Load().Configs(meta.ResourceClusterMirror) {
		// A counter that is there from the start shows its first event as a rise from 0.
		for _, c := range []*prometheus.CounterVec{x.bytes, x.cutRecords, x.gaps} {
			c.WithLabelValues(name)
		}
		for _, sync := range []string{"refresh", "groups"} {
			x.syncErrors.WithLabelValues(name, sync)
		}
	}
	for _, c := range []*prometheus.CounterVec{x.bytes, x.fetchErrors, x.syncErrors, x.cutRecords, x.gaps} {
		c.Collect(ch)
	}
	x.collectCuts(ch)
	now := time.Now()
	counts := map[string]map[mirrormsg.State]int{}
	for _, p := range x.m.partitions(func(*Partition) bool { return true }) {
		if counts[p.mirror] == nil {
			counts[p.mirror] = map[mirrormsg.State]int{}
		}
		counts[p.mirror][p.State()]++
		pr := p.Progress(now)
		if pr.Known() {
			ch <- prometheus.MustNewConstMetric(x.lag, prometheus.GaugeValue, float64(max(pr.SourceOffset-pr.DestinationOffset, 0)), p.mirror, p.tp.topic, strconv.Itoa(int(p.tp.partition)))
		}
		if pr.Behind >= 0 {
			ch <- prometheus.MustNewConstMetric(x.lagSeconds, prometheus.GaugeValue, pr.Behind.Seconds(), p.mirror, p.tp.topic, strconv.Itoa(int(p.tp.partition)))
		}
	}
	for name := range x.m.image.Load().Configs(meta.ResourceClusterMirror) {
		for s := mirrormsg.Unknown; s <= mirrormsg.Failed; s++ {
			ch <- prometheus.MustNewConstMetric(x.states, prometheus.GaugeValue, float64(counts[name][s]), name, s.String())
		}
		h, err := x.m.Health(name)
		if err != nil {
			continue
		}
		for sync, at := range map[string]time.Time{"refresh": h.Refreshed, "groups": h.Groups} {
			if !at.IsZero() {
				ch <- prometheus.MustNewConstMetric(x.syncAge, prometheus.GaugeValue, now.Sub(at).Seconds(), name, sync)
			}
		}
	}
}

// collectCuts tells what is set aside, of each mirror that exists or once cut here.
func (x *metrics) collectCuts(ch chan<- prometheus.Metric) {
	type kept struct{ files, bytes int64 }
	by := map[string]kept{}
	for name := range x.m.image.Load().Configs(meta.ResourceClusterMirror) {
		by[name] = kept{}
	}
	for _, c := range x.m.Cuts() {
		k := by[c.Mirror]
		by[c.Mirror] = kept{k.files + 1, k.bytes + c.Bytes}
	}
	for name, k := range by {
		ch <- prometheus.MustNewConstMetric(x.cutBytes, prometheus.GaugeValue, float64(k.bytes), name)
		ch <- prometheus.MustNewConstMetric(x.cutFiles, prometheus.GaugeValue, float64(k.files), name)
	}
}

// forget drops the counters of a mirror that is gone.
func (x *metrics) forget(mirror string) {
	for _, c := range []*prometheus.CounterVec{x.bytes, x.fetchErrors, x.syncErrors, x.cutRecords, x.gaps} {
		c.DeletePartialMatch(prometheus.Labels{"mirror": mirror})
	}
}
