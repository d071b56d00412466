package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// RecoverMirrorTopicsRequest is the request of API RecoverMirrorTopics, version 0 (KIP-1279).
type RecoverMirrorTopicsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics whose FAILED partitions resume from their previous state.
	Topics []RecoverMirrorTopic
}

func walkRecoverMirrorTopicsRequest(c *wire.Codec, m *RecoverMirrorTopicsRequest) {
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkRecoverMirrorTopic)
	c.Tags()
}

// RecoverMirrorTopic is one element of Topics.
type RecoverMirrorTopic struct {
	// TopicName: The topic's name.
	TopicName string
}

func walkRecoverMirrorTopic(c *wire.Codec, m *RecoverMirrorTopic) {
	c.String(&m.TopicName)
	c.Tags()
}

// RecoverMirrorTopicsResponse is the response of API RecoverMirrorTopics, version 0 (KIP-1279).
type RecoverMirrorTopicsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One result per requested topic.
	Topics []RecoverMirrorTopicResult
}

func walkRecoverMirrorTopicsResponse(c *wire.Codec, m *RecoverMirrorTopicsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkRecoverMirrorTopicResult)
	c.Tags()
}

// RecoverMirrorTopicResult is one element of Topics.
type RecoverMirrorTopicResult struct {
	// Name: The topic's name.
	Name string
	// ErrorCode: Error of this topic, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this topic's error, or null.
	ErrorMessage *string
}

func walkRecoverMirrorTopicResult(c *wire.Codec, m *RecoverMirrorTopicResult) {
	c.String(&m.Name)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*RecoverMirrorTopicsRequest) Key() int16 { return int16(api.RecoverMirrorTopics) }

// MaxVersion is the newest version there is.
func (*RecoverMirrorTopicsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*RecoverMirrorTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*RecoverMirrorTopicsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*RecoverMirrorTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *RecoverMirrorTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkRecoverMirrorTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *RecoverMirrorTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkRecoverMirrorTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*RecoverMirrorTopicsRequest) ResponseKind() kmsg.Response {
	return &RecoverMirrorTopicsResponse{}
}

// Key is the API key in Milena's own numbers.
func (*RecoverMirrorTopicsResponse) Key() int16 { return int16(api.RecoverMirrorTopics) }

// MaxVersion is the newest version there is.
func (*RecoverMirrorTopicsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*RecoverMirrorTopicsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*RecoverMirrorTopicsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*RecoverMirrorTopicsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *RecoverMirrorTopicsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkRecoverMirrorTopicsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *RecoverMirrorTopicsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkRecoverMirrorTopicsResponse)
}

// RequestKind is an empty request of this API.
func (*RecoverMirrorTopicsResponse) RequestKind() kmsg.Request { return &RecoverMirrorTopicsRequest{} }
