package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Producer identifies what an idempotent producer wrote.
type Producer struct {
	ID           int64
	Epoch        int16
	BaseSequence int32
}

// BuilderOptions are a batch's properties besides its records.
type BuilderOptions struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Compression   Compression
	Producer      *Producer // nil: not idempotent
	Transactional bool
	Control       bool
	LogAppendTime *int64 // ms; nil: create time
	DeleteHorizon *int64 // ms; nil: none
	LastOffset    *int64 // nil: the last record's; needed for a batch without records
}

// Builder builds one batch. The zero value is not usable; see NewBuilder.
type Builder struct {
	o         BuilderOptions
	records   []byte
	count     int32
	lastDelta int32 // -1 before the first record
	baseTime  int64
	maxTime   int64
	err       error // first failure, reported by Batch
}

// NewBuilder starts a batch.
func NewBuilder(o BuilderOptions) *Builder {
	var b Builder
	b.Reset(o)
	return &b
}

// Reset starts another batch, reusing memory.
func (b *Builder) Reset(o BuilderOptions) {
	*b = Builder{o: o, records: b.records[:0], lastDelta: -1, baseTime: NoTimestamp, maxTime: NoTimestamp}
	if o.DeleteHorizon != nil {
		b.baseTime = *o.DeleteHorizon
	}
}

// Len is the number of records so far.
func (b *Builder) Len() int { return int(b.count) }

// Size is the number of bytes so far, with the header, before compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Append adds a record at the next offset; its Offset is not looked at.
func (b *Builder) Append(r Record) {
	if b.lastDelta == math.MaxInt32 {
		b.fail(errors.New("batch has no offset delta left"))
		return
	}
	b.add(b.lastDelta+1, &r)
}

// AppendAt adds a record at its own Offset, which must be above the one before.
func (b *Builder) AppendAt(r Record) error {
	delta := r.Offset - b.o.BaseOffset
	if delta <= int64(b.lastDelta) || delta > math.MaxInt32 {
		return fmt.Errorf("record offset %d after delta %d in batch at %d", r.Offset, b.lastDelta, b.o.BaseOffset)
	}
	b.add(int32(delta), &r)
	return b.err
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Builder) add(delta int32, r *Record) {
	if b.count == 0 {
		b.maxTime = r.Timestamp
		if b.o.DeleteHorizon == nil {
			b.baseTime = r.Timestamp
		}
	}
	b.maxTime = max(b.maxTime, r.Timestamp)
	b.records = appendRecord(b.records, r, r.Timestamp-b.baseTime, delta)
	b.lastDelta = delta
	b.count++
}

// Batch finishes the batch, in memory of its own. The builder can be reset then.
func (b *Builder) Batch() (Batch, error) {
	if b.err != nil {
		return nil, b.err
	}
	lastDelta := int64(b.lastDelta)
	if b.o.LastOffset != nil {
		lastDelta = *b.o.LastOffset - b.o.BaseOffset
	}
	if lastDelta < int64(b.lastDelta) || lastDelta < 0 || lastDelta > math.MaxInt32 {
		return nil, fmt.Errorf("batch at offset %d with %d records can't end at delta %d", b.o.BaseOffset, b.count, lastDelta)
	}
	return finish(b.header(int32(lastDelta)), b.o.Compression, b.records)
}

// header returns the header, without length and checksum, with room for the records.
func (b *Builder) header(lastDelta int32) Batch {
	out := make(Batch, HeaderSize, HeaderSize+len(b.records))
	var attrs int16
	if b.count > 0 {
		attrs = int16(b.o.Compression.Codec)
	}
	maxTime := b.maxTime
	if b.o.LogAppendTime != nil {
		attrs |= attrLogAppend
		maxTime = *b.o.LogAppendTime
	}
	if b.o.Transactional {
		attrs |= attrTransactional
	}
	if b.o.Control {
		attrs |= attrControl
	}
	if b.o.DeleteHorizon != nil {
		attrs |= attrDeleteHorizon
	}
	p := b.o.Producer
	if p == nil {
		p = &Producer{ID: NoProducerID, Epoch: NoProducerEpoch, BaseSequence: NoSequence}
	}
	be := binary.BigEndian
	out.SetBaseOffset(b.o.BaseOffset)
	out.SetLeaderEpoch(b.o.LeaderEpoch)
	out[posMagic] = byte(Magic)
	be.PutUint16(out[posAttributes:], uint16(attrs))
	be.PutUint32(out[posLastDelta:], uint32(lastDelta))
	be.PutUint64(out[posBaseTime:], uint64(b.baseTime))
	be.PutUint64(out[posMaxTime:], uint64(maxTime))
	be.PutUint64(out[posProducerID:], uint64(p.ID))
	be.PutUint16(out[posProducerEp:], uint16(p.Epoch))
	be.PutUint32(out[posBaseSequence:], uint32(p.BaseSequence))
	be.PutUint32(out[posCount:], uint32(b.count))
	return out
}

// finish adds the records to a header, with length and checksum.
func finish(header Batch, c Compression, records []byte) (Batch, error) {
	out := []byte(header)
	if len(records) > 0 {
		var err error
		if out, err = Compress(c, records, header); err != nil {
			return nil, err
		}
	}
	if len(out)-LengthOverhead > math.MaxInt32 {
		return nil, fmt.Errorf("batch of %d bytes is larger than the format allows", len(out))
	}
	return seal(out), nil
}

// seal sets length and checksum of a whole batch.
func seal(b Batch) Batch {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-LengthOverhead))
	b.updateCRC()
	return b
}

// Build returns a batch of these records at consecutive offsets.
func Build(o BuilderOptions, records ...Record) (Batch, error) {
	b := NewBuilder(o)
	for _, r := range records {
		b.Append(r)
	}
	return b.Batch()
}

// appendRecord encodes one record:
//
//	length varint, attributes int8, timestamp delta varlong, offset delta varint,
//	key length varint (-1 null), key, value length varint (-1 null), value,
//	header count varint, headers: key length varint, key, value length varint, value
func appendRecord(dst []byte, r *Record, timeDelta int64, delta int32) []byte {
	size := 1 + varintSize(timeDelta) + varintSize(int64(delta)) + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		size += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	dst = slices.Grow(dst, size+binary.MaxVarintLen32)
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, int64(delta))
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
