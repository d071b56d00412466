package mirroradm

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/compare"
)

// LastTimestamp is when the last record before an offset was written, by the timestamp that it carries. It is false if there is no
// such record, or compaction has removed the one just before the offset.
func LastTimestamp(ctx context.Context, cl *kgo.Client, topic string, id [16]byte, partition int32, before int64) (time.Time, bool, error) {
	if before <= 0 {
		return time.Time{}, false, nil
	}
	log := compare.ClusterLog{Client: cl, Topic: topic, ID: id, Partition: partition}
	batches, err := log.Read(ctx, before-1)
	switch {
	case errors.Is(err, compare.ErrShrunk):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, err
	}
	b := batches[0]
	if b.BaseOffset() >= before {
		return time.Time{}, false, nil
	}
	at := b.MaxTimestamp()
	for r, err := range b.Records(0) {
		if err != nil {
			break // the batch's own is good enough
		}
		if r.Offset < before {
			at = r.Timestamp
		}
	}
	if at < 0 {
		return time.Time{}, false, nil
	}
	return time.UnixMilli(at), true, nil
}
