package mirroradm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/compare"
)

// VerifyRange is a range of a partition's offsets to compare: From to before To.
type VerifyRange = compare.Range

// Difference is the first difference of a partition.
type Difference = compare.Difference

// VerifyResult is what came of a range.
type VerifyResult = compare.Result

// VerifyBatch tells a batch from others at its offset.
type VerifyBatch = compare.Batch

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
	res := VerifyResult{Range: r, Proven: r.From}
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

// Holds says whether both sides of a range hold a batch. What can't be read is not held.
func (v *Verifier) Holds(ctx context.Context, r VerifyRange, b VerifyBatch) bool {
	for _, side := range []compare.ClusterLog{
		{Client: v.Source, Topic: r.Topic, ID: r.SourceID, Partition: r.Partition}, {Client: v.Destination, Topic: r.Topic, ID: r.DestinationID, Partition: r.Partition},
	} {
		have, err := side.Read(ctx, b.Base)
		if err != nil || len(have) == 0 || compare.BatchOf(have[0]) != b {
			return false
		}
	}
	return true
}

// part compares one run of offsets and adds to the result.
func (v *Verifier) part(ctx context.Context, res *VerifyResult, from, to int64) {
	side := func(cl *kgo.Client, id [16]byte) compare.Log {
		return &compare.ClusterLog{Client: cl, Topic: res.Topic, ID: id, Partition: res.Partition}
	}
	// What follows a chunk of a sample isn't read.
	compare.Run(ctx, res, from, to, side(v.Source, res.SourceID), side(v.Destination, res.DestinationID), compare.Options{Report: v.report, Open: v.sampled()})
}
