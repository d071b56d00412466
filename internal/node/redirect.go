package node

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/server"
)

// redirecting says whether clients are being sent away (milena.redirect.clients.until.ms).
func redirecting(c *config.Node) bool {
	return c.RedirectUntilMs != 0 && time.Now().UnixMilli() < c.RedirectUntilMs
}

// redirectable says whether a connection is a client's: brokers, mirrors and Milena's tools say of themselves what they are, and stay.
func redirectable(c *server.Conn) bool {
	name, _ := c.ClientSoftware()
	return name != api.SoftwareName
}

// redirectClients has the handlers of a broker's listeners send clients back to their bootstrap servers, while that is set. Metadata of
// version 13 says so (KIP-1102), and its connection is closed: a client that goes back by the same name looks it up again. All other
// requests close the connection unanswered, so that a client that knows no such answer finds none of its brokers and goes back too.
func (n *Node) redirectClients(table server.Table) {
	for key, next := range table {
		if key == api.ApiVersions {
			continue
		}
		table[key] = func(ctx context.Context, r *server.Request) {
			if !redirecting(n.live.Node()) || !redirectable(r.Conn) {
				next(ctx, r)
				return
			}
			if key != api.Metadata || r.Version < 13 {
				r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.RebootstrapRequired})
				return
			}
			resp := kmsg.NewPtrMetadataResponse()
			resp.ErrorCode, resp.ControllerID, resp.AuthorizedOperations = int16(api.RebootstrapRequired), -1, -1<<31
			resp.ClusterID = &n.clusterID
			r.Reply(server.Response{Msg: resp, CloseConn: true, Code: api.RebootstrapRequired})
		}
	}
}
