package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/record"
)

const (
	// perCodec is how many records each client produces with each codec.
	perCodec = 300
	// partitions is how many each topic of a client part has.
	partitions = 3
)

// franz is the part of franz-go, which also is the client that the other parts check with.
type franz struct {
	*part
	b   *peertest.Broker
	adm *kadm.Client
	// t0 is the timestamp of the first record of each topic; record i is i seconds later.
	t0 time.Time
}

func runFranz(ctx context.Context, p *part) error {
	f := &franz{part: p, t0: firstTimestamp()}
	return p.steps(ctx,
		step{"start", func(ctx context.Context) (err error) {
			if f.b, err = p.target(ctx, nil); err != nil {
				return err
			}
			f.adm, err = p.admin(f.b.Addr)
			return err
		}},
		step{"create", f.create},
		step{"produce", f.produce},
		step{"records per codec", f.readBack},
		step{"group, cooperative", f.cooperative},
		step{"group, static member", f.static},
		step{"seek by time", f.byTime},
		step{"delete records", f.deleteRecords},
		step{"delete groups and topics", f.deleteAll},
	)
}

// firstTimestamp is young enough for every retention and old enough for all records to be in the past.
func firstTimestamp() time.Time { return time.Now().Add(-time.Hour).Truncate(time.Second) }

func franzTopic(c record.Codec) string { return "franz-" + c.String() }

func (f *franz) create(ctx context.Context) error {
	for _, c := range codecs() {
		r, err := f.adm.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("86400000")}, franzTopic(c))
		if err != nil {
			return err
		}
		if r.NumPartitions != 1 || r.ID == (kadm.TopicID{}) {
			return fmt.Errorf("created %+v", r)
		}
	}
	if err := f.awaitPartitions(ctx, 1); err != nil {
		return err
	}
	for _, c := range codecs() {
		if r, err := f.adm.CreatePartitions(ctx, partitions-1, franzTopic(c)); err != nil || r.Error() != nil {
			return errors.Join(err, r.Error())
		}
	}
	// A producer must see all partitions when it starts, or it uses those it sees.
	if err := f.awaitPartitions(ctx, partitions); err != nil {
		return err
	}
	if _, err := f.adm.CreateTopic(ctx, 1, 1, nil, franzTopic(record.None)); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("creating a topic twice: %w", err)
	}
	configs, err := f.adm.DescribeTopicConfigs(ctx, franzTopic(record.Gzip))
	if err != nil {
		return err
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() == "86400000" {
			return nil
		}
	}
	return fmt.Errorf("retention.ms is not in %+v", configs)
}

func (f *franz) awaitPartitions(ctx context.Context, want int) error {
	return peertest.WaitFor(ctx, 10*time.Second, "all partitions listed", func(ctx context.Context) error {
		listed, err := f.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, c := range codecs() {
			if n := len(listed[franzTopic(c)].Partitions); n != want {
				return fmt.Errorf("%s has %d", franzTopic(c), n)
			}
		}
		return nil
	})
}

func kgoCodec(c record.Codec) kgo.CompressionCodec {
	return map[record.Codec]kgo.CompressionCodec{
		record.None: kgo.NoCompression(), record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(),
		record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression(),
	}[c]
}

// compressible is a value that every codec makes smaller: clients send a batch uncompressed that would grow.
func compressible(name string, i int) []byte {
	return fmt.Appendf(nil, "%s-%d with the same words again and again, with the same words again and again", name, i)
}

func (f *franz) produce(ctx context.Context) error {
	for _, c := range codecs() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ProducerBatchCompression(kgoCodec(c)),
			kgo.DefaultProduceTopic(franzTopic(c)), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
		if err != nil {
			return err
		}
		var recs []*kgo.Record
		for i := range perCodec {
			r := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%10), Value: compressible(c.String(), i), Timestamp: f.t0.Add(time.Duration(i) * time.Second)}
			switch i % 30 {
			case 7:
				r.Value = nil
			case 8:
				r.Key = nil
			case 9:
				r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "null"}}
			}
			recs = append(recs, r)
		}
		err = cl.ProduceSync(ctx, recs...).FirstErr()
		cl.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		if err := checkStored(f.b, franzTopic(c), partitions, c, perCodec); err != nil {
			return err
		}
	}
	return nil
}

// readBack compares each record with what was produced.
func (f *franz) readBack(ctx context.Context) error {
	for _, c := range codecs() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ConsumeTopics(franzTopic(c)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		seen := map[int]bool{}
		for len(seen) < perCodec {
			fs := cl.PollFetches(ctx)
			if err := fs.Err0(); err != nil {
				cl.Close()
				return err
			}
			for _, e := range fs.Errors() {
				cl.Close()
				return e.Err
			}
			for r := range fs.RecordsAll() {
				i := int(r.Timestamp.Sub(f.t0) / time.Second)
				bad := seen[i] || i%30 == 7 != (r.Value == nil) || i%30 == 8 != (r.Key == nil) || i%30 == 9 != (len(r.Headers) == 2) ||
					r.Value != nil && string(r.Value) != string(compressible(c.String(), i)) || i%30 == 9 && r.Headers[1].Value != nil
				if bad {
					cl.Close()
					return fmt.Errorf("record %d of %s is %+v (seen before: %v)", i, c, r, seen[i])
				}
				seen[i] = true
			}
		}
		cl.Close()
	}
	return nil
}

// member is a member of a consumer group that commits after every poll, before it lets a rebalance happen.
type member struct {
	cl   *kgo.Client
	done chan error

	mu    sync.Mutex
	owned map[int32]bool
	got   map[string]int // value: times seen
}

func (f *franz) join(group string, got map[string]int, mu *sync.Mutex, opts ...kgo.Opt) (*member, error) {
	m := &member{done: make(chan error, 1), owned: map[int32]bool{}, got: got}
	change := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, ps := range parts {
				for _, p := range ps {
					if has {
						m.owned[p] = true
					} else {
						delete(m.owned, p)
					}
				}
			}
		}
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.b.Addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(franzTopic(record.Zstd)), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	m.cl = cl
	go func() { m.done <- m.consume(mu) }()
	return m, nil
}

func (m *member) consume(mu *sync.Mutex) error {
	for {
		fs := m.cl.PollRecords(context.Background(), 20)
		if fs.IsClientClosed() {
			return nil
		}
		mu.Lock()
		for r := range fs.RecordsAll() {
			m.got[fmt.Sprintf("%d/%d", r.Partition, r.Offset)]++
		}
		mu.Unlock()
		if err := m.cl.CommitUncommittedOffsets(context.Background()); err != nil && !errors.Is(err, kgo.ErrClientClosed) {
			return err
		}
		m.cl.AllowRebalance()
	}
}

func (m *member) leave() error {
	m.cl.CloseAllowingRebalance()
	return <-m.done
}

func (m *member) has() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owned)
}

// cooperative lets a second member join and leave while records arrive; each must be seen once.
func (f *franz) cooperative(ctx context.Context) error {
	got, mu := map[string]int{}, &sync.Mutex{}
	a, err := f.join("franz-group", got, mu)
	if err != nil {
		return err
	}
	if err := owns(ctx, "the first member has all", func() bool { return a.has() == partitions }); err != nil {
		return err
	}
	b, err := f.join("franz-group", got, mu)
	if err != nil {
		return err
	}
	shared := func() bool { return a.has() > 0 && b.has() > 0 && a.has()+b.has() == partitions }
	if err := owns(ctx, "two members share", shared); err != nil {
		return err
	}
	if err := f.more(ctx, 90); err != nil {
		return err
	}
	described, err := f.adm.DescribeGroups(ctx, "franz-group")
	if err != nil {
		return err
	}
	if g := described["franz-group"]; g.State != "Stable" || len(g.Members) != 2 || g.Protocol != "cooperative-sticky" {
		return fmt.Errorf("the group is described as %+v", g)
	}
	if err := b.leave(); err != nil {
		return err
	}
	if err := owns(ctx, "the first member has all again", func() bool { return a.has() == partitions }); err != nil {
		return err
	}
	if err := f.more(ctx, 60); err != nil {
		return err
	}
	if err := owns(ctx, "everything consumed", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == perCodec+150 }); err != nil {
		return err
	}
	if err := a.leave(); err != nil {
		return err
	}
	for at, n := range got {
		if n != 1 {
			return fmt.Errorf("record %s was consumed %d times", at, n)
		}
	}
	return checkCommitted(ctx, f.adm, "franz-group", franzTopic(record.Zstd))
}

// static checks that a static member keeps its place while it is away, until it is removed by its instance id.
func (f *franz) static(ctx context.Context) error {
	const group = "franz-static"
	got, mu := map[string]int{}, &sync.Mutex{}
	opts := []kgo.Opt{kgo.InstanceID("one"), kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(30 * time.Second)}
	memberID := func() (string, error) {
		described, err := f.adm.DescribeGroups(ctx, group)
		if err != nil {
			return "", err
		}
		g := described[group]
		if len(g.Members) != 1 || g.Members[0].InstanceID == nil || *g.Members[0].InstanceID != "one" {
			return "", fmt.Errorf("the group is described as %+v", g)
		}
		return g.Members[0].MemberID, nil
	}
	ids := map[string]bool{}
	for range 2 {
		m, err := f.join(group, got, mu, opts...)
		if err != nil {
			return err
		}
		if err := owns(ctx, "the member has all", func() bool { return m.has() == partitions }); err != nil {
			return err
		}
		if err := m.leave(); err != nil {
			return err
		}
		id, err := memberID()
		if err != nil {
			return err
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		return fmt.Errorf("a returning static member kept its member id: %v", slices.Collect(maps.Keys(ids)))
	}
	left, err := f.adm.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs("one"))
	if err != nil {
		return err
	}
	if !left.Ok() {
		return left.Error()
	}
	return nil
}

func owns(ctx context.Context, what string, is func() bool) error {
	return peertest.WaitFor(ctx, 45*time.Second, what, func(context.Context) error {
		if !is() {
			return errors.New("not so")
		}
		return nil
	})
}

// more produces n more records to the zstd topic.
func (f *franz) more(ctx context.Context, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.DefaultProduceTopic(franzTopic(record.Zstd)))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Key: fmt.Append(nil, i), Value: compressible("more", i)})
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}

func (f *franz) byTime(ctx context.Context) error {
	topic := franzTopic(record.Snappy)
	const from = 150 // records 150 to 299, one a second
	at, err := f.adm.ListOffsetsAfterMilli(ctx, f.t0.Add(from*time.Second).UnixMilli(), topic)
	if err != nil {
		return err
	}
	n := 0
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ConsumePartitions(at.KOffsets()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for n < perCodec-from {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for r := range fs.RecordsAll() {
			if r.Timestamp.Before(f.t0.Add(from * time.Second)) {
				return fmt.Errorf("record at %s is before the time sought", r.Timestamp)
			}
			n++
		}
	}
	latest, err := f.adm.ListMaxTimestampOffsets(ctx, topic)
	if err != nil {
		return err
	}
	var newest int64
	latest.Each(func(o kadm.ListedOffset) { newest = max(newest, o.Timestamp) })
	if want := f.t0.Add((perCodec - 1) * time.Second).UnixMilli(); newest != want {
		return fmt.Errorf("the newest record is at %d, want %d", newest, want)
	}
	return nil
}

func (f *franz) deleteRecords(ctx context.Context) error {
	topic := franzTopic(record.LZ4)
	var o kadm.Offsets
	o.AddOffset(topic, 0, 17, -1) // in the middle of a batch
	r, err := f.adm.DeleteRecords(ctx, o)
	if err != nil {
		return err
	}
	if d := r[topic][0]; d.Err != nil || d.LowWatermark != 17 {
		return fmt.Errorf("deleted: %+v", d)
	}
	starts, err := f.adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if s, _ := starts.Lookup(topic, 0); s.Offset != 17 {
		return fmt.Errorf("the partition starts at %+v", s)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	fs := cl.PollRecords(ctx, 1)
	if err := fs.Err(); err != nil {
		return err
	}
	if r := fs.Records(); len(r) != 1 || r[0].Offset != 17 {
		return fmt.Errorf("the first record is %+v", r)
	}
	return nil
}

func (f *franz) deleteAll(ctx context.Context) error {
	if r, err := f.adm.DeleteGroups(ctx, "franz-group", "franz-static"); err != nil || r.Error() != nil {
		return errors.Join(err, r.Error())
	}
	var topics []string
	for _, c := range codecs() {
		topics = append(topics, franzTopic(c))
	}
	if r, err := f.adm.DeleteTopics(ctx, topics...); err != nil || r.Error() != nil {
		return errors.Join(err, r.Error())
	}
	return checkGone(ctx, f.adm, topics, []string{"franz-group", "franz-static"})
}

// checkGone wants none of the topics and groups to exist.
func checkGone(ctx context.Context, adm *kadm.Client, topics, groups []string) error {
	return peertest.WaitFor(ctx, 5*time.Second, "topics and groups gone", func(ctx context.Context) error {
		there, err := adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, t := range topics {
			if there.Has(t) {
				return fmt.Errorf("topic %s is still there", t)
			}
		}
		listed, err := adm.ListGroups(ctx)
		if err != nil {
			return err
		}
		for _, g := range groups {
			if _, ok := listed[g]; ok {
				return fmt.Errorf("group %s is still there", g)
			}
		}
		return nil
	})
}
