package data

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/replica"
	"milena/internal/server"
)

// Fetch: API 1, versions 4 to 18.
//
// Behaviour:
//   - with a session (KIP-227) only what changed is looked at and named in the
//     response; without one every partition asked for is named
//   - the first batch found is returned whole, even above the byte limits
//   - waits up to MaxWait for MinBytes; an error or a diverging epoch ends the
//     wait, and so does the session's next request
//   - with replica.selector.class set a consumer with a rack is sent to an
//     in-sync replica in it (KIP-392); a follower answers consumers with a rack
//     up to its own high watermark
//   - a follower is answered up to the log end, and at once when there is a
//     high watermark that it doesn't know
//
// Version notes: 7 sessions, 9 CurrentLeaderEpoch (KIP-320), 12
// LastFetchedEpoch and DivergingEpoch (KIP-595), 13 topic ids (KIP-516), 15
// replica state as a tag (KIP-903), 16 current leader (KIP-951).
func (h *Handlers) Fetch(ctx context.Context, r *server.Request) {
	var req kmsg.FetchRequest
	if err := r.DecodeAliased(&req); err != nil {
		h.refuseBody(r, err)
		return
	}
	w := &fetch{h: h, r: r, replicaID: req.ReplicaID, replicaEpoch: -1, committed: req.IsolationLevel == 1}
	if r.Version >= 15 {
		w.replicaID, w.replicaEpoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	if w.replicaID < 0 {
		w.replicaID = -1 // -2 is a consumer that debugs
	}
	if id := h.o.Image().ClusterID; req.ClusterID != nil && *req.ClusterID != id {
		w.refuse(api.Errorf(api.InconsistentClusterID, "the request is for cluster %s, this is cluster %s", *req.ClusterID, id))
		return
	}
	w.maxBytes = max(0, int(req.MaxBytes))
	if w.replicaID < 0 {
		w.maxBytes = min(w.maxBytes, h.o.FetchMaxBytes)
	}
	w.minBytes = min(int(req.MinBytes), w.maxBytes)
	now := time.Now()
	if w.replicaID >= 0 {
		h.o.Replicas.Heard(w.replicaID, now)
	} else if req.Rack != "" {
		w.rack = strings.Clone(req.Rack)
	}
	w.deadline = now.Add(time.Duration(max(0, req.MaxWaitMillis)) * time.Millisecond)

	f, err := h.o.Replicas.Sessions().Begin(sessionRequest(&req, r.Version, w.replicaID, w.committed), now)
	if err != nil {
		w.refuse(err)
		return
	}
	w.f = f
	if f.Session != nil {
		w.sessionID = f.Session.ID
	}
	w.try(ctx)
}

// sessionRequest is what the sessions need of a request. It shares no memory
// with the frame.
func sessionRequest(req *kmsg.FetchRequest, version int16, replicaID int32, committed bool) *replica.FetchRequest {
	sr := &replica.FetchRequest{
		SessionID: req.SessionID, Epoch: req.SessionEpoch, ByID: version >= 13, ReplicaID: replicaID, Committed: committed,
	}
	if version < 7 {
		sr.SessionID, sr.Epoch = 0, replica.SessionFinal
	}
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	sr.Parts = make([]replica.FetchPart, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		key := replica.FetchKey{ID: t.TopicID, Topic: strings.Clone(t.Topic)}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key.Partition = p.Partition
			sr.Parts = append(sr.Parts, replica.FetchPart{
				Key: key, Offset: p.FetchOffset, LogStart: p.LogStartOffset, MaxBytes: p.PartitionMaxBytes,
				CurrentEpoch: p.CurrentLeaderEpoch, LastFetched: p.LastFetchedEpoch, KnownHW: p.HighWatermark,
			})
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			sr.Forgotten = append(sr.Forgotten, replica.FetchKey{ID: t.TopicID, Topic: strings.Clone(t.Topic), Partition: p})
		}
	}
	return sr
}

// fetch is one request under way.
type fetch struct {
	h         *Handlers
	r         *server.Request
	f         *replica.Fetch
	sessionID int32
	replicaID int32
	// replicaEpoch is the follower's broker epoch, -1 if it didn't say.
	replicaEpoch int64
	rack         string // the consumer's, "" if it has none
	committed    bool
	maxBytes     int
	minBytes     int
	deadline     time.Time

	// expired is set when the wait has to end: by the deadline or because the
	// connection is gone.
	expired atomic.Bool
	wait    replica.FetchWait
	// ends undo what ends the wait, once it was armed; only the goroutine that
	// runs try touches it.
	ends []func() bool
}

// try looks at the partitions and replies, or waits for more. One goroutine
// at a time runs it: the handler's first, then that of a wake-up.
func (w *fetch) try(ctx context.Context) {
	for {
		var resp *fetchwire.Response
		var failed api.Code
		open := w.f.Run(func(last bool) {
			results, bytes, now := w.h.o.Replicas.Look(w.f.Set, replica.Limits{
				MaxBytes: w.maxBytes, ReplicaID: w.replicaID, ReplicaEpoch: w.replicaEpoch,
				AnyReplica: w.rack != "", Rack: w.rack, RackAware: w.h.o.RackAware, All: w.f.All,
			}, nil)
			if now || last || bytes >= w.minBytes || w.over() {
				resp, failed = w.respond(results)
				return
			}
			replica.Release(results)
			w.arm(ctx)
			w.wait.Need = int64(w.minBytes - bytes)
			w.wait.Fire = func() { w.try(ctx) }
			w.f.Set.Wait(&w.wait)
		})
		switch {
		case !open:
			w.refuse(api.Errorf(api.FetchSessionIDNotFound, "fetch session %d was closed", w.sessionID))
			return
		case resp != nil:
			w.close()
			w.send(resp, failed)
			return
		case !w.expired.Load() || !w.f.Set.StopWaiting(&w.wait):
			return
		}
		// The end came before there was a wait to end: look once more.
	}
}

// over reports whether there is nothing to wait for any more.
func (w *fetch) over() bool {
	return w.expired.Load() || w.f.Session == nil && len(w.f.All) == 0 || !time.Now().Before(w.deadline)
}

// arm has the wait end at the deadline and with the connection.
func (w *fetch) arm(ctx context.Context) {
	if w.ends != nil {
		return
	}
	end := func() {
		w.expired.Store(true)
		if w.f.Set.StopWaiting(&w.wait) {
			w.try(ctx)
		}
	}
	t := time.AfterFunc(time.Until(w.deadline), end)
	w.ends = []func() bool{t.Stop, context.AfterFunc(ctx, end)}
}

// close ends what the fetch holds.
func (w *fetch) close() {
	for _, end := range w.ends {
		end()
	}
	if w.f != nil {
		w.f.End()
	}
}

// refuse answers the whole request with an error about its session.
func (w *fetch) refuse(err error) {
	w.close()
	c, _ := code(err)
	resp := fetchwire.Response{ErrorCode: c}
	w.send(&resp, c)
}

// respond makes the answer of what was found. The session is held.
func (w *fetch) respond(results []replica.PartResult) (*fetchwire.Response, api.Code) {
	resp := &fetchwire.Response{SessionID: w.sessionID}
	var failed api.Code
	for i := range results {
		res := &results[i]
		if named := w.f.Session == nil || res.Told(); !named && w.f.All == nil {
			continue
		}
		p := topicOf(resp, res.Part.Key)
		w.partition(resp, p, res)
		if failed == api.NoError {
			failed = p.ErrorCode
		}
	}
	return resp, failed
}

// topicOf adds a partition to the response, under its topic.
func topicOf(resp *fetchwire.Response, k replica.FetchKey) *fetchwire.ResponsePartition {
	last := len(resp.Topics) - 1
	if last < 0 || resp.Topics[last].Topic != k.Topic || resp.Topics[last].TopicID != k.ID {
		resp.Topics = append(resp.Topics, fetchwire.ResponseTopic{Topic: k.Topic, TopicID: k.ID})
		last++
	}
	t := &resp.Topics[last]
	t.Partitions = append(t.Partitions, fetchwire.NewResponsePartition(k.Partition))
	return &t.Partitions[len(t.Partitions)-1]
}

func (w *fetch) partition(resp *fetchwire.Response, out *fetchwire.ResponsePartition, res *replica.PartResult) {
	w.h.o.Replicas.CountFetch(res, w.replicaID >= 0)
	if res.Err != nil {
		out.ErrorCode, _ = code(res.Err)
		w.h.log("Fetch", res.Part.Key.Topic, res.Part.Key.Partition, res.Err)
		if w.r.Version >= 16 && (out.ErrorCode == api.NotLeaderOrFollower || out.ErrorCode == api.FencedLeaderEpoch) {
			w.hint(resp, out, res.Part.Key.Topic, res.Part.Key.ID)
		}
		return
	}
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = res.HighWatermark, res.LastStable, res.LogStart
	out.Records, out.PreferredReadReplica = res.Spans, res.Preferred
	if res.Diverges() {
		out.DivergingEpoch = &fetchwire.EpochEndOffset{Epoch: res.DivergingEpoch, EndOffset: res.DivergingEnd}
	}
	if !w.committed {
		return
	}
	out.AbortedTransactions = make([]fetchwire.AbortedTransaction, len(res.Aborted))
	for i, a := range res.Aborted {
		out.AbortedTransactions[i] = fetchwire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
	}
}

// hint tells the client who leads the partition (KIP-951).
func (w *fetch) hint(resp *fetchwire.Response, out *fetchwire.ResponsePartition, topic string, id ids.UUID) {
	leader, epoch, at, ok := w.h.leaderOf(topic, id, out.Partition, w.r.Conn.ListenerName())
	if !ok {
		return
	}
	out.CurrentLeader = &fetchwire.LeaderAndEpoch{LeaderID: leader, LeaderEpoch: epoch}
	for i := range resp.Brokers {
		if resp.Brokers[i].NodeID == leader {
			return
		}
	}
	resp.Brokers = append(resp.Brokers, fetchwire.NodeEndpoint{NodeID: leader, Host: at.Host, Port: int32(at.Port)})
}

func (w *fetch) send(resp *fetchwire.Response, failed api.Code) {
	pieces, err := resp.Pieces(w.r.Version)
	if err != nil {
		w.h.o.Logger.Error("fetch response can't be encoded", "client", w.r.ClientID, "error", err)
		releaseRecords(resp)
		w.r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.UnknownServerError})
		return
	}
	w.r.Reply(server.Response{Pieces: pieces, Code: failed})
}

func releaseRecords(resp *fetchwire.Response) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			for _, s := range resp.Topics[i].Partitions[j].Records {
				s.Release()
			}
		}
	}
}
