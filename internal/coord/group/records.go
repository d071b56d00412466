package group

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/machine"
)

// Records of __consumer_offsets, in Kafka's formats. The key's first two bytes
// say what it is:
//
//	0, 1  offset commit: group, topic, partition
//	2     group metadata: group
//
// and the value's first two bytes are its version. Values are written as Kafka
// 4.4 does: offset commits in version 4 (with the topic id as tag 0), or 1 if
// the client asked for a retention time of its own; group metadata in version 3.
const (
	keyOffset      = 1
	keyGroup       = 2
	valueGroup     = 3
	valueOffset    = 4
	valueOffsetTTL = 1
)

func offsetKey(group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: keyOffset, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(make([]byte, 0, 10+len(group)+len(topic)))
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyGroup, Group: group}
	return k.AppendTo(make([]byte, 0, 4+len(group)))
}

func offsetRecord(group, topic string, partition int32, c committed) machine.Record {
	v := kmsg.OffsetCommitValue{
		Version:         valueOffset,
		Offset:          c.offset,
		LeaderEpoch:     c.epoch,
		Metadata:        c.metadata,
		CommitTimestamp: c.commitMs,
		ExpireTimestamp: c.expireMs,
		TopicID:         c.topicID,
	}
	if c.expireMs != -1 {
		v.Version = valueOffsetTTL
	}
	return machine.Record{Key: offsetKey(group, topic, partition), Value: v.AppendTo(make([]byte, 0, 48+len(c.metadata)))}
}

func offsetTombstone(group, topic string, partition int32) machine.Record {
	return machine.Record{Key: offsetKey(group, topic, partition)}
}

func groupTombstone(group string) machine.Record { return machine.Record{Key: groupKey(group)} }

// newGroupRecord says that a group without members and history exists.
func newGroupRecord(g *group) machine.Record {
	v := kmsg.GroupMetadataValue{Version: valueGroup, CurrentStateTimestamp: g.stateMs}
	return machine.Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

// groupRecord holds the group's generation with its members' assignments.
func groupRecord(g *group, assignment func(*member) []byte) machine.Record {
	v := kmsg.GroupMetadataValue{
		Version:               valueGroup,
		ProtocolType:          g.protocolType,
		Generation:            g.generation,
		CurrentStateTimestamp: g.stateMs,
	}
	if g.hasProtocol {
		v.Protocol = &g.protocol
	}
	if g.leader != "" {
		v.Leader = &g.leader
	}
	for _, mb := range g.order {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID:               mb.id,
			InstanceID:             mb.instance,
			ClientID:               mb.client.ID,
			ClientHost:             mb.client.Host,
			RebalanceTimeoutMillis: int32(mb.rebalanceTimeout.Milliseconds()),
			SessionTimeoutMillis:   int32(mb.sessionTimeout.Milliseconds()),
			Subscription:           mb.metadata(g.protocol),
			Assignment:             assignment(mb),
		})
	}
	return machine.Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

// kafkaRecord names a type of record that Kafka has and this release doesn't, for the error. A log that a Kafka
// broker wrote has them if its groups used newer protocols (KIP-848, KIP-932, KIP-1071).
func kafkaRecord(kind int16) string {
	names := map[int16]string{
		3: "ConsumerGroupMetadata", 4: "ConsumerGroupPartitionMetadata", 5: "ConsumerGroupMemberMetadata",
		6: "ConsumerGroupTargetAssignmentMetadata", 7: "ConsumerGroupTargetAssignmentMember", 8: "ConsumerGroupCurrentMemberAssignment",
		9: "ShareGroupPartitionMetadata", 10: "ShareGroupMemberMetadata", 11: "ShareGroupMetadata", 12: "ShareGroupTargetAssignmentMetadata",
		13: "ShareGroupTargetAssignmentMember", 14: "ShareGroupCurrentMemberAssignment", 15: "ShareGroupStatePartitionMetadata",
		16: "ConsumerGroupRegularExpression", 17: "StreamsGroupMetadata", 18: "StreamsGroupPartitionMetadata", 19: "StreamsGroupMemberMetadata",
		20: "StreamsGroupTargetAssignmentMetadata", 21: "StreamsGroupTargetAssignmentMember", 22: "StreamsGroupCurrentMemberAssignment",
		23: "StreamsGroupTopology",
	}
	if n := names[kind]; n != "" {
		return fmt.Sprintf("type %d (Kafka's %s)", kind, n)
	}
	return fmt.Sprintf("type %d", kind)
}

// Vet implements machine.Vetter: a record whose type or version is newer than this release is refused by name. A tombstone
// takes away what isn't known anyway, and what is too short to say what it is isn't a newer release's.
func (m *Machine) Vet(r machine.Record) error {
	if len(r.Key) < 2 || len(r.Value) < 2 {
		return nil
	}
	kind, version := int16(binary.BigEndian.Uint16(r.Key)), int16(binary.BigEndian.Uint16(r.Value))
	newest := int16(valueOffset)
	switch kind {
	case 0, keyOffset:
	case keyGroup:
		newest = valueGroup
	default:
		return fmt.Errorf("%s version %d, of a group protocol that is not there yet", kafkaRecord(kind), version)
	}
	if version < 0 || version > newest {
		return fmt.Errorf("type %d version %d, the newest known version is %d", kind, version, newest)
	}
	return nil
}

// Apply implements machine.Machine. While records are replayed they make the
// state; afterwards a group's own change has been made by the command that
// returned the record, and only offsets and removals are left to do.
func (m *Machine) Apply(offset int64, r machine.Record) {
	if err := m.apply(r); err != nil {
		m.log.Warn("ignored a record of the group coordinator's log", "offset", offset, "error", err)
	}
}

func (m *Machine) apply(r machine.Record) error {
	if len(r.Key) < 2 {
		return fmt.Errorf("key of %d bytes", len(r.Key))
	}
	switch kind := int16(binary.BigEndian.Uint16(r.Key)); kind {
	case 0, keyOffset:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("key of an offset commit: %w", err)
		}
		return m.applyOffset(&k, r.Value)
	case keyGroup:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("key of group metadata: %w", err)
		}
		return m.applyGroup(k.Group, r.Value)
	default:
		return fmt.Errorf("records of type %d are not known here", kind)
	}
}

func (m *Machine) applyOffset(k *kmsg.OffsetCommitKey, value []byte) error {
	if value == nil {
		m.removeOffset(k.Group, k.Topic, k.Partition)
		return nil
	}
	var v kmsg.OffsetCommitValue
	if err := readValue(value, valueOffset, &v); err != nil {
		return fmt.Errorf("offset of group %q: %w", k.Group, err)
	}
	c := committed{
		offset:   v.Offset,
		epoch:    -1,
		metadata: v.Metadata,
		commitMs: v.CommitTimestamp,
		expireMs: -1,
		topicID:  v.TopicID,
	}
	if v.Version >= 3 {
		c.epoch = v.LeaderEpoch
	}
	if v.Version == valueOffsetTTL {
		c.expireMs = v.ExpireTimestamp
	}
	m.putOffset(k.Group, k.Topic, k.Partition, c)
	return nil
}

func (m *Machine) applyGroup(id string, value []byte) error {
	g := m.groups[id]
	if value == nil {
		if g != nil {
			m.removeGroup(g)
		}
		return nil
	}
	if !m.loading && g != nil {
		return nil // the command that returned the record has made the change
	}
	var v kmsg.GroupMetadataValue
	if err := readValue(value, valueGroup, &v); err != nil {
		return fmt.Errorf("metadata of group %q: %w", id, err)
	}
	fresh := newGroup(id, v.CurrentStateTimestamp)
	if g != nil {
		fresh.offsets = g.offsets
		m.count(g, -1)
	}
	fresh.load(&v)
	m.groups[id] = fresh
	m.count(fresh, +1)
	return nil
}

// load takes over what the record says.
func (g *group) load(v *kmsg.GroupMetadataValue) {
	g.generation, g.protocolType = v.Generation, v.ProtocolType
	if v.Protocol != nil {
		g.protocol, g.hasProtocol = *v.Protocol, true
	}
	if len(v.Members) > 0 {
		g.state = Stable
	}
	for _, in := range v.Members {
		if g.members[in.MemberID] != nil {
			continue
		}
		mb := &member{
			id:             in.MemberID,
			instance:       in.InstanceID,
			client:         Client{in.ClientID, in.ClientHost},
			sessionTimeout: millis(in.SessionTimeoutMillis),
			protocolType:   v.ProtocolType,
			protocols:      []protocol{{g.protocol, bytes.Clone(in.Subscription)}},
			assignment:     bytes.Clone(in.Assignment),
		}
		mb.rebalanceTimeout = mb.sessionTimeout
		if in.RebalanceTimeoutMillis != -1 {
			mb.rebalanceTimeout = millis(in.RebalanceTimeoutMillis)
		}
		g.add(mb)
	}
	if v.Leader != nil && g.members[*v.Leader] != nil {
		g.leader = *v.Leader
	}
	g.subscribe()
}

// readValue decodes a value after checking its version.
func readValue(b []byte, newest int16, v interface{ ReadFrom([]byte) error }) error {
	if len(b) < 2 {
		return fmt.Errorf("value of %d bytes", len(b))
	}
	if version := int16(binary.BigEndian.Uint16(b)); version < 0 || version > newest {
		return fmt.Errorf("value version %d is newer than %d, the newest known here", version, newest)
	}
	return v.ReadFrom(b)
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }
