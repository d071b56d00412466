package metafollow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
)

// answers is a controller that answers with one code after the other, the last one for ever.
type answers struct {
	codes []api.Code
	asked []*kmsg.ControllerRegistrationRequest
}

func (a *answers) Call(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	a.asked = append(a.asked, req.(*kmsg.ControllerRegistrationRequest))
	c := a.codes[0]
	if len(a.codes) > 1 {
		a.codes = a.codes[1:]
	}
	if c == api.NetworkException {
		return nil, errors.New("no connection")
	}
	resp := kmsg.NewPtrControllerRegistrationResponse()
	resp.ErrorCode = int16(c)
	return resp, nil
}

func TestRegisterController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{codes: []api.Code{api.NetworkException, api.NotController, api.NoError}}
		r := ControllerRegistration{
			ID: 3, Endpoints: []meta.Endpoint{{Name: "C", Host: "h", Port: 9093, SecurityProtocol: 1}},
			Features: []meta.FeatureRange{{Name: "f", Min: 1, Max: 2}},
		}
		if err := RegisterController(t.Context(), a, r); err != nil || len(a.asked) != 3 {
			t.Errorf("%v after %d attempts", err, len(a.asked))
		}
		got := a.asked[2]
		if got.ControllerID != 3 || len(got.Listeners) != 1 || got.Listeners[0].Port != 9093 || len(got.Features) != 1 || got.Features[0].MaxSupportedVersion != 2 {
			t.Errorf("it said %+v", got)
		}
		a = &answers{codes: []api.Code{api.UnsupportedVersion}}
		if err := RegisterController(t.Context(), a, r); !errors.Is(err, &api.Error{Code: api.UnsupportedVersion}) || len(a.asked) != 1 {
			t.Errorf("refused for good: %v after %d attempts", err, len(a.asked))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := RegisterController(ctx, &answers{codes: []api.Code{api.NotController}}, r); !errors.Is(err, context.Canceled) {
			t.Errorf("stopped: %v", err)
		}
	})
}
