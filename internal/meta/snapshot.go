package meta

import (
	"iter"
	"maps"
	"slices"

	"milena/internal/ids"
)

// Records iterates over records that make an equal image when they are applied to an
// empty one: features, brokers, controllers, topics with their partitions and mirror, configs,
// producer ids.
func (m *Image) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		_ = m.yieldFeatures(yield) && m.yieldBrokers(yield) && m.yieldControllers(yield) && m.yieldTopics(yield) &&
			m.yieldConfigs(yield) && m.yieldProducerIDs(yield)
	}
}

// MetadataVersionFeature is the name of the feature that says which records may be
// written; it leads in a snapshot.
const MetadataVersionFeature = "metadata.version"

// MirrorFeature is the name of the feature that says what mirrors may do: from level 1 on there are mirrors, from UnalignedLevel on
// partitions have [Unaligned] replicas.
const MirrorFeature = "mirror.version"

// UnalignedLevel is the level of [MirrorFeature] from which on every node goes by [Partition.Unaligned].
const UnalignedLevel int16 = 2

func (m *Image) yieldFeatures(yield func(Record) bool) bool {
	if level := m.Feature(MetadataVersionFeature); level != 0 {
		if !yield(&FeatureLevelRecord{Feature: MetadataVersionFeature, Level: level}) {
			return false
		}
	}
	more := true
	m.features.Scan(func(name string, level int16) bool {
		if name != MetadataVersionFeature {
			more = yield(&FeatureLevelRecord{Feature: name, Level: level})
		}
		return more
	})
	return more
}

func (m *Image) yieldBrokers(yield func(Record) bool) bool {
	for b := range m.Brokers() {
		r := &RegisterBrokerRecord{
			BrokerID: b.ID, IncarnationID: b.IncarnationID, BrokerEpoch: b.Epoch,
			EndPoints: b.Endpoints, Features: b.Features, Rack: b.Rack,
			Fenced: b.Fenced, InControlledShutdown: b.ShuttingDown,
			LogDirs: b.LogDirs, CordonedLogDirs: b.CordonedDirs,
		}
		if !yield(r) {
			return false
		}
	}
	return true
}

func (m *Image) yieldControllers(yield func(Record) bool) bool {
	for c := range m.Controllers() {
		r := &RegisterControllerRecord{ControllerID: c.ID, IncarnationID: c.IncarnationID, EndPoints: c.Endpoints, Features: c.Features}
		if !yield(r) {
			return false
		}
	}
	return true
}

func (m *Image) yieldTopics(yield func(Record) bool) bool {
	for t := range m.Topics() {
		if !yield(&TopicRecord{TopicName: t.Name, TopicID: t.ID, Incarnation: t.Incarnation}) {
			return false
		}
		for i, p := range t.Partitions {
			if !yield(p.Record(t.ID, int32(i))) {
				return false
			}
		}
		if t.MirrorName == "" {
			continue
		}
		r := &MirrorTopicStateChangeRecord{
			TopicName: t.Name, MirrorName: &t.MirrorName, DesiredState: t.MirrorDesired,
			TopicID: t.ID, ChangeOffset: t.MirrorChangeOffset,
		}
		if !yield(r) {
			return false
		}
	}
	return true
}

// Record returns the record that creates the partition as it is.
func (p *Partition) Record(topic ids.UUID, partition int32) *PartitionRecord {
	return &PartitionRecord{
		PartitionID: partition, TopicID: topic,
		Replicas: p.Replicas, Directories: p.Dirs, ISR: p.ISR,
		ELR: p.ELR, LastKnownELR: p.LastKnownELR, Adding: p.Adding, Removing: p.Removing,
		Leader: p.Leader, LeaderRecoveryState: p.LeaderRecoveryState,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Unaligned: p.Unaligned,
	}
}

func (m *Image) yieldConfigs(yield func(Record) bool) bool {
	more := true
	m.configs.Scan(func(_ string, c configs) bool {
		for _, key := range slices.Sorted(maps.Keys(c.entries)) {
			value := c.entries[key]
			more = more && yield(&ConfigRecord{
				ResourceType: c.resource.Type, ResourceName: c.resource.Name, Key: key, Value: &value,
			})
		}
		return more
	})
	return more
}

func (m *Image) yieldProducerIDs(yield func(Record) bool) bool {
	if m.nextProducerID == 0 {
		return true
	}
	return yield(&ProducerIdsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: m.nextProducerID})
}
