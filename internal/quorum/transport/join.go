package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/peer"
	"milena/internal/quorum"
)

// retryPause is the pause after an attempt to change the voter set that failed.
const retryPause = time.Second

// Run keeps what the voter set says of this node right, until ctx ends: a voter whose
// endpoints have changed says so to the leader (UpdateRaftVoter), and with AutoJoin a
// node that is no voter adds itself.
func (t *Transport) Run(ctx context.Context) error {
	n := t.node.Load()
	if n == nil {
		return errors.New("the transport has no node")
	}
	for {
		status, changed := n.Changed()
		var err error
		switch {
		case n.Static():
		case status.IsVoter:
			err = t.updateSelf(ctx, n)
		case t.o.AutoJoin:
			err = t.join(ctx, n)
		}
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			t.o.Logger.Info("the voter set is not as it should be yet", "broker", n.Self().ID, "error", err)
			again = time.After(retryPause)
			changed = nil // not before
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// updateSelf tells the leader this voter's endpoints if the voter set has others.
func (t *Transport) updateSelf(ctx context.Context, n *quorum.Node) error {
	self := quorum.Voter{Member: n.Self(), Endpoints: t.o.Endpoints}
	listed := slices.ContainsFunc(n.VoterSet(), self.Equal)
	leader, epoch, ok := n.Leader()
	if listed || !ok || len(t.o.Endpoints) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.RequestTimeout)
	defer cancel()
	if leader.Member == n.Self() {
		return n.UpdateVoter(ctx, self)
	}
	req := kmsg.NewPtrUpdateRaftVoterRequest()
	req.ClusterID, req.CurrentLeaderEpoch = &t.o.ClusterID, epoch
	req.VoterID, req.VoterDirectoryID = self.ID, self.Directory
	req.KRaftVersionFeature.MinSupportedVersion, req.KRaftVersionFeature.MaxSupportedVersion = 0, 1
	for _, e := range t.o.Endpoints {
		l := kmsg.NewUpdateRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	r, err := t.ask(ctx, leader.Endpoints, req)
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.UpdateRaftVoterResponse)
	if !ok {
		return fmt.Errorf("UpdateRaftVoter was answered with %T", r)
	}
	return codeError(resp.ErrorCode, nil)
}

// ask sends one request over a connection of its own.
func (t *Transport) ask(ctx context.Context, to []quorum.Endpoint, req kmsg.Request) (kmsg.Response, error) {
	c, err := t.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // the answer is here
	return c.Call(ctx, req)
}

// join adds this node to the voters, in the place of one with its id and another disk.
func (t *Transport) join(ctx context.Context, n *quorum.Node) error {
	candidates := slices.Clone(t.o.Bootstrap)
	for _, v := range n.VoterSet() {
		if v.ID != n.Self().ID && len(v.Endpoints) > 0 {
			candidates = append(candidates, v.Endpoints[0])
		}
	}
	leader, voters, err := t.FindLeader(ctx, candidates)
	if err != nil {
		return err
	}
	for _, v := range voters {
		switch {
		case v == n.Self():
			return nil // it will be told
		case v.ID != n.Self().ID:
			continue
		}
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.ClusterID, req.VoterID, req.VoterDirectoryID = &t.o.ClusterID, v.ID, v.Directory
		r, err := t.ask(ctx, leader.Endpoints, req)
		if err != nil {
			return err
		}
		resp, ok := r.(*kmsg.RemoveRaftVoterResponse)
		if !ok {
			return fmt.Errorf("RemoveRaftVoter was answered with %T", r)
		}
		if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
			return err
		}
		t.o.Logger.Info("the voter on this node's former disk was removed", "voter", v.String())
	}
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.ClusterID, req.VoterID, req.VoterDirectoryID = &t.o.ClusterID, n.Self().ID, n.Self().Directory
	req.AckWhenCommitted = false
	req.TimeoutMillis = int32(addTimeout.Milliseconds())
	for _, e := range t.o.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	r, err := t.ask(ctx, leader.Endpoints, req)
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.AddRaftVoterResponse)
	if !ok {
		return fmt.Errorf("AddRaftVoter was answered with %T", r)
	}
	return codeError(resp.ErrorCode, resp.ErrorMessage)
}

// addTimeout bounds how long a leader feeds a new voter the log.
const addTimeout = 30 * time.Second

func codeError(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &api.Error{Code: api.Code(code)}
	if message != nil {
		e.Message = *message
	}
	return e
}

// FindLeader asks the controllers one after another who leads, and returns the leader
// with its endpoints, and the voters.
func (t *Transport) FindLeader(ctx context.Context, candidates []quorum.Endpoint) (quorum.Voter, []quorum.Member, error) {
	failed := errors.New("no controller is known to ask")
	for _, e := range candidates {
		c, err := t.dial(ctx, []quorum.Endpoint{e})
		if err != nil {
			failed = err
			continue
		}
		leader, voters, err := DescribeLeader(ctx, c)
		_ = c.Close() // the answer is here
		if err == nil {
			return leader, voters, nil
		}
		failed = err
	}
	return quorum.Voter{}, nil, fmt.Errorf("the leader of the quorum was not found: %w", failed)
}

var errNoLeader = errors.New("the controller knows no leader")

// DescribeLeader asks a controller who leads, by DescribeQuorum.
func DescribeLeader(ctx context.Context, c *peer.Conn) (quorum.Voter, []quorum.Member, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = meta.TopicName
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	r, err := c.Call(ctx, req)
	if err != nil {
		return quorum.Voter{}, nil, err
	}
	resp, ok := r.(*kmsg.DescribeQuorumResponse)
	switch {
	case !ok:
		return quorum.Voter{}, nil, fmt.Errorf("DescribeQuorum was answered with %T", r)
	case resp.ErrorCode != 0:
		return quorum.Voter{}, nil, codeError(resp.ErrorCode, resp.ErrorMessage)
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return quorum.Voter{}, nil, errors.New("the DescribeQuorum answer has not exactly one partition")
	}
	p := &resp.Topics[0].Partitions[0]
	leader := quorum.Voter{Member: quorum.Member{ID: p.LeaderID}}
	for _, node := range resp.Nodes {
		if node.NodeID != p.LeaderID {
			continue
		}
		for _, l := range node.Listeners {
			leader.Endpoints = append(leader.Endpoints, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
	}
	if p.LeaderID < 0 || len(leader.Endpoints) == 0 {
		if p.ErrorCode != 0 {
			return quorum.Voter{}, nil, codeError(p.ErrorCode, p.ErrorMessage)
		}
		return quorum.Voter{}, nil, fmt.Errorf("%s: %w", c.Addr(), errNoLeader)
	}
	var voters []quorum.Member
	for _, v := range p.CurrentVoters {
		m := quorum.Member{ID: v.ReplicaID, Directory: v.ReplicaDirectoryID}
		if m.ID == leader.ID {
			leader.Member = m
		}
		voters = append(voters, m)
	}
	return leader, voters, nil
}
