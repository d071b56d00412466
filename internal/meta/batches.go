package meta

import (
	"errors"
	"fmt"
	"iter"

	"milena/internal/record"
)

// ErrDamaged is wrapped by the errors of batches that can't be read: the metadata log or
// snapshot is damaged.
var ErrDamaged = errors.New("the metadata log is damaged")

// batchLimit bounds a metadata batch after decompression, in bytes.
const batchLimit = 64 << 20

// ApplyBatches applies committed record batches. They must contain the record after the
// draft's last; records up to that are skipped, since logs are read in whole batches.
// After an error the draft is unusable.
func (d *Draft) ApplyBatches(batches []byte) error {
	next := d.work.Offset + 1
	for r, err := range logRecords(batches) {
		switch {
		case err != nil:
			return err
		case r.offset < next:
			continue
		case r.offset != next:
			return fmt.Errorf("%w: offset %d follows offset %d", ErrDamaged, r.offset, next-1)
		}
		next++
		if r.record == nil {
			d.Advance(r.offset, r.epoch)
			continue
		}
		if err := d.Apply(r.offset, r.epoch, r.record); err != nil {
			return err
		}
	}
	return nil
}

// ReadSnapshot returns the image that the batches of a snapshot hold; endOffset and epoch
// are the snapshot's.
func ReadSnapshot(clusterID string, batches []byte, endOffset int64, epoch int32) (*Image, error) {
	d := Empty(clusterID).Draft()
	for r, err := range logRecords(batches) {
		if err != nil {
			return nil, err
		}
		if r.record == nil {
			continue
		}
		if err := d.Apply(endOffset-1, epoch, r.record); err != nil {
			return nil, err
		}
	}
	d.Advance(endOffset-1, epoch)
	return d.Image(), nil
}

// logRecord is a record of the log with its place; record is nil for one that is none of
// metadata (a control record).
type logRecord struct {
	offset int64
	epoch  int32
	record Record
}

func logRecords(batches []byte) iter.Seq2[logRecord, error] {
	return func(yield func(logRecord, error) bool) {
		for b, err := range record.Batches(batches) {
			if err == nil {
				err = b.CheckCRC()
			}
			if err != nil {
				yield(logRecord{}, fmt.Errorf("%w: %w", ErrDamaged, err))
				return
			}
			if !batchRecords(b, yield) {
				return
			}
		}
	}
}

func batchRecords(b record.Batch, yield func(logRecord, error) bool) bool {
	for r, err := range b.Records(batchLimit) {
		at := logRecord{offset: r.Offset, epoch: b.LeaderEpoch()}
		if err == nil && !b.IsControl() {
			at.record, err = Decode(r.Value)
		}
		if err != nil {
			yield(logRecord{}, fmt.Errorf("%w: offset %d: %w", ErrDamaged, r.Offset, err))
			return false
		}
		if !yield(at, nil) {
			return false
		}
	}
	return true
}
