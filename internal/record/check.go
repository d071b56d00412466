package record

import (
	"fmt"
	"math"
)

// maxRecordErrors bounds the list in an InvalidRecordsError.
const maxRecordErrors = 100

// CheckOptions say what CheckRecords demands of each record.
type CheckOptions struct {
	Limit      int64 // decompressed bytes; 0 is DefaultLimit
	RequireKey bool  // a compacted topic: no null keys
	Contiguous bool  // offset deltas 0, 1, 2, ...: a batch from a client
	Now        int64 // ms
	MaxBefore  int64 // ms that a timestamp may lie before Now; 0 is any
	MaxAfter   int64 // ms that a timestamp may lie after Now; 0 is any
}

// RecordsInfo is what CheckRecords found.
type RecordsInfo struct {
	Count                int32
	MaxTimestamp         int64 // ms; NoTimestamp without records
	OffsetOfMaxTimestamp int64 // the first offset that has it; -1 without records
	Bytes                int64 // of records, decompressed
}

// CheckRecords decompresses the batch and checks each record: framing, count,
// offsets, and what the options demand. Records that break a rule are listed in an
// *InvalidRecordsError; a payload that can't be read wraps ErrInvalid or ErrTooLarge.
func (b Batch) CheckRecords(o CheckOptions) (RecordsInfo, error) {
	r := Reader{SkipHeaders: true}
	info := RecordsInfo{MaxTimestamp: NoTimestamp, OffsetOfMaxTimestamp: -1}
	if err := r.Reset(b, o.Limit); err != nil {
		return info, err
	}
	info.Bytes = int64(len(r.payload))
	var bad InvalidRecordsError
	var rec Record
	for {
		ok, err := r.Next(&rec)
		if err != nil {
			return info, err
		}
		if !ok {
			break
		}
		if info.OffsetOfMaxTimestamp < 0 || rec.Timestamp > info.MaxTimestamp {
			info.MaxTimestamp, info.OffsetOfMaxTimestamp = rec.Timestamp, rec.Offset
		}
		if msg, kind := o.check(b, &rec, info.Count); kind != nil && len(bad.Records) < maxRecordErrors {
			// One batch gets one error code: the first one's.
			if bad.Kind == nil {
				bad.Kind = kind
			}
			bad.Records = append(bad.Records, RecordError{Index: info.Count, Message: msg})
		}
		info.Count++
	}
	if bad.Kind != nil {
		return info, &bad
	}
	return info, nil
}

func (o *CheckOptions) check(b Batch, rec *Record, index int32) (msg string, kind error) {
	switch {
	case o.Contiguous && rec.Offset != b.BaseOffset()+int64(index):
		return fmt.Sprintf("offset is %d, expected %d", rec.Offset, b.BaseOffset()+int64(index)), ErrInvalid
	case o.RequireKey && rec.Key == nil:
		return "compacted topic cannot accept a record without key", ErrNoKey
	}
	if b.TimestampType() == LogAppendTime || rec.Timestamp == NoTimestamp {
		return "", nil
	}
	if o.MaxBefore > 0 && rec.Timestamp < o.Now-o.MaxBefore {
		return fmt.Sprintf("timestamp %d is more than %d ms before %d", rec.Timestamp, o.MaxBefore, o.Now), ErrTimestamp
	}
	if o.MaxAfter > 0 && o.MaxAfter < math.MaxInt64-o.Now && rec.Timestamp > o.Now+o.MaxAfter {
		return fmt.Sprintf("timestamp %d is more than %d ms after %d", rec.Timestamp, o.MaxAfter, o.Now), ErrTimestamp
	}
	return "", nil
}
