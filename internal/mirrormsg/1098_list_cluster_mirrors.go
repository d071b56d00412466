package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// ListClusterMirrorsRequest is the request of API ListClusterMirrors, version 0 (KIP-1279).
type ListClusterMirrorsRequest struct {
	// SourceClusterIDFilter: Only mirrors of these source clusters; empty means no filter.
	SourceClusterIDFilter []string
	// MirrorNameFilter: Only mirrors with these names; empty means no filter.
	MirrorNameFilter []string
	// DesiredMirrorStateFilter: Desired state names (upper case) that select the topics listed per mirror; empty means MIRRORING and PAUSED.
	DesiredMirrorStateFilter []string
}

func walkListClusterMirrorsRequest(c *wire.Codec, m *ListClusterMirrorsRequest) {
	c.Strings(&m.SourceClusterIDFilter)
	c.Strings(&m.MirrorNameFilter)
	c.Strings(&m.DesiredMirrorStateFilter)
	c.Tags()
}

// ListClusterMirrorsResponse is the response of API ListClusterMirrors, version 0 (KIP-1279).
type ListClusterMirrorsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Mirrors: The mirrors that pass the filters and that the caller may describe.
	Mirrors []ListedMirror
}

func walkListClusterMirrorsResponse(c *wire.Codec, m *ListClusterMirrorsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Mirrors, walkListedMirror)
	c.Tags()
}

// ListedMirror is one element of Mirrors.
type ListedMirror struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// SourceBootstrap: The mirror's bootstrap.servers; empty if unknown.
	SourceBootstrap string
	// SourceClusterID: The source's cluster ID; empty if unknown.
	SourceClusterID string
	// TopicCount: Number of active topics of the mirror.
	TopicCount int32
	// TopicNames: Topics selected by the state filter. Never sent as null here; a null from another build reads as empty.
	TopicNames []string
}

func walkListedMirror(c *wire.Codec, m *ListedMirror) {
	c.String(&m.MirrorName)
	c.String(&m.SourceBootstrap)
	c.String(&m.SourceClusterID)
	c.Int32(&m.TopicCount)
	wire.NullableArray(c, &m.TopicNames, (*wire.Codec).String)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*ListClusterMirrorsRequest) Key() int16 { return int16(api.ListClusterMirrors) }

// MaxVersion is the newest version there is.
func (*ListClusterMirrorsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ListClusterMirrorsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ListClusterMirrorsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ListClusterMirrorsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ListClusterMirrorsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkListClusterMirrorsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ListClusterMirrorsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkListClusterMirrorsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*ListClusterMirrorsRequest) ResponseKind() kmsg.Response { return &ListClusterMirrorsResponse{} }

// Key is the API key in Milena's own numbers.
func (*ListClusterMirrorsResponse) Key() int16 { return int16(api.ListClusterMirrors) }

// MaxVersion is the newest version there is.
func (*ListClusterMirrorsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ListClusterMirrorsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ListClusterMirrorsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ListClusterMirrorsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ListClusterMirrorsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkListClusterMirrorsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ListClusterMirrorsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkListClusterMirrorsResponse)
}

// RequestKind is an empty request of this API.
func (*ListClusterMirrorsResponse) RequestKind() kmsg.Request { return &ListClusterMirrorsRequest{} }
