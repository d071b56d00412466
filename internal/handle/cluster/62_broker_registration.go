package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// brokerRegistration answers BrokerRegistration (62).
//
//	v2 log directories (KIP-858); v3 the previous broker epoch (KIP-966)
func (c *Controller) brokerRegistration(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	err := r.Decode(req)
	if err == nil {
		reg := controller.Registration{
			BrokerID: req.BrokerID, ClusterID: req.ClusterID, Incarnation: ids.UUID(req.IncarnationID),
			Rack: req.Rack, PreviousEpoch: req.PreviousBrokerEpoch,
		}
		for _, l := range req.Listeners {
			reg.Endpoints = append(reg.Endpoints, meta.Endpoint{
				Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol,
			})
		}
		for _, f := range req.Features {
			reg.Features = append(reg.Features, meta.FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
		}
		for _, d := range req.LogDirs {
			reg.LogDirs = append(reg.LogDirs, ids.UUID(d))
		}
		resp.BrokerEpoch, err = ask[int64](ctx, c, 0, func(st *controller.State, now time.Time) machine.Result {
			return st.RegisterBroker(now, reg)
		})
	}
	if resp.ErrorCode, _ = codeAndMessage(err); resp.ErrorCode != 0 {
		resp.BrokerEpoch = -1
	}
	return resp
}
