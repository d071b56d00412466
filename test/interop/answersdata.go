package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
)

func (x *answers) ask(context.Context) error {
	for _, s := range []func() error{x.askSetup, x.askMetadata, x.askProduce, x.askIdempotent, x.askFetch, x.askOffsets, x.askGroups, x.askMembers,
		x.askTopics, x.askConfigs, x.askCluster, x.askNothing} {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

// askSetup makes two topics and learns what differs by accident: ids, directories.
func (x *answers) askSetup() error {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 10000
	for _, n := range []string{"a", "compacted", "idem"} {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, 2, 1
		if n == "compacted" {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: ptr("compact")}}
		}
		create.Topics = append(create.Topics, t)
	}
	if _, err := x.one("setup", 7, func(int16, *asked) kmsg.Request { return create }); err != nil {
		return err
	}
	got, err := x.one("setup metadata", 12, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = named("a", "compacted", "idem")
		return r
	})
	if err != nil {
		return err
	}
	for i, resp := range got {
		m := resp.(*kmsg.MetadataResponse)
		for _, t := range m.Topics {
			x.brokers[i].ids[*t.Topic] = t.TopicID
		}
		if len(x.brokers[i].ids) != 3 || m.ClusterID == nil {
			return fmt.Errorf("%s: no ids of topics: %v", x.brokers[i].b.Kind, m)
		}
		x.brokers[i].cluster = *m.ClusterID
	}
	got, err = x.one("setup log directories", 4, func(int16, *asked) kmsg.Request { return kmsg.NewPtrDescribeLogDirsRequest() })
	if err != nil {
		return err
	}
	for i, resp := range got {
		for _, d := range resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			x.brokers[i].dirs = append(x.brokers[i].dirs, d.Dir)
		}
	}
	// What came before they were known is not compared.
	for _, a := range x.brokers {
		clear(a.said)
		a.labels = nil
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

func named(names ...string) []kmsg.MetadataRequestTopic {
	out := []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		out = append(out, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return out
}

func (x *answers) askMetadata() error {
	ask := func(name string, least int16, topics func(v int16, a *asked) []kmsg.MetadataRequestTopic, create bool) error {
		return x.from(name, 3, least, func(v int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrMetadataRequest()
			r.Topics, r.AllowAutoTopicCreation = topics(v, a), create
			r.IncludeTopicAuthorizedOperations = v >= 8
			return r
		})
	}
	fixed := func(t []kmsg.MetadataRequestTopic) func(int16, *asked) []kmsg.MetadataRequestTopic {
		return func(int16, *asked) []kmsg.MetadataRequestTopic { return t }
	}
	for _, err := range []error{
		ask("metadata of two", 0, fixed(named("a", "compacted")), false),
		ask("metadata of none", 1, fixed(named()), false),
		ask("metadata of all", 0, fixed(nil), false),
		ask("metadata of bad names", 0, fixed(named("bad/name", "..", "a")), true),
		ask("metadata of an unknown one", 4, fixed(named("nosuch")), false),
		ask("metadata by id", 12, func(_ int16, a *asked) []kmsg.MetadataRequestTopic {
			return []kmsg.MetadataRequestTopic{{TopicID: a.ids["a"]}, {TopicID: [16]byte{1}}}
		}, false),
		ask("metadata twice the same", 0, fixed(named("a", "a")), false),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// produceOf is a request with one batch for a partition.
func produceOf(v int16, a *asked, topic string, partition int32, acks int16, records []byte) kmsg.Request {
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = acks, 10000
	t := kmsg.ProduceRequestTopic{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}
	if v >= 13 {
		if t.TopicID = a.ids[topic]; t.TopicID == [16]byte{} {
			t.TopicID = [16]byte{9}
		}
	}
	r.Topics = append(r.Topics, t)
	return r
}

// built is a batch of n records at a fixed time, spoilt if wanted.
func (x *answers) built(n int, o record.BuilderOptions, spoil func([]byte) []byte) []byte {
	o.LeaderEpoch = -1
	var rs []record.Record
	for i := range n {
		rs = append(rs, record.Record{Offset: int64(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d", i), Timestamp: x.past + int64(i)*1000})
	}
	b, err := record.Build(o, rs...)
	if err != nil {
		return nil // the brokers will say so
	}
	if spoil != nil {
		return spoil(b)
	}
	return b
}

func (x *answers) askProduce() error {
	plain := record.BuilderOptions{}
	cases := []struct {
		name, topic string
		partition   int32
		acks        int16
		records     []byte
	}{
		{"produce", "a", 0, -1, x.built(2, plain, nil)},
		{"produce acks 1", "a", 0, 1, x.built(1, plain, nil)},
		{"produce acks 2", "a", 0, 2, x.built(1, plain, nil)},
		{"produce lz4", "a", 0, -1, x.built(5, record.BuilderOptions{Compression: record.Compression{Codec: record.LZ4}}, nil)},
		{"produce to no topic", "nosuch-produce", 0, -1, x.built(1, plain, nil)},
		{"produce to no partition", "a", 7, -1, x.built(1, plain, nil)},
		{"produce to a negative partition", "a", -1, -1, x.built(1, plain, nil)},
		{"produce an empty set", "a", 0, -1, []byte{}},
		{"produce wrong checksum", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })},
		{"produce magic 1", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { b[16] = 1; return b })},
		{"produce magic 9", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { b[16] = 9; return b })},
		{"produce half a batch", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { return b[:len(b)-3] })},
		{"produce two batches", "a", 0, -1, append(x.built(1, plain, nil), x.built(1, plain, nil)...)},
		{"produce codec 6", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { b[22] |= 6; return checksummed(b) })},
		{"produce a control batch", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { b[22] |= 0x20; return checksummed(b) })},
		{"produce a base offset", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { binary.BigEndian.PutUint64(b, 77); return b })},
		{"produce too many by the header", "a", 0, -1, x.built(1, plain, func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 5); return checksummed(b) })},
		{"produce to the compacted", "compacted", 0, -1, x.built(2, plain, nil)},
		{"produce without keys to the compacted", "compacted", 0, -1, x.keyless()},
		{"produce to an internal topic", "__consumer_offsets", 0, -1, x.built(1, plain, nil)},
	}
	for _, c := range cases {
		if err := x.all(c.name, 0, func(v int16, a *asked) kmsg.Request { return produceOf(v, a, c.topic, c.partition, c.acks, c.records) }); err != nil {
			return err
		}
	}
	return nil
}

func (x *answers) keyless() []byte {
	b, err := record.Build(record.BuilderOptions{LeaderEpoch: -1}, record.Record{Value: []byte("v"), Timestamp: x.past})
	if err != nil {
		return nil
	}
	return b
}

// askIdempotent goes through a producer's sequences.
func (x *answers) askIdempotent() error {
	init := func(txn *string, id int64, epoch int16) func(int16, *asked) kmsg.Request {
		return func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID, r.TransactionTimeoutMillis = txn, 60000
			if v >= 3 {
				r.ProducerID, r.ProducerEpoch = id, epoch
			}
			return r
		}
	}
	if err := x.all("producer id", 22, init(nil, -1, -1)); err != nil {
		return err
	}
	if err := x.all("producer id with an empty transaction", 22, init(ptr(""), -1, -1)); err != nil {
		return err
	}
	if err := x.from("producer id for an unknown producer", 22, 3, init(nil, 999999, 3)); err != nil {
		return err
	}
	const pid = 424242
	for i, s := range []struct {
		name  string
		seq   int32
		epoch int16
		n     int
	}{
		{"the first", 0, 0, 1}, {"the first again", 0, 0, 1}, {"a gap", 2, 0, 1}, {"second", 1, 0, 2}, {"third", 3, 0, 1},
		{"fourth", 4, 0, 1}, {"fifth", 5, 0, 1}, {"sixth", 6, 0, 1}, {"seventh", 7, 0, 1}, {"third again: five back", 3, 0, 1}, {"the first again: too far back", 0, 0, 1},
		{"second again, shorter", 1, 0, 1}, {"a new epoch not at 0", 8, 1, 1}, {"a new epoch", 0, 1, 1}, {"the old epoch", 8, 0, 1}, {"two epochs on", 0, 3, 1},
		{"negative epoch", 0, -1, 1}, {"negative sequence", -1, 3, 1},
	} {
		name := fmt.Sprintf("idempotent %d: %s", i, s.name)
		records := x.built(s.n, record.BuilderOptions{Producer: &record.Producer{ID: pid, Epoch: s.epoch, BaseSequence: s.seq}}, nil)
		if _, err := x.one(name, 9, func(v int16, a *asked) kmsg.Request { return produceOf(v, a, "idem", 0, -1, records) }); err != nil {
			return err
		}
	}
	late := x.built(1, record.BuilderOptions{Producer: &record.Producer{ID: pid + 1, BaseSequence: 5}}, nil)
	if _, err := x.one("idempotent, not from 0", 9, func(v int16, a *asked) kmsg.Request { return produceOf(v, a, "idem", 1, -1, late) }); err != nil {
		return err
	}
	return x.all("producers", 61, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDescribeProducersRequest()
		r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "idem", Partitions: []int32{0, 1, 9}}, {Topic: "nosuch", Partitions: []int32{0}}, {Topic: "bad/name", Partitions: []int32{0}}}
		return r
	})
}

func (x *answers) askFetch() error {
	type one struct {
		name, topic string
		partition   int32
		offset      int64
		most, all   int32
		epoch, last int32
		session     func(*asked) (int32, int32)
		least       int16
	}
	none := func(*asked) (int32, int32) { return 0, -1 }
	mine := func(epoch int32) func(*asked) (int32, int32) {
		return func(a *asked) (int32, int32) { return a.session, epoch }
	}
	build := func(c one) func(v int16, a *asked) kmsg.Request {
		return func(v int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrFetchRequest()
			r.ReplicaID, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = -1, 0, 0, c.all
			r.SessionID, r.SessionEpoch = c.session(a)
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = c.partition, c.offset, c.most, c.epoch, c.last
			t := kmsg.FetchRequestTopic{Topic: c.topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}
			if v >= 13 {
				if t.TopicID = a.ids[c.topic]; t.TopicID == [16]byte{} {
					t.TopicID = [16]byte{9}
				}
			}
			r.Topics = append(r.Topics, t)
			return r
		}
	}
	for _, c := range []one{
		{"fetch", "a", 0, 0, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch one batch", "a", 0, 1, 1, 1 << 20, -1, -1, none, 0},
		{"fetch nothing by max bytes", "a", 0, 0, 1 << 20, 0, -1, -1, none, 0},
		{"fetch at the end of an empty one", "a", 1, 0, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch out of range", "a", 0, 1 << 40, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch at a negative offset", "a", 0, -5, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch no partition", "a", 9, 0, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch no topic", "nosuch", 0, 0, 1 << 20, 1 << 20, -1, -1, none, 0},
		{"fetch leader epoch 0", "a", 0, 0, 1, 1 << 20, 0, -1, none, 9},
		{"fetch leader epoch 7", "a", 0, 0, 1, 1 << 20, 7, -1, none, 9},
		{"fetch last epoch 0", "a", 0, 1, 1, 1 << 20, 0, 0, none, 12},
		{"fetch last epoch 5", "a", 0, 1, 1, 1 << 20, 0, 5, none, 12},
		{"fetch in an unknown session", "a", 0, 0, 1, 1 << 20, -1, -1, func(*asked) (int32, int32) { return 12345, 1 }, 7},
	} {
		if err := x.from(c.name, 1, c.least, build(c)); err != nil {
			return err
		}
	}
	// A session lives on one version here: its topics go by name or by id.
	for _, v := range []int16{7, 12, 13, 18} {
		base := one{topic: "a", most: 1, all: 1 << 20, epoch: -1, last: -1}
		base.session = func(*asked) (int32, int32) { return 0, 0 }
		got, err := x.one("session begins", v, build(base))
		if err != nil {
			return err
		}
		for i := range got {
			x.brokers[i].session = got[i].(*kmsg.FetchResponse).SessionID
		}
		for _, s := range []struct {
			name   string
			epoch  int32
			offset int64
		}{{"session goes on", 1, 2}, {"session at the end", 2, 1 << 40}, {"session with a wrong epoch", 9, 0}, {"session ends", -1, 0}} {
			base.session, base.offset = mine(s.epoch), s.offset
			if _, err := x.one(s.name, v, build(base)); err != nil {
				return err
			}
		}
	}
	return nil
}

// askOffsets asks for offsets by time and by epoch, and deletes records.
func (x *answers) askOffsets() error {
	times := []int64{-1, -2, -3, -4, -5, -6, -7, 0, x.past, x.past + 1000, x.past + 5000, x.past * 2}
	list := func(isolation int8, partition, epoch int32, at ...int64) func(int16, *asked) kmsg.Request {
		return func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrListOffsetsRequest()
			r.ReplicaID, r.IsolationLevel, r.TimeoutMillis = -1, isolation, 1000
			t := kmsg.ListOffsetsRequestTopic{Topic: "a"}
			for _, at := range at {
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, at, epoch
				t.Partitions = append(t.Partitions, p)
			}
			r.Topics = append(r.Topics, t)
			return r
		}
	}
	for _, at := range times {
		if err := x.all(fmt.Sprintf("offsets at %d", at), 2, list(0, 0, -1, at)); err != nil {
			return err
		}
	}
	for _, err := range []error{
		x.from("offsets of an empty one", 2, 7, list(0, 1, -1, -3)), x.from("offsets committed", 2, 2, list(1, 0, -1, -1)), x.all("offsets of no partition", 2, list(0, 9, -1, -1)),
		x.from("offsets with epoch 0", 2, 4, list(0, 0, 0, -1)), x.from("offsets with epoch 7", 2, 4, list(0, 0, 7, -1)), x.all("offsets twice", 2, list(0, 0, -1, -1, -2)),
	} {
		if err != nil {
			return err
		}
	}
	for _, e := range [][2]int32{{0, -1}, {1, -1}, {-1, -1}, {0, 0}, {0, 7}, {5, 0}} {
		if err := x.all(fmt.Sprintf("end of epoch %d, at %d", e[0], e[1]), 23, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			r.ReplicaID = -1
			for _, t := range []string{"a", "nosuch"} {
				r.Topics = append(r.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: t, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: 0, LeaderEpoch: e[0], CurrentLeaderEpoch: e[1]}}})
			}
			return r
		}); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name, topic string
		partition   int32
		offset      int64
	}{{"inside a batch", "a", 0, 1}, {"below the start", "a", 0, 0}, {"beyond the end", "a", 0, 1 << 40}, {"at -2", "a", 0, -2}, {"to the end", "idem", 0, -1}, {"of no partition", "a", 9, 0}, {"of no topic", "nosuch", 0, 0}, {"of a compacted one", "compacted", 0, 1}} {
		if err := x.all("delete records "+d.name, 21, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrDeleteRecordsRequest()
			r.TimeoutMillis = 5000
			r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: d.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: d.partition, Offset: d.offset}}}}
			return r
		}); err != nil {
			return err
		}
	}
	return x.all("offsets at the start after deletion", 2, list(0, 0, -1, -2))
}
