package follow_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/partlog"
	"milena/internal/replica"
)

func (c *cluster) waitAlive(ids ...int32) {
	c.t.Helper()
	c.until("brokers are unfenced", func() bool {
		return !slices.ContainsFunc(ids, func(id int32) bool { return !c.img.Load().Alive(id) })
	})
}

func (c *cluster) check(topic string) {
	c.t.Helper()
	c.settled(topic)
	if err := c.checkReplicas(topic); err != nil {
		c.t.Fatal(err)
	}
}

func TestReplicasBecomeEqual(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.waitLeader(topic)
		began := time.Now()
		for i := range 10 {
			c.mustProduce(topic, string(rune('a'+i)), 3)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("ten produces with acks=all took %s", took)
		}
		// The high watermark reaches the followers without a wait.
		synctest.Wait()
		for _, n := range c.nodes {
			if p, err := n.m.Get(topic, 0); err != nil || p.HighWatermark() != 30 {
				t.Errorf("node %d: high watermark %d, %v", n.id, p.HighWatermark(), err)
			}
		}
		c.check(topic)
	})
}

// An uncommitted tail of an old leader goes, by epoch, and nothing else.
func TestUncommittedTailIsTruncatedByEpoch(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "committed", 5)
		c.settled(topic)
		one := c.nodes[1]
		_, old := c.waitLeader(topic)
		one.cut.Store(true)
		var outcome error
		for range 3 {
			c.produce(old, "lost", 2, func(_ partlog.AppendInfo, err error) { outcome = err })
		}
		one.fenced()
		c.mustProduce(topic, "kept", 1)
		if old.LogEndOffset() != 11 || old.HighWatermark() != 5 {
			t.Fatalf("the old leader ends at %d, high watermark %d", old.LogEndOffset(), old.HighWatermark())
		}
		one.cut.Store(false)
		one.poke()
		c.waitISR(topic, 1, 2, 3)
		c.check(topic)
		es, err := batches(old, old.LogEndOffset())
		if err != nil || len(es) != 2 || es[1].value != "kept/0" || es[1].base != 5 {
			t.Fatalf("batches %+v, %v", es, err)
		}
		if code, _ := api.CodeOf(outcome); code != api.NotLeaderOrFollower {
			t.Fatalf("the lost produce ended with %v", outcome)
		}
	})
}

// A crash takes what wasn't flushed; the broker leaves the ISR until it has it
// again from the others.
func TestUncleanRestart(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "a", 5)
		c.nodes[1].halt(true)
		c.nodes[1].fenced()
		c.mustProduce(topic, "b", 5)
		c.nodes[1].start()
		c.waitISR(topic, 1, 2, 3)
		c.check(topic)
		c.nodes[2].halt(true)
		c.nodes[3].halt(true)
		c.nodes[2].fenced()
		c.nodes[3].fenced()
		c.until("the restarted broker leads", func() bool { return c.partition(topic).Leader == 1 })
		_, p := c.waitLeader(topic)
		if hw := p.HighWatermark(); hw != 10 {
			t.Fatalf("high watermark %d, want 10", hw)
		}
	})
}

func TestISRShrinksAndExpands(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "a", 1)
		// Idle for long: nobody leaves the ISR for that, nor with the next append.
		time.Sleep(time.Minute)
		c.mustProduce(topic, "b", 1)
		time.Sleep(3 * time.Second)
		if isr := c.partition(topic).ISR; len(isr) != 3 {
			t.Fatalf("ISR %v after a quiet time", isr)
		}
		c.nodes[3].cut.Store(true)
		began := time.Now()
		c.mustProduce(topic, "c", 1)
		if took := time.Since(began); took < c.lag-time.Second || took > 2*c.lag+time.Second {
			t.Errorf("the produce that a dead follower held up took %s, replica.lag.time.max.ms is %s", took, c.lag)
		}
		c.waitISR(topic, 1, 2)
		c.nodes[3].cut.Store(false)
		c.waitISR(topic, 1, 2, 3)
		c.check(topic)
	})
}

func TestMinISR(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "a", 1)
		_, p := c.waitLeader(topic)
		c.nodes[2].cut.Store(true)
		c.nodes[3].cut.Store(true)
		ended := make(chan error, 1)
		c.produce(p, "b", 1, func(_ partlog.AppendInfo, err error) { ended <- err })
		err := <-ended
		if code, _ := api.CodeOf(err); code != api.NotEnoughReplicasAfterAppend {
			t.Fatalf("a produce that the ISR shrank under: %v", err)
		}
		c.waitISR(topic, 1)
		c.produce(p, "c", 1, func(_ partlog.AppendInfo, err error) { ended <- err })
		err = <-ended
		if code, _ := api.CodeOf(err); code != api.NotEnoughReplicas {
			t.Fatalf("a produce below min.insync.replicas: %v", err)
		}
		if end, hw := p.LogEndOffset(), p.HighWatermark(); end != 2 || hw != 1 {
			t.Fatalf("end %d, high watermark %d; want 2, and 1 below min.insync.replicas (KIP-966)", end, hw)
		}
		c.nodes[2].cut.Store(false)
		c.waitISR(topic, 1, 2)
		c.until("the high watermark moves", func() bool { return p.HighWatermark() == 2 })
	})
}

// Answers of the controller: retried, taken back, or left in force.
func TestAlterPartitionAnswers(t *testing.T) {
	for _, tc := range []struct {
		code, top api.Code
		err       error
		again     bool // the same proposal is sent again
	}{
		{top: api.NotController, again: true},
		{top: api.StaleBrokerEpoch, again: true},
		{code: api.UnknownServerError, again: true},
		{code: api.IneligibleReplica, again: true}, // taken back, and proposed anew by the next look
		{code: api.OperationNotAttempted, again: true},
		{code: api.FencedLeaderEpoch},
		{code: api.InvalidUpdateVersion},
		{code: api.NewLeaderElected},
		{code: api.UnknownTopicID},
	} {
		t.Run(tc.code.Name()+tc.top.Name(), func(t *testing.T) {
			bubble(t, 1, nil, func(c *cluster) {
				topic := c.topic(1, nil, 1, 2, 3)
				c.mustProduce(topic, "a", 1)
				asked := 0
				c.mu.Lock()
				c.refuse = func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
					c.mu.Lock()
					defer c.mu.Unlock()
					asked++
					p := req.Topics[0].Partitions[0]
					return &kmsg.AlterPartitionResponse{ErrorCode: int16(tc.top), Topics: []kmsg.AlterPartitionResponseTopic{{
						TopidID: req.Topics[0].TopicID, Partitions: []kmsg.AlterPartitionResponseTopicPartition{{Partition: p.Partition, ErrorCode: int16(tc.code)}},
					}}}, nil
				}
				c.mu.Unlock()
				c.nodes[3].cut.Store(true)
				_, p := c.waitLeader(topic)
				c.produce(p, "b", 1, func(partlog.AppendInfo, error) {})
				time.Sleep(10 * time.Second)
				c.mu.Lock()
				c.refuse = nil
				n := asked
				c.mu.Unlock()
				if again := n > 1; again != tc.again {
					t.Errorf("asked %d times", n)
				}
				if hw := p.HighWatermark(); hw != 1 {
					t.Errorf("the high watermark moved to %d although the ISR is the same", hw)
				}
				if tc.again {
					c.waitISR(topic, 1, 2)
				}
			})
		})
	}
}

// A leader whose new log start the followers haven't got yet: DeleteRecords
// waits for them, and they restart where the leader begins if they lack all.
func TestLogStartReachesFollowers(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "a", 10)
		_, p := c.waitLeader(topic)
		type answer struct {
			low int64
			err error
		}
		got := make(chan answer, 1)
		deleteTo := func(off int64) func() {
			return p.DeleteRecords(off, func(low int64, err error) { got <- answer{low, err} })
		}
		deleteTo(4)
		if a := <-got; a.err != nil || a.low != 4 {
			t.Fatalf("low watermark %d, %v", a.low, a.err)
		}
		for _, n := range c.nodes {
			if p, err := n.m.Get(topic, 0); err != nil || p.LogStartOffset() != 4 {
				t.Errorf("node %d: log start %d, %v", n.id, p.LogStartOffset(), err)
			}
		}
		c.nodes[3].halt(true)
		cancel := deleteTo(6)
		time.Sleep(time.Second)
		select {
		case a := <-got:
			t.Fatalf("DeleteRecords ended with %d, %v while a live replica has the records", a.low, a.err)
		default:
		}
		cancel()
		if a := <-got; a.err == nil {
			t.Fatal("no error at the timeout")
		}
		deleteTo(7)
		c.nodes[3].fenced() // a dead one isn't waited for
		if a := <-got; a.err != nil || a.low != 7 {
			t.Fatalf("low watermark %d, %v", a.low, a.err)
		}
		c.nodes[3].start()
		c.waitISR(topic, 1, 2, 3)
		c.check(topic)
	})
}

// Where only durable records count an acknowledged record survives the crash
// of every broker at once.
func TestDurableTopicSurvivesTheCrashOfAll(t *testing.T) {
	one := "1"
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, map[string]*string{"flush.messages": &one}, 1, 2, 3)
		for range 5 {
			c.mustProduce(topic, "a", 3)
		}
		for id := int32(1); id <= 3; id++ {
			c.nodes[id].halt(true)
		}
		for id := int32(1); id <= 3; id++ {
			p, err := func() (int64, error) {
				n := c.nodes[id]
				n.start()
				defer n.halt(false)
				return n.dirs.Get(topic, 0).EndOffset(), nil
			}()
			isr := c.partition(topic).ISR
			if slices.Contains(isr, id) && (err != nil || p != 15) {
				t.Errorf("node %d, in the ISR %v, has %d records, %v", id, isr, p, err)
			}
		}
	})
}

// A suspended leader answers nothing a leader answers, and leads again when it
// is resumed, at the same epoch.
func TestSuspend(t *testing.T) {
	bubble(t, 2, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2, 3)
		c.mustProduce(topic, "a", 1)
		n, p := c.waitLeader(topic)
		var events []replica.Event
		n.m.Subscribe(func(e replica.Event) { events = append(events, e) })
		lost := make(chan error, 1)
		p.MachineLog(0, func(int64) {}, func(err error) { lost <- err })
		n.m.Suspend("the controller is silent")
		n.m.Suspend("again")
		if err := <-lost; err == nil {
			t.Error("the machine's log isn't lost")
		}
		ended := make(chan error, 1)
		c.produce(p, "b", 1, func(_ partlog.AppendInfo, err error) { ended <- err })
		if code, _ := api.CodeOf(<-ended); code != api.NotLeaderOrFollower {
			t.Fatalf("a produce to a suspended leader: %v", code)
		}
		if _, err := p.FindOffset(-1, replica.TimeLatest, replica.ReadUncommitted); err == nil {
			t.Error("a suspended leader answers ListOffsets")
		}
		n.m.Resume()
		c.mustProduce(topic, "c", 1)
		c.check(topic)
		if len(events) != 3 || !events[0].Leader || events[1].Leader || !events[2].Leader {
			t.Errorf("events %+v", events)
		}
	})
}

// A follower that is behind the new leader's epoch asks until it knows it; one
// whose replica moves away deletes it.
func TestReassignmentMovesTheLog(t *testing.T) {
	bubble(t, 1, nil, func(c *cluster) {
		topic := c.topic(1, nil, 1, 2)
		c.mustProduce(topic, "a", 5)
		c.reassign(topic, 3, 1)
		c.until("the reassignment is over", func() bool { return slices.Equal(c.partition(topic).Replicas, []int32{3, 1}) })
		c.check(topic)
		c.until("the log is deleted", func() bool { return c.nodes[2].dirs.Get(topic, 0) == nil })
		c.mustProduce(topic, "b", 5)
		c.check(topic)
	})
}
