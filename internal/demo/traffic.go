package demo

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partition names one partition.
type partition struct {
	topic  string
	number int32
}

func (p partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.number) }

// topic is a topic of the story.
type topic struct {
	name       string
	partitions int32
	configs    map[string]string
}

// The topics: orders gets a codec a partition, payments headers and nulls, customers is compacted.
func topics() []topic {
	return []topic{
		{"orders", 5, map[string]string{"retention.ms": "-1"}},
		{"payments", 2, map[string]string{"retention.ms": "-1", "max.message.bytes": "2097152"}},
		{"customers", 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1"}},
	}
}

func partitions() []partition {
	var out []partition
	for _, t := range topics() {
		for i := range t.partitions {
			out = append(out, partition{t.name, i})
		}
	}
	return out
}

// groups are the consumer groups, by the topic each reads.
func groups() map[string]string { return map[string]string{"billing": "orders", "audit": "payments"} }

func groupNames() []string { return []string{"audit", "billing"} }

type codec struct {
	name string
	kgo  kgo.CompressionCodec
}

func codecs() []codec {
	return []codec{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
}

// produce writes records in batches of up to batchBytes and waits until all are acknowledged.
func produce(ctx context.Context, c *cluster, codec kgo.CompressionCodec, batchBytes int32, recs ...*kgo.Record) error {
	cl, err := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(batchBytes), kgo.ProducerLinger(2*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return fmt.Errorf("producing to the %s: %w", c.name, err)
	}
	return nil
}

// produceOrders writes n records to each partition of orders, each partition with its codec.
func produceOrders(ctx context.Context, c *cluster, from, n int) error {
	for p, codec := range codecs() {
		recs := make([]*kgo.Record, 0, n)
		for i := from; i < from+n; i++ {
			recs = append(recs, &kgo.Record{Topic: "orders", Partition: int32(p), Key: fmt.Appendf(nil, "customer-%d", i%97),
				Value: fmt.Appendf(nil, `{"order":%d,"codec":%q,"item":"an ordinary thing, ordered once more","amount":%d}`, i, codec.name, i%500)})
		}
		if err := produce(ctx, c, codec.kgo, 32<<10, recs...); err != nil {
			return err
		}
	}
	return nil
}

// producePayments writes records with headers, without key, without value, with empty ones, and with old timestamps.
func producePayments(ctx context.Context, c *cluster, n int) error {
	old := time.Now().AddDate(-2, 0, 0)
	var recs []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: "payments", Partition: int32(i % 2), Key: fmt.Appendf(nil, "payment-%d", i), Value: fmt.Appendf(nil, "%d euros", i)}
		switch i % 5 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Key, r.Value = []byte{}, []byte{}
		case 4:
			r.Timestamp = old.Add(time.Duration(i) * time.Second)
		}
		r.Headers = []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "%08x", i)}, {Key: "empty", Value: []byte{}}, {Key: "null", Value: nil}}
		recs = append(recs, r)
	}
	recs = append(recs, &kgo.Record{Topic: "payments", Partition: 0, Key: []byte("large"), Value: bytes.Repeat([]byte("a megabyte\n"), 100_000)})
	return produce(ctx, c, kgo.NoCompression(), 2<<20, recs...)
}

// produceCustomers overwrites each of n keys, then deletes some.
func produceCustomers(ctx context.Context, c *cluster, round, n int) error {
	var recs []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: "customers", Key: fmt.Appendf(nil, "customer-%d", i), Value: fmt.Appendf(nil, "address %d", round)}
		if i%10 == round {
			r.Value = nil
		}
		recs = append(recs, r)
	}
	return produce(ctx, c, kgo.SnappyCompression(), 32<<10, recs...)
}

// consumeGroup reads n records of a topic as a member of a group, commits, and leaves. It returns the records.
func consumeGroup(ctx context.Context, c *cluster, group, topic string, n int) ([]*kgo.Record, error) {
	cl, err := c.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.FetchMaxWait(100*time.Millisecond), kgo.BlockRebalanceOnPoll())
	if err != nil {
		return nil, err
	}
	defer cl.CloseAllowingRebalance()
	var out []*kgo.Record
	for len(out) < n {
		fs := cl.PollRecords(ctx, n-len(out))
		if err := fs.Err0(); err != nil {
			return out, fmt.Errorf("group %s on the %s has %d of %d records: %w", group, c.name, len(out), n, err)
		}
		for _, e := range fs.Errors() {
			return out, fmt.Errorf("group %s reading %s-%d on the %s: %w", group, e.Topic, e.Partition, c.name, e.Err)
		}
		out = append(out, fs.Records()...)
	}
	if err := cl.CommitRecords(ctx, out...); err != nil {
		return out, fmt.Errorf("group %s on the %s: %w", group, c.name, err)
	}
	return out, nil
}

// readAt reads the one record at an offset.
func readAt(ctx context.Context, c *cluster, p partition, offset int64) (*kgo.Record, error) {
	cl, err := c.client(kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.topic: {p.number: kgo.NewOffset().At(offset)}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, fmt.Errorf("reading %s at offset %d on the %s: %w", p, offset, c.name, err)
		}
		for _, r := range fs.Records() {
			if r.Offset >= offset {
				return r, nil
			}
		}
	}
}
