package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/disk"
	"milena/internal/node/nodetest"
)

// One of two disks of a node fails while producers are at work: its replicas leave the ISRs and hand on what they lead, all the rest of
// the node goes on, and all who ask are told. With an empty disk in its place the node gets its replicas again (KIP-858).
func TestLostDiskInACluster(t *testing.T) {
	l := &lostDisk{t: t, mem: disk.NewMem(1)}
	l.c = nodetest.Start(t, nodetest.Options{More: []string{"/b"},
		Props: map[string]string{"log.dir.reserve.bytes": "0", "milena.http.listen": "127.0.0.1:0"},
		Disk: func(id int32) disk.FS {
			if id == 1 {
				return disk.Faulty(l.mem, l.rule)
			}
			return disk.NewMem(uint64(id))
		}})
	cl := clusterClient(t, l.c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	l.adm = kadm.NewClient(cl)
	createTopic(t, cl, "t", lostPartitions, 3)
	lead(t, l.adm, 1, lostPartitions)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.produce(ctx, cl)
	}()
	l.awaitWrites()
	on := l.where()
	if len(on["/b"]) == 0 || len(on["/data"]) == 0 {
		t.Fatalf("the replicas of node 1 are in %v", on)
	}

	l.broken.Store(true)
	nodetest.Eventually(t, 20*time.Second, func() error { return l.movedOn(on) })
	l.awaitWrites()
	l.isTold()

	l.c.Stop(1)
	l.broken.Store(false)
	l.c.Replace(1, "/b")
	l.c.StartNodes(1)
	nodetest.Eventually(t, 20*time.Second, func() error {
		for i, p := range l.c.Node(2).Image().TopicByName("t").Partitions {
			if len(p.ISR) != 3 {
				return fmt.Errorf("t-%d has the ISR %v after node 1 is back with an empty disk", i, p.ISR)
			}
		}
		return nil
	})
	lead(t, l.adm, 1, lostPartitions)
	l.awaitWrites()
	stop()
	<-done
	replicasEqual(t, l.c, "t")
	if got := l.where(); len(got["/b"]) == 0 {
		t.Errorf("the new disk is empty: %v", got)
	}
	l.readBack()
}

const lostPartitions = 6

type lostDisk struct {
	t      *testing.T
	c      *nodetest.Cluster
	adm    *kadm.Client
	mem    *disk.Mem // of node 1
	broken atomic.Bool
	acked  [lostPartitions]atomic.Int64
}

func (l *lostDisk) rule(op disk.Op, name string) error {
	if l.broken.Load() && op != disk.OpClose && (name == "/b" || strings.HasPrefix(name, "/b/")) {
		return errors.New("input/output error")
	}
	return nil
}

// produce writes the next number to each partition.
func (l *lostDisk) produce(ctx context.Context, cl *kgo.Client) {
	for n := int64(0); ctx.Err() == nil; n++ {
		var recs []*kgo.Record
		for p := range int32(lostPartitions) {
			recs = append(recs, &kgo.Record{Topic: "t", Partition: p, Value: fmt.Append(nil, n)})
		}
		// Without the test's end as theirs: what is sent is to be acknowledged.
		for _, r := range cl.ProduceSync(context.WithoutCancel(ctx), recs...) {
			if r.Err != nil {
				l.t.Errorf("t-%d: %v", r.Record.Partition, r.Err)
				return
			}
			l.acked[r.Record.Partition].Add(1)
		}
	}
}

func (l *lostDisk) awaitWrites() {
	l.t.Helper()
	for p := range l.acked {
		from := l.acked[p].Load()
		nodetest.Eventually(l.t, 20*time.Second, func() error {
			if l.acked[p].Load() < from+2 {
				return fmt.Errorf("t-%d takes no records", p)
			}
			return nil
		})
	}
}

// lead makes a node the leader of all partitions of t.
func lead(t *testing.T, adm *kadm.Client, node int32, partitions int32) {
	t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	for p := range partitions {
		req.Assign("t", p, []int32{node, 1 + node%3, 1 + (node+1)%3})
		set.Add("t", p)
	}
	if resp, err := adm.AlterPartitionAssignments(ctx(t), req); errors.Join(err, resp.Error()) != nil {
		t.Fatal(errors.Join(err, resp.Error()))
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		rs, err := adm.ElectLeaders(ctx(t), kadm.ElectPreferredReplica, set)
		for _, r := range rs["t"] {
			if r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
				err = errors.Join(err, r.Err)
			}
		}
		return err
	})
}

// where lists the partitions of t that node 1 has, by directory.
func (l *lostDisk) where() map[string][]int32 {
	l.t.Helper()
	dirs, err := l.adm.DescribeBrokerLogDirs(ctx(l.t), 1, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string][]int32{}
	dirs.EachPartition(func(p kadm.DescribedLogDirPartition) {
		if p.Topic == "t" {
			out[p.Dir] = append(out[p.Dir], p.Partition)
		}
	})
	return out
}

// movedOn wants node 1 out of what was in /b, and in and leading what is in /data.
func (l *lostDisk) movedOn(on map[string][]int32) error {
	ts, err := l.adm.ListTopics(ctx(l.t), "t")
	if err != nil {
		return err
	}
	for i, p := range ts["t"].Partitions {
		lost := slices.Contains(on["/b"], i)
		switch {
		case lost && (p.Leader == 1 || p.Leader < 0 || slices.Contains(p.ISR, 1) || !slices.Equal(p.OfflineReplicas, []int32{1})):
			return fmt.Errorf("t-%d, on the lost disk: %+v", i, p)
		case !lost && (p.Leader != 1 || len(p.ISR) != 3 || len(p.OfflineReplicas) > 0):
			return fmt.Errorf("t-%d, on the good disk: %+v", i, p)
		}
	}
	return nil
}

// isTold asks everywhere for the lost disk.
func (l *lostDisk) isTold() {
	l.t.Helper()
	dirs, err := l.adm.DescribeBrokerLogDirs(ctx(l.t), 1, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	for dir, want := range map[string]error{"/b": kerr.KafkaStorageError, "/data": nil} {
		if got, ok := dirs[dir]; !ok || !errors.Is(got.Err, want) {
			l.t.Errorf("DescribeLogDirs says of %s: %v (listed: %v), want %v", dir, got.Err, ok, want)
		}
	}
	addr := l.c.Node(1).HTTPAddr()
	if got := httpGet(l.t, addr, "/readyz"); got != "200 ok\ndegraded: log directory /b is offline: its partitions have no replica here" {
		l.t.Errorf("/readyz: %s", got)
	}
	if got := httpGet(l.t, addr, "/metrics"); !strings.Contains(got, "kafka_log_logmanager_offlinelogdirectorycount 1\n") {
		l.t.Error("/metrics don't count the directory as offline")
	}
}

// readBack wants each record once and in order.
func (l *lostDisk) readBack() {
	l.t.Helper()
	var want int64
	for p := range l.acked {
		want += l.acked[p].Load()
	}
	cl := clusterClient(l.t, l.c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var next [lostPartitions]int64
	for n := int64(0); n < want; {
		fs := cl.PollFetches(ctx(l.t))
		if err := fs.Err(); err != nil {
			l.t.Fatalf("after %d of %d records: %v", n, want, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(next[r.Partition]) {
				l.t.Fatalf("t-%d: record %s at offset %d where %d is next", r.Partition, r.Value, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
			n++
		})
	}
}
