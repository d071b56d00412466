package group

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/server"
)

// describeNotFound is the version of DescribeGroups from which a group that
// doesn't exist is an error (KIP-1043); before, it is shown as Dead.
const describeNotFound = 6

// Operations on a group that an authorizer may allow, as the bits of their
// numbers (KIP-430): read, delete, describe, describe and alter configs. Without
// an authorizer all are.
const (
	allGroupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	operationsNotAsked = math.MinInt32
)

// DescribeGroups (15), versions 0 to 6.
//
//	v3 authorized operations (KIP-430)
//	v4 instance ids (KIP-345)
//	v6 GROUP_ID_NOT_FOUND, with a message (KIP-1043)
func (h *Handlers) DescribeGroups(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	if !h.decode(r, req) {
		return
	}
	resp := kmsg.NewPtrDescribeGroupsResponse()
	if len(req.Groups) == 0 {
		reply(r, resp, api.NoError)
		return
	}
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	left := atomic.Int32{}
	left.Store(int32(len(req.Groups)))
	for i, id := range req.Groups {
		h.o.Groups.Describe(id, func(d group.Description) {
			resp.Groups[i] = described(req, d)
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

func described(req *kmsg.DescribeGroupsRequest, d group.Description) kmsg.DescribeGroupsResponseGroup {
	g := kmsg.DescribeGroupsResponseGroup{
		ErrorCode:            int16(d.Code),
		Group:                d.Group,
		State:                d.State.String(),
		ProtocolType:         d.ProtocolType,
		Protocol:             d.Protocol,
		AuthorizedOperations: operationsNotAsked,
	}
	switch {
	case d.Code == api.NoError:
	case d.Code != api.GroupIDNotFound:
		g.State = ""
		return g
	case req.Version < describeNotFound:
		g.ErrorCode = int16(api.NoError)
	default:
		msg := fmt.Sprintf("Group %s not found.", d.Group)
		g.ErrorMessage = &msg
		return g
	}
	if req.IncludeAuthorizedOperations {
		g.AuthorizedOperations = allGroupOperations
	}
	for _, m := range d.Members {
		g.Members = append(g.Members, kmsg.DescribeGroupsResponseGroupMember{
			MemberID:         m.ID,
			InstanceID:       m.InstanceID,
			ClientID:         m.Client.ID,
			ClientHost:       m.Host,
			ProtocolMetadata: m.Metadata,
			MemberAssignment: m.Assignment,
		})
	}
	return g
}
