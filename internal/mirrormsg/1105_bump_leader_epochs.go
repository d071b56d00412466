package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// BumpLeaderEpochsRequest is the request of API BumpLeaderEpochs, version 0 (KIP-1279).
type BumpLeaderEpochsRequest struct {
	// Topics: Topics whose partitions need a higher leader epoch.
	Topics []BumpLeaderEpochsTopic
}

func walkBumpLeaderEpochsRequest(c *wire.Codec, m *BumpLeaderEpochsRequest) {
	wire.Array(c, &m.Topics, walkBumpLeaderEpochsTopic)
	c.Tags()
}

// BumpLeaderEpochsTopic is one element of Topics.
type BumpLeaderEpochsTopic struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: Partitions to bump.
	Partitions []BumpLeaderEpochsPartition
}

func walkBumpLeaderEpochsTopic(c *wire.Codec, m *BumpLeaderEpochsTopic) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkBumpLeaderEpochsPartition)
	c.Tags()
}

// BumpLeaderEpochsPartition is one element of Partitions.
type BumpLeaderEpochsPartition struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// MinLeaderEpoch: A current epoch at or below this value becomes this value plus one; a higher one stays.
	MinLeaderEpoch int32
}

// NewBumpLeaderEpochsPartition returns a BumpLeaderEpochsPartition with the defaults that are not zero.
func NewBumpLeaderEpochsPartition() BumpLeaderEpochsPartition {
	return BumpLeaderEpochsPartition{MinLeaderEpoch: -1}
}

func walkBumpLeaderEpochsPartition(c *wire.Codec, m *BumpLeaderEpochsPartition) {
	if !c.Encoding() {
		*m = NewBumpLeaderEpochsPartition()
	}
	c.Int32(&m.PartitionIndex)
	c.Int32(&m.MinLeaderEpoch)
	c.Tags()
}

// BumpLeaderEpochsResponse is the response of API BumpLeaderEpochs, version 0 (KIP-1279).
type BumpLeaderEpochsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One entry per requested topic.
	Topics []BumpLeaderEpochsTopicResult
}

func walkBumpLeaderEpochsResponse(c *wire.Codec, m *BumpLeaderEpochsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkBumpLeaderEpochsTopicResult)
	c.Tags()
}

// BumpLeaderEpochsTopicResult is one element of Topics.
type BumpLeaderEpochsTopicResult struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: One entry per requested partition.
	Partitions []BumpLeaderEpochsPartitionResult
}

func walkBumpLeaderEpochsTopicResult(c *wire.Codec, m *BumpLeaderEpochsTopicResult) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkBumpLeaderEpochsPartitionResult)
	c.Tags()
}

// BumpLeaderEpochsPartitionResult is one element of Partitions.
type BumpLeaderEpochsPartitionResult struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// ErrorCode: Error of this partition, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this partition's error, or null.
	ErrorMessage *string
}

func walkBumpLeaderEpochsPartitionResult(c *wire.Codec, m *BumpLeaderEpochsPartitionResult) {
	c.Int32(&m.PartitionIndex)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*BumpLeaderEpochsRequest) Key() int16 { return int16(api.BumpLeaderEpochs) }

// MaxVersion is the newest version there is.
func (*BumpLeaderEpochsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*BumpLeaderEpochsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*BumpLeaderEpochsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*BumpLeaderEpochsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *BumpLeaderEpochsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkBumpLeaderEpochsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *BumpLeaderEpochsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkBumpLeaderEpochsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*BumpLeaderEpochsRequest) ResponseKind() kmsg.Response { return &BumpLeaderEpochsResponse{} }

// Key is the API key in Milena's own numbers.
func (*BumpLeaderEpochsResponse) Key() int16 { return int16(api.BumpLeaderEpochs) }

// MaxVersion is the newest version there is.
func (*BumpLeaderEpochsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*BumpLeaderEpochsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*BumpLeaderEpochsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*BumpLeaderEpochsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *BumpLeaderEpochsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkBumpLeaderEpochsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *BumpLeaderEpochsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkBumpLeaderEpochsResponse)
}

// RequestKind is an empty request of this API.
func (*BumpLeaderEpochsResponse) RequestKind() kmsg.Request { return &BumpLeaderEpochsRequest{} }
