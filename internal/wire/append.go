package wire

import (
	"encoding/binary"
)

// AppendBool appends a boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendInt8 appends an int8.
func AppendInt8(dst []byte, v int8) []byte { return append(dst, byte(v)) }

// AppendInt16 appends a big-endian int16.
func AppendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }

// AppendInt32 appends a big-endian int32.
func AppendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

// AppendInt64 appends a big-endian int64.
func AppendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

// AppendUvarint appends an unsigned varint.
func AppendUvarint(dst []byte, v uint32) []byte { return binary.AppendUvarint(dst, uint64(v)) }

// AppendVarint appends a zigzag varint of 32 bits.
func AppendVarint(dst []byte, v int32) []byte { return binary.AppendVarint(dst, int64(v)) }

// AppendVarlong appends a zigzag varint of 64 bits.
func AppendVarlong(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

// AppendString appends a string.
func AppendString(dst []byte, s string, flexible bool) []byte {
	if flexible {
		dst = AppendUvarint(dst, uint32(len(s))+1)
	} else {
		dst = AppendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

// AppendNullableString appends a string or null.
func AppendNullableString(dst []byte, s *string, flexible bool) []byte {
	switch {
	case s != nil:
		return AppendString(dst, *s, flexible)
	case flexible:
		return append(dst, 0)
	}
	return AppendInt16(dst, -1)
}

// AppendBytes appends bytes; nil is written as empty.
func AppendBytes(dst, b []byte, flexible bool) []byte {
	return append(AppendArrayLen(dst, len(b), flexible), b...)
}

// AppendNullableBytes appends bytes, or null for nil.
func AppendNullableBytes(dst, b []byte, flexible bool) []byte {
	if b == nil {
		return AppendArrayLen(dst, -1, flexible)
	}
	return AppendBytes(dst, b, flexible)
}

// AppendArrayLen appends the count of an array or the length of bytes, -1 for
// null.
func AppendArrayLen(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return AppendUvarint(dst, uint32(n+1))
	}
	return AppendInt32(dst, int32(n))
}

// UvarintLen returns how many bytes AppendUvarint takes for v.
func UvarintLen(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
