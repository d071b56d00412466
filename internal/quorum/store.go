package quorum

import (
	"fmt"
	"sort"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/record"
)

// store is the raft log in memory: raft's Storage, and the readers' view by
// metadata offset. It holds what is durable. Written by the run goroutine only,
// read by all.
type store struct {
	mu sync.RWMutex
	// entries[0] is a dummy with the position before the first entry that is held.
	// Entries are immutable.
	entries []*pb.Entry
	// ends[i] is the metadata offset after entries[i].
	ends    []int64
	snap    *snapshot // the newest; nil before a waiting voter was added
	applied uint64    // committed and applied index
	hw      int64     // metadata offset after applied
	stale   bool      // snap doesn't know a voter: it can't be sent
	hard    *pb.HardState
}

var _ raft.Storage = (*store)(nil)

// newStore joins a recovered log and the newest snapshot.
func newStore(rec *recovered, snap *snapshot) (*store, error) {
	s := &store{snap: snap, hard: rec.hard}
	base, end := position{}, int64(0)
	if snap != nil {
		base, end = snap.at, snap.id.EndOffset
	}
	entries := rec.entries
	if n := len(entries); n > 0 {
		first, last := entries[0].GetIndex(), entries[n-1].GetIndex()
		switch {
		case first > base.index+1:
			return nil, fmt.Errorf("%w: raft log begins at index %d, the newest snapshot ends at %d", ErrCorrupt, first, base.index)
		case last < base.index:
			entries = nil
		case first <= base.index && entries[base.index-first].GetTerm() != base.term:
			// A snapshot from the leader replaced this log, and the crash came
			// before the log said so.
			entries = nil
		case first <= base.index && rec.before.index == first-1 && rec.before.term > 0:
			base = rec.before
		case first <= base.index:
			// The term before the first entry is unknown: that entry becomes the dummy.
			base = position{index: first, term: entries[0].GetTerm()}
			entries = entries[1:]
		}
	}
	last := base.index + uint64(len(entries))
	if commit := s.hard.GetCommit(); commit > last && (snap == nil || commit > snap.at.index) {
		return nil, fmt.Errorf("%w: raft log ends at index %d, but index %d was committed", ErrCorrupt, last, commit)
	}
	if snap != nil {
		s.hard.Commit = new(max(s.hard.GetCommit(), snap.at.index))
		s.hard.Term = new(max(s.hard.GetTerm(), snap.at.term))
	}
	if base.index < snapIndex(snap) { // the offset before the first data entry is that entry's base
		for _, e := range entries {
			if isData(e) {
				end = record.Batch(e.GetData()).BaseOffset()
				break
			}
		}
	}
	s.entries = []*pb.Entry{{Index: new(base.index), Term: new(base.term)}}
	s.ends = []int64{end}
	if err := s.append(entries); err != nil {
		return nil, err
	}
	s.applied, s.hw = snapIndex(snap), 0
	if snap != nil {
		s.hw = snap.id.EndOffset
		if i := snap.at.index - base.index; s.ends[i] != s.hw {
			return nil, fmt.Errorf("%w: raft log has offset %d at index %d, the snapshot %d", ErrCorrupt,
				s.ends[i], snap.at.index, s.hw)
		}
	}
	return s, nil
}

// joinLog is newStore, and has the log say so if a snapshot has replaced it: the crash came between the two. What is
// appended next would else follow entries that are no part of the log any more.
func joinLog(l *raftLog, rec *recovered, snap *snapshot) (*store, error) {
	s, err := newStore(rec, snap)
	if err != nil {
		return nil, err
	}
	if end := (position{index: s.lastIndex(), term: s.entries[len(s.entries)-1].GetTerm()}); l.last != end {
		return s, l.reset(end)
	}
	return s, nil
}

func snapIndex(s *snapshot) uint64 {
	if s == nil {
		return 0
	}
	return s.at.index
}

// isData says whether an entry holds a record batch.
func isData(e *pb.Entry) bool { return e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 }

// checkEntry checks that a data entry is one sound record batch.
func checkEntry(e *pb.Entry) error {
	if !isData(e) {
		return nil
	}
	b, err := record.Parse(e.GetData())
	if err != nil {
		return fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	if b == nil || len(b) != len(e.GetData()) {
		return fmt.Errorf("%w: raft entry %d is not one record batch", ErrCorrupt, e.GetIndex())
	}
	if err := b.Validate(); err != nil {
		return fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	return nil
}

func (s *store) lastIndex() uint64 { return s.entries[0].GetIndex() + uint64(len(s.entries)) - 1 }

// append adds durable entries, replacing those from the first one's index on.
func (s *store) append(entries []*pb.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	base := s.entries[0].GetIndex()
	for len(entries) > 0 && entries[0].GetIndex() <= base {
		entries = entries[1:] // compacted
	}
	if len(entries) == 0 {
		return nil
	}
	i := entries[0].GetIndex() - base
	if i > uint64(len(s.entries)) {
		return fmt.Errorf("%w: raft entry %d follows entry %d", ErrCorrupt, entries[0].GetIndex(), s.lastIndex())
	}
	if i < uint64(len(s.entries)) { // readers may hold what is replaced: copy
		s.entries, s.ends = s.entries[:i:i], s.ends[:i:i]
	}
	for _, e := range entries {
		end := s.ends[len(s.ends)-1]
		if isData(e) {
			if err := checkEntry(e); err != nil {
				return err
			}
			b := record.Batch(e.GetData())
			if b.BaseOffset() != end {
				return fmt.Errorf("%w: raft entry %d has offset %d, not %d", ErrCorrupt, e.GetIndex(), b.BaseOffset(), end)
			}
			end = b.NextOffset()
		}
		s.entries = append(s.entries, e)
		s.ends = append(s.ends, end)
	}
	return nil
}

// install replaces all by a snapshot from the leader.
func (s *store) install(snap *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = snap
	s.entries = []*pb.Entry{{Index: new(snap.at.index), Term: new(snap.at.term)}}
	s.ends = []int64{snap.id.EndOffset}
	s.applied, s.hw = snap.at.index, snap.id.EndOffset
}

// setApplied moves the commit point and returns the data bytes it passed.
func (s *store) setApplied(index uint64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	base, n := s.entries[0].GetIndex(), int64(0)
	for i := s.applied + 1; i <= index; i++ {
		if e := s.entries[i-base]; isData(e) {
			n += int64(len(e.GetData()))
		}
	}
	s.applied = index
	s.hw = s.ends[index-base]
	return n
}

// at returns the position of the last committed entry after which the log's offset
// is end, if end lies on a batch's end and is held.
func (s *store) at(end int64) (position, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := int(s.applied-s.entries[0].GetIndex()) + 1
	i := sort.Search(n, func(i int) bool { return s.ends[i] > end }) - 1
	if i <= 0 || s.ends[i] != end {
		return position{}, false
	}
	return position{index: s.entries[i].GetIndex(), term: s.entries[i].GetTerm()}, true
}

// epochBefore returns the epoch of the batch that ends at the offset end.
func (s *store) epochBefore(end int64) int32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] >= end })
	return int32(s.entries[i].GetTerm())
}

func (s *store) setStale(stale bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = stale
}

// compact drops the entries before the snapshot, except the last keep entries and
// no more than keepBytes of them, and returns the last index it dropped.
func (s *store) compact(snap *snapshot, keep uint64, keepBytes int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = snap
	i := int(snap.at.index - s.entries[0].GetIndex())
	for kept := uint64(0); i > 0 && kept < keep; kept++ {
		if keepBytes -= int64(len(s.entries[i].GetData())); keepBytes < 0 {
			break
		}
		i--
	}
	if i > 0 {
		e := s.entries[i]
		entries := []*pb.Entry{{Index: new(e.GetIndex()), Term: new(e.GetTerm())}}
		s.entries = append(entries, s.entries[i+1:]...)
		s.ends = append([]int64(nil), s.ends[i:]...)
	}
	return s.entries[0].GetIndex()
}

// InitialState implements raft.Storage.
func (s *store) InitialState() (*pb.HardState, *pb.ConfState, error) {
	if s.snap == nil {
		return s.hard, &pb.ConfState{}, nil
	}
	return s.hard, s.snap.conf, nil
}

// Entries implements raft.Storage.
func (s *store) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	base := s.entries[0].GetIndex()
	if lo <= base {
		return nil, raft.ErrCompacted
	}
	if hi > s.lastIndex()+1 || lo >= hi {
		return nil, raft.ErrUnavailable
	}
	es := s.entries[lo-base : hi-base]
	size := uint64(0)
	for i, e := range es {
		size += uint64(len(e.GetData())) + entryOverhead
		if i > 0 && size > maxSize {
			es = es[:i]
			break
		}
	}
	return es[:len(es):len(es)], nil
}

// entryOverhead is about what an entry costs besides its data, encoded.
const entryOverhead = 24

// Term implements raft.Storage.
func (s *store) Term(i uint64) (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	base := s.entries[0].GetIndex()
	if i < base {
		return 0, raft.ErrCompacted
	}
	if i > s.lastIndex() {
		return 0, raft.ErrUnavailable
	}
	return s.entries[i-base].GetTerm(), nil
}

// LastIndex implements raft.Storage.
func (s *store) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lastIndex(), nil
}

// FirstIndex implements raft.Storage.
func (s *store) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[0].GetIndex() + 1, nil
}

// Snapshot implements raft.Storage.
func (s *store) Snapshot() (*pb.Snapshot, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil || s.stale {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s.snap.raft()
}
