package record

import (
	"fmt"
	"iter"
	"math"
	"slices"
)

// Header is one record header. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. Key and Value are nil for null; they alias the batch's
// bytes, or the memory that those were decompressed into.
type Record struct {
	Offset    int64
	Timestamp int64 // ms
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Clone returns a record that shares no memory with r.
func (r Record) Clone() Record {
	r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	headers := slices.Clone(r.Headers)
	for i := range headers {
		headers[i].Value = slices.Clone(headers[i].Value)
	}
	r.Headers = headers
	return r
}

// Records iterates over the batch's records. What it yields stays valid as long as
// the batch's bytes do. limit bounds the decompressed bytes (0: DefaultLimit). An
// error ends the iteration; it wraps ErrInvalid, ErrTooLarge or ErrCodec.
func (b Batch) Records(limit int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var r Reader
		if err := r.Reset(b, limit); err != nil {
			yield(Record{}, err)
			return
		}
		var rec Record
		for {
			ok, err := r.Next(&rec)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !ok || !yield(rec, nil) {
				return
			}
		}
	}
}

// Reader iterates over records like Batch.Records. Used for many batches with
// ReuseMemory set it decompresses into the same memory each time.
type Reader struct {
	// ReuseMemory lets Reset overwrite what the records of the batch before alias.
	ReuseMemory bool
	// SkipHeaders leaves Record.Headers nil. Headers are checked all the same, but
	// take no memory: built, they can take 20 times their bytes in the batch.
	SkipHeaders bool

	batch   Batch
	scratch []byte // decompressed records
	payload []byte // what is iterated
	start   int    // of the record that Next returned last
	tail    int    // of its part from the key length on
	pos     int    // behind it
	index   int32  // of the record that Next returns next
	delta   int32  // offset delta of the one that Next returned last

	timeDelta int64 // of that one, as it stands in the batch

	baseOffset, baseTime int64
	appendTime           int64 // with logAppend: each record's timestamp
	logAppend            bool

	block   []Header // that headers are cut from
	headers []Header // rest of it
	last    []Header // of the record before, whose key strings serve again
}

// Reset starts on another batch.
func (r *Reader) Reset(b Batch, limit int64) error {
	if !r.ReuseMemory {
		r.scratch, r.block = nil, nil
	}
	r.headers = r.block
	r.last = nil
	payload, err := Decompress(b.Codec(), b[HeaderSize:], r.scratch, limit)
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	if b.Codec() != None {
		r.scratch = payload
	}
	r.batch, r.payload = b, payload
	r.start, r.pos, r.index, r.delta = 0, 0, 0, -1
	r.baseOffset, r.baseTime = b.BaseOffset(), b.BaseTimestamp()
	r.appendTime, r.logAppend = b.MaxTimestamp(), b.TimestampType() == LogAppendTime
	return nil
}

// Next reads the next record into rec. It is false after the last one; that there
// are exactly as many as the batch says is part of what is checked.
func (r *Reader) Next(rec *Record) (bool, error) {
	if r.index >= r.batch.Count() {
		if r.pos != len(r.payload) {
			return false, r.errorf("%d bytes follow the last record", len(r.payload)-r.pos)
		}
		return false, nil
	}
	d := decoder{buf: r.payload, pos: r.pos}
	size := d.varint()
	if d.bad || size < 0 || int64(size) > int64(len(r.payload)-d.pos) {
		return false, r.errorf("record length %d does not fit the %d bytes left", size, len(r.payload)-d.pos)
	}
	end := d.pos + int(size)
	d.buf = r.payload[:end]
	d.skip(1) // attributes: none are defined
	timeDelta := d.varlong()
	delta := d.varint()
	tail := d.pos
	key := d.bytes()
	value := d.bytes()
	headers := r.readHeaders(&d)
	if d.bad || d.pos != end {
		return false, r.errorf("fields don't fit the record's %d bytes", size)
	}
	if delta <= r.delta || delta > r.batch.LastOffsetDelta() {
		return false, r.errorf("offset delta %d after %d, with %d the batch's last", delta, r.delta, r.batch.LastOffsetDelta())
	}
	rec.Offset = r.baseOffset + int64(delta)
	rec.Timestamp = r.baseTime + timeDelta
	if r.logAppend {
		rec.Timestamp = r.appendTime
	}
	rec.Key, rec.Value, rec.Headers = key, value, headers
	r.start, r.tail, r.pos = r.pos, tail, end
	r.delta, r.timeDelta = delta, timeDelta
	r.index++
	return true, nil
}

func (r *Reader) errorf(format string, args ...any) error {
	return fmt.Errorf("%w: batch at offset %d, record %d: %s", ErrInvalid, r.batch.BaseOffset(), r.index, fmt.Sprintf(format, args...))
}

func (r *Reader) readHeaders(d *decoder) []Header {
	n := int(d.varint())
	if n == 0 {
		return nil
	}
	if d.bad || n < 0 || n > (len(d.buf)-d.pos)/2 { // a header has two lengths
		d.bad = true
		return nil
	}
	var out []Header
	if !r.SkipHeaders {
		if cap(r.headers) < n {
			size := min(64, n*int(r.batch.Count()-r.index)) // the records to come are mostly alike
			r.block = make([]Header, max(n, size, 2*len(r.block)))
			r.headers = r.block
		}
		out, r.headers = r.headers[:n:n], r.headers[n:]
	}
	for i := range n {
		key := d.bytes()
		value := d.bytes()
		if d.bad || key == nil { // a header's key can't be null
			d.bad = true
			return nil
		}
		if out == nil {
			continue
		}
		// Records of a batch mostly have the same header names: take those of
		// the record before instead of new strings.
		if i < len(r.last) && r.last[i].Key == string(key) {
			out[i] = Header{Key: r.last[i].Key, Value: value}
		} else {
			out[i] = Header{Key: string(key), Value: value}
		}
	}
	r.last = out
	return out
}

// decoder reads varints and bytes. After a failure it sets bad and returns zeros.
type decoder struct {
	buf []byte
	pos int
	bad bool
}

func (d *decoder) skip(n int) {
	if n > len(d.buf)-d.pos {
		d.bad = true
		return
	}
	d.pos += n
}

// varint reads a zigzag varint of 32 bits.
func (d *decoder) varint() int32 {
	v := d.varlong()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.bad = true
		return 0
	}
	return int32(v)
}

// varlong reads a zigzag varint of 64 bits.
func (d *decoder) varlong() int64 {
	if d.pos < len(d.buf) && d.buf[d.pos] < 0x80 { // most are one byte
		u := uint64(d.buf[d.pos])
		d.pos++
		return int64(u>>1) ^ -int64(u&1)
	}
	var u uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if d.pos >= len(d.buf) {
			break
		}
		c := d.buf[d.pos]
		d.pos++
		if shift == 63 && c > 1 {
			break
		}
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	d.bad = true
	return 0
}

// bytes reads a length and that many bytes; nil for length -1.
func (d *decoder) bytes() []byte {
	n := d.varint()
	if n == -1 || d.bad {
		return nil
	}
	if n < 0 || int64(n) > int64(len(d.buf)-d.pos) {
		d.bad = true
		return nil
	}
	b := d.buf[d.pos : d.pos+int(n) : d.pos+int(n)]
	d.pos += int(n)
	return b
}
