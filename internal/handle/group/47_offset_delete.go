package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/server"
)

// OffsetDelete (47), version 0: removes committed offsets of topics that no
// member of the group uses (KIP-496).
func (h *Handlers) OffsetDelete(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	if !h.decode(r, req) {
		return
	}
	dr := &group.DeleteOffsetsRequest{Group: req.Group}
	known := 0
	for _, t := range req.Topics {
		mt, _, code := h.topic(t.Topic, ids.Zero, false)
		dt := group.DeleteOffsetsTopic{Name: t.Topic}
		for _, p := range t.Partitions {
			pc := code
			if mt != nil && mt.Partition(p.Partition) == nil {
				pc = api.UnknownTopicOrPartition
			}
			if pc == api.NoError {
				known++
			}
			dt.Partitions = append(dt.Partitions, group.DeleteOffsetsPartition{Partition: p.Partition, Code: pc})
		}
		dr.Topics = append(dr.Topics, dt)
	}
	finish := func(code api.Code) {
		resp := kmsg.NewPtrOffsetDeleteResponse()
		resp.ErrorCode = int16(code)
		errs := tally{}
		if code == api.NoError {
			for _, t := range dr.Topics {
				to := kmsg.OffsetDeleteResponseTopic{Topic: t.Name}
				for _, p := range t.Partitions {
					to.Partitions = append(to.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
						Partition: p.Partition,
						ErrorCode: errs.add(p.Code),
					})
				}
				resp.Topics = append(resp.Topics, to)
			}
		}
		errs.count(r)
		reply(r, resp, code)
	}
	if known == 0 && len(req.Topics) > 0 {
		finish(api.NoError)
		return
	}
	h.o.Groups.DeleteOffsets(dr, finish)
}
