package offline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
)

// Caller sends a request to a controller; *peer.Conn is one.
type Caller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

const (
	fetchBytes = 8 << 20
	// maxSnapshot bounds a snapshot that is read into memory.
	maxSnapshot = 8 << 30
)

// BackupCluster makes a backup of a running cluster: it reads the committed metadata as a
// broker does, up to the high watermark that the controller names first.
func BackupCluster(ctx context.Context, c Caller, now time.Time) (*Backup, error) {
	clusterID, err := describedCluster(ctx, c)
	if err != nil {
		return nil, err
	}
	img := meta.Empty(clusterID)
	draft := img.Draft()
	goal := int64(-1)
	for {
		at := draft.Speculative()
		p, err := fetchLog(ctx, c, at.Offset+1, at.Epoch)
		if err != nil {
			return nil, err
		}
		if goal < 0 {
			goal = p.HighWatermark
		}
		switch {
		case p.SnapshotID.EndOffset >= 0:
			if img, err = fetchSnapshot(ctx, c, clusterID, p.SnapshotID.EndOffset, p.SnapshotID.Epoch); err != nil {
				return nil, err
			}
			draft = img.Draft()
		case len(p.RecordBatches) > 0:
			if err := draft.ApplyBatches(p.RecordBatches); err != nil {
				return nil, err
			}
		case draft.Speculative().Offset+1 < goal:
			return nil, fmt.Errorf("the controller gave nothing at offset %d of %d", draft.Speculative().Offset+1, goal)
		}
		// A transaction under way is no part of the state yet: it is waited for.
		if img := draft.Image(); img.Offset+1 >= goal && img.Offset >= 0 {
			return NewBackup(img, now), nil
		}
	}
}

func describedCluster(ctx context.Context, c Caller) (string, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2 // controllers
	r, err := c.Call(ctx, req)
	if err != nil {
		return "", err
	}
	resp, ok := r.(*kmsg.DescribeClusterResponse)
	switch {
	case !ok:
		return "", fmt.Errorf("DescribeCluster was answered with %T", r)
	case resp.ErrorCode != 0:
		return "", &api.Error{Code: api.Code(resp.ErrorCode)}
	case resp.ClusterID == "":
		return "", errors.New("the controller names no cluster id")
	}
	return resp.ClusterID, nil
}

func fetchLog(ctx context.Context, c Caller, from int64, epoch int32) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 500, 1, fetchBytes, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.LastFetchedEpoch, part.PartitionMaxBytes = from, -1, fetchBytes
	if from > 0 {
		part.LastFetchedEpoch = epoch
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = meta.TopicName, ids.MetadataTopic, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	r, err := c.Call(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := r.(*kmsg.FetchResponse)
	switch {
	case !ok:
		return nil, fmt.Errorf("Fetch was answered with %T", r)
	case resp.ErrorCode != 0:
		return nil, &api.Error{Code: api.Code(resp.ErrorCode)}
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return nil, errors.New("the Fetch answer has not exactly one partition")
	}
	p := &resp.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode != 0:
		return nil, &api.Error{Code: api.Code(p.ErrorCode)}
	case p.DivergingEpoch.EndOffset >= 0:
		return nil, errors.New("the metadata log was replaced meanwhile: try again")
	}
	return p, nil
}

func fetchSnapshot(ctx context.Context, c Caller, clusterID string, end int64, epoch int32) (*meta.Image, error) {
	var data []byte
	for {
		part, size, err := metafollow.FetchSnapshotPart(ctx, c, metafollow.SnapshotPart{
			ClusterID: clusterID, Replica: -1, EndOffset: end, Epoch: epoch, Position: int64(len(data)), MaxBytes: fetchBytes,
		})
		if err != nil {
			return nil, fmt.Errorf("snapshot at offset %d: %w", end, err)
		}
		data = append(data, part...)
		if int64(len(data)) >= size {
			return meta.ReadSnapshot(clusterID, data, end, epoch)
		}
		if len(part) == 0 || size > maxSnapshot {
			return nil, fmt.Errorf("snapshot at offset %d has %d bytes and ends at %d", end, size, len(data))
		}
	}
}
