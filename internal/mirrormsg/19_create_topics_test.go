package mirrormsg

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/ids"
)

// Version 8 is version 7 with one more field at the end of each topic: an int8 of -1 for null, or 1 and the source's id.
func TestCreateTopics(t *testing.T) {
	v := "1"
	m := &CreateTopicsRequest{TimeoutMs: 5000, ValidateOnly: true, Topics: []CreatableTopic{{
		Name: "t", NumPartitions: -1, ReplicationFactor: -1, Assignments: []CreatableReplicaAssignment{{PartitionIndex: 0, BrokerIDs: []int32{3, 1}}},
		Configs: []CreatableTopicConfig{{Name: "a", Value: &v}, {Name: "b"}},
	}}}
	k := kmsg.NewPtrCreateTopicsRequest()
	k.Version, k.TimeoutMillis, k.ValidateOnly = 7, 5000, true
	kt := kmsg.NewCreateTopicsRequestTopic()
	kt.Topic, kt.NumPartitions, kt.ReplicationFactor = "t", -1, -1
	kt.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{3, 1}}}
	kt.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "a", Value: &v}, {Name: "b"}}
	k.Topics = append(k.Topics, kt)
	old := k.AppendTo(nil)
	// Behind the topic come its tags, the time-out, the flag and the request's tags.
	cut := len(old) - 1 - 4 - 1 - 1
	want := append(append(bytes.Clone(old[:cut]), 0xff), old[cut:]...)
	if got := m.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("without information\n got %x\nwant %x", got, want)
	}
	id := ids.UUID{0: 7, 15: 9}
	m.Topics[0].MirrorInfo = &MirrorInfo{TopicID: id}
	want = append(append(append(append(bytes.Clone(old[:cut]), 1), id[:]...), 0), old[cut:]...)
	got := m.AppendTo(nil)
	if !bytes.Equal(got, want) {
		t.Errorf("with an id\n got %x\nwant %x", got, want)
	}
	back := &CreateTopicsRequest{}
	if err := back.ReadFrom(got); err != nil || !cmp.Equal(back, m) {
		t.Errorf("%v: %s", err, cmp.Diff(m, back))
	}
	for n := range len(got) {
		if err := (&CreateTopicsRequest{}).ReadFrom(got[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a request", n, len(got))
		}
	}
	if r := m.ResponseKind().(*kmsg.CreateTopicsResponse); r.Version != 8 {
		t.Errorf("a response of version %d", r.Version)
	}
}
