package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// ResumeMirrorTopicsRequest is the request of API ResumeMirrorTopics, version 0 (KIP-1279).
type ResumeMirrorTopicsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to resume.
	Topics []ResumeMirrorTopic
	// StateOffset: Metadata offset at which the forwarding broker validated the states; -1 skips the optimistic check.
	StateOffset int64
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

// NewResumeMirrorTopicsRequest returns a ResumeMirrorTopicsRequest with the defaults that are not zero.
func NewResumeMirrorTopicsRequest() ResumeMirrorTopicsRequest {
	return ResumeMirrorTopicsRequest{StateOffset: -1}
}

func walkResumeMirrorTopicsRequest(c *wire.Codec, m *ResumeMirrorTopicsRequest) {
	if !c.Encoding() {
		*m = NewResumeMirrorTopicsRequest()
	}
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkResumeMirrorTopic)
	c.Int64(&m.StateOffset)
	c.Int32(&m.TimeoutMs)
	c.Tags()
}

// ResumeMirrorTopic is one element of Topics.
type ResumeMirrorTopic struct {
	// TopicName: The topic's name.
	TopicName string
}

func walkResumeMirrorTopic(c *wire.Codec, m *ResumeMirrorTopic) {
	c.String(&m.TopicName)
	c.Tags()
}

// ResumeMirrorTopicsResponse is the response of API ResumeMirrorTopics, version 0 (KIP-1279).
type ResumeMirrorTopicsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One result per requested topic.
	Topics []ResumeMirrorTopicResult
}

func walkResumeMirrorTopicsResponse(c *wire.Codec, m *ResumeMirrorTopicsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkResumeMirrorTopicResult)
	c.Tags()
}

// ResumeMirrorTopicResult is one element of Topics.
type ResumeMirrorTopicResult struct {
	// Name: The topic's name.
	Name string
	// ErrorCode: Error of this topic, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this topic's error, or null.
	ErrorMessage *string
}

func walkResumeMirrorTopicResult(c *wire.Codec, m *ResumeMirrorTopicResult) {
	c.String(&m.Name)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*ResumeMirrorTopicsRequest) Key() int16 { return int16(api.ResumeMirrorTopics) }

// MaxVersion is the newest version there is.
func (*ResumeMirrorTopicsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ResumeMirrorTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ResumeMirrorTopicsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ResumeMirrorTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ResumeMirrorTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkResumeMirrorTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ResumeMirrorTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkResumeMirrorTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*ResumeMirrorTopicsRequest) ResponseKind() kmsg.Response { return &ResumeMirrorTopicsResponse{} }

// Key is the API key in Milena's own numbers.
func (*ResumeMirrorTopicsResponse) Key() int16 { return int16(api.ResumeMirrorTopics) }

// MaxVersion is the newest version there is.
func (*ResumeMirrorTopicsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*ResumeMirrorTopicsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*ResumeMirrorTopicsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*ResumeMirrorTopicsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *ResumeMirrorTopicsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkResumeMirrorTopicsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *ResumeMirrorTopicsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkResumeMirrorTopicsResponse)
}

// RequestKind is an empty request of this API.
func (*ResumeMirrorTopicsResponse) RequestKind() kmsg.Request { return &ResumeMirrorTopicsRequest{} }
