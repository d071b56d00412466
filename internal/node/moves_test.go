package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
)

// Leaders and the group coordinator move a hundred times under an idempotent producer, a consumer and a group, none of which may
// reset an offset: no client is told of lost data, each record is read once and in order, and no committed offset goes back.
func TestHundredLeaderMoves(t *testing.T) {
	movesUnderLoad(t, func(m *moves) {
		for round := range 35 { // the first may find the leader where it is to be
			m.elect(int32(1 + round%3))
			m.awaitWrites()
		}
		epochs := int32(0)
		for _, p := range m.c.Node(1).Image().TopicByName("t").Partitions {
			epochs += p.LeaderEpoch
		}
		if epochs < 100 {
			t.Errorf("the leader epochs are %d in all", epochs)
		}
	})
}

// Likewise when leaders move because nodes are stopped and killed.
func TestLeadersMoveByStopAndKill(t *testing.T) {
	movesUnderLoad(t, func(m *moves) {
		for _, end := range []func(int32){m.c.Stop, m.c.Kill} {
			end(leader(t, m.c, "t", 0))
			m.awaitWrites()
			m.c.StartAll()
			m.awaitInSync()
			m.awaitWrites()
		}
	})
}

// movesUnderLoad runs the moves among three nodes while clients write, read and commit.
func movesUnderLoad(t *testing.T, run func(*moves)) {
	t.Helper()
	c := nodetest.Start(t, nodetest.Options{Props: map[string]string{"offsets.topic.num.partitions": "1", "broker.session.timeout.ms": "600"}})
	m := &moves{t: t, c: c, adm: kadm.NewClient(clusterClient(t, c)), acked: make([]atomic.Int64, movePartitions)}
	createTopic(t, clusterClient(t, c), "t", movePartitions, 3)
	ctx, stop := context.WithCancel(t.Context())
	from := map[int32]kgo.Offset{}
	var zero kadm.Offsets
	for p := range int32(movePartitions) {
		from[p] = kgo.NewOffset().At(0)
		zero.AddOffset("t", p, 0, -1)
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		rs, err := m.adm.CommitOffsets(ctx, "g", zero)
		return errors.Join(err, rs.Error())
	})
	producer := clusterClient(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.StopProducerOnDataLossDetected())
	direct := clusterClient(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	group := clusterClient(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100*time.Millisecond))
	readers := []*reader{{cl: direct, name: "consumer"}, {cl: group, name: "group", commit: true}}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for p := range int32(movePartitions) {
		wg.Go(func() { m.produce(ctx, producer, p) })
	}
	for _, r := range readers {
		wg.Go(func() { r.run(ctx, t) })
	}
	wg.Go(func() { m.watchCommits(ctx) })
	m.awaitWrites()
	run(m)
	m.over.Store(true)
	for p := range m.acked {
		for _, r := range readers {
			nodetest.Eventually(t, 20*time.Second, func() error {
				if got, want := r.next[p].Load(), m.acked[p].Load(); got < want {
					return fmt.Errorf("the %s has read %d of %d records of t-%d", r.name, got, want, p)
				}
				return nil
			})
		}
	}
	replicasEqual(t, c, "t")
}

const movePartitions = 3

// moves is what the goroutines of movesUnderLoad share.
type moves struct {
	t     *testing.T
	c     *nodetest.Cluster
	adm   *kadm.Client
	acked []atomic.Int64 // records by partition
	over  atomic.Bool
}

func (m *moves) produce(ctx context.Context, cl *kgo.Client, partition int32) {
	for n := int64(0); !m.over.Load(); {
		var recs []*kgo.Record
		for range 3 {
			recs = append(recs, &kgo.Record{Topic: "t", Partition: partition, Value: fmt.Append(nil, n)})
			n++
		}
		if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
			if ctx.Err() == nil {
				m.t.Errorf("produce to t-%d: %v", partition, err)
			}
			return
		}
		m.acked[partition].Store(n)
	}
}

// reader reads all of t and wants the records as produced.
type reader struct {
	cl     *kgo.Client
	name   string
	commit bool
	next   [movePartitions]atomic.Int64
}

func (r *reader) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		fs := r.cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fs.EachError(func(_ string, p int32, err error) {
			if lost := (*kgo.ErrGroupSession)(nil); !errors.As(err, &lost) {
				t.Errorf("%s, t-%d: %v", r.name, p, err)
			}
		})
		fs.EachRecord(func(rec *kgo.Record) {
			next := r.next[rec.Partition].Load()
			switch {
			case rec.Offset < next && r.commit: // what a group had not committed when it lost its member is read again
				next = rec.Offset
			case rec.Offset != next:
				t.Errorf("%s: t-%d: offset %d comes where %d is next", r.name, rec.Partition, rec.Offset, next)
			}
			if string(rec.Value) != fmt.Sprint(rec.Offset) {
				t.Errorf("%s: t-%d: record %s at offset %d", r.name, rec.Partition, rec.Value, rec.Offset)
			}
			r.next[rec.Partition].Store(next + 1)
		})
		if r.commit {
			_ = r.cl.CommitUncommittedOffsets(ctx) // the next one carries what a lost coordinator did not take
		}
	}
}

// watchCommits wants committed offsets that don't go back.
func (m *moves) watchCommits(ctx context.Context) {
	var last [movePartitions]int64
	for ctx.Err() == nil {
		rs, err := m.adm.FetchOffsets(ctx, "g")
		if err != nil {
			continue // the coordinator moves
		}
		for p := range last {
			o, ok := rs.Lookup("t", int32(p))
			if !ok || o.Err != nil {
				m.t.Errorf("group g has no offset for t-%d: %v", p, o.Err)
				return
			}
			if o.At < last[p] {
				m.t.Errorf("the committed offset of t-%d went back from %d to %d", p, last[p], o.At)
			}
			last[p] = o.At
		}
	}
}

// elect makes a node the leader of everything: the first of the replicas, then elected as the preferred one.
func (m *moves) elect(to int32) {
	m.t.Helper()
	order := []int32{to, 1 + to%3, 1 + (to+1)%3}
	var req kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	for p := range int32(movePartitions) {
		req.Assign("t", p, order)
		set.Add("t", p)
	}
	req.Assign("__consumer_offsets", 0, order)
	set.Add("__consumer_offsets", 0)
	ctx := ctx(m.t)
	resp, err := m.adm.AlterPartitionAssignments(ctx, req)
	if err := errors.Join(err, resp.Error()); err != nil {
		m.t.Fatal(err)
	}
	nodetest.Eventually(m.t, 20*time.Second, func() error {
		if _, err := m.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		img := m.c.Node(to).Image()
		for topic, ps := range set {
			for p := range ps {
				if got := img.Partition(topic, p).Leader; got != to {
					return fmt.Errorf("%s-%d is led by %d, not by %d", topic, p, got, to)
				}
			}
		}
		return nil
	})
}

// awaitWrites waits until each partition has taken records twice from now on.
func (m *moves) awaitWrites() {
	m.t.Helper()
	for range 2 {
		for p := range m.acked {
			before := m.acked[p].Load()
			nodetest.Eventually(m.t, 20*time.Second, func() error {
				if m.acked[p].Load() == before {
					return fmt.Errorf("t-%d takes no records after %d", p, before)
				}
				return nil
			})
		}
	}
}

func (m *moves) awaitInSync() {
	m.t.Helper()
	nodetest.Eventually(m.t, 20*time.Second, func() error {
		for _, topic := range []string{"t", "__consumer_offsets"} {
			for i, p := range m.c.Node(1).Image().TopicByName(topic).Partitions {
				if len(p.ISR) != 3 {
					return fmt.Errorf("%s-%d has the ISR %v", topic, i, p.ISR)
				}
			}
		}
		return nil
	})
}
