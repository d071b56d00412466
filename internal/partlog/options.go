package partlog

import (
	"log/slog"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
)

// Compression is the value of compression.type.
type Compression int8

// Values of compression.type. CompressionProducer keeps the producer's codec.
const (
	CompressionProducer Compression = iota
	CompressionNone
	CompressionGzip
	CompressionSnappy
	CompressionLZ4
	CompressionZstd
)

// Config is what a topic's configuration decides for its logs. It is
// immutable; SetConfig replaces it as a whole. Start from DefaultConfig.
type Config struct {
	Delete, Compact bool // cleanup.policy
	Compression     Compression
	GzipLevel       int // compression.gzip.level, -1: the library's default
	LZ4Level        int
	ZstdLevel       int

	SegmentBytes  int64         // segment.bytes
	SegmentAge    time.Duration // segment.ms
	SegmentJitter time.Duration // segment.jitter.ms
	IndexBytes    int64         // segment.index.bytes
	IndexInterval int64         // index.interval.bytes

	Retention      time.Duration // retention.ms; negative: no limit
	RetentionBytes int64         // retention.bytes; negative: no limit

	FlushMessages int64         // flush.messages
	FlushInterval time.Duration // flush.ms; 0 or negative: never by time

	FileDeleteDelay   time.Duration // file.delete.delay.ms
	DeleteRetention   time.Duration // delete.retention.ms
	MinCleanableRatio float64       // min.cleanable.dirty.ratio
	MinCompactionLag  time.Duration
	MaxCompactionLag  time.Duration

	MaxMessageBytes int64 // max.message.bytes
	// MaxDecompressedBytes is max.decompressed.message.bytes; at most
	// record.DefaultLimit counts, 0 means that.
	MaxDecompressedBytes int64
	LogAppendTime        bool          // message.timestamp.type=LogAppendTime
	TimestampBeforeMax   time.Duration // message.timestamp.before.max.ms
	TimestampAfterMax    time.Duration // message.timestamp.after.max.ms

	ProducerIDExpiration time.Duration // producer.id.expiration.ms
}

// forever stands for Kafka's Long.MAX_VALUE milliseconds.
const forever = time.Duration(1<<63 - 1)

// DefaultConfig is Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		Delete:               true,
		GzipLevel:            -1,
		LZ4Level:             9,
		ZstdLevel:            3,
		SegmentBytes:         1 << 30,
		SegmentAge:           168 * time.Hour,
		IndexBytes:           10 << 20,
		IndexInterval:        4096,
		Retention:            168 * time.Hour,
		RetentionBytes:       -1,
		FlushMessages:        1<<63 - 1,
		FileDeleteDelay:      time.Minute,
		DeleteRetention:      24 * time.Hour,
		MinCleanableRatio:    0.5,
		MaxCompactionLag:     forever,
		MaxMessageBytes:      1<<20 + 12,
		TimestampBeforeMax:   forever,
		TimestampAfterMax:    time.Hour,
		ProducerIDExpiration: 24 * time.Hour,
	}
}

// Options open one log. FS, Dir, Topic and Logger are required.
type Options struct {
	FS        disk.FS
	Dir       string // the partition's directory, created if missing
	Topic     string
	Partition int32
	TopicID   ids.UUID // zero: not known; taken from partition.metadata
	Config    Config
	// RecoveryPoint is the checkpointed offset below which everything was
	// flushed (negative: the checkpoint is lost; 0: nothing was); LogStart the
	// checkpointed log start offset.
	RecoveryPoint, LogStart int64
	// CleanedTo is the checkpointed offset up to which the log was compacted.
	CleanedTo int64
	// Clean says that the last process shut down cleanly: no scan.
	Clean  bool
	Logger *slog.Logger
	// OnError is told of every I/O error on the log's files, once a call
	// that failed; it must not call into the Log. May be nil.
	OnError func(error)
	// FlushSoon asks for a Flush by the owner's loop, after a segment was
	// sealed; called with locks held, it must not call into the Log. May be nil.
	FlushSoon func(*Log)
	// Checkpoint makes the recovery points, log start offsets and cleaned points
	// durable, as RecoveryPoint, StartOffset and CleanedTo give them. It is called before a truncation
	// below the recovery point takes effect, with locks held. May be nil.
	Checkpoint func() error
	// Jitter returns a random number in [0, n) for segment.jitter.ms; nil: no jitter.
	Jitter func(n int64) int64
}

// Origin says who appends.
type Origin int8

// Origins. Client appends are checked in full; coordinator appends may hold
// control batches; replication and mirror appends (AppendAsIs) keep offsets
// and epochs.
const (
	OriginClient Origin = iota
	OriginCoordinator
	OriginReplication
	OriginMirror
)

// String names the origin for logs.
func (o Origin) String() string {
	switch o {
	case OriginClient:
		return "client"
	case OriginCoordinator:
		return "coordinator"
	case OriginReplication:
		return "replication"
	default:
		return "mirror"
	}
}
