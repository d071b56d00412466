package quorum

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// memberSize is the length of an encoded Member: node id, directory id.
const memberSize = 4 + 16

// raftID maps a member to raft's number for it: the first 8 bytes of the SHA-256
// of node id and directory id, clear of the numbers raft keeps for itself (0
// and the two largest).
func raftID(m Member) uint64 {
	sum := sha256.Sum256(appendMember(nil, m))
	id := binary.BigEndian.Uint64(sum[:]) >> 1
	if id == 0 {
		id = 1
	}
	return id
}

func appendMember(b []byte, m Member) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(m.ID))
	return append(b, m.Directory[:]...)
}

// appendMembers encodes a count (uint16) and the members.
func appendMembers(b []byte, ms []Member) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(ms)))
	for _, m := range ms {
		b = appendMember(b, m)
	}
	return b
}

// parseMembers decodes what appendMembers made and returns the rest.
func parseMembers(b []byte) ([]Member, []byte, error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: no members", ErrCorrupt)
	}
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	if n > len(b)/memberSize {
		return nil, nil, fmt.Errorf("%w: %d members in %d bytes", ErrCorrupt, n, len(b))
	}
	ms := make([]Member, n)
	for i := range ms {
		ms[i].ID = int32(binary.BigEndian.Uint32(b))
		copy(ms[i].Directory[:], b[4:])
		b = b[memberSize:]
	}
	return ms, b, nil
}
