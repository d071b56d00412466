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
// All updates are made or none; what can't be is the error of the answer as a whole, at every version as in Kafka.
//
//	v1 kinds of upgrades and dry runs (KIP-778); v2 success without a line for each update (KIP-1022)
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
	if failed := slices.IndexFunc(errs, func(e *api.Error) bool { return e != nil }); failed >= 0 {
		msg := fmt.Sprintf("nothing was updated, since feature %s can't be: %s", updates[failed].Name, errs[failed].Message)
		resp.ErrorCode, _ = c.topicCode(errs[failed])
		resp.ErrorMessage = &msg
		return resp
	}
	if r.Version < 2 {
		for _, u := range updates {
			out := kmsg.NewUpdateFeaturesResponseResult()
			out.Feature = u.Name
			resp.Results = append(resp.Results, out)
		}
	}
	return resp
}
