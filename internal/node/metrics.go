package node

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/coord/group"
	"milena/internal/meta"
	"milena/internal/obs"
	"milena/internal/quorum"
	"milena/internal/record"
	"milena/internal/replica"
)

// brokerRunning is Kafka's BrokerState of a broker that serves clients.
const brokerRunning = 3

// lagTimeout bounds what a scrape waits for the group coordinator.
const lagTimeout = 2 * time.Second

// overview is what no single part of the node owns: the cluster as the metadata has it, and the lag of groups, which needs
// the coordinator's offsets and the partitions' ends. All of it is worked out at a scrape.
type overview struct {
	image  func() *meta.Image
	views  func(context.Context) ([]group.View, error)
	part   func(topic string, partition int32) (*replica.Partition, error)
	broker bool
	quorum *quorum.Node // nil: this node is no controller
	self   int32
	now    func() time.Time
	oldest timestamps

	state, topics, partitions, offline, active, fenced, controller, feature, lag, lagSeconds *prometheus.Desc
}

// registerOverview adds the node-wide metrics; the metadata has been read by then.
func (n *Node) registerOverview(context.Context) error {
	return obs.Register(n.o.Registry, n.newOverview())
}

func (n *Node) newOverview() *overview {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	const controller = "kafka_controller_kafkacontroller_"
	o := &overview{
		image: n.image, self: n.o.Config.ID, now: time.Now, broker: n.o.Config.Broker, quorum: n.quorum,
		state:      desc("kafka_server_kafkaserver_brokerstate", "State of the broker: 3 while it serves clients, 1 before that."),
		topics:     desc(controller+"globaltopiccount", "Topics of the cluster."),
		partitions: desc(controller+"globalpartitioncount", "Partitions of the cluster."),
		offline:    desc(controller+"offlinepartitionscount", "Partitions of the cluster without a leader."),
		active:     desc(controller+"activebrokercount", "Brokers of the cluster that are alive."),
		fenced:     desc(controller+"fencedbrokercount", "Registered brokers of the cluster that are fenced."),
		controller: desc(controller+"activecontrollercount", "1 if this node is the active controller; absent where it is no controller."),
		feature:    desc("milena_feature_level", "Finalized level of a feature of the cluster.", "feature"),
		lag: desc("milena_group_lag_offsets", "High watermarks minus committed offsets, summed over a topic's partitions that the group has committed; "+
			"absent while one of them is unknown here.", obs.LabelGroup, obs.LabelTopic),
		lagSeconds: desc("milena_group_lag_seconds", "Age of the oldest batch that a group has not committed, by the batch's own timestamp, the largest over a topic's "+
			"partitions; 0 without lag; absent while unknown.", obs.LabelGroup, obs.LabelTopic),
	}
	if o.broker {
		o.views, o.part = n.groups.Views, n.replicas.Get
	}
	return o
}

// Describe implements prometheus.Collector.
func (o *overview) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{o.state, o.topics, o.partitions, o.offline, o.active, o.fenced, o.controller, o.feature, o.lag, o.lagSeconds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (o *overview) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	img := o.image()
	if o.quorum != nil {
		leads := 0.0
		if o.quorum.Status().IsLeader {
			leads = 1
		}
		gauge(o.controller, leads)
	}
	if o.broker {
		state := 1
		if img.Alive(o.self) {
			state = brokerRunning
		}
		gauge(o.state, float64(state))
	}
	if img.Offset < 0 {
		return // nothing is known of the cluster yet
	}
	active, fenced, offline := 0, 0, 0
	for b := range img.Brokers() {
		if b.Fenced {
			fenced++
		} else {
			active++
		}
	}
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			if p.Leader == meta.NoLeader {
				offline++
			}
		}
	}
	gauge(o.topics, float64(img.TopicCount()))
	gauge(o.partitions, float64(img.PartitionCount()))
	gauge(o.active, float64(active))
	gauge(o.fenced, float64(fenced))
	gauge(o.offline, float64(offline))
	for f, level := range img.Features() {
		gauge(o.feature, float64(level), f)
	}
	if o.broker {
		o.collectLag(gauge)
	}
}

// collectLag reports the lag of every group coordinated here, by topic.
func (o *overview) collectLag(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	views, err := o.views(ctx)
	if err != nil {
		return // unknown: absent
	}
	o.oldest.begin()
	defer o.oldest.end()
	for _, v := range views {
		for rest := v.Offsets; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Name == rest[0].Name {
				n++
			}
			if offsets, age, ok := o.topicLag(rest[:n]); ok {
				gauge(o.lag, float64(offsets), v.Group, rest[0].Name)
				if age >= 0 {
					gauge(o.lagSeconds, age.Seconds(), v.Group, rest[0].Name)
				}
			}
			rest = rest[n:]
		}
	}
}

// topicLag adds up the lag of committed offsets in partitions of one topic. age is -1 if it can't be told; ok is false if
// one of the partitions is not led here or has another topic id than the offset was committed for.
func (o *overview) topicLag(committed []group.OffsetView) (offsets int64, age time.Duration, ok bool) {
	now := o.now()
	for _, c := range committed {
		p, err := o.part(c.Name, c.Partition)
		if err != nil {
			return 0, 0, false
		}
		if _, _, self := p.Leader(); !self || !c.ID.IsZero() && c.ID != p.TopicID() {
			return 0, 0, false
		}
		hw := p.HighWatermark()
		if c.Offset >= hw {
			continue
		}
		offsets += hw - c.Offset
		ms, known := o.oldest.get(p, max(c.Offset, p.LogStartOffset()), hw)
		switch {
		case !known:
			age = -1
		case age >= 0:
			age = max(age, now.Sub(time.UnixMilli(ms)))
		}
	}
	return offsets, age, true
}

// timestamps remembers, from one scrape to the next, the timestamp of the batch at an offset, so that groups that stand
// still cost no reads.
type timestamps struct {
	mu       sync.Mutex
	old, now map[place]int64
}

type place struct {
	p      *replica.Partition
	offset int64
}

func (t *timestamps) begin() {
	t.mu.Lock()
	t.now = make(map[place]int64, len(t.old))
}

// end forgets what the scrape did not ask for.
func (t *timestamps) end() {
	t.old, t.now = t.now, nil
	t.mu.Unlock()
}

// get is called between begin and end.
func (t *timestamps) get(p *replica.Partition, offset, upTo int64) (ms int64, ok bool) {
	at := place{p, offset}
	if ms, ok = t.now[at]; ok {
		return ms, true
	}
	if ms, ok = t.old[at]; !ok {
		ms, ok = batchTime(p, offset, upTo)
	}
	if ok {
		t.now[at] = ms
	}
	return ms, ok
}

// batchTime is the time of the first record in the batch that holds the offset, or that follows it. Only the batch's header
// is read.
func batchTime(p *replica.Partition, offset, upTo int64) (ms int64, ok bool) {
	info, err := p.Log().Read(offset, 1, upTo, true)
	if err != nil {
		return 0, false
	}
	defer info.Release()
	if len(info.Spans) == 0 {
		return 0, false
	}
	var header [record.HeaderSize]byte
	if n, _ := info.Spans[0].ReadAt(header[:], 0); n < len(header) {
		return 0, false
	}
	b := record.Batch(header[:])
	ms = b.BaseTimestamp()
	if _, replaced := b.DeleteHorizon(); replaced || b.TimestampType() != record.CreateTime {
		ms = b.MaxTimestamp()
	}
	return ms, ms >= 0
}
