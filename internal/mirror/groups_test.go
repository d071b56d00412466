package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/coord/mirrorstate"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
	"milena/internal/peertest"
)

func (c *cluster) commit(group, topic string, at int64, metadata string) {
	c.t.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: topic, At: at, LeaderEpoch: -1, Metadata: metadata})
	rs, err := c.adm.CommitOffsets(c.t.Context(), group, o)
	if err == nil {
		err = rs.Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// committed is a group's offset, -1 if there is none.
func (c *cluster) committed(group, topic string) (int64, string) {
	rs, err := c.adm.FetchOffsets(c.t.Context(), group)
	if err != nil {
		return -1, ""
	}
	o, ok := rs.Lookup(topic, 0)
	if !ok {
		return -1, ""
	}
	return o.At, o.Metadata
}

func (c *cluster) awaitCommitted(group, topic string, want int64) {
	c.t.Helper()
	eventually(c.t, func() error {
		if at, _ := c.committed(group, topic); at != want {
			return fmt.Errorf("group %s is at %d of %s, want %d", group, at, topic, want)
		}
		return nil
	})
}

// 8.15 with D8: "Clamp each offset"; "The clamp is to the destination's high watermark"; offsets may move backwards; "only
// differences are written"; "(never PAUSED or STOPPED: scenario 'stopped mirror does not overwrite offsets')".
func TestGroupOffsets(t *testing.T) {
	src, dst := pair(t)
	src.topic("s", 1)
	src.produce("t", 0, 10)
	src.produce("s", 0, 10)
	src.commit("g", "t", 7, "note")
	src.commit("g", "s", 3, "")
	src.commit("ahead", "t", 50, "")
	src.commit("skipped-1", "t", 1, "")
	dst.mirror("m", src, "mirror.groups.exclude", "skipped.*")
	dst.begin("m", "t", "s")
	dst.awaitCommitted("g", "t", 7)
	dst.awaitCommitted("g", "s", 3)
	dst.awaitCommitted("ahead", "t", 10)
	if _, m := dst.committed("g", "t"); m != "note" {
		t.Errorf("metadata: %q", m)
	}
	_, written := dst.batches("__consumer_offsets", 0, 0)
	src.commit("last", "t", 2, "")
	dst.awaitCommitted("last", "t", 2) // a sync after the others
	src.commit("last", "t", 1, "")
	dst.awaitCommitted("last", "t", 1) // backwards
	if _, now := dst.batches("__consumer_offsets", 0, 0); len(now) != len(written)+2 {
		t.Errorf("%d batches were written for two changes", len(now)-len(written))
	}
	if at, _ := dst.committed("skipped-1", "t"); at != -1 {
		t.Errorf("an excluded group is at %d", at)
	}
	dst.stop("m", "s")
	dst.awaitState("m", "s", "STOPPED")
	src.commit("g", "s", 9, "")
	src.commit("g", "t", 8, "")
	dst.awaitCommitted("g", "t", 8)
	if at, _ := dst.committed("g", "s"); at != 3 {
		t.Errorf("the offset of a stopped topic was overwritten: %d", at)
	}
}

// 8.15 step 4: "If the group is active there the coordinator answers UNKNOWN_MEMBER_ID; the group is skipped".
func TestActiveGroupsAreLeftAlone(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 10)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitEnd("t", 0, 10)
	cl, err := kgo.NewClient(kgo.SeedBrokers(dst.addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if fs := cl.PollFetches(t.Context()); fs.NumRecords() == 0 {
		t.Fatal(fs.Err())
	}
	if err := cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	src.commit("g", "t", 2, "")
	src.commit("z", "t", 4, "") // comes after g
	dst.awaitCommitted("z", "t", 4)
	if at, _ := dst.committed("g", "t"); at != 10 {
		t.Errorf("the offset of an active group was overwritten: %d", at)
	}
	if err := cl.LeaveGroupContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	dst.awaitCommitted("g", "t", 2)
}

// D8: "A group deleted on the source is kept on the standby and shown as such", until it is there again.
func TestGroupDeletedAtTheSource(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 5)
	src.commit("g", "t", 3, "")
	src.commit("other", "t", 1, "")
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.awaitCommitted("g", "t", 3)
	dst.awaitCommitted("other", "t", 1)
	gone := func(want string) {
		t.Helper()
		eventually(t, func() error {
			ds, err := dst.mir.Describe(t.Context(), "m")
			if err != nil {
				return err
			}
			if got := fmt.Sprint(ds[0].GroupsGone); got != want {
				return fmt.Errorf("groups deleted at the source: %s, want %s", got, want)
			}
			return nil
		})
	}
	gone("[]")
	if rs, err := src.adm.DeleteGroups(t.Context(), "g"); err != nil || rs["g"].Err != nil {
		t.Fatal(rs, err)
	}
	gone("[g]")
	if at, _ := dst.committed("g", "t"); at != 3 {
		t.Errorf("the kept group is at %d", at)
	}
	src.commit("g", "t", 4, "")
	gone("[]")
	dst.awaitCommitted("g", "t", 4)
}

// D8 and D16 are told by whichever broker does the mirror's cluster-wide work: also with the source gone, and the one that did it before.
func TestNotesOutliveTheOwner(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1, "min.insync.replicas", "3")
	b.mirrorAt("m", a.addr, a.n.ClusterID(), "mirror.groups.sync.interval.ms", "20")
	b.begin("m", "t")
	b.awaitLevel("m", "t")
	a.commit("gone", "t", 0, "")
	a.commit("stays", "t", 0, "")
	knows := func(n mirror.Notes, who any) error {
		if len(n.Weaker) != 1 || n.Weaker[0] != "t: min.insync.replicas is 3 on the source and 2 here" || len(n.GroupsGone) != 1 || n.GroupsGone[0] != "gone" {
			return fmt.Errorf("%v knows %+v", who, n)
		}
		return nil
	}
	each := func() error {
		for _, id := range b.nodes.IDs() {
			one := &cluster{t: t, addr: b.nodes.Node(id).Addr()}
			one.connect()
			resp := request[*mirrormsg.ReadMirrorOffsetsResponse](one, &mirrormsg.ReadMirrorOffsetsRequest{MirrorName: "m"})
			one.cl.Close()
			if err := knows(mirror.Notes{Weaker: resp.Weaker, GroupsGone: resp.GroupsGone}, id); err != nil {
				return err
			}
		}
		return nil
	}
	b.awaitCommitted("gone", "t", 0)
	eventually(t, func() error { // a broker knows of a deletion if it has seen the group there before
		if each() == nil {
			return nil
		}
		a.commit("gone", "t", 0, "")
		if err := peertest.Pause(t.Context(), 300*time.Millisecond); err != nil {
			return err
		}
		if rs, err := a.adm.DeleteGroups(t.Context(), "gone"); err != nil || rs.Error() != nil {
			return errors.Join(err, rs.Error())
		}
		if err := peertest.Pause(t.Context(), 300*time.Millisecond); err != nil {
			return err
		}
		return each()
	})
	a.kill()
	img := b.nodes.Node(1).Image()
	states := img.TopicByName(mirrorstate.Topic).Partitions
	b.nodes.Kill(states[mirrormsg.Slot("m", int32(len(states)))].Leader)
	eventually(t, func() error {
		ds, err := b.mir.Describe(t.Context(), "m")
		if err != nil {
			return err
		}
		return knows(mirror.Notes{Weaker: ds[0].Weaker, GroupsGone: ds[0].GroupsGone}, "the new owner")
	})
}
