package data

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// DeleteRecords: API 21, versions 0 to 2.
//
// Behaviour: moves the log start of each partition up to the offset, -1
// meaning the high watermark, and waits until every live replica has followed,
// for at most the request's timeout; segments wholly below are removed by the
// next retention run. The answer has the lowest log start of those replicas;
// this broker's is on disk by then: records that were said to be deleted don't
// come back after a crash. Internal topics, and topics whose cleanup.policy has
// no delete, are refused.
func (h *Handlers) DeleteRecords(_ context.Context, r *server.Request) {
	var req kmsg.DeleteRecordsRequest
	if !h.decode(r, &req) {
		return
	}
	w := &deletion{h: h, r: r, resp: kmsg.DeleteRecordsResponse{Version: r.Version, Topics: make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))}}
	w.pending.Store(1)
	for i := range req.Topics {
		t, out := &req.Topics[i], &w.resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			out.Partitions[j].Partition = t.Partitions[j].Partition
			w.start(t.Topic, t.Partitions[j].Offset, &out.Partitions[j])
		}
	}
	if w.moved {
		w.saved = h.o.Dirs.SaveOffsets()
		if w.pending.Load() > 1 {
			time.AfterFunc(time.Duration(max(req.TimeoutMillis, 0))*time.Millisecond, w.expire)
		}
	}
	w.done()
}

// deletion is one request under way.
type deletion struct {
	h       *Handlers
	r       *server.Request
	resp    kmsg.DeleteRecordsResponse
	cancels []func()
	moved   bool         // a log start was moved
	saved   error        // of making the log starts durable
	pending atomic.Int32 // partitions under way, and one while they are being started
}

func (w *deletion) start(topic string, offset int64, out *kmsg.DeleteRecordsResponseTopicPartition) {
	w.pending.Add(1)
	var failed atomic.Bool
	finish := func(low int64, err error) {
		c, _ := code(err)
		out.LowWatermark, out.ErrorCode = low, int16(c)
		if err != nil {
			failed.Store(true)
			w.h.log("DeleteRecords", topic, out.Partition, err)
		}
		w.done()
	}
	if internalTopic(topic) {
		finish(-1, api.Errorf(api.InvalidTopicException, "records of the internal topic %s can't be deleted", topic))
		return
	}
	p, err := w.h.o.Replicas.Get(topic, out.Partition)
	if err != nil {
		finish(-1, err)
		return
	}
	w.cancels = append(w.cancels, p.DeleteRecords(offset, finish))
	w.moved = w.moved || !failed.Load()
}

// expire ends the waits that the timeout has overtaken.
func (w *deletion) expire() {
	for _, cancel := range w.cancels {
		cancel()
	}
}

func (w *deletion) done() {
	if w.pending.Add(-1) > 0 {
		return
	}
	if w.saved != nil {
		w.h.o.Logger.Error("log starts can't be saved", "error", w.saved)
	}
	var failed api.Code
	for i := range w.resp.Topics {
		for j := range w.resp.Topics[i].Partitions {
			p := &w.resp.Topics[i].Partitions[j]
			if w.saved != nil && p.ErrorCode == 0 {
				p.LowWatermark, p.ErrorCode = -1, int16(api.KafkaStorageError)
			}
			if failed == api.NoError {
				failed = api.Code(p.ErrorCode)
			}
		}
	}
	reply(w.r, &w.resp, failed)
}
