package mirror

import (
	"context"

	"milena/internal/mirrormsg"
	"milena/internal/server"
)

// checkSource tries whether this broker reaches a cluster by the configs of a mirror. It does so off the connection's goroutine.
func (h *Handlers) checkSource(ctx context.Context, r *server.Request) {
	req := &mirrormsg.CheckMirrorSourceRequest{}
	resp := &mirrormsg.CheckMirrorSourceResponse{}
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
		reply(r, resp, resp.ErrorCode)
		return
	}
	configs := map[string]string{}
	for _, c := range req.Config {
		if c.Value != nil {
			configs[c.Name] = *c.Value
		}
	}
	go func() {
		ctx, cancel := within(ctx, req.TimeoutMs)
		defer cancel()
		var err error
		resp.ClusterID, resp.Brokers, err = h.o.Manager.CheckSource(ctx, req.MirrorName, configs)
		resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
		reply(r, resp, resp.ErrorCode)
	}()
}
