package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// WriteMirrorStatesRequest is the request of API WriteMirrorStates, version 0 (KIP-1279).
type WriteMirrorStatesRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to write.
	Topics []WriteMirrorStatesTopic
}

func walkWriteMirrorStatesRequest(c *wire.Codec, m *WriteMirrorStatesRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkWriteMirrorStatesTopic)
	c.Tags()
}

// WriteMirrorStatesTopic is one element of Topics.
type WriteMirrorStatesTopic struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: Partitions to write.
	Partitions []WriteMirrorStatesPartition
}

func walkWriteMirrorStatesTopic(c *wire.Codec, m *WriteMirrorStatesTopic) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkWriteMirrorStatesPartition)
	c.Tags()
}

// WriteMirrorStatesPartition is one element of Partitions.
type WriteMirrorStatesPartition struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// State: New state's number; -1 (UNKNOWN) changes no state and only stores the last mirror epoch.
	State int8
	// LeaderEpoch: Writer's leader epoch of the data partition; -1 skips the check.
	LeaderEpoch int32
	// StateEpoch: State epoch the writer holds current; -1 skips the check.
	StateEpoch int32
	// LastMirrorEpoch: Last mirror epoch to store; -1 for none.
	LastMirrorEpoch int32
	// LastMirrorOffset: Extension: last mirror offset to store; -1 for none.
	LastMirrorOffset int64
	// StopWishOffset: Extension: metadata offset of the STOPPED wish that the last mirror epoch is captured for; with it an epoch of -1 is stored too.
	StopWishOffset int64
	// ErrorMessage: Failure text when the new state is FAILED, or null.
	ErrorMessage *string
	// RetryAttempt: Explicit retry count, used by recovery and clearing; -1 lets the coordinator compute it.
	RetryAttempt int32
	// NonRetryable: With FAILED: no automatic retry.
	NonRetryable bool
}

// NewWriteMirrorStatesPartition returns a WriteMirrorStatesPartition with the defaults that are not zero.
func NewWriteMirrorStatesPartition() WriteMirrorStatesPartition {
	return WriteMirrorStatesPartition{LeaderEpoch: -1, StateEpoch: -1, LastMirrorEpoch: -1, LastMirrorOffset: -1, StopWishOffset: -1, RetryAttempt: -1}
}

func walkWriteMirrorStatesPartition(c *wire.Codec, m *WriteMirrorStatesPartition) {
	if !c.Encoding() {
		*m = NewWriteMirrorStatesPartition()
	}
	c.Int32(&m.PartitionIndex)
	c.Int8(&m.State)
	c.Int32(&m.LeaderEpoch)
	c.Int32(&m.StateEpoch)
	c.Int32(&m.LastMirrorEpoch)
	c.NullableString(&m.ErrorMessage)
	c.Int32(&m.RetryAttempt)
	c.Bool(&m.NonRetryable)
	c.Tags(wire.Tag(0, m.LastMirrorOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastMirrorOffset) }), wire.Tag(1, m.StopWishOffset != -1, func(c *wire.Codec) { c.Int64(&m.StopWishOffset) }))
}

// WriteMirrorStatesResponse is the response of API WriteMirrorStates, version 0 (KIP-1279).
type WriteMirrorStatesResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One entry per requested topic.
	Topics []WriteMirrorStatesTopicResult
}

func walkWriteMirrorStatesResponse(c *wire.Codec, m *WriteMirrorStatesResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkWriteMirrorStatesTopicResult)
	c.Tags()
}

// WriteMirrorStatesTopicResult is one element of Topics.
type WriteMirrorStatesTopicResult struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: One entry per requested partition.
	Partitions []WriteMirrorStatesPartitionResult
}

func walkWriteMirrorStatesTopicResult(c *wire.Codec, m *WriteMirrorStatesTopicResult) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkWriteMirrorStatesPartitionResult)
	c.Tags()
}

// WriteMirrorStatesPartitionResult is one element of Partitions.
type WriteMirrorStatesPartitionResult struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// StateEpoch: State epoch after the write; -1 if nothing was written.
	StateEpoch int32
	// LastMirrorEpoch: Extension: the last mirror epoch that is stored after the write; -1 if none.
	LastMirrorEpoch int32
	// LastMirrorOffset: Extension: the last mirror offset that is stored after the write; -1 if none.
	LastMirrorOffset int64
	// ErrorCode: Error of this partition, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this partition's error, or null.
	ErrorMessage *string
}

// NewWriteMirrorStatesPartitionResult returns a WriteMirrorStatesPartitionResult with the defaults that are not zero.
func NewWriteMirrorStatesPartitionResult() WriteMirrorStatesPartitionResult {
	return WriteMirrorStatesPartitionResult{StateEpoch: -1, LastMirrorEpoch: -1, LastMirrorOffset: -1}
}

func walkWriteMirrorStatesPartitionResult(c *wire.Codec, m *WriteMirrorStatesPartitionResult) {
	if !c.Encoding() {
		*m = NewWriteMirrorStatesPartitionResult()
	}
	c.Int32(&m.PartitionIndex)
	c.Int32(&m.StateEpoch)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags(wire.Tag(0, m.LastMirrorEpoch != -1, func(c *wire.Codec) { c.Int32(&m.LastMirrorEpoch) }), wire.Tag(1, m.LastMirrorOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastMirrorOffset) }))
}

// Key is the API key in Milena's own numbers.
func (*WriteMirrorStatesRequest) Key() int16 { return int16(api.WriteMirrorStates) }

// MaxVersion is the newest version there is.
func (*WriteMirrorStatesRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*WriteMirrorStatesRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*WriteMirrorStatesRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*WriteMirrorStatesRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *WriteMirrorStatesRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkWriteMirrorStatesRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *WriteMirrorStatesRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkWriteMirrorStatesRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*WriteMirrorStatesRequest) ResponseKind() kmsg.Response { return &WriteMirrorStatesResponse{} }

// Key is the API key in Milena's own numbers.
func (*WriteMirrorStatesResponse) Key() int16 { return int16(api.WriteMirrorStates) }

// MaxVersion is the newest version there is.
func (*WriteMirrorStatesResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*WriteMirrorStatesResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*WriteMirrorStatesResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*WriteMirrorStatesResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *WriteMirrorStatesResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkWriteMirrorStatesResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *WriteMirrorStatesResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkWriteMirrorStatesResponse)
}

// RequestKind is an empty request of this API.
func (*WriteMirrorStatesResponse) RequestKind() kmsg.Request { return &WriteMirrorStatesRequest{} }
