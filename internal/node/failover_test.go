package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
)

// BenchmarkControllerFailover measures the time from the kill of the active controller to the first topic that is created
// afterwards, in a cluster of 10,000 partitions, with the default time-outs of the quorum:
//
//	go test ./internal/node -run '^$' -bench ControllerFailover -benchtime 5x
func BenchmarkControllerFailover(b *testing.B) {
	c := nodetest.Start(b, nodetest.Options{Props: map[string]string{
		"controller.quorum.fetch.timeout.ms": "500", "controller.quorum.election.timeout.ms": "500", "broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000",
	}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.RequestRetries(1000), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }), kgo.RetryTimeout(2*time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60_000)
	for i := range 100 {
		if _, err := adm.CreateTopic(b.Context(), 100, 1, nil, fmt.Sprintf("many-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	var worst time.Duration
	n := 0
	for b.Loop() {
		b.StopTimer()
		victim := c.ActiveController()
		var alive []string
		for i, id := range c.IDs() {
			if id != victim {
				alive = append(alive, c.Addrs()[i])
			}
		}
		one, err := kgo.NewClient(kgo.SeedBrokers(alive...), kgo.RequestRetries(1000), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
		if err != nil {
			b.Fatal(err)
		}
		if err := one.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		n++
		b.StartTimer()
		begun := time.Now()
		go c.Kill(victim)
		if _, err := kadm.NewClient(one).CreateTopic(b.Context(), 1, 1, nil, fmt.Sprintf("after-%d", n)); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(begun))
		b.StopTimer()
		one.Close()
		nodetest.Eventually(b, time.Minute, func() error {
			if c.Node(victim) != nil {
				return fmt.Errorf("node %d is still ending", victim)
			}
			return nil
		})
		c.StartNodes(victim)
		b.StartTimer()
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}
