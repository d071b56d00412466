package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// ReadMirrorStatesRequest is the request of API ReadMirrorStates, version 0 (KIP-1279).
type ReadMirrorStatesRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to read.
	Topics []ReadMirrorStatesTopic
}

func walkReadMirrorStatesRequest(c *wire.Codec, m *ReadMirrorStatesRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkReadMirrorStatesTopic)
	c.Tags()
}

// ReadMirrorStatesTopic is one element of Topics.
type ReadMirrorStatesTopic struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: Partitions to read.
	Partitions []ReadMirrorStatesPartition
}

func walkReadMirrorStatesTopic(c *wire.Codec, m *ReadMirrorStatesTopic) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkReadMirrorStatesPartition)
	c.Tags()
}

// ReadMirrorStatesPartition is one element of Partitions.
type ReadMirrorStatesPartition struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// LeaderEpoch: Leader epoch of a reader that leads the partition, raises the coordinator's fence; -1 for any other reader.
	LeaderEpoch int32
}

// NewReadMirrorStatesPartition returns a ReadMirrorStatesPartition with the defaults that are not zero.
func NewReadMirrorStatesPartition() ReadMirrorStatesPartition {
	return ReadMirrorStatesPartition{LeaderEpoch: -1}
}

func walkReadMirrorStatesPartition(c *wire.Codec, m *ReadMirrorStatesPartition) {
	if !c.Encoding() {
		*m = NewReadMirrorStatesPartition()
	}
	c.Int32(&m.PartitionIndex)
	c.Tags(wire.Tag(0, m.LeaderEpoch != -1, func(c *wire.Codec) { c.Int32(&m.LeaderEpoch) }))
}

// ReadMirrorStatesResponse is the response of API ReadMirrorStates, version 0 (KIP-1279).
type ReadMirrorStatesResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One entry per requested topic.
	Topics []ReadMirrorStatesTopicResult
}

func walkReadMirrorStatesResponse(c *wire.Codec, m *ReadMirrorStatesResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkReadMirrorStatesTopicResult)
	c.Tags()
}

// ReadMirrorStatesTopicResult is one element of Topics.
type ReadMirrorStatesTopicResult struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: One entry per requested partition.
	Partitions []ReadMirrorStatesPartitionResult
}

func walkReadMirrorStatesTopicResult(c *wire.Codec, m *ReadMirrorStatesTopicResult) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkReadMirrorStatesPartitionResult)
	c.Tags()
}

// ReadMirrorStatesPartitionResult is one element of Partitions.
type ReadMirrorStatesPartitionResult struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// State: Actual state's number.
	State int8
	// LeaderEpoch: Highest leader epoch the coordinator has seen; -1 if none.
	LeaderEpoch int32
	// StateEpoch: Current state epoch.
	StateEpoch int32
	// LastMirrorEpoch: Last mirror epoch; -1 if none.
	LastMirrorEpoch int32
	// LastMirrorOffset: Extension: log end offset recorded with the last mirror epoch; -1 if none.
	LastMirrorOffset int64
	// ErrorCode: Error of this partition's read, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the read error; with ErrorCode 0 the text of the FAILED state, or null.
	ErrorMessage *string
	// RetryAttempt: Automatic retries so far; -1 means not retryable.
	RetryAttempt int16
	// PreviousState: State before FAILED; -1 (UNKNOWN) if none.
	PreviousState int8
}

// NewReadMirrorStatesPartitionResult returns a ReadMirrorStatesPartitionResult with the defaults that are not zero.
func NewReadMirrorStatesPartitionResult() ReadMirrorStatesPartitionResult {
	return ReadMirrorStatesPartitionResult{LeaderEpoch: -1, LastMirrorEpoch: -1, LastMirrorOffset: -1, PreviousState: -1}
}

func walkReadMirrorStatesPartitionResult(c *wire.Codec, m *ReadMirrorStatesPartitionResult) {
	if !c.Encoding() {
		*m = NewReadMirrorStatesPartitionResult()
	}
	c.Int32(&m.PartitionIndex)
	c.Int8(&m.State)
	c.Int32(&m.LeaderEpoch)
	c.Int32(&m.StateEpoch)
	c.Int32(&m.LastMirrorEpoch)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Int16(&m.RetryAttempt)
	c.Int8(&m.PreviousState)
	c.Tags(wire.Tag(0, m.LastMirrorOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastMirrorOffset) }))
}

// Key is the API key in Milena's own numbers.
func (*ReadMirrorStatesRequest) Key() int16 { return int16(api.ReadMirrorStates) }

// MaxVersion is the newest version there is.
func (*ReadMirrorStatesRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ReadMirrorStatesRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ReadMirrorStatesRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ReadMirrorStatesRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ReadMirrorStatesRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkReadMirrorStatesRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ReadMirrorStatesRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkReadMirrorStatesRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*ReadMirrorStatesRequest) ResponseKind() kmsg.Response { return &ReadMirrorStatesResponse{} }

// Key is the API key in Milena's own numbers.
func (*ReadMirrorStatesResponse) Key() int16 { return int16(api.ReadMirrorStates) }

// MaxVersion is the newest version there is.
func (*ReadMirrorStatesResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ReadMirrorStatesResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ReadMirrorStatesResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ReadMirrorStatesResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ReadMirrorStatesResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkReadMirrorStatesResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ReadMirrorStatesResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkReadMirrorStatesResponse)
}

// RequestKind is an empty request of this API.
func (*ReadMirrorStatesResponse) RequestKind() kmsg.Request { return &ReadMirrorStatesRequest{} }
