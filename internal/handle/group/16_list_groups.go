package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/server"
)

// ListGroups (16), versions 0 to 5: the groups whose coordinator is this broker.
//
//	v4 states, and a filter by them (KIP-518)
//	v5 types, and a filter by them (KIP-848)
func (h *Handlers) ListGroups(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrListGroupsRequest()
	if !h.decode(r, req) {
		return
	}
	h.o.Groups.List(req.StatesFilter, req.TypesFilter, func(code api.Code, groups []group.Listed) {
		resp := kmsg.NewPtrListGroupsResponse()
		resp.ErrorCode = int16(code)
		for _, g := range groups {
			resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{
				Group:        g.Group,
				ProtocolType: g.ProtocolType,
				GroupState:   g.State.String(),
				GroupType:    group.Type,
			})
		}
		reply(r, resp, code)
	})
}
