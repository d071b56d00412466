package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/server"
)

// FindCoordinator (10): the leader of the internal topic's partition that a key hashes to.
//
//	v1 types of keys (KIP-98); v4 several keys (KIP-699); v6 share groups (KIP-932)
func (b *Broker) findCoordinator(ctx context.Context, r *server.Request) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	if err := r.Decode(req); err != nil {
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
		return
	}
	r.Reply(server.Response{Msg: b.FindCoordinator(ctx, req, r.Conn.ListenerName())})
}

// Types of coordinator keys.
const coordinatorGroup int8 = 0

// FindCoordinator answers a request that came by a listener. The topic of group offsets is
// created when it is first needed.
func (b *Broker) FindCoordinator(ctx context.Context, req *kmsg.FindCoordinatorRequest, listener string) *kmsg.FindCoordinatorResponse {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.SetVersion(req.Version)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	var failure error
	if req.CoordinatorType != coordinatorGroup {
		failure = api.Errorf(api.InvalidRequest, "coordinators of type %d are not served by this release, only those of groups", req.CoordinatorType)
	} else if err := b.EnsureTopic(ctx, GroupOffsetsTopic); err != nil {
		failure = api.Errorf(api.CoordinatorNotAvailable, "%s is being created", GroupOffsetsTopic)
	}
	for _, key := range keys {
		resp.Coordinators = append(resp.Coordinators, b.coordinator(key, listener, failure))
	}
	if req.Version < 4 {
		c := resp.Coordinators[0]
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
	}
	return resp
}

func (b *Broker) coordinator(key, listener string, failure error) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	img := b.o.Image()
	t := img.TopicByName(GroupOffsetsTopic)
	if failure == nil && t != nil {
		p := t.Partition(PartitionFor(key, len(t.Partitions)))
		if br := img.Broker(p.Leader); br != nil && !br.Fenced {
			if e, ok := br.Endpoint(listener); ok {
				out.NodeID, out.Host, out.Port = br.ID, e.Host, int32(e.Port)
				return out
			}
		}
	}
	if failure == nil {
		failure = &api.Error{Code: api.CoordinatorNotAvailable}
	}
	out.ErrorCode, out.ErrorMessage = codeAndMessage(failure)
	return out
}

// PartitionFor is the partition of an internal topic that a key belongs to, as Kafka
// computes it: Java's hash of the string, its sign cut off.
func PartitionFor(key string, partitions int) int32 {
	return meta.JavaHash(key) & 0x7fffffff % int32(partitions)
}
