package node_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/meta"
	"milena/internal/node/nodetest"
)

// A broker that was killed lost what it had not flushed. It leaves every ISR before it is let in again (KIP-966), so what
// was acknowledged is still there; after a clean stop it names its last broker epoch.
func TestKilledBrokerLeavesTheISR(t *testing.T) {
	disks := map[int32]*disk.Mem{}
	c := nodetest.Start(t, nodetest.Options{
		// Nobody may notice the kill by a session's end.
		Props: map[string]string{"broker.session.timeout.ms": "20000", "replica.lag.time.max.ms": "20000"},
		Disk: func(id int32) disk.FS {
			disks[id] = disk.NewMem(uint64(id))
			return disks[id]
		},
	})
	cl := clusterClient(t, c)
	createTopic(t, cl, "t", 3, 3)
	produce(t, cl, "t", 0, 60)

	// The next controller has not heard from it: it needn't wait for a session's end to register it again.
	victim := controller(t, c)
	watcher := 1 + victim%3
	before := c.Node(watcher).Image().Broker(victim).Epoch
	disks[victim].Crash() // what was not flushed is gone
	c.Kill(victim)
	if names := cleanFile(c, victim); names != "" {
		t.Errorf("a killed broker left a clean shutdown file: %s", names)
	}
	done := make(chan struct{})
	var seen []string
	go func() {
		defer close(done)
		seen = watchReturn(c, watcher, victim, before)
	}()
	c.StartNodes(victim)
	<-done
	for _, s := range seen {
		t.Error(s)
	}
	produce(t, cl, "t", 60, 90)
	replicasEqual(t, c, "t")

	epoch := c.Node(watcher).Image().Broker(victim).Epoch
	c.Stop(victim)
	if got, want := cleanFile(c, victim), fmt.Sprintf(`{"version":0,"brokerEpoch":%d}`, epoch); got != want {
		t.Errorf("the clean shutdown file is %q, want %q", got, want)
	}
}

// watchReturn looks at every image until the broker is unfenced with a newer epoch, and says where it counted before.
func watchReturn(c *nodetest.Cluster, watcher, broker int32, before int64) (wrong []string) {
	deadline := time.Now().Add(20 * time.Second)
	for last := int64(-1); time.Now().Before(deadline); {
		img := c.Node(watcher).Image()
		if img.Offset == last {
			continue
		}
		last = img.Offset
		b := img.Broker(broker)
		if b == nil || b.Epoch == before {
			continue
		}
		if !b.Fenced {
			return wrong
		}
		for i, p := range img.TopicByName("t").Partitions {
			if slices.Contains(p.ISR, broker) || slices.Contains(p.ELR, broker) || p.Leader == broker {
				wrong = append(wrong, countedIn(img, i, p))
			}
		}
	}
	return append(wrong, "the broker did not come back")
}

func countedIn(img *meta.Image, i int, p *meta.Partition) string {
	return fmt.Sprintf("offset %d: the broker that lost records is counted in t-%d: leader %d, ISR %v, ELR %v", img.Offset, i, p.Leader, p.ISR, p.ELR)
}

// cleanFile is the content of a node's clean shutdown file, empty if there is none.
func cleanFile(c *nodetest.Cluster, id int32) string {
	b, err := disk.ReadFile(c.FS(id), filepath.Join(c.Dir(id), ".kafka_cleanshutdown"))
	if err != nil {
		return ""
	}
	var v any
	if json.Unmarshal(b, &v) != nil {
		return "not JSON"
	}
	return string(b)
}
