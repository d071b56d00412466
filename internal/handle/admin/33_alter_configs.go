package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/server"
)

// AlterConfigs (33), versions 0 to 2, replaces all configs of each resource: keys that aren't named go back to their defaults.
// Clients use [Configs.IncrementalAlterConfigs] instead where they can (KIP-339).
//
//   - v2: flexible
func (h *Configs) AlterConfigs(ctx context.Context, r *server.Request) {
	req := kmsg.NewPtrAlterConfigsRequest()
	if !h.decode(r, req) {
		return
	}
	all, outcomes, forward := h.planAlter(req)
	answer := func(m kmsg.Response, err error) {
		a := alteration{all: all, outcomes: outcomes}
		if told, ok := m.(*kmsg.AlterConfigsResponse); ok {
			for _, res := range told.Resources {
				a.told(int8(res.ResourceType), res.ResourceName, res.ErrorCode, res.ErrorMessage)
			}
		}
		outcomes, code := a.end(err)
		resp := kmsg.NewPtrAlterConfigsResponse()
		for i, res := range all {
			out := kmsg.NewAlterConfigsResponseResource()
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

// planAlter decides what it can and leaves the rest in a request for the controller.
func (h *Configs) planAlter(req *kmsg.AlterConfigsRequest) ([]resource, []outcome, *kmsg.AlterConfigsRequest) {
	forward := kmsg.NewPtrAlterConfigsRequest()
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
			changes[j] = change{c.Name, kmsg.IncrementalAlterConfigOpSet, c.Value}
		}
		switch err := h.check(all[i], changes); {
		case repeated[all[i]]:
			outcomes[i] = decided(api.Errorf(api.InvalidRequest, "Each resource must appear at most once."))
		case all[i].kind == config.ResourceBrokerLogger:
			outcomes[i] = decided(api.Errorf(api.InvalidRequest, "Unexpected resource type BROKER_LOGGER: use IncrementalAlterConfigs"))
		case err != nil:
			outcomes[i] = decided(err)
		default:
			forward.Resources = append(forward.Resources, want)
		}
	}
	return all, outcomes, forward
}
