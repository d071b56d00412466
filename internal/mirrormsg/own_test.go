package mirrormsg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/ids"
)

// Milena's own messages survive a trip over the wire, and a body cut short is an error.
func TestOwnMessages(t *testing.T) {
	text := "why"
	for _, m := range []kmsg.Request{
		&MirrorCutsRequest{Operation: ReadCut, Names: []string{"a", "b"}, Position: 3, MaxBytes: 4},
		&CheckMirrorSourceRequest{MirrorName: "m", Config: []CreateClusterMirrorConfig{{Name: "n", Value: &text}}, TimeoutMs: 1},
		&ClampGroupOffsetsRequest{TopicName: "t", TopicID: ids.UUID{1}, PartitionIndex: 2, EndOffset: 3, LeaderEpoch: 4},
	} {
		trip(t, m, m.ResponseKind().RequestKind())
	}
	trip(t, &MirrorCutsResponse{
		ThrottleTimeMs: 1, ErrorCode: 2, ErrorMessage: &text, Data: []byte("data"),
		Cuts: []MirrorCut{{Name: "n", Dir: "d", MirrorName: "m", TopicName: "t", TopicID: "i", PartitionIndex: 1, FirstOffset: 2, EndOffset: 3, Records: 4, Bytes: 5, CreatedMs: 6, LeaderEpoch: 7, Reason: "r"}},
	}, &MirrorCutsResponse{})
	trip(t, &CheckMirrorSourceResponse{ThrottleTimeMs: 1, ErrorCode: 2, ErrorMessage: &text, ClusterID: "c", Brokers: 3}, &CheckMirrorSourceResponse{})
	trip(t, &ClampGroupOffsetsResponse{ThrottleTimeMs: 1, ErrorCode: 2, ErrorMessage: &text, Groups: []string{"g"}}, &ClampGroupOffsetsResponse{})
}

type message interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

func trip(t *testing.T, m, empty message) {
	t.Helper()
	b := m.AppendTo(nil)
	if err := empty.ReadFrom(b); err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	if d := cmp.Diff(m, empty); d != "" {
		t.Errorf("%T: %s", m, d)
	}
	for i := range b {
		if err := empty.ReadFrom(b[:i]); err == nil {
			t.Errorf("%T cut at %d of %d is read", m, i, len(b))
		}
	}
}
