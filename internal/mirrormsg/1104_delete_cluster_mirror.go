package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// DeleteClusterMirrorRequest is the request of API DeleteClusterMirror, version 0 (KIP-1279).
type DeleteClusterMirrorRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// StateOffset: Metadata offset at which the forwarding broker validated the states; -1 skips the optimistic check.
	StateOffset int64
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

// NewDeleteClusterMirrorRequest returns a DeleteClusterMirrorRequest with the defaults that are not zero.
func NewDeleteClusterMirrorRequest() DeleteClusterMirrorRequest {
	return DeleteClusterMirrorRequest{StateOffset: -1}
}

func walkDeleteClusterMirrorRequest(c *wire.Codec, m *DeleteClusterMirrorRequest) {
	if !c.Encoding() {
		*m = NewDeleteClusterMirrorRequest()
	}
	c.String(&m.MirrorName)
	c.Int64(&m.StateOffset)
	c.Int32(&m.TimeoutMs)
	c.Tags()
}

// DeleteClusterMirrorResponse is the response of API DeleteClusterMirror, version 0 (KIP-1279).
type DeleteClusterMirrorResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
}

func walkDeleteClusterMirrorResponse(c *wire.Codec, m *DeleteClusterMirrorResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*DeleteClusterMirrorRequest) Key() int16 { return int16(api.DeleteClusterMirror) }

// MaxVersion is the newest version there is.
func (*DeleteClusterMirrorRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*DeleteClusterMirrorRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*DeleteClusterMirrorRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*DeleteClusterMirrorRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *DeleteClusterMirrorRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkDeleteClusterMirrorRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *DeleteClusterMirrorRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkDeleteClusterMirrorRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*DeleteClusterMirrorRequest) ResponseKind() kmsg.Response {
	return &DeleteClusterMirrorResponse{}
}

// Key is the API key in Milena's own numbers.
func (*DeleteClusterMirrorResponse) Key() int16 { return int16(api.DeleteClusterMirror) }

// MaxVersion is the newest version there is.
func (*DeleteClusterMirrorResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*DeleteClusterMirrorResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*DeleteClusterMirrorResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*DeleteClusterMirrorResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *DeleteClusterMirrorResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkDeleteClusterMirrorResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *DeleteClusterMirrorResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkDeleteClusterMirrorResponse)
}

// RequestKind is an empty request of this API.
func (*DeleteClusterMirrorResponse) RequestKind() kmsg.Request { return &DeleteClusterMirrorRequest{} }
