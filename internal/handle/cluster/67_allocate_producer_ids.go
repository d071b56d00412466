package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
)

// allocateProducerIDs answers AllocateProducerIds (67, KIP-730).
func (c *Controller) allocateProducerIDs(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	err := r.Decode(req)
	if err == nil {
		resp.ProducerIDLen = controller.ProducerIDBlock
		resp.ProducerIDStart, err = ask[int64](ctx, c, 0, func(st *controller.State, now time.Time) machine.Result {
			return st.AllocateProducerIDs(now, req.BrokerID, req.BrokerEpoch)
		})
	}
	if resp.ErrorCode, _ = codeAndMessage(err); resp.ErrorCode != 0 {
		resp.ProducerIDStart, resp.ProducerIDLen = -1, 0
	}
	return resp
}
