package replica

import (
	"testing"

	"milena/internal/ids"
	"milena/internal/meta"
)

// A topic that was deleted and created again with its id, as the mirror of a topic is, while this broker heard nothing: what comes at once is two topics.
func TestTopicMadeAgainWithItsID(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, 1)
	for epoch := int32(1); epoch < 4; epoch++ {
		r.lead(1, 1, epoch)
	}
	r.append(r.get(name, 0), 3)
	id := topicID(1)
	r.apply(&meta.RemoveTopicRecord{TopicID: id}, &meta.TopicRecord{TopicName: name, TopicID: id, Incarnation: ids.UUID{1}},
		&meta.PartitionRecord{TopicID: id, Leader: 1, Replicas: []int32{1}, ISR: []int32{1}, Directories: make([]ids.UUID, 1)})
	p := r.get(name, 0)
	if _, epoch, _ := p.Leader(); epoch != 0 || p.LogEndOffset() != 0 {
		t.Errorf("leader epoch %d, %d records of the topic that was deleted; want 0 and none", epoch, p.LogEndOffset())
	}
}
