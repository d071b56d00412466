package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/quorum"
)

// kraftVersion is the version of the quorum's protocol as Kafka counts it: with voters that
// can be changed.
const kraftVersion = 1

// updateRaftVoter answers UpdateRaftVoter (82, KIP-853): a voter tells where it is reached now.
func (c *Controller) updateRaftVoter(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrUpdateRaftVoterResponse()
	req := kmsg.NewPtrUpdateRaftVoterRequest()
	err := r.Decode(req)
	if err == nil {
		err = c.checkClusterID(req.ClusterID)
	}
	if err == nil {
		err = c.updateVoter(req)
	}
	resp.ErrorCode, _ = codeAndMessage(err)
	resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = -1, c.o.Quorum.Status().Epoch
	if leader, epoch, ok := c.o.Quorum.Leader(); ok {
		resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = leader.ID, epoch
		if len(leader.Endpoints) > 0 {
			resp.CurrentLeader.Host, resp.CurrentLeader.Port = leader.Endpoints[0].Host, int32(leader.Endpoints[0].Port)
		}
	}
	return resp
}

func (c *Controller) updateVoter(req *kmsg.UpdateRaftVoterRequest) error {
	v := quorum.Voter{Member: quorum.Member{ID: req.VoterID, Directory: req.VoterDirectoryID}}
	for _, l := range req.Listeners {
		v.Endpoints = append(v.Endpoints, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
	}
	if err := c.checkVoter(v); err != nil {
		return err
	}
	switch epoch := c.o.Quorum.Status().Epoch; {
	case req.CurrentLeaderEpoch >= 0 && req.CurrentLeaderEpoch < epoch:
		return api.Errorf(api.FencedLeaderEpoch, "the quorum's epoch is %d, not %d", epoch, req.CurrentLeaderEpoch)
	case req.CurrentLeaderEpoch > epoch:
		return api.Errorf(api.UnknownLeaderEpoch, "epoch %d is not known here, the quorum's is %d", req.CurrentLeaderEpoch, epoch)
	}
	if f := req.KRaftVersionFeature; f.MinSupportedVersion > kraftVersion || f.MaxSupportedVersion < kraftVersion {
		return api.Errorf(api.InvalidRequest, "voter %d supports versions %d to %d of the quorum, not %d",
			v.ID, f.MinSupportedVersion, f.MaxSupportedVersion, kraftVersion)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.RequestTimeout)
	defer cancel()
	return c.voterError(c.o.Quorum.UpdateVoter(ctx, v))
}
