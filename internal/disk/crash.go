package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash loses power: bytes without Sync and names without SyncDir are gone, open
// handles fail, locks are free.
func (m *Mem) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.become(m.root.afterCrash(nil, map[*node]*node{}))
}

// CrashTorn is Crash on a disk that had begun to write: of each file's and
// directory's unsynced changes a random number, oldest first, is kept, and of the
// write after those a random part; what is missing of it may be there as zeros,
// as when a length reached the disk before the data.
func (m *Mem) CrashTorn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.become(m.root.afterCrash(m.rnd, map[*node]*node{}))
}

// CrashClone returns what the disk would hold after Crash, or after CrashTorn with
// a seed, and leaves m as it is.
func (m *Mem) CrashClone(torn bool, seed uint64) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := NewMem(seed)
	c.capacity = m.capacity
	var rnd *rand.Rand
	if torn {
		rnd = c.rnd
	}
	c.become(m.root.afterCrash(rnd, map[*node]*node{}))
	return c
}

func (m *Mem) become(root *node) {
	m.root = root
	m.gen++
	m.used = root.bytes()
	m.locks = map[string]bool{}
}

// afterCrash copies a node as it is found after a crash; with rnd, after a torn one.
// seen maps what was copied already, for a node with two names.
func (n *node) afterCrash(rnd *rand.Rand, seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir, mode: n.mode, modTime: n.modTime}
	seen[n] = c
	if !n.dir {
		c.data = n.dataAfterCrash(rnd)
		return c
	}
	names := maps.Clone(n.durable)
	if rnd != nil {
		for _, change := range n.pending[:rnd.IntN(len(n.pending)+1)] {
			for name, child := range change {
				if child == nil {
					delete(names, name)
				} else {
					names[name] = child
				}
			}
		}
	}
	c.entries = make(map[string]*node, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) { // in order, for the seed's sake
		c.entries[name] = names[name].afterCrash(rnd, seen)
	}
	c.durable = maps.Clone(c.entries)
	return c
}

func (n *node) dataAfterCrash(rnd *rand.Rand) []byte {
	data := slices.Clone(n.data)
	keep := 0
	if rnd != nil {
		keep = rnd.IntN(len(n.undo) + 1)
	}
	for i := len(n.undo) - 1; i >= keep; i-- {
		u := &n.undo[i]
		var written []byte
		if !u.truncate {
			written = slices.Clone(data[u.off : int(u.off)+u.n])
		}
		data = u.revert(data)
		if rnd != nil && i == keep && len(written) > 0 {
			data = tear(data, written, int(u.off), rnd)
		}
	}
	return data
}

func (u *fileChange) revert(data []byte) []byte {
	if u.oldSize > len(data) {
		data = growTo(data, u.oldSize)
	}
	data = data[:u.oldSize]
	copy(data[min(int(u.off), len(data)):], u.old)
	return data
}

// tear writes a random part of p, from its start, at off.
func tear(data, p []byte, off int, rnd *rand.Rand) []byte {
	n := rnd.IntN(len(p))
	zeros := rnd.IntN(4) == 0
	if end := off + n; end > len(data) && n > 0 {
		data = growTo(data, end)
	}
	if n > 0 {
		copy(data[off:], p[:n])
	}
	if end := off + len(p); zeros && end > len(data) {
		data = growTo(data, end)
	}
	return data
}

// Kill ends the process that uses the disk, not the machine: what was written stays, open handles fail, locks are free.
func (m *Mem) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gen++
	m.locks = map[string]bool{}
}
