package quorum

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/disk"
)

// raftLog writes the raft log's files. Owned by the run goroutine. After an error
// it must not be used: the state of the file is unknown.
type raftLog struct {
	fs           disk.FS
	dir          string
	segmentBytes int64

	file   disk.File // of the last segment
	size   int64     // of file
	synced int64     // durable part of file
	segs   []segmentFile
	last   position // of the log's last entry
	fresh  bool     // there was no file when it was opened
	hard   *pb.HardState

	// space is asked after a write that found the disk full whether to try it again,
	// and waits before it says so; nil: never.
	space func(err error) bool

	head []byte // frame headers of one write, reused
	bufs [][]byte
}

// segmentFile is one file of the log.
type segmentFile struct {
	sequence uint64
	name     string
	max      uint64 // the largest index in it, replaced or not
}

// recovered is what the files hold.
type recovered struct {
	before  position    // what comes before entries, if known: from the first segment's header or a reset
	entries []*pb.Entry // consecutive
	hard    *pb.HardState
}

func segmentName(dir string, sequence uint64) string {
	return filepath.Join(dir, fmt.Sprintf("raft-%020d.log", sequence))
}

// parseSegmentName returns the sequence number in a segment's base name.
func parseSegmentName(name string) (uint64, bool) {
	s, ok := strings.CutPrefix(name, "raft-")
	if !ok {
		return 0, false
	}
	if s, ok = strings.CutSuffix(s, ".log"); !ok || len(s) != 20 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > (1<<64-1)/10-1 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// openRaftLog reads the log in dir, cuts off what a crash left at its end, makes the
// rest durable and returns it ready for appending. before is where the log
// begins if there is none yet.
func openRaftLog(fsys disk.FS, dir string, segmentBytes int64, before position) (*raftLog, *recovered, error) {
	l := &raftLog{fs: fsys, dir: dir, segmentBytes: segmentBytes, last: before,
		hard: &pb.HardState{Term: new(before.term), Vote: new(uint64(0)), Commit: new(before.index)}}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		if seq, ok := parseSegmentName(n.Name()); ok {
			l.segs = append(l.segs, segmentFile{sequence: seq, name: segmentName(dir, seq)})
		}
	}
	rec := &recovered{before: before, hard: l.hard}
	for i := range l.segs {
		if i > 0 && l.segs[i].sequence != l.segs[i-1].sequence+1 {
			return nil, nil, fmt.Errorf("%w: %s does not follow %s", ErrCorrupt, l.segs[i].name, l.segs[i-1].name)
		}
		if err := l.recoverSegment(i, rec); err != nil {
			return nil, nil, err
		}
	}
	if n := len(rec.entries); n > 0 {
		l.last = position{index: rec.entries[n-1].GetIndex(), term: rec.entries[n-1].GetTerm()}
	} else {
		l.last = rec.before
	}
	l.hard = rec.hard
	l.fresh = len(l.segs) == 0
	if l.file == nil {
		if err := l.roll(); err != nil {
			return nil, nil, err
		}
	}
	return l, rec, nil
}

// recoverSegment reads the i-th segment into rec. The last one stays open for
// appending, or is removed if a crash came before its header was durable.
func (l *raftLog) recoverSegment(i int, rec *recovered) error {
	seg, isLast := &l.segs[i], i == len(l.segs)-1
	b, err := disk.ReadFile(l.fs, seg.name)
	if err != nil {
		return err
	}
	h, err := parseSegmentHeader(b)
	if err == nil && h.sequence != seg.sequence {
		err = fmt.Errorf("%w: header has sequence %d", ErrCorrupt, h.sequence)
	}
	if err != nil {
		// Nothing joins a segment before its header and hard state are durable.
		if isLast && len(b) <= segmentHeaderSize+frameHeaderSize+8 {
			l.segs = l.segs[:i]
			if err := l.fs.Remove(seg.name); err != nil {
				return err
			}
			return l.fs.SyncDir(l.dir)
		}
		return fmt.Errorf("%s: %w", seg.name, err)
	}
	if i == 0 {
		rec.before = h.before
	}
	end, err := rec.read(b)
	if err != nil {
		return fmt.Errorf("%s: %w", seg.name, err)
	}
	if end < len(b) && (!isLast || durableBeyond(b, end)) {
		return fmt.Errorf("%s: %w: damaged at position %d", seg.name, ErrCorrupt, end)
	}
	for _, e := range rec.entries {
		seg.max = max(seg.max, e.GetIndex()) // of all so far: enough for compact
	}
	if !isLast {
		return nil
	}
	f, err := l.fs.OpenAppend(seg.name)
	if err != nil {
		return err
	}
	if end < len(b) {
		err = f.Truncate(int64(end))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close() // the first error matters more
		return err
	}
	l.file, l.size, l.synced = f, int64(end), int64(end)
	return nil
}

// read takes in the frames of a segment and returns the position after the last
// good one. An error says that the good ones make no sense.
func (r *recovered) read(b []byte) (end int, err error) {
	end = segmentHeaderSize
	for {
		f, ok := parseFrame(b[end:])
		if !ok {
			return end, nil
		}
		switch f.kind {
		case kindHardState:
			r.hard = &pb.HardState{
				Term:   new(f.term),
				Commit: new(f.index),
				Vote:   new(binary.BigEndian.Uint64(f.data)),
			}
		case kindReset:
			r.entries = nil
			r.before = position{index: f.index, term: f.term}
		case kindEntry:
			if err := r.add(f.entry()); err != nil {
				return end, fmt.Errorf("%w at position %d", err, end)
			}
		}
		end += int(f.size())
	}
}

// add appends an entry, or replaces the entries from its index on.
func (r *recovered) add(e *pb.Entry) error {
	if len(r.entries) == 0 {
		if e.GetIndex() > r.before.index+1 {
			return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, e.GetIndex(), r.before.index)
		}
		if e.GetIndex() <= r.before.index { // replaces what is compacted: its predecessor's term is unknown
			r.before = position{index: e.GetIndex() - 1}
		}
		r.entries = append(r.entries, e)
		return nil
	}
	first := r.entries[0].GetIndex()
	n := uint64(len(r.entries))
	switch {
	case e.GetIndex() > first+n:
		return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, e.GetIndex(), first+n-1)
	case e.GetIndex() < first:
		r.before = position{index: e.GetIndex() - 1}
		r.entries = r.entries[:0]
	default:
		r.entries = r.entries[:e.GetIndex()-first]
	}
	r.entries = append(r.entries, e)
	return nil
}

// append writes entries and, if not nil, the hard state, and makes all that was
// written durable if sync is set. The entries' data is not copied.
func (l *raftLog) append(entries []*pb.Entry, hard *pb.HardState, sync bool) error {
	if l.size >= l.segmentBytes {
		if err := l.roll(); err != nil {
			return err
		}
	}
	seg := &l.segs[len(l.segs)-1]
	l.begin()
	for _, e := range entries {
		l.add(frame{kind: kindEntry, typ: uint8(e.GetType()), term: e.GetTerm(), index: e.GetIndex(), data: e.GetData()})
		l.last = position{index: e.GetIndex(), term: e.GetTerm()}
		seg.max = max(seg.max, e.GetIndex())
	}
	if hard != nil {
		l.hard = hard
		l.addHardState()
	}
	if err := l.write(); err != nil {
		return err
	}
	if sync {
		return l.sync()
	}
	return nil
}

// reset says durably that the log goes on after a snapshot at that position.
func (l *raftLog) reset(at position) error {
	l.begin()
	l.add(frame{kind: kindReset, term: at.term, index: at.index})
	l.last = at
	if err := l.write(); err != nil {
		return err
	}
	return l.sync()
}

func (l *raftLog) begin() { l.head, l.bufs = l.head[:0], l.bufs[:0] }

// add puts a frame in the next write.
func (l *raftLog) add(f frame) {
	f.synced = uint64(l.synced)
	start := len(l.head)
	l.head = f.appendHeader(l.head)
	// A grown l.head leaves the earlier slices on the old array, which stays good.
	l.bufs = append(l.bufs, l.head[start:len(l.head):len(l.head)])
	if len(f.data) > 0 {
		l.bufs = append(l.bufs, f.data)
	}
}

func (l *raftLog) addHardState() {
	vote := binary.BigEndian.AppendUint64(nil, l.hard.GetVote())
	l.add(frame{kind: kindHardState, term: l.hard.GetTerm(), index: l.hard.GetCommit(), data: vote})
}

func (l *raftLog) write() error {
	if len(l.bufs) == 0 {
		return nil
	}
	n, err := l.file.Writev(l.bufs)
	for disk.Full(err) && l.space != nil {
		if cut := l.file.Truncate(l.size); cut != nil {
			err = cut
			break
		}
		if n = 0; !l.space(err) {
			break
		}
		n, err = l.file.Writev(l.bufs)
	}
	clear(l.bufs) // hold no entry's data
	l.size += n
	if err != nil {
		return fmt.Errorf("append to %s: %w", l.file.Name(), err)
	}
	return nil
}

func (l *raftLog) sync() error {
	if l.synced == l.size {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", l.file.Name(), err)
	}
	l.synced = l.size
	return nil
}

// roll makes the last segment durable and begins a new one.
func (l *raftLog) roll() error {
	seq := uint64(1)
	if l.file != nil {
		if err := l.sync(); err != nil {
			return err
		}
		if err := l.file.Close(); err != nil {
			return err
		}
	}
	if n := len(l.segs); n > 0 {
		seq = l.segs[n-1].sequence + 1
	}
	name := segmentName(l.dir, seq)
	f, err := l.fs.Create(name)
	if err != nil {
		return err
	}
	l.file, l.size, l.synced = f, 0, 0
	l.segs = append(l.segs, segmentFile{sequence: seq, name: name, max: l.last.index})
	l.begin()
	l.bufs = append(l.bufs, segmentHeader{sequence: seq, before: l.last}.append(nil))
	l.addHardState()
	if err := l.write(); err != nil {
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}

// compact removes the segments that hold only entries up to index.
func (l *raftLog) compact(index uint64) error {
	n := 0
	for n < len(l.segs)-1 && l.segs[n].max <= index {
		if err := l.fs.Remove(l.segs[n].name); err != nil && !isNotExist(err) {
			return err
		}
		n++
	}
	if n == 0 {
		return nil
	}
	l.segs = append([]segmentFile(nil), l.segs[n:]...)
	return l.fs.SyncDir(l.dir)
}

func (l *raftLog) close() error {
	err := l.sync()
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}
