package cluster

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/quorum"
)

// Fetch (1) at the controller reads the committed metadata log (KIP-595). Any controller
// answers, unless it is no voter or knows no leader: then it may be cut off, and says
// NOT_LEADER_OR_FOLLOWER. Every answer names the leader. Readers are no voters: they are
// never given what isn't committed.
//
//	v13 names topics by id (KIP-516)
//	v15 the reader's id in a tagged field (KIP-903)
//	v16 endpoints of the leader (KIP-951)
//	v17 the reader's directory id (KIP-853)
//
// The quorum's generation is in a tagged field of ours: see metafollow.ErrRestored.

// maxFetchWait bounds how long a fetch waits for records.
const maxFetchWait = 30 * time.Second

func (c *Controller) fetch(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	req := kmsg.NewPtrFetchRequest()
	if err := r.Decode(req); err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		return resp
	}
	if req.ClusterID != nil && *req.ClusterID != c.o.ClusterID {
		resp.ErrorCode = int16(api.InconsistentClusterID)
		return resp
	}
	reader := quorum.Member{ID: req.ReplicaID}
	if r.Version >= 15 {
		reader.ID = req.ReplicaState.ID
	}
	deadline := min(millis(max(req.MaxWaitMillis, 0)), maxFetchWait)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for _, t := range req.Topics {
		out := kmsg.NewFetchResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		known := ids.UUID(t.TopicID) == ids.MetadataTopic || r.Version < 13 && t.Topic == meta.TopicName
		for i := range t.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition = t.Partitions[i].Partition
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = -1, -1
			p.SnapshotID.EndOffset, p.SnapshotID.Epoch = -1, -1
			switch {
			case !known && r.Version >= 13:
				p.ErrorCode = int16(api.UnknownTopicID)
			case !known || p.Partition != 0:
				p.ErrorCode = int16(api.UnknownTopicOrPartition)
			default:
				if reader.ID >= 0 {
					c.o.Quorum.Observed(quorum.Member{ID: reader.ID, Directory: t.Partitions[i].ReplicaDirectoryID}, t.Partitions[i].FetchOffset)
				}
				c.read(ctx, &t.Partitions[i], int(min(req.MaxBytes, t.Partitions[i].PartitionMaxBytes)), req.MinBytes > 0, &p)
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	metafollow.SetGeneration(&resp.UnknownTags, c.o.Quorum.Status().Generation)
	if id, e, ok := c.leaderEndpoint(); ok && r.Version >= 16 {
		node := kmsg.NewFetchResponseBroker()
		node.NodeID, node.Host, node.Port = id, e.Host, int32(e.Port)
		resp.Brokers = append(resp.Brokers, node)
	}
	return resp
}

// read fills p with the records from the offset that is asked for, waiting for the first
// until ctx ends.
func (c *Controller) read(ctx context.Context, req *kmsg.FetchRequestTopicPartition, maxBytes int, wait bool, p *kmsg.FetchResponseTopicPartition) {
	begun := c.o.Quorum.Status()
	for {
		status, changed := c.o.Quorum.Changed()
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = status.HighWatermark, status.HighWatermark, status.LogStart
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = -1, status.Epoch
		if status.HasLeader {
			p.CurrentLeader.LeaderID = status.Leader.ID
		}
		batches, err := c.o.Quorum.ReadCommitted(req.FetchOffset, max(maxBytes, 1))
		var behind *quorum.SnapshotNeededError
		switch {
		case errors.As(err, &behind):
			p.SnapshotID.EndOffset, p.SnapshotID.Epoch = behind.Snapshot.EndOffset, behind.Snapshot.Epoch
			return
		case errors.Is(err, quorum.ErrOffsetOutOfRange):
			if c.diverges(req, p) {
				return
			}
			// Ahead of what this controller knows to be committed: wait for it to catch up.
		case err != nil:
			c.o.Logger.Error("reading the metadata log failed", "offset", req.FetchOffset, "error", err)
			p.ErrorCode = int16(api.UnknownServerError)
			return
		case c.diverges(req, p):
			return
		case len(batches) > 0:
			p.RecordBatches = batches
			return
		}
		if !status.IsVoter {
			p.ErrorCode = int16(api.NotLeaderOrFollower)
			return
		}
		if !wait || status.HasLeader && status.Epoch != begun.Epoch {
			return // in the second case, so that the reader learns of the new leader at once
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if !status.HasLeader {
				p.ErrorCode = int16(api.NotLeaderOrFollower)
			}
			return
		}
	}
}

// diverges compares the reader's last record with the log and says where they part. A reader has committed records only, so
// a log that ends before them, in that epoch or an earlier one, only lags behind.
func (c *Controller) diverges(req *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) bool {
	if req.FetchOffset <= 0 || req.LastFetchedEpoch < 0 {
		return false
	}
	epoch, end := c.o.Quorum.EpochEnd(req.LastFetchedEpoch)
	if epoch == req.LastFetchedEpoch && req.FetchOffset <= end {
		return false
	}
	last, _ := c.o.Quorum.EpochEnd(math.MaxInt32)
	if req.FetchOffset > p.HighWatermark && last <= req.LastFetchedEpoch {
		return false
	}
	p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = max(epoch, 0), max(end, 0) // -1 is what says that nothing diverges
	return true
}
