package node_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/disk"
	"milena/internal/node/nodetest"
)

// A broker whose only log directory fails ends, and before that its partitions have moved on: nobody waits for the end of
// its session.
func TestLastDirectoryFails(t *testing.T) {
	broken := map[int32]*atomic.Bool{}
	c := nodetest.Start(t, nodetest.Options{Controllers: 1, Brokers: 3, Props: map[string]string{"broker.session.timeout.ms": "60000"}, Disk: func(id int32) disk.FS {
		b := &atomic.Bool{}
		broken[id] = b
		return disk.Faulty(disk.NewMem(uint64(id)), func(op disk.Op, name string) error {
			if b.Load() && op != disk.OpClose && strings.HasPrefix(name, "/data") {
				return errors.New("input/output error")
			}
			return nil
		})
	}})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 1, 3)
	produce(t, cl, "t", 0, 1)
	lead := leader(t, c, "t", 0)
	broken[lead].Store(true)
	if err := cl.ProduceSync(ctx(t), &kgo.Record{Topic: "t", Value: []byte("moved on")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Node(lead).Failed():
		if err := c.Node(lead).Err(); !strings.Contains(err.Error(), "last one that worked") {
			t.Errorf("broker %d ended with %v", lead, err)
		}
	case <-ctx(t).Done():
		t.Error("the broker goes on without a disk")
	}
}
