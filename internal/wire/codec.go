package wire

import (
	"fmt"
	"math"

	"milena/internal/ids"
)

// Codec visits the fields of a message in order, either writing or reading
// them. One walk function describes a message for both directions:
//
//	func (m *Thing) walk(c *wire.Codec) {
//		c.String(&m.Name)
//		wire.Array(c, &m.Parts, (*Part).walk)
//		c.Tags(wire.Tag(0, m.Offset != -1, func(c *wire.Codec) { c.Int64(&m.Offset) }))
//	}
//
// A walk sets the defaults of its fields before it reads, if they are not zero
// values: fields of other versions and absent tags are left alone. A walk may
// branch on Version. A Codec serves one goroutine.
type Codec struct {
	// Version is the message's version.
	Version int16
	// Flexible chooses compact lengths and tagged fields (KIP-482).
	Flexible bool

	encoding bool
	w        []byte
	r        Reader
	err      error // of encoding; r has its own
}

// NewEncoder returns a Codec that appends to dst.
func NewEncoder(dst []byte, version int16, flexible bool) *Codec {
	return &Codec{Version: version, Flexible: flexible, encoding: true, w: dst}
}

// NewDecoder returns a Codec that reads src.
func NewDecoder(src []byte, version int16, flexible bool) *Codec {
	return &Codec{Version: version, Flexible: flexible, r: NewReader(src)}
}

// Encoding reports whether the Codec writes.
func (c *Codec) Encoding() bool { return c.encoding }

// Err returns the first error.
func (c *Codec) Err() error {
	if c.encoding {
		return c.err
	}
	return c.r.Err()
}

// Encoded returns dst with the message appended.
func (c *Codec) Encoded() []byte { return c.w }

// Rest returns the input that was not read.
func (c *Codec) Rest() []byte { return c.r.Rest() }

// Fail records an error of the walk itself, such as a value that makes no
// sense. On reading it should wrap [ErrMalformed].
func (c *Codec) Fail(err error) {
	if !c.encoding {
		c.r.fail(err)
	} else if c.err == nil {
		c.err = err
	}
}

// Bool visits a boolean.
func (c *Codec) Bool(v *bool) {
	if c.encoding {
		c.w = AppendBool(c.w, *v)
	} else {
		*v = c.r.Bool()
	}
}

// Int8 visits an int8.
func (c *Codec) Int8(v *int8) {
	if c.encoding {
		c.w = AppendInt8(c.w, *v)
	} else {
		*v = c.r.Int8()
	}
}

// Int16 visits an int16.
func (c *Codec) Int16(v *int16) {
	if c.encoding {
		c.w = AppendInt16(c.w, *v)
	} else {
		*v = c.r.Int16()
	}
}

// Uint16 visits a uint16.
func (c *Codec) Uint16(v *uint16) {
	if c.encoding {
		c.w = AppendInt16(c.w, int16(*v))
	} else {
		*v = c.r.Uint16()
	}
}

// Int32 visits an int32.
func (c *Codec) Int32(v *int32) {
	if c.encoding {
		c.w = AppendInt32(c.w, *v)
	} else {
		*v = c.r.Int32()
	}
}

// Int64 visits an int64.
func (c *Codec) Int64(v *int64) {
	if c.encoding {
		c.w = AppendInt64(c.w, *v)
	} else {
		*v = c.r.Int64()
	}
}

// Float64 visits a float64.
func (c *Codec) Float64(v *float64) {
	if c.encoding {
		c.w = AppendInt64(c.w, int64(math.Float64bits(*v)))
	} else {
		*v = c.r.Float64()
	}
}

// Uvarint visits an unsigned varint of 32 bits.
func (c *Codec) Uvarint(v *uint32) {
	if c.encoding {
		c.w = AppendUvarint(c.w, *v)
	} else {
		*v = c.r.Uvarint()
	}
}

// Varint visits a zigzag varint of 32 bits.
func (c *Codec) Varint(v *int32) {
	if c.encoding {
		c.w = AppendVarint(c.w, *v)
	} else {
		*v = c.r.Varint()
	}
}

// Varlong visits a zigzag varint of 64 bits.
func (c *Codec) Varlong(v *int64) {
	if c.encoding {
		c.w = AppendVarlong(c.w, *v)
	} else {
		*v = c.r.Varlong()
	}
}

// UUID visits an id.
func (c *Codec) UUID(v *ids.UUID) {
	if c.encoding {
		c.w = append(c.w, v[:]...)
	} else {
		*v = c.r.UUID()
	}
}

// String visits a string that is never null.
func (c *Codec) String(v *string) {
	if !c.encoding {
		*v = c.r.String(c.Flexible)
		return
	}
	if c.fits(len(*v)) {
		c.w = AppendString(c.w, *v, c.Flexible)
	}
}

// NullableString visits a string, nil for null.
func (c *Codec) NullableString(v **string) {
	if !c.encoding {
		*v = c.r.NullableString(c.Flexible)
		return
	}
	if *v == nil || c.fits(len(**v)) {
		c.w = AppendNullableString(c.w, *v, c.Flexible)
	}
}

// fits reports whether a string of n bytes can be written.
func (c *Codec) fits(n int) bool {
	if n > math.MaxInt16 {
		c.Fail(fmt.Errorf("a string of %d bytes is longer than the %d the protocol allows", n, math.MaxInt16))
		return false
	}
	return true
}

// Bytes visits bytes that are never null; nil is written as empty. What is
// read aliases the input.
func (c *Codec) Bytes(v *[]byte) {
	if c.encoding {
		c.w = AppendBytes(c.w, *v, c.Flexible)
	} else {
		*v = c.r.Bytes(c.Flexible)
	}
}

// NullableBytes visits bytes, nil for null. What is read aliases the input.
func (c *Codec) NullableBytes(v *[]byte) {
	if c.encoding {
		c.w = AppendNullableBytes(c.w, *v, c.Flexible)
	} else {
		*v = c.r.NullableBytes(c.Flexible)
	}
}

// Array visits an array that is never null, calling walk for each element.
// Reading an empty array gives nil.
func Array[T any](c *Codec, v *[]T, walk func(c *Codec, e *T)) {
	array(c, v, walk, false)
}

// NullableArray visits an array, nil for null. Reading an empty array gives a
// slice that is not nil.
func NullableArray[T any](c *Codec, v *[]T, walk func(c *Codec, e *T)) {
	array(c, v, walk, true)
}

func array[T any](c *Codec, v *[]T, walk func(c *Codec, e *T), nullable bool) {
	if c.encoding {
		n := len(*v)
		if nullable && *v == nil {
			n = -1
		}
		c.w = AppendArrayLen(c.w, n, c.Flexible)
		for i := range *v {
			walk(c, &(*v)[i])
		}
		return
	}
	*v = nil
	n := c.r.ArrayLen(c.Flexible)
	switch {
	case c.r.err != nil:
		return
	case n == -1:
		if !nullable {
			c.r.fail(fmt.Errorf("%w: null where an array is required", ErrMalformed))
		}
		return
	case n == 0:
		if nullable {
			*v = []T{}
		}
		return
	}
	// The count is only a claim until the elements have been read, so room is
	// made for few at first.
	const firstRoom = 16
	out := make([]T, 0, min(n, firstRoom))
	for range n {
		var e T
		out = append(out, e)
		walk(c, &out[len(out)-1])
		if c.r.err != nil {
			return
		}
	}
	*v = out
}

// Int32s visits an array of int32 that is never null.
func (c *Codec) Int32s(v *[]int32) { Array(c, v, (*Codec).Int32) }

// Int64s visits an array of int64 that is never null.
func (c *Codec) Int64s(v *[]int64) { Array(c, v, (*Codec).Int64) }

// Strings visits an array of strings that is never null.
func (c *Codec) Strings(v *[]string) { Array(c, v, (*Codec).String) }

// UUIDs visits an array of ids that is never null.
func (c *Codec) UUIDs(v *[]ids.UUID) { Array(c, v, (*Codec).UUID) }

// Struct visits a struct that may be null: an int8 says whether it is there (1)
// or not (-1), and walk visits it.
func Struct[T any](c *Codec, v **T, walk func(c *Codec, e *T)) {
	if c.encoding {
		if *v == nil {
			c.w = AppendInt8(c.w, -1)
			return
		}
		c.w = AppendInt8(c.w, 1)
		walk(c, *v)
		return
	}
	*v = nil
	if c.r.Int8() < 0 || c.r.err != nil {
		return
	}
	*v = new(T)
	walk(c, *v)
}

// TaggedField is one known tagged field; make it with [Tag].
type TaggedField struct {
	num  uint32
	set  bool
	walk func(c *Codec)
}

// Tag describes a tagged field: its number, whether it is to be written (it
// differs from its default), and the walk of its value.
func Tag(num uint32, set bool, walk func(c *Codec)) TaggedField {
	return TaggedField{num: num, set: set, walk: walk}
}

// Tags visits the tagged fields at the end of a struct. Known ones are given
// in order of their numbers; unknown ones are dropped on reading. Does nothing
// if the message isn't flexible.
func (c *Codec) Tags(known ...TaggedField) {
	if !c.Flexible {
		return
	}
	if c.encoding {
		c.writeTags(known)
		return
	}
	last := int64(-1)
	for n := c.r.Uvarint(); n > 0 && c.r.err == nil; n-- {
		num := c.r.Uvarint()
		body := c.r.Next(int(c.r.Uvarint()))
		if c.r.err != nil {
			return
		}
		if int64(num) <= last {
			c.r.fail(fmt.Errorf("%w: tagged field %d comes after %d", ErrMalformed, num, last))
			return
		}
		last = int64(num)
		c.readTag(num, body, known)
	}
}

func (c *Codec) readTag(num uint32, body []byte, known []TaggedField) {
	for _, t := range known {
		if t.num != num {
			continue
		}
		outer := c.r
		c.r = NewReader(body)
		t.walk(c)
		inner := c.r
		c.r = outer
		if inner.err != nil {
			c.r.fail(fmt.Errorf("tagged field %d: %w", num, inner.err))
		} else if inner.Len() > 0 {
			c.r.fail(fmt.Errorf("%w: tagged field %d has %d bytes too many", ErrMalformed, num, inner.Len()))
		}
		return
	}
}

func (c *Codec) writeTags(known []TaggedField) {
	var n uint32
	for _, t := range known {
		if t.set {
			n++
		}
	}
	c.w = AppendUvarint(c.w, n)
	for _, t := range known {
		if !t.set {
			continue
		}
		c.w = AppendUvarint(c.w, t.num)
		start := len(c.w)
		t.walk(c)
		size := uint32(len(c.w) - start)
		var room [5]byte
		w := UvarintLen(size)
		c.w = append(c.w, room[:w]...)
		copy(c.w[start+w:], c.w[start:start+int(size)])
		AppendUvarint(c.w[:start], size)
	}
}
