package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
)

// A partition moves around the cluster under a producer, its leadership with it, and every
// record is there once at the end.
func TestReassignUnderLoad(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	cl := clusterClient(t, c, kgo.DefaultProduceTopic("moving"))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx(t), 1, 2, nil, "moving"); err != nil {
		t.Fatal(err)
	}
	acked, wrong := make(chan struct{}, 1), make(chan error, 1)
	sent, stop := 0, make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := cl.ProduceSync(ctx(t), kgo.StringRecord(fmt.Sprint(sent))).FirstErr(); err != nil {
				wrong <- fmt.Errorf("record %d: %w", sent, err)
				return
			}
			sent++
			select {
			case acked <- struct{}{}:
			default:
			}
		}
	}()
	for _, to := range [][]int32{{2, 3}, {3, 1}, {1, 2, 3}, {2}, {1, 3}} {
		<-acked
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign("moving", 0, to)
		resp, err := adm.AlterPartitionAssignments(ctx(t), req)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		nodetest.Eventually(t, 20*time.Second, func() error {
			list, err := adm.ListPartitionReassignments(ctx(t), nil)
			if err != nil {
				return err
			}
			if n := len(list.Sorted()); n != 0 {
				return fmt.Errorf("%v is still under way", list.Sorted())
			}
			td, err := adm.ListTopics(ctx(t), "moving")
			if err != nil {
				return err
			}
			p := td["moving"].Partitions[0]
			if !slices.Equal(p.Replicas, to) || len(p.ISR) != len(to) || p.Leader < 0 {
				return fmt.Errorf("to %v: %+v", to, p)
			}
			return nil
		})
		if elected, err := adm.ElectLeaders(ctx(t), kadm.ElectPreferredReplica, topicSet("moving")); err != nil {
			t.Fatal(err)
		} else if r := elected["moving"][0]; r.Err != nil && r.ErrMessage == "" {
			t.Errorf("election on %v: %v", to, r.Err)
		}
		nodetest.Eventually(t, 10*time.Second, func() error {
			if l := leader(t, c, "moving", 0); l != to[0] {
				return fmt.Errorf("%d leads %v", l, to)
			}
			return nil
		})
	}
	<-acked
	close(stop)
	<-done
	select {
	case err := <-wrong:
		t.Fatal(err)
	default:
	}
	replicasEqual(t, c, "moving")
	reader := clusterClient(t, c, kgo.ConsumeTopics("moving"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for next := 0; next < sent; {
		fs := reader.PollFetches(ctx(t))
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(next) {
				t.Fatalf("record %s where %d of %d is due", r.Value, next, sent)
			}
			next++
		})
	}
}

func topicSet(topic string) kadm.TopicsSet {
	var s kadm.TopicsSet
	s.Add(topic, 0)
	return s
}
