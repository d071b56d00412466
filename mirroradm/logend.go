package mirroradm

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is as Kafka writes it: topic-partition.
func (p TopicPartition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// endTries is how often leaders that are just moving are asked again, endPause the pause between.
const (
	endTries = 20
	endPause = 100 * time.Millisecond
)

// logEnds are the log end offsets of all partitions of topics, at their leaders: beyond the high watermark too. A leader is asked by the
// epoch that the metadata has just told of it, so that the answer of one that is none any more is an error.
func logEnds(ctx context.Context, cl *kgo.Client, topics []string) (map[TopicPartition]int64, error) {
	for try := 0; ; try++ {
		out, err := logEndsOnce(ctx, cl, topics)
		if err == nil || try == endTries || !kerr.IsRetriable(err) {
			return out, err
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func logEndsOnce(ctx context.Context, cl *kgo.Client, topics []string) (map[TopicPartition]int64, error) {
	ts, err := kadm.NewClient(cl).ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	asked := map[TopicPartition]int32{}
	for _, name := range topics {
		t, ok := ts[name]
		switch {
		case !ok || t.Err != nil:
			return nil, fmt.Errorf("topic %s: %w", name, kerr.UnknownTopicOrPartition)
		case len(t.Partitions) == 0:
			return nil, fmt.Errorf("topic %s has no partitions", name)
		}
		for _, p := range t.Partitions {
			tp := TopicPartition{name, p.Partition}
			if p.Leader < 0 {
				return nil, fmt.Errorf("%s has no leader now: %w", tp, kerr.LeaderNotAvailable)
			}
			asked[tp] = p.LeaderEpoch
		}
	}
	for _, epoch := range asked {
		if epoch < 0 { // a cluster without leader epochs
			return committedEnds(ctx, cl, topics)
		}
	}
	ends, err := epochEnds(ctx, cl, asked, true)
	if err != nil {
		return nil, err
	}
	out := map[TopicPartition]int64{}
	for tp, e := range ends {
		if out[tp] = e.end; e.end < 0 {
			return nil, fmt.Errorf("%s: its leader does not say where its log ends", tp)
		}
	}
	return out, nil
}

// epochEnd is the last epoch up to one that was asked for that a log has, and where it ends; -1 and -1 where there is none.
type epochEnd struct {
	epoch int32
	end   int64
}

// epochEnds are the ends of an epoch of each partition, at its leader; strict has the leader be the one of that epoch.
func epochEnds(ctx context.Context, cl *kgo.Client, epochs map[TopicPartition]int32, strict bool) (map[TopicPartition]epochEnd, error) {
	byTopic := map[string][]kmsg.OffsetForLeaderEpochRequestTopicPartition{}
	for tp, epoch := range epochs {
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.LeaderEpoch = tp.Partition, epoch
		if strict {
			p.CurrentLeaderEpoch = epoch
		}
		byTopic[tp.Topic] = append(byTopic[tp.Topic], p)
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	for name, ps := range byTopic {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic, t.Partitions = name, ps
		req.Topics = append(req.Topics, t)
	}
	out := map[TopicPartition]epochEnd{}
	if len(req.Topics) == 0 {
		return out, nil
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("%s: %w", tp, err)
			}
			out[tp] = epochEnd{p.LeaderEpoch, p.EndOffset}
		}
	}
	for tp := range epochs {
		if _, ok := out[tp]; !ok {
			return nil, fmt.Errorf("the cluster did not say where %s ends", tp)
		}
	}
	return out, nil
}

// committedEnds are the high watermarks of all partitions of topics.
func committedEnds(ctx context.Context, cl *kgo.Client, topics []string) (map[TopicPartition]int64, error) {
	l, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err == nil {
		err = l.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[TopicPartition]int64{}
	l.Each(func(o kadm.ListedOffset) { out[TopicPartition{o.Topic, o.Partition}] = o.Offset })
	return out, nil
}
