package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/server"
)

// topicsByID is the version of OffsetCommit and OffsetFetch from which topics
// are given by id (KIP-848).
const topicsByID = 10

// OffsetCommit (8), versions 2 to 10.
//
//	v2-4 retention time of the client's own (dropped by KIP-211)
//	v6   leader epochs (KIP-320)
//	v7   instance ids (KIP-345)
//	v9   GROUP_ID_NOT_FOUND for a generation of an unknown group
//	v10  topic ids
//
// Offsets of topics or partitions that don't exist are refused one by one. The
// reply waits until the offsets are committed in the log.
func (h *Handlers) OffsetCommit(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrOffsetCommitRequest()
	if !h.decode(r, req) {
		return
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	cr, where := h.commitRequest(req, resp)
	finish := func() {
		errs := tally{}
		for i, t := range cr.Topics {
			for j, p := range t.Partitions {
				resp.Topics[where[i].topic].Partitions[where[i].partitions[j]].ErrorCode = int16(p.Code)
			}
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				errs.add(api.Code(p.ErrorCode))
			}
		}
		errs.count(r)
		reply(r, resp, api.NoError)
	}
	if len(cr.Topics) == 0 && len(req.Topics) > 0 {
		finish()
		return
	}
	h.o.Groups.Commit(cr, finish)
}

// place says where the answers of a topic go in the response.
type place struct {
	topic      int
	partitions []int
}

// commitRequest fills resp with the topics and partitions of req, with the error
// of those that don't exist, and returns the rest as a request to the
// coordinator.
func (h *Handlers) commitRequest(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) (*group.CommitRequest, []place) {
	cr := &group.CommitRequest{
		Version:     req.Version,
		Group:       req.Group,
		Generation:  req.Generation,
		MemberID:    req.MemberID,
		InstanceID:  req.InstanceID,
		RetentionMs: req.RetentionTimeMillis,
	}
	var where []place
	for i, t := range req.Topics {
		mt, ref, code := h.topic(t.Topic, t.TopicID, req.Version >= topicsByID)
		out := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		ct := group.CommitTopic{TopicRef: ref}
		at := place{topic: i}
		for j, p := range t.Partitions {
			pc := code
			if mt != nil && mt.Partition(p.Partition) == nil {
				pc = api.UnknownTopicOrPartition
			}
			out.Partitions = append(out.Partitions, kmsg.OffsetCommitResponseTopicPartition{
				Partition: p.Partition,
				ErrorCode: int16(pc),
			})
			if pc == api.NoError {
				at.partitions = append(at.partitions, j)
				ct.Partitions = append(ct.Partitions, group.CommitPartition{
					Partition:   p.Partition,
					Offset:      p.Offset,
					LeaderEpoch: p.LeaderEpoch,
					Metadata:    p.Metadata,
				})
			}
		}
		resp.Topics = append(resp.Topics, out)
		if len(ct.Partitions) > 0 {
			cr.Topics = append(cr.Topics, ct)
			where = append(where, at)
		}
	}
	return cr, where
}
