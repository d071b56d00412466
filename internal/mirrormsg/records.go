package mirrormsg

import (
	"milena/internal/ids"
	"milena/internal/wire"
)

// MirrorPartitionStateKey is record type 2 of __mirror_state (spec 6).
type MirrorPartitionStateKey struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// TopicID: The topic's ID.
	TopicID ids.UUID
	// Partition: The partition's index.
	Partition int32
}

func walkMirrorPartitionStateKey(c *wire.Codec, m *MirrorPartitionStateKey) {
	c.String(&m.MirrorName)
	c.UUID(&m.TopicID)
	c.Int32(&m.Partition)
}

// LastMirrorEpochsKey is record type 1 of __mirror_state (spec 6).
type LastMirrorEpochsKey struct {
	// MirrorName: The mirror's name.
	MirrorName string
	// TopicID: The topic's ID.
	TopicID ids.UUID
	// Partition: The partition's index.
	Partition int32
}

func walkLastMirrorEpochsKey(c *wire.Codec, m *LastMirrorEpochsKey) {
	c.String(&m.MirrorName)
	c.UUID(&m.TopicID)
	c.Int32(&m.Partition)
}

// MirrorPartitionStateValue is record type 2 of __mirror_state (spec 6).
type MirrorPartitionStateValue struct {
	// State: Current state's number.
	State int8
	// LeaderEpoch: Highest leader epoch seen at the write; -1 if none.
	LeaderEpoch int32
	// StateEpoch: State epoch after this write.
	StateEpoch int32
	// ErrorMessage: Text of the FAILED state, or null.
	ErrorMessage *string
	// RetryAttempt: Automatic retries in FAILED; -1 means not retryable.
	RetryAttempt int16
	// PreviousState: State before FAILED; -1 (UNKNOWN) if none.
	PreviousState int8
}

// NewMirrorPartitionStateValue returns a MirrorPartitionStateValue with the defaults that are not zero.
func NewMirrorPartitionStateValue() MirrorPartitionStateValue {
	return MirrorPartitionStateValue{LeaderEpoch: -1, PreviousState: -1}
}

func walkMirrorPartitionStateValue(c *wire.Codec, m *MirrorPartitionStateValue) {
	if !c.Encoding() {
		*m = NewMirrorPartitionStateValue()
	}
	c.Int8(&m.State)
	c.Int32(&m.LeaderEpoch)
	c.Int32(&m.StateEpoch)
	c.NullableString(&m.ErrorMessage)
	c.Int16(&m.RetryAttempt)
	c.Int8(&m.PreviousState)
	c.Tags()
}

// LastMirrorEpochsValue is record type 1 of __mirror_state (spec 6).
type LastMirrorEpochsValue struct {
	// LastMirrorEpoch: Last mirror epoch recorded by the stop.
	LastMirrorEpoch int32
	// StopWishOffset: Metadata log offset of the STOPPED wish this was captured for; a second write for the same wish changes nothing.
	StopWishOffset int64
	// LastMirrorOffset: Extension: log end offset recorded with the last mirror epoch; -1 if none.
	LastMirrorOffset int64
}

// NewLastMirrorEpochsValue returns a LastMirrorEpochsValue with the defaults that are not zero.
func NewLastMirrorEpochsValue() LastMirrorEpochsValue {
	return LastMirrorEpochsValue{StopWishOffset: -1, LastMirrorOffset: -1}
}

func walkLastMirrorEpochsValue(c *wire.Codec, m *LastMirrorEpochsValue) {
	if !c.Encoding() {
		*m = NewLastMirrorEpochsValue()
	}
	c.Int32(&m.LastMirrorEpoch)
	c.Tags(wire.Tag(0, m.LastMirrorOffset != -1, func(c *wire.Codec) { c.Int64(&m.LastMirrorOffset) }), wire.Tag(1, m.StopWishOffset != -1, func(c *wire.Codec) { c.Int64(&m.StopWishOffset) }))
}

// AppendTo appends the key with its record type in front.
func (m *MirrorPartitionStateKey) AppendTo(dst []byte) []byte {
	return encodeRecord(dst, 2, false, m, walkMirrorPartitionStateKey)
}

// AppendTo appends the value with its version in front.
func (m *MirrorPartitionStateValue) AppendTo(dst []byte) []byte {
	return encodeRecord(dst, 0, true, m, walkMirrorPartitionStateValue)
}

// ReadFrom reads a value with its version in front.
func (m *MirrorPartitionStateValue) ReadFrom(src []byte) error {
	return decodeValue(src, m, walkMirrorPartitionStateValue)
}

// AppendTo appends the key with its record type in front.
func (m *LastMirrorEpochsKey) AppendTo(dst []byte) []byte {
	return encodeRecord(dst, 1, false, m, walkLastMirrorEpochsKey)
}

// AppendTo appends the value with its version in front.
func (m *LastMirrorEpochsValue) AppendTo(dst []byte) []byte {
	return encodeRecord(dst, 0, true, m, walkLastMirrorEpochsValue)
}

// ReadFrom reads a value with its version in front.
func (m *LastMirrorEpochsValue) ReadFrom(src []byte) error {
	return decodeValue(src, m, walkLastMirrorEpochsValue)
}
