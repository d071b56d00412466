package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/quorum"
)

// describeQuorum answers DescribeQuorum (55, KIP-595, KIP-836): the leader tells how far the
// voters and those that read the log are. Another controller refuses, and names the leader
// and the voters' endpoints as far as it knows them.
//
//	v2 directory ids, listeners of the voters (KIP-853)
func (c *Controller) describeQuorum(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	req := kmsg.NewPtrDescribeQuorumRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	valid := len(req.Topics) == 1 && req.Topics[0].Topic == meta.TopicName &&
		len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	if !valid {
		resp.Topics = unknownQuorumPartitions(req)
		return resp
	}
	part := kmsg.NewDescribeQuorumResponseTopicPartition()
	part.LeaderID, part.LeaderEpoch, part.HighWatermark = -1, -1, -1
	d, err := c.o.Quorum.Describe()
	switch {
	case err != nil:
		part.ErrorCode, part.ErrorMessage = codeAndMessage(api.Errorf(api.NotLeaderOrFollower, "this controller is stopping: ask another one"))
	case !d.IsLeader:
		part.ErrorCode, part.ErrorMessage = codeAndMessage(c.notLeader())
	}
	if err == nil {
		describe(&d, &part)
		resp.Nodes = quorumNodes(d.VoterSet)
	}
	topic := kmsg.NewDescribeQuorumResponseTopic()
	topic.Topic, topic.Partitions = meta.TopicName, append(topic.Partitions, part)
	resp.Topics = append(resp.Topics, topic)
	return resp
}

func describe(d *quorum.Description, part *kmsg.DescribeQuorumResponseTopicPartition) {
	part.LeaderEpoch = d.Epoch
	if d.HasLeader {
		part.LeaderID = d.Leader.ID
	}
	part.HighWatermark = d.HighWatermark
	for _, v := range d.Voters {
		part.CurrentVoters = append(part.CurrentVoters, replicaState(v))
	}
	for _, o := range d.Observers {
		part.Observers = append(part.Observers, replicaState(o))
	}
}

func replicaState(r quorum.Replica) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = r.ID, r.Directory, r.EndOffset
	s.LastFetchTimestamp, s.LastCaughtUpTimestamp = unixMillis(r.LastFetch), unixMillis(r.LastCaughtUp)
	return s
}

// unixMillis is -1 for a time that isn't known.
func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func quorumNodes(voters []quorum.Voter) []kmsg.DescribeQuorumResponseNode {
	var out []kmsg.DescribeQuorumResponseNode
	for _, v := range voters {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = v.ID
		for _, e := range v.Endpoints {
			l := kmsg.NewDescribeQuorumResponseNodeListener()
			l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
			node.Listeners = append(node.Listeners, l)
		}
		out = append(out, node)
	}
	return out
}

func unknownQuorumPartitions(req *kmsg.DescribeQuorumRequest) []kmsg.DescribeQuorumResponseTopic {
	var out []kmsg.DescribeQuorumResponseTopic
	for _, t := range req.Topics {
		topic := kmsg.NewDescribeQuorumResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewDescribeQuorumResponseTopicPartition()
			part.Partition, part.LeaderID, part.LeaderEpoch, part.HighWatermark = p.Partition, -1, -1, -1
			part.ErrorCode, part.ErrorMessage = codeAndMessage(api.Errorf(api.UnknownTopicOrPartition,
				"DescribeQuorum is about partition 0 of %s alone", meta.TopicName))
			topic.Partitions = append(topic.Partitions, part)
		}
		out = append(out, topic)
	}
	return out
}
