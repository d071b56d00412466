package quorum

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"milena/internal/ids"
)

// Member is a voter of the quorum. The directory id makes a node with a wiped
// disk another member; it is zero in a static quorum (controller.quorum.voters).
type Member struct {
	ID        int32
	Directory ids.UUID
}

// String names the member as id and directory.
func (m Member) String() string { return fmt.Sprintf("%d-%s", m.ID, m.Directory) }

// Endpoint is a controller listener as other nodes reach it.
type Endpoint struct {
	Name string // of the listener
	Host string
	Port uint16
}

// Addr is the endpoint as host:port.
func (e Endpoint) Addr() string {
	if strings.Contains(e.Host, ":") {
		return fmt.Sprintf("[%s]:%d", e.Host, e.Port)
	}
	return fmt.Sprintf("%s:%d", e.Host, e.Port)
}

// Voter is a member with the endpoints it is reached by, the preferred one first.
type Voter struct {
	Member
	Endpoints []Endpoint
}

// Equal reports whether both are the same member with the same endpoints.
func (v Voter) Equal(o Voter) bool {
	return v.Member == o.Member && slices.Equal(v.Endpoints, o.Endpoints)
}

func compareMembers(a, b Member) int {
	if a.ID != b.ID {
		return int(a.ID) - int(b.ID)
	}
	return slices.Compare(a.Directory[:], b.Directory[:])
}

func sortVoters(vs []Voter) {
	slices.SortFunc(vs, func(a, b Voter) int { return compareMembers(a.Member, b.Member) })
}

// members are the voters without their endpoints.
func members(vs []Voter) []Member {
	var ms []Member
	for _, v := range vs {
		ms = append(ms, v.Member)
	}
	return ms
}

// isStatic says whether the voters are those of a static quorum.
func isStatic(vs []Voter) bool {
	return len(vs) > 0 && !slices.ContainsFunc(vs, func(v Voter) bool { return !v.Directory.IsZero() })
}

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

func readMember(b []byte) Member {
	m := Member{ID: int32(binary.BigEndian.Uint32(b))}
	copy(m.Directory[:], b[4:])
	return m
}

// Bounds of what is decoded.
const (
	maxVoters    = 1000
	maxEndpoints = 100
	maxHost      = 1024
)

// AppendVoter encodes a voter: node id, directory id, then a count (uint8) and for each
// endpoint name and host (uint16 length and bytes each) and port (uint16).
func AppendVoter(b []byte, v Voter) []byte {
	b = appendMember(b, v.Member)
	eps := v.Endpoints[:min(len(v.Endpoints), maxEndpoints)]
	b = append(b, byte(len(eps)))
	for _, e := range eps {
		for _, s := range []string{e.Name, e.Host} {
			s = s[:min(len(s), maxHost)]
			b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
			b = append(b, s...)
		}
		b = binary.BigEndian.AppendUint16(b, e.Port)
	}
	return b
}

// ParseVoter decodes what AppendVoter made and returns the rest. The error wraps
// ErrCorrupt.
func ParseVoter(b []byte) (v Voter, rest []byte, err error) {
	short := func() (Voter, []byte, error) {
		return Voter{}, nil, fmt.Errorf("%w: voter is cut short", ErrCorrupt)
	}
	if len(b) < memberSize+1 {
		return short()
	}
	v.Member = readMember(b)
	n := int(b[memberSize])
	b = b[memberSize+1:]
	for range n {
		var e Endpoint
		for _, s := range []*string{&e.Name, &e.Host} {
			if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
				return short()
			}
			end := 2 + int(binary.BigEndian.Uint16(b))
			*s, b = string(b[2:end]), b[end:]
		}
		if len(b) < 2 {
			return short()
		}
		e.Port, b = binary.BigEndian.Uint16(b), b[2:]
		v.Endpoints = append(v.Endpoints, e)
	}
	return v, b, nil
}

// appendVoters encodes a count (uint16) and the voters.
func appendVoters(b []byte, vs []Voter) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(vs)))
	for _, v := range vs {
		b = AppendVoter(b, v)
	}
	return b
}

// parseVoters decodes what appendVoters made and returns the rest.
func parseVoters(b []byte) ([]Voter, []byte, error) {
	n, b, err := parseCount(b, memberSize+1)
	if err != nil {
		return nil, nil, err
	}
	vs := make([]Voter, n)
	for i := range vs {
		if vs[i], b, err = ParseVoter(b); err != nil {
			return nil, nil, err
		}
	}
	return vs, b, nil
}

// parseMembers decodes the form without endpoints, which the first release wrote: a
// count (uint16) and the members.
func parseMembers(b []byte) ([]Voter, []byte, error) {
	n, b, err := parseCount(b, memberSize)
	if err != nil {
		return nil, nil, err
	}
	vs := make([]Voter, n)
	for i := range vs {
		vs[i].Member = readMember(b)
		b = b[memberSize:]
	}
	return vs, b, nil
}

// parseCount reads a count of items of at least size bytes.
func parseCount(b []byte, size int) (int, []byte, error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("%w: no voters", ErrCorrupt)
	}
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	if n > len(b)/size || n > maxVoters {
		return 0, nil, fmt.Errorf("%w: %d voters in %d bytes", ErrCorrupt, n, len(b))
	}
	return n, b, nil
}

// A membership change in the log carries, as its context, the voters that it adds or
// changes: changeMark, then as appendVoters. Without the mark it is the form without
// endpoints.
const changeMark = "\xff\xff\x02"

func appendChange(b []byte, vs []Voter) []byte { return appendVoters(append(b, changeMark...), vs) }

func parseChange(b []byte) ([]Voter, error) {
	if len(b) == 0 {
		return nil, nil
	}
	parse := parseMembers
	if rest, ok := strings.CutPrefix(string(b), changeMark); ok {
		b, parse = []byte(rest), parseVoters
	}
	vs, rest, err := parse(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes after the voters", ErrCorrupt, len(rest))
	}
	return vs, err
}
