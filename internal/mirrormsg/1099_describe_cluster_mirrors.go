package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// DescribeClusterMirrorsRequest is the request of API DescribeClusterMirrors, version 0 (KIP-1279).
type DescribeClusterMirrorsRequest struct {
	// MirrorNames: Mirrors to describe; null means all.
	MirrorNames []string
	// TopicPartitions: Restricts the answer to these partitions; null means all of the chosen mirrors.
	TopicPartitions []DescribeMirrorTopicFilter
	// IncludeMirrorState: Fill state, error, retry attempt and last mirror epoch.
	IncludeMirrorState bool
	// IncludeMirrorLags: Fill source and destination offsets.
	IncludeMirrorLags bool
	// IncludeAuthorizedOperations: Fill the authorized operations bit field.
	IncludeAuthorizedOperations bool
	// ClusterID: The caller's own cluster ID; if set, only mirrors of that source answer, with their last mirror epochs.
	ClusterID *string
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

func walkDescribeClusterMirrorsRequest(c *wire.Codec, m *DescribeClusterMirrorsRequest) {
	wire.NullableArray(c, &m.MirrorNames, (*wire.Codec).String)
	wire.NullableArray(c, &m.TopicPartitions, walkDescribeMirrorTopicFilter)
	c.Bool(&m.IncludeMirrorState)
	c.Bool(&m.IncludeMirrorLags)
	c.Bool(&m.IncludeAuthorizedOperations)
	c.Int32(&m.TimeoutMs)
	c.Tags(wire.Tag(0, m.ClusterID != nil, func(c *wire.Codec) { c.NullableString(&m.ClusterID) }))
}

// DescribeMirrorTopicFilter is one element of TopicPartitions.
type DescribeMirrorTopicFilter struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: Partition indexes; empty or null means all of the topic.
	Partitions []int32
}

func walkDescribeMirrorTopicFilter(c *wire.Codec, m *DescribeMirrorTopicFilter) {
	c.String(&m.TopicName)
	wire.NullableArray(c, &m.Partitions, (*wire.Codec).Int32)
	c.Tags()
}

// DescribeClusterMirrorsResponse is the response of API DescribeClusterMirrors, version 0 (KIP-1279).
type DescribeClusterMirrorsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Mirrors: One entry per described mirror.
	Mirrors []DescribedMirror
}

func walkDescribeClusterMirrorsResponse(c *wire.Codec, m *DescribeClusterMirrorsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Mirrors, walkDescribedMirror)
	c.Tags()
}

// DescribedMirror is one element of Mirrors.
type DescribedMirror struct {
	// ErrorCode: Error of this mirror, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this mirror's error, or null.
	ErrorMessage *string
	// MirrorName: The mirror's name.
	MirrorName string
	// SourceBootstrap: The mirror's bootstrap.servers, or null.
	SourceBootstrap *string
	// SourceClusterID: The source's cluster ID, or null.
	SourceClusterID *string
	// AuthorizedOperations: Bit field of operations the caller may do; the default means not requested.
	AuthorizedOperations int32
	// Topics: The mirror's topics.
	Topics []DescribedMirrorTopic
	// Weaker: Extension: in what topics are weaker here than on the source, as topic: what; only if states were asked for.
	Weaker []string
	// GroupsGone: Extension: groups that were deleted at the source and are kept here; only if states were asked for.
	GroupsGone []string
	// Problems: Extension: why the last run of each kind of the mirror's periodic work failed, as kind: why; only if states were asked for.
	Problems []string
}

// NewDescribedMirror returns a DescribedMirror with the defaults that are not zero.
func NewDescribedMirror() DescribedMirror {
	return DescribedMirror{AuthorizedOperations: -2147483648}
}

func walkDescribedMirror(c *wire.Codec, m *DescribedMirror) {
	if !c.Encoding() {
		*m = NewDescribedMirror()
	}
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.String(&m.MirrorName)
	c.NullableString(&m.SourceBootstrap)
	c.NullableString(&m.SourceClusterID)
	c.Int32(&m.AuthorizedOperations)
	wire.Array(c, &m.Topics, walkDescribedMirrorTopic)
	c.Tags(wire.Tag(0, len(m.Weaker) > 0, func(c *wire.Codec) { c.Strings(&m.Weaker) }), wire.Tag(1, len(m.GroupsGone) > 0, func(c *wire.Codec) { c.Strings(&m.GroupsGone) }),
		wire.Tag(2, len(m.Problems) > 0, func(c *wire.Codec) { c.Strings(&m.Problems) }))
}

// DescribedMirrorTopic is one element of Topics.
type DescribedMirrorTopic struct {
	// TopicName: The topic's name.
	TopicName string
	// Partitions: The topic's partitions.
	Partitions []DescribedMirrorPartition
}

func walkDescribedMirrorTopic(c *wire.Codec, m *DescribedMirrorTopic) {
	c.String(&m.TopicName)
	wire.Array(c, &m.Partitions, walkDescribedMirrorPartition)
	c.Tags()
}

// DescribedMirrorPartition is one element of Partitions.
type DescribedMirrorPartition struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// StateValue: Actual state's name; UNKNOWN if there is none or it was not requested.
	StateValue string
	// ErrorMessage: Why the partition is FAILED, or null.
	ErrorMessage *string
	// RetryAttempt: Automatic retries so far; -1 means not retryable.
	RetryAttempt int16
	// SourceOffset: Source high watermark as last seen; -1 if unknown or not requested.
	SourceOffset int64
	// DestinationOffset: Destination high watermark; -1 if unknown or not requested.
	DestinationOffset int64
	// SourceOffsetAgeMs: Milliseconds since SourceOffset was last seen; -1 if never or not requested.
	SourceOffsetAgeMs int64
	// LastMirrorEpoch: This mirror's last mirror epoch, only when ClusterId was given; -1 if none. The caller takes the highest over the mirrors.
	LastMirrorEpoch int32
	// LastMirrorOffset: Extension: last mirror offset; -1 if none.
	LastMirrorOffset int64
	// LastSourceOffset: Extension: the last SourceOffset there was, though the source is not being asked now; -1 if none.
	LastSourceOffset int64
	// LastSourceOffsetAgeMs: Extension: milliseconds since LastSourceOffset was seen; -1 if never.
	LastSourceOffsetAgeMs int64
}

// NewDescribedMirrorPartition returns a DescribedMirrorPartition with the defaults that are not zero.
func NewDescribedMirrorPartition() DescribedMirrorPartition {
	return DescribedMirrorPartition{SourceOffset: -1, DestinationOffset: -1, SourceOffsetAgeMs: -1, LastMirrorEpoch: -1, LastMirrorOffset: -1, LastSourceOffset: -1, LastSourceOffsetAgeMs: -1}
}

func walkDescribedMirrorPartition(c *wire.Codec, m *DescribedMirrorPartition) {
	if !c.Encoding() {
		*m = NewDescribedMirrorPartition()
	}
	c.Int32(&m.PartitionIndex)
	c.String(&m.StateValue)
	c.NullableString(&m.ErrorMessage)
	c.Int16(&m.RetryAttempt)
	c.Int64(&m.SourceOffset)
	c.Int64(&m.DestinationOffset)
	c.Int32(&m.LastMirrorEpoch)
	c.Tags(wire.Tag(0, m.LastMirrorOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastMirrorOffset) }), wire.Tag(1, m.SourceOffsetAgeMs != -1, func(c *wire.Codec) { c.Int64(&m.SourceOffsetAgeMs) }),
		wire.Tag(2, m.LastSourceOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastSourceOffset) }), wire.Tag(3, m.LastSourceOffsetAgeMs != -1, func(c *wire.Codec) { c.Int64(&m.LastSourceOffsetAgeMs) }))
}

// Key is the API key in Milena's own numbers.
func (*DescribeClusterMirrorsRequest) Key() int16 { return int16(api.DescribeClusterMirrors) }

// MaxVersion is the newest version there is.
func (*DescribeClusterMirrorsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*DescribeClusterMirrorsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*DescribeClusterMirrorsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*DescribeClusterMirrorsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *DescribeClusterMirrorsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkDescribeClusterMirrorsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *DescribeClusterMirrorsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkDescribeClusterMirrorsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*DescribeClusterMirrorsRequest) ResponseKind() kmsg.Response {
	return &DescribeClusterMirrorsResponse{}
}

// Key is the API key in Milena's own numbers.
func (*DescribeClusterMirrorsResponse) Key() int16 { return int16(api.DescribeClusterMirrors) }

// MaxVersion is the newest version there is.
func (*DescribeClusterMirrorsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*DescribeClusterMirrorsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*DescribeClusterMirrorsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*DescribeClusterMirrorsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *DescribeClusterMirrorsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkDescribeClusterMirrorsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *DescribeClusterMirrorsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkDescribeClusterMirrorsResponse)
}

// RequestKind is an empty request of this API.
func (*DescribeClusterMirrorsResponse) RequestKind() kmsg.Request {
	return &DescribeClusterMirrorsRequest{}
}
