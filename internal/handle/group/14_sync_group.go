package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// syncNamesProtocol is the version of SyncGroup from which the member must say
// for which protocol it syncs (KIP-559).
const syncNamesProtocol = 5

// SyncGroup (14), versions 0 to 5.
//
//	v3 instance ids (KIP-345)
//	v5 protocol type and name
//
// The reply waits until the leader has assigned and the assignment is stored.
func (h *Handlers) SyncGroup(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrSyncGroupRequest()
	if !h.decode(r, req) {
		return
	}
	if req.Version >= syncNamesProtocol && (req.ProtocolType == nil || req.Protocol == nil) {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.ErrorCode = int16(api.InconsistentGroupProtocol)
		reply(r, resp, api.InconsistentGroupProtocol)
		return
	}
	h.o.Groups.Sync(req, func(resp *kmsg.SyncGroupResponse) {
		reply(r, resp, api.Code(resp.ErrorCode))
	})
}
