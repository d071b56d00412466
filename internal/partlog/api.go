package partlog

import (
	"errors"

	"milena/internal/record"
)

// Errors of reads and as-is appends. Those of Append and of offset lookups
// carry a Kafka code (*api.Error).
var (
	// ErrOffsetOutOfRange: the offset is below the log start or above the log end.
	ErrOffsetOutOfRange = errors.New("partlog: offset out of range")
	// ErrOffsetOrder: an as-is batch starts below the log end, or offsets go backwards inside it.
	ErrOffsetOrder = errors.New("partlog: offsets out of order")
	// ErrEpochOrder: an as-is batch has a lower leader epoch than the log's last batch.
	ErrEpochOrder = errors.New("partlog: leader epoch goes backwards")
	// ErrEpochAbove: an as-is batch has a leader epoch above AppendOptions.MaxEpoch.
	ErrEpochAbove = errors.New("partlog: leader epoch above the allowed")
	// ErrCorrupt: bytes that aren't a valid batch.
	ErrCorrupt = errors.New("partlog: corrupt batch")
	// ErrClosed: the log was closed, deleted, or its directory failed.
	ErrClosed = errors.New("partlog: log is closed")
	// ErrNewerFormat: a file was written by a newer release.
	ErrNewerFormat = errors.New("partlog: file of a newer format")
)

// AppendOptions say how to append.
type AppendOptions struct {
	Origin Origin
	// LeaderEpoch is stamped into the batches by Append.
	LeaderEpoch int32
	// MaxEpoch bounds the epochs of batches in AppendAsIs: a batch above
	// fails the call with ErrEpochAbove before anything is written. Negative: no bound.
	MaxEpoch int32
	// TxnVersion is the transaction version of the request, for markers and
	// transactional batches (KIP-890): at 2 a marker must raise the epoch.
	TxnVersion int16
}

// RecordError names a record of a refused batch.
type RecordError struct {
	BatchIndex int32 // index of the record in the batch
	Message    string
}

// InvalidRecords is the error inside a *api.Error (INVALID_RECORD or
// INVALID_TIMESTAMP) of a client append some of whose records are refused.
type InvalidRecords struct {
	Records []RecordError
	Kind    error // what package record found
}

// Unwrap returns Kind.
func (e *InvalidRecords) Unwrap() error { return e.Kind }

// Error implements error.
func (e *InvalidRecords) Error() string {
	if len(e.Records) == 0 {
		return "invalid record"
	}
	return e.Records[0].Message
}

// AppendInfo says what an append did. For a duplicate, offsets and time are
// those of the first append.
type AppendInfo struct {
	FirstOffset   int64 // -1: nothing appended
	LastOffset    int64
	LogAppendTime int64 // ms; -1 unless message.timestamp.type=LogAppendTime
	MaxTimestamp  int64
	LogStart      int64
	LastEpoch     int32
	Bytes         int64
	Records       int64 // by last offset deltas
	Duplicate     bool
}

// ReadInfo is what Read found. Every span must be released.
type ReadInfo struct {
	Spans []record.Span // in order; the last batch may be cut
	Bytes int
	// FirstOffset is the base offset of the first batch, -1 if Spans is empty.
	FirstOffset int64
	// FirstTooBig says that nothing was returned because the first batch doesn't fit.
	FirstTooBig bool
}

// Release releases all spans.
func (r *ReadInfo) Release() {
	for i := range r.Spans {
		r.Spans[i].Release()
	}
	r.Spans = nil
}

// AbortedTxn is an aborted transaction with data in the range asked for.
type AbortedTxn struct{ ProducerID, FirstOffset int64 }

// TimestampOffset is the answer of a lookup by time. Offset -1: none.
type TimestampOffset struct {
	Timestamp int64
	Offset    int64
	Epoch     int32
}

// ProducerState is what the log knows of one producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	CoordinatorEpoch int32
	LastSequence     int32
	LastTimestamp    int64
	TxnStart         int64 // first offset of the open transaction, -1: none
}

// EpochEntry is a line of the leader epoch cache.
type EpochEntry struct {
	Epoch int32
	Start int64
}

// SegmentInfo describes a segment.
type SegmentInfo struct {
	Base, Next   int64 // first possible and first following offset
	Size         int64
	MaxTimestamp int64
	Name         string // path of the .log file
}
