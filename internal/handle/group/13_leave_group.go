package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// leaveMany is the version of LeaveGroup from which several members may leave.
const leaveMany = 3

// LeaveGroup (13), versions 0 to 5.
//
//	v3 several members, by id or by instance id (KIP-345); before, one
//	v5 a reason, for the log (KIP-800)
func (h *Handlers) LeaveGroup(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrLeaveGroupRequest()
	if !h.decode(r, req) {
		return
	}
	members := req.Members
	if req.Version < leaveMany {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	h.o.Groups.Leave(req.Group, members, func(code api.Code, codes []api.Code) {
		resp := kmsg.NewPtrLeaveGroupResponse()
		if req.Version < leaveMany && code == api.NoError {
			code = codes[0]
		}
		resp.ErrorCode = int16(code)
		errs := tally{}
		for i := range codes {
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{
				MemberID:   members[i].MemberID,
				InstanceID: members[i].InstanceID,
				ErrorCode:  int16(codes[i]),
			})
			if req.Version >= leaveMany {
				errs.add(codes[i])
			}
		}
		errs.count(r)
		reply(r, resp, code)
	})
}
