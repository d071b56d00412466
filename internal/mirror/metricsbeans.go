package mirror

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// fetcherClientID is the client id that the specification gives the fetchers as a whole.
const fetcherClientID = "MirrorReplica"

// beans are the metrics that the specification names (section 11), under what the JMX exporter's usual rules make of its MBeans.
type beans struct {
	errors map[string]prometheus.Counter // by kind of periodic work
	states map[mirrormsg.State]*prometheus.Desc
	topics *prometheus.Desc
	maxLag *prometheus.Desc
	failed *prometheus.Desc
	// requests and bytes are of each fetcher: clientid, brokerhost, brokerport, mirror.
	requests, bytes *prometheus.CounterVec
}

func newBeans() *beans {
	const manager, fetchers = "kafka_server_mirror_mirrormetadatamanager_", "kafka_server_mirror_mirrorfetchermanager_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: manager + name, Help: help})
	}
	client := prometheus.Labels{"clientid": fetcherClientID}
	b := &beans{
		errors: map[string]prometheus.Counter{
			"refresh": counter("topicmetadatarefresherror_total", "Failed refreshes of the metadata of source clusters."),
			"configs": counter("topicconfigsyncerror_total", "Failed syncs of topic configs."),
			"groups":  counter("consumergroupoffsetsyncerror_total", "Failed syncs of committed group offsets."),
		},
		states: map[mirrormsg.State]*prometheus.Desc{},
		topics: prometheus.NewDesc(manager+"mirrortopiccount", "Topics of a mirror that are to be mirrored.", []string{"mirrorname"}, nil),
		maxLag: prometheus.NewDesc(fetchers+"maxlag", "Largest lag in offsets of the mirror partitions led here; absent while none is known.", nil, client),
		failed: prometheus.NewDesc(fetchers+"failedpartitionscount", "Mirror partitions led here that are FAILED.", nil, client),
	}
	stats := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_server_mirror_fetcherstats_" + name, Help: help}, []string{"mirror", "clientid", "brokerhost", "brokerport"})
	}
	b.requests = stats("requests_total", "Fetches that the source answered a fetcher.")
	b.bytes = stats("bytes_total", "Bytes of batches in those answers.")
	for s := mirrormsg.LogTruncation; s <= mirrormsg.Failed; s++ {
		name := strings.ToLower(strings.ReplaceAll(s.String(), "_", "")) + "partitionstate"
		b.states[s] = prometheus.NewDesc(manager+name, "Mirror partitions led here that are in state "+s.String()+".", nil, nil)
	}
	return b
}

// answered counts an answer of the source to a fetcher.
func (b *beans) answered(f *fetcher, bytes int64) {
	host, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		host = f.addr
	}
	labels := []string{f.m.name, fmt.Sprintf("MirrorFetcherThread-%d-%s", f.shard, f.m.name), host, port}
	b.requests.WithLabelValues(labels...).Inc()
	b.bytes.WithLabelValues(labels...).Add(float64(bytes))
}

// Describe implements prometheus.Collector, as part of metrics.
func (b *beans) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range b.errors {
		c.Describe(ch)
	}
	for _, d := range b.states {
		ch <- d
	}
	b.requests.Describe(ch)
	b.bytes.Describe(ch)
	ch <- b.topics
	ch <- b.maxLag
	ch <- b.failed
}

// collect tells them of a Manager's mirrors.
func (b *beans) collect(m *Manager, now time.Time, ch chan<- prometheus.Metric) {
	for _, c := range b.errors {
		c.Collect(ch)
	}
	b.requests.Collect(ch)
	b.bytes.Collect(ch)
	counts := map[mirrormsg.State]int{}
	lag, known := int64(0), false
	for _, p := range m.partitions(func(*Partition) bool { return true }) {
		counts[p.State()]++
		if pr := p.Progress(now); pr.Known() {
			lag, known = max(lag, pr.SourceOffset-pr.DestinationOffset), true
		}
	}
	for s, d := range b.states {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(counts[s]))
	}
	ch <- prometheus.MustNewConstMetric(b.failed, prometheus.GaugeValue, float64(counts[mirrormsg.Failed]))
	if known {
		ch <- prometheus.MustNewConstMetric(b.maxLag, prometheus.GaugeValue, float64(lag))
	}
	img := m.image.Load()
	topics := map[string]int{}
	for t := range img.Topics() {
		if mirrormsg.State(t.MirrorDesired) == mirrormsg.Mirroring {
			topics[t.MirrorName]++
		}
	}
	for name := range img.Configs(meta.ResourceClusterMirror) {
		ch <- prometheus.MustNewConstMetric(b.topics, prometheus.GaugeValue, float64(topics[name]), name)
	}
}
