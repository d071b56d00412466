package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
)

// Field positions in a batch, and the attribute bits.
const (
	posLength       = 8
	posEpoch        = 12
	posMagic        = 16
	posCRC          = 17
	posAttributes   = 21
	posLastDelta    = 23
	posBaseTime     = 27
	posMaxTime      = 35
	posProducerID   = 43
	posProducerEp   = 51
	posBaseSequence = 53
	posCount        = 57

	// HeaderSize is the length in bytes of a batch's header.
	HeaderSize = 61
	// LengthOverhead is what comes before and with the length field: a batch is
	// that field's value plus LengthOverhead bytes long.
	LengthOverhead = 12

	attrCodec         = 0x07
	attrLogAppend     = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
	attrDeleteHorizon = 1 << 6

	// NoProducerID, NoProducerEpoch and NoSequence stand in a batch whose
	// producer is not idempotent. NoTimestamp stands for no timestamp, NoEpoch
	// for no leader epoch.
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoTimestamp     int64 = -1
	NoEpoch         int32 = -1

	// Magic is the only record format that is written.
	Magic int8 = 2
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library keeps one

// TimestampType says what a batch's timestamps mean.
type TimestampType int8

// The timestamp types.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Batch is a view on the bytes of one whole batch. The accessors need at least
// HeaderSize bytes, which [Batches], [Parse] and [Batch.Validate] guarantee.
type Batch []byte

// BaseOffset is the offset of the batch's first record when it was written
// (compaction may have removed it since).
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b)) }

// LastOffset is the offset of the batch's last record when it was written.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// Len is the batch's length in bytes by its own length field.
func (b Batch) Len() int64 {
	return int64(int32(binary.BigEndian.Uint32(b[posLength:]))) + LengthOverhead
}

// LeaderEpoch is the epoch of the leader that appended the batch first.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[posEpoch:])) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// Attributes are the attribute bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[posAttributes:])) }

// Codec is the compression type; it may be one that does not exist.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// TimestampType says whether the timestamps come from the producer or the log.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&attrLogAppend != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional says whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl says whether the batch holds control records.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// DeleteHorizon is the time (ms) after which the cleaner may drop the batch's
// tombstones or marker, and whether one is set (KIP-534).
func (b Batch) DeleteHorizon() (int64, bool) {
	if b.Attributes()&attrDeleteHorizon == 0 {
		return NoTimestamp, false
	}
	return b.BaseTimestamp(), true
}

// LastOffsetDelta is LastOffset less BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[posLastDelta:])) }

// BaseTimestamp is what the records' timestamps are relative to, in ms.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posBaseTime:])) }

// MaxTimestamp is the largest timestamp of the batch, in ms; with LogAppendTime
// the timestamp of each record.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posMaxTime:])) }

// ProducerID is the idempotent producer's id, or NoProducerID.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[posProducerID:])) }

// HasProducerID says whether an idempotent producer wrote the batch.
func (b Batch) HasProducerID() bool { return b.ProducerID() >= 0 }

// ProducerEpoch is the producer's epoch, or NoProducerEpoch.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[posProducerEp:])) }

// BaseSequence is the sequence number of the first record, or NoSequence.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[posBaseSequence:])) }

// LastSequence is the sequence number of the last record, or NoSequence. Numbers
// go on at 0 after the largest int32.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// AddSequence adds to a sequence number, going on at 0 after the largest int32.
func AddSequence(seq, n int32) int32 {
	if n > math.MaxInt32-seq {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// Count is the number of records that the batch says it holds.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[posCount:])) }

// SetBaseOffset sets the base offset, which is outside the checksum.
func (b Batch) SetBaseOffset(offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// SetLastOffset sets the base offset so that the last record has this offset.
func (b Batch) SetLastOffset(offset int64) { b.SetBaseOffset(offset - int64(b.LastOffsetDelta())) }

// SetLeaderEpoch sets the leader epoch, which is outside the checksum.
func (b Batch) SetLeaderEpoch(epoch int32) { binary.BigEndian.PutUint32(b[posEpoch:], uint32(epoch)) }

// SetMaxTimestamp sets timestamp type and max timestamp, and the checksum anew
// if that changed anything.
func (b Batch) SetMaxTimestamp(t TimestampType, ms int64) {
	if b.TimestampType() == t && b.MaxTimestamp() == ms {
		return
	}
	attrs := b.Attributes() &^ attrLogAppend
	if t == LogAppendTime {
		attrs |= attrLogAppend
	}
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b[posMaxTime:], uint64(ms))
	b.updateCRC()
}

// SetProducer sets producer id, epoch and base sequence, and the checksum anew.
func (b Batch) SetProducer(id int64, epoch int16, baseSequence int32) {
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[posProducerEp:], uint16(epoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(baseSequence))
	b.updateCRC()
}

func (b Batch) updateCRC() {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli()))
}

// CheckCRC compares the stored checksum with the bytes; a mismatch wraps ErrCorrupt.
func (b Batch) CheckCRC() error {
	if got, want := crc32.Checksum(b[posAttributes:], castagnoli()), b.CRC(); got != want {
		return fmt.Errorf("%w: batch at offset %d has checksum %08x, its bytes give %08x",
			ErrCorrupt, b.BaseOffset(), want, got)
	}
	return nil
}

// Validate checks the header for sense: length (ErrCorrupt), magic (ErrMagic), codec
// (ErrCodec), counts and offsets (ErrInvalid). It accepts what compaction leaves
// behind (gaps, empty batches) and looks at neither the checksum nor the records.
// Call CheckCRC first: then what this finds is no damage but the writer's fault.
func (b Batch) Validate() error {
	if len(b) < HeaderSize {
		return fmt.Errorf("%w: %d bytes, less than a header", ErrCorrupt, len(b))
	}
	if err := checkMagic(b); err != nil {
		return err
	}
	if b.Len() != int64(len(b)) {
		return fmt.Errorf("%w: length field says %d bytes, there are %d", ErrCorrupt, b.Len(), len(b))
	}
	if !b.Codec().Valid() {
		return fmt.Errorf("%w %d in batch at offset %d", ErrCodec, b.Codec(), b.BaseOffset())
	}
	base, delta, count := b.BaseOffset(), b.LastOffsetDelta(), b.Count()
	if base < 0 || delta < 0 || base > math.MaxInt64-int64(delta)-1 {
		return fmt.Errorf("%w: offset range of base %d and last delta %d", ErrInvalid, base, delta)
	}
	if count < 0 || int64(count) > int64(delta)+1 {
		return fmt.Errorf("%w: batch at offset %d has %d records but a last offset delta of %d", ErrInvalid, base, count, delta)
	}
	return nil
}

// ValidateProduced is Validate with the further rules for a batch that comes from
// a client: base offset 0, offsets without gaps, at least one record, a sequence
// if there is a producer id, no control batch, no delete horizon, create time.
// Breaking one of those wraps ErrInvalid, the last one ErrTimestamp.
func (b Batch) ValidateProduced() error {
	if err := b.Validate(); err != nil {
		return err
	}
	switch {
	case b.BaseOffset() != 0:
		return fmt.Errorf("%w: base offset is %d, must be 0", ErrInvalid, b.BaseOffset())
	case b.Count() <= 0:
		return fmt.Errorf("%w: batch holds no records", ErrInvalid)
	case b.Count() != b.LastOffsetDelta()+1:
		return fmt.Errorf("%w: last offset delta %d does not fit %d records", ErrInvalid, b.LastOffsetDelta(), b.Count())
	case b.IsControl():
		return fmt.Errorf("%w: clients may not write control records", ErrInvalid)
	case b.TimestampType() == LogAppendTime:
		return fmt.Errorf("%w: a producer may not set the type LogAppendTime", ErrTimestamp)
	case b.HasProducerID() && b.BaseSequence() < 0:
		return fmt.Errorf("%w: sequence %d with producer id %d", ErrInvalid, b.BaseSequence(), b.ProducerID())
	case b.HasProducerID() && b.ProducerEpoch() < 0:
		return fmt.Errorf("%w: producer epoch %d with producer id %d", ErrInvalid, b.ProducerEpoch(), b.ProducerID())
	case b.IsTransactional() && !b.HasProducerID():
		return fmt.Errorf("%w: transactional batch without producer id", ErrInvalid)
	}
	if _, ok := b.DeleteHorizon(); ok {
		return fmt.Errorf("%w: clients may not set a delete horizon", ErrInvalid)
	}
	return nil
}

func checkMagic(b []byte) error {
	switch m := int8(b[posMagic]); {
	case m == Magic:
		return nil
	case m == 0 || m == 1:
		return fmt.Errorf("%w: magic %d of a client older than 0.11; use magic 2", ErrMagic, m)
	default:
		return fmt.Errorf("%w: magic %d", ErrCorrupt, m)
	}
}

// Parse returns the first batch in buf. It is nil without an error when buf
// holds only a part of one.
func Parse(buf []byte) (Batch, error) {
	if len(buf) < posMagic+1 {
		return nil, nil
	}
	length := int64(int32(binary.BigEndian.Uint32(buf[posLength:])))
	if err := checkMagic(buf); err != nil {
		return nil, err
	}
	if length < HeaderSize-LengthOverhead {
		return nil, fmt.Errorf("%w: batch length %d is less than a header", ErrCorrupt, length)
	}
	size := length + LengthOverhead
	if size > int64(len(buf)) {
		return nil, nil
	}
	return Batch(buf[:size:size]), nil
}

// Batches iterates over the whole batches in buf. A partial one at the end, as a
// Fetch may return, ends the iteration silently; a damaged length or another magic
// yields an error and ends it.
func Batches(buf []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for pos := 0; pos < len(buf); {
			b, err := Parse(buf[pos:])
			if err != nil {
				yield(nil, fmt.Errorf("at byte %d: %w", pos, err))
				return
			}
			if b == nil || !yield(b, nil) {
				return
			}
			pos += len(b)
		}
	}
}
