package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/metafollow"
	"milena/internal/server"
	"milena/internal/wire"
)

// Forward passes a request on to the active controller in an Envelope (KIP-590), and
// answers when this broker's own metadata shows what the request did. While there is no
// controller it tries again, until the timeout; then the connection is closed, as a
// request of any API can be answered.
//
// It blocks: like Kafka's brokers, the connection reads no other request meanwhile, so a
// client's requests take effect in its order.
func (b *Broker) Forward(ctx context.Context, r *server.Request) {
	body, err := b.forward(ctx, b.envelopeFor(r))
	if err != nil {
		b.o.Logger.Warn("forwarding to the controller failed; the client's connection is closed",
			"request", r.Row.Name, "error", err)
		code, _ := api.CodeOf(err)
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: code})
		return
	}
	r.Reply(server.Response{Pieces: []fetchwire.Piece{{Bytes: body}}})
}

func (b *Broker) envelopeFor(r *server.Request) *envelope {
	data := wire.AppendRequestHeader(nil, b.o.CodePoints.WireKey(r.Key), r.Version, r.CorrelationID, &r.ClientID, r.Row.IsFlexible(r.Version))
	return &envelope{
		row: r.Row, version: r.Version, data: append(data, r.Body...),
		principal: r.Conn.Principal(), address: hostBytes(r.Conn.RemoteAddr()),
	}
}

// ForwardRequest is Forward for a request that was decoded and perhaps changed: it sends msg at r's version in the name of
// r's client and returns the controller's response.
func (b *Broker) ForwardRequest(ctx context.Context, r *server.Request, msg kmsg.Request) (kmsg.Response, error) {
	msg.SetVersion(r.Version)
	e := b.envelopeFor(r)
	e.data = msg.AppendTo(e.data[:len(e.data)-len(r.Body)])
	body, err := b.forward(ctx, e)
	if err != nil {
		return nil, err
	}
	resp := msg.ResponseKind()
	resp.SetVersion(r.Version)
	return resp, resp.ReadFrom(body)
}

// CallController sends a request of the broker's own to the controller in an Envelope and
// waits until this broker's metadata shows what it did.
func (b *Broker) CallController(ctx context.Context, req kmsg.Request, version int16) (kmsg.Response, error) {
	key := api.Key(req.Key())
	row, ok := api.Lookup(key)
	if !ok {
		return nil, fmt.Errorf("API %s isn't served", key)
	}
	req.SetVersion(version)
	clientID := fmt.Sprintf("broker-%d", b.o.NodeID)
	data := wire.AppendRequestHeader(nil, b.o.CodePoints.WireKey(key), version, 0, &clientID, row.IsFlexible(version))
	body, err := b.forward(ctx, &envelope{
		row: row, version: version, data: req.AppendTo(data),
		principal: "User:ANONYMOUS", address: net.IPv4(127, 0, 0, 1).To4(),
	})
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	return resp, resp.ReadFrom(body)
}

// envelope is a request on its way to the controller.
type envelope struct {
	row       api.Row
	version   int16
	data      []byte // header and body
	principal string
	address   []byte
}

// retryForward is the pause before a request is forwarded again.
const retryForward = 50 * time.Millisecond

// forward returns the response's body.
func (b *Broker) forward(ctx context.Context, e *envelope) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.ForwardTimeout)
	defer cancel()
	for {
		body, offset, err := b.forwardOnce(ctx, e)
		if err == nil {
			// Late metadata is no failure: the request was carried out.
			wait, stop := context.WithTimeout(ctx, maxMetadataLag)
			defer stop()
			if err := b.o.WaitOffset(wait, offset); err != nil {
				b.o.Logger.Warn("the broker's metadata is late", "offset", offset, "error", err)
			}
			return body, nil
		}
		if !errors.Is(err, errNoController) {
			return nil, err
		}
		select {
		case <-time.After(retryForward):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// maxMetadataLag is how long an answer is held back for this broker's own metadata.
const maxMetadataLag = 5 * time.Second

// errNoController says that the request wasn't answered, and is to be sent again.
var errNoController = errors.New("no active controller has answered")

func (b *Broker) forwardOnce(ctx context.Context, e *envelope) (body []byte, offset int64, err error) {
	req := kmsg.NewPtrEnvelopeRequest()
	req.RequestData = e.data
	req.RequestPrincipal = appendPrincipal(nil, e.principal)
	req.ClientHostAddress = e.address
	r, err := b.o.Controller.Call(ctx, req)
	if errors.Is(err, metafollow.ErrNotConnected) {
		return nil, 0, fmt.Errorf("%w: %w", errNoController, err)
	}
	if err != nil && ctx.Err() == nil {
		// Whether it was carried out isn't known. As in Kafka it is sent again: what is asked
		// for twice is refused or changes nothing.
		return nil, 0, fmt.Errorf("%w: %s: %w", errNoController, e.row.Name, err)
	}
	if err != nil { // time is up, whatever the connection says of it
		return nil, 0, fmt.Errorf("%s to the controller: %w: %w", e.row.Name, ctx.Err(), err)
	}
	resp, ok := r.(*kmsg.EnvelopeResponse)
	if !ok {
		return nil, 0, fmt.Errorf("the controller answered Envelope with %T", r)
	}
	switch code := api.Code(resp.ErrorCode); code {
	case api.NoError:
	case api.NotController:
		b.o.Controller.Reset()
		return nil, 0, errNoController
	default:
		return nil, 0, api.Errorf(code, "the controller refused the envelope of %s", e.row.Name)
	}
	_, body, err = wire.ParseResponseHeader(resp.ResponseData, e.row.Key, e.row.IsFlexible(e.version))
	if err != nil {
		return nil, 0, fmt.Errorf("%s response in the controller's envelope: %w", e.row.Name, err)
	}
	return body, metafollow.MetadataOffset(&resp.UnknownTags), nil
}

func hostBytes(a net.Addr) []byte {
	if t, ok := a.(*net.TCPAddr); ok {
		if v4 := t.IP.To4(); v4 != nil {
			return v4
		}
		return t.IP
	}
	return net.IPv4(127, 0, 0, 1).To4()
}
