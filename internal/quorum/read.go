package quorum

import (
	"errors"
	"io"
	"slices"
	"sort"

	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/disk"
)

func (n *Node) readCommitted(from int64, maxBytes int) ([]byte, error) {
	return n.store.readCommitted(from, maxBytes)
}

func (s *store) readCommitted(from int64, maxBytes int) ([]byte, error) {
	s.mu.RLock()
	entries, ends, hw, snap := s.entries, s.ends, s.hw, s.snap
	last := s.applied - min(s.applied, entries[0].GetIndex()) // in entries
	s.mu.RUnlock()
	if from < ends[0] {
		if from < 0 || snap == nil || snap.id.EndOffset == 0 {
			return nil, ErrOffsetOutOfRange
		}
		return nil, &SnapshotNeededError{Snapshot: snap.id}
	}
	if from > hw {
		return nil, ErrOffsetOutOfRange
	}
	entries, ends = entries[:last+1], ends[:last+1]
	i := sort.Search(len(ends), func(i int) bool { return ends[i] > from })
	j, size := i, 0
	for ; j < len(entries); j++ {
		if !isData(entries[j]) {
			continue
		}
		if n := len(entries[j].GetData()); size == 0 || size+n <= maxBytes {
			size += n
		} else {
			break
		}
	}
	b := make([]byte, 0, size)
	for _, e := range entries[i:j] {
		if isData(e) {
			b = append(b, e.GetData()...)
		}
	}
	return b, nil
}

func (n *Node) epochEnd(epoch int32) (int32, int64) { return n.store.epochEnd(epoch) }

func (s *store) epochEnd(epoch int32) (int32, int64) {
	if epoch < 0 {
		return -1, -1
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.entries), func(i int) bool { return s.entries[i].GetTerm() > uint64(epoch) }) - 1
	if i < 0 {
		return -1, -1
	}
	end := s.ends[i]
	for ; i > 0; i-- {
		if isData(s.entries[i]) {
			return int32(s.entries[i].GetTerm()), end
		}
	}
	if end == 0 {
		return -1, -1 // no records at all
	}
	if e := s.entries[0]; s.snap == nil || e.GetIndex() != s.snap.at.index {
		return int32(e.GetTerm()), end
	}
	return s.snap.id.Epoch, end
}

func (n *Node) readSnapshot(id SnapshotID, position int64, maxBytes int) ([]byte, int64, error) {
	f, size, err := n.openSnapshot(id)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // read only
	if position < 0 || position > size {
		return nil, size, ErrOffsetOutOfRange
	}
	b := make([]byte, min(int64(max(maxBytes, 0)), size-position))
	k, err := f.ReadAt(b, position)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, size, err
	}
	return b[:k], size, nil
}

// openSnapshot opens the content of a snapshot that is published.
func (n *Node) openSnapshot(id SnapshotID) (disk.File, int64, error) {
	if id.EndOffset <= 0 {
		return nil, 0, ErrSnapshotNotFound
	}
	if ok, err := disk.Exists(n.o.FS, n.snaps.base(id)+".quorum"); err != nil || !ok {
		return nil, 0, errors.Join(ErrSnapshotNotFound, err)
	}
	f, err := n.o.FS.Open(n.snaps.content(id))
	if isNotExist(err) {
		return nil, 0, ErrSnapshotNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close() // read only
		return nil, 0, err
	}
	return f, size, nil
}

// tail returns the newest snapshot, and the entries after it, committed or not,
// with the offset after the last.
func (s *store) tail() (snap *snapshot, entries []*pb.Entry, end int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := snapIndex(s.snap) - s.entries[0].GetIndex()
	return s.snap, slices.Clone(s.entries[i+1:]), s.ends[len(s.ends)-1]
}

// state returns the offsets for Status.
func (s *store) state() (start, hw, end int64, snap *snapshot) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ends[0], s.hw, s.ends[len(s.ends)-1], s.snap
}
