package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// reader reads typed values of broker keys out of layers, strongest first, and gathers faults. Values were checked before;
// one that doesn't parse all the same is passed over for the next layer.
type reader struct {
	layers []map[string]string
	errs   []error
	limits map[string]int // max.connections by listener
}

func (r *reader) fail(err error) { r.errs = append(r.errs, err) }

func (r *reader) isSet(key string) bool {
	return slices.ContainsFunc(r.layers, func(m map[string]string) bool { _, ok := m[key]; return ok })
}

// value is the strongest value of a key; ok is false if it has none and its default is null.
func (r *reader) value(key string) (v value, ok bool) {
	d := brokerTable().byName[key]
	for _, m := range r.layers {
		text, set := m[key]
		if !set {
			continue
		}
		if v, err := parse(key, text, d.Type); err == nil {
			return v, true
		}
	}
	if d.Null {
		return value{}, false
	}
	v, err := parse(key, d.Default, d.Type)
	return v, err == nil
}

func (r *reader) num(key string) int64 { v, _ := r.value(key); return v.i }
func (r *reader) int(key string) int   { return int(r.num(key)) }

func (r *reader) int32(key string) int32 { return int32(r.num(key)) }
func (r *reader) int16(key string) int16 { return int16(r.num(key)) }
func (r *reader) bool(key string) bool   { v, _ := r.value(key); return v.b }
func (r *reader) text(key string) string { v, _ := r.value(key); return v.s }
func (r *reader) list(key string) []string {
	v, _ := r.value(key)
	return v.list
}
func (r *reader) ms(key string) time.Duration { return Millis(r.num(key)) }

// Millis turns milliseconds into a duration: negative ones into -1, ones too many into the longest duration.
func Millis(ms int64) time.Duration { return times(ms, time.Millisecond) }

func times(n int64, unit time.Duration) time.Duration {
	switch {
	case n < 0:
		return -1
	case n > math.MaxInt64/int64(unit):
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}

// synonym is a broker key that stands for a topic key or another broker key, in a unit of milliseconds if that isn't 1.
type synonym struct {
	name string
	unit int64
}

// synonyms of topic keys: broker keys, strongest first.
var synonyms = map[string][]synonym{
	"cleanup.policy":                  {{"log.cleanup.policy", 1}},
	"compression.gzip.level":          {{"compression.gzip.level", 1}},
	"compression.lz4.level":           {{"compression.lz4.level", 1}},
	"compression.type":                {{"compression.type", 1}},
	"compression.zstd.level":          {{"compression.zstd.level", 1}},
	"delete.retention.ms":             {{"log.cleaner.delete.retention.ms", 1}},
	"file.delete.delay.ms":            {{"log.segment.delete.delay.ms", 1}},
	"flush.messages":                  {{"log.flush.interval.messages", 1}},
	"flush.ms":                        {{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}},
	"index.interval.bytes":            {{"log.index.interval.bytes", 1}},
	"local.retention.bytes":           {{"log.local.retention.bytes", 1}},
	"local.retention.ms":              {{"log.local.retention.ms", 1}},
	"max.compaction.lag.ms":           {{"log.cleaner.max.compaction.lag.ms", 1}},
	"max.decompressed.message.bytes":  {{"max.decompressed.message.bytes", 1}},
	"max.message.bytes":               {{"message.max.bytes", 1}},
	"message.timestamp.after.max.ms":  {{"log.message.timestamp.after.max.ms", 1}},
	"message.timestamp.before.max.ms": {{"log.message.timestamp.before.max.ms", 1}},
	"message.timestamp.type":          {{"log.message.timestamp.type", 1}},
	"min.cleanable.dirty.ratio":       {{"log.cleaner.min.cleanable.ratio", 1}},
	"min.compaction.lag.ms":           {{"log.cleaner.min.compaction.lag.ms", 1}},
	"min.insync.replicas":             {{"min.insync.replicas", 1}},
	"preallocate":                     {{"log.preallocate", 1}},
	"remote.copy.lag.bytes":           {{"log.remote.copy.lag.bytes", 1}},
	"remote.copy.lag.ms":              {{"log.remote.copy.lag.ms", 1}},
	"retention.bytes":                 {{"log.retention.bytes", 1}},
	"retention.ms":                    {{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	"segment.bytes":                   {{"log.segment.bytes", 1}},
	"segment.index.bytes":             {{"log.index.size.max.bytes", 1}},
	"segment.jitter.ms":               {{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}},
	"segment.ms":                      {{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}},
	"unclean.leader.election.enable":  {{"unclean.leader.election.enable", 1}},
}

// inUnit is v with its number times the unit of the synonym it came from.
func (s synonym) inUnit(v value) value {
	if s.unit != 1 && v.i > 0 {
		if v.i > math.MaxInt64/s.unit {
			v.i = math.MaxInt64
		} else {
			v.i *= s.unit
		}
	}
	return v
}

// family is the keys that stand for the same thing as a broker key, strongest first, as DescribeConfigs lists them.
func family(key string) []string {
	switch key {
	case "log.roll.ms", "log.roll.hours":
		return []string{"log.roll.ms", "log.roll.hours"}
	case "log.roll.jitter.ms", "log.roll.jitter.hours":
		return []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}
	case "log.flush.interval.ms":
		return []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}
	case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
		return []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
	}
	return []string{key}
}

// topicValue is the value of a topic key: its own, else that of its synonyms on this node, else the default.
func (r *reader) topicValue(own map[string]string, key string) value {
	d := topicTable().byName[key]
	if text, ok := own[key]; ok {
		if v, err := parse(key, text, d.Type); err == nil {
			return v
		}
	}
	for _, s := range synonyms[key] {
		if v, ok := r.value(s.name); ok {
			return s.inUnit(v)
		}
	}
	v, err := parse(key, d.Default, d.Type)
	if err != nil {
		return value{}
	}
	return v
}

// topic derives the settings of a topic with configs of its own.
func (r *reader) topic(own map[string]string) Topic {
	get := func(key string) value { return r.topicValue(own, key) }
	policy := get("cleanup.policy").list
	return Topic{
		Cleanup:                Cleanup{Delete: slices.Contains(policy, "delete"), Compact: slices.Contains(policy, "compact")},
		Compression:            compressionByName(get("compression.type").s),
		GzipLevel:              int(get("compression.gzip.level").i),
		LZ4Level:               int(get("compression.lz4.level").i),
		ZstdLevel:              int(get("compression.zstd.level").i),
		SegmentBytes:           get("segment.bytes").i,
		SegmentAge:             Millis(get("segment.ms").i),
		SegmentJitter:          Millis(get("segment.jitter.ms").i),
		IndexBytes:             get("segment.index.bytes").i,
		IndexInterval:          get("index.interval.bytes").i,
		Retention:              Millis(get("retention.ms").i),
		RetentionBytes:         get("retention.bytes").i,
		FlushMessages:          get("flush.messages").i,
		FlushInterval:          Millis(get("flush.ms").i),
		DeleteRetention:        Millis(get("delete.retention.ms").i),
		FileDeleteDelay:        Millis(get("file.delete.delay.ms").i),
		MinCleanableRatio:      get("min.cleanable.dirty.ratio").f,
		MinCompactionLag:       Millis(get("min.compaction.lag.ms").i),
		MaxCompactionLag:       Millis(get("max.compaction.lag.ms").i),
		MaxMessageBytes:        get("max.message.bytes").i,
		MaxDecompressedBytes:   get("max.decompressed.message.bytes").i,
		MinInsyncReplicas:      int(get("min.insync.replicas").i),
		UncleanLeaderElection:  get("unclean.leader.election.enable").b,
		TimestampType:          timestampType(get("message.timestamp.type").s),
		TimestampBeforeMax:     Millis(get("message.timestamp.before.max.ms").i),
		TimestampAfterMax:      Millis(get("message.timestamp.after.max.ms").i),
		LeaderThrottled:        throttledOf(get("leader.replication.throttled.replicas").list),
		FollowerThrottled:      throttledOf(get("follower.replication.throttled.replicas").list),
		MirrorThrottled:        throttledOf(get("mirror.replication.throttled.replicas").list),
		MirrorUncleanSupported: get("mirror.support.unclean.leader.election").b,
		WriteFence:             get("milena.write.fence").b,
	}
}

func throttledOf(list []string) ThrottledReplicas {
	t, err := parseThrottled(list)
	if err != nil {
		return ThrottledReplicas{} // was checked when it was stored
	}
	return t
}

func timestampType(s string) TimestampType {
	if s == "LogAppendTime" {
		return LogAppendTime
	}
	return CreateTime
}

func compressionByName(s string) Compression {
	switch s {
	case "uncompressed", "none":
		return CompressionNone
	case "gzip":
		return CompressionGzip
	case "snappy":
		return CompressionSnappy
	case "lz4":
		return CompressionLZ4
	case "zstd":
		return CompressionZstd
	}
	return CompressionProducer
}

// DefaultTopic is the settings of a topic from defaults alone.
func DefaultTopic() Topic { return (&reader{}).topic(nil) }

// Topic derives the settings of a topic with the given configs of its own on this node.
func (n *Node) Topic(own map[string]string) Topic { return n.reader().topic(own) }

func (n *Node) reader() *reader {
	return &reader{layers: []map[string]string{n.broker, n.cluster, n.static}}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// WithDynamic is the node with dynamic broker configs applied: the cluster default's (resource name "") and its own. Stored
// values that don't pass, or that change nothing at run time, are left out and described, a sentence each.
func (n *Node) WithDynamic(cluster, broker map[string]string) (*Node, []string) {
	c := *n
	var notes []string
	c.cluster = passing(cluster, "", &notes)
	c.broker = passing(broker, fmt.Sprint(n.ID), &notes)
	c.dynamic(c.reader())
	return &c, notes
}

func passing(m map[string]string, name string, notes *[]string) map[string]string {
	out := map[string]string{}
	for _, k := range sortedKeys(m) {
		if err := Validate(ResourceBroker, name, k, m[k]); err != nil {
			*notes = append(*notes, fmt.Sprintf("dynamic config %s is left out: %s", k, message(err)))
			continue
		}
		out[k] = m[k]
	}
	return out
}
