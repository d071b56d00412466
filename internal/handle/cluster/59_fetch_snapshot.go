package cluster

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/quorum"
)

// maxSnapshotBytes bounds one answer to FetchSnapshot.
const maxSnapshotBytes = 16 << 20

// fetchSnapshot answers FetchSnapshot (59, KIP-630): a part of a metadata snapshot that a
// Fetch named.
func (c *Controller) fetchSnapshot(_ context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrFetchSnapshotResponse()
	req := kmsg.NewPtrFetchSnapshotRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	if req.ClusterID != nil && *req.ClusterID != c.o.ClusterID {
		resp.ErrorCode = int16(api.InconsistentClusterID)
		return resp
	}
	for _, t := range req.Topics {
		out := kmsg.NewFetchSnapshotResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			known := t.Topic == meta.TopicName && p.Partition == 0
			out.Partitions = append(out.Partitions, c.snapshotPart(p, known, req.MaxBytes))
		}
		resp.Topics = append(resp.Topics, out)
	}
	if id, e, ok := c.leaderEndpoint(); ok && r.Version >= 1 {
		node := kmsg.NewFetchSnapshotResponseNodeEndpoint()
		node.NodeID, node.Host, node.Port = id, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, node)
	}
	return resp
}

func (c *Controller) snapshotPart(p kmsg.FetchSnapshotRequestTopicPartition, known bool, maxBytes int32) kmsg.FetchSnapshotResponseTopicPartition {
	out := kmsg.NewFetchSnapshotResponseTopicPartition()
	out.Partition = p.Partition
	out.SnapshotID.EndOffset, out.SnapshotID.Epoch = p.SnapshotID.EndOffset, p.SnapshotID.Epoch
	out.Position = p.Position
	status := c.o.Quorum.Status()
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = -1, status.Epoch
	if status.HasLeader {
		out.CurrentLeader.LeaderID = status.Leader.ID
	}
	if !known {
		out.ErrorCode = int16(api.UnknownTopicOrPartition)
		return out
	}
	if p.Position < 0 {
		out.ErrorCode = int16(api.PositionOutOfRange)
		return out
	}
	id := quorum.SnapshotID{EndOffset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}
	data, size, err := c.o.Quorum.ReadSnapshot(id, p.Position, int(min(max(maxBytes, 1), maxSnapshotBytes)))
	switch {
	case errors.Is(err, quorum.ErrSnapshotNotFound):
		out.ErrorCode = int16(api.SnapshotNotFound)
	case errors.Is(err, quorum.ErrOffsetOutOfRange):
		out.ErrorCode = int16(api.PositionOutOfRange)
	case err != nil:
		c.o.Logger.Error("reading a metadata snapshot failed", "offset", id.EndOffset, "error", err)
		out.ErrorCode = int16(api.UnknownServerError)
	default:
		out.Size, out.Bytes = size, data
	}
	return out
}
