package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/record"
	"milena/mirroradm"
)

const (
	mirrorName = "dr"
	payments   = 1000 // records
	customers  = 200  // keys
	// storyLength is a time in ms that no story lasts for.
	storyLength = "86400000"
	// onceTimeout bounds the whole story.
	onceTimeout = 60 * time.Second
)

// once plays the story and verifies it.
func (d *demo) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, onceTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{
		d.startClusters, d.fillSource, d.createMirror, d.writeWhileMirroring, d.awaitLagZero, d.verifyReadOnly, d.verifySegments, d.verifyGroups, d.failover, d.continueGroup,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.told = true
	return nil
}

// fillSource creates the topics, writes to them, and has the groups commit.
func (d *demo) fillSource(ctx context.Context) error {
	if err := d.createTopics(ctx, true); err != nil {
		return err
	}
	if err := produceOrders(ctx, d.source, 0, d.o.Records/2); err != nil {
		return err
	}
	if err := producePayments(ctx, d.source, payments); err != nil {
		return err
	}
	d.say("produced %d records to orders (none, gzip, snappy, lz4, zstd) and %d to payments (headers, nulls, old timestamps)", 5*(d.o.Records/2), payments+1)
	if err := d.compactCustomers(ctx); err != nil {
		return err
	}
	all := map[string]int{"orders": 5 * (d.o.Records / 2), "payments": payments + 1}
	for _, g := range groupNames() {
		recs, err := consumeGroup(ctx, d.source, g, groups()[g], all[groups()[g]])
		if err != nil {
			return err
		}
		d.say("group %s read %d records of %s and committed", g, len(recs), groups()[g])
	}
	return nil
}

// createTopics creates the topics on the source. Without compact, the compacted one is not compacted while the story plays.
func (d *demo) createTopics(ctx context.Context, compact bool) error {
	var names []string
	for _, t := range topics() {
		configs := map[string]*string{}
		for k, v := range t.configs {
			configs[k] = &v
		}
		if !compact && t.configs["cleanup.policy"] == "compact" {
			configs["min.compaction.lag.ms"] = kadm.StringPtr(storyLength)
			delete(configs, "segment.ms")
		}
		r, err := d.source.adm.CreateTopic(ctx, t.partitions, 1, configs, t.name)
		if err = errors.Join(err, r.Err); err != nil {
			return fmt.Errorf("topic %s: %w %s", t.name, err, r.ErrMessage)
		}
		names = append(names, fmt.Sprintf("%s (%d)", t.name, t.partitions))
	}
	d.say("created on the source, with their partitions: %s", strings.Join(names, ", "))
	return nil
}

// compactCustomers overwrites keys until the cleaner has taken records out, and then keeps the cleaner away, so that what is
// mirrored has gaps and both sides' files can be compared.
func (d *demo) compactCustomers(ctx context.Context) error {
	last := 0
	for last < 3 {
		if err := produceCustomers(ctx, d.source, last, customers); err != nil {
			return err
		}
		last++
		if err := pause(ctx, 150*time.Millisecond); err != nil { // segment.ms passes
			return err
		}
	}
	// The record that makes the log roll, so that all before it can be cleaned.
	if err := produceCustomers(ctx, d.source, last, 1); err != nil {
		return err
	}
	seen := 0 // looks in a row that found the log clean
	gaps := func(ctx context.Context) error {
		t := tally{codecs: map[record.Codec]int64{}}
		dir := d.source.partitionDir("customers", 0)
		if err := t.compare(dir, dir, true); err != nil {
			seen = 0
			return err
		}
		// All but the last value of each key in the closed segments: then nothing is left to clean, and no pass is under way
		// that could still change the files.
		if t.gaps < 2*customers {
			seen = 0
			return fmt.Errorf("the cleaner has taken out %d records of customers", t.gaps)
		}
		// While the cleaner swaps files one may be missing for a moment, which looks like a gap: look again.
		if seen++; seen < 10 {
			return fmt.Errorf("the cleaner is at work on customers")
		}
		d.result.CompactionGaps = t.gaps
		return nil
	}
	if err := eventually(ctx, 10*time.Second, gaps); err != nil {
		return err
	}
	rs, err := d.source.adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: kadm.StringPtr(storyLength)},
		{Op: kadm.DeleteConfig, Name: "segment.ms"},
	}, "customers")
	if err != nil {
		return err
	}
	for _, r := range rs {
		if r.Err != nil {
			return fmt.Errorf("configs of customers: %w", r.Err)
		}
	}
	d.say("customers was compacted: %d overwritten or deleted records are gaps in its log", d.result.CompactionGaps)
	return nil
}

// mirrors is the mirror admin client of the standby.
func (d *demo) mirrors() *mirroradm.Client { return mirroradm.NewClient(d.standby.cl) }

func (d *demo) createMirror(ctx context.Context) error {
	err := d.mirrors().Create(ctx, mirrorName, map[string]string{
		"bootstrap.servers": d.source.addr, "mirror.source.cluster.id": d.source.node.ClusterID(), "mirror.groups.sync.interval.ms": "250",
	})
	if err != nil {
		return fmt.Errorf("creating the mirror: %w", err)
	}
	var start []mirroradm.StartTopic
	for _, t := range topics() {
		start = append(start, mirroradm.StartTopic{Name: t.name})
	}
	rs, err := d.mirrors().Start(ctx, mirrorName, start, nil, nil)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("starting the mirror: %w", err)
	}
	d.say("created mirror %s on the standby and started %d topics", mirrorName, len(start))
	return nil
}

func (d *demo) writeWhileMirroring(ctx context.Context) error {
	if err := produceOrders(ctx, d.source, d.o.Records/2, d.o.Records/2); err != nil {
		return err
	}
	d.say("produced %d more records while the mirror runs", 5*(d.o.Records/2))
	recs, err := consumeGroup(ctx, d.source, "billing", "orders", d.o.Records)
	if err != nil {
		return err
	}
	d.say("group billing read %d more records and committed", len(recs))
	return nil
}

// awaitLagZero waits until every partition is MIRRORING and has all that the source has.
func (d *demo) awaitLagZero(ctx context.Context) error {
	ends, err := d.source.adm.ListEndOffsets(ctx, topicNames()...)
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		ds, err := d.mirrors().Describe(ctx, mirrorName)
		if err != nil {
			return err
		}
		seen := 0
		for _, m := range ds {
			if m.Err != nil {
				return m.Err
			}
			for _, p := range m.Partitions {
				end, ok := ends.Lookup(p.Topic, p.Partition)
				if lag, known := p.Lag(); !ok || p.State != "MIRRORING" || !known || lag != 0 || p.DestinationOffset != end.Offset {
					return fmt.Errorf("%s-%d is %s at offset %d of %d %s", p.Topic, p.Partition, p.State, p.DestinationOffset, end.Offset, p.LastError)
				}
				seen++
			}
		}
		if seen != len(partitions()) {
			return fmt.Errorf("the mirror shows %d of %d partitions", seen, len(partitions()))
		}
		return nil
	}
	if err := eventually(ctx, 30*time.Second, check); err != nil {
		return fmt.Errorf("waiting for the mirror: %w", err)
	}
	d.say("the mirror has caught up: all %d partitions are MIRRORING with lag 0", len(partitions()))
	return nil
}

func topicNames() []string {
	var out []string
	for _, t := range topics() {
		out = append(out, t.name)
	}
	return out
}

// verifyReadOnly expects the standby to refuse a client's write to a mirrored topic.
func (d *demo) verifyReadOnly(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := produce(ctx, d.standby, kgo.NoCompression(), 32<<10, &kgo.Record{Topic: "orders", Partition: 0, Value: []byte("must not go in")})
	if err == nil {
		return errors.New("the standby took a write to a topic that is mirrored")
	}
	d.result.ReadOnlyWhileMirrored = true
	d.say("the standby refuses writes meanwhile: %s", firstLine(err))
	return nil
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

func (d *demo) verifySegments(context.Context) error {
	t, err := compareSegments(d.source, d.standby, partitions(), false)
	if err != nil {
		return fmt.Errorf("the segment files differ: %w", err)
	}
	d.result.RecordsMirrored, d.result.BatchesCompared, d.result.BytesCompared, d.result.Partitions = t.records, t.batches, t.bytes, len(partitions())
	d.result.SegmentsIdentical = true
	d.result.CompactionGaps = t.gaps
	for _, c := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		if t.codecs[c] == 0 {
			return fmt.Errorf("no batch is compressed with %s", c)
		}
	}
	d.result.CodecsVerified = true
	d.say("segment files compared: %d batches with %d records, %d bytes, are identical", t.batches, t.records, t.bytes)
	return nil
}

func (d *demo) verifyGroups(ctx context.Context) error { return d.verifyGroupsOf(ctx, groupNames()) }

func (d *demo) verifyGroupsOf(ctx context.Context, names []string) error {
	err := eventually(ctx, 15*time.Second, func(ctx context.Context) error {
		n, err := compareGroups(ctx, d.source, d.standby, names)
		d.result.GroupOffsetsCompared = n
		return err
	})
	if err != nil {
		return fmt.Errorf("the group offsets differ: %w", err)
	}
	d.result.GroupOffsetsIdentical = true
	d.say("group offsets compared: %d committed offsets of %s are identical", d.result.GroupOffsetsCompared, strings.Join(names, " and "))
	return nil
}

// failover loses the source, stops the mirror, and times the first write that the standby acknowledges.
func (d *demo) failover(ctx context.Context) error {
	d.source.kill()
	d.say("the source is gone, without a word")
	writer, err := d.standby.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer writer.Close()
	stopped := time.Now()
	rs, err := d.mirrors().Stop(ctx, mirrorName, topicNames(), nil)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("stopping the mirror: %w", err)
	}
	p := partition{"orders", 0}
	value := []byte("the first order after the failover")
	rec := &kgo.Record{}
	err = eventually(ctx, 20*time.Second, func(ctx context.Context) error {
		rec = &kgo.Record{Topic: p.topic, Partition: p.number, Key: []byte("customer-1"), Value: value}
		return writer.ProduceSync(ctx, rec).FirstErr()
	})
	if err != nil {
		return fmt.Errorf("the standby takes no writes after the stop: %w", err)
	}
	d.result.FailoverMs = time.Since(stopped).Milliseconds()
	d.say("stopped the mirror; the standby acknowledged a write %d ms later, at offset %d of %s", d.result.FailoverMs, rec.Offset, p)
	got, err := readAt(ctx, d.standby, p, rec.Offset)
	if err != nil {
		return err
	}
	if got.Offset != rec.Offset || !slices.Equal(got.Value, value) {
		return fmt.Errorf("%s at offset %d holds %q at offset %d", p, rec.Offset, got.Value, got.Offset)
	}
	if err := d.writeEverywhere(ctx, writer); err != nil {
		return err
	}
	if _, err := compareSegments(d.source, d.standby, partitions(), true); err != nil {
		return fmt.Errorf("after the failover: %w", err)
	}
	d.result.StandbyWriteReadBack = true
	d.say("all topics take writes; what was written was read back, behind what was mirrored")
	return nil
}

// writeEverywhere writes a record to every partition and waits for the last of them to have left its mirror.
func (d *demo) writeEverywhere(ctx context.Context, writer *kgo.Client) error {
	for _, p := range partitions() {
		rec := &kgo.Record{}
		err := eventually(ctx, 20*time.Second, func(ctx context.Context) error {
			rec = &kgo.Record{Topic: p.topic, Partition: p.number, Key: []byte("after"), Value: []byte("the failover")}
			return writer.ProduceSync(ctx, rec).FirstErr()
		})
		if err != nil {
			return fmt.Errorf("%s takes no writes after the stop: %w", p, err)
		}
		got, err := readAt(ctx, d.standby, p, rec.Offset)
		if err != nil {
			return err
		}
		if got.Offset != rec.Offset || string(got.Value) != "the failover" {
			return fmt.Errorf("%s at offset %d holds %q", p, rec.Offset, got.Value)
		}
	}
	return nil
}

// continueGroup has a group go on on the standby where it was on the source.
func (d *demo) continueGroup(ctx context.Context) error {
	before, err := d.standby.adm.FetchOffsets(ctx, "billing")
	if err != nil {
		return err
	}
	// It has read all but this of what was mirrored, and then come the writes after the failover: the first, and one a partition.
	recs, err := consumeGroup(ctx, d.standby, "billing", "orders", 5*(d.o.Records/2)-d.o.Records+1+5)
	if err != nil {
		return err
	}
	first := map[int32]int64{}
	for _, r := range recs {
		if _, ok := first[r.Partition]; !ok {
			first[r.Partition] = r.Offset
		}
	}
	for p, at := range first {
		o, ok := before.Lookup("orders", p)
		if !ok || o.At == at {
			continue
		}
		// Between the committed offset and the next record there may be only what no consumer is shown: the stop's own marker.
		next, err := readAt(ctx, d.standby, partition{"orders", p}, o.At)
		if err != nil {
			return err
		}
		if next.Offset != at {
			return fmt.Errorf("group billing went on at offset %d of orders-%d, having committed %d; the next record is at %d", at, p, o.At, next.Offset)
		}
	}
	d.result.GroupContinued = true
	d.say("group billing goes on on the standby where it was on the source: %d more records", len(recs))
	return nil
}

// eventually repeats f until it succeeds; after d its last error is returned.
func eventually(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
