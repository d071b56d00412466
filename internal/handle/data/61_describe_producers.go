package data

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/replica"
	"milena/internal/server"
)

// DescribeProducers: API 61, version 0 (KIP-664).
//
// Behaviour: the producers that the leader's log knows: id, epoch, last
// sequence and time, open transaction.
func (h *Handlers) DescribeProducers(_ context.Context, r *server.Request) {
	var req kmsg.DescribeProducersRequest
	if !h.decode(r, &req) {
		return
	}
	resp := kmsg.DescribeProducersResponse{Version: r.Version, Topics: make([]kmsg.DescribeProducersResponseTopic, len(req.Topics))}
	var failed api.Code
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, len(t.Partitions))
		for j, partition := range t.Partitions {
			p := &out.Partitions[j]
			p.Partition = partition
			var err error
			p.ActiveProducers, err = h.producers(t.Topic, partition)
			c, msg := code(err)
			p.ErrorCode, p.ErrorMessage = int16(c), msg
			if failed == api.NoError {
				failed = c
			}
		}
	}
	reply(r, &resp, failed)
}

func (h *Handlers) producers(topic string, partition int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	if err := controller.CheckTopicName(topic); err != nil {
		return nil, err
	}
	p, err := h.o.Replicas.Get(topic, partition)
	if err == nil {
		err = p.CheckEpoch(replica.AnyEpoch)
	}
	if err != nil {
		return nil, err
	}
	states := p.Log().ProducerStates()
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, len(states))
	for i, s := range states {
		out[i] = kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			ProducerID: s.ID, ProducerEpoch: int32(s.Epoch), LastSequence: s.LastSequence, LastTimestamp: s.LastTimestamp,
			CoordinatorEpoch: s.CoordinatorEpoch, CurrentTxnStartOffset: s.TxnStart,
		}
	}
	return out, nil
}
