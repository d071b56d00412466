// Package mirrormsg holds the messages of Cluster Mirroring (KIP-1279): the requests and responses of its APIs,
// which kgo and peer send like any kmsg type, and the records of __mirror_state.
//
// Each message has one walk function for both directions, so that writing and reading cannot drift; a test holds
// the walks against the schema files in testdata. Defaults that are not zero are set by the New functions and
// before reading.
package mirrormsg

import (
	"errors"
	"fmt"

	"milena/internal/ids"
	"milena/internal/wire"
)

func encode[T any](dst []byte, m *T, walk func(*wire.Codec, *T)) []byte {
	c := wire.NewEncoder(dst, 0, true)
	walk(c, m)
	return c.Encoded()
}

func decode[T any](src []byte, m *T, walk func(*wire.Codec, *T)) error {
	c := wire.NewDecoder(src, 0, true)
	walk(c, m)
	return c.Err()
}

// Record types of __mirror_state, the int16 that leads a key.
const (
	LastMirrorEpochsType     int16 = 1
	MirrorPartitionStateType int16 = 2
)

// ErrUnknownRecord is wrapped by errors about record types and versions of a newer release.
var ErrUnknownRecord = errors.New("unknown record of __mirror_state")

func encodeRecord[T any](dst []byte, lead int16, flexible bool, m *T, walk func(*wire.Codec, *T)) []byte {
	c := wire.NewEncoder(wire.AppendInt16(dst, lead), 0, flexible)
	walk(c, m)
	return c.Encoded()
}

func decodeValue[T any](src []byte, m *T, walk func(*wire.Codec, *T)) error {
	r := wire.NewReader(src)
	version := r.Int16()
	if err := r.Err(); err != nil {
		return err
	}
	if version != 0 {
		return fmt.Errorf("%w: value version %d", ErrUnknownRecord, version)
	}
	return decode(r.Rest(), m, walk)
}

// CheckVersion returns an error that wraps ErrUnknownRecord and names type and version, if a record of __mirror_state is of a
// type or version that this release doesn't know.
func CheckVersion(key, value []byte) error {
	k, v := wire.NewReader(key), wire.NewReader(value)
	kind, version := k.Int16(), v.Int16()
	if k.Err() != nil || v.Err() != nil {
		return nil // cut short
	}
	if version != 0 || kind != LastMirrorEpochsType && kind != MirrorPartitionStateType {
		return fmt.Errorf("%w: type %d version %d, types 1 and 2 are known in version 0", ErrUnknownRecord, kind, version)
	}
	return nil
}

// Key is the decoded key of a record of __mirror_state; both record types have the same fields.
type Key struct {
	Type      int16
	Mirror    string
	TopicID   ids.UUID
	Partition int32
}

// ParseKey reads the key of a record of __mirror_state.
func ParseKey(src []byte) (Key, error) {
	r := wire.NewReader(src)
	k := Key{Type: r.Int16()}
	if err := r.Err(); err != nil {
		return k, err
	}
	if k.Type != LastMirrorEpochsType && k.Type != MirrorPartitionStateType {
		return k, fmt.Errorf("%w: key type %d", ErrUnknownRecord, k.Type)
	}
	c := wire.NewDecoder(r.Rest(), 0, false)
	c.String(&k.Mirror)
	c.UUID(&k.TopicID)
	c.Int32(&k.Partition)
	return k, c.Err()
}
