package wire

import (
	"math/bits"
	"sync"
)

// Pool hands out byte buffers by size class, two classes to each power of two
// between 512 bytes and 128 MiB, so that a buffer wastes at most a third of
// itself. Buffers above the largest class are not kept. The zero Pool is ready;
// it must not be copied. All methods are for any goroutine.
type Pool struct {
	classes [poolClasses]sync.Pool
}

const (
	poolMinBits = 9  // 512 B
	poolMaxBits = 27 // 128 MiB
	poolClasses = 2*(poolMaxBits-poolMinBits) + 1
)

// Buf is a buffer of a Pool. B has the length asked for; its content is
// whatever was there before.
type Buf struct {
	B    []byte
	pool *Pool
}

// classFor returns the smallest class whose buffers hold n bytes.
func classFor(n int) int {
	if n <= 1<<poolMinBits {
		return 0
	}
	b := bits.Len(uint(n - 1)) // 2^(b-1) < n <= 2^b
	c := 2 * (b - poolMinBits)
	if n <= 3<<(b-2) {
		c--
	}
	return c
}

// classSize returns the size of the buffers of class c.
func classSize(c int) int {
	if c%2 == 0 {
		return 1 << (poolMinBits + c/2)
	}
	return 3 << (poolMinBits + c/2 - 1)
}

// Get returns a buffer of length n, which the caller must have bounded.
func (p *Pool) Get(n int) *Buf {
	c := classFor(n)
	if c >= poolClasses {
		return &Buf{B: make([]byte, n), pool: p}
	}
	if b, ok := p.classes[c].Get().(*Buf); ok {
		b.B = b.B[:n]
		return b
	}
	return &Buf{B: make([]byte, n, classSize(c)), pool: p}
}

// Release gives the buffer back. B may have been grown by append: it is kept by
// the capacity it has now. Neither b nor its bytes may be used afterwards.
// Release of nil does nothing.
func (b *Buf) Release() {
	if b == nil || b.pool == nil {
		return
	}
	n := cap(b.B)
	if n < 1<<poolMinBits {
		return
	}
	c := classFor(n)
	if c >= poolClasses {
		return
	}
	if classSize(c) > n {
		c--
	}
	b.pool.classes[c].Put(b)
}
