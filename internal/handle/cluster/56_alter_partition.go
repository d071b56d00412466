package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/metafollow"
)

// alterPartition answers AlterPartition (56, KIP-497): a leader wants another ISR.
//
//	v2 topic ids, INELIGIBLE_REPLICA and NEW_LEADER_ELECTED (KIP-841); v3 the broker epoch of
//	each member (KIP-903)
func (c *Controller) alterPartition(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAlterPartitionResponse()
	req := kmsg.NewPtrAlterPartitionRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	var changes []controller.AlterISR
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			changes = append(changes, alterISR(ids.UUID(t.TopicID), p))
		}
	}
	results, err := ask[[]controller.AlterISRResult](ctx, c, 0, func(st *controller.State, now time.Time) machine.Result {
		return st.AlterPartition(now, req.BrokerID, req.BrokerEpoch, changes)
	})
	if err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionResponseTopic()
		out.TopidID = t.TopicID
		for _, p := range t.Partitions {
			res := results[0]
			results = results[1:]
			po := kmsg.NewAlterPartitionResponseTopicPartition()
			po.Partition = p.Partition
			if po.ErrorCode, _ = codeAndMessage(res.Err); po.ErrorCode == 0 {
				po.LeaderID, po.LeaderEpoch, po.ISR = res.Leader, res.LeaderEpoch, res.ISR
				po.LeaderRecoveryState, po.PartitionEpoch = res.Recovery, res.PartitionEpoch
			}
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func alterISR(topic ids.UUID, p kmsg.AlterPartitionRequestTopicPartition) controller.AlterISR {
	ch := controller.AlterISR{
		Topic: topic, Partition: p.Partition,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovery: p.LeaderRecoveryState, Cut: metafollow.Cut(&p.UnknownTags),
	}
	for _, b := range p.NewISR { // version 2
		ch.ISR = append(ch.ISR, controller.ISRMember{Broker: b, Epoch: -1})
	}
	for _, m := range p.NewEpochISR {
		ch.ISR = append(ch.ISR, controller.ISRMember{Broker: m.BrokerID, Epoch: m.BrokerEpoch})
	}
	return ch
}
