package group

import "math"

// PartitionOf returns the partition of __consumer_offsets that a group belongs
// to: the absolute value of its id's hash, as Java computes it, modulo the
// number of partitions.
func PartitionOf(group string, partitions int32) int32 {
	h := javaHash(group)
	switch {
	case h == math.MinInt32:
		h = 0
	case h < 0:
		h = -h
	}
	return h % partitions
}

// javaHash is Java's String.hashCode: over the UTF-16 form.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xd800 + r>>10
			h = 31*h + 0xdc00 + r&0x3ff
			continue
		}
		h = 31*h + r
	}
	return h
}

// javaLength is Java's String.length: in UTF-16 units.
func javaLength(s string) int {
	n := 0
	for _, r := range s {
		if n++; r >= 0x10000 {
			n++
		}
	}
	return n
}
