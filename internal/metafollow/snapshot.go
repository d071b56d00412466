package metafollow

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
)

// SnapshotPart names a part of a metadata snapshot.
type SnapshotPart struct {
	ClusterID string
	Replica   int32 // who asks, -1 for no node
	EndOffset int64 // of the snapshot, with Epoch
	Epoch     int32
	Position  int64 // in bytes
	MaxBytes  int32
}

// FetchSnapshotPart reads a part of a snapshot from a controller (KIP-630) and returns it, at most MaxBytes,
// with the size of the whole. A refusal is an *api.Error.
func FetchSnapshotPart(ctx context.Context, from Caller, s SnapshotPart) (data []byte, size int64, err error) {
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.ClusterID, req.ReplicaID, req.MaxBytes = &s.ClusterID, s.Replica, s.MaxBytes
	part := kmsg.NewFetchSnapshotRequestTopicPartition()
	part.CurrentLeaderEpoch, part.Position = -1, s.Position
	part.SnapshotID.EndOffset, part.SnapshotID.Epoch = s.EndOffset, s.Epoch
	topic := kmsg.NewFetchSnapshotRequestTopic()
	topic.Topic, topic.Partitions = meta.TopicName, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	r, err := from.Call(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	resp, ok := r.(*kmsg.FetchSnapshotResponse)
	switch {
	case !ok:
		return nil, 0, fmt.Errorf("the controller answered FetchSnapshot with %T", r)
	case resp.ErrorCode != 0:
		return nil, 0, &api.Error{Code: api.Code(resp.ErrorCode)}
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return nil, 0, errors.New("the controller's FetchSnapshot answer has not exactly one partition")
	}
	p := &resp.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode != 0:
		return nil, 0, &api.Error{Code: api.Code(p.ErrorCode)}
	case p.Position != s.Position || len(p.Bytes) > int(s.MaxBytes):
		return nil, 0, fmt.Errorf("asked for %d bytes of the snapshot at position %d, got %d at %d", s.MaxBytes, s.Position, len(p.Bytes), p.Position)
	}
	return p.Bytes, p.Size, nil
}
