package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/metafollow"
)

// brokerHeartbeat answers BrokerHeartbeat (63). It overtakes other commands and waits for
// no commit: the broker learns what happened to it from the metadata log. The response has
// the committed offset in a tagged field of ours, so that the broker knows how far it must
// have read.
//
//	v1 log directories that have failed (KIP-858)
func (c *Controller) brokerHeartbeat(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	resp.IsFenced = true
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	h := controller.Heartbeat{
		BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch, MetadataOffset: req.CurrentMetadataOffset,
		WantFence: req.WantFence, WantShutdown: req.WantShutdown,
	}
	for _, d := range req.OfflineLogDirs {
		h.OfflineDirs = append(h.OfflineDirs, d)
	}
	reply, err := c.o.Service.DoNow(ctx, func(st *controller.State, now time.Time) machine.Result {
		return st.Heartbeat(now, h)
	})
	if resp.ErrorCode, _ = codeAndMessage(err); resp.ErrorCode != 0 {
		return resp
	}
	metafollow.SetMetadataOffset(&resp.UnknownTags, c.o.Service.CommittedOffset())
	if hr, ok := reply.(controller.HeartbeatReply); ok {
		resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown = hr.CaughtUp, hr.Fenced, hr.ShouldShutDown
	}
	return resp
}
