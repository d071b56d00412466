package cluster

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
	"milena/internal/server"
)

// raftMessages answers RaftMessages (1200): messages of another voter. It is Milena's own, and
// on controller listeners only. Messages are handed over in the order they come, before the
// next request of the connection is read; nothing here waits.
func (c *Controller) raftMessages(ctx context.Context, r *server.Request) {
	resp := &transport.Response{}
	err := c.takeMessages(ctx, r.Body)
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	r.Reply(server.Response{Msg: resp, Code: api.Code(resp.ErrorCode)})
}

func (c *Controller) takeMessages(ctx context.Context, body []byte) error {
	req := &transport.Request{}
	if err := req.ReadFrom(body); err != nil {
		return api.Errorf(api.InvalidRequest, "malformed RaftMessages request: %w", err)
	}
	q := c.o.Quorum
	status := q.Status()
	switch {
	case req.ClusterID != c.o.ClusterID:
		return api.Errorf(api.InconsistentClusterID, "controller %d is of cluster %s, this one of cluster %s", req.From.ID, req.ClusterID, c.o.ClusterID)
	case req.To != q.Self():
		return api.Errorf(api.InvalidVoterKey, "the messages are for voter %s, this is %s: one of them has another disk than the voter set says", req.To, q.Self())
	case req.Generation != status.Generation && req.Generation != transport.NoGeneration && len(q.VoterSet()) > 0:
		return api.Errorf(api.InconsistentVoterSet, "controller %d is of another quorum than this one, which a metadata restore has begun since: wipe the metadata directory that is older", req.From.ID)
	}
	q.LearnObservers(req.Observers)
	for _, m := range req.Messages {
		if err := q.Step(ctx, req.From, m); err != nil {
			if errors.Is(err, quorum.ErrClosed) {
				return api.Errorf(api.BrokerNotAvailable, "this controller is stopping")
			}
			return api.Errorf(api.InvalidRequest, "%w", err)
		}
	}
	return nil
}

// checkClusterID refuses a request that names another cluster.
func (c *Controller) checkClusterID(id *string) error {
	if id != nil && *id != c.o.ClusterID {
		return api.Errorf(api.InconsistentClusterID, "the request is for cluster %s, this is cluster %s", *id, c.o.ClusterID)
	}
	return nil
}

// checkVoter checks what a request says of a voter.
func (c *Controller) checkVoter(v quorum.Voter) error {
	switch {
	case v.ID < 0 || v.Directory.IsZero():
		return api.Errorf(api.InvalidRequest, "a voter has a node id and a directory id, not %s", v.Member)
	case len(v.Endpoints) == 0:
		return api.Errorf(api.InvalidRequest, "voter %s needs an endpoint of its controller listener", v.Member)
	}
	for _, e := range v.Endpoints {
		if e.Host == "" || e.Port == 0 {
			return api.Errorf(api.InvalidRequest, "voter %s has no host or port for listener %s", v.Member, e.Name)
		}
	}
	return nil
}

// notLeader is the refusal of a controller that doesn't lead.
func (c *Controller) notLeader() *api.Error {
	leader, epoch, ok := c.o.Quorum.Leader()
	switch {
	case !ok:
		return api.Errorf(api.NotLeaderOrFollower, "this controller doesn't lead the quorum and knows no leader: try again")
	case len(leader.Endpoints) == 0:
		return api.Errorf(api.NotLeaderOrFollower, "controller %d leads the quorum in epoch %d", leader.ID, epoch)
	}
	return api.Errorf(api.NotLeaderOrFollower, "controller %d at %s leads the quorum in epoch %d", leader.ID, leader.Endpoints[0].Addr(), epoch)
}

// voterError gives the errors of changes of the voters Kafka's codes.
func (c *Controller) voterError(err error) error {
	code := api.UnknownServerError
	var refused *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && !errors.Is(err, quorum.ErrNotReady):
		return err // the new voter's own words
	case errors.Is(err, quorum.ErrNotLeader):
		return c.notLeader()
	case errors.Is(err, quorum.ErrClosed):
		code = api.NotLeaderOrFollower
	case errors.Is(err, quorum.ErrStatic):
		code = api.UnsupportedVersion
	case errors.Is(err, quorum.ErrDuplicateVoter):
		code = api.DuplicateVoter
	case errors.Is(err, quorum.ErrVoterNotFound):
		code = api.VoterNotFound
	case errors.Is(err, quorum.ErrLastVoter), errors.Is(err, quorum.ErrNoMajority):
		code = api.InvalidRequest
	case errors.Is(err, quorum.ErrChangePending), errors.Is(err, quorum.ErrNotReady), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = api.RequestTimedOut
	}
	return api.Errorf(code, "%w", err)
}

// leaderEndpoint is where the leader is reached, for replies that name it.
func (c *Controller) leaderEndpoint() (id int32, e quorum.Endpoint, ok bool) {
	leader, _, known := c.o.Quorum.Leader()
	if !known || len(leader.Endpoints) == 0 {
		return -1, quorum.Endpoint{}, false
	}
	return leader.ID, leader.Endpoints[0], true
}

// controllers are the voters as DescribeCluster lists them (KIP-919).
func (c *Controller) controllers() []kmsg.DescribeClusterResponseBroker {
	var out []kmsg.DescribeClusterResponseBroker
	for _, v := range c.o.Quorum.VoterSet() {
		if len(v.Endpoints) == 0 {
			continue
		}
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = v.ID, v.Endpoints[0].Host, int32(v.Endpoints[0].Port)
		out = append(out, b)
	}
	return out
}
