package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// cutSource cuts a topic of a one-node cluster as an unclean election does.
func (c *cluster) cutSource(topic string, to int64) {
	c.t.Helper()
	p, err := c.n.Replicas().Get(topic, 0)
	if err == nil {
		err = p.TruncateTo(to)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitReplicas waits until the replicas of partition 0 on the nodes end at an offset, committed.
func (c *trio) awaitReplicas(topic string, end int64, nodes ...int32) {
	c.t.Helper()
	eventually(c.t, func() error {
		for _, id := range nodes {
			p, err := c.nodes.Node(id).Replicas().Get(topic, 0)
			if err != nil {
				return err
			}
			if p.LogEndOffset() != end || p.HighWatermark() != end {
				return fmt.Errorf("node %d ends at %d, high watermark %d, want %d", id, p.LogEndOffset(), p.HighWatermark(), end)
			}
		}
		return nil
	})
}

// others are the nodes but one.
func (c *trio) others(id int32) (out []int32) {
	for _, n := range c.nodes.IDs() {
		if n != id {
			out = append(out, n)
		}
	}
	return out
}

// 54. ULE flag off: RF2 topic, 30 records, lag 0; stop B's follower; cut A's leader log to 20; B keeps MIRRORING and reaches lag 0 (B cut
// as well).
func TestScenario54(t *testing.T) { uncleanElection(t, 54) }

// 55. (continues 54) ULE flag on: set the flag on B's topic; cut A's log to 10; B's partition goes to ULE_LOG_TRUNCATION and stays there
// while the follower is down.
func TestScenario55(t *testing.T) { uncleanElection(t, 55) }

// 56. (continues 55) Start the follower: MIRRORING and lag 0.
func TestScenario56(t *testing.T) { uncleanElection(t, 56) }

// uncleanElection runs scenarios 54 to 56, with three replicas, up to the given one.
func uncleanElection(t *testing.T, last int) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1)
	for range 3 {
		a.produce("t", 0, 10)
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitReplicas("t", 30, b.nodes.IDs()...)
	states, err := b.mir.Describe(t.Context(), "m")
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	leader := b.leader("t")
	down := b.others(leader)[0]
	up := b.others(down)
	b.nodes.Kill(down)
	a.cutSource("t", 20)
	b.awaitReplicas("t", 20, up...)
	b.awaitLevel("m", "t")
	if last == 54 {
		return
	}
	// By its later name (spec 0.2).
	on := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "mirror.unclean.leader.election.enable", Value: kadm.StringPtr("true")}}
	if rs, err := b.adm.AlterTopicConfigs(t.Context(), on, "t"); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	eventually(t, func() error {
		for _, id := range up {
			if v := b.nodes.Node(id).Image().Config(2, "t")["mirror.support.unclean.leader.election"]; v != "true" {
				return fmt.Errorf("node %d: the flag is %q", id, v)
			}
		}
		return nil
	})
	a.cutSource("t", 10)
	waits := func() error {
		p, err := b.state("m", "t", 0)
		if err == nil && p.State != "ULE_LOG_TRUNCATION" {
			err = fmt.Errorf("partition is %+v", p)
		}
		return err
	}
	eventually(t, waits)
	b.awaitReplicas("t", 10, up...)
	for range 3 {
		<-time.After(100 * time.Millisecond) // a refresh each
		if err := waits(); err != nil {
			t.Fatal(err)
		}
	}
	if last == 55 {
		return
	}
	b.nodes.StartNodes(down)
	b.awaitLevel("m", "t")
	a.produce("t", 0, 5)
	b.awaitReplicas("t", 15, b.nodes.IDs()...)
	b.awaitSame(a, "t")
	// Both cuts are set aside by who led, and described.
	cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{Mirror: "m"})
	if err != nil || len(cuts) != 2 || cuts[0].First != 20 || cuts[0].End != 30 || cuts[1].First != 10 || cuts[1].End != 20 {
		t.Errorf("cuts: %+v, %v", cuts, err)
	}
}

// D8: "Any cut clamps every committed offset of the partition on this cluster to the cut and lists the groups": also where the group has
// members and its coordinator is another broker than the one that cuts.
//
// 171. After a failback, offsets that the old source's groups had committed above the cut are at the cut, and the groups are listed.
func TestScenario171(t *testing.T) {
	a, b := newTrio(t, "offsets.topic.num.partitions", "6"), newCluster(t, "standby")
	topic := a.failedOver(b)
	a.commit("below", topic, 4, "")
	a.commit("above", topic, 8, "")
	live := []string{"live0", "live1", "live2", "live3"} // of several coordinators
	for _, g := range live {
		cl, err := kgo.NewClient(kgo.SeedBrokers(a.nodes.Addrs()...), kgo.ConsumerGroup(g), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for n := 0; n < 9; {
			fs := cl.PollFetches(t.Context())
			if n += fs.NumRecords(); fs.Err() != nil {
				t.Fatal(fs.Err())
			}
		}
		if err := cl.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at, _ := a.committed(g, topic); at != 9 {
			t.Fatalf("group %s is at %d", g, at)
		}
	}
	a.begin("back", topic)
	a.awaitLevel("back", topic)
	for g, want := range map[string]int64{"below": 4, "above": 6, "live0": 6, "live1": 6, "live2": 6, "live3": 6} {
		if at, _ := a.committed(g, topic); at != want {
			t.Errorf("group %s is at %d, want %d", g, at, want)
		}
	}
	if !strings.Contains(a.logs.text(), `groups="[above live0 live1 live2 live3]"`) {
		t.Error("the groups are not listed in the log")
	}
}
