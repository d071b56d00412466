package replica

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/obs"
	"milena/internal/partlog"
	"milena/internal/record"
)

// TopicMetrics are the counters of one topic, or of all. Kafka has them as
// BrokerTopicMetrics.
type TopicMetrics struct {
	MessagesIn       atomic.Int64
	BytesIn          atomic.Int64
	BytesOut         atomic.Int64
	BytesRejected    atomic.Int64
	ReplicationIn    atomic.Int64
	ReplicationOut   atomic.Int64
	ProduceRequests  atomic.Int64
	FetchRequests    atomic.Int64
	FailedProduce    atomic.Int64
	FailedFetch      atomic.Int64
	InvalidMagic     atomic.Int64
	InvalidCRC       atomic.Int64
	InvalidOffsetSeq atomic.Int64
	NoKeyCompacted   atomic.Int64
}

// counters are the fields of a TopicMetrics with their metrics.
func (t *TopicMetrics) counters() []struct {
	name, help string
	v          *atomic.Int64
} {
	return []struct {
		name, help string
		v          *atomic.Int64
	}{
		{obs.MessagesIn, "Records appended by producers.", &t.MessagesIn},
		{obs.BytesIn, "Bytes of batches appended by producers.", &t.BytesIn},
		{obs.BytesOut, "Bytes of batches given to consumers.", &t.BytesOut},
		{obs.BytesRejected, "Bytes of batches refused for their size.", &t.BytesRejected},
		{obs.ReplicationBytesIn, "Bytes of batches appended from another leader, a mirror's source included.", &t.ReplicationIn},
		{obs.ReplicationBytesOut, "Bytes of batches given to replicas.", &t.ReplicationOut},
		{obs.TotalProduceRequests, "Partitions in Produce requests.", &t.ProduceRequests},
		{obs.TotalFetchRequests, "Partitions answered in Fetch responses.", &t.FetchRequests},
		{obs.FailedProduce, "Partitions in Produce requests that failed.", &t.FailedProduce},
		{obs.FailedFetch, "Partitions in Fetch responses that failed.", &t.FailedFetch},
		{obs.InvalidMagic, "Batches refused for their format.", &t.InvalidMagic},
		{obs.InvalidCRC, "Batches refused for their checksum.", &t.InvalidCRC},
		{obs.InvalidSequence, "Batches refused for their sequence or producer epoch.", &t.InvalidOffsetSeq},
		{obs.NoKeyCompacted, "Records refused for having no key in a compacted topic.", &t.NoKeyCompacted},
	}
}

// Metrics are the manager's metrics. Topics' counters go into Total too.
type Metrics struct {
	Total TopicMetrics
	m     *Manager

	shrinks, expands, failedUpdates atomic.Int64 // of ISRs

	mu     sync.Mutex
	topics map[string]*TopicMetrics
}

func newMetrics(m *Manager, reg prometheus.Registerer) (*Metrics, error) {
	x := &Metrics{m: m, topics: map[string]*TopicMetrics{}}
	if reg == nil {
		return x, nil
	}
	return x, reg.Register(x)
}

func (x *Metrics) topic(name string) *TopicMetrics {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.topics[name]
	if t == nil {
		t = &TopicMetrics{}
		x.topics[name] = t
	}
	return t
}

func (x *Metrics) forget(name string) {
	x.mu.Lock()
	delete(x.topics, name)
	x.mu.Unlock()
}

// Count adds n to a counter of the partition's topic and to the total.
func (p *Partition) Count(of func(*TopicMetrics) *atomic.Int64, n int64) {
	of(p.topic.metrics).Add(n)
	of(&p.m.metrics.Total).Add(n)
}

// Metrics are the manager's metrics.
func (m *Manager) Metrics() *Metrics { return m.metrics }

// Describe implements prometheus.Collector. It describes nothing: Kafka has
// the total under the topics' name, without the topic label.
func (x *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (x *Metrics) Collect(ch chan<- prometheus.Metric) {
	x.mu.Lock()
	names := make([]string, 0, len(x.topics))
	for n := range x.topics {
		names = append(names, n)
	}
	slices.Sort(names)
	metrics := make([]*TopicMetrics, len(names))
	for i, n := range names {
		metrics[i] = x.topics[n]
	}
	x.mu.Unlock()
	emit := func(t *TopicMetrics, labels []string, values ...string) {
		for _, c := range t.counters() {
			d := prometheus.NewDesc(c.name, c.help, labels, nil)
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.v.Load()), values...)
		}
	}
	emit(&x.Total, nil)
	for i, n := range names {
		emit(metrics[i], []string{obs.LabelTopic}, n)
	}
	for _, c := range []struct {
		name, help string
		v          *atomic.Int64
	}{
		{obs.IsrShrinks, "Times that this broker asked for a smaller ISR.", &x.shrinks},
		{obs.IsrExpands, "Times that this broker asked for a larger ISR.", &x.expands},
		{obs.FailedIsrUpdates, "Changes of an ISR that the controller refused.", &x.failedUpdates},
	} {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.name, c.help, nil, nil), prometheus.CounterValue, float64(c.v.Load()))
	}
	x.collectPartitions(ch)
	x.collectSessions(ch)
}

func gauge(ch chan<- prometheus.Metric, name, help string, v float64) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
}

func (x *Metrics) collectSessions(ch chan<- prometheus.Metric) {
	n, parts, evicted := x.m.sessions.Stats()
	gauge(ch, obs.FetchSessions, "Incremental fetch sessions.", float64(n))
	gauge(ch, obs.FetchSessionsCached, "Partitions in incremental fetch sessions.", float64(parts))
	d := prometheus.NewDesc(obs.FetchSessionEvictions, "Incremental fetch sessions evicted.", nil, nil)
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(evicted))
}

func (x *Metrics) collectPartitions(ch chan<- prometheus.Metric) {
	var partitions, leaders, offline, under, underMin, atMin int
	x.m.Partitions(func(p *Partition) bool {
		s := p.st.Load()
		partitions++
		if s.gone != nil {
			offline++
			return true
		}
		if !s.self {
			return true
		}
		leaders++
		minISR := p.settings.Load().MinISR
		if len(s.isr) < len(s.replicas) {
			under++
		}
		switch need := min(minISR, max(1, len(s.replicas))); cmp.Compare(len(s.isr), need) {
		case -1:
			underMin++
		case 0:
			atMin++
		}
		return true
	})
	gauge(ch, obs.PartitionCount, "Local partitions.", float64(partitions))
	gauge(ch, obs.LeaderCount, "Partitions led by this broker.", float64(leaders))
	gauge(ch, obs.OfflineReplicaCount, "Local partitions whose log directory is offline.", float64(offline))
	gauge(ch, obs.UnderReplicated, "Led partitions with replicas out of sync.", float64(under))
	gauge(ch, obs.UnderMinISR, "Led partitions with fewer in-sync replicas than min.insync.replicas.", float64(underMin))
	gauge(ch, obs.AtMinISR, "Led partitions with exactly min.insync.replicas in-sync replicas.", float64(atMin))
}

// CountAppend counts a client's append.
func (p *Partition) CountAppend(info partlog.AppendInfo) {
	for _, t := range [2]*TopicMetrics{p.topic.metrics, &p.m.metrics.Total} {
		t.MessagesIn.Add(info.Records)
		t.BytesIn.Add(info.Bytes)
	}
}

// CountFailedProduce counts a produce to p that failed with err, whose code is c.
func (p *Partition) CountFailedProduce(c api.Code, err error) {
	var refused *partlog.InvalidRecords
	noKey := int64(0)
	if errors.Is(err, record.ErrNoKey) && errors.As(err, &refused) {
		noKey = int64(len(refused.Records))
	}
	for _, t := range [2]*TopicMetrics{p.topic.metrics, &p.m.metrics.Total} {
		t.FailedProduce.Add(1)
		t.NoKeyCompacted.Add(noKey)
		switch {
		case errors.Is(err, record.ErrMagic):
			t.InvalidMagic.Add(1)
		case c == api.CorruptMessage:
			t.InvalidCRC.Add(1)
		case c == api.OutOfOrderSequenceNumber, c == api.InvalidProducerEpoch:
			t.InvalidOffsetSeq.Add(1)
		}
	}
}

// countReplicated counts what was appended from another leader.
func (p *Partition) countReplicated(info partlog.AppendInfo) {
	p.topic.metrics.ReplicationIn.Add(info.Bytes)
	p.m.metrics.Total.ReplicationIn.Add(info.Bytes)
}

// CountRejected counts the size of a batch that was refused for it.
func (p *Partition) CountRejected(err error, bytes int) {
	if c, _ := api.CodeOf(err); c == api.MessageTooLarge || c == api.RecordListTooLarge {
		p.topic.metrics.BytesRejected.Add(int64(bytes))
		p.m.metrics.Total.BytesRejected.Add(int64(bytes))
	}
}

// CountFailedProduce counts a produce to a partition that isn't here.
func (m *Manager) CountFailedProduce() { m.metrics.Total.FailedProduce.Add(1) }

// CountProduce counts a produce to p.
func (p *Partition) CountProduce() {
	p.topic.metrics.ProduceRequests.Add(1)
	p.m.metrics.Total.ProduceRequests.Add(1)
}

// CountFetch counts a fetch's result for its partition.
func (m *Manager) CountFetch(r *PartResult, follower bool) {
	all := [2]*TopicMetrics{&m.metrics.Total, nil}
	if r.Part.p != nil {
		all[1] = r.Part.p.topic.metrics
	}
	for _, t := range all {
		switch {
		case t == nil:
		case r.Err != nil:
			t.FetchRequests.Add(1)
			t.FailedFetch.Add(1)
		case follower:
			t.FetchRequests.Add(1)
			t.ReplicationOut.Add(int64(r.Bytes))
		default:
			t.FetchRequests.Add(1)
			t.BytesOut.Add(int64(r.Bytes))
		}
	}
}
