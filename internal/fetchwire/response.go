package fetchwire

import (
	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/record"
)

// Piece is a part of a response body: bytes in memory if Bytes is not nil, else
// a span of record bytes.
type Piece struct {
	Bytes []byte
	Span  record.Span
}

// Len returns the piece's length in bytes.
func (p Piece) Len() int64 {
	if p.Bytes != nil {
		return int64(len(p.Bytes))
	}
	return p.Span.Len()
}

// Release gives up the span, if it is one.
func (p Piece) Release() {
	if p.Bytes == nil {
		p.Span.Release()
	}
}

// Response is a Fetch response.
type Response struct {
	ThrottleMillis int32
	ErrorCode      api.Code // v7+, concerns the session
	SessionID      int32    // v7+
	Topics         []ResponseTopic
	// Brokers says where new leaders are; v16+.
	Brokers []NodeEndpoint
}

// ResponseTopic has the partitions of one topic.
type ResponseTopic struct {
	Topic      string   // up to v12
	TopicID    ids.UUID // v13+
	Partitions []ResponsePartition
}

// ResponsePartition is what a Fetch response says of one partition. Make it
// with [NewResponsePartition].
type ResponsePartition struct {
	Partition            int32
	ErrorCode            api.Code
	HighWatermark        int64
	LastStableOffset     int64 // -1: unknown
	LogStartOffset       int64 // v5+; -1: unknown
	AbortedTransactions  []AbortedTransaction
	PreferredReadReplica int32 // v11+; -1: none

	DivergingEpoch *EpochEndOffset // v12+
	CurrentLeader  *LeaderAndEpoch // v12+
	SnapshotID     *EpochEndOffset // v12+

	// Records are the batches, in order; several spans where they come from
	// several segments. Decoding gives at most one, in memory.
	Records []record.Span
}

// NewResponsePartition returns a partition with Kafka's defaults.
func NewResponsePartition(partition int32) ResponsePartition {
	return ResponsePartition{
		Partition: partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
	}
}

// RecordsLen returns the length of the batches in bytes.
func (p *ResponsePartition) RecordsLen() (n int64) {
	for i := range p.Records {
		n += p.Records[i].Len()
	}
	return n
}

// AbortedTransaction is a transaction whose records a read-committed consumer
// drops.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// EpochEndOffset is an epoch with the offset behind its last record, or a
// snapshot's id.
type EpochEndOffset struct {
	Epoch     int32
	EndOffset int64
}

// LeaderAndEpoch names a partition's leader.
type LeaderAndEpoch struct {
	LeaderID    int32
	LeaderEpoch int32
}

// NodeEndpoint is where a broker can be reached.
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}
