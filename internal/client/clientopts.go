package client

import (
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DefaultBatchBytes is the most bytes of a batch unless max.request.size says otherwise: what a cluster takes by default
// (message.max.bytes is 1048588) with some room.
const DefaultBatchBytes = 1_000_012

// ProducerOpts are the kgo options for the producer properties of the set. Defaults are Kafka's.
func (c *Config) ProducerOpts() ([]kgo.Opt, error) {
	p := &props{m: c.props.m}
	var opts []kgo.Opt
	idempotent := p.boolean("enable.idempotence", true)
	switch acks := p.str("acks", "all"); acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts, idempotent = append(opts, kgo.RequiredAcks(kgo.LeaderAck())), false
	case "0":
		opts, idempotent = append(opts, kgo.RequiredAcks(kgo.NoAck())), false
	default:
		p.fail("acks", "%q is not one of all, -1, 0, 1", acks)
	}
	if !idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(int(p.integer("max.in.flight.requests.per.connection", 1, 1))))
	}
	codec, err := CompressionCodec(p.str("compression.type", "none"))
	if err != nil {
		p.fail("compression.type", "%v", err)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	p.integer("max.request.size", 1, 1)
	opts = append(opts, kgo.ProducerBatchMaxBytes(c.MaxRequestSize(DefaultBatchBytes)))
	opts = append(opts,
		kgo.ProducerLinger(p.millis("linger.ms", 5*time.Millisecond)),
		kgo.RecordDeliveryTimeout(c.DeliveryTimeout()))
	p.millis("delivery.timeout.ms", 0)
	return opts, p.err
}

// DeliveryTimeout is delivery.timeout.ms: how long a record may take to be acknowledged.
func (c *Config) DeliveryTimeout() time.Duration {
	p := &props{m: c.props.m}
	return p.millis("delivery.timeout.ms", 2*time.Minute)
}

// CompressionCodec maps Kafka's compression.type of a producer to a kgo codec.
func CompressionCodec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none", "":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("%q is not one of none, gzip, snappy, lz4, zstd", name)
}

// ConsumerOpts are the kgo options for the consumer properties of the set, group.id included if group is empty.
func (c *Config) ConsumerOpts(group string) ([]kgo.Opt, error) {
	p := &props{m: c.props.m}
	var opts []kgo.Opt
	if group == "" {
		group = p.str("group.id", "")
	}
	if p.oneOf("isolation.level", "read_uncommitted", "read_uncommitted", "read_committed") == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	switch v := p.str("auto.offset.reset", "latest"); v {
	case "latest":
		opts = append(opts, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	case "earliest":
		opts = append(opts, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	case "none":
		opts = append(opts, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	default:
		p.fail("auto.offset.reset", "%q is not one of earliest, latest, none", v)
	}
	opts = append(opts,
		kgo.FetchMaxWait(p.millis("fetch.max.wait.ms", 500*time.Millisecond)),
		kgo.FetchMinBytes(clampInt32(p.integer("fetch.min.bytes", 1, 0))),
		kgo.FetchMaxBytes(clampInt32(p.integer("fetch.max.bytes", 50<<20, 1))),
		kgo.FetchMaxPartitionBytes(clampInt32(p.integer("max.partition.fetch.bytes", 1<<20, 1))))
	if rack := p.str("client.rack", ""); rack != "" {
		opts = append(opts, kgo.Rack(rack))
	}
	if p.boolean("allow.auto.create.topics", true) {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	if group != "" {
		opts = append(opts, kgo.ConsumerGroup(group),
			kgo.SessionTimeout(p.millis("session.timeout.ms", 45*time.Second)),
			kgo.HeartbeatInterval(p.millis("heartbeat.interval.ms", 3*time.Second)),
			kgo.RebalanceTimeout(p.millis("max.poll.interval.ms", 5*time.Minute)))
		if id := p.str("group.instance.id", ""); id != "" {
			opts = append(opts, kgo.InstanceID(id))
		}
	}
	return opts, p.err
}

// Reset is auto.offset.reset: where a consumer starts that has no valid offset.
func (c *Config) Reset() string { return (&props{m: c.props.m}).str("auto.offset.reset", "latest") }

// Committed says whether a consumer reads only up to the last stable offset: isolation.level=read_committed.
func (c *Config) Committed() bool {
	return (&props{m: c.props.m}).str("isolation.level", "read_uncommitted") == "read_committed"
}

// MaxRequestSize is max.request.size, the most bytes of a batch that a producer sends.
func (c *Config) MaxRequestSize(def int32) int32 {
	return clampInt32((&props{m: c.props.m}).integer("max.request.size", int64(def), 1))
}

func clampInt32(n int64) int32 { return int32(min(n, math.MaxInt32)) }
