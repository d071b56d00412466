package wire

import (
	"fmt"
	"sort"

	"milena/internal/api"
)

// requestShape is the layout of a request from a version on, in one character a
// field:
//
//	1 2 4 8 u   a fixed number of bytes (u: 16)
//	s S         string with an int16 or a compact length, maybe null
//	b B         bytes with an int32 or a compact length, maybe null
//	[x] (x)     array of x with an int32 or a compact count, maybe null
//	{x}         struct that may be null
//	<n:x;...>   tagged fields, the known ones with their layout
//
// The empty layout says nothing: it stands behind the last version Kafka has.
type requestShape struct {
	since int16
	shape string
}

// maxElements bounds the elements of all arrays of a request together. A decoded
// element takes up to some two hundred bytes, whatever it took on the wire.
const maxElements = 1 << 20

// CheckRequest walks a request body and reports an error, which wraps ErrShort
// or ErrMalformed, if a length or a count goes beyond the bytes that are there
// or the arrays have more than about a million elements. The generated decoders
// make room for an array by its count alone, so hostile input must pass here
// first. Requests that Kafka doesn't have, those of mirroring, pass as they are:
// their decoders are ours and grow arrays as they read.
func CheckRequest(key api.Key, version int16, body []byte) error {
	shapes := requestShapes[key]
	i := sort.Search(len(shapes), func(i int) bool { return shapes[i].since > version })
	if i == 0 {
		return nil
	}
	c := shapeCheck{Reader: NewReader(body), shape: shapes[i-1].shape, left: maxElements}
	c.walk(0)
	return c.Err()
}

// shapeCheck moves over input and shape together.
type shapeCheck struct {
	Reader
	shape string
	left  int // array elements still allowed
}

// walk goes over the fields from position i of the shape to the end of their
// struct, array or tag, and returns the position of that end.
func (c *shapeCheck) walk(i int) int {
	for i < len(c.shape) {
		switch f := c.shape[i]; f {
		case '1', '2', '4', '8':
			c.Next(int(f - '0'))
		case 'u':
			c.Next(16)
		case 's', 'S':
			c.skip(c.stringLen(f == 'S'))
		case 'b', 'B':
			c.skip(c.sizeLen(f == 'B'))
		case '[', '(':
			i = c.array(i+1, c.ArrayLen(f == '('))
		case '{':
			start := i + 1
			if i = c.end(start); c.Int8() >= 0 && c.err == nil {
				c.walk(start)
			}
		case '<':
			i = c.tags(i + 1)
		default: // one of ] ) } ;
			return i
		}
		if c.err != nil {
			return len(c.shape)
		}
		i++
	}
	return i
}

// skip passes over n bytes; -1 is null.
func (c *shapeCheck) skip(n int) {
	if n != -1 {
		c.Next(n)
	}
}

// array goes over n elements whose shape begins at start, and returns the
// position of its end.
func (c *shapeCheck) array(start, n int) int {
	end := c.end(start)
	if c.left -= max(n, 0); c.left < 0 {
		c.fail(fmt.Errorf("%w: more than %d array elements", ErrMalformed, maxElements))
		return end
	}
	if end == start+1 && c.shape[start] >= '1' && c.shape[start] <= '8' {
		c.Next(max(n, 0) * int(c.shape[start]-'0'))
		return end
	}
	for ; n > 0 && c.err == nil; n-- {
		c.walk(start)
	}
	return end
}

// end returns the position of the bracket that closes the one before start.
func (c *shapeCheck) end(start int) int {
	depth := 1
	for i := start; i < len(c.shape); i++ {
		switch c.shape[i] {
		case '[', '(', '{', '<':
			depth++
		case ']', ')', '}', '>':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(c.shape)
}

// tags goes over a block of tagged fields; the known ones begin at start.
func (c *shapeCheck) tags(start int) int {
	end := c.end(start)
	for n := c.Uvarint(); n > 0 && c.err == nil; n-- {
		num := c.Uvarint()
		body := c.Next(int(c.Uvarint()))
		if c.err != nil {
			break
		}
		if at, ok := c.known(start, end, num); ok {
			outer := c.b
			c.b = body
			c.walk(at)
			if c.err == nil {
				c.b = outer
			}
		}
	}
	return end
}

// known finds the layout of tagged field num between start and end.
func (c *shapeCheck) known(start, end int, num uint32) (at int, ok bool) {
	for i := start; i < end; {
		var n uint32
		for ; c.shape[i] != ':'; i++ {
			n = n*10 + uint32(c.shape[i]-'0')
		}
		if i++; n == num {
			return i, true
		}
		for depth := 0; depth > 0 || c.shape[i] != ';'; i++ {
			switch c.shape[i] {
			case '[', '(', '{', '<':
				depth++
			case ']', ')', '}', '>':
				depth--
			}
		}
		i++
	}
	return 0, false
}
