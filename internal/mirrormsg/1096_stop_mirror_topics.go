package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// StopMirrorTopicsRequest is the request of API StopMirrorTopics, version 0 (KIP-1279).
type StopMirrorTopicsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to stop.
	Topics []StopMirrorTopic
	// Patterns: Patterns to remove from the include list and add to the exclude list.
	Patterns []string
	// StateOffset: Metadata offset at which the forwarding broker validated the states; -1 skips the optimistic check.
	StateOffset int64
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

// NewStopMirrorTopicsRequest returns a StopMirrorTopicsRequest with the defaults that are not zero.
func NewStopMirrorTopicsRequest() StopMirrorTopicsRequest {
	return StopMirrorTopicsRequest{StateOffset: -1}
}

func walkStopMirrorTopicsRequest(c *wire.Codec, m *StopMirrorTopicsRequest) {
	if !c.Encoding() {
		*m = NewStopMirrorTopicsRequest()
	}
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkStopMirrorTopic)
	c.Int64(&m.StateOffset)
	c.Int32(&m.TimeoutMs)
	c.Tags(wire.Tag(0, len(m.Patterns) > 0, func(c *wire.Codec) { c.Strings(&m.Patterns) }))
}

// StopMirrorTopic is one element of Topics.
type StopMirrorTopic struct {
	// TopicName: The topic's name.
	TopicName string
}

func walkStopMirrorTopic(c *wire.Codec, m *StopMirrorTopic) {
	c.String(&m.TopicName)
	c.Tags()
}

// StopMirrorTopicsResponse is the response of API StopMirrorTopics, version 0 (KIP-1279).
type StopMirrorTopicsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One result per requested topic.
	Topics []StopMirrorTopicResult
}

func walkStopMirrorTopicsResponse(c *wire.Codec, m *StopMirrorTopicsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkStopMirrorTopicResult)
	c.Tags()
}

// StopMirrorTopicResult is one element of Topics.
type StopMirrorTopicResult struct {
	// Name: The topic's name.
	Name string
	// ErrorCode: Error of this topic, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this topic's error, or null.
	ErrorMessage *string
}

func walkStopMirrorTopicResult(c *wire.Codec, m *StopMirrorTopicResult) {
	c.String(&m.Name)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*StopMirrorTopicsRequest) Key() int16 { return int16(api.StopMirrorTopics) }

// MaxVersion is the newest version there is.
func (*StopMirrorTopicsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*StopMirrorTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*StopMirrorTopicsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*StopMirrorTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *StopMirrorTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkStopMirrorTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *StopMirrorTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkStopMirrorTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*StopMirrorTopicsRequest) ResponseKind() kmsg.Response { return &StopMirrorTopicsResponse{} }

// Key is the API key in Milena's own numbers.
func (*StopMirrorTopicsResponse) Key() int16 { return int16(api.StopMirrorTopics) }

// MaxVersion is the newest version there is.
func (*StopMirrorTopicsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*StopMirrorTopicsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*StopMirrorTopicsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*StopMirrorTopicsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *StopMirrorTopicsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkStopMirrorTopicsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *StopMirrorTopicsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkStopMirrorTopicsResponse)
}

// RequestKind is an empty request of this API.
func (*StopMirrorTopicsResponse) RequestKind() kmsg.Request { return &StopMirrorTopicsRequest{} }
