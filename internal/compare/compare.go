// Package compare proves that two logs of a partition are equal, or finds where they part.
//
// The idea: both sides are read in order, one fetch ahead, and compared batch by batch, every byte. Where either side may have
// compacted its log, records are compared instead: a record that both hold has to be the same, and one that a side lacks has to
// be one that compaction may remove there. What can't be read is an error, never a difference.
//
// It is what milena mirrors verify and the brokers' own audit of their mirrors do.
package compare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"milena/internal/record"
)

// Range is a range of a partition's offsets to compare: From to before To.
type Range struct {
	Topic     string
	Partition int32
	From, To  int64
	// SourceID and DestinationID are the topic's ids on both sides, zero where a cluster is too old to have them.
	SourceID, DestinationID [16]byte
	// Compacted says that either side may have compacted the log: then records are compared instead of batches. Each record
	// that both sides hold has to be identical, and a record that one side lacks has to be one that compaction may remove
	// there: a later record of its key is on that side, or it is a tombstone, or of an aborted transaction.
	Compacted bool
	// Nothing says why the range holds no offset; empty where it holds some, and where both logs are empty and end at the same offset.
	Nothing string
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

// Batch tells a batch from others at its offset.
type Batch struct {
	Base   int64  `json:"base"`
	Length int64  `json:"length"`
	Epoch  int32  `json:"epoch"`
	CRC    uint32 `json:"crc"`
}

// BatchOf is the Batch of b.
func BatchOf(b record.Batch) Batch { return Batch{b.BaseOffset(), b.Len(), b.LeaderEpoch(), b.CRC()} }

// Result is what came of a range.
type Result struct {
	Range
	// Proven is the offset before which both sides are equal, in the chunks that were read.
	Proven int64
	// Batches, records (in them, or one by one) and bytes of batches were compared.
	Batches, Records, Bytes int64
	// Read is how many offsets were read on both sides, and Gone how many were to be and weren't, since retention took them on one side.
	Read, Gone int64
	// Last is the last batch that both sides hold alike, its Length 0 if there was none. As long as both hold it, all before it is what it was.
	Last Batch
	// Difference is nil if none was found.
	Difference *Difference
	// Err is why it could not be decided.
	Err error
}

// Equal says whether the range was read and has no difference.
func (r *Result) Equal() bool { return r.Err == nil && r.Difference == nil }

// Options say how to compare.
type Options struct {
	// Report, if not nil, is told of progress now and then.
	Report func(*Result)
	// Open leaves undecided whether compaction was allowed to remove the records that one side lacks in the range: nothing above
	// it is read.
	Open bool
	// Left, if not nil, says of a batch that only the source has whether it was left out on purpose.
	Left func(record.Batch) bool
	// MaxLacking is for how many keys of a compacted range a side may lack records at the same time, since each is kept in
	// memory; with more it is not decided. 0: no limit.
	MaxLacking int
}

// ErrLacking says that a compacted range lacks more records than Options.MaxLacking.
var ErrLacking = errors.New("too many keys whose records only one side holds")

// Run compares the offsets from from to before to of two logs and adds to the result, whose range says where they are. If ctx ends,
// the result has its error.
func Run(ctx context.Context, res *Result, from, to int64, source, destination Log, o Options) {
	if from >= to {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := NewStream(ctx, "source", source, from, to)
	dst := NewStream(ctx, "destination", destination, from, to)
	defer src.Close()
	defer dst.Close()
	read, gone := res.Read, res.Gone
	if res.Compacted {
		o.records(ctx, res, from, src, dst)
	} else {
		o.batches(res, src, dst)
	}
	if res.Equal() {
		res.Proven = to
		res.Read = read + to - from - (res.Gone - gone)
		o.report(res)
	}
}

func (o *Options) report(res *Result) {
	if o.Report != nil {
		o.Report(res)
	}
}

// batches compares two logs batch by batch, every byte.
func (o *Options) batches(res *Result, src, dst *Stream) {
	for {
		a, errA := src.Next()
		b, errB := dst.Next()
		if start := max(src.Start, dst.Start); start > res.Proven && (errA == nil || errors.Is(errA, ErrShrunk)) && (errB == nil || errors.Is(errB, ErrShrunk)) {
			// Retention has removed what was to be compared next, on one side at least.
			res.Gone += max(min(start, src.to)-res.Proven, 0)
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
		case o.left(a, b):
			dst.unread(b)
			res.Proven = min(a.NextOffset(), res.To)
			continue
		case a == nil || b == nil || string(a) != string(b):
			res.Difference = batchDifference(a, b)
			return
		}
		res.Batches++
		res.Records += int64(a.Count())
		res.Bytes += int64(len(a))
		res.Last = BatchOf(a)
		res.Proven = min(a.NextOffset(), res.To)
		if res.Batches%1024 == 0 {
			o.report(res)
		}
	}
}

// left says whether the source's next batch was left out by the destination on purpose.
func (o *Options) left(src, dst record.Batch) bool {
	return o.Left != nil && src != nil && (dst == nil || dst.BaseOffset() > src.BaseOffset()) && o.Left(src)
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
