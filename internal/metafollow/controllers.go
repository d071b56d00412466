package metafollow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// ControllerRegistration is what a controller says of itself.
type ControllerRegistration struct {
	ID int32
	// Incarnation is new for every start of the process.
	Incarnation ids.UUID
	Endpoints   []meta.Endpoint
	Features    []meta.FeatureRange
}

// registrationPause is the pause after an attempt to register a controller that failed.
const registrationPause = 500 * time.Millisecond

// RegisterController tells the active controller about a controller, perhaps itself
// (KIP-919), and tries again until it is answered or the context ends. The error is the
// refusal for good of one that doesn't support the cluster's feature levels.
func RegisterController(ctx context.Context, active Caller, r ControllerRegistration) error {
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = r.ID, r.Incarnation
	for _, e := range r.Endpoints {
		l := kmsg.NewControllerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range r.Features {
		kf := kmsg.NewControllerRegistrationRequestFeature()
		kf.Name, kf.MinSupportedVersion, kf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, kf)
	}
	for {
		err := tryRegisterController(ctx, active, req)
		if err == nil || errors.Is(err, &api.Error{Code: api.UnsupportedVersion}) {
			return err
		}
		select {
		case <-time.After(registrationPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func tryRegisterController(ctx context.Context, active Caller, req *kmsg.ControllerRegistrationRequest) error {
	r, err := active.Call(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.ControllerRegistrationResponse)
	if !ok {
		return fmt.Errorf("the controller answered ControllerRegistration with %T", r)
	}
	if err := codeError(resp.ErrorCode); err != nil {
		if resp.ErrorMessage != nil {
			return fmt.Errorf("%s: %w", *resp.ErrorMessage, err)
		}
		return err
	}
	return nil
}
