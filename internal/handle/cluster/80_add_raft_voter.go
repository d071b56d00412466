package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/quorum"
)

// maxVoterTimeout bounds how long a change of the voters is waited for.
const maxVoterTimeout = 10 * time.Minute

// addRaftVoter answers AddRaftVoter (80, KIP-853): a node becomes a voter, once the leader has
// fed it the log. The change goes on for the request's timeout, also when the client is gone.
//
//	v1 an answer before the commit (KIP-1186)
func (c *Controller) addRaftVoter(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAddRaftVoterResponse()
	req := kmsg.NewPtrAddRaftVoterRequest()
	err := r.Decode(req)
	if err == nil {
		err = c.checkClusterID(req.ClusterID)
	}
	if err == nil {
		err = c.addVoter(req)
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}

func (c *Controller) addVoter(req *kmsg.AddRaftVoterRequest) error {
	v := quorum.Voter{Member: quorum.Member{ID: req.VoterID, Directory: req.VoterDirectoryID}}
	for _, l := range req.Listeners {
		v.Endpoints = append(v.Endpoints, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
	}
	if err := c.checkVoter(v); err != nil {
		return err
	}
	timeout := min(millis(req.TimeoutMillis), maxVoterTimeout)
	if timeout <= 0 {
		timeout = c.o.RequestTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if !req.AckWhenCommitted && req.Version >= 1 {
		return c.voterError(c.o.Quorum.BeginAddVoter(ctx, v))
	}
	return c.voterError(c.o.Quorum.AddVoter(ctx, v))
}
