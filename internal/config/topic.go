package config

import "time"

// Cleanup is the value of cleanup.policy. Both may be set; neither is legal since Kafka 4.2 (keep everything).
type Cleanup struct{ Delete, Compact bool }

// Compression is the value of compression.type.
type Compression int8

// Compression types. CompressionProducer keeps what the producer chose.
const (
	CompressionProducer Compression = iota
	CompressionNone
	CompressionGzip
	CompressionSnappy
	CompressionLZ4
	CompressionZstd
)

// TimestampType is the value of message.timestamp.type.
type TimestampType int8

// Timestamp types, with the values of the attribute bit in a batch.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// Topic is what one topic's partitions need to know of its configuration. It is immutable; a change makes a new one.
// Sizes are bytes; a negative Retention, RetentionBytes means no limit. Durations that Kafka lets run to 2^63-1 ms are held
// at the longest time.Duration instead of overflowing.
type Topic struct {
	Cleanup        Cleanup
	Compression    Compression
	GzipLevel      int // -1 is the library's default
	LZ4Level       int
	ZstdLevel      int
	SegmentBytes   int64
	SegmentAge     time.Duration // segment.ms
	SegmentJitter  time.Duration // segment.jitter.ms
	IndexBytes     int64         // segment.index.bytes: size at which an index forces a roll
	IndexInterval  int64         // index.interval.bytes
	Preallocate    bool
	Retention      time.Duration // retention.ms, -1 ms is held as -1 (any negative value: none)
	RetentionBytes int64         // per partition
	FlushMessages  int64         // flush.messages
	FlushInterval  time.Duration // flush.ms

	DeleteRetention   time.Duration // delete.retention.ms: how long tombstones and markers stay after compaction
	FileDeleteDelay   time.Duration // file.delete.delay.ms
	MinCleanableRatio float64       // min.cleanable.dirty.ratio
	MinCompactionLag  time.Duration
	MaxCompactionLag  time.Duration

	MaxDecompressedBytes   int64 // most bytes one batch may decompress to
	MaxMessageBytes        int64 // largest batch a client may produce, as compressed, overhead included
	MinInsyncReplicas      int
	UncleanLeaderElection  bool
	TimestampType          TimestampType
	TimestampBeforeMax     time.Duration // message.timestamp.before.max.ms
	TimestampAfterMax      time.Duration // message.timestamp.after.max.ms
	LeaderThrottled        ThrottledReplicas
	FollowerThrottled      ThrottledReplicas
	MirrorThrottled        ThrottledReplicas // mirror.replication.throttled.replicas
	MirrorUncleanSupported bool              // mirror.support.unclean.leader.election
	WriteFence             bool              // milena.write.fence: clients can't write
}

// ThrottledReplicas says which replicas of a topic count against a replication quota: all, or partition to brokers.
type ThrottledReplicas struct {
	All   bool
	Pairs map[int32][]int32
}
