package group

import "time"

// Config holds the settings of a coordinator. All of them may change while it
// runs.
type Config struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MaxSize               int           // group.max.size
	MetadataMaxBytes      int           // offset.metadata.max.bytes
	Retention             time.Duration // offsets.retention.minutes
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms
	CommitTimeout         time.Duration // offsets.commit.timeout.ms: how long a reply waits for the commit
	MaxBatchBytes         int           // max.message.bytes of __consumer_offsets
}

// DefaultConfig returns Apache Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		MinSessionTimeout:     6 * time.Second,
		MaxSessionTimeout:     30 * time.Minute,
		InitialRebalanceDelay: 3 * time.Second,
		MaxSize:               1<<31 - 1,
		MetadataMaxBytes:      4096,
		Retention:             7 * 24 * time.Hour,
		RetentionCheck:        10 * time.Minute,
		CommitTimeout:         5 * time.Second,
		MaxBatchBytes:         1<<20 + 12,
	}
}

// newMemberJoinTimeout is how long a member that has never had its id
// acknowledged may wait in a join: its client can't heartbeat, so nothing else
// would remove it if it had gone away.
const newMemberJoinTimeout = 5 * time.Minute

// recordSlack is what a batch adds around one record, generously.
const recordSlack = 256

// maxRecordBytes is the largest key and value that fit one batch.
func (c Config) maxRecordBytes() int { return c.MaxBatchBytes - recordSlack }
