package follow_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/replica"
)

// call sends one request to a node.
func call[R kmsg.Response](c *cluster, to int32, req kmsg.Request) R {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := c.nodes[to].connect(ctx, to, "test")
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	resp, err := conn.Call(ctx, req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(R)
}

// A replica moves to another directory while it is written; nothing is lost or
// refused, and the metadata learns of it.
func TestMoveBetweenDirectories(t *testing.T) {
	bubble(t, 2, func(c *cluster) { c.dirs = []string{"/a", "/b"} }, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		for i := range 20 {
			c.mustProduce(topic, fmt.Sprint("before", i), 3)
		}
		n, p := c.waitLeader(topic)
		from := n.dirs.DirOf(topic, 0)
		to, target := "/a", ids.UUID{}
		for _, d := range n.dirs.Dirs() {
			if d.ID != from {
				to, target = d.Path, d.ID
			}
		}
		move := func(dir string) api.Code {
			req := kmsg.NewPtrAlterReplicaLogDirsRequest()
			req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{0}}}}}
			return api.Code(call[*kmsg.AlterReplicaLogDirsResponse](c, n.id, req).Topics[0].Partitions[0].ErrorCode)
		}
		if code := move("/nowhere"); code != api.LogDirNotFound {
			t.Fatalf("to no directory of ours: %v", code)
		}
		n.m.SetMoveRate(1) // it takes a while
		if code := move(to); code != api.NoError {
			t.Fatalf("to %s: %v", to, code)
		}
		c.mustProduce(topic, "meanwhile", 3)
		n.m.SetMoveRate(math.MaxInt64)
		for i := range 20 {
			c.mustProduce(topic, fmt.Sprint("after", i), 3)
		}
		c.until("the replica is in the other directory", func() bool { return n.dirs.DirOf(topic, 0) == target })
		// The metadata has the directory before the copy is in place: a crash in between must not leave the controller with a directory
		// that has no log of the replica.
		if mp := c.partition(topic); mp.Dirs[slices.Index(mp.Replicas, n.id)] != target {
			t.Errorf("the replica is in another directory, the metadata still says %s", mp.Dirs)
		}
		c.mustProduce(topic, "moved", 3)
		c.check(topic)
		if end := p.LogEndOffset(); end != 42*3 {
			t.Fatalf("%d records", end)
		}
		n.halt(false)
		n.start()
		c.waitISR(topic, 1, 2, 3)
		c.check(topic)
		if n.dirs.DirOf(topic, 0) != target {
			t.Error("after a restart the replica is back")
		}
	})
}

// A restart, by a crash too, does not end a move: it goes on with the copy.
func TestMoveGoesOnAfterAStop(t *testing.T) {
	for _, how := range []string{"clean", "crash"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 2, func(c *cluster) { c.dirs = []string{"/a", "/b"} }, func(c *cluster) {
				topic := c.topic(1, nil, 1, 2, 3)
				for i := range 60 {
					c.mustProduce(topic, fmt.Sprintf("%d%0*d", i, 50_000, 0), 1)
				}
				n, p := c.waitLeader(topic)
				from, to, target := n.dirs.DirOf(topic, 0), "", ids.UUID{}
				for _, d := range n.dirs.Dirs() {
					if d.ID != from {
						to, target = d.Path, d.ID
					}
				}
				n.m.SetMoveRate(1) // one piece is copied
				if err := n.m.MoveLog(topic, 0, to); err != nil {
					t.Fatal(err)
				}
				c.until("a piece is copied", func() bool { return n.dirs.Future(topic, 0).EndOffset() > 10 })
				at := n.dirs.Future(topic, 0).EndOffset()
				if err := n.dirs.Future(topic, 0).Flush(-1); err != nil { // what a crash takes is copied again
					t.Fatal(err)
				}
				n.halt(how == "crash")
				n.moveRate = 1
				n.start()
				f := n.dirs.Future(topic, 0)
				if f == nil || f.EndOffset() != at {
					t.Fatalf("after the stop the copy is %v", f)
				}
				n.m.SetMoveRate(math.MaxInt64)
				c.until("the replica is in the other directory", func() bool { return n.dirs.DirOf(topic, 0) == target })
				c.waitISR(topic, 1, 2, 3)
				c.check(topic)
				if end := p.LogEndOffset(); end != 60 {
					t.Fatalf("%d records", end)
				}
			})
		})
	}
}

// A follower's rate holds back a replica that catches up, not one in sync.
func TestReplicationThrottles(t *testing.T) {
	for _, side := range []string{"leader", "follower"} {
		t.Run(side, func(t *testing.T) {
			all := func(int32, int32) bool { return true }
			bubble(t, 2, func(c *cluster) {
				c.tune = func(_ int32, s *replica.Settings) {
					if side == "leader" {
						s.LeaderThrottled = all
					} else {
						s.FollowerThrottled = all
					}
				}
			}, func(c *cluster) {
				const rate = 100_000
				topic := c.topic(1, nil, 1, 2, 3)
				limit := func() {
					for _, n := range c.nodes {
						if n.up {
							n.m.SetThrottles(rate, rate, math.MaxInt64)
						}
					}
				}
				c.mustProduce(topic, "x", 1)
				c.nodes[3].halt(false)
				for i := range 50 {
					c.mustProduce(topic, fmt.Sprintf("%d%0*d", i, 8000, 0), 4)
				}
				_, p := c.waitLeader(topic)
				limit()
				c.rate = rate // before it fetches
				c.nodes[3].start()
				began := time.Now()
				c.waitISR(topic, 1, 2, 3)
				took := time.Since(began)
				// The last answer, of up to replica.fetch.max.bytes, and a second's worth come at once.
				size := p.Log().Size()
				least, most := time.Duration(size-1<<20-rate)*time.Second/rate, time.Duration(size)*time.Second/rate*3/2
				if took < least || took > most {
					t.Errorf("%d bytes at %d a second took %s, not %s to %s", size, rate, took, least, most)
				}
			})
		})
	}
}

// A consumer in another rack is sent to the in-sync replica there, which serves
// it up to its own high watermark.
func TestFetchFromTheClosestReplica(t *testing.T) {
	bubble(t, 2, func(c *cluster) { c.racks = map[int32]string{1: "a", 2: "b", 3: "c"} }, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "x", 5)
		c.settled(topic)
		fetch := func(to int32, rack string, epoch int32) kmsg.FetchResponseTopicPartition {
			req := kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis, req.MinBytes, req.Rack = 1000, 1, rack
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = topic, topicID(1)
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = 1<<20, epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return call[*kmsg.FetchResponse](c, to, req).Topics[0].Partitions[0]
		}
		for _, tc := range []struct {
			to        int32
			rack      string
			preferred int32
			records   bool
			code      api.Code
		}{
			{1, "", -1, true, api.NoError},
			{1, "a", -1, true, api.NoError},
			{1, "b", 2, false, api.NoError},
			{1, "nowhere", -1, true, api.NoError},
			{2, "b", -1, true, api.NoError},
			{2, "", -1, false, api.NotLeaderOrFollower},
		} {
			p := fetch(tc.to, tc.rack, 0)
			if p.PreferredReadReplica != tc.preferred || (len(p.RecordBatches) > 0) != tc.records || api.Code(p.ErrorCode) != tc.code {
				t.Errorf("broker %d, rack %q: replica %d, %d bytes, %v", tc.to, tc.rack, p.PreferredReadReplica, len(p.RecordBatches), api.Code(p.ErrorCode))
			}
		}
		if p := fetch(2, "b", 3); api.Code(p.ErrorCode) != api.UnknownLeaderEpoch {
			t.Errorf("a newer epoch at the follower: %v", api.Code(p.ErrorCode))
		}
		// Not to one that is out of sync.
		c.nodes[2].cut.Store(true)
		c.mustProduce(topic, "y", 1)
		c.waitISR(topic, 1, 3)
		if p := fetch(1, "b", 0); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
			t.Errorf("sent to replica %d, which is out of sync", p.PreferredReadReplica)
		}
	})
}

// Through many leader moves a reader that watches epochs never sees an error
// that isn't retriable, nor an epoch end below what it read.
func TestEpochsThroughLeaderMoves(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		var read int64
		epoch := int32(-1) // of the last record read
		for i := range 100 {
			if i%3 != 2 { // some leaderships append nothing
				c.mustProduce(topic, fmt.Sprint(i), 2)
			}
			old := c.partition(topic).Leader
			c.nodes[old].fenced()
			c.until("another leader", func() bool { _, p := c.leader(topic); return p != nil && c.partition(topic).Leader != old })
			_, p := c.waitLeader(topic)
			_, now, _ := p.Leader()
			if epoch >= 0 {
				e, end, err := p.EpochEnd(now, epoch)
				if err != nil || e < 0 || e < epoch && end < read || end < read {
					t.Fatalf("after move %d: epoch %d ends at (%d, %d), %v; read up to %d", i, epoch, e, end, err, read)
				}
			}
			rp := replica.ReadParams{Offset: read, MaxBytes: 1 << 20, MinOne: true, ReplicaID: -1, CurrentEpoch: now, LastFetched: epoch}
			res, err := p.Read(rp)
			if err != nil || res.Diverges() {
				t.Fatalf("after move %d: read at %d, epoch %d: %+v, %v", i, read, epoch, res, err)
			}
			res.Release()
			var at partlog.TimestampOffset
			c.until("the latest offset", func() bool {
				at, err = p.FindOffset(now, replica.TimeLatest, replica.ReadUncommitted)
				code, _ := api.CodeOf(err)
				if err != nil && code != api.OffsetNotAvailable {
					t.Fatalf("after move %d: %v", i, err)
				}
				return err == nil
			})
			if at.Offset < read {
				t.Fatalf("after move %d the latest offset is %d, read were %d", i, at.Offset, read)
			}
			read, epoch = at.Offset, at.Epoch
			c.waitISR(topic, 1, 2, 3)
		}
		c.check(topic)
	})
}
