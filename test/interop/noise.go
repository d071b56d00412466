package main

import "math/rand/v2"

// noise makes bytes, the same ones for the same seed.
type noise struct{ r *rand.ChaCha8 }

func newNoise(seed uint64) noise {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return noise{rand.NewChaCha8(key)}
}

// bytes is text that every codec compresses to about half: all is said twice.
func (n noise) bytes(size int) []byte {
	const said = 48
	b := n.random(size)
	for i := range b {
		b[i] = 'a' + b[i]&15
		if i/said%2 == 1 {
			b[i] = b[i-said]
		}
	}
	return b
}

// random is bytes that no codec makes smaller.
func (n noise) random(size int) []byte {
	b := make([]byte, size)
	_, _ = n.r.Read(b) // never fails
	return b
}
