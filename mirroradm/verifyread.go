package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/record"
)

const (
	// fetchBytes is what one fetch asks for, per partition.
	fetchBytes = 2 << 20
	// fetchPatience is how long a partition is tried without an answer that helps.
	fetchPatience = 30 * time.Second
	// fetchPause is the pause before the next try.
	fetchPause = 100 * time.Millisecond
)

// errShrunk says that the log begins above the offset that was to be read.
var errShrunk = errors.New("the log begins later now")

// answer is what a fetch brought: batches, or the end.
type answer struct {
	batches []record.Batch
	start   int64 // the log's start offset, if err is errShrunk
	err     error
}

// stream reads the batches of a partition that begin before an end, one fetch ahead of its user.
type stream struct {
	side  string
	cl    *kgo.Client
	topic string
	id    [16]byte
	part  int32
	to    int64

	parent  context.Context
	cancel  context.CancelFunc
	answers chan answer
	queue   []record.Batch
	// start is the log's start where the stream found that it had moved above what was to be read; else 0.
	start int64
}

func newStream(ctx context.Context, side string, cl *kgo.Client, topic string, id [16]byte, part int32, from, to int64) *stream {
	s := &stream{side: side, cl: cl, topic: topic, id: id, part: part, to: to, parent: ctx}
	s.begin(from)
	return s
}

func (s *stream) begin(from int64) {
	ctx, cancel := context.WithCancel(s.parent)
	s.cancel, s.answers, s.queue = cancel, make(chan answer), nil
	go s.read(ctx, s.answers, from)
}

// close ends the reading and waits for it.
func (s *stream) close() {
	s.cancel()
	for range s.answers {
		continue // until the reader has closed it
	}
}

// next is the next batch, nil at the end. errShrunk comes with start set.
func (s *stream) next() (record.Batch, error) {
	for len(s.queue) == 0 {
		a, ok := <-s.answers
		switch {
		case !ok:
			return nil, s.parent.Err()
		case errors.Is(a.err, errShrunk):
			s.start = max(s.start, a.start)
			return nil, a.err
		case a.err != nil:
			return nil, fmt.Errorf("reading the %s: %w", s.side, a.err)
		default:
			s.queue = a.batches
		}
	}
	b := s.queue[0]
	s.queue = s.queue[1:]
	return b, nil
}

// skipTo goes on with the first batch that ends above an offset; last is what next gave out last.
func (s *stream) skipTo(offset int64, last record.Batch) {
	if last != nil && last.NextOffset() > offset {
		s.queue = slices.Insert(s.queue, 0, last)
		return
	}
	s.queue = slices.DeleteFunc(s.queue, func(b record.Batch) bool { return b.NextOffset() <= offset })
	if len(s.queue) == 0 {
		s.close()
		s.begin(offset)
	}
}

// read fetches from an offset up to the end and hands the batches on. It closes answers when it is done.
func (s *stream) read(ctx context.Context, answers chan<- answer, from int64) {
	defer close(answers)
	hand := func(a answer) bool {
		select {
		case answers <- a:
			return true
		case <-ctx.Done():
			return false
		}
	}
	f := fetcher{stream: s}
	for at := from; at < s.to; {
		a := f.fetch(ctx, at)
		if a.err != nil {
			hand(a)
			return
		}
		var end bool
		a.batches, at, end = trim(a.batches, at, s.to)
		if len(a.batches) > 0 && !hand(a) || end {
			return
		}
	}
}

// trim leaves the batches that hold offsets from at to before to, and says where to read on, and whether that was the end.
func trim(batches []record.Batch, at, to int64) ([]record.Batch, int64, bool) {
	var out []record.Batch
	for _, b := range batches {
		if b.BaseOffset() >= to {
			return out, at, true
		}
		if b.NextOffset() <= at {
			continue
		}
		out = append(out, b)
		at = b.NextOffset()
	}
	return out, at, at >= to
}

// fetcher asks a partition's leader, wherever it is.
type fetcher struct {
	*stream
	leader int32
	known  bool
}

// fetch reads at an offset until there is something, or an error that stays.
func (f *fetcher) fetch(ctx context.Context, at int64) answer {
	deadline := time.Now().Add(fetchPatience)
	var last error
	for {
		a, retry := f.once(ctx, at)
		switch {
		case a.err == nil && len(a.batches) > 0, a.err != nil && !retry:
			return a
		case a.err != nil:
			last, f.known = a.err, false
		default:
			last = fmt.Errorf("nothing comes at offset %d", at)
		}
		if time.Now().After(deadline) {
			return answer{err: last}
		}
		select {
		case <-time.After(fetchPause):
		case <-ctx.Done():
			return answer{err: ctx.Err()}
		}
	}
}

// once sends one fetch; retry says whether its error may go away.
func (f *fetcher) once(ctx context.Context, at int64) (a answer, retry bool) {
	if !f.known {
		if err := f.find(ctx); err != nil {
			return answer{err: err}, true
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, fetchBytes
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = f.topic, f.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = f.part, at, fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := f.cl.Broker(int(f.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return answer{err: err}, true
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return answer{err: err}, kerr.IsRetriable(err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return answer{err: errors.New("the answer to a fetch lacks the partition")}, true
	}
	rp := resp.Topics[0].Partitions[0]
	err = kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return f.outOfRange(ctx, at)
	case err != nil:
		return answer{err: err}, kerr.IsRetriable(err)
	}
	for b, err := range record.Batches(rp.RecordBatches) {
		if err != nil {
			return answer{err: fmt.Errorf("after offset %d: %w", at, err)}, false
		}
		a.batches = append(a.batches, b)
	}
	return a, false
}

// outOfRange tells a log that begins later now from one that has ended.
func (f *fetcher) outOfRange(ctx context.Context, at int64) (answer, bool) {
	start, err := listOffset(ctx, f.cl, f.leader, f.topic, f.part, -2)
	switch {
	case err != nil:
		return answer{err: err}, true
	case start > at:
		return answer{err: errShrunk, start: start}, false
	}
	return answer{err: fmt.Errorf("offset %d is not there any more: %w", at, kerr.OffsetOutOfRange)}, false
}

// find looks for the leader.
func (f *fetcher) find(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(f.topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, f.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == f.part && p.Leader >= 0 {
				f.leader, f.known = p.Leader, true
				return nil
			}
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s-%d has no leader", f.topic, f.part)
}

// listOffset asks a broker for a partition's offset by timestamp: -1 is the high watermark, -2 the start.
func listOffset(ctx context.Context, cl *kgo.Client, broker int32, topic string, part int32, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = part, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := cl.Broker(int(broker)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			return p.Offset, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return 0, errors.New("the answer to a request for offsets lacks the partition")
}

// LastTimestamp is when the last record before an offset was written, by the timestamp that it carries. It is false if there is no
// such record, or compaction has removed the one just before the offset.
func LastTimestamp(ctx context.Context, cl *kgo.Client, topic string, id [16]byte, partition int32, before int64) (time.Time, bool, error) {
	if before <= 0 {
		return time.Time{}, false, nil
	}
	f := fetcher{stream: &stream{side: "cluster", cl: cl, topic: topic, id: id, part: partition}}
	a := f.fetch(ctx, before-1)
	switch {
	case errors.Is(a.err, errShrunk):
		return time.Time{}, false, nil
	case a.err != nil:
		return time.Time{}, false, a.err
	}
	b := a.batches[0]
	if b.BaseOffset() >= before {
		return time.Time{}, false, nil
	}
	at := b.MaxTimestamp()
	for r, err := range b.Records(0) {
		if err != nil {
			break // the batch's own is good enough
		}
		if r.Offset < before {
			at = r.Timestamp
		}
	}
	if at < 0 {
		return time.Time{}, false, nil
	}
	return time.UnixMilli(at), true, nil
}
