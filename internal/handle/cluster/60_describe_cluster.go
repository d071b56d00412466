package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/server"
)

// Types of endpoints in DescribeCluster.
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// describeCluster answers DescribeCluster (60, KIP-700) at a broker.
//
//	v1 types of endpoints (KIP-919); v2 fenced brokers (KIP-1073)
func (b *Broker) describeCluster(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrDescribeClusterRequest()
	if err := r.Decode(req); err != nil {
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		r.Reply(server.Response{Msg: resp})
		return
	}
	r.Reply(server.Response{Msg: b.DescribeCluster(req, r.Conn.ListenerName())})
}

// DescribeCluster answers a request that came by a listener.
func (b *Broker) DescribeCluster(req *kmsg.DescribeClusterRequest, listener string) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.SetVersion(req.Version)
	resp.ControllerID, resp.EndpointType, resp.ClusterAuthorizedOperations = -1, endpointBrokers, notAsked
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode, resp.ErrorMessage = endpointError(req.EndpointType, "broker", "controllers")
		return resp
	}
	resp.ClusterID = b.o.ClusterID
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations()
	}
	for br := range b.o.Image().Brokers() {
		e, ok := br.Endpoint(listener)
		if !ok || br.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		resp.Brokers = append(resp.Brokers, describedBroker(br, e))
		if !br.Fenced && (resp.ControllerID < 0 || br.ID == b.o.NodeID) {
			resp.ControllerID = br.ID
		}
	}
	return resp
}

func describedBroker(br *meta.Broker, e meta.Endpoint) kmsg.DescribeClusterResponseBroker {
	out := kmsg.NewDescribeClusterResponseBroker()
	out.NodeID, out.Host, out.Port, out.Rack, out.IsFenced = br.ID, e.Host, int32(e.Port), br.Rack, br.Fenced
	return out
}

func endpointError(asked int8, have, other string) (int16, *string) {
	if asked == endpointBrokers || asked == endpointControllers {
		return codeAndMessage(api.Errorf(api.MismatchedEndpointType, "this is a %s, it does not describe %s", have, other))
	}
	return codeAndMessage(api.Errorf(api.UnsupportedEndpointType, "endpoint type %d is unknown", asked))
}

// describeCluster answers DescribeCluster at the controller: it describes controllers.
func (c *Controller) describeCluster(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterID, resp.ControllerID = c.o.ClusterID, -1
	resp.EndpointType = endpointControllers
	resp.ClusterAuthorizedOperations = notAsked
	req := kmsg.NewPtrDescribeClusterRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	if req.EndpointType != endpointControllers {
		resp.ErrorCode, resp.ErrorMessage = endpointError(req.EndpointType, "controller", "brokers")
		return resp
	}
	if status := c.o.Quorum.Status(); status.HasLeader {
		resp.ControllerID = status.Leader.ID
	}
	resp.Brokers = c.controllers()
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations()
	}
	return resp
}
