package cluster

import (
	"context"
	"math"

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
const (
	coordinatorGroup       int8 = 0
	coordinatorTransaction int8 = 1
)

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
	find := b.coordinator
	if req.CoordinatorType == coordinatorTransaction {
		// Any broker says that there are no transactions. Refused here, some clients would ask for ever.
		find = b.anyBroker
	} else if req.CoordinatorType != coordinatorGroup {
		failure = api.Errorf(api.InvalidRequest, "coordinators of type %d are not served by this release, only those of groups", req.CoordinatorType)
	} else if err := b.EnsureTopic(ctx, GroupOffsetsTopic); err != nil {
		failure = api.Errorf(api.CoordinatorNotAvailable, "%s is being created", GroupOffsetsTopic)
	}
	for _, key := range keys {
		resp.Coordinators = append(resp.Coordinators, find(key, listener, failure))
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

// anyBroker answers with the first live broker that has the listener.
func (b *Broker) anyBroker(key, listener string, _ error) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	for br := range b.o.Image().Brokers() {
		if e, ok := br.Endpoint(listener); ok && !br.Fenced {
			out.NodeID, out.Host, out.Port = br.ID, e.Host, int32(e.Port)
			return out
		}
	}
	out.ErrorCode, out.ErrorMessage = codeAndMessage(&api.Error{Code: api.CoordinatorNotAvailable})
	return out
}

// PartitionFor is the partition of an internal topic that a key belongs to, as Kafka
// computes it: the absolute value of Java's hash of the string.
func PartitionFor(key string, partitions int) int32 {
	h := int64(meta.JavaHash(key))
	if h = max(h, -h); h > math.MaxInt32 {
		h = 0 // as Kafka's Utils.abs has it
	}
	return int32(h % int64(partitions))
}
