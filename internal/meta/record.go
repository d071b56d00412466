package meta

import (
	"fmt"

	"milena/internal/ids"
	"milena/internal/wire"
)

// Record is one metadata record. The concrete types are the pointers to the *Record
// structs of this package.
type Record interface {
	// ID is Kafka's record number (its apiKey).
	ID() int16
	// Name is Kafka's name of the record.
	Name() string
	// version is the newest version of the record, the one that is written.
	version() int16
	walk(c *wire.Codec)
}

// Record numbers as Kafka has them. 29 is the mirror record's number as the mirroring
// proposal assigned it; Apache Kafka 4.4 has since used it for another record, which this
// release never writes.
const (
	idRegisterBroker           int16 = 0
	idUnregisterBroker         int16 = 1
	idTopic                    int16 = 2
	idPartition                int16 = 3
	idConfig                   int16 = 4
	idPartitionChange          int16 = 5
	idRemoveTopic              int16 = 9
	idFeatureLevel             int16 = 12
	idProducerIDs              int16 = 15
	idBrokerRegistrationChange int16 = 17
	idNoOp                     int16 = 20
	idBeginTransaction         int16 = 23
	idEndTransaction           int16 = 24
	idAbortTransaction         int16 = 25
	idRegisterController       int16 = 27
	idMirrorTopicStateChange   int16 = 29
)

// newRecord returns an empty record of that number, false for one this release does not
// know.
func newRecord(id int16) (Record, bool) {
	switch id {
	case idRegisterBroker:
		return &RegisterBrokerRecord{Fenced: true}, true
	case idUnregisterBroker:
		return &UnregisterBrokerRecord{}, true
	case idTopic:
		return &TopicRecord{}, true
	case idPartition:
		return &PartitionRecord{}, true
	case idConfig:
		return &ConfigRecord{}, true
	case idPartitionChange:
		return NewPartitionChange(ids.UUID{}, 0), true
	case idRemoveTopic:
		return &RemoveTopicRecord{}, true
	case idFeatureLevel:
		return &FeatureLevelRecord{}, true
	case idProducerIDs:
		return &ProducerIdsRecord{}, true
	case idBrokerRegistrationChange:
		return &BrokerRegistrationChangeRecord{}, true
	case idNoOp:
		return &NoOpRecord{}, true
	case idBeginTransaction:
		return &BeginTransactionRecord{}, true
	case idEndTransaction:
		return &EndTransactionRecord{}, true
	case idAbortTransaction:
		return &AbortTransactionRecord{}, true
	case idRegisterController:
		return &RegisterControllerRecord{}, true
	case idMirrorTopicStateChange:
		return &MirrorTopicStateChangeRecord{ChangeOffset: -1}, true
	default:
		return nil, false
	}
}

// RegisterBrokerRecord registers a broker's incarnation and replaces an older one.
type RegisterBrokerRecord struct {
	BrokerID             int32
	IsMigratingZkBroker  bool // never set; kept for the layout
	IncarnationID        ids.UUID
	BrokerEpoch          int64
	EndPoints            []Endpoint
	Features             []FeatureRange
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []ids.UUID
	CordonedLogDirs      []ids.UUID
}

// UnregisterBrokerRecord removes a broker.
type UnregisterBrokerRecord struct {
	BrokerID    int32
	BrokerEpoch int64
}

// TopicRecord creates a topic, without partitions.
type TopicRecord struct {
	TopicName string
	TopicID   ids.UUID
	// Incarnation is [Topic.Incarnation], a field of Milena's own.
	Incarnation ids.UUID
}

// PartitionRecord creates a partition.
type PartitionRecord struct {
	PartitionID         int32
	TopicID             ids.UUID
	Replicas            []int32
	ISR                 []int32
	Removing            []int32
	Adding              []int32
	Leader              int32
	LeaderRecoveryState int8
	LeaderEpoch         int32
	PartitionEpoch      int32
	Directories         []ids.UUID
	ELR                 []int32
	LastKnownELR        []int32
	Unaligned           []Unaligned // a field of Milena's own
}

// ConfigRecord sets (or with a nil Value removes) one config entry of a resource.
type ConfigRecord struct {
	ResourceType int8
	ResourceName string
	Key          string
	Value        *string
}

// NoLeaderChange in [PartitionChangeRecord.Leader] leaves the leader as it is.
const NoLeaderChange int32 = -2

// PartitionChangeRecord changes a partition. Nil lists leave theirs as they are; empty
// ones empty it. Each record raises the partition epoch by one. Make one with
// [NewPartitionChange].
type PartitionChangeRecord struct {
	PartitionID         int32
	TopicID             ids.UUID
	ISR                 []int32
	Leader              int32 // NoLeaderChange, NoLeader, or the new (or same) leader
	Replicas            []int32
	Removing            []int32
	Adding              []int32
	LeaderRecoveryState int8 // -1: unchanged
	ELR                 []int32
	LastKnownELR        []int32
	Directories         []ids.UUID
	Unaligned           []Unaligned // a field of Milena's own
	// LeaderEpoch is the new leader epoch, -1 if this record does not set it (version 3).
	// Below version 3 a record that names a leader raised the epoch by one.
	LeaderEpoch int32

	decodedVersion int16
}

// NewPartitionChange returns a change record that changes nothing yet.
func NewPartitionChange(topic ids.UUID, partition int32) *PartitionChangeRecord {
	return &PartitionChangeRecord{
		PartitionID: partition, TopicID: topic,
		Leader: NoLeaderChange, LeaderRecoveryState: -1, LeaderEpoch: -1,
		decodedVersion: partitionChangeVersion,
	}
}

// RemoveTopicRecord deletes a topic with its partitions, configs and mirror data.
type RemoveTopicRecord struct{ TopicID ids.UUID }

// FeatureLevelRecord finalizes a feature at a level; level 0 removes it.
type FeatureLevelRecord struct {
	Feature string
	Level   int16
}

// ProducerIdsRecord hands the block of producer ids below NextProducerID to a broker.
type ProducerIdsRecord struct { //nolint:revive // Kafka's name
	BrokerID       int32
	BrokerEpoch    int64
	NextProducerID int64
}

// Values of [BrokerRegistrationChangeRecord.Fenced].
const (
	FenceBroker     int8 = 1
	FencingNoChange int8 = 0
	UnfenceBroker   int8 = -1
)

// BrokerRegistrationChangeRecord changes the state of a registered broker.
type BrokerRegistrationChangeRecord struct {
	BrokerID             int32
	BrokerEpoch          int64
	Fenced               int8
	InControlledShutdown int8 // 1: it is; 0: unchanged
	LogDirs              []ids.UUID
	CordonedLogDirs      []ids.UUID // nil: unchanged
}

// NoOpRecord changes nothing.
type NoOpRecord struct{}

// BeginTransactionRecord starts a run of records that become visible together (KIP-868).
type BeginTransactionRecord struct{ TransactionName *string }

// EndTransactionRecord makes the records since the last BeginTransactionRecord visible.
type EndTransactionRecord struct{}

// AbortTransactionRecord takes back the records since the last BeginTransactionRecord.
type AbortTransactionRecord struct{ Reason *string }

// RegisterControllerRecord registers a controller's process and replaces an older one
// (KIP-919).
type RegisterControllerRecord struct {
	ControllerID     int32
	IncarnationID    ids.UUID
	ZkMigrationReady bool // never set; kept for the layout
	EndPoints        []Endpoint
	Features         []FeatureRange
}

// MirrorTopicStateChangeRecord sets the mirror a topic belongs to and its wished state
// (spec 6.2).
type MirrorTopicStateChangeRecord struct {
	TopicName    string
	MirrorName   *string // nil: the topic leaves its mirror
	DesiredState int8
	// TopicID, if not zero, must be the topic's, else the record is ignored.
	TopicID ids.UUID
	// ChangeOffset is set in snapshots only: the offset of the record this one stands for.
	// -1 means the record's own offset.
	ChangeOffset int64
}

func (*RegisterBrokerRecord) ID() int16           { return idRegisterBroker }
func (*UnregisterBrokerRecord) ID() int16         { return idUnregisterBroker }
func (*TopicRecord) ID() int16                    { return idTopic }
func (*PartitionRecord) ID() int16                { return idPartition }
func (*ConfigRecord) ID() int16                   { return idConfig }
func (*PartitionChangeRecord) ID() int16          { return idPartitionChange }
func (*RemoveTopicRecord) ID() int16              { return idRemoveTopic }
func (*FeatureLevelRecord) ID() int16             { return idFeatureLevel }
func (*ProducerIdsRecord) ID() int16              { return idProducerIDs }
func (*BrokerRegistrationChangeRecord) ID() int16 { return idBrokerRegistrationChange }
func (*NoOpRecord) ID() int16                     { return idNoOp }
func (*BeginTransactionRecord) ID() int16         { return idBeginTransaction }
func (*EndTransactionRecord) ID() int16           { return idEndTransaction }
func (*AbortTransactionRecord) ID() int16         { return idAbortTransaction }
func (*RegisterControllerRecord) ID() int16       { return idRegisterController }
func (*MirrorTopicStateChangeRecord) ID() int16   { return idMirrorTopicStateChange }

func (*RegisterBrokerRecord) Name() string           { return "RegisterBrokerRecord" }
func (*UnregisterBrokerRecord) Name() string         { return "UnregisterBrokerRecord" }
func (*TopicRecord) Name() string                    { return "TopicRecord" }
func (*PartitionRecord) Name() string                { return "PartitionRecord" }
func (*ConfigRecord) Name() string                   { return "ConfigRecord" }
func (*PartitionChangeRecord) Name() string          { return "PartitionChangeRecord" }
func (*RemoveTopicRecord) Name() string              { return "RemoveTopicRecord" }
func (*FeatureLevelRecord) Name() string             { return "FeatureLevelRecord" }
func (*ProducerIdsRecord) Name() string              { return "ProducerIdsRecord" }
func (*BrokerRegistrationChangeRecord) Name() string { return "BrokerRegistrationChangeRecord" }
func (*NoOpRecord) Name() string                     { return "NoOpRecord" }
func (*BeginTransactionRecord) Name() string         { return "BeginTransactionRecord" }
func (*EndTransactionRecord) Name() string           { return "EndTransactionRecord" }
func (*AbortTransactionRecord) Name() string         { return "AbortTransactionRecord" }
func (*RegisterControllerRecord) Name() string       { return "RegisterControllerRecord" }
func (*MirrorTopicStateChangeRecord) Name() string   { return "MirrorTopicStateChangeRecord" }

const partitionChangeVersion int16 = 3

func (*RegisterBrokerRecord) version() int16           { return 4 }
func (*UnregisterBrokerRecord) version() int16         { return 0 }
func (*TopicRecord) version() int16                    { return 0 }
func (*PartitionRecord) version() int16                { return 2 }
func (*ConfigRecord) version() int16                   { return 0 }
func (*PartitionChangeRecord) version() int16          { return partitionChangeVersion }
func (*RemoveTopicRecord) version() int16              { return 0 }
func (*FeatureLevelRecord) version() int16             { return 0 }
func (*ProducerIdsRecord) version() int16              { return 0 }
func (*BrokerRegistrationChangeRecord) version() int16 { return 3 }
func (*NoOpRecord) version() int16                     { return 0 }
func (*BeginTransactionRecord) version() int16         { return 0 }
func (*EndTransactionRecord) version() int16           { return 0 }
func (*AbortTransactionRecord) version() int16         { return 0 }
func (*RegisterControllerRecord) version() int16       { return 0 }
func (*MirrorTopicStateChangeRecord) version() int16   { return 0 }

// describe names the record in logs and errors.
func describe(r Record) string { return fmt.Sprintf("%s (record %d)", r.Name(), r.ID()) }
