//go:build synctests

package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/replica"
	"milena/mirroradm"
)

// read reads the topic on this side all the time, as a consumer does, of the replicas that are in the rack of one of the nodes: what it
// was served has to stay, or to be set aside by what cuts it.
func (s *side) read(ctx context.Context, id int) {
	at := map[int32]kgo.Offset{}
	for part := range int32(mirrorPartitions) {
		at[part] = kgo.NewOffset().AtStart()
	}
	cl, err := s.m.client(fmt.Sprintf("%s-reader-%d", s.m.name, id), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{mirrorTopic: at}),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.Rack(s.m.nodes[id%len(s.m.nodes)].host()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		s.p.failf("reader: %v", err)
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				s.p.check.served(s, r, p.HighWatermark)
			}
		})
	}
}

// served notes that a consumer was served a record.
func (k *mirrorCheck) served(s *side, r *kgo.Record, hw int64) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	if r.Offset >= hw {
		k.p.failed = append(k.p.failed, fmt.Sprintf("visible: offset %d of partition %d of %s was served, the high watermark is %d", r.Offset, r.Partition, s.m.name, hw))
	}
	if !k.p.unclean { // else the source may lose it
		k.readable[s.i][string(r.Value)] = r.Offset
		k.reads[s.i]++
	}
}

// sight is what a source's high watermark was at least, at some time.
type sight struct {
	at time.Time
	hw int64
}

const (
	// sightsKept is how many of them are remembered.
	sightsKept = 300
	// answerTakes is the most by which an answer of the source is older than the age that is shown.
	answerTakes = 600 * time.Millisecond
)

// sight notes the lowest high watermark that any replica of the source has: whoever leads, or believes so, answers at least that.
func (k *mirrorCheck) sight(l *leg, part int32) {
	low := int64(-1)
	l.src.each(part, func(_ *machineNode, p *replica.Partition) {
		if hw := p.HighWatermark(); low < 0 || hw < low {
			low = hw
		}
	})
	if low < 0 {
		return
	}
	seen := append(k.sights[part], sight{time.Now(), low})
	k.sights[part] = seen[max(0, len(seen)-sightsKept):]
}

// least is what the source's high watermark was at least at a time, 0 if that isn't known.
func (k *mirrorCheck) least(part int32, at time.Time) int64 {
	low := int64(0)
	for _, s := range k.sights[part] {
		if s.at.After(at) {
			break
		}
		low = s.hw
	}
	return low
}

// lags checks what describe, asked at a time, shows of the source: no end that it has left behind by the age that is shown.
func (k *mirrorCheck) lags(l *leg, asked time.Time, ps []mirroradm.Partition) {
	if k.p.unclean || k.seen != l {
		return
	}
	for _, p := range ps {
		if _, known := p.Lag(); !known {
			continue
		}
		k.lagsSeen++
		if least := k.least(p.Partition, asked.Add(-p.SourceAge-answerTakes)); p.SourceOffset < least {
			k.p.failf("lag: %s shows %d as the end of partition %d of %s %v before, when it was %d at least", l.dst.m.name, p.SourceOffset, p.Partition, l.src.m.name, p.SourceAge, least)
		}
	}
}
