package mirror

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/handle/cluster"
	"milena/internal/mirrormsg"
)

// 121. A request sent directly to the controller for Start/Stop/Pause/Resume/Delete: INVALID_REQUEST.
func TestScenario121(t *testing.T) {
	asked := 0
	apis := ControllerAPIs(ControllerOptions{Do: func(context.Context, controller.Command) (any, error) {
		asked++
		return mirrors.Result{}, nil
	}})
	start, stop, pause := mirrormsg.NewStartMirrorTopicsRequest(), mirrormsg.NewStopMirrorTopicsRequest(), mirrormsg.NewPauseMirrorTopicsRequest()
	resume, del := mirrormsg.NewResumeMirrorTopicsRequest(), mirrormsg.NewDeleteClusterMirrorRequest()
	for _, req := range []kmsg.Request{&start, &stop, &pause, &resume, &del} {
		key := api.Key(req.Key())
		for who, c := range map[string]struct {
			forwarded, node bool
			want            api.Code
		}{
			"a client":                  {false, false, api.InvalidRequest},
			"a broker for a client":     {true, true, api.NoError},
			"the refresh of a mirror":   {false, true, api.NoError},
			"an envelope, whoever's it": {true, false, api.NoError},
		} {
			before := asked
			resp := apis[key](t.Context(), &cluster.ControllerRequest{Key: key, Body: req.AppendTo(nil), Forwarded: c.forwarded, Node: c.node})
			if got := topCode(t, resp); got != c.want || (asked > before) != (c.want == api.NoError) {
				t.Errorf("%s by %s: %s, the state was asked %d times", key, who, got.Name(), asked-before)
			}
		}
	}
	create := &mirrormsg.CreateClusterMirrorRequest{}
	if got := topCode(t, apis[api.CreateClusterMirror](t.Context(), &cluster.ControllerRequest{Key: api.CreateClusterMirror, Body: create.AppendTo(nil)})); got != api.NoError {
		t.Errorf("create: %s", got.Name())
	}
}

func topCode(t *testing.T, resp kmsg.Response) api.Code {
	t.Helper()
	switch r := resp.(type) {
	case *mirrormsg.StartMirrorTopicsResponse:
		return api.Code(r.ErrorCode)
	case *mirrormsg.StopMirrorTopicsResponse:
		return api.Code(r.ErrorCode)
	case *mirrormsg.PauseMirrorTopicsResponse:
		return api.Code(r.ErrorCode)
	case *mirrormsg.ResumeMirrorTopicsResponse:
		return api.Code(r.ErrorCode)
	case *mirrormsg.DeleteClusterMirrorResponse:
		return api.Code(r.ErrorCode)
	case *mirrormsg.CreateClusterMirrorResponse:
		return api.Code(r.ErrorCode)
	}
	t.Fatalf("the answer is a %T", resp)
	return api.UnknownServerError
}
