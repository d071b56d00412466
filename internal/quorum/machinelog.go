package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/machine"
	"milena/internal/record"
)

// MachineLogOptions configure a MachineLog.
type MachineLogOptions struct {
	// MaxBatchBytes is the size of a batch from which an append is cut in several.
	// It should be that of machine.Options, so that only commands in bookends
	// are cut. Default 1,000,000.
	MaxBatchBytes int
}

// MachineLog is the log of a machine that runs while this node leads one epoch.
// It implements machine.Log.
type MachineLog struct {
	n     *Node
	epoch int32
	max   int
	end   atomic.Int64 // after the last record replayed or appended

	ctx      context.Context
	cancel   context.CancelFunc
	watchers sync.WaitGroup
}

var _ machine.Log = (*MachineLog)(nil)

// MachineLog returns the log for the leadership of epoch. Each append becomes one
// batch, or several if it exceeds MachineLogOptions.MaxBatchBytes. There must be
// one user of an epoch at a time.
func (n *Node) MachineLog(epoch int32, o MachineLogOptions) *MachineLog {
	setDefault(&o.MaxBatchBytes, 1_000_000)
	l := &MachineLog{n: n, epoch: epoch, max: min(o.MaxBatchBytes, n.o.MaxEntryBytes)}
	l.ctx, l.cancel = context.WithCancel(n.ctx)
	return l
}

// Watch tells committed the exclusive high watermark, now and each time it moves, and lost
// once when the leadership of the epoch or the node ends, until Close. Meant for
// Runtime.Committed and Runtime.Lost. It calls from a goroutine of its own.
func (l *MachineLog) Watch(committed func(hw int64), lost func(error)) {
	l.watchers.Go(func() {
		told := int64(-1)
		for {
			s, changed := l.n.changed()
			if s.HighWatermark > told {
				told = s.HighWatermark
				committed(told)
			}
			if !s.IsLeader || s.Epoch != l.epoch {
				if err := l.n.failure(); err != nil {
					lost(err)
				} else {
					lost(fmt.Errorf("%w of epoch %d", ErrNotLeader, l.epoch))
				}
				return
			}
			select {
			case <-changed:
			case <-l.ctx.Done():
				if l.n.ctx.Err() != nil {
					lost(ErrClosed)
				}
				return
			}
		}
	})
}

// Close ends the notifications and waits for a running one.
func (l *MachineLog) Close() {
	l.cancel()
	l.watchers.Wait()
}

// Append implements machine.Log.
func (l *MachineLog) Append(recs []machine.Record) (int64, error) {
	now := time.Now().UnixMilli()
	var out []byte
	b := record.NewBuilder(record.BuilderOptions{})
	cut := func() error {
		batch, err := b.Batch()
		if err != nil {
			return err
		}
		out = append(out, batch...)
		b.Reset(record.BuilderOptions{})
		return nil
	}
	for _, r := range recs {
		if b.Len() > 0 && b.Size()+len(r.Key)+len(r.Value)+maxRecordOverhead > l.max {
			if err := cut(); err != nil {
				return 0, err
			}
		}
		b.Append(record.Record{Timestamp: now, Key: r.Key, Value: r.Value})
	}
	if err := cut(); err != nil {
		return 0, err
	}
	last, err := l.n.propose(l.ctx, l.epoch, l.end.Load(), out)
	if err != nil {
		return 0, err
	}
	l.end.Store(last + 1)
	return last, nil
}

// maxRecordOverhead is the most that a record with its batch's timestamp and without
// headers adds to its key and value: length, attributes, deltas, two lengths, headers.
const maxRecordOverhead = 5 + 1 + 1 + 5 + 5 + 5 + 1

// Replay implements machine.Log: the records of the newest snapshot, then those
// of the log, committed or not. It fails with ErrNotLeader when the leadership is
// over.
func (l *MachineLog) Replay(fn func(offset int64, r machine.Record) error) error {
	var (
		snap    *snapshot
		entries []*pb.Entry
		end     int64
		leading bool
		content io.ReadCloser
		openErr error
	)
	// On the run goroutine: what was accepted is in the store then, and the snapshot
	// can't be removed before it is open.
	err := l.n.call(func() {
		s := l.n.status()
		leading = s.IsLeader && s.Epoch == l.epoch
		snap, entries, end = l.n.store.tail()
		if snap != nil && snap.size > 0 {
			f, size, err := l.n.openSnapshot(snap.id)
			if err != nil {
				openErr = err
				return
			}
			content = struct {
				io.Reader
				io.Closer
			}{io.NewSectionReader(f, 0, size), f}
		}
	})
	if err != nil {
		return err
	}
	if content != nil {
		defer func() { _ = content.Close() }() // read only
	}
	switch {
	case openErr != nil:
		return openErr
	case !leading:
		return fmt.Errorf("%w of epoch %d", ErrNotLeader, l.epoch)
	}
	if content != nil {
		err := DecodeRecords(content, func(r machine.Record) error { return fn(snap.id.EndOffset-1, r) })
		if err != nil {
			return fmt.Errorf("snapshot at offset %d: %w", snap.id.EndOffset, err)
		}
	}
	for _, e := range entries {
		if !isData(e) {
			continue
		}
		err := eachRecord(record.Batch(e.GetData()), func(r record.Record) error {
			return fn(r.Offset, machine.Record{Key: r.Key, Value: r.Value})
		})
		if err != nil {
			return fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
		}
	}
	l.end.Store(end)
	return nil
}

// EndOffset implements machine.Log. It is known after Replay.
func (l *MachineLog) EndOffset() int64 { return l.end.Load() }

// HighWatermark implements machine.Log.
func (l *MachineLog) HighWatermark() int64 { return l.n.status().HighWatermark }

// Confirm confirms the leadership with ReadIndex: see machine.Options.Confirm.
func (l *MachineLog) Confirm(done func(error)) {
	reply := make(chan error, 1)
	if err := l.n.send(func(in *input) { in.reads = append(in.reads, reply) }); err != nil {
		done(err)
		return
	}
	go func() { done(<-reply) }() // every read is answered
}

// snapshotBatchBytes is about the size of the batches in a snapshot.
const snapshotBatchBytes = 256 << 10

// EncodeRecords writes the records as the content of a snapshot: record batches
// with offsets from 0, as in Kafka's .checkpoint files. epoch is stamped as the
// batches' leader epoch.
func EncodeRecords(w io.Writer, epoch int32, recs iter.Seq[machine.Record]) error {
	next := int64(0)
	o := record.BuilderOptions{LeaderEpoch: epoch}
	b := record.NewBuilder(o)
	flush := func() error {
		if b.Len() == 0 {
			return nil
		}
		batch, err := b.Batch()
		if err != nil {
			return err
		}
		next = batch.NextOffset()
		o.BaseOffset = next
		b.Reset(o)
		_, err = w.Write(batch)
		return err
	}
	for r := range recs {
		b.Append(record.Record{Key: r.Key, Value: r.Value})
		if b.Size() >= snapshotBatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// DecodeRecords reads what EncodeRecords wrote. Control batches, which Kafka puts
// around a snapshot's records, are skipped.
func DecodeRecords(r io.Reader, fn func(machine.Record) error) error {
	head := make([]byte, record.LengthOverhead)
	for {
		if _, err := io.ReadFull(r, head); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := record.Batch(head).Len()
		if n < record.HeaderSize || n > maxSnapshotBatch {
			return fmt.Errorf("%w: batch of %d bytes", ErrCorrupt, n)
		}
		b := make([]byte, n)
		copy(b, head)
		if _, err := io.ReadFull(r, b[len(head):]); err != nil {
			return err
		}
		batch, err := record.Parse(b)
		if err == nil {
			err = batch.CheckCRC()
		}
		if err != nil {
			return err
		}
		if batch.IsControl() {
			continue
		}
		err = eachRecord(batch, func(rec record.Record) error {
			return fn(machine.Record{Key: rec.Key, Value: rec.Value})
		})
		if err != nil {
			return err
		}
	}
}

// maxSnapshotBatch bounds a batch read from a snapshot.
const maxSnapshotBatch = 64 << 20
