package mirror_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/mirroradm"
)

// awaitISR waits until a node's metadata has these replicas of partition 0 in sync.
func (c *trio) awaitISR(topic string, ids ...int32) {
	c.t.Helper()
	eventually(c.t, func() error {
		p := c.nodes.Node(c.leader(topic)).Image().Partition(topic, 0)
		if got := slices.Sorted(slices.Values(p.ISR)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
			return fmt.Errorf("in sync are %v, want %v", got, ids)
		}
		return nil
	})
}

// unaligned is to where the metadata say that a replica has to be cut, -1: it needn't.
func (c *trio) unaligned(topic string, id int32) int64 {
	c.t.Helper()
	to, _ := c.nodes.Node(c.leader(topic)).Image().Partition(topic, 0).UnalignedAt(id)
	return to
}

// raise has partition 0 led under a leader epoch that is above its own.
func (c *trio) raise(topic string, epoch int32) {
	c.t.Helper()
	part := mirrormsg.BumpLeaderEpochsPartition{MinLeaderEpoch: epoch - 1}
	req := &mirrormsg.BumpLeaderEpochsRequest{Topics: []mirrormsg.BumpLeaderEpochsTopic{{TopicName: topic, Partitions: []mirrormsg.BumpLeaderEpochsPartition{part}}}}
	eventually(c.t, func() error {
		id := c.nodes.ActiveController()
		known := c.nodes.Node(id).Image().Controller(id)
		if known == nil {
			return fmt.Errorf("controller %d is not registered yet", id)
		}
		e := known.Endpoints[0]
		cl, err := kgo.NewClient(kgo.MaxVersions(nil), kgo.SeedBrokers(net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))))
		if err != nil {
			return err
		}
		defer cl.Close()
		if _, err := cl.SeedBrokers()[0].Request(c.t.Context(), req); err != nil {
			return err
		}
		if _, now, self := c.replica(c.leader(topic), topic).Leader(); now != epoch || !self {
			return fmt.Errorf("leader epoch %d, want %d", now, epoch)
		}
		return nil
	})
}

// away fails topic over to b and back while one replica, away, is down: first cuts its log to 6, and both sides have used the same leader epoch
// above. What comes from b ends a batch where the log of away ends, so that nothing but the cut tells them apart.
func (c *trio) away(b *cluster) (topic string, first, second, away int32) {
	c.t.Helper()
	topic = c.failedOver(b)
	first = c.leader(topic)
	second, away = c.others(first)[0], c.others(first)[1]
	c.nodes.Kill(away)
	c.awaitISR(topic, first, second)
	b.produce(topic, 0, 1)
	b.produce(topic, 0, 4)
	c.begin("back", topic)
	c.awaitLevel("back", topic)
	if to := c.unaligned(topic, away); to != 6 {
		c.t.Fatalf("the metadata have replica %d cut to %d, want 6", away, to)
	}
	return topic, first, second, away
}

// A replica that was away when the log was cut is cut when it comes back, though another leads by then, and its records have the right
// epoch (D5); and so after a restart of everything else.
func TestAwayDuringACut(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%t", all), func(t *testing.T) {
			a, b := newTrio(t), newCluster(t, "standby")
			topic, first, second, away := a.away(b)
			if all {
				a.nodes.Kill(first)
				a.nodes.Kill(second)
				a.nodes.StartNodes(second, first)
				a.awaitISR(topic, second, first)
			} else {
				a.lead(topic, away)
			}
			a.nodes.StartNodes(away)
			a.awaitISR(topic, first, second, away)
			a.awaitLevel("back", topic)
			a.awaitSame(b, topic)
			if to := a.unaligned(topic, away); to >= 0 {
				t.Errorf("replica %d is in sync and still to be cut to %d", away, to)
			}
		})
	}
}

// The same after the topic was stopped and its mirror deleted, and has records of its own.
func TestAwayUntilTheMirrorIsGone(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "standby")
	topic, first, second, away := a.away(b)
	a.stop("back", topic)
	a.awaitState("back", topic, "STOPPED")
	if err := a.mir.Delete(t.Context(), "back"); err != nil {
		t.Fatal(err)
	}
	a.produce(topic, 0, 3)
	a.lead(topic, away)
	a.nodes.StartNodes(away)
	a.awaitISR(topic, first, second, away)
	a.awaitAlike(topic)
}

// awaitAlike waits until all replicas of partition 0 hold the same.
func (c *trio) awaitAlike(topic string) {
	c.t.Helper()
	eventually(c.t, func() error {
		want, err := content(c.replica(c.leader(topic), topic))
		for _, id := range c.nodes.IDs() {
			got, e := content(c.replica(id, topic))
			if err = errors.Join(err, e); err == nil && got != want {
				err = fmt.Errorf("node %d has %d bytes, the leader %d", id, len(got), len(want))
			}
		}
		return err
	})
}

// A replica that was away during the cut and is then all there is to lead cuts itself before it does, with what goes set aside (D4), and the
// others follow it.
func TestAwayAndElectedUncleanly(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "standby")
	topic := a.failedOver(b)
	first := a.leader(topic)
	away := a.others(first)[0]
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(topic, 0, []int32{first, away})
	if rs, err := a.adm.AlterPartitionAssignments(t.Context(), req); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	a.awaitISR(topic, first, away)
	a.nodes.Kill(away)
	a.awaitISR(topic, first)
	b.produce(topic, 0, 1)
	b.produce(topic, 0, 4)
	a.begin("back", topic)
	a.awaitLevel("back", topic)
	a.nodes.Kill(first)
	a.nodes.StartNodes(away)
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	eventually(t, func() error {
		rs, err := a.adm.ElectLeaders(t.Context(), kadm.ElectLiveReplica, set)
		if err != nil {
			return err
		}
		return rs[topic][0].Err
	})
	if l := a.leader(topic); l != away {
		t.Fatalf("node %d leads", l)
	}
	a.awaitLevel("back", topic)
	if kept := a.cuts(away); len(kept) != 1 {
		t.Errorf("set aside: %v", kept)
	}
	a.nodes.StartNodes(first)
	a.awaitISR(topic, first, away)
	eventually(t, func() error {
		source, err := b.n.Replicas().Get(topic, 0)
		if err != nil {
			return err
		}
		want, err := content(source)
		for _, id := range []int32{first, away} {
			got, e := content(a.replica(id, topic))
			if err = errors.Join(err, e); err == nil && got != want {
				err = fmt.Errorf("node %d has %d bytes, the source %d", id, len(got), len(want))
			}
		}
		return err
	})
	if to := a.unaligned(topic, away); to >= 0 {
		t.Errorf("replica %d leads and is still to be cut to %d", away, to)
	}
}

// A cut while MIRRORING is remembered as well: the source loses records and writes others under the same epoch.
func TestAwayDuringACutInMirroring(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1)
	for range 3 {
		a.produce("t", 0, 10)
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitReplicas("t", 30, b.nodes.IDs()...)
	first := b.leader("t")
	second, away := b.others(first)[0], b.others(first)[1]
	b.nodes.Kill(away)
	b.awaitISR("t", first, second)
	a.cutSource("t", 20)
	b.awaitReplicas("t", 20, first, second)
	for range 2 {
		a.say("t", "other", "records", "of", "the", "same", "epoch", "in", "their", "place", "now")
	}
	b.awaitReplicas("t", 40, first, second)
	if to := b.unaligned("t", away); to != 20 {
		t.Fatalf("the metadata have replica %d cut to %d, want 20", away, to)
	}
	b.lead("t", away)
	b.nodes.StartNodes(away)
	b.awaitISR("t", first, second, away)
	b.awaitSame(a, "t")
}

// At a level at which the metadata have no such list, a cut waits for all replicas, and describe says for which and why.
func TestAwayAtAnOldLevel(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "standby")
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = meta.MirrorFeature, meta.UnalignedLevel-1, 2, true
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	if resp, err := req.RequestWith(t.Context(), a.cl); err != nil || resp.ErrorCode != 0 {
		t.Fatal(resp, err)
	}
	topic := a.failedOver(b)
	first := a.leader(topic)
	second, away := a.others(first)[0], a.others(first)[1]
	a.nodes.Kill(away)
	a.awaitISR(topic, first, second)
	a.begin("back", topic)
	a.await("back", topic, 0, func(p mirroradm.Partition) bool {
		return p.State == "LOG_TRUNCATION" && strings.Contains(p.LastError, fmt.Sprintf("waiting for replicas [%d]", away)) && strings.Contains(p.LastError, "milena features upgrade")
	})
	a.nodes.StartNodes(away)
	a.awaitLevel("back", topic)
	a.awaitSame(b, topic)
}
