package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Quick are options with which a client notices a dead connection and a new leader in seconds: what is measured is to
// be the cluster's time, not the client's patience.
func Quick(servers []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(servers...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.ProduceRequestTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.DialTimeout(time.Second),
		kgo.UnknownTopicRetries(-1), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

// Probe is a franz-go producer for each partition. Each sends a few records, waits for their acknowledgement and goes
// on, so the time between two acknowledgements is how long the partition was not writable.
type Probe struct {
	h     *History
	acked func(partition int32)
	wg    sync.WaitGroup
	stop  chan struct{}
}

const (
	probeRecords = 3
	probeEvery   = 50 * time.Millisecond
)

// StartProbe starts the producers; acked is called for each acknowledgement, and once at the start. They end after Close.
func StartProbe(servers []string, topic string, partitions int32, h *History, acked func(partition int32)) (*Probe, error) {
	p := &Probe{h: h, acked: acked, stop: make(chan struct{})}
	for i := range partitions {
		cl, err := kgo.NewClient(append(Quick(servers), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.StopProducerOnDataLossDetected(), kgo.ProducerLinger(0))...)
		if err != nil {
			return nil, err
		}
		p.wg.Go(func() {
			defer cl.Close()
			p.produce(cl, i)
		})
	}
	return p, nil
}

func (p *Probe) produce(cl *kgo.Client, partition int32) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	padding := strings.Repeat("franz-go ", 30)
	p.acked(partition)
	for n := 0; ; n += probeRecords {
		var recs []*kgo.Record
		for i := range probeRecords {
			recs = append(recs, &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, "f%d.%d %s", partition, n+i, padding)})
		}
		// No deadline: a record whose sending is given up could be neither counted as written nor as lost.
		for _, r := range cl.ProduceSync(context.Background(), recs...) {
			if r.Err != nil {
				p.h.Breakf("franz-go: produce to partition %d: %v", partition, r.Err)
				return
			}
			p.h.Ack(IDOf(string(r.Record.Value)), Place{partition, r.Record.Offset})
		}
		p.acked(partition)
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

// Close ends the producers after what is under way, or fails after a minute.
func (p *Probe) Close() error {
	close(p.stop)
	done := make(chan struct{})
	go func() { p.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(time.Minute):
		return errors.New("franz-go producers: not all records were acknowledged within a minute of the end")
	}
}

// Member is a member of a franz-go group.
type Member struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func StartMember(servers []string, topic, group string, h *History) (*Member, error) {
	cl, err := kgo.NewClient(append(Quick(servers), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(time.Second), kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchMaxPartitionBytes(256<<10))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		defer cl.CloseAllowingRebalance()
		for ctx.Err() == nil {
			m.poll(ctx, cl, group, h)
		}
	}()
	return m, nil
}

func (m *Member) poll(ctx context.Context, cl *kgo.Client, group string, h *History) {
	fs := cl.PollRecords(ctx, 1000)
	defer cl.AllowRebalance()
	fs.EachError(func(_ string, partition int32, err error) {
		var loss *kgo.ErrDataLoss
		if errors.As(err, &loss) || errors.Is(err, kerr.OffsetOutOfRange) {
			h.Breakf("franz-go: partition %d: %v", partition, err)
		}
	})
	recs := fs.Records()
	for _, r := range recs {
		h.Read(group, Place{r.Partition, r.Offset}, IDOf(string(r.Value)))
	}
	if len(recs) == 0 {
		return
	}
	commit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := cl.CommitRecords(commit, recs...); err != nil && ctx.Err() == nil {
		slog.Debug("commit failed", "group", group, "err", err) // the next one carries it
	}
}

// Close ends the member and waits for it.
func (m *Member) Close() {
	m.cancel()
	<-m.done
}

// ReadTopic reads the topic up to the ends.
func ReadTopic(ctx context.Context, servers []string, topic string, ends map[int32]int64) (*ReadBack, error) {
	r := NewReadBack("franz-go")
	from := map[int32]kgo.Offset{}
	for p := range ends {
		from[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(append(Quick(servers), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for {
		err := r.Reached(ends)
		if err == nil {
			return r, nil
		}
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return r, err
		}
		if err := fs.Err(); err != nil {
			return r, err
		}
		for rec := range fs.RecordsAll() {
			r.Add(Place{rec.Partition, rec.Offset}, IDOf(string(rec.Value)))
		}
	}
}

// WatchCommits asks for the groups' committed offsets until ctx ends.
func WatchCommits(ctx context.Context, servers []string, topic string, groups []string, h *History) error {
	cl, err := kgo.NewClient(Quick(servers)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, g := range groups {
			noteCommits(ctx, adm, topic, g, h)
		}
	}
}

func noteCommits(ctx context.Context, adm *kadm.Client, topic, group string, h *History) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	rs, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return // the coordinator is being moved
	}
	rs.Each(func(r kadm.OffsetResponse) {
		if r.Err == nil && r.Topic == topic && r.At >= 0 {
			h.Commit(group, r.Partition, r.At)
		}
	})
}

// ClusterHealth is nil when every partition of every topic has all its replicas in sync, and a leader.
func ClusterHealth(ctx context.Context, servers []string, topic string, brokers int) error {
	cl, err := kgo.NewClient(Quick(servers)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest() // all topics
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if len(resp.Brokers) != brokers {
		return fmt.Errorf("%d of %d brokers are there", len(resp.Brokers), brokers)
	}
	seen := false
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		seen = seen || *t.Topic == topic
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", *t.Topic, p.Partition, err)
			}
			if p.Leader < 0 || len(p.ISR) != len(p.Replicas) || len(p.Replicas) != min(brokers, 3) {
				return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v", *t.Topic, p.Partition, p.Leader, p.Replicas, p.ISR)
			}
		}
	}
	if !seen {
		return fmt.Errorf("topic %s is not there", topic)
	}
	return nil
}
