package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// maxNewPartitions bounds the partitions that one request may create, as Kafka does.
const maxNewPartitions = 10_000

// NewTopic describes a topic to be created.
type NewTopic struct {
	Name string
	// ID is the topic's id, zero for a random one.
	ID ids.UUID
	// Partitions and ReplicationFactor are -1 for the default, or when Assignments is set.
	Partitions        int32
	ReplicationFactor int16
	// Assignments are the replicas of each partition, by partition number; nil lets the
	// controller place them.
	Assignments map[int32][]int32
	Configs     map[string]*string
	// ActiveOnly demands that every replica is on an active broker.
	ActiveOnly bool
}

// TopicResult is what became of one topic of a request.
type TopicResult struct {
	Name              string
	ID                ids.UUID
	Err               *api.Error
	Partitions        int32
	ReplicationFactor int16
	// Configs are the entries set on the topic.
	Configs map[string]string
}

// CreateTopics creates each topic that can be. The reply is a []TopicResult, one for each
// name in the order they came. With validateOnly nothing is created.
func (s *State) CreateTopics(_ time.Time, topics []NewTopic, validateOnly bool) machine.Result {
	topics, twice := once(topics, func(t NewTopic) string { return t.Name })
	usedIDs := map[ids.UUID]bool{}
	alike := map[string]string{} // the request's names by what metrics show of them
	var recs []meta.Record
	var results []TopicResult
	room := maxNewPartitions
	for _, t := range topics {
		if twice[t.Name] {
			results = append(results, TopicResult{Name: t.Name, Err: moreThanOnce(t.Name)})
			continue
		}
		add, res := s.PlanTopic(t, room)
		if res.Err == nil && usedIDs[res.ID] {
			add, res = nil, TopicResult{Name: t.Name, Err: api.Errorf(api.InvalidRequest, "topic id %s is in the request more than once", t.ID)}
		}
		flat := strings.ReplaceAll(t.Name, ".", "_")
		if other := alike[flat]; res.Err == nil && other != "" {
			add, res = nil, TopicResult{Name: t.Name, Err: collides(t.Name, other)}
		}
		if res.Err == nil {
			usedIDs[res.ID], alike[flat] = true, t.Name
		}
		room -= int(res.Partitions)
		results = append(results, res)
		recs = append(recs, add...)
	}
	if validateOnly {
		recs = nil
	}
	return s.result(results, recs...)
}

// once keeps the first item of each name, and says which names came more than once.
func once[T any](items []T, name func(T) string) (first []T, twice map[string]bool) {
	seen := map[string]bool{}
	twice = map[string]bool{}
	for _, it := range items {
		n := name(it)
		if seen[n] {
			twice[n] = true
			continue
		}
		seen[n] = true
		first = append(first, it)
	}
	return first, twice
}

func moreThanOnce(topic string) *api.Error {
	return api.Errorf(api.InvalidRequest, "topic %s is in the request more than once", topic)
}

// PlanTopic returns the records that create a topic of at most room partitions, or the
// refusal in its result. It doesn't look at other topics of the same command.
func (s *State) PlanTopic(t NewTopic, room int) ([]meta.Record, TopicResult) {
	recs, res, err := s.planTopic(t, room)
	if err != nil {
		return nil, TopicResult{Name: t.Name, Err: err}
	}
	return recs, res
}

func (s *State) planTopic(t NewTopic, room int) ([]meta.Record, TopicResult, *api.Error) {
	img := s.Image()
	res := TopicResult{Name: t.Name, ID: t.ID}
	configs, err := s.canonical(t.Configs)
	if err != nil {
		return nil, res, err
	}
	t.Configs = configs
	if err := s.checkNewTopic(img, t); err != nil {
		return nil, res, err
	}
	rec := &meta.TopicRecord{TopicName: t.Name}
	switch id, err := s.NewID(); {
	case err != nil:
		return nil, res, api.Errorf(api.UnknownServerError, "%w", err)
	case res.ID.IsZero():
		res.ID = id
	case img.Feature(MirrorFeature) >= meta.UnalignedLevel:
		rec.Incarnation = id
	}
	rec.TopicID = res.ID
	assignments, err := s.assign(img, t, room)
	if err != nil {
		return nil, res, err
	}
	recs := []meta.Record{rec}
	for i, replicas := range assignments {
		recs = append(recs, newPartition(img, res.ID, int32(i), replicas))
	}
	res.Partitions, res.ReplicationFactor = int32(len(assignments)), int16(len(assignments[0]))
	res.Configs = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
		value := t.Configs[key]
		res.Configs[key] = *value
		recs = append(recs, &meta.ConfigRecord{ResourceType: meta.ResourceTopic, ResourceName: t.Name, Key: key, Value: value})
	}
	return recs, res, nil
}

func (s *State) checkNewTopic(img *meta.Image, t NewTopic) *api.Error {
	if err := CheckTopicName(t.Name); err != nil {
		return err
	}
	if img.TopicByName(t.Name) != nil {
		return api.Errorf(api.TopicAlreadyExists, "topic %s exists already", t.Name)
	}
	if other := img.TopicAlike(t.Name); other != "" {
		return collides(t.Name, other)
	}
	if !t.ID.IsZero() {
		switch other := img.TopicByID(t.ID); {
		case t.ID.IsReserved():
			return api.Errorf(api.InvalidRequest, "topic id %s is reserved", t.ID)
		case other != nil:
			return api.Errorf(api.TopicAlreadyExists, "topic id %s belongs to topic %s", t.ID, other.Name)
		}
	}
	entries := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
		value := t.Configs[key]
		if value == nil {
			return api.Errorf(api.InvalidConfig, "topic config %s has a null value", key)
		}
		if err := s.Validate(meta.ResourceTopic, t.Name, key, *value); err != nil {
			return configError(err)
		}
		entries[key] = *value
	}
	if err := s.o.Configs.ValidateAll(meta.ResourceTopic, t.Name, entries); err != nil {
		return configError(err)
	}
	return checkCleanup(t.Name, entries)
}

func collides(name, other string) *api.Error {
	return api.Errorf(api.InvalidTopicException, "topic %s collides with topic %s: '.' and '_' are the same in metrics", name, other)
}

// assign returns the replicas of each partition of a new topic.
func (s *State) assign(img *meta.Image, t NewTopic, room int) ([][]int32, *api.Error) {
	if len(t.Assignments) > 0 {
		return assignManually(img, t, room)
	}
	partitions, rf := t.Partitions, t.ReplicationFactor
	defPartitions, defRF := s.o.Defaults(img)
	if partitions == -1 {
		partitions = defPartitions
	}
	if rf == -1 {
		rf = defRF
	}
	switch {
	case partitions <= 0:
		return nil, api.Errorf(api.InvalidPartitions, "the number of partitions must be above 0, or -1 for the default")
	case rf <= 0:
		return nil, api.Errorf(api.InvalidReplicationFactor, "the replication factor must be above 0, or -1 for the default")
	case int(partitions) > room:
		return nil, tooMany()
	}
	place, err := s.placer(img, int(rf), t.ActiveOnly)
	if err != nil {
		return nil, err
	}
	out := make([][]int32, partitions)
	for i := range out {
		out[i] = place.replicas(i, int(rf))
	}
	return out, nil
}

func assignManually(img *meta.Image, t NewTopic, room int) ([][]int32, *api.Error) {
	switch {
	case t.ReplicationFactor != -1:
		return nil, api.Errorf(api.InvalidRequest, "with an assignment of partitions the replication factor must be -1")
	case t.Partitions != -1:
		return nil, api.Errorf(api.InvalidRequest, "with an assignment of partitions their number must be -1")
	case len(t.Assignments) > room:
		return nil, tooMany()
	}
	out := make([][]int32, len(t.Assignments))
	rf := 0
	for i := range out {
		replicas, ok := t.Assignments[int32(i)]
		if !ok {
			return nil, api.Errorf(api.InvalidReplicaAssignment, "the assignment has no partition %d; partitions count from 0 without gaps", i)
		}
		if err := checkAssignment(img, i, replicas, rf); err != nil {
			return nil, err
		}
		for _, b := range replicas {
			if t.ActiveOnly && !active(img, b) {
				return nil, api.Errorf(api.InvalidReplicationFactor, "broker %d of partition %d is not active", b, i)
			}
		}
		rf = len(replicas)
		out[i] = replicas
	}
	return out, nil
}

func tooMany() *api.Error {
	return api.Errorf(api.PolicyViolation, "a request may create at most %d partitions", maxNewPartitions)
}

// configError is the answer for a config entry that was found invalid.
func configError(err error) *api.Error {
	if code, msg := api.CodeOf(err); code != api.UnknownServerError {
		return &api.Error{Code: code, Message: msg, Err: err}
	}
	return &api.Error{Code: api.InvalidConfig, Message: err.Error(), Err: err}
}

// MorePartitions asks to grow a topic.
type MorePartitions struct {
	Name  string
	Count int32 // the new number of partitions
	// Assignments are the replicas of each new partition; nil lets the controller place
	// them.
	Assignments [][]int32
	// Internal: the cluster itself asks, the guards are not.
	Internal bool
}

// CreatePartitions grows each topic that can be. The reply is a []TopicResult, one
// for each name in the order they came.
func (s *State) CreatePartitions(_ time.Time, topics []MorePartitions, validateOnly bool) machine.Result {
	topics, twice := once(topics, func(t MorePartitions) string { return t.Name })
	var recs []meta.Record
	var results []TopicResult
	room := maxNewPartitions
	for _, t := range topics {
		var add []meta.Record
		var err *api.Error
		topic := s.Image().TopicByName(t.Name)
		switch {
		case twice[t.Name]:
			err = moreThanOnce(t.Name)
		case topic == nil:
			err = api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", t.Name)
		default:
			if err = checkGrowth(t.Name); err == nil && !t.Internal {
				err = s.guard(Op{Kind: OpCreatePartitions, Topic: topic})
			}
			if err == nil {
				add, err = s.PlanPartitions(t, room)
			}
		}
		room -= len(add)
		recs = append(recs, add...)
		results = append(results, TopicResult{Name: t.Name, Err: err})
	}
	if validateOnly {
		recs = nil
	}
	return s.result(results, recs...)
}

// PlanPartitions returns the records that grow an existing topic, without asking the
// guards.
func (s *State) PlanPartitions(t MorePartitions, room int) ([]meta.Record, *api.Error) {
	img := s.Image()
	topic := img.TopicByName(t.Name)
	if topic == nil {
		return nil, api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", t.Name)
	}
	have := len(topic.Partitions)
	add := int(t.Count) - have
	switch {
	case add == 0:
		return nil, api.Errorf(api.InvalidPartitions, "topic %s has %d partition(s) already", t.Name, have)
	case add < 0:
		return nil, api.Errorf(api.InvalidPartitions, "topic %s has %d partitions, more than the %d asked for; partitions can't be removed", t.Name, have, t.Count)
	case add > room:
		return nil, tooMany()
	case t.Assignments != nil && len(t.Assignments) != add:
		return nil, api.Errorf(api.InvalidReplicaAssignment, "%d partition(s) are to be added, but %d assignment(s) are given", add, len(t.Assignments))
	}
	rf := len(topic.Partitions[0].Replicas)
	var recs []meta.Record
	if t.Assignments != nil {
		for i, replicas := range t.Assignments {
			if err := checkAssignment(img, have+i, replicas, rf); err != nil {
				return nil, err
			}
			recs = append(recs, newPartition(img, topic.ID, int32(have+i), replicas))
		}
		return recs, nil
	}
	place, err := s.placer(img, rf, false)
	if err != nil {
		return nil, err
	}
	for i := have; i < have+add; i++ {
		recs = append(recs, newPartition(img, topic.ID, int32(i), place.replicas(i, rf)))
	}
	return recs, nil
}

// DeleteTopic names a topic to delete by name, or by id if the name is empty.
type DeleteTopic struct {
	Name string
	ID   ids.UUID
	// Internal: the cluster itself asks, the guards are not.
	Internal bool
}

// DeleteTopics deletes each topic that may be. The reply is a []TopicResult in the order
// of topics. One that is named more than once is refused, once, and stays.
func (s *State) DeleteTopics(_ time.Time, topics []DeleteTopic) machine.Result {
	times, told := map[ids.UUID]int{}, map[ids.UUID]bool{}
	for _, t := range topics {
		if topic, err := s.checkDelete(t); err == nil {
			times[topic.ID]++
		}
	}
	var recs []meta.Record
	var results []TopicResult
	for _, t := range topics {
		topic, err := s.checkDelete(t)
		res := TopicResult{Name: t.Name, ID: t.ID, Err: err}
		switch {
		case err != nil:
		case told[topic.ID]:
			continue
		case times[topic.ID] > 1:
			told[topic.ID] = true
			res.Err = api.Errorf(api.InvalidRequest, "topic %s is in the request more than once", topic.Name)
		default:
			res.Name, res.ID = topic.Name, topic.ID
			recs = append(recs, &meta.RemoveTopicRecord{TopicID: topic.ID})
		}
		results = append(results, res)
	}
	return s.result(results, recs...)
}

func (s *State) checkDelete(t DeleteTopic) (*meta.Topic, *api.Error) {
	img := s.Image()
	var topic *meta.Topic
	switch {
	case !s.o.DeleteTopics:
		return nil, api.Errorf(api.TopicDeletionDisabled, "topics can't be deleted: delete.topic.enable is false")
	case t.Name != "" && !t.ID.IsZero():
		return nil, api.Errorf(api.InvalidRequest, "name a topic by its name or by its id, not by both")
	case t.Name != "":
		if topic = img.TopicByName(t.Name); topic == nil {
			return nil, api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", t.Name)
		}
	case !t.ID.IsZero():
		if topic = img.TopicByID(t.ID); topic == nil {
			return nil, api.Errorf(api.UnknownTopicID, "there is no topic with id %s", t.ID)
		}
	default:
		return nil, api.Errorf(api.InvalidRequest, "a topic is named by neither name nor id")
	}
	if t.Internal {
		return topic, nil
	}
	return topic, s.guard(Op{Kind: OpDeleteTopic, Topic: topic})
}

// EpochBump asks for a leader epoch above Min (spec 4.14).
type EpochBump struct {
	Topic     string
	Partition int32
	Min       int32
}

// BumpLeaderEpochs raises the leader epoch of each partition that is at or below Min to
// Min+1; the leader stays. The reply is a []*api.Error in the order of bumps.
func (s *State) BumpLeaderEpochs(_ time.Time, bumps []EpochBump) machine.Result {
	img := s.Image()
	type key struct {
		topic     string
		partition int32
	}
	highest := map[key]int32{}
	var order []key
	errs := make([]*api.Error, len(bumps))
	for i, b := range bumps {
		p := img.Partition(b.Topic, b.Partition)
		if p == nil {
			errs[i] = api.Errorf(api.UnknownTopicOrPartition, "there is no partition %d of topic %s", b.Partition, b.Topic)
			continue
		}
		if b.Min >= maxBumpedEpoch {
			errs[i] = api.Errorf(api.InvalidRequest, "partition %d of topic %s: a leader epoch above %d leaves too few for elections to come; the limit is %d", b.Partition, b.Topic, b.Min, maxBumpedEpoch)
			continue
		}
		k := key{b.Topic, b.Partition}
		if e, ok := highest[k]; !ok {
			order = append(order, k)
			highest[k] = b.Min
		} else {
			highest[k] = max(e, b.Min)
		}
	}
	var recs []meta.Record
	for _, k := range order {
		topic := img.TopicByName(k.topic)
		if p := topic.Partition(k.partition); p.LeaderEpoch <= highest[k] {
			recs = append(recs, BumpRecord(topic, k.partition, highest[k]+1))
		}
	}
	return s.result(errs, recs...)
}

// maxBumpedEpoch bounds the leader epochs that can be asked for: every election takes the next one, and none may follow the
// last int32, which would be another leader under the same epoch. A mirror asks for what its source's batches say.
const maxBumpedEpoch = 1 << 30

// BumpRecord sets a partition's leader epoch and leaves its leader.
func BumpRecord(t *meta.Topic, partition, epoch int32) *meta.PartitionChangeRecord {
	r := meta.NewPartitionChange(t.ID, partition)
	r.LeaderEpoch = epoch
	return r
}

// ProducerIDBlock is how many producer ids are handed out at once.
const ProducerIDBlock = 1000

// AllocateProducerIDs gives a broker a block of producer ids. The reply is the first, an
// int64.
func (s *State) AllocateProducerIDs(_ time.Time, broker int32, epoch int64) machine.Result {
	img := s.Image()
	if _, err := checkBroker(img, broker, epoch); err != nil {
		return machine.Result{Err: err}
	}
	first := img.NextProducerID()
	if first > 1<<63-1-ProducerIDBlock {
		return machine.Result{Err: fmt.Errorf("all producer ids were handed out")}
	}
	return s.result(first, &meta.ProducerIdsRecord{BrokerID: broker, BrokerEpoch: epoch, NextProducerID: first + ProducerIDBlock})
}
