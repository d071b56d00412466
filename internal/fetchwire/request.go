package fetchwire

import (
	"math"

	"milena/internal/ids"
)

// Request is a Fetch request as a client sends it. Make it with [NewRequest].
type Request struct {
	ReplicaID      int32 // -1 for a consumer
	ReplicaEpoch   int64 // v15+; -1 for a consumer
	MaxWaitMillis  int32
	MinBytes       int32
	MaxBytes       int32
	IsolationLevel int8  // 1: read committed
	SessionID      int32 // v7+
	SessionEpoch   int32 // v7+; -1: no session
	Topics         []RequestTopic
	Forgotten      []ForgottenTopic // v7+
	Rack           string           // v11+
	ClusterID      *string          // v12+
}

// NewRequest returns a consumer's request without a session.
func NewRequest() Request {
	return Request{ReplicaID: -1, ReplicaEpoch: -1, MaxBytes: math.MaxInt32, SessionEpoch: -1}
}

// RequestTopic has the partitions to fetch of one topic.
type RequestTopic struct {
	Topic      string   // up to v12
	TopicID    ids.UUID // v13+
	Partitions []RequestPartition
}

// RequestPartition is what to fetch of one partition. Make it with
// [NewRequestPartition].
type RequestPartition struct {
	Partition          int32
	CurrentLeaderEpoch int32 // v9+; -1: not checked
	FetchOffset        int64
	LastFetchedEpoch   int32 // v12+; -1: divergence is not checked
	LogStartOffset     int64 // v5+; -1 for a consumer
	MaxBytes           int32
	ReplicaDirectoryID ids.UUID // v17+
	HighWatermark      int64    // v18+; HighWatermarkUnsupported: not said
}

// HighWatermarkUnsupported in a request says that the replica does not report
// its high watermark.
const HighWatermarkUnsupported = math.MaxInt64

// NewRequestPartition returns a consumer's wish for a partition from offset on.
func NewRequestPartition(partition int32, offset int64, maxBytes int32) RequestPartition {
	return RequestPartition{
		Partition: partition, CurrentLeaderEpoch: -1, FetchOffset: offset, LastFetchedEpoch: -1,
		LogStartOffset: -1, MaxBytes: maxBytes, HighWatermark: HighWatermarkUnsupported,
	}
}

// ForgottenTopic has the partitions to drop from the session.
type ForgottenTopic struct {
	Topic      string   // up to v12
	TopicID    ids.UUID // v13+
	Partitions []int32
}
