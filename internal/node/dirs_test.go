package node_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/node"
	"milena/internal/node/nodetest"
)

// twoDisks is a node's file system with the directories /a and /b, of which /b can fail.
type twoDisks struct {
	mem    *disk.Mem
	broken atomic.Bool
}

func (d *twoDisks) rule(op disk.Op, name string) error {
	if d.broken.Load() && op != disk.OpClose && (name == "/b" || strings.HasPrefix(name, "/b/")) {
		return errors.New("input/output error")
	}
	return nil
}

func (d *twoDisks) start(t *testing.T, more ...string) (*node.Node, *prometheus.Registry) {
	t.Helper()
	props := map[string]string{
		"log.dirs": "/a,/b", "metadata.log.dir": "/a", "listeners": "PLAINTEXT://127.0.0.1:0", "milena.http.listen": "off", "offsets.topic.num.partitions": "1",
		"mirror.state.topic.num.partitions": "1", "broker.heartbeat.interval.ms": "20", "log.dir.reserve.bytes": "0", "replica.high.watermark.checkpoint.interval.ms": "20",
	}
	for i := 0; i < len(more); i += 2 {
		props[more[i]] = more[i+1]
	}
	conf, _, err := config.Load(props, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	n, err := node.Start(ctx(t), node.Options{Config: conf, Version: "test", FS: disk.Faulty(d.mem, d.rule), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n, reg
}

// in lists which of the topic's partitions have a log in the directory.
func (d *twoDisks) in(t *testing.T, dir, topic string) map[int32]bool {
	t.Helper()
	list, err := d.mem.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32]bool{}
	for _, e := range list {
		var p int32
		if _, err := fmt.Sscanf(e.Name(), topic+"-%d", &p); err == nil {
			out[p] = true
		}
	}
	return out
}

// leaders asks until the partitions without a leader are those wanted.
func leaders(t *testing.T, adm *kadm.Client, topic string, without map[int32]bool) {
	t.Helper()
	wait := ctx(t)
	for {
		got := map[int32]bool{}
		topics, err := adm.ListTopics(wait, topic)
		if err != nil {
			t.Fatalf("want %v without a leader: %v", without, err)
		}
		for _, p := range topics[topic].Partitions {
			if p.Leader < 0 {
				got[p.Partition] = true
			}
		}
		if fmt.Sprint(got) == fmt.Sprint(without) {
			return
		}
		select {
		case <-wait.Done():
			t.Fatalf("%v have no leader, want %v", got, without)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// offline is kafka_controller_kafkacontroller_offlinepartitionscount.
func offline(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kafka_controller_kafkacontroller_offlinepartitionscount" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("there is no count of offline partitions")
	return 0
}

// produceTo puts a record into each of the partitions.
func produceTo(t *testing.T, n *node.Node, topic, value string, partitions ...int32) {
	t.Helper()
	cl := dial(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	for _, p := range partitions {
		if err := cl.ProduceSync(ctx(t), &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatalf("%s-%d: %v", topic, p, err)
		}
	}
}

// produceOnce tries to put a record into a partition, once.
func produceOnce(t *testing.T, n *node.Node, topic string, p int32) error {
	t.Helper()
	cl := dial(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordRetries(1), kgo.MetadataMinAge(10*time.Millisecond))
	defer cl.Close()
	return cl.ProduceSync(ctx(t), &kgo.Record{Topic: topic, Partition: p, Value: []byte("lost")}).FirstErr()
}

// One failed disk takes its directory offline, at a start and later: its partitions are offline, as clients and metrics are told,
// none is made anew elsewhere, and when the disk is back they are as they were.
func TestRestartWithAFailedDirectory(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *node.Node){"clean": stop, "killed": func(_ *testing.T, n *node.Node) { n.Kill() }} {
		t.Run(name, func(t *testing.T) {
			d := &twoDisks{mem: disk.NewMem(1)}
			n, _ := d.start(t)
			adm := kadm.NewClient(dial(t, n, kgo.MetadataMinAge(10*time.Millisecond)))
			if _, err := adm.CreateTopic(ctx(t), 6, 1, nil, "t"); err != nil {
				t.Fatal(err)
			}
			produceTo(t, n, "t", "first", 0, 1, 2, 3, 4, 5)
			end(t, n)
			failed, good := d.in(t, "/b", "t"), d.in(t, "/a", "t")
			if len(failed) == 0 || len(good) == 0 {
				t.Fatalf("in one directory: %v", failed)
			}

			d.broken.Store(true)
			n, reg := d.start(t)
			adm = kadm.NewClient(dial(t, n, kgo.MetadataMinAge(10*time.Millisecond)))
			leaders(t, adm, "t", failed)
			if got := offline(t, reg); got < len(failed) {
				t.Errorf("%d partitions count as offline, want at least %d", got, len(failed))
			}
			if _, err := adm.CreateTopic(ctx(t), 2, 1, nil, "new"); err != nil {
				t.Fatal(err)
			}
			produceTo(t, n, "new", "x", 0, 1)
			for p := range good {
				produceTo(t, n, "t", "second", p)
			}
			if got := d.in(t, "/a", "t"); fmt.Sprint(got) != fmt.Sprint(good) {
				t.Errorf("the good directory has %v, it had %v", got, good)
			}
			end(t, n)

			d.broken.Store(false)
			n, reg = d.start(t)
			adm = kadm.NewClient(dial(t, n, kgo.MetadataMinAge(10*time.Millisecond)))
			leaders(t, adm, "t", map[int32]bool{})
			if got := offline(t, reg); got != 0 {
				t.Errorf("%d partitions count as offline", got)
			}
			got := map[string]int{}
			for _, v := range consume(t, dial(t, n, kgo.ConsumeTopics("t")), 6+len(good)) {
				got[v]++
			}
			if got["first"] != 6 || got["second"] != len(good) {
				t.Errorf("read %v", got)
			}

			// And a disk that fails while the node runs.
			d.broken.Store(true)
			leaders(t, adm, "t", failed) // the free space is looked at every second
			for p := range good {
				produceTo(t, n, "t", "third", p)
			}
			n.Kill()
		})
	}
}

// A fresh ext4 file system is an empty directory.
func TestFreshFileSystemIsFormatted(t *testing.T) {
	d := &twoDisks{mem: disk.NewMem(1)}
	for _, dir := range []string{"/a/lost+found", "/b/lost+found"} {
		if err := d.mem.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	n, _ := d.start(t)
	stop(t, n)
}

// A disk with no byte left ends neither the node nor a directory: what is on it is read, and when there is space again all goes on.
func TestNoByteLeft(t *testing.T) {
	d := &twoDisks{mem: disk.NewMem(1)}
	n, _ := d.start(t)
	adm := kadm.NewClient(dial(t, n, kgo.MetadataMinAge(10*time.Millisecond)))
	if _, err := adm.CreateTopic(ctx(t), 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produceTo(t, n, "t", "first", 0, 1)
	free, total, err := d.mem.Free("/a")
	if err != nil {
		t.Fatal(err)
	}
	d.mem.SetCapacity(total - free)
	if err := produceOnce(t, n, "t", 0); err == nil {
		t.Error("a full disk took a record")
	}
	<-time.After(100 * time.Millisecond) // some high watermark checkpoints
	if err := n.Err(); err != nil {
		t.Fatalf("the node ended: %v", err)
	}
	if got := consume(t, dial(t, n, kgo.ConsumeTopics("t")), 2); len(got) != 2 {
		t.Errorf("read %v", got)
	}
	d.mem.SetCapacity(total)
	produceTo(t, n, "t", "second", 0, 1)
	stop(t, n)
	n, _ = d.start(t)
	if got := consume(t, dial(t, n, kgo.ConsumeTopics("t")), 4); len(got) < 4 {
		t.Errorf("read %v", got)
	}
	stop(t, n)
}

// A move between directories is held to its rate from the start on, goes on at that rate after a kill -9, and is done when
// the rate is raised while the node runs.
func TestMovesGoOnAndHaveARate(t *testing.T) {
	const rate = "replica.alter.log.dirs.io.max.bytes.per.second"
	d := &twoDisks{mem: disk.NewMem(1)}
	n, _ := d.start(t, rate, "1")
	cl := dial(t, n, kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx(t), 1, 1, nil, "big"); err != nil {
		t.Fatal(err)
	}
	for i := range 30 { // three pieces of a move
		if err := cl.ProduceSync(ctx(t), &kgo.Record{Topic: "big", Value: fmt.Appendf(nil, "%d%0*d", i, 100_000, 0)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	to := "/b"
	if d.in(t, "/b", "big")[0] {
		to = "/a"
	}
	moving := func() (future bool) {
		t.Helper()
		dirs, err := adm.DescribeBrokerLogDirs(ctx(t), 1, kadm.TopicsSet{"big": {0: {}}})
		if err != nil {
			t.Fatal(err)
		}
		dirs.EachPartition(func(p kadm.DescribedLogDirPartition) { future = future || p.IsFuture && p.Dir == to })
		return future
	}
	if err := n.Replicas().MoveLog("big", 0, to); err != nil {
		t.Fatal(err)
	}
	n.Kill()
	cl.Close()
	n, _ = d.start(t, rate, "1")
	cl = dial(t, n)
	adm = kadm.NewClient(cl)
	if !moving() {
		t.Fatalf("the move to %s has ended with the process", to)
	}
	fast := "1000000000"
	if _, err := adm.AlterBrokerConfigs(ctx(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: rate, Value: &fast}}); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		if moving() || !d.in(t, to, "big")[0] {
			return errors.New("the replica is on its way")
		}
		return nil
	})
	if got := consume(t, dial(t, n, kgo.ConsumeTopics("big"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 30); len(got) != 30 {
		t.Errorf("%d records", len(got))
	}
}
