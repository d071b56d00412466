package wire

import (
	"errors"
	"fmt"

	"milena/internal/api"
)

// ErrUnknownKey says that a request names an API that isn't served.
var ErrUnknownKey = errors.New("unknown api key")

// RequestHeader is the front of a request frame.
//
//	v0: key int16, version int16, correlation int32        (ControlledShutdown v0 only)
//	v1: v0 + client id nullable string with an int16 length
//	v2: v1 + tagged fields; the client id keeps its int16 length
type RequestHeader struct {
	Key           api.Key
	Version       int16
	CorrelationID int32
	ClientID      []byte // aliases the frame; nil for null
	Row           api.Row
}

// ParseRequestHeader splits a frame (without its length) into header and body.
// The key is translated by points. The error wraps ErrUnknownKey (the header's
// key, version and correlation id are set then), ErrShort or ErrMalformed. The
// version is not judged here: for ApiVersions any version gets a header, since
// a client that guesses too high must get an answer (KIP-511).
func ParseRequestHeader(frame []byte, points api.CodePoints) (h RequestHeader, body []byte, err error) {
	r := NewReader(frame)
	wireKey := r.Int16()
	h.Key = points.Key(wireKey)
	h.Version = r.Int16()
	h.CorrelationID = r.Int32()
	if r.Err() != nil {
		return h, nil, fmt.Errorf("request header: %w", r.Err())
	}
	if h.Key == api.ControlledShutdown && h.Version == 0 {
		return h, nil, fmt.Errorf("%w %d", ErrUnknownKey, wireKey)
	}
	row, ok := api.Lookup(h.Key)
	if !ok {
		return h, nil, fmt.Errorf("%w %d", ErrUnknownKey, wireKey)
	}
	h.Row = row
	if h.Key == api.ApiVersions && !row.Serves(h.Version) {
		// The layout of a future header can't be known; what can be read of the
		// client id is a courtesy.
		if n := r.Int16(); n >= 0 {
			h.ClientID = r.Next(int(n))
		}
		return h, r.Rest(), nil
	}
	if n := r.Int16(); n >= 0 {
		h.ClientID = r.Next(int(n))
	} else if n < -1 {
		return h, nil, fmt.Errorf("request header: %w: client id of length %d", ErrMalformed, n)
	}
	if row.IsFlexible(h.Version) {
		r.SkipTags()
	}
	if r.Err() != nil {
		return h, nil, fmt.Errorf("request header: %w", r.Err())
	}
	return h, r.Rest(), nil
}

// AppendRequestHeader appends a request header; key is the number on the wire,
// flexible says whether the request's version is.
func AppendRequestHeader(dst []byte, key, version int16, correlationID int32, clientID *string, flexible bool) []byte {
	dst = AppendInt16(dst, key)
	dst = AppendInt16(dst, version)
	dst = AppendInt32(dst, correlationID)
	if api.Key(key) == api.ControlledShutdown && version == 0 {
		return dst
	}
	dst = AppendNullableString(dst, clientID, false)
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// TaggedResponseHeader reports whether the response header is version 1, with
// tagged fields: that of every flexible version but of ApiVersions, whose
// response must be readable by a client that doesn't know its version.
func TaggedResponseHeader(key api.Key, flexible bool) bool {
	return flexible && key != api.ApiVersions
}

// AppendResponseHeader appends a response header; flexible says whether the
// request's version was.
func AppendResponseHeader(dst []byte, key api.Key, correlationID int32, flexible bool) []byte {
	dst = AppendInt32(dst, correlationID)
	if TaggedResponseHeader(key, flexible) {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponseHeader splits a response frame (without its length) into
// correlation id and body.
func ParseResponseHeader(frame []byte, key api.Key, flexible bool) (correlationID int32, body []byte, err error) {
	r := NewReader(frame)
	correlationID = r.Int32()
	if TaggedResponseHeader(key, flexible) {
		r.SkipTags()
	}
	if r.Err() != nil {
		return correlationID, nil, fmt.Errorf("response header: %w", r.Err())
	}
	return correlationID, r.Rest(), nil
}
