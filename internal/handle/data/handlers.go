// Package data answers the APIs that move and describe records: one file for
// each, named by its number.
//
// A handler runs on the connection's reader goroutine. It does what can be
// done at once there; what has to wait (a produce for its in-sync replicas, a
// fetch for bytes, a producer id for its block) registers, returns, and
// replies later from the goroutine that ends the wait. Record bytes are never
// copied: a produce's are written from its frame, a fetch's are spans of
// files in the response.
//
// # A full disk
//
// While a log directory has less than log.dir.reserve.bytes left, Produce
// answers KAFKA_STORAGE_ERROR for its partitions. Clients take it as
// retriable and try again until their delivery timeout, so writes continue by
// themselves once there is space; fetches, DeleteRecords and metadata go on
// meanwhile.
package data

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/replica"
	"milena/internal/server"
)

// LogDirs is what the handlers need of the log directories; *logdir.Set has it.
type LogDirs interface {
	Dirs() []logdir.DirInfo
	// Logs calls fn for every open log until it returns false.
	Logs(fn func(*partlog.Log) bool)
	// Futures calls fn for every log that is to replace one in another directory.
	Futures(fn func(*partlog.Log) bool)
	// SaveOffsets makes the log starts durable.
	SaveOffsets() error
}

var _ LogDirs = (*logdir.Set)(nil)

// Options are what the handlers need. All are required but FetchMaxBytes.
type Options struct {
	Replicas *replica.Manager
	Dirs     LogDirs
	// Image returns the broker's current metadata.
	Image func() *meta.Image
	// ProducerIDs returns the first of a block of new producer ids and its
	// length, from the controller (AllocateProducerIds).
	ProducerIDs func(ctx context.Context) (start int64, n int32, err error)
	// FetchMaxBytes is fetch.max.bytes; 0 means 55 MiB.
	FetchMaxBytes int
	// RackAware sends consumers to an in-sync replica in their rack (KIP-392):
	// replica.selector.class is the rack-aware selector.
	RackAware bool
	Logger    *slog.Logger
}

// Handlers answer the data APIs.
type Handlers struct {
	o        Options
	ids      producerIDs
	produces sync.Pool // of *produce
}

// New returns the handlers.
func New(o Options) *Handlers {
	if o.FetchMaxBytes <= 0 {
		o.FetchMaxBytes = 55 << 20
	}
	h := &Handlers{o: o}
	h.ids.allocate = o.ProducerIDs
	return h
}

// Register adds the handlers to t.
func (h *Handlers) Register(t server.Table) {
	t[api.Produce] = h.Produce
	t[api.Fetch] = h.Fetch
	t[api.ListOffsets] = h.ListOffsets
	t[api.DeleteRecords] = h.DeleteRecords
	t[api.InitProducerID] = h.InitProducerID
	t[api.OffsetForLeaderEpoch] = h.OffsetForLeaderEpoch
	t[api.AlterReplicaLogDirs] = h.AlterReplicaLogDirs
	t[api.DescribeLogDirs] = h.DescribeLogDirs
	t[api.DescribeProducers] = h.DescribeProducers
}

// refuseBody answers a body that can't be decoded: it closes the connection,
// as client and broker don't speak the same language.
func (h *Handlers) refuseBody(r *server.Request, err error) {
	h.o.Logger.Warn("malformed request", "api", r.Key.String(), "version", r.Version, "client", r.ClientID, "error", err)
	r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
}

// decode reads the body into req and reports whether that worked.
func (h *Handlers) decode(r *server.Request, req kmsg.Request) bool {
	err := r.Decode(req)
	if err != nil {
		h.refuseBody(r, err)
	}
	return err == nil
}

// reply answers with msg, counted under code.
func reply(r *server.Request, msg kmsg.Response, code api.Code) {
	r.Reply(server.Response{Msg: msg, Code: code})
}

// code is the number an error has in a response, and the error's own message.
// A code that the request's API doesn't know at its version is for the caller
// to map.
func code(err error) (api.Code, *string) {
	c, msg := api.CodeOf(err)
	if c == api.NoError || msg == "" {
		return c, nil
	}
	return c, &msg
}

// log writes errors that nobody gave a code: faults of this broker. Those that
// tell a client what it did are its own business, and a failed directory was
// reported when it failed.
func (h *Handlers) log(name, topic string, partition int32, err error) {
	var coded *api.Error
	if err == nil || errors.As(err, &coded) && coded.Code != api.UnknownServerError {
		return
	}
	h.o.Logger.Error("request failed", "api", name, "topic", topic, "partition", partition, "error", err)
}

// leaderOf is the leader and epoch of a partition for a client that asked the
// wrong broker, and the leader's address at the client's listener.
func (h *Handlers) leaderOf(topic string, id ids.UUID, partition int32, listener string) (leader, epoch int32, at meta.Endpoint, ok bool) {
	img := h.o.Image()
	t := img.TopicByID(id)
	if id.IsZero() {
		t = img.TopicByName(topic)
	}
	p := t.Partition(partition)
	if p == nil || p.Leader < 0 || p.Leader == h.o.Replicas.NodeID() {
		return -1, -1, at, false // none, or this broker by metadata, which has stopped leading by itself
	}
	b := img.Broker(p.Leader)
	if b == nil {
		return -1, -1, at, false
	}
	at, ok = b.Endpoint(listener)
	return p.Leader, p.LeaderEpoch, at, ok
}
