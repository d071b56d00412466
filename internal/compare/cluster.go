package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
)

const (
	// fetchBytes is what one fetch asks for, unless told otherwise.
	fetchBytes = 2 << 20
	// fetchPatience is how long a partition is tried without an answer that helps, unless told otherwise.
	fetchPatience = 30 * time.Second
	// Pause is the pause before a cluster is asked again.
	Pause = 100 * time.Millisecond
)

// ClusterLog is a partition's log as its cluster shows it to consumers, wherever its leader is. It is for one goroutine.
type ClusterLog struct {
	Client    *kgo.Client
	Topic     string
	ID        [16]byte // zero where the cluster is too old to have one
	Partition int32
	// MaxBytes is what one fetch asks for; a larger batch comes whole. 0: 2 MiB.
	MaxBytes int32
	// Patience is how long a read is tried without an answer that helps. 0: 30 s.
	Patience time.Duration
	// Metered, if not nil, is told of each answer's bytes, and holds the next request back as long as it likes.
	Metered func(ctx context.Context, bytes int) error

	leader int32
	known  bool
}

// Read implements Log: it fetches at an offset until there is something, or an error that stays.
func (f *ClusterLog) Read(ctx context.Context, at int64) ([]record.Batch, error) {
	patience := f.Patience
	if patience == 0 {
		patience = fetchPatience
	}
	deadline := time.Now().Add(patience)
	var last error
	for {
		batches, err, retry := f.once(ctx, at)
		switch {
		case err == nil && len(batches) > 0, err != nil && !retry:
			return batches, err
		case err != nil:
			last, f.known = err, false
		default:
			last = fmt.Errorf("nothing comes at offset %d", at)
		}
		if time.Now().After(deadline) {
			return nil, last
		}
		select {
		case <-time.After(Pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// once sends one fetch; retry says whether its error may go away.
func (f *ClusterLog) once(ctx context.Context, at int64) (batches []record.Batch, err error, retry bool) {
	if !f.known {
		if err := f.find(ctx); err != nil {
			return nil, err, true
		}
	}
	size := f.MaxBytes
	if size == 0 {
		size = fetchBytes
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, size
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = f.Topic, f.ID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = f.Partition, at, size
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := f.Client.Broker(int(f.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err, true
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err, kerr.IsRetriable(err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer to a fetch lacks the partition"), true
	}
	rp := resp.Topics[0].Partitions[0]
	if f.Metered != nil {
		if err := f.Metered(ctx, len(rp.RecordBatches)); err != nil {
			return nil, err, false
		}
	}
	err = kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		err, retry = f.outOfRange(ctx, at)
		return nil, err, retry
	case err != nil:
		return nil, err, kerr.IsRetriable(err)
	}
	for b, err := range record.Batches(rp.RecordBatches) {
		if err != nil {
			return nil, fmt.Errorf("after offset %d: %w", at, err), false
		}
		batches = append(batches, b)
	}
	return batches, nil, false
}

// outOfRange tells a log that begins later now from one that has ended.
func (f *ClusterLog) outOfRange(ctx context.Context, at int64) (error, bool) {
	start, err := f.offset(ctx, -2)
	switch {
	case err != nil:
		return err, true
	case start > at:
		return &ShrunkError{start}, false
	}
	return fmt.Errorf("offset %d is not there any more: %w", at, kerr.OffsetOutOfRange), false
}

// find looks for the leader.
func (f *ClusterLog) find(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(f.Topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, f.Client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == f.Partition && p.Leader >= 0 {
				f.leader, f.known = p.Leader, true
				return nil
			}
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s-%d has no leader", f.Topic, f.Partition)
}

// Start is the log start offset.
func (f *ClusterLog) Start(ctx context.Context) (int64, error) { return f.ask(ctx, -2) }

// End implements Log: the high watermark.
func (f *ClusterLog) End(ctx context.Context) (int64, error) { return f.ask(ctx, -1) }

// ask asks whoever leads the partition now.
func (f *ClusterLog) ask(ctx context.Context, at int64) (int64, error) {
	if err := f.find(ctx); err != nil {
		return 0, err
	}
	return f.offset(ctx, at)
}

// offset asks the leader for the partition's offset by timestamp: -1 is the high watermark, -2 the start.
func (f *ClusterLog) offset(ctx context.Context, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = f.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = f.Partition, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := f.Client.Broker(int(f.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			return p.Offset, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return 0, errors.New("the answer to a request for offsets lacks the partition")
}
