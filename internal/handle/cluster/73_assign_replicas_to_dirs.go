package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
)

// assignReplicasToDirs answers AssignReplicasToDirs (73, KIP-858): a broker says where its
// replicas lie.
func (c *Controller) assignReplicasToDirs(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrAssignReplicasToDirsResponse()
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	var list []controller.DirAssignment
	for _, d := range req.Directories {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				list = append(list, controller.DirAssignment{Dir: ids.UUID(d.ID), Topic: ids.UUID(t.TopicID), Partition: p.Partition})
			}
		}
	}
	errs, err := ask[[]*api.Error](ctx, c, 0, func(st *controller.State, now time.Time) machine.Result {
		return st.AssignDirs(now, req.BrokerID, req.BrokerEpoch, list)
	})
	if err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	for _, d := range req.Directories {
		do := kmsg.NewAssignReplicasToDirsResponseDirectory()
		do.ID = d.ID
		for _, t := range d.Topics {
			to := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			to.TopicID = t.TopicID
			for _, p := range t.Partitions {
				po := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				po.Partition = p.Partition
				po.ErrorCode, _ = codeAndMessage(errs[0])
				errs = errs[1:]
				to.Partitions = append(to.Partitions, po)
			}
			do.Topics = append(do.Topics, to)
		}
		resp.Directories = append(resp.Directories, do)
	}
	return resp
}
