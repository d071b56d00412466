package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// PauseMirrorTopicsRequest is the request of API PauseMirrorTopics, version 0 (KIP-1279).
type PauseMirrorTopicsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to pause.
	Topics []PauseMirrorTopic
	// StateOffset: Metadata offset at which the forwarding broker validated the states; -1 skips the optimistic check.
	StateOffset int64
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

// NewPauseMirrorTopicsRequest returns a PauseMirrorTopicsRequest with the defaults that are not zero.
func NewPauseMirrorTopicsRequest() PauseMirrorTopicsRequest {
	return PauseMirrorTopicsRequest{StateOffset: -1}
}

func walkPauseMirrorTopicsRequest(c *wire.Codec, m *PauseMirrorTopicsRequest) {
	if !c.Encoding() {
		*m = NewPauseMirrorTopicsRequest()
	}
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkPauseMirrorTopic)
	c.Int64(&m.StateOffset)
	c.Int32(&m.TimeoutMs)
	c.Tags()
}

// PauseMirrorTopic is one element of Topics.
type PauseMirrorTopic struct {
	// TopicName: The topic's name.
	TopicName string
}

func walkPauseMirrorTopic(c *wire.Codec, m *PauseMirrorTopic) {
	c.String(&m.TopicName)
	c.Tags()
}

// PauseMirrorTopicsResponse is the response of API PauseMirrorTopics, version 0 (KIP-1279).
type PauseMirrorTopicsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One result per requested topic.
	Topics []PauseMirrorTopicResult
}

func walkPauseMirrorTopicsResponse(c *wire.Codec, m *PauseMirrorTopicsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkPauseMirrorTopicResult)
	c.Tags()
}

// PauseMirrorTopicResult is one element of Topics.
type PauseMirrorTopicResult struct {
	// Name: The topic's name.
	Name string
	// ErrorCode: Error of this topic, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this topic's error, or null.
	ErrorMessage *string
}

func walkPauseMirrorTopicResult(c *wire.Codec, m *PauseMirrorTopicResult) {
	c.String(&m.Name)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*PauseMirrorTopicsRequest) Key() int16 { return int16(api.PauseMirrorTopics) }

// MaxVersion is the newest version there is.
func (*PauseMirrorTopicsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*PauseMirrorTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*PauseMirrorTopicsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*PauseMirrorTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *PauseMirrorTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkPauseMirrorTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *PauseMirrorTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkPauseMirrorTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*PauseMirrorTopicsRequest) ResponseKind() kmsg.Response { return &PauseMirrorTopicsResponse{} }

// Key is the API key in Milena's own numbers.
func (*PauseMirrorTopicsResponse) Key() int16 { return int16(api.PauseMirrorTopics) }

// MaxVersion is the newest version there is.
func (*PauseMirrorTopicsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*PauseMirrorTopicsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*PauseMirrorTopicsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*PauseMirrorTopicsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *PauseMirrorTopicsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkPauseMirrorTopicsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *PauseMirrorTopicsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkPauseMirrorTopicsResponse)
}

// RequestKind is an empty request of this API.
func (*PauseMirrorTopicsResponse) RequestKind() kmsg.Request { return &PauseMirrorTopicsRequest{} }
