//go:build synctests

package sim

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/quorum"
)

// voter is the node as a voter of the quorum.
func (n *machineNode) voter() quorum.Voter {
	return quorum.Voter{Member: quorum.Member{ID: int32(n.id), Directory: dirID(n.id)}, Endpoints: []quorum.Endpoint{{Name: "CONTROLLER", Host: n.host(), Port: 9093}}}
}

// changeVoters adds a node to the voters of the quorum, or takes one of them out.
func (f *nodeFault) changeVoters(ctx context.Context, n *machineNode) {
	cl, err := f.m.client("operator")
	if err != nil {
		return
	}
	defer cl.Close()
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := kmsg.NewPtrDescribeQuorumRequest(), error(nil)
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	q.Topics = append(q.Topics, t)
	quo, err := q.RequestWith(short, cl)
	if err != nil || len(quo.Topics) != 1 || len(quo.Topics[0].Partitions) != 1 {
		f.m.logf("describe the quorum: %v", err)
		return
	}
	voters := quo.Topics[0].Partitions[0].CurrentVoters
	v := n.voter()
	if slices.ContainsFunc(voters, func(r kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool { return r.ReplicaID == v.ID }) {
		if len(voters) <= 2 {
			return
		}
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = v.ID, v.Directory
		if resp, err := req.RequestWith(short, cl); err != nil {
			f.m.logf("remove voter %d: %v", v.ID, err)
		} else {
			f.m.logf("remove voter %d: %v", v.ID, api.Code(resp.ErrorCode))
		}
		return
	}
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = v.ID, v.Directory, 4000
	for _, e := range v.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	if resp, err := req.RequestWith(short, cl); err != nil {
		f.m.logf("add voter %d: %v", v.ID, err)
	} else {
		f.m.logf("add voter %d: %v", v.ID, api.Code(resp.ErrorCode))
	}
}
