package data

import (
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/record"
)

// Producers write and consumers with sessions read at the same time, over
// changes of the leader epoch: every consumer sees every record,
// in order, once.
func TestProduceAndConsumeTogether(t *testing.T) {
	r := newRig(t)
	const topics, producers, batches, records = 3, 2, 40, 5
	for n := range topics {
		r.topic(byte(n+1), "", 1)
	}
	var wg sync.WaitGroup
	for i := range producers {
		c := r.client("producer")
		wg.Go(func() {
			for j := range batches {
				for n := range topics {
					acks := int16(1 - 2*((i+j)%2)) // 1 and -1
					resp := call[*kmsg.ProduceResponse](c, produceRequest(byte(n+1), "", acks, 0, batch(t, records, nil)), 13)
					if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
						t.Error(api.Code(code))
						return
					}
				}
			}
		})
	}
	wg.Go(func() {
		for e := range int32(20) {
			r.lead(1, self, e+1)
		}
	})
	for i := range 3 {
		c := r.client("consumer")
		wg.Go(func() { consumeAll(t, c, topics, producers*batches*records, int32(1+i*200)) })
	}
	wg.Wait()
}

// consumeAll reads want records of each topic with an incremental session.
func consumeAll(t *testing.T, c *client, topics int, want int64, minBytes int32) {
	next := make([]int64, topics)
	req := fetchRequest(50, minBytes, 1, 2, 3)
	req.SessionEpoch = 0
	for {
		resp := call[*kmsg.FetchResponse](c, req, 13)
		if resp.ErrorCode != 0 {
			t.Error(api.Code(resp.ErrorCode))
			return
		}
		moved := map[int]bool{}
		for _, topic := range resp.Topics {
			n := int(topic.TopicID[15]) - 1
			for _, p := range topic.Partitions {
				if p.ErrorCode != 0 {
					t.Errorf("topic %d: %v", n+1, api.Code(p.ErrorCode))
					return
				}
				for b, err := range record.Batches(p.RecordBatches) {
					if err != nil || b.BaseOffset() != next[n] || b.NextOffset() > p.HighWatermark {
						t.Errorf("batch at %d, want %d, high watermark %d: %v", b.BaseOffset(), next[n], p.HighWatermark, err)
						return
					}
					next[n], moved[n] = b.NextOffset(), true
				}
			}
		}
		done := true
		for _, off := range next {
			done = done && off == want
		}
		if done {
			return
		}
		req.SessionID, req.Topics = resp.SessionID, nil
		req.SessionEpoch++
		for n := range moved {
			topic := fetchRequest(0, 0, byte(n+1)).Topics[0]
			topic.Partitions[0].FetchOffset = next[n]
			req.Topics = append(req.Topics, topic)
		}
	}
}
