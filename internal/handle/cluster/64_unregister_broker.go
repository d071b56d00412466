package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
)

// unregisterBroker answers UnregisterBroker (64, KIP-631) at the controller.
func (c *Controller) unregisterBroker(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	err := r.Decode(req)
	if err == nil {
		_, err = c.do(ctx, 0, func(st *controller.State, now time.Time) machine.Result {
			return st.UnregisterBroker(now, req.BrokerID)
		})
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}
