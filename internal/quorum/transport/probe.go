package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"milena/internal/api"
	"milena/internal/peer"
	"milena/internal/quorum"
)

// Probe implements quorum.Prober: a connection to the first endpoint that answers, a RaftMessages request without
// messages, which only the member that is meant takes, and only in the same cluster and quorum, and DescribeQuorum, since
// a node that has been formatted as a quorum of its own must not be fed another log.
func (t *Transport) Probe(ctx context.Context, v quorum.Voter) error {
	n := t.node.Load()
	if n == nil {
		return errClosed
	}
	c, err := t.dial(ctx, v.Endpoints)
	if err != nil {
		return fmt.Errorf("%w: controller %d is not reached at %s: %w: start it, and check its controller listener and the endpoint",
			quorum.ErrNotReady, v.ID, addrs(v.Endpoints), err)
	}
	defer func() { _ = c.Close() }() // the answers are here
	ctx, cancel := context.WithTimeout(ctx, t.o.RequestTimeout)
	defer cancel()
	if _, err := c.MaxVersion(int16(api.RaftMessages), 0, 0); err != nil {
		return api.Errorf(api.InvalidRequest, "%s is no controller listener of Milena: give the endpoint of controller %d in controller.listener.names", c.Addr(), v.ID)
	}
	if err := t.introduce(ctx, n, c, v); err != nil {
		return err
	}
	return t.foreign(ctx, n, c, v)
}

// introduce asks whether v would take messages of this node's.
func (t *Transport) introduce(ctx context.Context, n *quorum.Node, c *peer.Conn, v quorum.Voter) error {
	req := &Request{
		ClusterID: t.o.ClusterID, Generation: n.Status().Generation,
		From: quorum.Voter{Member: n.Self(), Endpoints: t.o.Endpoints}, To: v.Member,
	}
	resp := &Response{}
	pending, err := c.Send(ctx, int16(api.RaftMessages), 0, req.AppendTo(nil))
	if err == nil {
		var body []byte
		if body, err = pending.Wait(ctx); err == nil {
			err = resp.ReadFrom(body)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: controller %d at %s doesn't answer: %w", quorum.ErrNotReady, v.ID, c.Addr(), err)
	}
	return codeError(resp.ErrorCode, resp.ErrorMessage)
}

// foreign refuses a node that has a quorum without this node.
func (t *Transport) foreign(ctx context.Context, n *quorum.Node, c *peer.Conn, v quorum.Voter) error {
	leader, _, err := DescribeLeader(ctx, c)
	var refused *api.Error
	switch {
	case errors.As(err, &refused), errors.Is(err, errNoLeader):
		return nil // it waits to be added
	case err != nil:
		return fmt.Errorf("%w: controller %d at %s doesn't answer: %w", quorum.ErrNotReady, v.ID, c.Addr(), err)
	}
	known := func(m quorum.Member) bool {
		return m.ID == leader.ID && (m.Directory == leader.Directory || leader.Directory.IsZero())
	}
	if slices.ContainsFunc(n.Voters(), known) {
		return nil // it follows this quorum, or did
	}
	return api.Errorf(api.InconsistentVoterSet,
		"controller %d has a quorum of its own, led by controller %d: empty its metadata directory and format it with --no-initial-controllers", v.ID, leader.ID)
}

func addrs(es []quorum.Endpoint) string {
	var out []byte
	for i, e := range es {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, e.Addr()...)
	}
	return string(out)
}
