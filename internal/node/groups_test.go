package node_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
)

// consumeGroup is consume for a member of a group, which may lose its coordinator meanwhile.
func consumeGroup(t *testing.T, cl *kgo.Client, want int) []string {
	t.Helper()
	var got []string
	c := ctx(t)
	for len(got) < want {
		fs := cl.PollFetches(c)
		fs.EachError(func(_ string, _ int32, err error) {
			if lost := (*kgo.ErrGroupSession)(nil); !errors.As(err, &lost) {
				t.Fatalf("after %d of %d records: %v", len(got), want, err)
			}
		})
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// A group goes on when its coordinator dies, and no committed offset goes back.
func TestGroupSurvivesItsCoordinator(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{Props: map[string]string{"offsets.topic.num.partitions": "1"}})
	cl := clusterClient(t, c)
	createTopic(t, cl, "orders", 1, 3)
	group := clusterClient(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	next, last := 0, int64(0)
	round := func() {
		t.Helper()
		produce(t, cl, "orders", next, next+50)
		got := consumeGroup(t, group, 50)
		for i, v := range got {
			if want := fmt.Sprintf("v%d", next+i); v != want {
				t.Fatalf("read %s, want %s", v, want)
			}
		}
		next += 50
		nodetest.Eventually(t, 20*time.Second, func() error { // the client may find its coordinator gone, and doesn't try again
			return group.CommitUncommittedOffsets(ctx(t))
		})
		var o kadm.OffsetResponse
		nodetest.Eventually(t, 20*time.Second, func() error { // an older client may still ask the coordinator that is gone
			offsets, err := kadm.NewClient(clusterClient(t, c)).FetchOffsets(ctx(t), "g")
			o, _ = offsets.Lookup("orders", 0)
			return err
		})
		if o.At < last || o.At != int64(next) {
			t.Fatalf("the group's offset is %d after %d were committed, before it was %d", o.At, next, last)
		}
		last = o.At
	}
	round()
	victim := leader(t, c, "__consumer_offsets", 0)
	c.Kill(victim)
	round()
	c.StartNodes(victim)
	round()
	replicasEqual(t, c, "__consumer_offsets")
}
