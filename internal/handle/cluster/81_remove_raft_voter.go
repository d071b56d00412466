package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/quorum"
)

// removeRaftVoter answers RemoveRaftVoter (81, KIP-853).
func (c *Controller) removeRaftVoter(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrRemoveRaftVoterResponse()
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	err := r.Decode(req)
	if err == nil {
		err = c.checkClusterID(req.ClusterID)
	}
	if err == nil {
		err = c.removeVoter(quorum.Member{ID: req.VoterID, Directory: req.VoterDirectoryID})
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}

func (c *Controller) removeVoter(m quorum.Member) error {
	if m.ID < 0 || m.Directory == (ids.UUID{}) {
		return api.Errorf(api.InvalidRequest, "a voter to remove has a node id and a directory id, not %s", m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.RequestTimeout)
	defer cancel()
	return c.voterError(c.o.Quorum.RemoveVoter(ctx, m))
}
