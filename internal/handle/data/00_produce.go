package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
	"milena/internal/server"
)

// Produce: API 0, versions 3 to 13; 0 to 2 are advertised for old librdkafka
// (KAFKA-18659) and refused.
//
// Behaviour:
//   - one batch for each partition, checked without decompressing unless the
//     topic's configuration asks for it, stamped in place in the frame
//   - acks 0, 1, -1; with 0 an error closes the connection, the only way to
//     tell the client
//   - a transactional id, or a transactional batch, is refused
//
// Version notes: 7 zstd (KIP-110), 8 errors by record (KIP-467), 9 flexible,
// 10 current leader (KIP-951), 13 topic ids (KIP-516).
func (h *Handlers) Produce(_ context.Context, r *server.Request) {
	w, _ := h.produces.Get().(*produce)
	if w == nil {
		w = &produce{h: h}
	}
	w.r = r
	if err := r.DecodeAliased(&w.req); err != nil {
		h.refuseBody(r, err)
		return
	}
	w.respond()
	refused := w.refused()
	for i := range w.req.Topics {
		t, out := &w.req.Topics[i], &w.resp.Topics[i]
		for j := range t.Partitions {
			p := &out.Partitions[j]
			if refused != nil {
				w.fail(t.Topic, t.TopicID, nil, p, refused)
				continue
			}
			w.append(t, &t.Partitions[j], p)
		}
	}
	w.wait()
}

// respond lays out the response, in the memory of the one before.
func (w *produce) respond() {
	n := 0
	for i := range w.req.Topics {
		n += len(w.req.Topics[i].Partitions)
	}
	parts := slices.Grow(w.parts[:0], n)
	topics := slices.Grow(w.resp.Topics[:0], len(w.req.Topics))
	for i := range w.req.Topics {
		t := &w.req.Topics[i]
		first := len(parts)
		for j := range t.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset, p.LogStartOffset = t.Partitions[j].Partition, -1, -1
			parts = append(parts, p)
		}
		topics = append(topics, kmsg.ProduceResponseTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: parts[first:len(parts):len(parts)]})
	}
	w.parts = parts
	w.resp = kmsg.ProduceResponse{Version: w.r.Version, Topics: topics}
}

// reuse gives the memory of an answered request that waited for nothing to
// the next one; nothing refers to it any more.
func (w *produce) reuse() {
	const most = 128 // a request for more is rare and would stay large
	if len(w.waits) > 0 || cap(w.parts) > most || cap(w.resp.Topics) > most {
		return
	}
	clear(w.parts)
	clear(w.resp.Topics)
	*w = produce{h: w.h, parts: w.parts, resp: kmsg.ProduceResponse{Topics: w.resp.Topics}}
	w.h.produces.Put(w)
}

// produce is one request under way.
type produce struct {
	h    *Handlers
	r    *server.Request
	req  kmsg.ProduceRequest
	resp kmsg.ProduceResponse
	// parts has the partitions of all topics of resp.
	parts []kmsg.ProduceResponseTopicPartition

	failed  api.Code // the first error
	waits   []ackWait
	pending atomic.Int32 // waits, and one while they are being registered
	timerMu sync.Mutex
	timer   *time.Timer
}

// ackWait is a partition that waits for its in-sync replicas.
type ackWait struct {
	p      *replica.Partition
	epoch  int32 // leader epoch of the append
	offset int64 // the high watermark it waits for
	out    *kmsg.ProduceResponseTopicPartition
	err    error
	cancel func() bool
}

// refused says why the request as a whole is refused.
func (w *produce) refused() error {
	switch {
	case w.r.Version < 3:
		return api.Errorf(api.UnsupportedVersion, "Produce version %d is not served, the oldest is 3", w.r.Version)
	case w.req.Acks < -1 || w.req.Acks > 1:
		return api.Errorf(api.InvalidRequiredAcks, "acks %d is none of 0, 1, -1", w.req.Acks)
	case w.req.TransactionID != nil:
		return errTransactional(*w.req.TransactionID)
	}
	return nil
}

// errTransactional is the answer to transactions, which this release doesn't
// have. Clients take UNSUPPORTED_VERSION as final.
func errTransactional(id string) error {
	return api.Errorf(api.UnsupportedVersion, "transactions are not supported by this release: use a producer without transactional.id %q", clip(id))
}

func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// internalTopic reports whether only brokers, and admin clients, may write a topic.
func internalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__mirror_state":
		return true
	}
	return false
}

// adminClient is the client id with which clients may write internal topics.
const adminClient = "__admin_client"

func (w *produce) append(t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition) {
	var p *replica.Partition
	var err error
	if w.r.Version >= 13 {
		p, err = w.h.o.Replicas.GetByID(t.TopicID, out.Partition)
	} else {
		p, err = w.h.o.Replicas.Get(t.Topic, out.Partition)
	}
	if err == nil && internalTopic(p.Topic()) && w.r.ClientID != adminClient {
		err = api.Errorf(api.InvalidTopicException, "topic %s is internal, clients can't write it", p.Topic())
	}
	if err == nil {
		err = checkBatch(in.Records, w.r.Version)
	}
	if p != nil {
		p.CountProduce()
	}
	if err != nil {
		w.fail(t.Topic, t.TopicID, p, out, err)
		return
	}
	info, err := p.Append(in.Records, replica.AppendOptions{Origin: partlog.OriginClient, Acks: w.req.Acks, Epoch: replica.AnyEpoch})
	if err != nil {
		p.CountRejected(err, len(in.Records))
		w.fail(t.Topic, t.TopicID, p, out, err)
		if tellsStart(api.Code(out.ErrorCode)) {
			out.LogStartOffset = p.Log().StartOffset()
		}
		return
	}
	if !info.Duplicate {
		p.CountAppend(info)
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = info.FirstOffset, info.LogAppendTime, info.LogStart
	if w.req.Acks == -1 && !p.Committed(info.LastEpoch, info.LastOffset+1) {
		w.waits = append(w.waits, ackWait{p: p, epoch: info.LastEpoch, offset: info.LastOffset + 1, out: out})
	}
}

// tellsStart reports whether the answer to a refused batch has the log start, by which an idempotent producer of
// older clients tells whether its records were deleted. It has, where the log itself looked at the records.
func tellsStart(c api.Code) bool {
	switch c {
	case api.UnknownTopicOrPartition, api.NotLeaderOrFollower, api.MessageTooLarge, api.RecordListTooLarge, api.CorruptMessage, api.KafkaStorageError:
		return false
	}
	return true
}

// checkBatch checks what the version allows: exactly one batch of the current
// format, with a codec the version knows. The log checks the rest.
func checkBatch(records []byte, version int16) error {
	if len(records) == 0 {
		return api.Errorf(api.InvalidRecord, "a partition's records are exactly one batch, not none")
	}
	b, err := record.Parse(records)
	switch {
	case errors.Is(err, record.ErrMagic):
		return &api.Error{Code: api.InvalidRecord, Message: err.Error(), Err: err}
	case err != nil:
		return &api.Error{Code: api.CorruptMessage, Message: err.Error(), Err: err}
	case b == nil:
		return api.Errorf(api.InvalidRecord, "a partition's records are exactly one batch, %d bytes are no whole one", len(records))
	case len(b) != len(records):
		return api.Errorf(api.InvalidRecord, "a partition's records are exactly one batch, %d bytes follow it", len(records)-len(b))
	case b.Codec() == record.Zstd && version < 7:
		return api.Errorf(api.UnsupportedCompressionType, "zstd needs Produce version 7, not %d", version)
	case b.IsTransactional():
		return errTransactional("")
	}
	return nil
}

// fail puts an error into a partition's answer.
func (w *produce) fail(topic string, id ids.UUID, p *replica.Partition, out *kmsg.ProduceResponseTopicPartition, err error) {
	c, msg := code(err)
	if w.failed == api.NoError {
		w.failed = c
	}
	out.ErrorCode, out.ErrorMessage, out.BaseOffset, out.LogAppendTime, out.LogStartOffset = int16(c), msg, -1, -1, -1
	var bad *partlog.InvalidRecords
	if errors.As(err, &bad) {
		for _, rec := range bad.Records {
			out.ErrorRecords = append(out.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: rec.BatchIndex, ErrorMessage: &rec.Message})
		}
	}
	if p != nil {
		topic = p.Topic()
		p.CountFailedProduce(c, err)
	} else {
		w.h.o.Replicas.CountFailedProduce()
	}
	w.h.log("Produce", topic, out.Partition, err)
	if w.r.Version >= 10 && (c == api.NotLeaderOrFollower || c == api.FencedLeaderEpoch) {
		w.hint(topic, id, out)
	}
}

// hint tells the client who leads the partition (KIP-951).
func (w *produce) hint(topic string, id ids.UUID, out *kmsg.ProduceResponseTopicPartition) {
	leader, epoch, at, ok := w.h.leaderOf(topic, id, out.Partition, w.r.Conn.ListenerName())
	if !ok {
		return
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
	for i := range w.resp.Brokers {
		if w.resp.Brokers[i].NodeID == leader {
			return
		}
	}
	w.resp.Brokers = append(w.resp.Brokers, kmsg.ProduceResponseBroker{NodeID: leader, Host: at.Host, Port: int32(at.Port)})
}

// wait replies when every partition that has to is committed, or at the
// request's timeout.
func (w *produce) wait() {
	if len(w.waits) == 0 {
		w.finish()
		return
	}
	w.pending.Store(int32(len(w.waits)) + 1)
	for i := range w.waits {
		a := &w.waits[i]
		a.cancel = a.p.AwaitHW(a.epoch, a.offset, func(err error) {
			if err == nil {
				err = a.p.CheckMinISR()
			}
			a.err = err
			w.done()
		})
	}
	w.timerMu.Lock()
	if w.pending.Load() > 1 {
		w.timer = time.AfterFunc(time.Duration(w.req.TimeoutMillis)*time.Millisecond, w.expire)
	}
	w.timerMu.Unlock()
	w.done()
}

// expire ends the waits that the timeout has overtaken. The records stay in
// the log and may be committed yet.
func (w *produce) expire() {
	for i := range w.waits {
		a := &w.waits[i]
		if a.cancel() {
			a.err = api.Errorf(api.RequestTimedOut, "not committed within %d ms", w.req.TimeoutMillis)
			w.done()
		}
	}
}

func (w *produce) done() {
	if w.pending.Add(-1) > 0 {
		return
	}
	w.timerMu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timerMu.Unlock()
	for i := range w.waits {
		if a := &w.waits[i]; a.err != nil {
			w.fail(a.p.Topic(), a.p.TopicID(), a.p, a.out, a.err)
		}
	}
	w.finish()
}

func (w *produce) finish() {
	defer w.reuse()
	if w.req.Acks != 0 {
		reply(w.r, &w.resp, w.failed)
		return
	}
	if w.failed != api.NoError {
		w.h.o.Logger.Info("closing the connection: a produce with acks=0 failed, which can't be answered",
			"client", w.r.ClientID, "error", fmt.Sprint(w.failed))
	}
	w.r.Reply(server.Response{NoReply: true, CloseConn: w.failed != api.NoError, Code: w.failed})
}
