package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/server"
)

// IncrementalAlterConfigs (44), versions 0 and 1, sets, deletes, appends to and subtracts from single configs (KIP-339).
// Levels of this broker's loggers change here; everything else the controller decides.
//
//   - v1: flexible
func (h *Configs) IncrementalAlterConfigs(ctx context.Context, r *server.Request) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if !h.decode(r, req) {
		return
	}
	all, outcomes, forward := h.planIncremental(req)
	answer := func(m kmsg.Response, err error) {
		a := alteration{all: all, outcomes: outcomes}
		if told, ok := m.(*kmsg.IncrementalAlterConfigsResponse); ok {
			for _, res := range told.Resources {
				a.told(int8(res.ResourceType), res.ResourceName, res.ErrorCode, res.ErrorMessage)
			}
		}
		outcomes, code := a.end(err)
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for i, res := range all {
			out := kmsg.NewIncrementalAlterConfigsResponseResource()
			out.ResourceType, out.ResourceName = kmsg.ConfigResourceType(res.kind), res.name
			out.ErrorCode, out.ErrorMessage = outcomes[i].code, outcomes[i].message
			resp.Resources = append(resp.Resources, out)
		}
		r.Reply(server.Response{Msg: resp, Code: code})
	}
	if len(forward.Resources) == 0 {
		answer(nil, nil)
		return
	}
	h.ask(ctx, r, forward, answer)
}

// planIncremental decides what it can, loggers included, and leaves the rest in a request for the controller.
func (h *Configs) planIncremental(req *kmsg.IncrementalAlterConfigsRequest) ([]resource, []outcome, *kmsg.IncrementalAlterConfigsRequest) {
	forward := kmsg.NewPtrIncrementalAlterConfigsRequest()
	forward.ValidateOnly = req.ValidateOnly
	all := make([]resource, len(req.Resources))
	for i, want := range req.Resources {
		all[i] = resource{int8(want.ResourceType), want.ResourceName}
	}
	repeated := twice(all)
	outcomes := make([]outcome, len(all))
	for i, want := range req.Resources {
		changes := make([]change, len(want.Configs))
		for j, c := range want.Configs {
			changes[j] = change{c.Name, c.Op, c.Value}
		}
		if repeated[all[i]] {
			outcomes[i] = decided(api.Errorf(api.InvalidRequest, "Each resource must appear at most once."))
			continue
		}
		if all[i].kind == config.ResourceBrokerLogger {
			outcomes[i] = decided(h.alterLoggers(all[i], changes, req.ValidateOnly))
			continue
		}
		if err := h.check(all[i], changes); err != nil {
			outcomes[i] = decided(err)
			continue
		}
		forward.Resources = append(forward.Resources, want)
	}
	return all, outcomes, forward
}
