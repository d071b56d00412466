package meta

import (
	"errors"
	"fmt"

	"milena/internal/ids"
	"milena/internal/wire"
)

// ErrUnknownRecord is wrapped by the errors of records that a newer release wrote.
var ErrUnknownRecord = errors.New("unknown metadata record")

// frameVersion is the version of the frame around a record:
//
//	frame version uvarint | record id uvarint | record version uvarint | record
const frameVersion = 1

// Encode returns the record as the value of a metadata log record, in its newest version.
// Its error says which string of the record is too long.
func Encode(r Record) ([]byte, error) {
	buf := make([]byte, 0, 64)
	buf = wire.AppendUvarint(buf, frameVersion)
	buf = wire.AppendUvarint(buf, uint32(r.ID()))
	buf = wire.AppendUvarint(buf, uint32(r.version()))
	c := wire.NewEncoder(buf, r.version(), true)
	r.walk(c)
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name(), err)
	}
	return c.Encoded(), nil
}

// Decode reads what Encode wrote, in this or an older version of the record. Errors wrap
// ErrUnknownRecord or those of package wire.
func Decode(b []byte) (Record, error) {
	in := wire.NewReader(b)
	frame, id, version := in.Uvarint(), in.Uvarint(), in.Uvarint()
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("metadata record: %w", err)
	}
	if frame != frameVersion {
		return nil, fmt.Errorf("%w: frame version %d; this release reads version %d, use the release that wrote it",
			ErrUnknownRecord, frame, frameVersion)
	}
	if id > 1<<15-1 || version > 1<<15-1 {
		return nil, fmt.Errorf("%w: record %d version %d", ErrUnknownRecord, id, version)
	}
	r, ok := newRecord(int16(id))
	if !ok {
		return nil, fmt.Errorf("%w: record %d version %d; use the release that wrote it", ErrUnknownRecord, id, version)
	}
	if int16(version) > r.version() {
		return nil, fmt.Errorf("%w: %s version %d; this release reads up to version %d, use the release that wrote it",
			ErrUnknownRecord, r.Name(), version, r.version())
	}
	c := wire.NewDecoder(in.Rest(), int16(version), true)
	r.walk(c)
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", describe(r), err)
	}
	if n := len(c.Rest()); n > 0 {
		return nil, fmt.Errorf("%s: %w: %d bytes too many", describe(r), wire.ErrMalformed, n)
	}
	return r, nil
}

func (r *RegisterBrokerRecord) walk(c *wire.Codec) {
	c.Int32(&r.BrokerID)
	if c.Version >= 2 {
		c.Bool(&r.IsMigratingZkBroker)
	}
	c.UUID(&r.IncarnationID)
	c.Int64(&r.BrokerEpoch)
	wire.Array(c, &r.EndPoints, walkEndpoint)
	wire.Array(c, &r.Features, walkFeature)
	c.NullableString(&r.Rack)
	c.Bool(&r.Fenced)
	if c.Version >= 1 {
		c.Bool(&r.InControlledShutdown)
	}
	c.Tags(
		wire.Tag(0, len(r.LogDirs) > 0, func(c *wire.Codec) { c.UUIDs(&r.LogDirs) }),                // version 3
		wire.Tag(1, r.CordonedLogDirs != nil, func(c *wire.Codec) { uuids(c, &r.CordonedLogDirs) }), // version 4
	)
}

func walkEndpoint(c *wire.Codec, e *Endpoint) {
	c.String(&e.Name)
	c.String(&e.Host)
	c.Uint16(&e.Port)
	c.Int16(&e.SecurityProtocol)
	c.Tags()
}

func walkFeature(c *wire.Codec, f *FeatureRange) {
	c.String(&f.Name)
	c.Int16(&f.Min)
	c.Int16(&f.Max)
	c.Tags()
}

func (r *RegisterControllerRecord) walk(c *wire.Codec) {
	c.Int32(&r.ControllerID)
	c.UUID(&r.IncarnationID)
	c.Bool(&r.ZkMigrationReady)
	wire.Array(c, &r.EndPoints, walkEndpoint)
	wire.Array(c, &r.Features, walkFeature)
	c.Tags()
}

func (r *UnregisterBrokerRecord) walk(c *wire.Codec) {
	c.Int32(&r.BrokerID)
	c.Int64(&r.BrokerEpoch)
	c.Tags()
}

func (r *TopicRecord) walk(c *wire.Codec) {
	c.String(&r.TopicName)
	c.UUID(&r.TopicID)
	c.Tags(wire.Tag(tagIncarnation, !r.Incarnation.IsZero(), func(c *wire.Codec) { c.UUID(&r.Incarnation) }))
}

func (r *PartitionRecord) walk(c *wire.Codec) {
	c.Int32(&r.PartitionID)
	c.UUID(&r.TopicID)
	c.Int32s(&r.Replicas)
	c.Int32s(&r.ISR)
	c.Int32s(&r.Removing)
	c.Int32s(&r.Adding)
	c.Int32(&r.Leader)
	c.Int32(&r.LeaderEpoch)
	c.Int32(&r.PartitionEpoch)
	if c.Version >= 1 { // KIP-858
		c.UUIDs(&r.Directories)
	}
	c.Tags(
		wire.Tag(0, r.LeaderRecoveryState != LeaderRecovered, func(c *wire.Codec) { c.Int8(&r.LeaderRecoveryState) }),
		wire.Tag(1, len(r.ELR) > 0, func(c *wire.Codec) { int32s(c, &r.ELR) }),                   // version 2, KIP-966
		wire.Tag(2, len(r.LastKnownELR) > 0, func(c *wire.Codec) { int32s(c, &r.LastKnownELR) }), // version 2
		wire.Tag(tagUnaligned, len(r.Unaligned) > 0, func(c *wire.Codec) { wire.NullableArray(c, &r.Unaligned, walkUnaligned) }),
	)
}

func (r *ConfigRecord) walk(c *wire.Codec) {
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	c.String(&r.Key)
	c.NullableString(&r.Value)
	c.Tags()
}

func (r *PartitionChangeRecord) walk(c *wire.Codec) {
	if !c.Encoding() {
		r.decodedVersion = c.Version
	}
	c.Int32(&r.PartitionID)
	c.UUID(&r.TopicID)
	if c.Version >= 3 { // KIP-1279
		c.Int32(&r.LeaderEpoch)
	}
	c.Tags(
		wire.Tag(0, r.ISR != nil, func(c *wire.Codec) { int32s(c, &r.ISR) }),
		wire.Tag(1, r.Leader != NoLeaderChange, func(c *wire.Codec) { c.Int32(&r.Leader) }),
		wire.Tag(2, r.Replicas != nil, func(c *wire.Codec) { int32s(c, &r.Replicas) }),
		wire.Tag(3, r.Removing != nil, func(c *wire.Codec) { int32s(c, &r.Removing) }),
		wire.Tag(4, r.Adding != nil, func(c *wire.Codec) { int32s(c, &r.Adding) }),
		wire.Tag(5, r.LeaderRecoveryState >= 0, func(c *wire.Codec) { c.Int8(&r.LeaderRecoveryState) }),
		wire.Tag(6, r.ELR != nil, func(c *wire.Codec) { int32s(c, &r.ELR) }),
		wire.Tag(7, r.LastKnownELR != nil, func(c *wire.Codec) { int32s(c, &r.LastKnownELR) }),
		wire.Tag(8, r.Directories != nil, func(c *wire.Codec) { uuids(c, &r.Directories) }),
		wire.Tag(tagUnaligned, r.Unaligned != nil, func(c *wire.Codec) { wire.NullableArray(c, &r.Unaligned, walkUnaligned) }),
	)
}

// tagUnaligned is a tagged field of Milena's own, far from Kafka's numbers: Kafka's tools skip it. It is written at mirror.version
// UnalignedLevel only, so that no node of a release that doesn't know it is there.
const tagUnaligned = 10_000

// tagIncarnation is the same for TopicRecord.Incarnation.
const tagIncarnation = 10_000

func walkUnaligned(c *wire.Codec, u *Unaligned) {
	c.Int32(&u.Replica)
	c.Int64(&u.Offset)
	c.Tags()
}

func (r *RemoveTopicRecord) walk(c *wire.Codec) {
	c.UUID(&r.TopicID)
	c.Tags()
}

func (r *FeatureLevelRecord) walk(c *wire.Codec) {
	c.String(&r.Feature)
	c.Int16(&r.Level)
	c.Tags()
}

func (r *ProducerIdsRecord) walk(c *wire.Codec) {
	c.Int32(&r.BrokerID)
	c.Int64(&r.BrokerEpoch)
	c.Int64(&r.NextProducerID)
	c.Tags()
}

func (r *BrokerRegistrationChangeRecord) walk(c *wire.Codec) {
	c.Int32(&r.BrokerID)
	c.Int64(&r.BrokerEpoch)
	c.Tags(
		wire.Tag(0, r.Fenced != FencingNoChange, func(c *wire.Codec) { c.Int8(&r.Fenced) }),
		wire.Tag(1, r.InControlledShutdown != 0, func(c *wire.Codec) { c.Int8(&r.InControlledShutdown) }),
		wire.Tag(2, len(r.LogDirs) > 0, func(c *wire.Codec) { c.UUIDs(&r.LogDirs) }),
		wire.Tag(3, r.CordonedLogDirs != nil, func(c *wire.Codec) { uuids(c, &r.CordonedLogDirs) }),
	)
}

func (r *NoOpRecord) walk(c *wire.Codec)           { c.Tags() }
func (r *EndTransactionRecord) walk(c *wire.Codec) { c.Tags() }

func (r *BeginTransactionRecord) walk(c *wire.Codec) {
	c.Tags(wire.Tag(0, r.TransactionName != nil, func(c *wire.Codec) { c.NullableString(&r.TransactionName) }))
}

func (r *AbortTransactionRecord) walk(c *wire.Codec) {
	c.Tags(wire.Tag(0, r.Reason != nil, func(c *wire.Codec) { c.NullableString(&r.Reason) }))
}

func (r *MirrorTopicStateChangeRecord) walk(c *wire.Codec) {
	c.String(&r.TopicName)
	c.NullableString(&r.MirrorName)
	c.Int8(&r.DesiredState)
	c.Tags(
		wire.Tag(0, !r.TopicID.IsZero(), func(c *wire.Codec) { c.UUID(&r.TopicID) }),
		wire.Tag(1, r.ChangeOffset >= 0, func(c *wire.Codec) { c.Int64(&r.ChangeOffset) }),
	)
}

// int32s and uuids visit nullable arrays.
func int32s(c *wire.Codec, v *[]int32) { wire.NullableArray(c, v, (*wire.Codec).Int32) }

func uuids(c *wire.Codec, v *[]ids.UUID) { wire.NullableArray(c, v, (*wire.Codec).UUID) }
