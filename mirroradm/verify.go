package mirroradm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/record"
)

// VerifyRange is a range of a partition's offsets to compare: From to before To.
type VerifyRange struct {
	Topic     string
	Partition int32
	From, To  int64
	// SourceID and DestinationID are the topic's ids on both sides, zero where a cluster is too old to have them.
	SourceID, DestinationID [16]byte
	// Compacted says that either side may have compacted the log: then records are compared instead of batches. Each record
	// that both sides hold has to be identical, and a record that one side lacks has to be one that compaction may remove
	// there: a later record of its key is on that side, or it is a tombstone, or of an aborted transaction.
	Compacted bool
}

// Difference is the first difference of a partition.
type Difference struct {
	Offset int64
	// Source and Destination are the SHA-256 hashes, in hex, of the batch (compared by records: the record) at the offset; a
	// dash for a side that has none there.
	Source, Destination string
	// What says what differs.
	What string
}

// VerifyResult is what came of a range.
type VerifyResult struct {
	VerifyRange
	// Proven is the offset before which both sides are equal, in the chunks that were read.
	Proven int64
	// Batches, Records and Bytes were compared; records are counted where they are compared one by one.
	Batches, Records, Bytes int64
	// Difference is nil if none was found.
	Difference *Difference
	// Err is why it could not be decided.
	Err error
}

// Equal says whether the range was read and has no difference.
func (r *VerifyResult) Equal() bool { return r.Err == nil && r.Difference == nil }

// Verifier reads ranges of partitions on both sides of a mirror and compares them.
type Verifier struct {
	Source, Destination *kgo.Client
	// Sample is the share of the chunks of 10,000 offsets that is read; 0 and 1 read all. Of a compacted range a sample proves
	// only that records which both sides hold are identical.
	Sample float64
	// Seed chooses the sample: the same seed, the same chunks.
	Seed uint64
	// Parallel is how many partitions are read at once; 0: four. Each holds up to 8 MiB, more where batches are larger.
	Parallel int
	// Progress, if not nil, is told of a range that has come further. It is called from several goroutines, one call at a time.
	Progress func(r VerifyResult)

	mu sync.Mutex
}

// verifyChunk is what is read or left out as a whole, in offsets.
const verifyChunk = 10_000

// Verify compares the ranges. The results are in their order. If ctx ends, what is not decided has its error.
func (v *Verifier) Verify(ctx context.Context, ranges []VerifyRange) []VerifyResult {
	out := make([]VerifyResult, len(ranges))
	next := make(chan int)
	var wg sync.WaitGroup
	workers := v.Parallel
	if workers <= 0 {
		workers = 4
	}
	for range min(workers, len(ranges)) {
		wg.Go(func() {
			for i := range next {
				out[i] = v.verify(ctx, ranges[i])
			}
		})
	}
	for i := range ranges {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

func (v *Verifier) sampled() bool { return v.Sample > 0 && v.Sample < 1 }

// chosen says whether a chunk is in the sample.
func (v *Verifier) chosen(r VerifyRange, chunk int64) bool {
	if !v.sampled() {
		return true
	}
	h := sha256.Sum256(binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%d %s %d ", v.Seed, r.Topic, r.Partition), uint64(chunk)))
	return float64(binary.BigEndian.Uint64(h[:])>>11)/(1<<53) < v.Sample
}

func (v *Verifier) report(r *VerifyResult) {
	if v.Progress == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Progress(*r)
}

func (v *Verifier) verify(ctx context.Context, r VerifyRange) VerifyResult {
	res := VerifyResult{VerifyRange: r, Proven: r.From}
	if r.SourceID != r.DestinationID && r.SourceID != [16]byte{} && r.DestinationID != [16]byte{} {
		res.Err = errors.New("the topic has another id on the source: it was deleted and created again")
		return res
	}
	if !v.sampled() {
		v.part(ctx, &res, r.From, r.To)
		return res
	}
	for from := r.From; from < r.To && res.Equal(); {
		to := min((from/verifyChunk+1)*verifyChunk, r.To)
		if v.chosen(r, from/verifyChunk) {
			v.part(ctx, &res, from, to)
		}
		if res.Equal() {
			res.Proven = to
			v.report(&res)
		}
		from = to
	}
	return res
}

// part compares one run of offsets and adds to the result.
func (v *Verifier) part(ctx context.Context, res *VerifyResult, from, to int64) {
	if from >= to {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := newStream(ctx, "source", v.Source, res.Topic, res.SourceID, res.Partition, from, to)
	dst := newStream(ctx, "destination", v.Destination, res.Topic, res.DestinationID, res.Partition, from, to)
	defer src.close()
	defer dst.close()
	if res.Compacted {
		v.records(ctx, res, from, src, dst)
	} else {
		v.batches(res, src, dst)
	}
	if res.Equal() {
		res.Proven = to
		v.report(res)
	}
}

// batches compares two logs batch by batch, every byte.
func (v *Verifier) batches(res *VerifyResult, src, dst *stream) {
	for {
		a, errA := src.next()
		b, errB := dst.next()
		if start := max(src.start, dst.start); start > res.Proven && (errA == nil || errors.Is(errA, errShrunk)) && (errB == nil || errors.Is(errB, errShrunk)) {
			// Retention has removed what was to be compared next, on one side at least.
			res.Proven = min(start, res.To)
			src.skipTo(start, a)
			dst.skipTo(start, b)
			continue
		}
		if err := errors.Join(errA, errB); err != nil {
			res.Err = err
			return
		}
		switch {
		case a == nil && b == nil:
			return
		case a == nil || b == nil || string(a) != string(b):
			res.Difference = batchDifference(a, b)
			return
		}
		res.Batches++
		res.Bytes += int64(len(a))
		res.Proven = min(a.NextOffset(), res.To)
		if res.Batches%1024 == 0 {
			v.report(res)
		}
	}
}

func hash(b []byte) string {
	if b == nil {
		return "-"
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// batchDifference words how two batches that should be the same differ; nil is no batch.
func batchDifference(a, b record.Batch) *Difference {
	d := &Difference{Source: hash(a), Destination: hash(b)}
	switch {
	case a == nil:
		d.Offset, d.What, d.Source = b.BaseOffset(), "a batch that the source doesn't have", "-"
	case b == nil:
		d.Offset, d.What, d.Destination = a.BaseOffset(), "a batch that the destination doesn't have", "-"
	case a.BaseOffset() < b.BaseOffset():
		d.Offset, d.What, d.Destination = a.BaseOffset(), fmt.Sprintf("a batch that the destination doesn't have: its next one begins at %d", b.BaseOffset()), "-"
	case b.BaseOffset() < a.BaseOffset():
		d.Offset, d.What, d.Source = b.BaseOffset(), fmt.Sprintf("a batch that the source doesn't have: its next one begins at %d", a.BaseOffset()), "-"
	case a.LeaderEpoch() != b.LeaderEpoch():
		d.Offset, d.What = a.BaseOffset(), fmt.Sprintf("batches of leader epochs %d and %d", a.LeaderEpoch(), b.LeaderEpoch())
	default:
		d.Offset, d.What = a.BaseOffset(), "batches of different content"
	}
	return d
}
