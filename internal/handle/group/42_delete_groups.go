package group

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// DeleteGroups (42), versions 0 to 3: removes empty groups with their offsets.
//
//	v3 an error message for each group
//
// A group that is named twice is answered once.
func (h *Handlers) DeleteGroups(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrDeleteGroupsRequest()
	if !h.decode(r, req) {
		return
	}
	resp := kmsg.NewPtrDeleteGroupsResponse()
	seen := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if !seen[id] {
			seen[id] = true
			resp.Groups = append(resp.Groups, kmsg.DeleteGroupsResponseGroup{Group: id})
		}
	}
	if len(resp.Groups) == 0 {
		reply(r, resp, api.NoError)
		return
	}
	left := atomic.Int32{}
	left.Store(int32(len(resp.Groups)))
	for i := range resp.Groups {
		g := &resp.Groups[i]
		h.o.Groups.DeleteGroup(g.Group, func(code api.Code) {
			g.ErrorCode = int16(code)
			if code != api.NoError {
				msg := code.Message()
				g.ErrorMessage = &msg
			}
			if left.Add(-1) > 0 {
				return
			}
			errs := tally{}
			for _, g := range resp.Groups {
				errs.add(api.Code(g.ErrorCode))
			}
			errs.count(r)
			reply(r, resp, api.NoError)
		})
	}
}
