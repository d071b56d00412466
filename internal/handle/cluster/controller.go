package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/quorum"
	"milena/internal/server"
	"milena/internal/wire"
)

// ControllerAPI answers one API at the controller, whether the request came directly or in
// an Envelope. It may block. The response's version is set by the caller. Nil stands for a
// malformed request whose response has no place to say so.
type ControllerAPI func(ctx context.Context, r *ControllerRequest) kmsg.Response

// ControllerRequest is a request to the controller.
type ControllerRequest struct {
	Key     api.Key
	Version int16
	// Body is the message behind the header.
	Body []byte
	// Principal is who asks: the client behind a forwarding broker, or the connection's own.
	Principal string
	// Forwarded: a broker passed it on in an Envelope, for a client. Otherwise it came
	// directly.
	Forwarded bool
	// Node: the connection is one of Milena's own nodes or tools, as far as it says so.
	Node bool
}

// Own reports whether the cluster itself asks: guards are not.
func (r *ControllerRequest) Own() bool { return !r.Forwarded && r.Node }

// Decode decodes the body into m, whose version it sets. m may alias Body. The error is an
// *api.Error with INVALID_REQUEST.
func (r *ControllerRequest) Decode(m kmsg.Request) error {
	m.SetVersion(r.Version)
	err := wire.CheckRequest(r.Key, r.Version, r.Body)
	if err == nil {
		err = m.ReadFrom(r.Body)
	}
	if err != nil {
		return api.Errorf(api.InvalidRequest, "malformed %s request of version %d: %w", r.Key, r.Version, err)
	}
	return nil
}

// ControllerOptions of a Controller.
type ControllerOptions struct {
	NodeID    int32
	ClusterID string
	Service   *controller.Service
	Quorum    *quorum.Node
	// Extra are further APIs, such as those of mirrors. They must have rows in the API table
	// that say Controller.
	Extra map[api.Key]ControllerAPI
	// TopicConfigs returns all configs of a topic with the given entries, for CreateTopics
	// responses. Nil: none are listed.
	TopicConfigs func(entries map[string]string) []kmsg.CreateTopicsResponseTopicConfig
	// CodePoints are the numbers of mirror APIs and errors in requests inside envelopes.
	CodePoints api.CodePoints
	// RequestTimeout bounds commands whose request names no timeout. Default 30 s.
	RequestTimeout time.Duration
	Logger         *slog.Logger // default: discards
}

// Controller answers the APIs of the controller's listener.
type Controller struct {
	o    ControllerOptions
	apis map[api.Key]ControllerAPI
}

// NewController returns the handlers.
func NewController(o ControllerOptions) *Controller {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{o: o}
	c.apis = map[api.Key]ControllerAPI{
		api.Fetch:                   c.fetch,
		api.FetchSnapshot:           c.fetchSnapshot,
		api.BrokerRegistration:      c.brokerRegistration,
		api.BrokerHeartbeat:         c.brokerHeartbeat,
		api.AllocateProducerIDs:     c.allocateProducerIDs,
		api.CreateTopics:            c.createTopics,
		api.DeleteTopics:            c.deleteTopics,
		api.CreatePartitions:        c.createPartitions,
		api.AlterConfigs:            c.alterConfigs,
		api.IncrementalAlterConfigs: c.incrementalAlterConfigs,
		api.DescribeCluster:         c.describeCluster,
		api.DescribeQuorum:          c.describeQuorum,

		api.ElectLeaders:               c.electLeaders,
		api.AlterPartitionAssignments:  c.alterPartitionReassignments,
		api.ListPartitionReassignments: c.listPartitionReassignments,
		api.AlterPartition:             c.alterPartition,
		api.UpdateFeatures:             c.updateFeatures,
		api.UnregisterBroker:           c.unregisterBroker,
		api.ControllerRegistration:     c.controllerRegistration,
		api.AssignReplicasToDirs:       c.assignReplicasToDirs,

		api.AddRaftVoter:    c.addRaftVoter,
		api.RemoveRaftVoter: c.removeRaftVoter,
		api.UpdateRaftVoter: c.updateRaftVoter,
	}
	for k, f := range o.Extra {
		c.apis[k] = f
	}
	return c
}

// Register adds the handlers to the table of a controller's listener.
func (c *Controller) Register(t server.Table) {
	for k, f := range c.apis {
		t[k] = func(ctx context.Context, r *server.Request) { c.serve(ctx, r, f) }
	}
	t[api.Envelope] = c.envelope
	t[api.RaftMessages] = c.raftMessages
}

// serve runs an API on a goroutine of its own, since most wait for a commit.
func (c *Controller) serve(ctx context.Context, r *server.Request, f ControllerAPI) {
	name, _ := r.Conn.ClientSoftware()
	req := &ControllerRequest{
		Key: r.Key, Version: r.Version, Body: append([]byte(nil), r.Body...), Principal: r.Conn.Principal(), Node: name == api.SoftwareName,
	}
	go func() {
		if msg := f(ctx, req); msg != nil {
			r.Reply(server.Response{Msg: msg})
			return
		}
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
	}()
}

// do runs a command on the controller's state; a timeout of zero or less means the default.
func (c *Controller) do(ctx context.Context, timeout time.Duration, cmd controller.Command) (any, error) {
	if timeout <= 0 {
		timeout = c.o.RequestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.o.Service.Do(ctx, cmd)
}

// ask runs a command whose reply is a T.
func ask[T any](ctx context.Context, c *Controller, timeout time.Duration, cmd func(*controller.State, time.Time) machine.Result) (T, error) {
	var zero T
	r, err := c.do(ctx, timeout, cmd)
	if err != nil {
		return zero, err
	}
	t, ok := r.(T)
	if !ok {
		return zero, errors.New("the controller's state gave another kind of reply than was expected")
	}
	return t, nil
}

// millis is a timeout of a request.
func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// codeAndMessage is what a response says of an error. A nil *api.Error is none.
func codeAndMessage(err error) (code int16, message *string) {
	var e *api.Error
	if errors.As(err, &e) && e == nil {
		return 0, nil
	}
	c, m := api.CodeOf(err)
	if c == api.NoError {
		return 0, nil
	}
	return int16(c), &m
}

// topicCode is codeAndMessage for a part of a request that a guard may have refused with a
// mirror's code.
func (c *Controller) topicCode(err *api.Error) (code int16, message *string) {
	if err == nil {
		return 0, nil
	}
	code, message = codeAndMessage(err)
	return c.o.CodePoints.WireCode(api.Code(code)), message
}
