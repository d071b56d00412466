package cluster

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/ids"
	"milena/internal/meta"
)

// What a controller gives of the metadata says of which generation of the quorum it is: a reader notices that it was restored.
func TestFetchTellsTheGeneration(t *testing.T) {
	n := startNode(t, newMem(), nil)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.SessionEpoch = -1, -1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = meta.TopicName, ids.MetadataTopic
	part := kmsg.NewFetchRequestTopicPartition()
	part.LastFetchedEpoch, part.PartitionMaxBytes = -1, 1<<20
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	r, err := loop{n.ctl}.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	told := false
	r.(*kmsg.FetchResponse).UnknownTags.Each(func(tag uint32, v []byte) {
		if tag == 10_001 {
			told = len(v) == 8 && binary.BigEndian.Uint64(v) == n.quorum.Status().Generation
		}
	})
	if !told {
		t.Errorf("the answer doesn't tell the generation: %+v", r)
	}
}
