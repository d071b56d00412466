package node_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/node/nodetest"
)

// A broker that must count itself as fenced answers no coordinator's read, from the moment it does: another coordinator may have taken newer
// commits. When that is comes from the session's time-out and the last answered heartbeat alone: metafollow.TestSessionSuspendsAndResumes.
func TestSuspendedCoordinatorAnswersNoReads(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 1, 3)
	produce(t, cl, "t", 0, 5)
	group := clusterClient(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	consumeGroup(t, group, 5)
	if err := group.CommitUncommittedOffsets(ctx(t)); err != nil {
		t.Fatal(err)
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{"g"}
	var at int32
	read := func() (api.Code, int64) {
		t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "g"
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = "t", []int32{0}
		gt.TopicID = c.Node(1).Image().TopicByName("t").ID
		g.Topics = append(g.Topics, gt)
		req.Groups = append(req.Groups, g)
		r, err := cl.Broker(int(at)).Request(ctx(t), req)
		if err != nil {
			t.Fatal(err)
		}
		got := r.(*kmsg.OffsetFetchResponse).Groups[0]
		if len(got.Topics) == 0 || len(got.Topics[0].Partitions) == 0 {
			return api.Code(got.ErrorCode), -1
		}
		return api.Code(got.ErrorCode), got.Topics[0].Partitions[0].Offset
	}
	nodetest.Eventually(t, 10*time.Second, func() error {
		r, err := find.RequestWith(ctx(t), cl)
		if err == nil {
			at = r.Coordinators[0].NodeID
		}
		return err
	})
	if code, offset := read(); code != api.NoError || offset != 5 {
		t.Fatalf("the coordinator answers %v, offset %d", code, offset)
	}
	c.Node(at).Replicas().Suspend("no heartbeat was answered")
	if code, offset := read(); code != api.NotCoordinator && code != api.CoordinatorLoadInProgress || offset >= 0 {
		t.Errorf("while it is suspended it answers %v, offset %d", code, offset)
	}
	c.Node(at).Replicas().Resume()
	nodetest.Eventually(t, 10*time.Second, func() error {
		if code, offset := read(); code != api.NoError || offset != 5 {
			return api.Errorf(code, "offset %d", offset)
		}
		return nil
	})
}
