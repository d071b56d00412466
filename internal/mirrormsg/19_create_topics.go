package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/wire"
)

// CreateTopicsVersion is the version of CreateTopics that has MirrorInfo.
const CreateTopicsVersion = 8

// CreateTopicsRequest is the request of API CreateTopics, version 8: Kafka's version 7 with MirrorInfo (KIP-1279). The response has
// the layout of version 7.
type CreateTopicsRequest struct {
	// Topics: The topics to create.
	Topics []CreatableTopic
	// TimeoutMs: How long the cluster may take, in milliseconds.
	TimeoutMs int32
	// ValidateOnly: Whether nothing is created, and only checked.
	ValidateOnly bool
}

func walkCreateTopicsRequest(c *wire.Codec, m *CreateTopicsRequest) {
	wire.Array(c, &m.Topics, walkCreatableTopic)
	c.Int32(&m.TimeoutMs)
	c.Bool(&m.ValidateOnly)
	c.Tags()
}

// CreatableTopic is one element of Topics.
type CreatableTopic struct {
	// Name: The topic's name.
	Name string
	// NumPartitions: The number of partitions; -1 for the default, or where Assignments are given.
	NumPartitions int32
	// ReplicationFactor: The number of replicas; -1 for the default, or where Assignments are given.
	ReplicationFactor int16
	// Assignments: The replicas of each partition; empty to let the cluster place them.
	Assignments []CreatableReplicaAssignment
	// Configs: The configs to set.
	Configs []CreatableTopicConfig
	// MirrorInfo: Set when the topic is created as the copy of a source topic, else null.
	MirrorInfo *MirrorInfo
}

func walkCreatableTopic(c *wire.Codec, m *CreatableTopic) {
	c.String(&m.Name)
	c.Int32(&m.NumPartitions)
	c.Int16(&m.ReplicationFactor)
	wire.Array(c, &m.Assignments, walkCreatableReplicaAssignment)
	wire.Array(c, &m.Configs, walkCreatableTopicConfig)
	wire.Struct(c, &m.MirrorInfo, walkMirrorInfo)
	c.Tags()
}

// CreatableReplicaAssignment is one element of Assignments.
type CreatableReplicaAssignment struct {
	// PartitionIndex: The partition's index.
	PartitionIndex int32
	// BrokerIDs: The brokers that hold it.
	BrokerIDs []int32
}

func walkCreatableReplicaAssignment(c *wire.Codec, m *CreatableReplicaAssignment) {
	c.Int32(&m.PartitionIndex)
	c.Int32s(&m.BrokerIDs)
	c.Tags()
}

// CreatableTopicConfig is one element of Configs.
type CreatableTopicConfig struct {
	// Name: The config's key.
	Name string
	// Value: The config's value, or null.
	Value *string
}

func walkCreatableTopicConfig(c *wire.Codec, m *CreatableTopicConfig) {
	c.String(&m.Name)
	c.NullableString(&m.Value)
	c.Tags()
}

// MirrorInfo says what a topic is the copy of.
type MirrorInfo struct {
	// TopicID: The source's topic ID, which the new topic takes.
	TopicID ids.UUID
}

func walkMirrorInfo(c *wire.Codec, m *MirrorInfo) {
	c.UUID(&m.TopicID)
	c.Tags()
}

// Key is the API key.
func (*CreateTopicsRequest) Key() int16 { return int16(api.CreateTopics) }

// MaxVersion is the one version that this is.
func (*CreateTopicsRequest) MaxVersion() int16 { return CreateTopicsVersion }

// SetVersion does nothing: there is one version. Whoever sends the request makes sure that the cluster offers it.
func (*CreateTopicsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*CreateTopicsRequest) GetVersion() int16 { return CreateTopicsVersion }

// IsFlexible says that tagged fields are used.
func (*CreateTopicsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *CreateTopicsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkCreateTopicsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *CreateTopicsRequest) ReadFrom(src []byte) error {
	return decode(src, m, walkCreateTopicsRequest)
}

// ResponseKind is an empty response to read the answer into.
func (*CreateTopicsRequest) ResponseKind() kmsg.Response {
	r := kmsg.NewPtrCreateTopicsResponse()
	r.Version = CreateTopicsVersion
	return r
}
