package group

import (
	"maps"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
)

// offsetCommitKnowsGroups is the version of OffsetCommit from which an unknown
// group has an error of its own.
const offsetCommitKnowsGroups = 9

func (m *Machine) putOffset(groupID, topic string, partition int32, c committed) {
	g := m.groups[groupID]
	if g == nil {
		g = m.create(groupID, -1)
	}
	ps := g.offsets[topic]
	if ps == nil {
		ps = map[int32]committed{}
		g.offsets[topic] = ps
	}
	if _, ok := ps[partition]; !ok {
		m.stats.offsets++
	}
	ps[partition] = c
}

func (m *Machine) removeOffset(groupID, topic string, partition int32) {
	g := m.groups[groupID]
	if g == nil {
		return
	}
	ps := g.offsets[topic]
	if _, ok := ps[partition]; !ok {
		return
	}
	m.stats.offsets--
	if delete(ps, partition); len(ps) == 0 {
		delete(g.offsets, topic)
	}
}

// checkCommit says whether the sender may commit offsets for the group now.
func (m *Machine) checkCommit(g *group, req *CommitRequest) api.Code {
	if g == nil {
		switch {
		case req.Generation < 0:
			return api.NoError // a group that only stores offsets begins
		case req.Version >= offsetCommitKnowsGroups:
			return api.GroupIDNotFound
		}
		return api.IllegalGeneration
	}
	if req.Generation < 0 && g.state == Empty {
		return api.NoError
	}
	if req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil {
		return api.UnknownMemberID // only its members commit for a group that has some
	}
	if code := g.validate(req.MemberID, req.InstanceID); code != api.NoError {
		return code
	}
	switch {
	case req.Generation != g.generation:
		return api.IllegalGeneration
	case g.state == CompletingRebalance:
		// It has the new generation from its join, but not its assignment yet.
		return api.RebalanceInProgress
	}
	return api.NoError
}

// Commit commits offsets. The answers are in req when done is called without an
// error.
func (m *Machine) Commit(now time.Time, req *CommitRequest, done func(error)) Effects {
	return m.commitFrom(now, req, 0, 0, done)
}

// commitFrom commits from the given topic and partition (indexes) on.
func (m *Machine) commitFrom(now time.Time, req *CommitRequest, topic, partition int, done func(error)) Effects {
	e := Effects{Groups: []string{req.Group}, Replies: []func(error){done}}
	cfg := m.cfg()
	g := m.groups[req.Group]
	if code := m.checkCommit(g, req); code != api.NoError {
		req.fail(code)
		return e
	}
	if g != nil && (g.state == Stable || g.state == PreparingRebalance) {
		m.touchSession(now, g, g.members[req.MemberID])
	}
	nowMs := now.UnixMilli()
	expireMs := int64(-1)
	if req.RetentionMs != -1 {
		expireMs = nowMs + req.RetentionMs
	}
	for i := topic; i < len(req.Topics); i++ {
		t := &req.Topics[i]
		for j := partition; j < len(t.Partitions); j++ {
			if e.bytes > cfg.MaxBatchBytes/2 {
				e.More = func(now time.Time, m *Machine) Effects { return m.commitFrom(now, req, i, j, done) }
				e.Replies = nil
				return e
			}
			m.commitOne(cfg, req.Group, t.TopicRef, &t.Partitions[j], nowMs, expireMs, &e)
		}
		partition = 0
	}
	return e
}

func (m *Machine) commitOne(cfg Config, group string, t TopicRef, p *CommitPartition, nowMs, expireMs int64, e *Effects) {
	c := committed{offset: p.Offset, epoch: p.LeaderEpoch, commitMs: nowMs, expireMs: expireMs, topicID: t.ID}
	if p.Metadata != nil {
		c.metadata = *p.Metadata
	}
	if javaLength(c.metadata) > cfg.MetadataMaxBytes {
		p.Code = api.OffsetMetadataTooLarge
		return
	}
	r := offsetRecord(group, t.Name, p.Partition, c)
	if len(r.Key)+len(r.Value) > cfg.maxRecordBytes() {
		p.Code = api.InvalidCommitOffsetSize
		return
	}
	p.Code = api.NoError
	m.stats.commits++
	e.add(r)
}

// Fetch reads committed offsets. There are no transactions yet, so every offset
// is stable.
func (m *Machine) Fetch(req *FetchRequest) FetchResult {
	g := m.groups[req.Group]
	if req.Topics == nil {
		return FetchResult{Topics: g.allOffsets()}
	}
	var r FetchResult
	for _, t := range req.Topics {
		out := FetchedTopic{TopicRef: t.TopicRef, Partitions: make([]FetchedPartition, 0, len(t.Partitions))}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, g.fetch(t.TopicRef, p))
		}
		r.Topics = append(r.Topics, out)
	}
	return r
}

func (g *group) fetch(t TopicRef, partition int32) FetchedPartition {
	none := FetchedPartition{Partition: partition, Offset: -1, LeaderEpoch: -1}
	if g == nil {
		return none
	}
	c, ok := g.offsets[t.Name][partition]
	if !ok || otherTopic(c.topicID, t.ID) {
		return none
	}
	return fetched(partition, c)
}

// otherTopic reports whether the offset was committed for another topic of the
// same name.
func otherTopic(stored, asked ids.UUID) bool {
	return !stored.IsZero() && !asked.IsZero() && stored != asked
}

func fetched(partition int32, c committed) FetchedPartition {
	return FetchedPartition{
		Partition:   partition,
		Offset:      c.offset,
		LeaderEpoch: c.epoch,
		Metadata:    c.metadata,
		TopicID:     c.topicID,
	}
}

func (g *group) allOffsets() []FetchedTopic {
	if g == nil {
		return nil
	}
	var out []FetchedTopic
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		ps := g.offsets[topic]
		t := FetchedTopic{TopicRef: TopicRef{Name: topic}}
		for _, p := range slices.Sorted(maps.Keys(ps)) {
			t.Partitions = append(t.Partitions, fetched(p, ps[p]))
		}
		out = append(out, t)
	}
	return out
}

// DeleteOffsets removes committed offsets of topics that no member uses
// (KIP-496). done gets the code of the request as a whole; the partitions' codes
// are in req.
func (m *Machine) DeleteOffsets(now time.Time, req *DeleteOffsetsRequest, done func(error, api.Code)) Effects {
	e := Effects{Groups: []string{req.Group}}
	reply := func(code api.Code) {
		e.Replies = append(e.Replies, func(err error) { done(err, code) })
	}
	g := m.groups[req.Group]
	switch {
	case g == nil:
		reply(api.GroupIDNotFound)
		return e
	case g.state != Empty && !g.isConsumer():
		reply(api.NonEmptyGroup)
		return e
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		used := g.subscribedTo(t.Name)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Code != api.NoError {
				continue
			}
			if used {
				p.Code = api.GroupSubscribedToTopic
				continue
			}
			if _, ok := g.offsets[t.Name][p.Partition]; !ok {
				continue
			}
			if e.bytes > m.budget() {
				// What is deleted so far isn't found the next time.
				e.More = func(now time.Time, m *Machine) Effects { return m.DeleteOffsets(now, req, done) }
				return e
			}
			e.add(offsetTombstone(g.id, t.Name, p.Partition))
		}
	}
	reply(api.NoError)
	return e
}

// DeleteGroup removes an empty group with its offsets.
func (m *Machine) DeleteGroup(now time.Time, id string, done func(error, api.Code)) Effects {
	e := Effects{Groups: []string{id}}
	code := api.NoError
	g := m.groups[id]
	switch {
	case g == nil:
		code = api.GroupIDNotFound
	case g.state != Empty:
		code = api.NonEmptyGroup
	case !m.tombstones(g, func(string, int32) bool { return true }, &e):
		e.More = func(now time.Time, m *Machine) Effects { return m.DeleteGroup(now, id, done) }
		return e
	default:
		e.add(groupTombstone(id))
	}
	e.Replies = append(e.Replies, func(err error) { done(err, code) })
	return e
}

// tombstones adds tombstones for the group's offsets that match, and reports
// whether the command's budget allowed all.
func (m *Machine) tombstones(g *group, match func(topic string, partition int32) bool, e *Effects) bool {
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			if !match(topic, p) {
				continue
			}
			if e.bytes > m.budget() {
				return false
			}
			e.add(offsetTombstone(g.id, topic, p))
		}
	}
	return true
}

// TopicsDeleted removes the offsets committed for topics that are gone.
func (m *Machine) TopicsDeleted(now time.Time, topics []TopicRef, done func(error)) Effects {
	var e Effects
	for _, id := range m.ids() {
		g := m.groups[id]
		gone := func(topic string, partition int32) bool {
			c := g.offsets[topic][partition]
			return slices.ContainsFunc(topics, func(t TopicRef) bool {
				return t.Name == topic && (c.topicID.IsZero() || c.topicID == t.ID)
			})
		}
		n := len(e.Records)
		all := m.tombstones(g, gone, &e)
		if len(e.Records) > n {
			e.touch(id)
		}
		if !all {
			e.More = func(now time.Time, m *Machine) Effects { return m.TopicsDeleted(now, topics, done) }
			return e
		}
	}
	e.Replies = append(e.Replies, done)
	return e
}

// ClampOffsets moves every committed offset of the partition that lies above
// end down to end, with the leader epoch given, whether or not the group has
// members: the partition was cut. Topic ids must agree where both are known.
// done gets what was moved.
func (m *Machine) ClampOffsets(now time.Time, t TopicRef, partition int32, end int64, epoch int32, done func(error, []Clamped)) Effects {
	return m.clampFrom(now, t, partition, end, epoch, nil, done)
}

func (m *Machine) clampFrom(now time.Time, t TopicRef, partition int32, end int64, epoch int32, moved []Clamped, done func(error, []Clamped)) Effects {
	var e Effects
	for _, id := range m.ids() {
		c, ok := m.groups[id].offsets[t.Name][partition]
		if !ok || c.offset <= end || otherTopic(c.topicID, t.ID) {
			continue
		}
		if e.bytes > m.budget() {
			e.More = func(now time.Time, m *Machine) Effects {
				return m.clampFrom(now, t, partition, end, epoch, moved, done)
			}
			return e
		}
		moved = append(moved, Clamped{id, c.offset, end})
		c.offset, c.epoch, c.commitMs = end, epoch, now.UnixMilli()
		e.touch(id)
		e.add(offsetRecord(id, t.Name, partition, c))
	}
	e.Replies = append(e.Replies, func(err error) { done(err, moved) })
	return e
}
