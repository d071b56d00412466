package cli

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaderless is what a listing of offsets says when partition 1 of t has no leader.
func leaderless() error {
	part := kmsg.ListOffsetsRequestTopicPartition{Partition: 1}
	req := &kmsg.ListOffsetsRequest{Topics: []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{part}}}}
	return &kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{{Req: req, Err: kerr.LeaderNotAvailable}}}
}

// Rule: a partition whose end is not known is not taken for one that was read, and hinders none that is known.
func TestEndsOfPartitionsWithoutALeader(t *testing.T) {
	listed := kadm.ListedOffsets{"t": {0: {Topic: "t", Partition: 0, Offset: 5}, 2: {Topic: "t", Partition: 2, Offset: -1, Err: kerr.KafkaStorageError}}}
	start := kadm.ListedOffsets{"t": {0: {Topic: "t", Partition: 0, Offset: 2}, 2: {Topic: "t", Partition: 2}}}
	f := &consumeFlags{fromBeginning: true}
	if begin, end, ok, err := f.span("t", 0, start, listed, nil); begin != 2 || end != 5 || !ok || err != nil {
		t.Errorf("t-0 from %d to %d, %v, %v", begin, end, ok, err)
	}
	if _, _, ok, err := f.span("t", 1, start, listed, nil); ok || err != nil {
		t.Errorf("t-1: %v, %v", ok, err)
	}
	if _, _, ok, err := f.span("t", 2, start, listed, nil); ok || !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("t-2: %v, %v", ok, err)
	}
	if err := notListed(leaderless(), "t", 1); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("why t-1 is missing: %v", err)
	}
	if err := notListed(leaderless(), "t", 0); err != nil {
		t.Errorf("why t-0 is missing: %v", err)
	}
	if err := notListed(context.DeadlineExceeded, "t", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("why all is missing: %v", err)
	}
}

// partlyLed has no leader for partition 1 of t.
type partlyLed struct{ fakeGroups }

func (partlyLed) ListEndOffsets(_ context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return kadm.ListedOffsets{"t": {0: {Topic: "t", Partition: 0, Offset: 4}}}, leaderless()
}

func TestDescribeGroupOfAPartitionWithoutALeader(t *testing.T) {
	out, _, failed := describeGroups(t.Context(), partlyLed{fakeGroups{map[string]string{"new": "consumer"}}}, []string{"new"})
	if len(failed) != 0 || len(out) != 1 {
		t.Fatalf("%v, %v", out, failed)
	}
	got, err := json.Marshal(out[0].Partitions)
	const want = `[{"topic":"t","partition":0,"current_offset":null,"log_end_offset":4,"lag":null},` +
		`{"topic":"t","partition":1,"current_offset":3,"log_end_offset":null,"lag":null,"consumer_id":"m","host":"/1.2.3.4","client_id":"c"}]`
	if err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
}
