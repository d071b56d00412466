package meta

import "unicode/utf16"

// JavaHash is Java's String.hashCode, by which keys are spread over the partitions of
// internal topics: s[0]*31^(n-1) + ... + s[n-1] over UTF-16 units.
func JavaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if hi, lo := utf16.EncodeRune(r); hi != '\uFFFD' || lo != '\uFFFD' {
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	return h
}
