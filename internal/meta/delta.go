package meta

import (
	"cmp"
	"maps"
	"slices"

	"milena/internal/ids"
)

// Delta is what changed between two consecutive images. All lists are in a fixed order
// (topics by name, brokers by id), so that no map order decides anything downstream.
type Delta struct {
	Prev, Next *Image
	// Topics lists deleted, then created and changed topics. A topic deleted and created
	// again under its name appears twice, also if it has its id again.
	Topics []TopicDelta
	// Configs lists the resources of which an entry changed.
	Configs []Resource
	// Brokers lists the brokers that registered, unregistered or changed.
	Brokers []int32
	// Controllers lists the controllers that registered or changed.
	Controllers []int32
	// Features lists the features whose finalized level changed.
	Features []string
}

// TopicDelta is the change of one topic (one topic id).
type TopicDelta struct {
	// Prev is the topic before, nil if it was created.
	Prev *Topic
	// Next is the topic after, nil if it was deleted.
	Next *Topic
	// Partitions lists the partitions created or changed, ascending; nil for a deleted
	// topic. It is empty if only data of the topic as a whole (its mirror) changed.
	Partitions []int32
}

// Created reports whether the topic is new.
func (d TopicDelta) Created() bool { return d.Prev == nil }

// Deleted reports whether the topic is gone.
func (d TopicDelta) Deleted() bool { return d.Next == nil }

// Topic returns the topic after the change, or before it if it was deleted.
func (d TopicDelta) Topic() *Topic {
	if d.Next != nil {
		return d.Next
	}
	return d.Prev
}

// Delta returns what changed since the last call, or since the draft began. It is the
// one place where a Draft's base moves.
func (d *Draft) Delta() *Delta {
	out := &Delta{Prev: d.base, Next: d.Image()}
	out.addTopics(d.touchedTopics)
	for _, key := range slices.Sorted(maps.Keys(d.touchedConfigs)) {
		res := d.touchedConfigs[key]
		if !maps.Equal(out.Prev.Config(res.Type, res.Name), out.Next.Config(res.Type, res.Name)) {
			out.Configs = append(out.Configs, res)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.touchedBrokers)) {
		if out.Prev.Broker(id) != out.Next.Broker(id) {
			out.Brokers = append(out.Brokers, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.touchedControls)) {
		if out.Prev.Controller(id) != out.Next.Controller(id) {
			out.Controllers = append(out.Controllers, id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.touchedFeatures)) {
		if out.Prev.Feature(name) != out.Next.Feature(name) {
			out.Features = append(out.Features, name)
		}
	}
	d.base = out.Next
	if d.before == nil { // what an open transaction touched belongs to a later delta
		d.forget()
	}
	return out
}

// again reports whether next, which has the id of prev, was created after that was deleted.
func again(prev, next *Topic) bool {
	return !next.Incarnation.IsZero() && prev.Incarnation != next.Incarnation
}

func (out *Delta) addTopics(touched map[ids.UUID]map[int32]struct{}) {
	for id, parts := range touched {
		td := TopicDelta{Prev: out.Prev.TopicByID(id), Next: out.Next.TopicByID(id)}
		if td.Prev == td.Next {
			continue // created and deleted, or nothing visible yet
		}
		if td.Prev != nil && td.Next != nil && again(td.Prev, td.Next) {
			out.Topics = append(out.Topics, TopicDelta{Prev: td.Prev})
			td.Prev = nil
		}
		if td.Next != nil {
			for _, p := range slices.Sorted(maps.Keys(parts)) {
				if td.Prev.Partition(p) != td.Next.Partition(p) {
					td.Partitions = append(td.Partitions, p)
				}
			}
		}
		out.Topics = append(out.Topics, td)
	}
	slices.SortFunc(out.Topics, func(a, b TopicDelta) int {
		if a.Deleted() != b.Deleted() {
			if a.Deleted() {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Topic().Name, b.Topic().Name)
	})
}
