package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/replica"
)

// throttlePause is how often a fetcher looks whether mirror.replication.throttled.rate allows more.
const throttlePause = 100 * time.Millisecond

// ready are the targets that may be asked for now; if there are none, pause is how long until there is one.
func (f *fetcher) ready(targets []*target, now time.Time) (ready []*target, pause time.Duration) {
	pause = f.m.set().FetchBackoff
	f.paused = false
	if d := f.quiet.Sub(now); d > 0 {
		return nil, d
	}
	for _, t := range targets {
		if d := t.until.Sub(now); d > 0 {
			pause = min(pause, d)
			continue
		}
		if _, exceeded, _ := t.rep.MirrorThrottle(now); exceeded && t.aligned {
			f.paused = true
			pause = min(pause, throttlePause)
			continue
		}
		ready = append(ready, t)
	}
	return ready, pause
}

// watchDue reports whether the source of a paused target has not been asked for a while.
func (f *fetcher) watchDue(targets []*target, now time.Time) bool {
	return len(f.unwatched(targets, now)) > 0
}

// unwatched are the paused targets to ask the source of: as often as an idle one answers, so that their lag stays known.
func (f *fetcher) unwatched(targets []*target, now time.Time) (due []*target) {
	watchEvery := max(f.m.set().FetchWait, throttlePause)
	for _, t := range targets {
		if _, exceeded, _ := t.rep.MirrorThrottle(now); exceeded && t.aligned && now.Sub(t.watched) > watchEvery && t.p.sourceAge(now) > watchEvery {
			due = append(due, t)
		}
	}
	return due
}

// watchPaused asks the source how far it is in paused targets. Its error is one of the connection.
func (f *fetcher) watchPaused(ctx context.Context, targets []*target) error {
	due := f.unwatched(targets, time.Now())
	if len(due) == 0 {
		return nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topics, asked := map[string]int{}, map[tp]*target{}
	for _, t := range due {
		t.watched = time.Now()
		i, ok := topics[t.key.topic]
		if !ok {
			i = len(req.Topics)
			topics[t.key.topic] = i
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = t.key.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = t.key.partition, t.sle, replica.TimeLatest
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		asked[t.key] = t
	}
	now := time.Now()
	resp, err := f.conn.Call(ctx, req)
	if err != nil {
		return err
	}
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			t := asked[tp{rt.Topic, rp.Partition}]
			switch {
			case t == nil:
				return fmt.Errorf("answer for %s-%d, which was not asked for", rt.Topic, rp.Partition)
			case rp.ErrorCode == 0 && rp.Offset >= 0:
				t.p.sawSource(rp.Offset, now)
			default: // the fetch that is due one day shows what is the matter
				t.p.sawError(api.Errorf(api.Code(rp.ErrorCode), "the source answered %s", api.Code(rp.ErrorCode).Name()))
			}
			delete(asked, t.key)
		}
	}
	if len(asked) > 0 {
		return errors.New("an answer to ListOffsets lacks partitions")
	}
	return nil
}

// sourceAge is how long ago the source was heard of the partition.
func (p *Partition) sourceAge(now time.Time) time.Duration {
	v := &p.source
	v.mu.Lock()
	defer v.mu.Unlock()
	return now.Sub(v.at)
}

// registerFetch makes metrics of the throttle and of the memory for fetched bytes.
func (m *Manager) registerFetch(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kafka_server_mirrorreplication_byte_rate", Help: "Bytes a second that throttled mirror replicas fetched in the last ten seconds.",
	}, func() float64 { return m.opts.Replicas.MirrorByteRate(time.Now()) })), r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kafka_server_mirror_fetch_memory_bytes", Help: "Bytes that the mirrors' fetches under way may bring, of mirror.fetch.memory.bytes.",
	}, func() float64 { return float64(m.held.Load()) })))
}
