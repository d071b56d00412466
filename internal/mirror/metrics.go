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
	m                *Manager
	bytes            *prometheus.CounterVec // mirror
	fetchErrors      *prometheus.CounterVec // mirror, error
	syncErrors       *prometheus.CounterVec // mirror, sync
	cutRecords       *prometheus.CounterVec // mirror
	gaps             *prometheus.CounterVec // mirror
	auditBytes       *prometheus.CounterVec // mirror
	auditDifferences *prometheus.CounterVec // mirror
	transitions      *prometheus.CounterVec // mirror, from, to
	bumps            *prometheus.CounterVec // mirror
	lookups          *prometheus.CounterVec // mirror, result

	cutBytes   *prometheus.Desc
	cutFiles   *prometheus.Desc
	states     *prometheus.Desc
	lag        *prometheus.Desc
	lagSeconds *prometheus.Desc
	syncAge    *prometheus.Desc
	auditAge   *prometheus.Desc
	audited    *prometheus.Desc
	groupAge   *prometheus.Desc
	skipped    *prometheus.Desc
	beans      *beans
}

// Results of a lookup of a last mirror epoch.
const (
	lookupFound = "found"
	lookupNone  = "none"
	lookupError = "error"
)

func newMetrics(m *Manager, r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_server_mirror_" + name, Help: help}, append([]string{"mirror"}, labels...))
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_server_mirror_"+name, help, append([]string{"mirror"}, labels...), nil)
	}
	x := &metrics{
		m:                m,
		bytes:            counter("fetched_bytes_total", "Bytes of batches appended from the source."),
		fetchErrors:      counter("fetch_errors_total", "Errors of fetches at the source, by the name of the error.", "error"),
		syncErrors:       counter("sync_errors_total", "Failed runs of a mirror's periodic work, by kind.", "sync"),
		cutRecords:       counter("cut_records_total", "Records that were cut from mirror partitions and set aside."),
		gaps:             counter("gap_records_total", "Offsets that the source's retention took before they were mirrored."),
		auditBytes:       counter("audit_bytes_total", "Bytes that the audit read from the source."),
		auditDifferences: counter("audit_differences_total", "Comparisons of a partition with its source that found a difference."),
		transitions:      counter("state_transitions_total", "Changes of the states of mirror partitions led here.", "from", "to"),
		bumps:            counter("epoch_bumps_total", "Leader epochs raised above the source's, or for a stop."),
		lookups:          counter("last_mirror_epoch_lookups_total", "Questions to the source for the last mirror epoch of a partition, by result: found, none or error.", "result"),
		skipped:          desc("skipped_groups", "Groups that the last sync left alone because they have members here and other committed offsets than at the source. Of the broker that syncs the mirror's groups."),
		auditAge:         desc("audit_age_seconds", "Time since the partition led here was compared that was compared longest ago; one that was not yet counts from the beginning of its leadership. Absent if none is being mirrored here."),
		audited:          desc("audit_partitions", "Mirror partitions led here, by what their last comparison with the source found: equal, different, undecided or pending.", "result"),
		groupAge:         desc("group_sync_age_seconds", "Time since a group's committed offsets were last compared with the source's, and written where they differed unless the group has members here. Of the broker that syncs the mirror's groups; absent before the first.", "group"),
		beans:            newBeans(),
		cutBytes:         desc("cut_bytes", "Bytes set aside by cuts that are kept on this broker."),
		cutFiles:         desc("cut_files", "Files of records set aside by cuts that are kept on this broker."),
		states:           desc("partitions", "Mirror partitions led here, by state.", "state"),
		lag:              desc("lag_offsets", "Source high watermark minus own; absent while the source's is unknown, and once it is STOPPED.", "topic", "partition"),
		lagSeconds:       desc("lag_seconds", "Time since the log end last equalled a source high watermark; absent while unknown, and once it is STOPPED.", "topic", "partition"),
		syncAge:          desc("sync_age_seconds", "Time since the last successful run of a kind of a mirror's periodic work: refresh, and on the broker that does them configs and groups; absent before the first.", "sync"),
	}
	if r == nil {
		return x, nil
	}
	return x, r.Register(x)
}

// counters are those that have a mirror's name as their first label.
func (x *metrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{x.bytes, x.fetchErrors, x.syncErrors, x.cutRecords, x.gaps, x.auditBytes, x.auditDifferences, x.transitions, x.bumps, x.lookups}
}

// Describe implements prometheus.Collector.
func (x *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range x.counters() {
		c.Describe(ch)
	}
	ch <- x.cutBytes
	ch <- x.cutFiles
	ch <- x.states
	ch <- x.lag
	ch <- x.lagSeconds
	ch <- x.syncAge
	ch <- x.auditAge
	ch <- x.audited
	ch <- x.groupAge
	ch <- x.skipped
	x.beans.Describe(ch)
}

// Collect implements prometheus.Collector.
func (x *metrics) Collect(ch chan<- prometheus.Metric) {
	for name := range x.m.image.Load().Configs(meta.ResourceClusterMirror) {
		// A counter that is there from the start shows its first event as a rise from 0.
		for _, c := range []*prometheus.CounterVec{x.bytes, x.cutRecords, x.gaps, x.auditBytes, x.auditDifferences, x.bumps} {
			c.WithLabelValues(name)
		}
		for _, result := range []string{lookupFound, lookupNone, lookupError} {
			x.lookups.WithLabelValues(name, result)
		}
		for _, sync := range []string{"refresh", "configs", "groups"} {
			x.syncErrors.WithLabelValues(name, sync)
		}
	}
	for _, c := range x.counters() {
		c.Collect(ch)
	}
	x.collectCuts(ch)
	now := time.Now()
	x.collectAudits(ch, now)
	x.beans.collect(x.m, now, ch)
	counts := map[string]map[mirrormsg.State]int{}
	for _, p := range x.m.partitions(func(*Partition) bool { return true }) {
		if counts[p.mirror] == nil {
			counts[p.mirror] = map[mirrormsg.State]int{}
		}
		state := p.State()
		counts[p.mirror][state]++
		if state == mirrormsg.Stopped {
			continue // no source's any more: it neither keeps up nor falls behind
		}
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
		owner := x.m.owns(name)
		for sync, at := range map[string]time.Time{"refresh": h.Refreshed, "configs": h.Configs, "groups": h.Groups} {
			if !at.IsZero() && (sync != "groups" || owner) { // the others only look which offsets are held there, and more rarely
				ch <- prometheus.MustNewConstMetric(x.syncAge, prometheus.GaugeValue, now.Sub(at).Seconds(), name, sync)
			}
		}
		if owner && !h.Groups.IsZero() {
			ch <- prometheus.MustNewConstMetric(x.skipped, prometheus.GaugeValue, float64(h.SkippedGroups), name)
		}
		for group, at := range h.ByGroup {
			ch <- prometheus.MustNewConstMetric(x.groupAge, prometheus.GaugeValue, now.Sub(at).Seconds(), name, group)
		}
	}
}

// collectAudits tells what comparisons with the sources found.
func (x *metrics) collectAudits(ch chan<- prometheus.Metric, now time.Time) {
	counts, oldest := map[string]map[auditResult]int{}, map[string]time.Time{}
	for name := range x.m.image.Load().Configs(meta.ResourceClusterMirror) {
		counts[name] = map[auditResult]int{}
	}
	for _, p := range x.m.partitions(func(p *Partition) bool { return p.State() == mirrormsg.Mirroring }) {
		result, decided, _ := p.audit.snapshot()
		if counts[p.mirror] == nil {
			continue // just deleted
		}
		counts[p.mirror][result]++
		if old, ok := oldest[p.mirror]; !ok || decided.Before(old) {
			oldest[p.mirror] = decided
		}
	}
	for name, by := range counts {
		for r := auditPending; r <= auditUndecided; r++ {
			ch <- prometheus.MustNewConstMetric(x.audited, prometheus.GaugeValue, float64(by[r]), name, r.String())
		}
		if old, ok := oldest[name]; ok {
			ch <- prometheus.MustNewConstMetric(x.auditAge, prometheus.GaugeValue, now.Sub(old).Seconds(), name)
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

// syncFailed counts a failed run of a kind of periodic work.
func (x *metrics) syncFailed(mirror, kind string) {
	x.syncErrors.WithLabelValues(mirror, kind).Inc()
	x.beans.errors[kind].Inc()
}

// forget drops the counters of a mirror that is gone.
func (x *metrics) forget(mirror string) {
	for _, c := range append(x.counters(), x.beans.requests, x.beans.bytes) {
		c.DeletePartialMatch(prometheus.Labels{"mirror": mirror})
	}
}
