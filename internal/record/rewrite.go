package record

import "encoding/binary"

// FilterOptions steer Rewriter.Filter.
type FilterOptions struct {
	Limit         int64        // decompressed bytes; 0 is DefaultLimit
	RetainEmpty   bool         // when no record is kept, keep the header alone
	DeleteHorizon *int64       // ms; set it unless the batch has one (KIP-534)
	Compression   *Compression // nil: the batch's own codec at its default level
}

// FilterResult is what Filter made of a batch.
type FilterResult struct {
	Batch     Batch // nil: nothing is left
	Kept      int
	Removed   int
	Rewritten bool // false: Batch is the input itself
}

// Rewriter rewrites batches, reusing memory from one to the next. One goroutine
// uses it at a time. The zero value is ready.
type Rewriter struct {
	reader Reader
	out    []byte
}

// Filter keeps those of a batch's records for which keep returns true. keep gets them
// without headers and must not retain them. Base and last offset, epoch, timestamp type and the producer's
// fields stay as they are: who reads the log must see the same offsets and
// sequences as before. The max timestamp becomes that of the records kept. An
// empty batch that is retained keeps its own and has no delete horizon.
//
// A record's bytes are relative to base offset and base timestamp, which stay, so
// kept records are copied as they are, except when a delete horizon takes the base
// timestamp's place.
func (w *Rewriter) Filter(b Batch, keep func(Record) bool, o FilterOptions) (FilterResult, error) {
	r := &w.reader
	r.ReuseMemory, r.SkipHeaders = true, true
	if err := r.Reset(b, o.Limit); err != nil {
		return FilterResult{}, err
	}
	_, hasHorizon := b.DeleteHorizon()
	rebase := o.DeleteHorizon != nil && !hasHorizon
	newBase := b.BaseTimestamp()
	if rebase {
		newBase = *o.DeleteHorizon
	}
	var res FilterResult
	maxTime := NoTimestamp
	w.out = w.out[:0]
	var rec Record
	for {
		ok, err := r.Next(&rec)
		if err != nil {
			return FilterResult{}, err
		}
		if !ok {
			break
		}
		if !keep(rec) {
			if res.Removed == 0 && !rebase {
				w.out = append(w.out, r.payload[:r.start]...) // all before were kept
			}
			res.Removed++
			continue
		}
		if res.Kept == 0 || rec.Timestamp > maxTime {
			maxTime = rec.Timestamp
		}
		res.Kept++
		switch {
		case rebase:
			// Not rec.Timestamp, which with LogAppendTime is the batch's.
			timestamp := b.BaseTimestamp() + r.timeDelta
			w.out = appendRebased(w.out, timestamp-newBase, r.delta, r.payload[r.tail:r.pos])
		case res.Removed > 0:
			w.out = append(w.out, r.payload[r.start:r.pos]...)
		}
	}
	codec := Compression{Codec: b.Codec()}
	if o.Compression != nil {
		codec = *o.Compression
	}
	empty := res.Kept == 0
	switch {
	case empty && !o.RetainEmpty:
		return res, nil
	case res.Removed == 0 && (empty || !rebase && codec.Codec == b.Codec()):
		res.Batch = b
		return res, nil
	}
	records := w.out
	if res.Removed == 0 && !rebase {
		records = r.payload
	}
	header := make(Batch, HeaderSize, HeaderSize+len(records))
	copy(header, b)
	attrs := b.Attributes() &^ (attrCodec | attrDeleteHorizon)
	switch {
	case empty:
		newBase = b.MaxTimestamp()
		maxTime = newBase
	default:
		attrs |= int16(codec.Codec)
		if hasHorizon || rebase {
			attrs |= attrDeleteHorizon
		}
		if b.TimestampType() == LogAppendTime {
			maxTime = b.MaxTimestamp()
		}
	}
	binary.BigEndian.PutUint16(header[posAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(header[posBaseTime:], uint64(newBase))
	binary.BigEndian.PutUint64(header[posMaxTime:], uint64(maxTime))
	binary.BigEndian.PutUint32(header[posCount:], uint32(res.Kept))
	var err error
	res.Batch, err = finish(header, codec, records)
	res.Rewritten = true
	return res, err
}

// appendRebased encodes a record from its new deltas and its old bytes from the key
// length on.
func appendRebased(dst []byte, timeDelta int64, delta int32, tail []byte) []byte {
	dst = binary.AppendVarint(dst, int64(1+varintSize(timeDelta)+varintSize(int64(delta))+len(tail)))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, int64(delta))
	return append(dst, tail...)
}

// Recompress returns the batch with its records compressed in another way. All
// other properties stay. A batch without records, or with that codec already, is
// returned itself.
func (w *Rewriter) Recompress(b Batch, c Compression, limit int64) (Batch, error) {
	if b.Count() == 0 || b.Codec() == c.Codec {
		return b, nil
	}
	r := &w.reader
	r.ReuseMemory = true
	if err := r.Reset(b, limit); err != nil {
		return nil, err
	}
	header := make(Batch, HeaderSize, HeaderSize+len(r.payload))
	copy(header, b)
	attrs := b.Attributes()&^attrCodec | int16(c.Codec)
	binary.BigEndian.PutUint16(header[posAttributes:], uint16(attrs))
	return finish(header, c, r.payload)
}

// Filter is Rewriter.Filter with fresh memory.
func (b Batch) Filter(keep func(Record) bool, o FilterOptions) (FilterResult, error) {
	var w Rewriter
	return w.Filter(b, keep, o)
}

// Recompress is Rewriter.Recompress with fresh memory.
func (b Batch) Recompress(c Compression, limit int64) (Batch, error) {
	var w Rewriter
	return w.Recompress(b, c, limit)
}
