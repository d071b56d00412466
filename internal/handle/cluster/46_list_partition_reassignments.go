package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
)

// listPartitionReassignments answers ListPartitionReassignments (46, KIP-455) at the
// controller.
func (c *Controller) listPartitionReassignments(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	var wanted []controller.TopicPartition // nil: all
	if req.Topics != nil {
		wanted = []controller.TopicPartition{}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			wanted = append(wanted, controller.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	list, err := ask[[]controller.Reassigning](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.ListReassignments(now, wanted)
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	at := map[string]int{}
	for _, x := range list {
		i, ok := at[x.Topic]
		if !ok {
			i = len(resp.Topics)
			at[x.Topic] = i
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			t.Topic = x.Topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas = x.Partition, x.Replicas, x.Adding, x.Removing
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, p)
	}
	return resp
}
