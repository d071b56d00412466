package quorum

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"milena/internal/disk"
	"milena/internal/record"
)

// LogEntry is an entry of the raft log.
type LogEntry struct {
	Index, Term uint64
	// Batch is the record batch of a data entry, nil for others.
	Batch record.Batch
	// Change is what a membership change does, one word and the voter: "learner 3-…",
	// "voter …", "update …", "remove …". Empty for other entries.
	Change string
	// Voters are those that a membership change adds or updates.
	Voters []Voter
	// Committed: the directory knows that the entry is committed. Of the others some may
	// be, on other voters.
	Committed bool
}

// Contents is what a member's directory holds.
type Contents struct {
	Self       Member // ID -1: the directory was never opened by a node
	Snapshot   SnapshotID
	Size       int64 // of the snapshot's content
	Index      uint64
	Generation uint64
	Voters     []Voter // of the newest snapshot
	Entries    []LogEntry
	// Damage wraps ErrCorrupt if the log is damaged where it had been durable: Entries ends before it, what
	// lies behind can't be told. Nil: it is whole, as far as can be seen.
	Damage error
	dir    snapshotDir
}

// Inspect reads a member's directory, also of a node that runs, and changes nothing.
// A last frame cut short, as a crash or a running node leaves it, just ends the entries.
func Inspect(fsys disk.FS, dir string) (*Contents, error) {
	out := &Contents{Self: Member{ID: -1}, dir: snapshotDir{fs: fsys, dir: dir}}
	b, err := disk.ReadFile(fsys, filepath.Join(dir, identityName))
	switch {
	case err == nil:
		if out.Self, err = parseIdentity(b); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, identityName), err)
		}
	case !isNotExist(err):
		return nil, err
	}
	snap, err := out.dir.newest()
	if err != nil {
		return nil, err
	}
	if snap != nil {
		out.Snapshot, out.Size, out.Index = snap.id, snap.size, snap.at.index
		out.Voters, out.Generation = snap.members, snap.generation
	}
	rec, damage, err := inspectLog(fsys, dir)
	if err != nil {
		return nil, err
	}
	if snap == nil && len(rec.entries) == 0 && out.Self.ID < 0 {
		return nil, fmt.Errorf("%s holds no metadata log", dir)
	}
	out.Damage = damage
	out.Entries, err = logEntries(rec)
	return out, err
}

// inspectLog reads the segments without touching them, up to the first damage that no crash explains.
func inspectLog(fsys disk.FS, dir string) (rec *recovered, damage, err error) {
	all, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, n := range all {
		if _, ok := parseSegmentName(n.Name()); ok {
			names = append(names, filepath.Join(dir, n.Name()))
		}
	}
	rec = &recovered{hard: &pb.HardState{}}
	first := true
	for i, name := range names {
		b, err := disk.ReadFile(fsys, name)
		if isNotExist(err) {
			continue // compacted meanwhile
		}
		if err != nil {
			return nil, nil, err
		}
		last := i == len(names)-1
		h, err := parseSegmentHeader(b)
		switch {
		case err != nil && last && errors.Is(err, ErrCorrupt) && len(b) <= segmentHeaderSize:
			return rec, nil, nil // cut short by a crash
		case errors.Is(err, ErrCorrupt):
			return rec, fmt.Errorf("%s: %w", name, err), nil
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		if first {
			rec.before, first = h.before, false
		}
		end, err := rec.read(b)
		if err != nil {
			return rec, fmt.Errorf("%s: %w", name, err), nil
		}
		if end < len(b) && (!last || durableBeyond(b, end)) {
			return rec, fmt.Errorf("%s: %w: damaged at position %d of %d", name, ErrCorrupt, end, len(b)), nil
		}
	}
	return rec, nil, nil
}

// InspectSegment reads one file of the raft log. The entries are those it leaves in force.
func InspectSegment(fsys disk.FS, name string) ([]LogEntry, error) {
	b, err := disk.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	h, err := parseSegmentHeader(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rec := &recovered{before: h.before, hard: &pb.HardState{}}
	if _, err := rec.read(b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return logEntries(rec)
}

func logEntries(rec *recovered) ([]LogEntry, error) {
	var out []LogEntry
	for _, e := range rec.entries {
		le := LogEntry{Index: e.GetIndex(), Term: e.GetTerm(), Committed: e.GetIndex() <= rec.hard.GetCommit()}
		switch {
		case isData(e):
			if err := checkEntry(e); err != nil {
				return nil, err
			}
			le.Batch = record.Batch(e.GetData())
		case e.GetType() != pb.EntryNormal:
			var err error
			if le.Change, le.Voters, err = describeChange(e); err != nil {
				return nil, err
			}
		}
		out = append(out, le)
	}
	return out, nil
}

func describeChange(e *pb.Entry) (what string, voters []Voter, err error) {
	c := &pb.ConfChangeV2{}
	if e.GetType() == pb.EntryConfChange {
		old := &pb.ConfChange{}
		err = proto.Unmarshal(e.GetData(), old)
		c = old.AsV2()
	} else {
		err = proto.Unmarshal(e.GetData(), c)
	}
	if err == nil {
		voters, err = parseChange(c.GetContext())
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w: membership change at raft index %d: %w", ErrCorrupt, e.GetIndex(), err)
	}
	for _, s := range c.GetChanges() {
		if what != "" {
			what += ", "
		}
		switch s.GetType() {
		case pb.ConfChangeAddNode:
			what += "voter"
		case pb.ConfChangeAddLearnerNode:
			what += "learner"
		case pb.ConfChangeUpdateNode:
			what += "update"
		case pb.ConfChangeRemoveNode:
			what += "remove"
		}
		name := fmt.Sprintf("raft member %x", s.GetNodeId())
		for _, v := range voters {
			if raftID(v.Member) == s.GetNodeId() {
				name = v.String()
			}
		}
		what += " " + name
	}
	return what, voters, nil
}

// Open opens the content of the newest snapshot: record batches, as EncodeRecords writes.
// Nil: there is no content.
func (c *Contents) Open() (io.ReadCloser, error) {
	if c.Size == 0 {
		return nil, nil
	}
	f, err := c.dir.fs.Open(c.dir.content(c.Snapshot))
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, 0, c.Size), f}, nil
}

// After returns the entries with records at or above the snapshot's end.
func (c *Contents) After() []LogEntry {
	var out []LogEntry
	for _, e := range c.Entries {
		if e.Index > c.Index && e.Batch != nil {
			out = append(out, e)
		}
	}
	return out
}

// Restored is a metadata snapshot from which a quorum begins anew.
type Restored struct {
	ID SnapshotID
	// Voters are the voters of the new quorum. None: the others are told by them.
	Voters []Voter
	// Generation is a random number, so that members of the old quorum keep out.
	Generation uint64
	// Content is what EncodeRecords wrote.
	Content io.Reader
}

// Restore writes the beginning of a new quorum into a directory without one: it goes on
// at the snapshot's end offset, in a later epoch.
func Restore(fsys disk.FS, dir string, r Restored) error {
	if err := checkVoters(r.Voters); err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	if r.ID.EndOffset <= 0 || r.ID.Epoch < 0 || r.Generation == 0 || r.Generation == ^uint64(0) {
		return errors.New("quorum: a restored snapshot needs an end offset, an epoch and a generation")
	}
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	known, err := Known(fsys, dir)
	if err != nil {
		return err
	}
	found, err := HasVoters(fsys, dir)
	if err != nil {
		return err
	}
	if known || found {
		return fmt.Errorf("quorum: %s holds a metadata log already: move it away first", dir)
	}
	d := snapshotDir{fs: fsys, dir: dir}
	name := filepath.Join(dir, "restored.tmp")
	size, crc, err := d.writeContent(name, func(w io.Writer) error {
		_, err := io.Copy(w, r.Content)
		return err
	})
	if err != nil {
		return err
	}
	s := firstSnapshot(r.Voters)
	s.id, s.size, s.crc, s.generation = r.ID, size, crc, r.Generation
	s.at = position{index: uint64(r.ID.EndOffset) + 1, term: uint64(max(r.ID.Epoch, 1))}
	if err := unmark(fsys, dir); err != nil {
		return err
	}
	return d.publish(s, name)
}
