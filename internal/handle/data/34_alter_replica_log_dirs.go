package data

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// AlterReplicaLogDirs: API 34, versions 1 and 2.
//
// Behaviour (KIP-113): the answer comes when the move has begun. The replica is
// copied into the directory beside its work, where DescribeLogDirs shows it as a
// future one with its lag, and takes its place once it has everything. Naming
// the directory where the replica is ends a move. A replica that this broker
// doesn't have is REPLICA_NOT_AVAILABLE, and will be made in that directory if
// the broker gets it; a partition that doesn't exist is UNKNOWN_TOPIC_OR_PARTITION. A move that is under way goes on after a restart.
//
// Version notes: 2 flexible.
func (h *Handlers) AlterReplicaLogDirs(_ context.Context, r *server.Request) {
	var req kmsg.AlterReplicaLogDirsRequest
	if !h.decode(r, &req) {
		return
	}
	resp := kmsg.AlterReplicaLogDirsResponse{Version: r.Version}
	at := map[string]int{}
	var failed api.Code
	for i := range req.Dirs {
		for _, t := range req.Dirs[i].Topics {
			n, ok := at[t.Topic]
			if !ok {
				n = len(resp.Topics)
				at[t.Topic] = n
				resp.Topics = append(resp.Topics, kmsg.AlterReplicaLogDirsResponseTopic{Topic: t.Topic})
			}
			for _, p := range t.Partitions {
				err := h.o.Replicas.MoveLog(t.Topic, p, req.Dirs[i].Dir)
				c, _ := code(err)
				if c == api.ReplicaNotAvailable && !h.exists(t.Topic, p) {
					c = api.UnknownTopicOrPartition
				}
				if failed == api.NoError {
					failed = c
				}
				h.log("AlterReplicaLogDirs", t.Topic, p, err)
				resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, kmsg.AlterReplicaLogDirsResponseTopicPartition{Partition: p, ErrorCode: int16(c)})
			}
		}
	}
	reply(r, &resp, failed)
}

// exists reports whether a partition is anywhere in the cluster.
func (h *Handlers) exists(topic string, partition int32) bool {
	t := h.o.Image().TopicByName(topic)
	return t != nil && partition >= 0 && int(partition) < len(t.Partitions)
}
