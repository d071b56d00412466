package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/meta"
)

// incrementalAlterConfigs answers IncrementalAlterConfigs (44, KIP-339) at the controller.
func (c *Controller) incrementalAlterConfigs(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if r.Decode(req) != nil {
		return nil
	}
	var resources []controller.AlterResource
	for _, res := range req.Resources {
		a := controller.AlterResource{Resource: resource(res.ResourceType, res.ResourceName), Internal: r.Own()}
		for _, e := range res.Configs {
			a.Changes = append(a.Changes, controller.ConfigChange{Key: e.Name, Op: controller.ConfigOp(e.Op), Value: e.Value})
		}
		resources = append(resources, a)
	}
	errs, err := c.alter(ctx, resources, req.ValidateOnly)
	for i, res := range req.Resources {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
		out.ErrorCode, out.ErrorMessage = c.oneOf(errs, i, err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// alterConfigs answers AlterConfigs (33, KIP-133) at the controller: a resource's entries
// are replaced as a whole.
func (c *Controller) alterConfigs(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAlterConfigsResponse()
	req := kmsg.NewPtrAlterConfigsRequest()
	if r.Decode(req) != nil {
		return nil
	}
	var resources []controller.AlterResource
	for _, res := range req.Resources {
		a := controller.AlterResource{Resource: resource(res.ResourceType, res.ResourceName), Replace: true, Internal: r.Own()}
		for _, e := range res.Configs {
			a.Changes = append(a.Changes, controller.ConfigChange{Key: e.Name, Op: controller.SetConfig, Value: e.Value})
		}
		resources = append(resources, a)
	}
	errs, err := c.alter(ctx, resources, req.ValidateOnly)
	for i, res := range req.Resources {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
		out.ErrorCode, out.ErrorMessage = c.oneOf(errs, i, err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (c *Controller) alter(ctx context.Context, resources []controller.AlterResource, validateOnly bool) ([]*api.Error, error) {
	return ask[[]*api.Error](ctx, c, 0, func(st *controller.State, now time.Time) machine.Result {
		return st.AlterConfigs(now, resources, validateOnly)
	})
}

// oneOf is the i-th error, or the one of the whole request.
func (c *Controller) oneOf(errs []*api.Error, i int, all error) (code int16, message *string) {
	if all != nil {
		return codeAndMessage(all)
	}
	return c.topicCode(errs[i])
}

func resource(t kmsg.ConfigResourceType, name string) meta.Resource {
	return meta.Resource{Type: int8(t), Name: name}
}
