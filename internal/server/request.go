package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/wire"
)

// Handler serves one API. It is called on the connection's reader goroutine, in
// request order, and may block for short work; whatever waits (a fetch for
// bytes, a produce for acks, a join for its group) must return and reply later:
// the connection's other requests, and replies already made, wait for it.
// ctx ends when the connection does. Every request needs one
// [Request.Reply], also when the connection is gone.
type Handler func(ctx context.Context, r *Request)

// Table has the handlers of a listener. Requests for keys that are not in it
// close the connection.
type Table map[api.Key]Handler

// Request is one request of a client.
type Request struct {
	Key           api.Key
	Version       int16
	CorrelationID int32
	ClientID      string
	// Body is the message behind the header. It aliases the frame and is valid
	// until Reply.
	Body     []byte
	Conn     *Conn
	Row      api.Row   // what the API table says of Key
	Received time.Time // when the frame had been read

	// UnsupportedVersion: the version isn't served. It is set for ApiVersions,
	// whose Body then is not to be decoded, and for versions that are advertised
	// all the same (Produce 0 to 2), whose layout is known and which the handler
	// refuses. Such requests of other APIs close the connection and reach no
	// handler.
	UnsupportedVersion bool

	frame   *wire.Buf
	size    int64 // of the frame, as taken from the budget
	metrics *apiMetrics
	replied atomic.Bool

	// Times since Received; the first two are written by the reader.
	started  time.Duration // the handler was called
	returned atomic.Int64  // it returned; 0: not yet
	answered time.Duration // Reply was called; as all below, owned by who replies, then by the queue

	head   *wire.Buf // encoded front of the response, with its length
	pieces []fetchwire.Piece
	length int64 // of head and pieces
	resp   responseFlags

	done bool     // guarded by Conn.mu: the response is ready
	next *Request // guarded by Conn.mu: the request after this one
}

// responseFlags is what remains of a Response once it has been encoded.
type responseFlags struct {
	noReply, closeConn bool
	onWritten          func()
	code               api.Code
}

// Response is the reply to a request. Exactly one of Msg and Pieces is set, or
// neither for NoReply.
type Response struct {
	// Msg is encoded at the request's version. It is not used after Reply returns.
	Msg kmsg.Response
	// Pieces is a ready body, without header. Their bytes must not alias the
	// request's frame. The spans are released when they have been sent, or when
	// it is known that they never will be.
	Pieces []fetchwire.Piece

	// NoReply: nothing is sent (acks=0).
	NoReply bool
	// CloseConn closes the connection when the reply has been sent.
	CloseConn bool
	// OnWritten, if set, is called once when the reply has been handed to the
	// kernel, or when the connection ended before; maybe from within Reply. It
	// must not block.
	OnWritten func()
	// Code is the error the request failed with, for metrics.
	Code api.Code
}

func (resp *Response) release() {
	for i := range resp.Pieces {
		resp.Pieces[i].Release()
	}
	if resp.OnWritten != nil {
		resp.OnWritten()
	}
}

// Reply answers the request. It is to be called exactly once, from any
// goroutine, and does not block on the network. The frame that Body aliases is
// given back.
func (r *Request) Reply(resp Response) {
	if !r.replied.CompareAndSwap(false, true) {
		r.Conn.srv.log.Error("a request was answered twice; the second answer is dropped",
			slog.String("request", r.Row.Name), slog.Int("version", int(r.Version)))
		resp.release()
		return
	}
	r.answered = time.Since(r.Received)
	if r.Conn.isClosed() {
		resp.release()
		r.resp.noReply = true
	} else {
		r.encode(&resp) // before the frame goes: the message may alias it
	}
	r.releaseFrame(true)
	r.Conn.finish(r)
}

// encode turns the response into bytes and pieces.
func (r *Request) encode(resp *Response) {
	r.resp = responseFlags{noReply: resp.NoReply, closeConn: resp.CloseConn, onWritten: resp.OnWritten, code: resp.Code}
	if resp.NoReply {
		r.pieces = resp.Pieces // to be released
		return
	}
	const firstRoom = 512
	r.head = r.Conn.srv.pool.Get(firstRoom)
	b := wire.AppendResponseHeader(r.head.B[:4], // the length comes last
		r.Key, r.CorrelationID, r.Row.IsFlexible(r.Version))
	if resp.Msg != nil {
		resp.Msg.SetVersion(r.Version)
		b = resp.Msg.AppendTo(b)
	}
	r.pieces = resp.Pieces
	r.length = int64(len(b))
	for i := range r.pieces {
		r.length += r.pieces[i].Len()
	}
	r.head.B = b
	if r.length-4 > math.MaxInt32 {
		r.Conn.srv.log.Error("a response is too large for a frame; the connection is closed",
			slog.String("request", r.Row.Name), slog.Int64("bytes", r.length))
		r.resp.noReply, r.resp.closeConn = true, true
		return
	}
	wire.AppendInt32(b[:0], int32(r.length-4))
}

// releaseFrame gives the frame's memory back. reuse is false if a goroutine may
// still read the bytes.
func (r *Request) releaseFrame(reuse bool) {
	if r.frame == nil {
		return
	}
	if reuse {
		r.frame.Release()
	}
	r.frame, r.Body = nil, nil
	r.Conn.srv.mem.release(r.size)
}

// drop gives up the reply, sent or not.
func (r *Request) drop() {
	r.head.Release()
	r.head = nil
	for i := range r.pieces {
		r.pieces[i].Release()
	}
	r.pieces = nil
	if f := r.resp.onWritten; f != nil {
		r.resp.onWritten = nil
		f()
	}
}

// Decode decodes the body into m, whose version it sets. Nothing in m aliases
// the frame, so m may be kept after Reply. The error is an *api.Error with
// INVALID_REQUEST.
func (r *Request) Decode(m kmsg.Request) error {
	return r.decode(m, bytes.Clone(r.Body), m.ReadFrom)
}

// DecodeAliased is Decode without copies: byte fields and strings in m alias
// the frame and are gone after Reply. It is for Produce and Fetch.
func (r *Request) DecodeAliased(m kmsg.Request) error {
	read := m.ReadFrom
	if u, ok := m.(kmsg.UnsafeReadFrom); ok {
		read = u.UnsafeReadFrom
	}
	return r.decode(m, r.Body, read)
}

func (r *Request) decode(m kmsg.Request, body []byte, read func([]byte) error) error {
	m.SetVersion(r.Version)
	if err := wire.CheckRequest(r.Key, r.Version, body); err != nil {
		return malformed(r, err)
	}
	if err := read(body); err != nil {
		return malformed(r, err)
	}
	return nil
}

// malformed makes the error of a body that makes no sense, and counts it beside frames and headers that don't: handlers
// mostly close the connection then.
func malformed(r *Request, err error) error {
	if r.Conn != nil {
		r.Conn.noteMalformed(fmt.Errorf("%s version %d: %w", r.Row.Name, r.Version, err))
	}
	return &api.Error{
		Code:    api.InvalidRequest,
		Message: fmt.Sprintf("malformed %s request of version %d: %v", r.Row.Name, r.Version, err),
		Err:     err,
	}
}

// CountError adds n to the API's count of errors with the code, beside the one
// that Response.Code counts: for requests that fail in parts.
func (r *Request) CountError(code api.Code, n int) {
	if n > 0 {
		r.metrics.code(code).Add(float64(n))
	}
}
