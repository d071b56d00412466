package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
)

// updateFeatures answers UpdateFeatures (57, KIP-584) at the controller.
//
//	v1 kinds of upgrades and dry runs (KIP-778); v2 one answer for all updates (KIP-1022)
func (c *Controller) updateFeatures(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	var updates []controller.FeatureUpdate
	for _, u := range req.FeatureUpdates {
		kind := controller.FeatureUpdateKind(u.UpgradeType)
		if r.Version == 0 {
			kind = controller.UpgradeFeature
			if u.AllowDowngrade {
				kind = controller.DowngradeFeature
			}
		}
		updates = append(updates, controller.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Kind: kind})
	}
	errs, err := ask[[]*api.Error](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.UpdateFeatures(now, updates, r.Version >= 1 && req.ValidateOnly)
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	failed := slices.IndexFunc(errs, func(e *api.Error) bool { return e != nil })
	if r.Version >= 2 {
		if failed >= 0 {
			msg := fmt.Sprintf("nothing was updated, since feature %s can't be: %s", updates[failed].Name, errs[failed].Message)
			resp.ErrorCode, _ = c.topicCode(errs[failed])
			resp.ErrorMessage = &msg
		}
		return resp
	}
	for i, u := range updates {
		out := kmsg.NewUpdateFeaturesResponseResult()
		out.Feature = u.Name
		switch {
		case errs[i] != nil:
			out.ErrorCode, out.ErrorMessage = c.topicCode(errs[i])
		case failed >= 0:
			out.ErrorCode, out.ErrorMessage = codeAndMessage(api.Errorf(api.FeatureUpdateFailed, "nothing was updated, since feature %s can't be", updates[failed].Name))
		}
		resp.Results = append(resp.Results, out)
	}
	return resp
}
