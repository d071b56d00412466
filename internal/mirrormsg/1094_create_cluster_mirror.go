package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// CreateClusterMirrorRequest is the request of API CreateClusterMirror, version 0 (KIP-1279).
type CreateClusterMirrorRequest struct {
	// MirrorName: Name of the new mirror.
	MirrorName string
	// Config: Initial mirror-level configs.
	Config []CreateClusterMirrorConfig
}

func walkCreateClusterMirrorRequest(c *wire.Codec, m *CreateClusterMirrorRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Config, walkCreateClusterMirrorConfig)
	c.Tags()
}

// CreateClusterMirrorConfig is one element of Config.
type CreateClusterMirrorConfig struct {
	// Name: Config key.
	Name string
	// Value: Config value.
	Value *string
}

func walkCreateClusterMirrorConfig(c *wire.Codec, m *CreateClusterMirrorConfig) {
	c.String(&m.Name)
	c.NullableString(&m.Value)
	c.Tags()
}

// CreateClusterMirrorResponse is the response of API CreateClusterMirror, version 0 (KIP-1279).
type CreateClusterMirrorResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
}

func walkCreateClusterMirrorResponse(c *wire.Codec, m *CreateClusterMirrorResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*CreateClusterMirrorRequest) Key() int16 { return int16(api.CreateClusterMirror) }

// MaxVersion is the newest version there is.
func (*CreateClusterMirrorRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*CreateClusterMirrorRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*CreateClusterMirrorRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*CreateClusterMirrorRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *CreateClusterMirrorRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkCreateClusterMirrorRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *CreateClusterMirrorRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkCreateClusterMirrorRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*CreateClusterMirrorRequest) ResponseKind() kmsg.Response {
	return &CreateClusterMirrorResponse{}
}

// Key is the API key in Milena's own numbers.
func (*CreateClusterMirrorResponse) Key() int16 { return int16(api.CreateClusterMirror) }

// MaxVersion is the newest version there is.
func (*CreateClusterMirrorResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*CreateClusterMirrorResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*CreateClusterMirrorResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*CreateClusterMirrorResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *CreateClusterMirrorResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkCreateClusterMirrorResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *CreateClusterMirrorResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkCreateClusterMirrorResponse)
}

// RequestKind is an empty request of this API.
func (*CreateClusterMirrorResponse) RequestKind() kmsg.Request { return &CreateClusterMirrorRequest{} }
