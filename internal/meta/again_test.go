package meta

import (
	"fmt"
	"testing"

	"milena/internal/ids"
)

// A topic that is deleted and created again with its id, as the mirror of a topic is, is another topic, whether all that is seen is one delta of
// the log or a snapshot: whoever took it for the same would keep its records.
func TestTopicCreatedAgainWithItsID(t *testing.T) {
	id := ids.UUID{15: 1}
	topic := func(incarnation byte) []Record {
		return []Record{&TopicRecord{TopicName: "t", TopicID: id, Incarnation: ids.UUID{15: incarnation}},
			&PartitionRecord{TopicID: id, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, Directories: make([]ids.UUID, 1)}}
	}
	d := Empty("c").Draft()
	apply(t, d, 0, topic(7)...)
	first := d.Delta().Next
	apply(t, d, 2, append([]Record{&RemoveTopicRecord{TopicID: id}}, topic(8)...)...)
	second := d.Delta()
	snapshot := Empty("c").Draft()
	for r := range second.Next.Records() {
		apply(t, snapshot, second.Next.Offset, r)
	}
	for name, delta := range map[string]*Delta{"log": second, "snapshot": Diff(first, snapshot.Image())} {
		if len(delta.Topics) != 2 || !delta.Topics[0].Deleted() || !delta.Topics[1].Created() || fmt.Sprint(delta.Topics[1].Partitions) != "[0]" {
			t.Errorf("%s: %+v, want a deletion and a creation with its partition", name, delta.Topics)
		}
	}
	if same := Diff(second.Next, snapshot.Image()); len(same.Topics) != 0 {
		t.Errorf("a snapshot of the same topic changes it: %+v", same.Topics)
	}
}
