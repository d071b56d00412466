package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// Heartbeat (12), versions 0 to 4.
//
//	v3 instance ids (KIP-345)
func (h *Handlers) Heartbeat(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrHeartbeatRequest()
	if !h.decode(r, req) {
		return
	}
	h.o.Groups.Heartbeat(req, func(code api.Code) {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = int16(code)
		reply(r, resp, code)
	})
}
