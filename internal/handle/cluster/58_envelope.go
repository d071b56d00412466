package cluster

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/metafollow"
	"milena/internal/server"
	"milena/internal/wire"
)

// Envelope (58, KIP-590): a broker passes on a client's request. Inside are header and
// body as the client sent them; the response inside has its header too.

// The response has a tagged field of ours: the offset that the committed metadata log had
// reached when the request was done. The broker answers its client when it has seen that
// much, so that a client finds what it created.

func (c *Controller) envelope(ctx context.Context, r *server.Request) {
	req := kmsg.NewPtrEnvelopeRequest()
	if err := r.Decode(req); err != nil {
		resp := kmsg.NewPtrEnvelopeResponse()
		resp.ErrorCode, _ = codeAndMessage(err)
		r.Reply(server.Response{Msg: resp})
		return
	}
	go func() { r.Reply(server.Response{Msg: c.unwrap(ctx, req)}) }()
}

func (c *Controller) unwrap(ctx context.Context, env *kmsg.EnvelopeRequest) *kmsg.EnvelopeResponse {
	out := kmsg.NewPtrEnvelopeResponse()
	h, body, err := wire.ParseRequestHeader(env.RequestData, c.o.CodePoints)
	row, known := api.Lookup(h.Key)
	f := c.apis[h.Key]
	switch {
	case err != nil || !known || !row.Forward || f == nil:
		out.ErrorCode = int16(api.InvalidRequest)
		return out
	case !row.Serves(h.Version):
		out.ErrorCode = int16(api.UnsupportedVersion)
		return out
	case !c.o.Service.Active():
		out.ErrorCode = int16(api.NotController)
		return out
	}
	principal, err := parsePrincipal(env.RequestPrincipal)
	if err != nil {
		out.ErrorCode = int16(api.PrincipalDeserializationFailure)
		return out
	}
	msg := f(ctx, &ControllerRequest{Key: h.Key, Version: h.Version, Body: body, Principal: principal, Forwarded: true})
	switch {
	case msg == nil:
		out.ErrorCode = int16(api.InvalidRequest)
		return out
	case metafollow.NotController(msg): // the leadership ended meanwhile: the broker asks the next controller
		out.ErrorCode = int16(api.NotController)
		return out
	}
	msg.SetVersion(h.Version)
	out.ResponseData = wire.AppendResponseHeader(nil, h.Key, h.CorrelationID, row.IsFlexible(h.Version))
	out.ResponseData = msg.AppendTo(out.ResponseData)
	metafollow.SetMetadataOffset(&out.UnknownTags, c.o.Service.CommittedOffset())
	return out
}

// A principal in an envelope, as Kafka writes it:
//
//	version int16 (0) | type compact string | name compact string | token authenticated bool | tags

func appendPrincipal(dst []byte, principal string) []byte {
	kind, name, _ := strings.Cut(principal, ":")
	var tokened bool
	c := wire.NewEncoder(wire.AppendInt16(dst, 0), 0, true)
	walkPrincipal(c, &kind, &name, &tokened)
	return c.Encoded()
}

func parsePrincipal(b []byte) (string, error) {
	in := wire.NewReader(b)
	if v := in.Int16(); in.Err() == nil && v != 0 {
		return "", api.Errorf(api.PrincipalDeserializationFailure, "principal of version %d", v)
	}
	if err := in.Err(); err != nil {
		return "", err
	}
	var kind, name string
	var tokened bool
	c := wire.NewDecoder(in.Rest(), 0, true)
	walkPrincipal(c, &kind, &name, &tokened)
	return kind + ":" + name, c.Err()
}

func walkPrincipal(c *wire.Codec, kind, name *string, tokened *bool) {
	c.String(kind)
	c.String(name)
	c.Bool(tokened)
	c.Tags()
}
