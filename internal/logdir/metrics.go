package logdir

import (
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/obs"
)

// collector reads sizes and offsets from the logs when it is scraped.
type collector struct {
	s                                       *Set
	size, segments, start, end              *prometheus.Desc
	offlineDirs, dirOffline, free, lowSpace *prometheus.Desc
	asideFiles, asideBytes                  *prometheus.Desc
}

func newCollector(s *Set) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	const topic, part, dir = obs.LabelTopic, obs.LabelPartition, obs.LabelDir
	return &collector{
		s:           s,
		size:        desc(obs.LogSize, "Bytes of a partition's log.", topic, part),
		segments:    desc(obs.LogSegments, "Segments of a partition's log.", topic, part),
		start:       desc(obs.LogStartOffset, "First offset of a partition's log.", topic, part),
		end:         desc(obs.LogEndOffset, "Offset after the last record of a partition's log.", topic, part),
		offlineDirs: desc(obs.OfflineLogDirectoryCount, "Log directories that failed."),
		dirOffline:  desc("kafka_log_logmanager_logdirectoryoffline", "1 if the log directory failed.", dir),
		free:        desc("milena_log_directory_free_bytes", "Bytes left in a log directory; absent if unknown.", dir),
		lowSpace:    desc("milena_log_directory_short_of_space", "1 if client and mirror writes are refused for lack of space.", dir),
		asideFiles:  desc("milena_log_directory_aside_files", "Files (.log.aside) with what recovery took out of logs behind damage, until they are removed.", dir),
		asideBytes:  desc("milena_log_directory_aside_bytes", "Bytes of those files.", dir),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.size, c.segments, c.start, c.end, c.offlineDirs, c.dirOffline, c.free, c.lowSpace, c.asideFiles, c.asideBytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	type aside struct {
		files int
		bytes int64
	}
	asides := map[string]aside{}
	for _, e := range c.s.list() {
		topic, part := e.log.Topic(), strconv.Itoa(int(e.log.Partition()))
		gauge(c.size, float64(e.log.Size()), topic, part)
		gauge(c.segments, float64(e.log.SegmentCount()), topic, part)
		gauge(c.start, float64(e.log.StartOffset()), topic, part)
		gauge(c.end, float64(e.log.EndOffset()), topic, part)
		if files, bytes := e.log.Aside(); files > 0 {
			a := asides[filepath.Dir(e.log.Dir())]
			asides[filepath.Dir(e.log.Dir())] = aside{a.files + files, a.bytes + bytes}
		}
	}
	offline := 0
	for _, d := range c.s.Dirs() {
		if !d.Online {
			offline++
		}
		gauge(c.dirOffline, bit(!d.Online), d.Path)
		if d.Online {
			a := asides[filepath.Clean(d.Path)]
			gauge(c.asideFiles, float64(a.files), d.Path)
			gauge(c.asideBytes, float64(a.bytes), d.Path)
		}
		if d.Online && d.Free >= 0 {
			gauge(c.free, float64(d.Free), d.Path)
			gauge(c.lowSpace, bit(d.Low), d.Path)
		}
	}
	gauge(c.offlineDirs, float64(offline))
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
