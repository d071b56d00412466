package meta

import (
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"milena/internal/ids"
)

// Resource types of configs, with Kafka's numbers.
const (
	ResourceTopic         int8 = 2
	ResourceBroker        int8 = 4
	ResourceBrokerLogger  int8 = 8
	ResourceClientMetrics int8 = 16
	ResourceGroup         int8 = 32
	ResourceClusterMirror int8 = 64
)

// TopicName is the metadata log's name as a topic.
const TopicName = "__cluster_metadata"

// NoLeader is the leader of a partition that has none.
const NoLeader int32 = -1

// MirrorDesiredUnknown is the wished mirror state of a topic that is in no mirror.
const MirrorDesiredUnknown int8 = -1

// Leader recovery states of a partition (KIP-704).
const (
	LeaderRecovered  int8 = 0
	LeaderRecovering int8 = 1
)

// Resource names what a config belongs to. An empty Name with [ResourceBroker] is the
// cluster-wide default of all brokers.
type Resource struct {
	Type int8
	Name string
}

// Image is the cluster's metadata after the record at Offset. It is immutable and safe
// for concurrent use; so is everything reached through it, which callers must not
// change either.
type Image struct {
	// Offset is that of the last metadata record contained, -1 for an empty image.
	Offset int64
	// Epoch is the controller epoch (quorum term) of that record.
	Epoch int32
	// ClusterID is the cluster's id as meta.properties has it.
	ClusterID string

	features       btree.Map[string, int16]
	brokers        btree.Map[int32, *Broker]
	controllers    btree.Map[int32, *Controller]
	topics         btree.Map[string, *Topic]
	topicsByID     btree.Map[string, *Topic] // key: the 16 bytes of the id
	flat           btree.Map[string, string] // names with '.' or '_' by their flat form
	configs        btree.Map[string, configs]
	partitions     int
	nextProducerID int64
}

// configs is one resource with its entries; entries is never changed in place.
type configs struct {
	resource Resource
	entries  map[string]string
}

// Topic is one topic; immutable.
type Topic struct {
	ID   ids.UUID
	Name string
	// Incarnation tells a topic from one that had its name and its id before: the mirror of a topic has its source's id each time it is
	// created. It is zero for topics that got an id of their own, and for those made before mirror.version was UnalignedLevel.
	Incarnation ids.UUID
	// Partitions is indexed by partition number.
	Partitions []*Partition
	// MirrorName is the mirror the topic belongs to, empty for none.
	MirrorName string
	// MirrorDesired is the wished state of the mirror topic (spec 6.2).
	MirrorDesired int8
	// MirrorChangeOffset is the metadata offset of the topic's last
	// MirrorTopicStateChangeRecord, -1 if there was none.
	MirrorChangeOffset int64
}

// Partition is the metadata of one partition; immutable.
type Partition struct {
	Replicas            []int32
	Dirs                []ids.UUID // parallel to Replicas
	ISR                 []int32
	ELR                 []int32
	LastKnownELR        []int32
	Adding              []int32
	Removing            []int32
	Leader              int32 // NoLeader for none
	LeaderRecoveryState int8
	LeaderEpoch         int32
	PartitionEpoch      int32
	// Unaligned are the replicas that may hold records which the partition has given up, by replica; see [Unaligned].
	Unaligned []Unaligned
}

// Unaligned is a replica that was out of sync when its partition's leader cut the log to agree with another cluster's. Its own
// records from Offset on may not be the partition's, although their leader epochs look right: they are cut before it counts as in
// sync, leads or serves anybody.
type Unaligned struct {
	Replica int32 // or AnyReplica
	Offset  int64
}

// AnyReplica in [Unaligned] stands for every replica that is assigned later: a broker may come back with what it had in an earlier
// assignment. Its offset is that of the deepest cut.
const AnyReplica int32 = -1

// UnalignedAt is the offset to which a replica's log has to be cut before anything else; false if it needn't.
func (p *Partition) UnalignedAt(replica int32) (offset int64, ok bool) {
	return UnalignedAt(p.Unaligned, replica)
}

// UnalignedAt looks for a replica in a list.
func UnalignedAt(list []Unaligned, replica int32) (offset int64, ok bool) {
	for _, u := range list {
		if u.Replica == replica {
			return u.Offset, true
		}
	}
	return -1, false
}

// Broker is a registered broker; immutable.
type Broker struct {
	ID            int32
	IncarnationID ids.UUID
	Epoch         int64
	Rack          *string
	Endpoints     []Endpoint
	Features      []FeatureRange
	Fenced        bool
	// ShuttingDown is set while the broker hands over its leaderships before it stops.
	ShuttingDown bool
	LogDirs      []ids.UUID
	// CordonedDirs are log directories that take no new replicas (KIP-1066).
	CordonedDirs []ids.UUID
}

// Controller is a registered controller; immutable.
type Controller struct {
	ID            int32
	IncarnationID ids.UUID
	Endpoints     []Endpoint
	Features      []FeatureRange
}

// Endpoint is where a broker listens, as it wants to be addressed.
type Endpoint struct {
	Name             string // listener name
	Host             string
	Port             uint16
	SecurityProtocol int16
}

// FeatureRange is what a broker or controller supports of a feature.
type FeatureRange struct {
	Name     string
	Min, Max int16
}

// Empty returns the image of a cluster before its first metadata record.
func Empty(clusterID string) *Image {
	return &Image{Offset: -1, ClusterID: clusterID}
}

// TopicByName returns the topic of that name, nil if there is none.
func (m *Image) TopicByName(name string) *Topic {
	t, _ := m.topics.Get(name)
	return t
}

// TopicAlike returns the name of a topic that differs from name in nothing but '.' against
// '_', which metrics can't tell apart; "" if there is none. A topic of exactly that name
// doesn't count.
func (m *Image) TopicAlike(name string) string {
	f, ok := flatName(name)
	if !ok {
		return ""
	}
	other, _ := m.flat.Get(f)
	if other == name {
		return ""
	}
	return other
}

// flatName is the name as metrics show it; false if no other name could be alike.
func flatName(name string) (string, bool) {
	if !strings.ContainsAny(name, "._") {
		return "", false
	}
	return strings.ReplaceAll(name, ".", "_"), true
}

// TopicByID returns the topic with that id, nil if there is none.
func (m *Image) TopicByID(id ids.UUID) *Topic {
	t, _ := m.topicsByID.Get(string(id[:]))
	return t
}

// Partition returns a partition's metadata, nil if there is none.
func (m *Image) Partition(topic string, partition int32) *Partition {
	return m.TopicByName(topic).Partition(partition)
}

// Partition returns the topic's partition of that number, nil if there is none. It may
// be called on a nil topic.
func (t *Topic) Partition(partition int32) *Partition {
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[partition]
}

// Topics iterates over all topics in the order of their names.
func (m *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		m.topics.Scan(func(_ string, t *Topic) bool { return yield(t) })
	}
}

// TopicsFrom iterates over the topics whose name is at or after name, in order.
func (m *Image) TopicsFrom(name string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		m.topics.Ascend(name, func(_ string, t *Topic) bool { return yield(t) })
	}
}

// TopicCount is the number of topics.
func (m *Image) TopicCount() int { return m.topics.Len() }

// PartitionCount is the number of partitions of all topics.
func (m *Image) PartitionCount() int { return m.partitions }

// Broker returns the registered broker of that id, nil if there is none.
func (m *Image) Broker(id int32) *Broker {
	b, _ := m.brokers.Get(id)
	return b
}

// Brokers iterates over the registered brokers by id.
func (m *Image) Brokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		m.brokers.Scan(func(_ int32, b *Broker) bool { return yield(b) })
	}
}

// Controller returns the registered controller of that id, nil if there is none.
func (m *Image) Controller(id int32) *Controller {
	c, _ := m.controllers.Get(id)
	return c
}

// Controllers iterates over the registered controllers by id.
func (m *Image) Controllers() iter.Seq[*Controller] {
	return func(yield func(*Controller) bool) {
		m.controllers.Scan(func(_ int32, c *Controller) bool { return yield(c) })
	}
}

// Alive reports whether the broker is registered and not fenced.
func (m *Image) Alive(broker int32) bool {
	b := m.Broker(broker)
	return b != nil && !b.Fenced
}

// Endpoint returns the controller's endpoint of that listener name, false if it has none.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return endpoint(c.Endpoints, listener)
}

// Endpoint returns the broker's endpoint of that listener name, false if it has none.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) { return endpoint(b.Endpoints, listener) }

func endpoint(list []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range list {
		if e.Name == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// HasDir reports whether a replica that is assigned to the directory can be there: the
// directory is online, or it isn't known yet which one it is.
func (b *Broker) HasDir(dir ids.UUID) bool {
	switch {
	case dir == ids.LostDir:
		return false
	case dir.IsReserved() || len(b.LogDirs) == 0:
		return true
	default:
		return slices.Contains(b.LogDirs, dir)
	}
}

// Config returns the config entries set on a resource; nil if none is set. The map must
// not be changed.
func (m *Image) Config(resourceType int8, name string) map[string]string {
	c, _ := m.configs.Get(configKey(Resource{resourceType, name}))
	return c.entries
}

// Configs iterates over the resources of a type that have at least one config entry, by
// name.
func (m *Image) Configs(resourceType int8) iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		m.configs.Ascend(configKey(Resource{Type: resourceType}), func(_ string, c configs) bool {
			return c.resource.Type == resourceType && yield(c.resource.Name, c.entries)
		})
	}
}

// Features returns the finalized feature levels.
func (m *Image) Features() map[string]int16 {
	out := make(map[string]int16, m.features.Len())
	m.features.Scan(func(name string, level int16) bool { out[name] = level; return true })
	return out
}

// Feature returns the finalized level of a feature, 0 if it is not finalized.
func (m *Image) Feature(name string) int16 {
	v, _ := m.features.Get(name)
	return v
}

// NextProducerID is the first producer id that was not handed out in a block yet.
func (m *Image) NextProducerID() int64 { return m.nextProducerID }

func configKey(r Resource) string { return string([]byte{byte(r.Type)}) + r.Name }
