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

// controllerRegistration answers ControllerRegistration (70, KIP-919): each controller tells
// the active one where it is and what it supports.
func (c *Controller) controllerRegistration(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrControllerRegistrationResponse()
	req := kmsg.NewPtrControllerRegistrationRequest()
	err := r.Decode(req)
	if err == nil {
		reg := controller.ControllerRegistration{ID: req.ControllerID, Incarnation: ids.UUID(req.IncarnationID)}
		for _, l := range req.Listeners {
			reg.Endpoints = append(reg.Endpoints, meta.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
		}
		for _, f := range req.Features {
			reg.Features = append(reg.Features, meta.FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
		}
		_, err = c.do(ctx, 0, func(st *controller.State, now time.Time) machine.Result {
			return st.RegisterController(now, reg)
		})
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}
