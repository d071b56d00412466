package transport

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/quorum"
	"milena/internal/wire"
)

// Request is a RaftMessages request, version 0: messages from one voter to another.
type Request struct {
	ClusterID string
	// Generation is the quorum's, NoGeneration of a node that knows no voters yet.
	Generation uint64
	From       quorum.Voter // with the endpoints to answer to
	To         quorum.Member
	// Messages are raft's, in the order they were sent. Decoded, they alias the input.
	Messages [][]byte
	// Observers are those that fetch from the sender, for a receiver that leads.
	Observers []quorum.Replica
}

// NoGeneration is that of a node which waits to be added: it takes the leader's.
const NoGeneration = ^uint64(0)

// Response is a RaftMessages response.
type Response struct {
	ErrorCode    int16
	ErrorMessage *string
}

// maxClaims bounds messages and observers of a request.
const maxClaims = 20_000

func walkRequest(c *wire.Codec, m *Request) {
	c.String(&m.ClusterID)
	generation := int64(m.Generation)
	c.Int64(&generation)
	m.Generation = uint64(generation)
	c.Int32(&m.From.ID)
	c.UUID(&m.From.Directory)
	wire.Array(c, &m.From.Endpoints, walkEndpoint)
	c.Int32(&m.To.ID)
	c.UUID(&m.To.Directory)
	wire.Array(c, &m.Messages, (*wire.Codec).Bytes)
	c.Tags(wire.Tag(0, len(m.Observers) > 0, func(c *wire.Codec) { walkObservers(c, &m.Observers) }))
	if !c.Encoding() && (len(m.Messages) > maxClaims || len(m.Observers) > maxClaims) {
		c.Fail(fmt.Errorf("%w: %d messages and %d observers", wire.ErrMalformed, len(m.Messages), len(m.Observers)))
	}
}

func walkEndpoint(c *wire.Codec, e *quorum.Endpoint) {
	c.String(&e.Name)
	c.String(&e.Host)
	c.Uint16(&e.Port)
	c.Tags()
}

// walkObservers writes times as ages in milliseconds, since clocks differ; -1 is unknown.
func walkObservers(c *wire.Codec, list *[]quorum.Replica) {
	now := time.Now()
	wire.Array(c, list, func(c *wire.Codec, r *quorum.Replica) {
		c.Int32(&r.ID)
		c.UUID(&r.Directory)
		c.Int64(&r.EndOffset)
		for _, t := range []*time.Time{&r.LastFetch, &r.LastCaughtUp} {
			age := int64(-1)
			if c.Encoding() && !t.IsZero() {
				age = max(now.Sub(*t).Milliseconds(), 0)
			}
			c.Int64(&age)
			if !c.Encoding() && age >= 0 {
				*t = now.Add(-time.Duration(min(age, maxAge)) * time.Millisecond)
			}
		}
		c.Tags()
	})
}

// maxAge bounds an age, in milliseconds: a year.
const maxAge = 365 * 24 * 3600 * 1000

func walkResponse(c *wire.Codec, m *Response) {
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	c.Tags()
}

func decode[T any](src []byte, m *T, walk func(*wire.Codec, *T)) error {
	c := wire.NewDecoder(src, 0, true)
	walk(c, m)
	if err := c.Err(); err != nil {
		return err
	}
	if n := len(c.Rest()); n > 0 {
		return fmt.Errorf("%w: %d bytes after the message", wire.ErrMalformed, n)
	}
	return nil
}

func encode[T any](dst []byte, m *T, walk func(*wire.Codec, *T)) []byte {
	c := wire.NewEncoder(dst, 0, true)
	walk(c, m)
	return c.Encoded()
}

// Key is the API key.
func (*Request) Key() int16 { return int16(api.RaftMessages) }

// MaxVersion is the newest version there is.
func (*Request) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*Request) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*Request) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*Request) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *Request) AppendTo(dst []byte) []byte { return encode(dst, m, walkRequest) }

// ReadFrom reads the message's body. Messages alias src.
func (m *Request) ReadFrom(src []byte) error { return decode(src, m, walkRequest) }

// ResponseKind is an empty response to read the answer into.
func (*Request) ResponseKind() kmsg.Response { return &Response{} }

// Key is the API key.
func (*Response) Key() int16 { return int16(api.RaftMessages) }

// MaxVersion is the newest version there is.
func (*Response) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*Response) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*Response) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*Response) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *Response) AppendTo(dst []byte) []byte { return encode(dst, m, walkResponse) }

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *Response) ReadFrom(src []byte) error { return decode(src, m, walkResponse) }

// RequestKind is an empty request of this API.
func (*Response) RequestKind() kmsg.Request { return &Request{} }
