package partlog

import (
	"crypto/sha256"
	"encoding/binary"
)

// offsetMap maps keys to the offset of their last record, in bounded memory.
// It keeps 128 bits of a key's SHA-256 instead of the key: two keys that agree
// in them would lose one's records, and nobody can make such a pair.
type offsetMap struct {
	slots []offsetSlot
	size  int
	most  int
}

type offsetSlot struct {
	h1, h2 uint64
	next   int64 // offset + 1; 0: free
}

// slotSize is the memory of a slot in bytes.
const slotSize = 24

// newOffsetMap makes a map for want keys or as many as fit maxBytes.
func newOffsetMap(want, maxBytes int64) *offsetMap {
	most := max(maxBytes/slotSize, 16)
	n := max(min(want+want/3+16, most), 16)
	return &offsetMap{slots: make([]offsetSlot, n), most: int(n * 9 / 10)}
}

func (m *offsetMap) find(key []byte) *offsetSlot {
	sum := sha256.Sum256(key)
	h1, h2 := binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])
	for i := h1 % uint64(len(m.slots)); ; i++ {
		if i == uint64(len(m.slots)) {
			i = 0
		}
		s := &m.slots[i]
		if s.next == 0 {
			s.h1, s.h2 = h1, h2
			return s
		}
		if s.h1 == h1 && s.h2 == h2 {
			return s
		}
	}
}

// room says whether n more keys fit.
func (m *offsetMap) room(n int) bool { return m.size+n <= m.most }

// put notes that offset holds a record of key. There must be room.
func (m *offsetMap) put(key []byte, offset int64) {
	s := m.find(key)
	if s.next == 0 {
		m.size++
	}
	s.next = max(s.next, offset+1)
}

// get is the last offset noted for key, -1 if there is none.
func (m *offsetMap) get(key []byte) int64 { return m.find(key).next - 1 }

// grow makes room for n more keys, beyond the bound: a single batch must fit.
func (m *offsetMap) grow(n int) {
	old := m.slots
	m.slots = make([]offsetSlot, (m.size+n)*4/3+16)
	m.most = len(m.slots) * 9 / 10
	for _, s := range old {
		if s.next == 0 {
			continue
		}
		for i := s.h1 % uint64(len(m.slots)); ; i = (i + 1) % uint64(len(m.slots)) {
			if m.slots[i].next == 0 {
				m.slots[i] = s
				break
			}
		}
	}
}
