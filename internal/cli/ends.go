package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
)

// ends are the end offsets that a consumer is to reach, by partition. A partition leaves left when it is reached.
//
// The last offsets before the end may hold no record: compaction can have taken them out, and markers of transactions are not
// shown. A client is not told about them, so look asks the leader what lies between the last record and the end.
type ends struct {
	cl    *kgo.Client
	adm   *kadm.Client
	topic string
	group string
	id    kadm.TopicID
	left  map[int32]int64
	from  map[int32]int64 // where reading starts
	lead  map[int32]int32
	// unanswered is why the last look got no answer of a leader, nil if it got them all.
	unanswered error
	// stable: the end is the last stable offset, and records of aborted transactions are not shown.
	stable bool
}

// ends reads the topic's partitions and end offsets and leaves out what has nothing to read; nil without --exit-at-end.
func (f *consumeFlags) ends(ctx context.Context, cl *kgo.Client, topic string, committedOnly bool) (*ends, error) {
	adm := kadm.NewClient(cl)
	ts, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := ts[topic]
	if err := answer("topic "+topic, t.Err, ""); err != nil {
		return nil, err
	}
	wanted := map[int32]bool{}
	for _, p := range f.partitions {
		if _, ok := t.Partitions[p]; !ok {
			return nil, fmt.Errorf("topic %s has no partition %d: it has %d", topic, p, len(t.Partitions))
		}
		wanted[p] = true
	}
	if !f.exitAtEnd {
		return nil, nil
	}
	e := &ends{cl: cl, adm: adm, topic: topic, group: f.group, id: t.ID, stable: committedOnly, left: map[int32]int64{}, from: map[int32]int64{}, lead: map[int32]int32{}}
	list := adm.ListEndOffsets
	if committedOnly {
		list = adm.ListCommittedOffsets // the last stable offset: nothing behind it is shown
	}
	last, lastErr := list(ctx, topic)
	first, firstErr := adm.ListStartOffsets(ctx, topic)
	committed := kadm.OffsetResponses{}
	if f.group != "" {
		if committed, err = committedOffsets(ctx, adm, f.group); err != nil {
			return nil, err
		}
	}
	for _, p := range t.Partitions.Numbers() {
		if len(wanted) > 0 && !wanted[p] {
			continue // whether it can be read is nobody's business
		}
		begin, end, ok, err := f.span(topic, p, first, last, committed)
		if !ok {
			return nil, answer(fmt.Sprintf("%s-%d", topic, p), cmp.Or(err, notListed(lastErr, topic, p), notListed(firstErr, topic, p), error(kerr.LeaderNotAvailable)), "")
		}
		if begin < end {
			e.left[p], e.from[p], e.lead[p] = end, begin, t.Partitions[p].Leader
		}
	}
	return e, nil
}

// span is where reading a partition begins and ends, given what brokers answered; ok is false where they didn't, which is an
// error: a partition left out would look as if it had been read.
func (f *consumeFlags) span(topic string, partition int32, first, last kadm.ListedOffsets, committed kadm.OffsetResponses) (begin, end int64, ok bool, err error) {
	o, okLast := last.Lookup(topic, partition)
	s, okFirst := first.Lookup(topic, partition)
	if err := cmp.Or(o.Err, s.Err); err != nil || !okLast || !okFirst {
		return 0, 0, false, err
	}
	if begin = o.Offset; f.fromBeginning {
		begin = s.Offset
	}
	if c, ok := committed.Lookup(topic, partition); ok && c.At >= s.Offset && c.At <= o.Offset {
		begin = c.At
	}
	return begin, o.Offset, true, nil
}

// notListed is why a partition is missing in an answer that several brokers gave.
func notListed(err error, topic string, partition int32) error {
	var shards *kadm.ShardErrors
	if !errors.As(err, &shards) {
		return err
	}
	for _, s := range shards.Errs {
		req, ok := s.Req.(*kmsg.ListOffsetsRequest)
		if ok && slices.ContainsFunc(req.Topics, func(t kmsg.ListOffsetsRequestTopic) bool {
			return t.Topic == topic && slices.ContainsFunc(t.Partitions, func(p kmsg.ListOffsetsRequestTopicPartition) bool { return p.Partition == partition })
		}) {
			return s.Err
		}
	}
	return nil
}

// within says whether a record is before the end of its partition.
func (e *ends) within(partition int32, offset int64) bool {
	end, ok := e.left[partition]
	return ok && offset < end
}

// reached notes that everything before next was seen.
func (e *ends) reached(partition int32, next int64) {
	if end, ok := e.left[partition]; ok && next >= end {
		delete(e.left, partition)
	}
}

// look finds partitions that have no record left before their end, given the offsets after the records seen, and those that
// other members of the group have read.
func (e *ends) look(ctx context.Context, next map[int32]kgo.EpochOffset) error {
	e.unanswered = nil
	if e.group != "" {
		os, err := committedOffsets(ctx, e.adm, e.group)
		if err != nil {
			return err
		}
		for _, o := range os.Sorted() {
			if o.Topic == e.topic {
				e.reached(o.Partition, o.At)
			}
		}
	}
	for p := range e.left {
		at := e.from[p]
		if n, ok := next[p]; ok {
			at = max(at, n.Offset)
		}
		at, err := e.skip(ctx, p, at)
		if err != nil {
			return err
		}
		e.reached(p, at)
	}
	return nil
}

// skip returns the offset of the next record at or after at, the end if there is none before it. Errors that go away by
// themselves leave at as it is, to be looked at again.
func (e *ends) skip(ctx context.Context, partition int32, at int64) (int64, error) {
	for end := e.left[partition]; at < end; {
		resp, err := e.fetch(ctx, partition, at)
		if err != nil || resp == nil {
			return at, err
		}
		moved, found, err := firstShown(resp, at)
		if err != nil {
			return at, fmt.Errorf("%s-%d: %w", e.topic, partition, err)
		}
		if found {
			return moved, nil
		}
		if moved == at { // no batch at or after at, though the log reaches to the end
			if resp.HighWatermark >= end {
				return end, nil
			}
			return at, nil
		}
		at = moved
	}
	return at, nil
}

// firstShown returns the offset of the first record at or after at that a consumer is shown, or, if there is none, the offset
// after the batches looked at.
func firstShown(resp *kmsg.FetchResponseTopicPartition, at int64) (offset int64, found bool, err error) {
	aborted := map[int64]int64{} // first offset by producer
	for _, t := range resp.AbortedTransactions {
		if first, ok := aborted[t.ProducerID]; !ok || t.FirstOffset < first {
			aborted[t.ProducerID] = t.FirstOffset
		}
	}
	for b, err := range record.Batches(resp.RecordBatches) {
		if err != nil {
			return at, false, err
		}
		first, gone := aborted[b.ProducerID()]
		gone = gone && b.IsTransactional() && b.BaseOffset() >= first
		if b.IsControl() {
			if c, ok, err := b.Control(); err == nil && ok && c.EndsTxn() && gone {
				delete(aborted, b.ProducerID())
			}
		} else if b.LastOffset() >= at && !gone {
			for r, err := range b.Records(record.DefaultLimit) {
				if err != nil {
					return at, false, err
				}
				if r.Offset >= at {
					return r.Offset, true, nil
				}
			}
		}
		offset = max(offset, b.NextOffset())
	}
	return max(offset, at), false, nil
}

// fetch reads one partition at its leader, nil if that did not work and may later.
func (e *ends) fetch(ctx context.Context, partition int32, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 4<<20, -1
	if e.stable {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = e.topic, e.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, at, 4<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kresp, err := e.cl.Broker(int(e.lead[partition])).RetriableRequest(ctx, req)
	if err != nil {
		e.unanswered = err
		return nil, nil // the next look asks again, as long as the command's time allows
	}
	resp := kresp.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, nil
	}
	rp := &resp.Topics[0].Partitions[0]
	if err := codeError(rp.ErrorCode); err != nil {
		if kerr.IsRetriable(err) {
			return nil, nil
		}
		return nil, answer(fmt.Sprintf("%s-%d", e.topic, partition), err, "")
	}
	return rp, nil
}
