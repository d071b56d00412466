package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// JoinGroup (11), versions 0 to 9.
//
//	v1 rebalance timeout (KIP-62); before, the session timeout is meant
//	v4 a member without id gets one and must join again with it (KIP-394)
//	v5 instance ids (KIP-345)
//	v7 the protocol type comes back (KIP-559)
//	v8 a reason, for the log (KIP-800)
//	v9 a leader that finds the assignment valid may skip it (KIP-814)
//
// The reply waits until the group's members have joined.
func (h *Handlers) JoinGroup(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrJoinGroupRequest()
	if !h.decode(r, req) {
		return
	}
	if req.Version == 0 || req.RebalanceTimeoutMillis < 0 {
		req.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	}
	h.o.Groups.Join(client(r), req, func(resp *kmsg.JoinGroupResponse) {
		reply(r, resp, api.Code(resp.ErrorCode))
	})
}
