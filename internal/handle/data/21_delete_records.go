package data

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// DeleteRecords: API 21, versions 0 to 2.
//
// Behaviour: moves the log start of each partition up to the offset, -1
// meaning the high watermark; segments wholly below are removed by the next
// retention run. The answer has the log start, which is on disk by then:
// records that were said to be deleted don't come back after a crash. Internal topics, and topics
// whose cleanup.policy has no delete, are refused.
func (h *Handlers) DeleteRecords(_ context.Context, r *server.Request) {
	var req kmsg.DeleteRecordsRequest
	if !h.decode(r, &req) {
		return
	}
	resp := kmsg.DeleteRecordsResponse{Version: r.Version, Topics: make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))}
	var failed api.Code
	var moved []*kmsg.DeleteRecordsResponseTopicPartition
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &out.Partitions[j]
			p.Partition = t.Partitions[j].Partition
			low, err := h.deleteRecords(t.Topic, &t.Partitions[j])
			c, _ := code(err)
			p.LowWatermark, p.ErrorCode = low, int16(c)
			if failed == api.NoError {
				failed = c
			}
			if err != nil {
				h.log("DeleteRecords", t.Topic, p.Partition, err)
			} else {
				moved = append(moved, p)
			}
		}
	}
	if len(moved) > 0 {
		if err := h.o.Dirs.SaveOffsets(); err != nil {
			h.o.Logger.Error("log starts can't be saved", "error", err)
			failed = api.KafkaStorageError
			for _, p := range moved {
				p.LowWatermark, p.ErrorCode = -1, int16(failed)
			}
		}
	}
	reply(r, &resp, failed)
}

func (h *Handlers) deleteRecords(topic string, in *kmsg.DeleteRecordsRequestTopicPartition) (int64, error) {
	if internalTopic(topic) {
		return -1, api.Errorf(api.InvalidTopicException, "records of the internal topic %s can't be deleted", topic)
	}
	p, err := h.o.Replicas.Get(topic, in.Partition)
	if err != nil {
		return -1, err
	}
	return p.DeleteRecords(in.Offset)
}
