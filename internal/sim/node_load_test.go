//go:build synctests

package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is what clients do to the cluster.
type load struct {
	m       *machines
	topic   string
	ctx     context.Context // of those that go on for ever
	stop    context.CancelFunc
	wg      sync.WaitGroup
	writing context.Context // ends when nothing new is to be written
	quiet   context.CancelFunc
	writers sync.WaitGroup

	mu    sync.Mutex
	acked map[int32]int // records acknowledged, by partition
}

const loadPartitions = 3

// everyone stands for replicas that never lose anything: the faults of the nodes see to it that nothing acknowledged may be lost.
var everyone = []int32{-1}

func newLoad(m *machines) *load {
	l := &load{m: m, topic: "load", acked: map[int32]int{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.writing, l.quiet = context.WithCancel(l.ctx)
	return l
}

func (l *load) client(name string, opts ...kgo.Opt) (*kgo.Client, error) {
	return l.m.client(name, opts...)
}

func (m *machines) client(name string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(m.seeds()...), kgo.Dialer(m.net.dialer(name)), kgo.ClientID(name), kgo.MaxVersions(nil), kgo.AlwaysRetryEOF(),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
}

func (l *load) tp(partition int32) string { return tpName(l.topic, partition) }

// begin creates the topic and starts the clients.
func (l *load) begin() error {
	adm, err := l.client("admin")
	if err != nil {
		return err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	for {
		_, err := kadm.NewClient(adm).CreateTopic(ctx, loadPartitions, 3, nil, l.topic)
		if err == nil {
			break
		}
		l.m.logf("create topic: %v", err)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("create topic: %w", err)
		}
	}
	for i := range 2 {
		l.writers.Go(func() { l.produce(i) })
	}
	l.wg.Go(l.consume)
	for i := range 2 {
		l.wg.Go(func() { l.member(i) })
	}
	l.wg.Go(l.watchOffsets)
	return nil
}

// produce writes records with acks=all, idempotent, several in flight, and returns when it is to stop and all are acknowledged.
func (l *load) produce(id int) {
	cl, err := l.client(fmt.Sprintf("producer-%d", id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.StopProducerOnDataLossDetected(), kgo.MaxBufferedRecords(20))
	if err != nil {
		l.m.failf("producer %d: %v", id, err)
		return
	}
	defer cl.Close()
	count := map[int32]int{}
	for i := int32(0); l.writing.Err() == nil; i++ {
		part := i % loadPartitions
		producer, n := id*10+int(part), count[part]
		count[part]++
		v := fmt.Sprintf("p%d-%d", producer, n)
		l.m.history(func(h *history) { h.send(l.tp(part), producer, n, v, time.Now()) })
		cl.Produce(l.ctx, &kgo.Record{Topic: l.topic, Partition: part, Value: []byte(v)}, func(r *kgo.Record, err error) {
			if err != nil {
				if l.ctx.Err() == nil {
					l.m.failf("lost: producer %d was refused for good: %q: %v", id, r.Value, err)
				}
				return
			}
			l.m.logf("%s: %s at offset %d", l.tp(r.Partition), r.Value, r.Offset)
			l.m.history(func(h *history) { h.ack(l.tp(r.Partition), string(r.Value), r.Offset, everyone) })
			l.mu.Lock()
			l.acked[r.Partition]++
			l.mu.Unlock()
		})
		select {
		case <-time.After(time.Duration(1+i%7) * 5 * time.Millisecond):
		case <-l.writing.Done():
		}
	}
	if err := cl.Flush(l.ctx); err != nil && l.ctx.Err() == nil {
		l.m.failf("producer %d: flush: %v", id, err)
	}
}

func (l *load) acknowledged(partition int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked[partition]
}

// consume reads everything, without a group.
func (l *load) consume() {
	cl, err := l.client("consumer", kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		l.m.failf("consumer: %v", err)
		return
	}
	defer cl.Close()
	for l.ctx.Err() == nil {
		fs := cl.PollFetches(l.ctx)
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			var lost *kgo.ErrDataLoss
			if errors.As(p.Err, &lost) {
				l.m.failf("lost: the consumer was told of lost data: %v", p.Err)
			}
			l.m.history(func(h *history) {
				for _, r := range p.Records {
					h.consume(l.tp(r.Partition), r.Offset, p.HighWatermark, string(r.Value), everyone)
				}
			})
		})
	}
}

// member is a member of a group, which comes and goes.
func (l *load) member(id int) {
	for l.ctx.Err() == nil {
		life, cancel := context.WithTimeout(l.ctx, time.Duration(5+7*id)*time.Second)
		l.join(life, id)
		cancel()
	}
}

func (l *load) join(ctx context.Context, id int) {
	cl, err := l.client(fmt.Sprintf("member-%d", id), kgo.ConsumeTopics(l.topic), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.BlockRebalanceOnPoll())
	if err != nil {
		l.m.failf("member %d: %v", id, err)
		return
	}
	defer cl.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		recs := fs.Records()
		if len(recs) > 0 {
			l.commit(ctx, cl, recs)
		}
		cl.AllowRebalance()
	}
}

func (l *load) key(partition int32) string { return "g " + l.tp(partition) }

// commit commits what was read.
func (l *load) commit(ctx context.Context, cl *kgo.Client, recs []*kgo.Record) {
	last := map[int32]int64{}
	for _, r := range recs {
		last[r.Partition] = max(last[r.Partition], r.Offset+1)
	}
	l.m.history(func(h *history) {
		for p, o := range last {
			h.tryCommit(l.key(p), max(o, h.commit(l.key(p)).tried))
		}
	})
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	at := time.Now()
	if err := cl.CommitRecords(short, recs...); err != nil {
		l.m.logf("commit: %v", err)
		return
	}
	l.m.history(func(h *history) {
		for p, o := range last {
			h.ackCommit(l.key(p), 0, o, vouched{everyone, at, time.Now()})
		}
	})
}

// watchOffsets reads the group's offsets, again and again.
func (l *load) watchOffsets() {
	cl, err := l.client("watcher")
	if err != nil {
		l.m.failf("watcher: %v", err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for l.ctx.Err() == nil {
		at := time.Now()
		ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
		got, err := adm.FetchOffsets(ctx, "g")
		cancel()
		if err == nil {
			l.m.history(func(h *history) {
				for p := range int32(loadPartitions) {
					o, ok := got.Lookup(l.topic, p)
					if ok && o.Err != nil {
						continue
					}
					if !ok {
						o.At = -1
					}
					h.fetched(l.key(p), at, -1, o.At, vouched{everyone, at, time.Now()})
				}
			})
		}
		select {
		case <-time.After(150 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// end stops all clients.
func (l *load) end() {
	l.quiet()
	l.stop()
	l.writers.Wait()
	l.wg.Wait()
}
