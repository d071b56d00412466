package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"milena/internal/ids"
)

// ErrInconsistent is wrapped by the errors of records that don't fit the image they are
// applied to. A log that gives one is damaged, or was written by something else.
var ErrInconsistent = errors.New("metadata record does not fit the metadata")

// Draft turns records into new images. It lives as long as its log is followed: apply
// records, take images and deltas, apply more.
//
// Records between BeginTransactionRecord and EndTransactionRecord become visible in
// images with the end, or never after an AbortTransactionRecord.
//
// A Draft belongs to one goroutine.
type Draft struct {
	base *Image // what the last Delta ended with
	work Image  // mutable; its trees share nodes with frozen images

	before *Image // the image to show while a transaction is open, nil otherwise
	frozen *Image // equal to work, nil after a change

	owned map[ids.UUID]*Topic // topics of work that no image shares: may be changed in place

	untracked       bool // no Delta will be asked for
	touchedTopics   map[ids.UUID]map[int32]struct{}
	touchedConfigs  map[string]Resource
	touchedBrokers  map[int32]struct{}
	touchedControls map[int32]struct{}
	touchedFeatures map[string]struct{}
}

// Draft starts a draft on top of the image.
func (m *Image) Draft() *Draft {
	d := &Draft{base: m, owned: map[ids.UUID]*Topic{}}
	d.restore(m)
	d.forget()
	return d
}

// Untracked starts a draft that doesn't note what changes, which would be kept until the
// next Delta: its Delta must not be called.
func (m *Image) Untracked() *Draft {
	d := m.Draft()
	d.untracked = true
	return d
}

// restore makes work a copy of m.
func (d *Draft) restore(m *Image) {
	d.work = m.share()
	d.frozen = m
	clear(d.owned)
}

// share returns a copy whose trees copy what they change, as long as m isn't changed any
// more. m itself is only read, so that any number of goroutines may start drafts on it.
func (m *Image) share() Image {
	c := Image{
		Offset: m.Offset, Epoch: m.Epoch, ClusterID: m.ClusterID,
		partitions: m.partitions, nextProducerID: m.nextProducerID,
	}
	features, brokers, controllers, topics, byID, flat, cfgs := m.features, m.brokers, m.controllers, m.topics, m.topicsByID, m.flat, m.configs
	c.features = *features.IsoCopy()
	c.brokers = *brokers.IsoCopy()
	c.controllers = *controllers.IsoCopy()
	c.topics = *topics.IsoCopy()
	c.topicsByID = *byID.IsoCopy()
	c.flat = *flat.IsoCopy()
	c.configs = *cfgs.IsoCopy()
	return c
}

func (d *Draft) forget() {
	d.touchedTopics = map[ids.UUID]map[int32]struct{}{}
	d.touchedConfigs = map[string]Resource{}
	d.touchedBrokers = map[int32]struct{}{}
	d.touchedControls = map[int32]struct{}{}
	d.touchedFeatures = map[string]struct{}{}
}

// Image returns the image of everything applied so far. While a transaction is open that
// is the image before it.
func (d *Draft) Image() *Image {
	if d.before != nil {
		return d.before
	}
	return d.freeze()
}

// Speculative returns the image with the records of an open transaction applied.
func (d *Draft) Speculative() *Image { return d.freeze() }

// Epoch is the controller epoch of the last record applied.
func (d *Draft) Epoch() int32 { return d.work.Epoch }

// InTransaction reports whether a transaction is open.
func (d *Draft) InTransaction() bool { return d.before != nil }

func (d *Draft) freeze() *Image {
	if d.frozen == nil {
		img := d.work // is never changed again, the draft goes on with a copy
		d.frozen = &img
		d.work = img.share()
		clear(d.owned)
	}
	return d.frozen
}

// Apply applies the record at that offset, written in that controller epoch. After an
// error the draft is unusable.
func (d *Draft) Apply(offset int64, epoch int32, r Record) error {
	if err := d.apply(offset, r); err != nil {
		return fmt.Errorf("metadata offset %d: %s: %w", offset, describe(r), err)
	}
	d.frozen = nil
	d.work.Offset, d.work.Epoch = offset, epoch
	if d.untracked {
		d.drop()
	}
	return nil
}

// drop empties what was noted for the Delta, at no cost where nothing was.
func (d *Draft) drop() {
	clear(d.touchedTopics)
	clear(d.touchedConfigs)
	clear(d.touchedBrokers)
	clear(d.touchedControls)
	clear(d.touchedFeatures)
}

// Advance moves the draft's offset and epoch over records that are none of metadata (the
// quorum's own control records).
func (d *Draft) Advance(offset int64, epoch int32) {
	d.frozen = nil
	d.work.Offset, d.work.Epoch = offset, epoch
}

func (d *Draft) apply(offset int64, r Record) error {
	switch r := r.(type) {
	case *RegisterBrokerRecord:
		return d.registerBroker(r)
	case *UnregisterBrokerRecord:
		return d.unregisterBroker(r)
	case *RegisterControllerRecord:
		d.registerController(r)
	case *BrokerRegistrationChangeRecord:
		return d.changeBroker(r)
	case *TopicRecord:
		return d.createTopic(r)
	case *PartitionRecord:
		return d.createPartition(r)
	case *PartitionChangeRecord:
		return d.changePartition(r)
	case *RemoveTopicRecord:
		return d.removeTopic(r)
	case *MirrorTopicStateChangeRecord:
		return d.changeMirror(offset, r)
	case *ConfigRecord:
		d.setConfig(r)
	case *FeatureLevelRecord:
		d.setFeature(r)
	case *ProducerIdsRecord:
		return d.setProducerIDs(r)
	case *NoOpRecord:
	case *BeginTransactionRecord, *EndTransactionRecord, *AbortTransactionRecord:
		return d.transaction(r)
	default:
		return fmt.Errorf("%w: nothing is known about it", ErrInconsistent)
	}
	return nil
}

func (d *Draft) transaction(r Record) error {
	_, begin := r.(*BeginTransactionRecord)
	switch {
	case begin && d.before != nil:
		return fmt.Errorf("%w: a transaction is open already", ErrInconsistent)
	case begin:
		d.before = d.freeze()
		return nil
	case d.before == nil:
		return fmt.Errorf("%w: no transaction is open", ErrInconsistent)
	}
	if _, abort := r.(*AbortTransactionRecord); abort {
		d.restore(d.before)
	}
	d.before = nil
	return nil
}

func (d *Draft) registerBroker(r *RegisterBrokerRecord) error {
	d.touchedBrokers[r.BrokerID] = struct{}{}
	d.work.brokers.Set(r.BrokerID, &Broker{
		ID: r.BrokerID, IncarnationID: r.IncarnationID, Epoch: r.BrokerEpoch, Rack: r.Rack,
		Endpoints: r.EndPoints, Features: r.Features,
		Fenced: r.Fenced, ShuttingDown: r.InControlledShutdown,
		LogDirs: normal(r.LogDirs), CordonedDirs: normal(r.CordonedLogDirs),
	})
	return nil
}

func (d *Draft) registerController(r *RegisterControllerRecord) {
	d.touchedControls[r.ControllerID] = struct{}{}
	d.work.controllers.Set(r.ControllerID, &Controller{
		ID: r.ControllerID, IncarnationID: r.IncarnationID, Endpoints: normal(r.EndPoints), Features: normal(r.Features),
	})
}

func (d *Draft) broker(id int32, epoch int64) (*Broker, error) {
	b := d.work.Broker(id)
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: broker %d is not registered", ErrInconsistent, id)
	case b.Epoch != epoch:
		return nil, fmt.Errorf("%w: broker %d has epoch %d, not %d", ErrInconsistent, id, b.Epoch, epoch)
	}
	return b, nil
}

func (d *Draft) unregisterBroker(r *UnregisterBrokerRecord) error {
	if _, err := d.broker(r.BrokerID, r.BrokerEpoch); err != nil {
		return err
	}
	d.touchedBrokers[r.BrokerID] = struct{}{}
	d.work.brokers.Delete(r.BrokerID)
	return nil
}

func (d *Draft) changeBroker(r *BrokerRegistrationChangeRecord) error {
	old, err := d.broker(r.BrokerID, r.BrokerEpoch)
	if err != nil {
		return err
	}
	b := *old
	switch r.Fenced {
	case FenceBroker:
		b.Fenced = true
	case UnfenceBroker:
		b.Fenced = false
	}
	if r.InControlledShutdown == 1 {
		b.ShuttingDown = true
	}
	if len(r.LogDirs) > 0 {
		b.LogDirs = r.LogDirs
	}
	if r.CordonedLogDirs != nil {
		b.CordonedDirs = normal(r.CordonedLogDirs)
	}
	d.touchedBrokers[r.BrokerID] = struct{}{}
	d.work.brokers.Set(r.BrokerID, &b)
	return nil
}

// edit returns the topic for changing it in place, nil if there is none.
func (d *Draft) edit(id ids.UUID) *Topic {
	if t := d.owned[id]; t != nil {
		return t
	}
	old := d.work.TopicByID(id)
	if old == nil {
		return nil
	}
	t := *old
	t.Partitions = slices.Clone(old.Partitions)
	d.own(&t)
	return &t
}

// own puts a topic that nobody else has seen into work.
func (d *Draft) own(t *Topic) {
	d.owned[t.ID] = t
	d.work.topics.Set(t.Name, t)
	d.work.topicsByID.Set(string(t.ID[:]), t)
}

// touch notes a topic, and one of its partitions unless that is negative, for the delta.
func (d *Draft) touch(id ids.UUID, partition int32) {
	parts := d.touchedTopics[id]
	if parts == nil {
		parts = map[int32]struct{}{}
		d.touchedTopics[id] = parts
	}
	if partition >= 0 {
		parts[partition] = struct{}{}
	}
}

func (d *Draft) createTopic(r *TopicRecord) error {
	if d.work.TopicByName(r.TopicName) != nil {
		return fmt.Errorf("%w: topic %s exists", ErrInconsistent, r.TopicName)
	}
	if d.work.TopicByID(r.TopicID) != nil {
		return fmt.Errorf("%w: topic id %s exists", ErrInconsistent, r.TopicID)
	}
	d.touch(r.TopicID, -1)
	if f, ok := flatName(r.TopicName); ok {
		d.work.flat.Set(f, r.TopicName)
	}
	d.own(&Topic{ID: r.TopicID, Name: r.TopicName, Incarnation: r.Incarnation, MirrorDesired: MirrorDesiredUnknown, MirrorChangeOffset: -1})
	return nil
}

func (d *Draft) createPartition(r *PartitionRecord) error {
	t := d.edit(r.TopicID)
	if t == nil {
		return fmt.Errorf("%w: no topic has id %s", ErrInconsistent, r.TopicID)
	}
	if int(r.PartitionID) != len(t.Partitions) {
		return fmt.Errorf("%w: topic %s has %d partitions, the next can't be %d",
			ErrInconsistent, t.Name, len(t.Partitions), r.PartitionID)
	}
	d.touch(r.TopicID, r.PartitionID)
	t.Partitions = append(t.Partitions, &Partition{
		Replicas: normal(r.Replicas), Dirs: normal(r.Directories), ISR: normal(r.ISR),
		ELR: normal(r.ELR), LastKnownELR: normal(r.LastKnownELR),
		Adding: normal(r.Adding), Removing: normal(r.Removing),
		Leader: r.Leader, LeaderRecoveryState: r.LeaderRecoveryState,
		LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, Unaligned: normal(r.Unaligned),
	})
	d.work.partitions++
	return nil
}

func (d *Draft) changePartition(r *PartitionChangeRecord) error {
	t := d.edit(r.TopicID)
	if t == nil {
		return fmt.Errorf("%w: no topic has id %s", ErrInconsistent, r.TopicID)
	}
	old := t.Partition(r.PartitionID)
	if old == nil {
		return fmt.Errorf("%w: topic %s has no partition %d", ErrInconsistent, t.Name, r.PartitionID)
	}
	d.touch(r.TopicID, r.PartitionID)
	p := r.Change(*old)
	t.Partitions[r.PartitionID] = &p
	return nil
}

// Change returns the partition as the record makes it.
func (r *PartitionChangeRecord) Change(p Partition) Partition {
	set := func(list *[]int32, to []int32) {
		if to != nil {
			*list = normal(to)
		}
	}
	set(&p.ISR, r.ISR)
	set(&p.Replicas, r.Replicas)
	set(&p.Removing, r.Removing)
	set(&p.Adding, r.Adding)
	set(&p.ELR, r.ELR)
	set(&p.LastKnownELR, r.LastKnownELR)
	if r.Directories != nil {
		p.Dirs = normal(r.Directories)
	}
	if r.Unaligned != nil {
		p.Unaligned = normal(r.Unaligned)
	}
	if r.Leader != NoLeaderChange {
		p.Leader = r.Leader
		if r.decodedVersion < partitionChangeVersion {
			p.LeaderEpoch++
		}
	}
	if r.LeaderEpoch >= 0 {
		p.LeaderEpoch = r.LeaderEpoch
	}
	if r.LeaderRecoveryState >= 0 {
		p.LeaderRecoveryState = r.LeaderRecoveryState
	}
	p.PartitionEpoch++
	return p
}

func (d *Draft) removeTopic(r *RemoveTopicRecord) error {
	t := d.work.TopicByID(r.TopicID)
	if t == nil {
		return fmt.Errorf("%w: no topic has id %s", ErrInconsistent, r.TopicID)
	}
	d.touch(r.TopicID, -1)
	d.work.topics.Delete(t.Name)
	d.work.topicsByID.Delete(string(t.ID[:]))
	delete(d.owned, t.ID)
	if f, ok := flatName(t.Name); ok {
		if name, _ := d.work.flat.Get(f); name == t.Name {
			d.work.flat.Delete(f)
		}
	}
	d.work.partitions -= len(t.Partitions)
	res := Resource{ResourceTopic, t.Name}
	if _, had := d.work.configs.Delete(configKey(res)); had {
		d.touchedConfigs[configKey(res)] = res
	}
	return nil
}

func (d *Draft) changeMirror(offset int64, r *MirrorTopicStateChangeRecord) error {
	known := d.work.TopicByName(r.TopicName)
	if known == nil {
		return fmt.Errorf("%w: there is no topic %s", ErrInconsistent, r.TopicName)
	}
	if !r.TopicID.IsZero() && r.TopicID != known.ID {
		return nil // about a deleted topic of this name
	}
	t := d.edit(known.ID)
	d.touch(t.ID, -1)
	if r.MirrorName == nil {
		t.MirrorName, t.MirrorDesired, t.MirrorChangeOffset = "", MirrorDesiredUnknown, -1
		return nil
	}
	t.MirrorName, t.MirrorDesired, t.MirrorChangeOffset = *r.MirrorName, r.DesiredState, offset
	if r.ChangeOffset >= 0 {
		t.MirrorChangeOffset = r.ChangeOffset
	}
	return nil
}

func (d *Draft) setConfig(r *ConfigRecord) {
	res := Resource{r.ResourceType, r.ResourceName}
	key := configKey(res)
	d.touchedConfigs[key] = res
	old, _ := d.work.configs.Get(key)
	entries := maps.Clone(old.entries)
	if entries == nil {
		entries = map[string]string{}
	}
	if r.Value != nil {
		entries[r.Key] = *r.Value
	} else {
		delete(entries, r.Key)
	}
	if len(entries) == 0 {
		d.work.configs.Delete(key)
		return
	}
	d.work.configs.Set(key, configs{resource: res, entries: entries})
}

func (d *Draft) setFeature(r *FeatureLevelRecord) {
	d.touchedFeatures[r.Feature] = struct{}{}
	if r.Level == 0 {
		d.work.features.Delete(r.Feature)
		return
	}
	d.work.features.Set(r.Feature, r.Level)
}

func (d *Draft) setProducerIDs(r *ProducerIdsRecord) error {
	if r.NextProducerID < d.work.nextProducerID {
		return fmt.Errorf("%w: next producer id %d is below the current %d",
			ErrInconsistent, r.NextProducerID, d.work.nextProducerID)
	}
	d.work.nextProducerID = r.NextProducerID
	return nil
}

// normal makes empty lists nil, so that equal images are deeply equal, and drops spare
// room, since there are many of these lists and they never grow.
func normal[T any](list []T) []T {
	switch {
	case len(list) == 0:
		return nil
	case cap(list) > len(list):
		return append(make([]T, 0, len(list)), list...)
	}
	return list
}
