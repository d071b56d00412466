package controller

import (
	"fmt"
	"testing"

	"milena/internal/ids"
)

// many creates topics of one partition with three replicas, one command each.
func many(b *bench, topics int) {
	b.up(1, 2, 3)
	for i := range topics {
		b.create(NewTopic{Name: fmt.Sprintf("load.test.topic_%d", i), ID: ids.UUID{0: 1, 12: byte(i >> 16), 13: byte(i >> 8), 14: byte(i)}, Partitions: 1, ReplicationFactor: 3})
	}
}

// One creation among many, by the controller alone: 10,000 have to take seconds.
func BenchmarkCreateTopic(b *testing.B) {
	x := newBench(b, nil)
	many(x, 10_000)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		x.create(topic(fmt.Sprintf("more.topics_%d", n), 1, 3))
		n++
	}
}

// The loss and return of one of three brokers with 10,000 partitions.
func BenchmarkFence(b *testing.B) {
	x := newBench(b, nil)
	many(x, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		x.beat(2, func(h *Heartbeat) { h.WantFence = true })
		x.beat(2, nil)
	}
}

// What a new controller does with 10,000 partitions before it can answer.
func BenchmarkFailover(b *testing.B) {
	x := newBench(b, nil)
	many(x, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		x.failover()
	}
}

// What a creation costs must not grow with the topics there are, even if they begin alike.
func TestACreationCostsWhatItCreates(t *testing.T) {
	b := newBench(t, nil)
	many(b, 2000)
	n := 0
	allocs := testing.AllocsPerRun(100, func() {
		b.create(topic(fmt.Sprintf("load.test.more_%d", n), 1, 3))
		n++
	})
	if allocs > 300 {
		t.Errorf("beside 2,000 topics one more takes %.0f allocations", allocs)
	}
}
