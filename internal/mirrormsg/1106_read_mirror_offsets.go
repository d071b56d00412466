package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// ReadMirrorOffsetsRequest is the request of API ReadMirrorOffsets, version 0 (KIP-1279).
type ReadMirrorOffsetsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to read.
	Topics []ReadMirrorOffsetsTopic
}

func walkReadMirrorOffsetsRequest(c *wire.Codec, m *ReadMirrorOffsetsRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkReadMirrorOffsetsTopic)
	c.Tags()
}

// ReadMirrorOffsetsTopic is one element of Topics.
type ReadMirrorOffsetsTopic struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: Partition indexes the receiver leads.
	Partitions []int32
}

func walkReadMirrorOffsetsTopic(c *wire.Codec, m *ReadMirrorOffsetsTopic) {
	c.String(&m.TopicName)
	c.Int32s(&m.Partitions)
	c.Tags()
}

// ReadMirrorOffsetsResponse is the response of API ReadMirrorOffsets, version 0 (KIP-1279).
type ReadMirrorOffsetsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One entry per requested topic.
	Topics []ReadMirrorOffsetsTopicResult
	// Weaker: Extension: in what topics are weaker here than on the source, as topic: what; from the mirror's owner.
	Weaker []string
	// GroupsGone: Extension: groups that were deleted at the source and are kept here; from the mirror's owner.
	GroupsGone []string
	// Problems: Extension: why the last run of each kind of the mirror's periodic work failed, as kind: why; from the mirror's owner.
	Problems []string
}

func walkReadMirrorOffsetsResponse(c *wire.Codec, m *ReadMirrorOffsetsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkReadMirrorOffsetsTopicResult)
	c.Tags(wire.Tag(0, len(m.Weaker) > 0, func(c *wire.Codec) { c.Strings(&m.Weaker) }), wire.Tag(1, len(m.GroupsGone) > 0, func(c *wire.Codec) { c.Strings(&m.GroupsGone) }),
		wire.Tag(2, len(m.Problems) > 0, func(c *wire.Codec) { c.Strings(&m.Problems) }))
}

// ReadMirrorOffsetsTopicResult is one element of Topics.
type ReadMirrorOffsetsTopicResult struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: One entry per requested partition.
	Partitions []ReadMirrorOffsetsPartitionResult
}

func walkReadMirrorOffsetsTopicResult(c *wire.Codec, m *ReadMirrorOffsetsTopicResult) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkReadMirrorOffsetsPartitionResult)
	c.Tags()
}

// ReadMirrorOffsetsPartitionResult is one element of Partitions.
type ReadMirrorOffsetsPartitionResult struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// SourceOffset: Source high watermark as last seen; -1 if not led or not mirrored here.
	SourceOffset int64
	// DestinationOffset: Destination high watermark; -1 if not led or not mirrored here.
	DestinationOffset int64
	// SourceOffsetAgeMs: Milliseconds since SourceOffset was last seen; -1 if never.
	SourceOffsetAgeMs int64
	// ErrorMessage: Extension: last error that did not change the partition's state, or null.
	ErrorMessage *string
	// LastSourceOffset: Extension: the last SourceOffset there was, though the source is not being asked now; -1 if none.
	LastSourceOffset int64
	// LastSourceOffsetAgeMs: Extension: milliseconds since LastSourceOffset was seen; -1 if never.
	LastSourceOffsetAgeMs int64
}

// NewReadMirrorOffsetsPartitionResult returns a ReadMirrorOffsetsPartitionResult with the defaults that are not zero.
func NewReadMirrorOffsetsPartitionResult() ReadMirrorOffsetsPartitionResult {
	return ReadMirrorOffsetsPartitionResult{SourceOffset: -1, DestinationOffset: -1, SourceOffsetAgeMs: -1, LastSourceOffset: -1, LastSourceOffsetAgeMs: -1}
}

func walkReadMirrorOffsetsPartitionResult(c *wire.Codec, m *ReadMirrorOffsetsPartitionResult) {
	if !c.Encoding() {
		*m = NewReadMirrorOffsetsPartitionResult()
	}
	c.Int32(&m.PartitionIndex)
	c.Int64(&m.SourceOffset)
	c.Int64(&m.DestinationOffset)
	c.Tags(wire.Tag(0, m.SourceOffsetAgeMs != -1, func(c *wire.Codec) { c.Int64(&m.SourceOffsetAgeMs) }), wire.Tag(1, m.ErrorMessage != nil, func(c *wire.Codec) { c.NullableString(&m.ErrorMessage) }),
		wire.Tag(2, m.LastSourceOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastSourceOffset) }), wire.Tag(3, m.LastSourceOffsetAgeMs != -1, func(c *wire.Codec) { c.Int64(&m.LastSourceOffsetAgeMs) }))
}

// Key is the API key in Milena's own numbers.
func (*ReadMirrorOffsetsRequest) Key() int16 { return int16(api.ReadMirrorOffsets) }

// MaxVersion is the newest version there is.
func (*ReadMirrorOffsetsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ReadMirrorOffsetsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ReadMirrorOffsetsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ReadMirrorOffsetsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ReadMirrorOffsetsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkReadMirrorOffsetsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ReadMirrorOffsetsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkReadMirrorOffsetsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*ReadMirrorOffsetsRequest) ResponseKind() kmsg.Response { return &ReadMirrorOffsetsResponse{} }

// Key is the API key in Milena's own numbers.
func (*ReadMirrorOffsetsResponse) Key() int16 { return int16(api.ReadMirrorOffsets) }

// MaxVersion is the newest version there is.
func (*ReadMirrorOffsetsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ReadMirrorOffsetsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ReadMirrorOffsetsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ReadMirrorOffsetsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ReadMirrorOffsetsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkReadMirrorOffsetsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ReadMirrorOffsetsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkReadMirrorOffsetsResponse)
}

// RequestKind is an empty request of this API.
func (*ReadMirrorOffsetsResponse) RequestKind() kmsg.Request { return &ReadMirrorOffsetsRequest{} }
