package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
)

// alterPartitionReassignments answers AlterPartitionReassignments (45, KIP-455) at the
// controller.
//
//	v1 says whether the number of replicas may change (KIP-860)
func (c *Controller) alterPartitionReassignments(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	allow := r.Version < 1 || req.AllowReplicationFactorChange
	resp.AllowReplicationFactorChange = allow
	var changes []controller.Reassignment
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			changes = append(changes, controller.Reassignment{
				TopicPartition: controller.TopicPartition{Topic: t.Topic, Partition: p.Partition}, Replicas: p.Replicas,
			})
		}
	}
	errs, err := ask[[]*api.Error](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.AlterReassignments(now, changes, allow)
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			po := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			po.Partition = p.Partition
			po.ErrorCode, po.ErrorMessage = c.topicCode(errs[0])
			errs = errs[1:]
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
