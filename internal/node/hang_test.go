package node_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/disk"
	"milena/internal/node/nodetest"
)

// A controller whose metadata log's disk hangs answers no heartbeats any more, so the broker in its process goes to the next controller
// and learns from it what has changed: two controllers that keep two brokers going would be two leaders of a partition.
func TestControllerWhoseDiskHangs(t *testing.T) {
	gates := map[int32]*atomic.Pointer[chan struct{}]{}
	c := nodetest.Start(t, nodetest.Options{
		Disk: func(id int32) disk.FS {
			gate := &atomic.Pointer[chan struct{}]{}
			gates[id] = gate
			return disk.Faulty(disk.NewMem(uint64(id)), func(op disk.Op, name string) error {
				if g := gate.Load(); g != nil && strings.Contains(name, "/quorum/") && (op == disk.OpWrite || op == disk.OpSync) {
					<-*g
				}
				return nil
			})
		},
	})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 3, 3)
	victim := controller(t, c)
	gate := make(chan struct{})
	gates[victim].Store(&gate)
	defer close(gate)
	// A disk that nothing is written to hangs unnoticed: this is the write that it doesn't take.
	writing, stop := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = kadm.NewClient(cl).CreateTopic(writing, 1, 1, nil, "during")
	}()
	defer func() { stop(); <-written }()
	nodetest.Eventually(t, 20*time.Second, func() error {
		if id := c.ActiveController(); id == 0 || id == victim {
			return fmt.Errorf("the active controller is %d", id)
		}
		return nil
	})
	// Not by the broker beside the hanging controller: a change that is forwarded to that one would hang, which tells as much.
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "after", 3, 2
	req.Topics = append(req.Topics, topic)
	if resp, err := cl.Broker(int(1+victim%3)).RetriableRequest(t.Context(), req); err != nil || resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode != 0 {
		t.Fatal(resp, err)
	}
	nodetest.Eventually(t, 20*time.Second, func() error {
		n := c.Node(victim)
		img := n.Image()
		if img.TopicByName("after") == nil || !img.Alive(victim) {
			return fmt.Errorf("the node whose disk hangs has metadata up to %d, let in: %v", img.Offset, img.Alive(victim))
		}
		return nil
	})
	produce(t, cl, "t", 0, 30)
}
