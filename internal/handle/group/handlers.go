// Package group answers the APIs of consumer groups and their committed offsets:
// one file for each, named by its number.
//
// A handler checks what the metadata says of topics, hands the request to the
// group coordinator, and replies from the coordinator's callback: a join or a
// sync may wait for other members for minutes. Requests are decoded without
// aliasing the frame, since the coordinator keeps parts of them.
package group

import (
	"log/slog"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/server"
)

// Options are what the handlers need. All are required.
type Options struct {
	Groups *group.Service
	// Image returns the broker's current metadata.
	Image  func() *meta.Image
	Logger *slog.Logger
}

// Handlers answer the group APIs.
type Handlers struct{ o Options }

// New returns the handlers.
func New(o Options) *Handlers { return &Handlers{o: o} }

// Register adds the handlers to t.
func (h *Handlers) Register(t server.Table) {
	t[api.OffsetCommit] = h.OffsetCommit
	t[api.OffsetFetch] = h.OffsetFetch
	t[api.JoinGroup] = h.JoinGroup
	t[api.Heartbeat] = h.Heartbeat
	t[api.LeaveGroup] = h.LeaveGroup
	t[api.SyncGroup] = h.SyncGroup
	t[api.DescribeGroups] = h.DescribeGroups
	t[api.ListGroups] = h.ListGroups
	t[api.DeleteGroups] = h.DeleteGroups
	t[api.OffsetDelete] = h.OffsetDelete
}

// decode reads the body into req and reports whether that worked. If not, the
// connection is closed: client and broker don't speak the same language.
func (h *Handlers) decode(r *server.Request, req kmsg.Request) bool {
	err := r.Decode(req)
	if err != nil {
		h.o.Logger.Warn("malformed request", "api", r.Key.String(), "version", r.Version, "client", r.ClientID, "error", err)
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
	}
	return err == nil
}

// reply answers with msg, counted under code.
func reply(r *server.Request, msg kmsg.Response, code api.Code) {
	r.Reply(server.Response{Msg: msg, Code: code})
}

// client says who sent the request.
func client(r *server.Request) group.Client {
	host := ""
	if addr := r.Conn.RemoteAddr(); addr != nil {
		host = addr.String()
		if ip, _, err := net.SplitHostPort(host); err == nil {
			host = ip
		}
	}
	return group.Client{ID: r.ClientID, Host: "/" + host}
}

// topic finds a topic as the request names it: by id if it has one.
func (h *Handlers) topic(name string, id ids.UUID, byID bool) (*meta.Topic, group.TopicRef, api.Code) {
	img := h.o.Image()
	if byID {
		if t := img.TopicByID(id); t != nil {
			return t, group.TopicRef{Name: t.Name, ID: t.ID}, api.NoError
		}
		return nil, group.TopicRef{ID: id}, api.UnknownTopicID
	}
	if t := img.TopicByName(name); t != nil {
		return t, group.TopicRef{Name: name, ID: t.ID}, api.NoError
	}
	return nil, group.TopicRef{Name: name}, api.UnknownTopicOrPartition
}

// tally counts the errors of a request that can fail in parts.
type tally map[api.Code]int

func (t tally) add(code api.Code) int16 {
	if code != api.NoError {
		t[code]++
	}
	return int16(code)
}

// count adds the errors to the API's metrics. It is called before the reply.
func (t tally) count(r *server.Request) {
	for code, n := range t {
		r.CountError(code, n)
	}
}
