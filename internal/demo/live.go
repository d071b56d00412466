package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// liveRate is how many records a second the producer writes.
	liveRate = 200
	// redraw and report are how often the picture on a terminal is drawn, and a line is printed elsewhere.
	redraw = 500 * time.Millisecond
	report = 2 * time.Second
	// headStart is how long the source runs before it is mirrored, at most Steady.
	headStart = 3 * time.Second
)

// live plays the story for people: traffic on the source, a mirror that follows, the loss of the source, traffic on the
// standby until ctx ends. An end of ctx is no error.
func (d *demo) live(ctx context.Context) error {
	err := d.playLive(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (d *demo) playLive(ctx context.Context) error {
	if err := d.startClusters(ctx); err != nil {
		return err
	}
	if err := d.createTopics(ctx, false); err != nil {
		return err
	}
	show := d.startShow(ctx)
	defer show.end()
	on, err := startTraffic(ctx, d.source)
	if err != nil {
		return err
	}
	defer func() { on.end() }()
	show.traffic.Store(on)
	d.say("a producer writes %d records a second to the source, group billing reads them", liveRate)
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return pause(ctx, min(headStart, d.o.Steady)) }, d.createMirror, d.awaitMirroring,
		func(ctx context.Context) error { return pause(ctx, d.o.Steady) }, on.awaitRead,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	on.end()
	if err := on.failure(); err != nil {
		return err
	}
	if err := d.awaitLagZero(ctx); err != nil {
		return err
	}
	if err := d.verifyGroupsOf(ctx, []string{"billing"}); err != nil {
		return err
	}
	if err := d.failover(ctx); err != nil {
		return err
	}
	if on, err = startTraffic(ctx, d.standby); err != nil {
		return err
	}
	show.traffic.Store(on)
	d.told = true
	d.say("producer and group go on on the standby, at %s; end with Ctrl-C", d.standby.addr)
	select {
	case <-ctx.Done():
		return nil
	case <-on.done:
		return on.failure()
	}
}

// awaitMirroring waits until every partition follows the source.
func (d *demo) awaitMirroring(ctx context.Context) error {
	err := eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		ds, err := d.mirrors().Describe(ctx, mirrorName)
		if err != nil {
			return err
		}
		seen := 0
		for _, m := range ds {
			for _, p := range m.Partitions {
				if p.State != "MIRRORING" {
					return fmt.Errorf("%s-%d is %s %s", p.Topic, p.Partition, p.State, p.LastError)
				}
				seen++
			}
		}
		if seen != len(partitions()) {
			return fmt.Errorf("the mirror shows %d of %d partitions", seen, len(partitions()))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the mirror: %w", err)
	}
	d.say("all %d partitions are MIRRORING", len(partitions()))
	return nil
}

// traffic is a producer and a member of a group on one cluster.
type traffic struct {
	stop     context.CancelFunc
	done     chan struct{}
	wg       sync.WaitGroup
	produced atomic.Int64
	consumed atomic.Int64
	mu       sync.Mutex
	err      error
}

func startTraffic(ctx context.Context, c *cluster) (*traffic, error) {
	producer, err := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond), kgo.RecordDeliveryTimeout(20*time.Second))
	if err != nil {
		return nil, err
	}
	member, err := c.client(kgo.ConsumerGroup("billing"), kgo.ConsumeTopics(topicNames()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.AutoCommitInterval(500*time.Millisecond))
	if err != nil {
		producer.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	t := &traffic{stop: stop, done: make(chan struct{})}
	t.wg.Go(func() { t.produce(ctx, producer) })
	t.wg.Go(func() { t.consume(ctx, member) })
	go func() {
		t.wg.Wait()
		close(t.done)
	}()
	return t, nil
}

// end stops both and waits until what was produced is acknowledged and what was read is committed.
func (t *traffic) end() {
	t.stop()
	<-t.done
}

// awaitRead waits until the group has read something. On a busy machine its first join can take longer than the traffic was
// meant to last, and a group that never read has no offsets to compare.
func (t *traffic) awaitRead(ctx context.Context) error {
	err := eventually(ctx, 30*time.Second, func(context.Context) error {
		if err := t.failure(); err != nil || t.consumed.Load() > 0 {
			return nil // a failure is told by whoever ends the traffic
		}
		return errors.New("it has read nothing yet")
	})
	if err != nil {
		return fmt.Errorf("waiting for group billing: %w", err)
	}
	return nil
}

func (t *traffic) fail(err error) {
	t.mu.Lock()
	t.err = errors.Join(t.err, err)
	t.mu.Unlock()
	t.stop()
}

func (t *traffic) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *traffic) produce(ctx context.Context, cl *kgo.Client) {
	defer cl.Close()
	tick := time.NewTicker(time.Second / liveRate)
	defer tick.Stop()
	parts := partitions()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				t.fail(fmt.Errorf("the producer's last records: %w", err))
			}
			return
		case <-tick.C:
			p := parts[i%len(parts)]
			rec := &kgo.Record{Topic: p.topic, Partition: p.number, Key: fmt.Appendf(nil, "customer-%d", i%97), Value: fmt.Appendf(nil, "record %d", i)}
			cl.Produce(context.WithoutCancel(ctx), rec, func(_ *kgo.Record, err error) {
				if err != nil {
					t.fail(fmt.Errorf("the producer: %w", err))
					return
				}
				t.produced.Add(1)
			})
		}
	}
}

func (t *traffic) consume(ctx context.Context, cl *kgo.Client) {
	defer cl.Close()
	for {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := cl.CommitUncommittedOffsets(end); err != nil {
				t.fail(fmt.Errorf("group billing's last commit: %w", err))
			}
			return
		}
		for _, e := range fs.Errors() {
			t.fail(fmt.Errorf("group billing reading %s-%d: %w", e.Topic, e.Partition, e.Err))
			return
		}
		t.consumed.Add(int64(fs.NumRecords()))
	}
}
