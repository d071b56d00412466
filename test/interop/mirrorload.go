package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/record"
)

// twoYears is how old the timestamps of the events topic are.
const twoYears = 2 * 365 * 24 * time.Hour

// prepareSource makes the topics, compacts one so that its log has gaps, and deletes records of another so that it
// starts in the middle of a batch.
func (m *mirror) prepareSource(ctx context.Context) error {
	forever, tenMiB := kadm.StringPtr("-1"), kadm.StringPtr("10485760")
	configs := map[string]map[string]*string{
		ordersTopic: {"retention.ms": forever, "max.message.bytes": tenMiB, "segment.bytes": kadm.StringPtr("16777216")},
		eventsTopic: {"retention.ms": forever, "segment.bytes": kadm.StringPtr("4194304")},
		tableTopic: {"cleanup.policy": kadm.StringPtr("compact"), "segment.bytes": kadm.StringPtr("1048576"),
			"min.cleanable.dirty.ratio": kadm.StringPtr("0.01")},
	}
	for topic, n := range mirrored() {
		if _, err := m.srcAdm.CreateTopic(ctx, n, 1, configs[topic], topic); err != nil {
			return err
		}
	}
	m.load = newLoad(m.src.Addr)
	m.onCleanUp(m.load.close)
	if err := m.load.open(); err != nil {
		return err
	}
	if err := m.load.table(ctx, 4000); err != nil {
		return err
	}
	if err := m.awaitCompaction(ctx); err != nil {
		return err
	}
	if err := m.load.mixed(ctx, 2<<20); err != nil {
		return err
	}
	var o kadm.Offsets
	o.AddOffset(ordersTopic, 1, 13, -1)
	r, err := m.srcAdm.DeleteRecords(ctx, o)
	if err != nil {
		return err
	}
	if d := r[ordersTopic][1]; d.Err != nil || d.LowWatermark != 13 {
		return fmt.Errorf("records deleted: %+v", d)
	}
	return nil
}

// awaitCompaction waits for gaps and then holds the cleaner off: a standby compacts by itself, so the copies are only
// comparable batch by batch if nothing is compacted from here on.
func (m *mirror) awaitCompaction(ctx context.Context) error {
	// The files change while the cleaner swaps them, so any error counts as not yet.
	err := peertest.WaitFor(ctx, 60*time.Second, "Kafka compacts", func(context.Context) error {
		for p := range mirrored()[tableTopic] {
			s, err := peertest.Inspect(m.src.PartitionDir(tableTopic, p))
			if err != nil {
				return err
			}
			if s.Gaps == 0 {
				return fmt.Errorf("%s-%d has no gaps", tableTopic, p)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	alter := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: kadm.StringPtr("999999999999")},
		{Op: kadm.SetConfig, Name: "min.cleanable.dirty.ratio", Value: kadm.StringPtr("1")},
	}
	r, err := m.srcAdm.AlterTopicConfigs(ctx, alter, tableTopic)
	if err != nil {
		return err
	}
	for _, x := range r {
		if x.Err != nil {
			return x.Err
		}
	}
	// A pass that runs now may still swap files.
	var before []string
	return peertest.WaitFor(ctx, 30*time.Second, "the cleaner is done", func(ctx context.Context) error {
		if err := peertest.Pause(ctx, time.Second); err != nil {
			return err
		}
		var now []string
		for p := range mirrored()[tableTopic] {
			s, err := peertest.Inspect(m.src.PartitionDir(tableTopic, p))
			if err != nil {
				return err
			}
			now = append(now, fmt.Sprint(s))
			found, err := filepath.Glob(filepath.Join(m.src.PartitionDir(tableTopic, p), "*.*d")) // .cleaned, .deleted
			if err != nil {
				return err
			}
			now = append(now, found...)
		}
		if slices.Equal(before, now) {
			return nil
		}
		before = now
		return errors.New("files still change")
	})
}

// load produces to the source with every codec. Used by one goroutine at a time.
type load struct {
	addr    string
	clients map[record.Codec]*kgo.Client
	noise   noise
	n       int
}

func newLoad(addr string) *load {
	return &load{addr: addr, clients: map[record.Codec]*kgo.Client{}, noise: newNoise(2)}
}

func (l *load) open() error {
	for _, c := range codecs() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(l.addr), kgo.ProducerBatchCompression(kgoCodec(c)), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchMaxBytes(200<<10), kgo.ProducerLinger(5*time.Millisecond))
		if err != nil {
			return err
		}
		l.clients[c] = cl
	}
	return nil
}

func (l *load) close() error {
	for _, cl := range l.clients {
		cl.Close()
	}
	return nil
}

// table produces n records of 1 KiB with few keys and some tombstones to each partition of the compacted topic.
func (l *load) table(ctx context.Context, n int) error {
	for i, c := range codecs() {
		var recs []*kgo.Record
		for j := range n / len(codecs()) {
			for p := range mirrored()[tableTopic] {
				r := &kgo.Record{Topic: tableTopic, Partition: p, Key: fmt.Appendf(nil, "key-%d-%d", i, j%(50+10*i)), Value: l.noise.random(1000)}
				if j%40 == 39 {
					r.Value = nil
				}
				recs = append(recs, r)
			}
		}
		if err := l.clients[c].ProduceSync(ctx, recs...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// mixed produces about this many bytes with each codec in turn to all partitions: headers, null keys and values,
// empty ones, sizes from nothing to 30 KiB; the events topic with timestamps that are two years old.
func (l *load) mixed(ctx context.Context, bytes int64) error {
	old := time.Now().Add(-twoYears)
	for left := bytes; left > 0; {
		for _, c := range codecs() {
			var recs []*kgo.Record
			for range 40 {
				l.n++
				r := &kgo.Record{Topic: ordersTopic, Partition: int32((l.n - l.n/3) % 6), Key: fmt.Appendf(nil, "key-%d", l.n), Timestamp: time.Now()}
				if l.n%3 == 0 {
					r.Topic, r.Partition, r.Timestamp = eventsTopic, int32(l.n/3%4), old.Add(time.Duration(l.n)*time.Second)
				}
				half := l.n * 7919 % 15000
				r.Value = append(l.noise.random(half), l.noise.bytes(half/2)...)
				switch l.n % 17 {
				case 1:
					r.Key = nil
				case 2:
					r.Value = nil
				case 3:
					r.Key, r.Value = nil, nil
				case 4:
					r.Value = []byte{}
				case 5:
					r.Headers = []kgo.RecordHeader{{Key: "trace", Value: l.noise.bytes(20)}, {Key: "none"}, {Key: "", Value: []byte{}}}
				}
				left -= int64(len(r.Value))
				recs = append(recs, r)
			}
			if err := l.clients[c].ProduceSync(ctx, recs...).FirstErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

// run produces the bytes, with a batch of 8 MiB and a transaction in between, and says so after each tenth; it waits
// for that to be heard.
func (l *load) run(ctx context.Context, bytes int64, tenth chan<- struct{}) error {
	for i := range 10 {
		if err := l.mixed(ctx, bytes/10); err != nil {
			return err
		}
		switch i {
		case 3, 8:
			if err := l.big(ctx); err != nil {
				return err
			}
		case 5:
			if err := l.transactions(ctx); err != nil {
				return err
			}
		}
		select {
		case tenth <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// big produces one batch of 8 MiB.
func (l *load) big(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addr), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(9<<20), kgo.ProducerLinger(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for range 4 {
		recs = append(recs, &kgo.Record{Topic: ordersTopic, Partition: 2, Value: l.noise.random(bigBatch / 4)})
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}

// transactions commits one and aborts one, whose markers are mirrored like all else.
func (l *load) transactions(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addr), kgo.TransactionalID("interop"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		for p := range mirrored()[eventsTopic] {
			r := &kgo.Record{Topic: eventsTopic, Partition: p, Value: []byte("in a transaction")}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				return err
			}
		}
		if err := cl.EndTransaction(ctx, commit); err != nil {
			return err
		}
	}
	return nil
}
