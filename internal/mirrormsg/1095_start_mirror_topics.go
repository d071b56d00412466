package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/wire"
)

// StartMirrorTopicsRequest is the request of API StartMirrorTopics, version 0 (KIP-1279).
type StartMirrorTopicsRequest struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// Topics: Topics to start now; may be empty when patterns are given.
	Topics []StartMirrorTopic
	// IncludePatterns: Regular expressions to add to the mirror's include list.
	IncludePatterns []string
	// ExcludePatterns: Regular expressions to add to the mirror's exclude list; exclusion wins.
	ExcludePatterns []string
	// StateOffset: Metadata offset at which the forwarding broker validated the states; -1 skips the optimistic check.
	StateOffset int64
	// TimeoutMs: How long the broker may take to collect states and finish, in milliseconds.
	TimeoutMs int32
}

// NewStartMirrorTopicsRequest returns a StartMirrorTopicsRequest with the defaults that are not zero.
func NewStartMirrorTopicsRequest() StartMirrorTopicsRequest {
	return StartMirrorTopicsRequest{StateOffset: -1}
}

func walkStartMirrorTopicsRequest(c *wire.Codec, m *StartMirrorTopicsRequest) {
	if !c.Encoding() {
		*m = NewStartMirrorTopicsRequest()
	}
	c.String(&m.MirrorName)
	wire.Array(c, &m.Topics, walkStartMirrorTopic)
	c.Int64(&m.StateOffset)
	c.Int32(&m.TimeoutMs)
	c.Tags(wire.Tag(0, len(m.IncludePatterns) > 0, func(c *wire.Codec) { c.Strings(&m.IncludePatterns) }), wire.Tag(1, len(m.ExcludePatterns) > 0, func(c *wire.Codec) { c.Strings(&m.ExcludePatterns) }))
}

// StartMirrorTopic is one element of Topics.
type StartMirrorTopic struct {
	// TopicID: Topic ID on the source; zero if unknown.
	TopicID ids.UUID
	// TopicName: The topic's name.
	TopicName string
	// NumPartitions: Partition count on the source; 0 if unknown.
	NumPartitions int32
}

func walkStartMirrorTopic(c *wire.Codec, m *StartMirrorTopic) {
	c.UUID(&m.TopicID)
	c.String(&m.TopicName)
	c.Int32(&m.NumPartitions)
	c.Tags()
}

// StartMirrorTopicsResponse is the response of API StartMirrorTopics, version 0 (KIP-1279).
type StartMirrorTopicsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the top-level error, or null.
	ErrorMessage *string
	// Topics: One result per requested topic.
	Topics []StartMirrorTopicResult
}

func walkStartMirrorTopicsResponse(c *wire.Codec, m *StartMirrorTopicsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Topics, walkStartMirrorTopicResult)
	c.Tags()
}

// StartMirrorTopicResult is one element of Topics.
type StartMirrorTopicResult struct {
	// Name: The topic's name.
	Name string
	// ErrorCode: Error of this topic, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of this topic's error, or null.
	ErrorMessage *string
}

func walkStartMirrorTopicResult(c *wire.Codec, m *StartMirrorTopicResult) {
	c.String(&m.Name)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

// Key is the API key in Milena's own numbers.
func (*StartMirrorTopicsRequest) Key() int16 { return int16(api.StartMirrorTopics) }

// MaxVersion is the newest version there is.
func (*StartMirrorTopicsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*StartMirrorTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*StartMirrorTopicsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*StartMirrorTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *StartMirrorTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkStartMirrorTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *StartMirrorTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkStartMirrorTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*StartMirrorTopicsRequest) ResponseKind() kmsg.Response { return &StartMirrorTopicsResponse{} }

// Key is the API key in Milena's own numbers.
func (*StartMirrorTopicsResponse) Key() int16 { return int16(api.StartMirrorTopics) }

// MaxVersion is the newest version there is.
func (*StartMirrorTopicsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*StartMirrorTopicsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*StartMirrorTopicsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*StartMirrorTopicsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *StartMirrorTopicsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkStartMirrorTopicsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *StartMirrorTopicsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkStartMirrorTopicsResponse)
}

// RequestKind is an empty request of this API.
func (*StartMirrorTopicsResponse) RequestKind() kmsg.Request { return &StartMirrorTopicsRequest{} }
