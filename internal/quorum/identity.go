package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/disk"
)

// identity is the file that says whose directory it is:
//
//	magic    8 bytes  "MLNQUOR\n"
//	version  uint32   1
//	self     int32 and 16 bytes: node id, directory id
//	crc      uint32   CRC-32C of the bytes before
const (
	identityName    = "identity"
	identityMagic   = "MLNQUOR\n"
	identityVersion = 1
	identitySize    = 8 + 4 + memberSize + 4
)

// markName is the file beside the raft log's directory that says, in the identity file's format, that the directory is a
// member's: where it is there and the directory is empty, a vote was forgotten.
func markName(dir string) string { return filepath.Clean(dir) + ".member" }

// mark says beside the directory whose it is.
func (n *Node) mark() error {
	name := markName(n.o.Dir)
	if ok, err := disk.Exists(n.o.FS, name); ok || err != nil {
		return err
	}
	return disk.WriteFileAtomic(n.o.FS, name, encodeIdentity(n.o.Self))
}

// unmark forgets whose a directory was: it has the voters of a quorum that begins.
func unmark(fsys disk.FS, dir string) error {
	name := markName(dir)
	if ok, err := disk.Exists(fsys, name); err != nil || !ok {
		return err
	}
	if err := fsys.Remove(name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// checkForgotten refuses to begin anew as a member that has voted and acknowledged before: the majority counts on what it
// has forgotten. Another disk makes another member, this one must be removed and added.
func (n *Node) checkForgotten() error {
	name := markName(n.o.Dir)
	b, err := disk.ReadFile(n.o.FS, name)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, err := parseIdentity(b)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%w: the metadata log of voter %s is gone from %s, and with it what it agreed to: put it back. If it is lost for good while the other voters "+
		"are a majority, remove this voter (milena quorum remove --controller-id %d --controller-directory-id %s), delete %s, start again, and add it (milena quorum add)",
		ErrCorrupt, owner, n.o.Dir, owner.ID, owner.Directory, name)
}

// Known reports whether dir has metadata already: that of a member whose raft log exists, or
// what a restore wrote.
func Known(fsys disk.FS, dir string) (bool, error) {
	ok, err := disk.Exists(fsys, filepath.Join(dir, identityName))
	if err != nil || ok {
		return ok, err
	}
	if ok, err := disk.Exists(fsys, dir); err != nil || !ok {
		return false, err
	}
	snap, err := snapshotDir{fs: fsys, dir: dir}.newest()
	return snap != nil && snap.id.EndOffset > 0, err
}

// Format writes the first voters into the directory of a member that is about to be
// opened for the first time. All first voters must be given the same ones. It fails if the
// directory has voters or a raft log already.
func Format(fsys disk.FS, dir string, voters []Voter) error {
	if err := checkVoters(voters); err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	found, err := HasVoters(fsys, dir)
	if err != nil {
		return err
	}
	if found {
		return fmt.Errorf("quorum: %s holds a voter set already", dir)
	}
	if err := unmark(fsys, dir); err != nil {
		return err
	}
	return snapshotDir{fs: fsys, dir: dir}.publish(firstSnapshot(voters), "")
}

// HasVoters reports whether the directory knows the voters of a quorum: it was given them
// by Format, or has been told of them since.
func HasVoters(fsys disk.FS, dir string) (bool, error) {
	if ok, err := disk.Exists(fsys, dir); err != nil || !ok {
		return false, err
	}
	snap, err := snapshotDir{fs: fsys, dir: dir}.newest()
	return snap != nil, err
}

// checkVoters checks a first voter set.
func checkVoters(voters []Voter) error {
	if len(voters) == 0 {
		return errors.New("there must be at least one voter")
	}
	for i, v := range voters {
		switch {
		case v.ID < 0:
			return fmt.Errorf("voter id %d is negative", v.ID)
		case slices.ContainsFunc(voters[:i], func(o Voter) bool { return o.ID == v.ID }):
			return fmt.Errorf("%w: node %d is named twice", ErrDuplicateVoter, v.ID)
		case v.Directory.IsZero() != voters[0].Directory.IsZero():
			return errors.New("either all voters have a directory id or none")
		}
	}
	return nil
}

// firstSnapshot is what a new quorum begins with: every voter with the same bytes.
func firstSnapshot(voters []Voter) *snapshot {
	s := &snapshot{at: position{index: 1, term: 1}, members: slices.Clone(voters), conf: &pb.ConfState{}}
	sortVoters(s.members)
	for _, v := range voters {
		s.conf.Voters = append(s.conf.Voters, raftID(v.Member))
	}
	slices.Sort(s.conf.Voters)
	return s
}

func encodeIdentity(m Member) []byte {
	b := binary.BigEndian.AppendUint32([]byte(identityMagic), identityVersion)
	b = appendMember(b, m)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseIdentity(b []byte) (Member, error) {
	if len(b) < 16 || string(b[:8]) != identityMagic || crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return Member{}, fmt.Errorf("%w: not an identity file", ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != identityVersion {
		return Member{}, fmt.Errorf("identity format version %d is not supported, this version reads %d", v, identityVersion)
	}
	if len(b) != identitySize {
		return Member{}, fmt.Errorf("%w: identity file of %d bytes", ErrCorrupt, len(b))
	}
	return readMember(b[12:]), nil
}

// claim makes a new directory ours. The identity file is written last, when the first
// snapshot and the raft log are durable: with it, a missing log is damage.
func (n *Node) claim() error {
	return disk.WriteFileAtomic(n.o.FS, filepath.Join(n.o.Dir, identityName), encodeIdentity(n.o.Self)) // mark comes after
}

// identify checks whose directory it is, and settles who this node is. A directory that
// is nobody's yet and has no voters gets those of the options.
func (n *Node) identify() (known bool, err error) {
	withoutDir := Member{ID: n.o.Self.ID}
	name := filepath.Join(n.o.Dir, identityName)
	b, err := disk.ReadFile(n.o.FS, name)
	switch {
	case err == nil:
		owner, err := parseIdentity(b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		if owner != n.o.Self && owner != withoutDir {
			return false, fmt.Errorf("%s: directory belongs to voter %s, this is voter %s: give each node its own directory",
				name, owner, n.o.Self)
		}
		n.o.Self = owner
		return true, nil
	case !isNotExist(err):
		return false, err
	}
	found, err := HasVoters(n.o.FS, n.o.Dir)
	if err == nil && !found {
		err = n.checkForgotten()
	}
	if err != nil {
		return false, err
	}
	if !found && len(n.o.Voters) > 0 {
		if err := checkVoters(n.o.Voters); err != nil {
			return false, err
		}
		if err := n.snaps.publish(firstSnapshot(n.o.Voters), ""); err != nil {
			return false, err
		}
	}
	return false, nil
}

// settle compares the voters that the directory knows with the configuration's.
func (n *Node) settle(snap *snapshot) error {
	if snap == nil {
		return nil
	}
	n.static = isStatic(snap.members)
	switch {
	case n.static:
		n.o.Self = Member{ID: n.o.Self.ID}
		if len(n.o.Voters) == 0 {
			return nil
		}
		want, have := slices.Clone(n.o.Voters), slices.Clone(snap.members)
		sortVoters(want)
		sortVoters(have)
		if !slices.Equal(members(want), members(have)) {
			return fmt.Errorf("controller.quorum.voters names nodes %s, but this metadata log was begun by %s: the voters of a static quorum can't be changed",
				nodeIDs(want), nodeIDs(have))
		}
	case isStatic(n.o.Voters):
		n.o.Logger.Warn("controller.quorum.voters is not used: the quorum keeps its voters in the metadata log, use controller.quorum.bootstrap.servers instead")
	}
	return nil
}

func nodeIDs(vs []Voter) string {
	b := []byte{}
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%d", v.ID)
	}
	return string(b)
}
