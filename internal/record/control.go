package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType is the type of a control record.
type ControlType int16

// The control record types. Readers skip those they don't know.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
	ControlMirrorPIDReset ControlType = 7 // KIP-1279: forget all producer state
)

func (t ControlType) String() string {
	switch t {
	case ControlAbort:
		return "ABORT"
	case ControlCommit:
		return "COMMIT"
	case ControlLeaderChange:
		return "LEADER_CHANGE"
	case ControlSnapshotHeader:
		return "SNAPSHOT_HEADER"
	case ControlSnapshotFooter:
		return "SNAPSHOT_FOOTER"
	case ControlKRaftVersion:
		return "KRAFT_VERSION"
	case ControlKRaftVoters:
		return "KRAFT_VOTERS"
	case ControlMirrorPIDReset:
		return "MIRROR_PID_RESET"
	}
	return fmt.Sprintf("UNKNOWN(%d)", int16(t))
}

// Control is a parsed control record.
type Control struct {
	Type             ControlType
	CoordinatorEpoch int32 // of ControlAbort and ControlCommit; else 0
}

// EndsTxn says whether the record ends a transaction.
func (c Control) EndsTxn() bool { return c.Type == ControlAbort || c.Type == ControlCommit }

// ParseControl parses a control record:
//
//	key    version int16, type int16 (later versions may add)
//	value  of ABORT and COMMIT: version int16, coordinator epoch int32
//
// Unknown types are no error.
func ParseControl(r Record) (Control, error) {
	if len(r.Key) < 4 {
		return Control{}, fmt.Errorf("%w: control record at offset %d has a key of %d bytes", ErrInvalid, r.Offset, len(r.Key))
	}
	if v := int16(binary.BigEndian.Uint16(r.Key)); v < 0 {
		return Control{}, fmt.Errorf("%w: control record at offset %d has key version %d", ErrInvalid, r.Offset, v)
	}
	c := Control{Type: ControlType(binary.BigEndian.Uint16(r.Key[2:]))}
	if !c.EndsTxn() {
		return c, nil
	}
	if len(r.Value) < 6 {
		return Control{}, fmt.Errorf("%w: %s marker at offset %d has a value of %d bytes", ErrInvalid, c.Type, r.Offset, len(r.Value))
	}
	c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	return c, nil
}

// controlLimit bounds a control batch's records; they are not compressed.
const controlLimit = 1 << 20

// Control returns a control batch's first record. ok is false when the batch is no
// control batch, or has lost its record to compaction.
func (b Batch) Control() (c Control, ok bool, err error) {
	if !b.IsControl() {
		return Control{}, false, nil
	}
	for r, err := range b.Records(controlLimit) {
		if err != nil {
			return Control{}, false, err
		}
		c, err = ParseControl(r)
		return c, err == nil, err
	}
	return Control{}, false, nil
}

// EndTxnMarker builds the batch that ends a producer's transaction in a partition.
// Offset and leader epoch are stamped at append; timestamp is in ms.
func EndTxnMarker(commit bool, coordinatorEpoch int32, producerID int64, producerEpoch int16, timestamp int64) Batch {
	t := ControlAbort
	if commit {
		t = ControlCommit
	}
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	return controlBatch(t, value, timestamp, BuilderOptions{
		Transactional: true,
		Producer:      &Producer{ID: producerID, Epoch: producerEpoch, BaseSequence: NoSequence},
	})
}

// MirrorPIDReset builds the batch that empties a partition's producer state when a
// mirror is stopped (KIP-1279). Offset and leader epoch are stamped at append;
// timestamp is in ms.
func MirrorPIDReset(timestamp int64) Batch {
	// The value is a flexible structure of one field: version int16, no tags.
	return controlBatch(ControlMirrorPIDReset, []byte{0, 0, 0}, timestamp, BuilderOptions{})
}

func controlBatch(t ControlType, value []byte, timestamp int64, o BuilderOptions) Batch {
	o.Control = true
	o.LeaderEpoch = NoEpoch
	b := NewBuilder(o)
	b.Append(Record{Timestamp: timestamp, Key: binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(t)), Value: value})
	return seal(append(b.header(0), b.records...))
}
