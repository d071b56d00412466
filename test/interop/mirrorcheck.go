package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/record"
)

// compare wants the batches in the segment files of source and standbys equal byte for byte, and among them all that
// makes mirroring hard.
func (m *mirror) compare(context.Context) error {
	var all peertest.Comparison
	seen := map[record.Codec]int64{}
	var largest, gaps, control, idempotent int64
	epochs := map[int32]bool{}
	for _, s := range m.standbys() {
		for topic, n := range mirrored() {
			for p := range n {
				start, _ := m.starts.Lookup(topic, p)
				dir := s.PartitionDir(topic, p)
				c, err := peertest.Compare(m.src.PartitionDir(topic, p), dir, peertest.CompareOptions{From: start.Offset})
				if err != nil {
					return err
				}
				all.Batches, all.Records, all.Bytes = all.Batches+c.Batches, all.Records+c.Records, all.Bytes+c.Bytes
				i, err := peertest.Inspect(dir)
				if err != nil {
					return err
				}
				for codec, n := range i.Codecs {
					seen[codec] += n
				}
				for _, e := range i.Epochs {
					epochs[e] = true
				}
				largest, gaps, control, idempotent = max(largest, i.LargestBatch), gaps+i.Gaps, control+i.Control, idempotent+i.Idempotent
			}
		}
	}
	m.logf("equal on both standbys: %d batches, %d records, %d MiB; leader epochs %v, %d offsets compacted away, %d control batches",
		all.Batches, all.Records, all.Bytes>>20, slices.Sorted(maps.Keys(epochs)), gaps, control)
	for _, c := range codecs() {
		if seen[c] == 0 {
			return fmt.Errorf("no batch with codec %s was mirrored", c)
		}
	}
	if largest < bigBatch || gaps == 0 || control == 0 || idempotent == 0 || len(epochs) < 3 {
		return fmt.Errorf("the load was too easy: largest batch %d, gaps %d, control batches %d, idempotent %d, epochs %v", largest, gaps, control, idempotent, epochs)
	}
	return nil
}

func (m *mirror) compareOffsets(ctx context.Context) error {
	topics := []string{ordersTopic, eventsTopic, tableTopic}
	want, err := m.srcAdm.ListTopics(ctx, topics...)
	if err != nil {
		return err
	}
	wantConfigs, err := topicConfigs(ctx, m.srcAdm, topics)
	if err != nil {
		return err
	}
	for _, s := range m.standbys() {
		adm, err := m.admin(s.Addr)
		if err != nil {
			return err
		}
		got, err := adm.ListTopics(ctx, topics...)
		if err != nil {
			return err
		}
		for _, t := range topics {
			if got[t].ID != want[t].ID || len(got[t].Partitions) != len(want[t].Partitions) {
				return fmt.Errorf("%s on %s has id %s and %d partitions, at the source %s and %d", t, s.Addr, got[t].ID, len(got[t].Partitions), want[t].ID, len(want[t].Partitions))
			}
		}
		configs, err := topicConfigs(ctx, adm, topics)
		if err != nil {
			return err
		}
		if !maps.Equal(configs, wantConfigs) {
			return fmt.Errorf("topic configs on %s are %v, at the source %v", s.Addr, configs, wantConfigs)
		}
		starts, err := adm.ListStartOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		ends, err := adm.ListEndOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		if err := errors.Join(sameOffsets("earliest", s.Addr, starts, m.starts), sameOffsets("latest", s.Addr, ends, m.ends)); err != nil {
			return err
		}
	}
	return nil
}

// topicConfigs are what was set on the topics, as topic/key: value.
func topicConfigs(ctx context.Context, adm *kadm.Client, topics []string) (map[string]string, error) {
	rs, err := adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	for _, r := range rs {
		if r.Err != nil {
			return nil, r.Err
		}
		for _, c := range r.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				set[r.Name+"/"+c.Key] = c.MaybeValue()
			}
		}
	}
	return set, nil
}

func sameOffsets(what, addr string, got, want kadm.ListedOffsets) error {
	var errs []error
	want.Each(func(w kadm.ListedOffset) {
		g, ok := got.Lookup(w.Topic, w.Partition)
		if err := errors.Join(w.Err, g.Err); err != nil {
			errs = append(errs, err)
		}
		if !ok || g.Offset != w.Offset {
			errs = append(errs, fmt.Errorf("%s offset of %s-%d on %s is %d (listed: %v), at the source %d", what, w.Topic, w.Partition, addr, g.Offset, ok, w.Offset))
		}
	})
	return errors.Join(errs...)
}

// commitOffsets commits for groups of several kinds: in the middle, at the end with a note, and a group that really
// consumed.
func (m *mirror) commitOffsets(ctx context.Context) error {
	ends, err := m.srcAdm.ListEndOffsets(ctx, ordersTopic, eventsTopic, tableTopic)
	if err != nil {
		return err
	}
	var middle, end kadm.Offsets
	starts, err := m.srcAdm.ListStartOffsets(ctx, ordersTopic)
	if err != nil {
		return err
	}
	ends.Each(func(e kadm.ListedOffset) {
		switch e.Topic {
		case ordersTopic:
			start, _ := starts.Lookup(e.Topic, e.Partition)
			middle.AddOffset(e.Topic, e.Partition, (start.Offset+e.Offset)/2, -1)
		case eventsTopic:
			end.Add(kadm.Offset{Topic: e.Topic, Partition: e.Partition, At: e.Offset, LeaderEpoch: e.LeaderEpoch, Metadata: "a note"})
		}
	})
	for group, offsets := range map[string]kadm.Offsets{"billing": middle, "audit": end} {
		r, err := m.srcAdm.CommitOffsets(ctx, group, offsets)
		if err != nil {
			return err
		}
		if err := r.Error(); err != nil {
			return err
		}
	}
	return m.read(ctx, ends)
}

// read consumes all of the compacted topic in a group.
func (m *mirror) read(ctx context.Context, ends kadm.ListedOffsets) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.src.Addr), kgo.ConsumerGroup(readerGroup), kgo.ConsumeTopics(tableTopic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	at := map[int32]int64{}
	for done := false; !done; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for r := range fs.RecordsAll() {
			at[r.Partition] = r.Offset + 1
		}
		done = true
		for p := range mirrored()[tableTopic] {
			end, _ := ends.Lookup(tableTopic, p)
			done = done && at[p] == end.Offset
		}
	}
	return cl.CommitUncommittedOffsets(ctx)
}

func (m *mirror) compareGroups(ctx context.Context) error {
	for _, s := range m.standbys() {
		adm, err := m.admin(s.Addr)
		if err != nil {
			return err
		}
		for _, group := range []string{"billing", "audit", readerGroup} {
			want, err := m.srcAdm.FetchOffsets(ctx, group)
			if err != nil {
				return err
			}
			err = peertest.WaitFor(ctx, 20*time.Second, "offsets of group "+group+" on "+s.Addr, func(ctx context.Context) error {
				got, err := adm.FetchOffsets(ctx, group)
				if err != nil {
					return err
				}
				return sameCommitted(got, want)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func sameCommitted(got, want kadm.OffsetResponses) error {
	n := 0
	var errs []error
	want.Each(func(w kadm.OffsetResponse) {
		n++
		g, ok := got.Lookup(w.Topic, w.Partition)
		if !ok || g.Err != nil || w.Err != nil || g.At != w.At || g.LeaderEpoch != w.LeaderEpoch || g.Metadata != w.Metadata {
			errs = append(errs, fmt.Errorf("%s-%d: offset %d, epoch %d, note %q; at the source %d, %d, %q", w.Topic, w.Partition,
				g.At, g.LeaderEpoch, g.Metadata, w.At, w.LeaderEpoch, w.Metadata))
		}
	})
	if n == 0 {
		return errors.New("nothing is committed at the source")
	}
	return errors.Join(errs...)
}

// dump lets Kafka's tool read all of a standby's files.
func (m *mirror) dump(ctx context.Context) error {
	var compacted, others []string
	for topic, n := range mirrored() {
		for p := range n {
			found, err := peertest.Segments(m.plain.PartitionDir(topic, p))
			if err != nil {
				return err
			}
			if topic == tableTopic {
				compacted = append(compacted, found...)
			} else {
				others = append(others, found...)
			}
		}
	}
	if _, err := m.dumpCompacted(ctx, compacted, "--deep-iteration"); err != nil {
		return err
	}
	out, err := m.dumpLog(ctx, others, "--deep-iteration", "--max-message-size", "16777216")
	if err != nil {
		return err
	}
	return wantAll(out, "endTxnMarker: COMMIT", "endTxnMarker: ABORT")
}
