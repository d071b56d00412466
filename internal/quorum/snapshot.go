package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"milena/internal/disk"
)

// A snapshot is two files named <end offset>-<epoch>: the content .checkpoint, as the state
// machine wrote it (Kafka's own layout and name, so Kafka's tools read it), and
// .quorum, which is written last, atomically, and makes it a snapshot. The
// latter, also sent to voters that need the snapshot, is, big-endian:
//
//	magic       8 bytes   "MLNSNAP\n"
//	version     uint32    2; 1 is read too
//	end offset  int64
//	epoch       int32
//	index       uint64    raft index of the last entry in it
//	term        uint64    its term
//	size        int64     of the content
//	crc         uint32    CRC-32C of the content
//	members     uint16, then for each as AppendVoter encodes; version 1: int32 and 16
//	            bytes each: node id, directory id
//	conf state  uint32 length, raft's ConfState (protobuf)
//	generation  uint64    not in version 1
//	crc         uint32    CRC-32C of the bytes before
//
// A new quorum begins with a snapshot of nothing at index 1, whose members are
// the first voters.
const (
	snapshotMagic   = "MLNSNAP\n"
	snapshotVersion = 2
)

// snapshot describes a snapshot; immutable.
type snapshot struct {
	id      SnapshotID
	at      position
	size    int64
	crc     uint32
	members []Voter // voters and learners
	conf    *pb.ConfState
	// generation tells a quorum that was begun anew from a backup, where it is a random
	// number, from what is left of the old one. 0 in the first.
	generation uint64
}

func (s *snapshot) encode() ([]byte, error) {
	conf, err := proto.Marshal(s.conf)
	if err != nil {
		return nil, err
	}
	b := []byte(snapshotMagic)
	b = binary.BigEndian.AppendUint32(b, snapshotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(s.id.EndOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(s.id.Epoch))
	b = binary.BigEndian.AppendUint64(b, s.at.index)
	b = binary.BigEndian.AppendUint64(b, s.at.term)
	b = binary.BigEndian.AppendUint64(b, uint64(s.size))
	b = binary.BigEndian.AppendUint32(b, s.crc)
	b = appendVoters(b, s.members)
	b = binary.BigEndian.AppendUint32(b, uint32(len(conf)))
	b = append(b, conf...)
	b = binary.BigEndian.AppendUint64(b, s.generation)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

func parseSnapshot(b []byte) (*snapshot, error) {
	const fixed = 8 + 4 + 8 + 4 + 8 + 8 + 8 + 4
	if len(b) < fixed+4 || string(b[:8]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a snapshot description", ErrCorrupt)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: snapshot description checksum", ErrCorrupt)
	}
	parse, after := parseVoters, 8 // bytes after the conf state
	switch v := binary.BigEndian.Uint32(body[8:]); v {
	case 1:
		parse, after = parseMembers, 0
	case snapshotVersion:
	default:
		return nil, fmt.Errorf("snapshot format version %d is not supported, this version reads 1 to %d", v, snapshotVersion)
	}
	s := &snapshot{
		id: SnapshotID{
			EndOffset: int64(binary.BigEndian.Uint64(body[12:])),
			Epoch:     int32(binary.BigEndian.Uint32(body[20:])),
		},
		at:   position{index: binary.BigEndian.Uint64(body[24:]), term: binary.BigEndian.Uint64(body[32:])},
		size: int64(binary.BigEndian.Uint64(body[40:])),
		crc:  binary.BigEndian.Uint32(body[48:]),
		conf: &pb.ConfState{},
	}
	members, rest, err := parse(body[fixed:])
	if err != nil {
		return nil, err
	}
	s.members = members
	if len(rest) < 4+after || uint64(binary.BigEndian.Uint32(rest)) != uint64(len(rest)-4-after) {
		return nil, fmt.Errorf("%w: snapshot conf state length", ErrCorrupt)
	}
	if after > 0 {
		s.generation = binary.BigEndian.Uint64(rest[len(rest)-after:])
	}
	if err := proto.Unmarshal(rest[4:len(rest)-after], s.conf); err != nil {
		return nil, fmt.Errorf("%w: snapshot conf state: %w", ErrCorrupt, err)
	}
	if s.id.EndOffset < 0 || s.size < 0 || s.at.index == 0 {
		return nil, fmt.Errorf("%w: snapshot at offset %d index %d of %d bytes", ErrCorrupt,
			s.id.EndOffset, s.at.index, s.size)
	}
	return s, nil
}

// raft returns the snapshot as raft's message, with the description as its data.
func (s *snapshot) raft() (*pb.Snapshot, error) {
	data, err := s.encode()
	if err != nil {
		return nil, err
	}
	return &pb.Snapshot{
		Data: data,
		Metadata: &pb.SnapshotMetadata{
			ConfState: proto.Clone(s.conf).(*pb.ConfState),
			Index:     new(s.at.index),
			Term:      new(s.at.term),
		},
	}, nil
}

// snapshotDir keeps the snapshot files.
type snapshotDir struct {
	fs  disk.FS
	dir string
}

func (d snapshotDir) base(id SnapshotID) string {
	return filepath.Join(d.dir, fmt.Sprintf("%020d-%010d", id.EndOffset, id.Epoch))
}

func (d snapshotDir) content(id SnapshotID) string { return d.base(id) + ".checkpoint" }

// newest returns the snapshot with the highest index, nil if there is none.
func (d snapshotDir) newest() (*snapshot, error) {
	all, err := d.all()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[len(all)-1], nil
}

// all returns the snapshots in the order of their indexes.
func (d snapshotDir) all() ([]*snapshot, error) {
	names, err := d.fs.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var all []*snapshot
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".quorum") {
			continue
		}
		name := filepath.Join(d.dir, n.Name())
		b, err := disk.ReadFile(d.fs, name)
		if err != nil {
			return nil, err
		}
		s, err := parseSnapshot(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		i := len(all)
		for i > 0 && all[i-1].at.index > s.at.index {
			i--
		}
		all = append(all[:i], append([]*snapshot{s}, all[i:]...)...)
	}
	return all, nil
}

// writeContent writes a content file durably, from what fill writes, and returns
// its name, length and checksum. It is not a snapshot before publish.
func (d snapshotDir) writeContent(name string, fill func(io.Writer) error) (size int64, crc uint32, err error) {
	f, err := d.fs.Create(name)
	if err != nil {
		return 0, 0, err
	}
	w := &checkedWriter{w: f}
	err = fill(w)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = d.fs.Remove(name) // the first error matters more
		return 0, 0, err
	}
	return w.size, w.crc, nil
}

// publish makes a snapshot of a content file with the name content.
func (d snapshotDir) publish(s *snapshot, content string) error {
	if content != "" {
		if err := d.fs.Rename(content, d.content(s.id)); err != nil {
			return err
		}
		if err := d.fs.SyncDir(d.dir); err != nil {
			return err
		}
	}
	b, err := s.encode()
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(d.fs, d.base(s.id)+".quorum", b)
}

// clean removes all snapshots but the newest keep, and what belongs to none.
func (d snapshotDir) clean(keep int) error {
	all, err := d.all()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, s := range all[max(0, len(all)-keep):] {
		wanted[filepath.Base(d.base(s.id))+".quorum"] = true
		wanted[filepath.Base(d.content(s.id))] = true
	}
	names, err := d.fs.ReadDir(d.dir)
	if err != nil {
		return err
	}
	// Descriptions first: a snapshot without content must not be seen.
	for _, suffix := range []string{".quorum", ".checkpoint", ".tmp"} {
		for _, n := range names {
			if !strings.HasSuffix(n.Name(), suffix) || wanted[n.Name()] {
				continue
			}
			if err := d.fs.Remove(filepath.Join(d.dir, n.Name())); err != nil && !isNotExist(err) {
				return err
			}
		}
		if err := d.fs.SyncDir(d.dir); err != nil {
			return err
		}
	}
	return nil
}

// check reads the content and compares it with the description.
func (d snapshotDir) check(s *snapshot) error {
	if s.size == 0 {
		return nil
	}
	name := d.content(s.id)
	f, err := d.fs.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	size, err := f.Size()
	if err != nil {
		return err
	}
	w := &checkedWriter{w: io.Discard}
	if size == s.size {
		if _, err := io.Copy(w, io.NewSectionReader(f, 0, size)); err != nil {
			return err
		}
	}
	if size != s.size || w.crc != s.crc {
		return fmt.Errorf("%s: %w: %d bytes with checksum %08x, should be %d with %08x", name, ErrCorrupt,
			size, w.crc, s.size, s.crc)
	}
	return nil
}

// checkedWriter counts and sums what passes.
type checkedWriter struct {
	w    io.Writer
	size int64
	crc  uint32
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.size += int64(n)
	c.crc = crc32.Update(c.crc, castagnoli, b[:n])
	return n, err
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
