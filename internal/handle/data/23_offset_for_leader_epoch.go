package data

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// OffsetForLeaderEpoch: API 23, versions 2 to 4.
//
// Behaviour: where an epoch ends in the leader's log (spec A.3, with D1: an
// epoch above the latest batch's and not above the leader's own ends at the
// log end). Undefined is (-1, -1), without an error.
//
// Version notes: 3 replica id, 4 flexible.
func (h *Handlers) OffsetForLeaderEpoch(_ context.Context, r *server.Request) {
	var req kmsg.OffsetForLeaderEpochRequest
	if !h.decode(r, &req) {
		return
	}
	resp := kmsg.OffsetForLeaderEpochResponse{Version: r.Version, Topics: make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))}
	var failed api.Code
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			in, p := &t.Partitions[j], &out.Partitions[j]
			p.Partition, p.LeaderEpoch, p.EndOffset = in.Partition, -1, -1
			var err error
			p.LeaderEpoch, p.EndOffset, err = h.epochEnd(t.Topic, in)
			c, _ := code(err)
			p.ErrorCode = int16(c)
			if failed == api.NoError {
				failed = c
			}
		}
	}
	reply(r, &resp, failed)
}

func (h *Handlers) epochEnd(topic string, in *kmsg.OffsetForLeaderEpochRequestTopicPartition) (int32, int64, error) {
	p, err := h.o.Replicas.Get(topic, in.Partition)
	if err != nil {
		return -1, -1, err
	}
	return p.EpochEnd(in.CurrentLeaderEpoch, in.LeaderEpoch)
}
