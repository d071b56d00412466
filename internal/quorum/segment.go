package quorum

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	pb "go.etcd.io/raft/v3/raftpb"
)

// The raft log is a series of segment files raft-<sequence>.log. All numbers are
// big-endian. A segment begins with a header:
//
//	 0  magic      8 bytes  "MLNRAFT\n"
//	 8  version    uint32   1
//	12  sequence   uint64   as in the name
//	20  index      uint64   last index before this segment
//	28  term       uint64   its term
//	36  crc        uint32   CRC-32C of the bytes before
//
// and goes on with frames, the first of which is the hard state of that moment:
//
//	 0  length     uint32   of the data
//	 4  crc        uint32   CRC-32C of all that follows
//	 8  kind       uint8    1 entry, 2 hard state, 3 reset
//	 9  type       uint8    of an entry: raft's entry type
//	10  zero       uint16
//	12  synced     uint64   how much of this file was durable when this was written
//	20  term       uint64
//	28  index      uint64   of the entry; of a hard state the commit index
//	36  data                an entry's data; a hard state's vote (uint64)
//
// An entry with an index that was there already replaces it and all after it. A
// reset drops all entries: the log goes on after its index, with a snapshot.
//
// What a crash leaves at the end of the last segment is cut off. But a damaged
// frame below a synced mark was durable once, so that is corruption and an error,
// as is any damage in an earlier segment.
const (
	segmentMagic      = "MLNRAFT\n"
	segmentVersion    = 1
	segmentHeaderSize = 40
	frameHeaderSize   = 36

	kindEntry     = 1
	kindHardState = 2
	kindReset     = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// position is a place in the raft log.
type position struct{ index, term uint64 }

type segmentHeader struct {
	sequence uint64
	before   position
}

func (h segmentHeader) append(b []byte) []byte {
	start := len(b)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, segmentVersion)
	b = binary.BigEndian.AppendUint64(b, h.sequence)
	b = binary.BigEndian.AppendUint64(b, h.before.index)
	b = binary.BigEndian.AppendUint64(b, h.before.term)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func parseSegmentHeader(b []byte) (segmentHeader, error) {
	if len(b) < segmentHeaderSize {
		return segmentHeader{}, fmt.Errorf("%w: header has %d bytes", ErrCorrupt, len(b))
	}
	if string(b[:8]) != segmentMagic {
		return segmentHeader{}, fmt.Errorf("%w: not a raft log segment", ErrCorrupt)
	}
	if crc32.Checksum(b[:36], castagnoli) != binary.BigEndian.Uint32(b[36:]) {
		return segmentHeader{}, fmt.Errorf("%w: header checksum", ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != segmentVersion {
		return segmentHeader{}, fmt.Errorf("raft log format version %d is not supported, this version reads %d",
			v, segmentVersion)
	}
	return segmentHeader{
		sequence: binary.BigEndian.Uint64(b[12:]),
		before:   position{index: binary.BigEndian.Uint64(b[20:]), term: binary.BigEndian.Uint64(b[28:])},
	}, nil
}

// frame is one record of a segment. data aliases the buffer it was read from.
type frame struct {
	kind   uint8
	typ    uint8
	synced uint64
	term   uint64
	index  uint64
	data   []byte
}

// appendHeader encodes all but the data, which must follow it in the file.
func (f *frame) appendHeader(b []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.data)))
	b = append(b, 0, 0, 0, 0, f.kind, f.typ, 0, 0)
	b = binary.BigEndian.AppendUint64(b, f.synced)
	b = binary.BigEndian.AppendUint64(b, f.term)
	b = binary.BigEndian.AppendUint64(b, f.index)
	crc := crc32.Update(crc32.Checksum(b[start+8:], castagnoli), castagnoli, f.data)
	binary.BigEndian.PutUint32(b[start+4:], crc)
	return b
}

// size is the frame's length in the file.
func (f *frame) size() int64 { return frameHeaderSize + int64(len(f.data)) }

// parseFrame reads the frame at the beginning of b; ok is false if it is damaged
// or cut short.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < frameHeaderSize {
		return f, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n > int64(len(b)-frameHeaderSize) || b[10] != 0 || b[11] != 0 {
		return f, false
	}
	f = frame{
		kind:   b[8],
		typ:    b[9],
		synced: binary.BigEndian.Uint64(b[12:]),
		term:   binary.BigEndian.Uint64(b[20:]),
		index:  binary.BigEndian.Uint64(b[28:]),
		data:   b[frameHeaderSize : frameHeaderSize+n : frameHeaderSize+n],
	}
	switch f.kind {
	case kindEntry:
		if f.typ > uint8(pb.EntryConfChangeV2) || f.index == 0 {
			return f, false
		}
	case kindHardState:
		if n != 8 {
			return f, false
		}
	case kindReset:
		if n != 0 {
			return f, false
		}
	default:
		return f, false
	}
	ok = crc32.Checksum(b[8:frameHeaderSize+n], castagnoli) == binary.BigEndian.Uint32(b[4:])
	return f, ok
}

// entry returns the frame as raft's entry.
func (f *frame) entry() *pb.Entry {
	e := &pb.Entry{Term: new(f.term), Index: new(f.index), Type: pb.EntryType(f.typ).Enum()}
	if len(f.data) > 0 {
		e.Data = f.data
	}
	return e
}

// durableBeyond reports whether a frame after pos says that the bytes at pos were
// durable once.
func durableBeyond(b []byte, pos int) bool {
	for p := pos + 1; p+frameHeaderSize <= len(b); p++ {
		if b[p+8] == 0 || b[p+8] > kindReset {
			continue
		}
		if f, ok := parseFrame(b[p:]); ok && f.synced > uint64(pos) {
			return true
		}
	}
	return false
}
