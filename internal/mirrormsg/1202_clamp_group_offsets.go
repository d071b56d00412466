package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/wire"
)

// ClampGroupOffsetsRequest is the request of API ClampGroupOffsets, version 0: a partition was cut, and the groups that the receiver
// coordinates must not have committed more of it (spec D8). It is Milena's own, between brokers.
type ClampGroupOffsetsRequest struct {
	// TopicName, TopicID, PartitionIndex: The partition.
	TopicName      string
	TopicID        ids.UUID
	PartitionIndex int32
	// EndOffset: Where it ends now.
	EndOffset int64
	// LeaderEpoch: The epoch of its last batch, -1 if there is none.
	LeaderEpoch int32
}

func walkClampGroupOffsetsRequest(c *wire.Codec, m *ClampGroupOffsetsRequest) {
	c.String(&m.TopicName)
	c.UUID(&m.TopicID)
	c.Int32(&m.PartitionIndex)
	c.Int64(&m.EndOffset)
	c.Int32(&m.LeaderEpoch)
	c.Tags()
}

// ClampGroupOffsetsResponse is the response of API ClampGroupOffsets, version 0.
type ClampGroupOffsetsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none. Then some groups may have been dealt with.
	ErrorCode int16
	// ErrorMessage: Detail of the error, or null.
	ErrorMessage *string
	// Groups: Those whose offset was above the end and is at the end now.
	Groups []string
}

func walkClampGroupOffsetsResponse(c *wire.Codec, m *ClampGroupOffsetsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Strings(&m.Groups)
	c.Tags()
}

// Key is the API key, in either set of numbers.
func (*ClampGroupOffsetsRequest) Key() int16 { return int16(api.ClampGroupOffsets) }

// MaxVersion is the newest version there is.
func (*ClampGroupOffsetsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ClampGroupOffsetsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ClampGroupOffsetsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ClampGroupOffsetsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ClampGroupOffsetsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkClampGroupOffsetsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ClampGroupOffsetsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkClampGroupOffsetsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*ClampGroupOffsetsRequest) ResponseKind() kmsg.Response { return &ClampGroupOffsetsResponse{} }

// Key is the API key, in either set of numbers.
func (*ClampGroupOffsetsResponse) Key() int16 { return int16(api.ClampGroupOffsets) }

// MaxVersion is the newest version there is.
func (*ClampGroupOffsetsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ClampGroupOffsetsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ClampGroupOffsetsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ClampGroupOffsetsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ClampGroupOffsetsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkClampGroupOffsetsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ClampGroupOffsetsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkClampGroupOffsetsResponse)
}

// RequestKind is an empty request of this API.
func (*ClampGroupOffsetsResponse) RequestKind() kmsg.Request { return &ClampGroupOffsetsRequest{} }
