package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"milena/internal/ids"
)

// ErrShort says that the input ended before the message did.
var ErrShort = errors.New("input ends before the message does")

// ErrMalformed says that a field has a value the protocol doesn't allow.
var ErrMalformed = errors.New("malformed message")

// Reader takes values off the front of a byte slice. After the first error
// all methods return zero values; ask [Reader.Err] at the end. The zero Reader
// is one over no input.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a Reader of b.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Err returns the first error: ErrShort or one that wraps ErrMalformed.
func (r *Reader) Err() error { return r.err }

// Rest returns what was not read yet, nil after an error.
func (r *Reader) Rest() []byte {
	if r.err != nil {
		return nil
	}
	return r.b
}

// Len returns the number of bytes not read yet.
func (r *Reader) Len() int { return len(r.b) }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// Next takes n bytes and returns them without a copy; nil if there aren't as
// many, or n is negative.
func (r *Reader) Next(n int) []byte {
	if n < 0 || n > len(r.b) {
		if n < 0 {
			r.fail(fmt.Errorf("%w: negative length %d", ErrMalformed, n))
		} else {
			r.fail(ErrShort)
		}
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// Int8 takes an int8.
func (r *Reader) Int8() int8 {
	if len(r.b) < 1 {
		r.fail(ErrShort)
		return 0
	}
	v := int8(r.b[0])
	r.b = r.b[1:]
	return v
}

// Bool takes a boolean; any byte but zero is true.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int16 takes a big-endian int16.
func (r *Reader) Int16() int16 {
	if len(r.b) < 2 {
		r.fail(ErrShort)
		return 0
	}
	v := int16(binary.BigEndian.Uint16(r.b))
	r.b = r.b[2:]
	return v
}

// Uint16 takes a big-endian uint16.
func (r *Reader) Uint16() uint16 { return uint16(r.Int16()) }

// Int32 takes a big-endian int32.
func (r *Reader) Int32() int32 {
	if len(r.b) < 4 {
		r.fail(ErrShort)
		return 0
	}
	v := int32(binary.BigEndian.Uint32(r.b))
	r.b = r.b[4:]
	return v
}

// Uint32 takes a big-endian uint32.
func (r *Reader) Uint32() uint32 { return uint32(r.Int32()) }

// Int64 takes a big-endian int64.
func (r *Reader) Int64() int64 {
	if len(r.b) < 8 {
		r.fail(ErrShort)
		return 0
	}
	v := int64(binary.BigEndian.Uint64(r.b))
	r.b = r.b[8:]
	return v
}

// Float64 takes a big-endian float64.
func (r *Reader) Float64() float64 { return math.Float64frombits(uint64(r.Int64())) }

// UUID takes 16 bytes.
func (r *Reader) UUID() (u ids.UUID) {
	copy(u[:], r.Next(len(u)))
	return u
}

// Uvarint takes an unsigned varint of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	v := r.uvarint(5)
	if v > math.MaxUint32 {
		r.fail(fmt.Errorf("%w: varint above 32 bits", ErrMalformed))
		return 0
	}
	return uint32(v)
}

// Varint takes a zigzag varint of at most 32 bits.
func (r *Reader) Varint() int32 {
	u := r.Uvarint()
	return int32(u>>1) ^ -int32(u&1)
}

// Varlong takes a zigzag varint of at most 64 bits.
func (r *Reader) Varlong() int64 {
	u := r.uvarint(10)
	return int64(u>>1) ^ -int64(u&1)
}

// uvarint takes an unsigned varint of at most limit bytes.
func (r *Reader) uvarint(limit int) uint64 {
	var v uint64
	for i := range limit {
		if i >= len(r.b) {
			r.fail(ErrShort)
			return 0
		}
		c := r.b[i]
		if i == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.b = r.b[i+1:]
			return v
		}
	}
	r.fail(fmt.Errorf("%w: varint of more than %d bytes", ErrMalformed, limit))
	return 0
}

// length takes the length of a string (int16 if not flexible), -1 for null.
func (r *Reader) stringLen(flexible bool) int {
	if flexible {
		return r.compactLen()
	}
	return int(r.Int16())
}

// sizeLen takes the length of bytes or the count of an array, -1 for null.
func (r *Reader) sizeLen(flexible bool) int {
	if flexible {
		return r.compactLen()
	}
	return int(r.Int32())
}

func (r *Reader) compactLen() int {
	v := r.Uvarint()
	if r.err != nil {
		return -1
	}
	if v > math.MaxInt32 {
		r.fail(ErrShort)
		return -1
	}
	return int(v) - 1
}

// String takes a string that may not be null.
func (r *Reader) String(flexible bool) string {
	s, null := r.text(flexible)
	if null && r.err == nil {
		r.fail(fmt.Errorf("%w: null where a string is required", ErrMalformed))
	}
	return s
}

// NullableString takes a string, nil for null.
func (r *Reader) NullableString(flexible bool) *string {
	s, null := r.text(flexible)
	if null || r.err != nil {
		return nil
	}
	return &s
}

func (r *Reader) text(flexible bool) (s string, null bool) {
	n := r.stringLen(flexible)
	if n == -1 {
		return "", true
	}
	b := r.Next(n)
	if !utf8.Valid(b) {
		r.fail(fmt.Errorf("%w: a string is not UTF-8", ErrMalformed))
		return "", false
	}
	return string(b), false
}

// Bytes takes bytes that may not be null. They alias the input.
func (r *Reader) Bytes(flexible bool) []byte {
	b, null := r.blob(flexible)
	if null && r.err == nil {
		r.fail(fmt.Errorf("%w: null where bytes are required", ErrMalformed))
	}
	return b
}

// NullableBytes takes bytes, nil for null. They alias the input.
func (r *Reader) NullableBytes(flexible bool) []byte {
	b, _ := r.blob(flexible)
	return b
}

func (r *Reader) blob(flexible bool) (b []byte, null bool) {
	n := r.sizeLen(flexible)
	if n == -1 {
		return nil, true
	}
	return r.Next(n), false
}

// ArrayLen takes the count of an array, -1 for null. A count above the number
// of bytes left is ErrShort, since every element has at least one byte.
func (r *Reader) ArrayLen(flexible bool) int {
	n := r.sizeLen(flexible)
	switch {
	case r.err != nil:
		return 0
	case n < -1:
		r.fail(fmt.Errorf("%w: negative count %d", ErrMalformed, n))
		return 0
	case n > len(r.b):
		r.fail(ErrShort)
		return 0
	}
	return n
}

// SkipTags takes a block of tagged fields and drops them.
func (r *Reader) SkipTags() {
	for n := r.Uvarint(); n > 0 && r.err == nil; n-- {
		r.Uvarint()
		r.Next(int(r.Uvarint()))
	}
}
