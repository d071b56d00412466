package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// CheckMirrorSourceRequest is the request of API CheckMirrorSource, version 0: the receiver tries to reach a cluster as a mirror with the
// given configs would, and changes nothing. It is Milena's own, from its tools.
type CheckMirrorSourceRequest struct {
	// MirrorName: The mirror that has, or is to have, the configs.
	MirrorName string
	// Config: Its configs, mirror.source.cluster.id not needed.
	Config []CreateClusterMirrorConfig
	// TimeoutMs: How long the receiver may take, in milliseconds.
	TimeoutMs int32
}

func walkCheckMirrorSourceRequest(c *wire.Codec, m *CheckMirrorSourceRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Config, walkCreateClusterMirrorConfig)
	c.Int32(&m.TimeoutMs)
	c.Tags()
}

// CheckMirrorSourceResponse is the response of API CheckMirrorSource, version 0.
type CheckMirrorSourceResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Why the cluster is not reached, or the configs are wrong; 0 if it is.
	ErrorCode int16
	// ErrorMessage: Detail of the error, or null.
	ErrorMessage *string
	// ClusterID: The cluster that was reached.
	ClusterID string
	// Brokers: How many brokers it has; each was reached at the address that it gives to clients.
	Brokers int32
}

func walkCheckMirrorSourceResponse(c *wire.Codec, m *CheckMirrorSourceResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.String(&m.ClusterID)
	c.Int32(&m.Brokers)
	c.Tags()
}

// Key is the API key, in either set of numbers.
func (*CheckMirrorSourceRequest) Key() int16 { return int16(api.CheckMirrorSource) }

// MaxVersion is the newest version there is.
func (*CheckMirrorSourceRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*CheckMirrorSourceRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*CheckMirrorSourceRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*CheckMirrorSourceRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *CheckMirrorSourceRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkCheckMirrorSourceRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *CheckMirrorSourceRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkCheckMirrorSourceRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*CheckMirrorSourceRequest) ResponseKind() kmsg.Response { return &CheckMirrorSourceResponse{} }

// Key is the API key, in either set of numbers.
func (*CheckMirrorSourceResponse) Key() int16 { return int16(api.CheckMirrorSource) }

// MaxVersion is the newest version there is.
func (*CheckMirrorSourceResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*CheckMirrorSourceResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*CheckMirrorSourceResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*CheckMirrorSourceResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *CheckMirrorSourceResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkCheckMirrorSourceResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *CheckMirrorSourceResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkCheckMirrorSourceResponse)
}

// RequestKind is an empty request of this API.
func (*CheckMirrorSourceResponse) RequestKind() kmsg.Request { return &CheckMirrorSourceRequest{} }
