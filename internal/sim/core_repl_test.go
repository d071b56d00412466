package sim

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
	"milena/internal/replica/follow"
)

// repl is a broker's replication: the core of a fetch loop for each leader it follows, with one request in flight, and
// the fetches of others that wait here for data.
type repl struct {
	loops  map[int32]*fetchLoop
	of     map[*replica.Partition]*fetchLoop
	parked []*parkedFetch
}

type fetchLoop struct {
	b       *broker
	leader  int32
	core    *follow.Core
	running bool
}

type parkedFetch struct {
	answer func()
	done   bool
}

const fetchWait = 60 * time.Millisecond

func (b *broker) startRepl() {
	b.repl.loops, b.repl.of = map[int32]*fetchLoop{}, map[*replica.Partition]*fetchLoop{}
	b.mgr.OnFollow(b.changedLeader)
	b.after(lagMax/2, b.lagging)
}

// changedLeader hands a partition to the loop of the leader that it follows now, if it does.
func (b *broker) changedLeader(p *replica.Partition) {
	old := b.repl.of[p]
	leader, _, ok := p.Following()
	if old != nil && ok && old.leader == leader {
		return
	}
	if old != nil {
		old.core.Remove(p)
		delete(b.repl.of, p)
	}
	if !ok {
		return
	}
	l := b.repl.loops[leader]
	if l == nil {
		l = &fetchLoop{b: b, leader: leader, core: follow.NewCore(b.id, leader, func() follow.Settings {
			return follow.Settings{MaxBytes: 3000, MaxWait: fetchWait, Backoff: 100 * time.Millisecond}
		}, b.c.logger(b.h))}
		b.repl.loops[leader] = l
	}
	l.core.Add(p)
	b.repl.of[p] = l
	if !l.running {
		l.running = true
		b.after(time.Millisecond, l.next)
	}
}

// appliedMeta follows a change of the metadata.
func (b *broker) appliedMeta(*meta.Delta) {
	b.wake()
	b.sendAlters()
}

// next fetches once.
func (l *fetchLoop) next() {
	b := l.b
	if l.core.Len() == 0 {
		l.running = false
		return
	}
	req, rest := l.core.Request(time.Now(), b.epoch)
	if req == nil {
		b.after(max(rest, time.Millisecond), l.next)
		return
	}
	to := b.c.hosts[l.leader]
	call(b.c.net, b.h, to, rpcTimeout, func(reply func(*fetchwire.Response, error)) {
		to.brk.serveFollower(req, reply)
	}, func(resp *fetchwire.Response, err error) {
		pause := time.Millisecond
		var lookups []follow.Lookup
		if err == nil {
			lookups, err = l.core.Handle(time.Now(), resp)
		}
		if err != nil {
			l.core.Reset()
			pause = 50 * time.Millisecond
		}
		left := len(lookups)
		if left == 0 {
			b.after(pause, l.next)
		}
		for _, x := range lookups { // nothing is fetched before they are answered, as in the real loop
			l.lookUp(x, func() {
				if left--; left == 0 {
					b.after(pause, l.next)
				}
			})
		}
	})
}

// lookUp asks the leader for the ends of its log. done is called when that is dealt with.
func (l *fetchLoop) lookUp(x follow.Lookup, done func()) {
	type ends struct{ start, end int64 }
	to, req := l.b.c.hosts[l.leader], x.Request(replica.TimeLatest)
	call(l.b.c.net, l.b.h, to, rpcTimeout, func(reply func(ends, error)) {
		rt := req.Topics[0]
		p, err := to.brk.mgr.Get(rt.Topic, rt.Partitions[0].Partition)
		var found [2]partlog.TimestampOffset
		for i, at := range []int64{replica.TimeEarliest, replica.TimeLatest} {
			if err == nil {
				found[i], err = p.FindOffset(rt.Partitions[0].CurrentLeaderEpoch, at, replica.ReadAll)
			}
		}
		e := ends{found[0].Offset, found[1].Offset}
		reply(e, err)
	}, func(e ends, err error) {
		l.core.LookedUp(time.Now(), x, e.start, e.end, err)
		done()
	})
}

// serveFollower answers a follower's fetch, once there is data or after a while.
func (b *broker) serveFollower(req *fetchwire.Request, reply func(*fetchwire.Response, error)) {
	b.mgr.Heard(req.ReplicaID, time.Now())
	resp, data := b.readFor(req)
	b.sendAlters()
	if data {
		reply(resp, nil)
		return
	}
	w := &parkedFetch{}
	w.answer = func() {
		if w.done {
			return
		}
		w.done = true
		resp, _ := b.readFor(req)
		reply(resp, nil)
	}
	b.repl.parked = append(b.repl.parked, w)
	b.after(fetchWait, w.answer)
}

// readFor reads what a follower asks for. data says that it is worth an answer.
func (b *broker) readFor(req *fetchwire.Request) (resp *fetchwire.Response, data bool) {
	resp = &fetchwire.Response{}
	for _, t := range req.Topics {
		rt := fetchwire.ResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for i := range t.Partitions {
			rp := b.readPart(req, topicPartition{topic: t.Topic, partition: t.Partitions[i].Partition, id: t.TopicID}, &t.Partitions[i])
			data = data || rp.ErrorCode != api.NoError || len(rp.Records) > 0 || rp.DivergingEpoch != nil || rp.HighWatermark > t.Partitions[i].HighWatermark
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, data
}

func (b *broker) readPart(req *fetchwire.Request, tp topicPartition, f *fetchwire.RequestPartition) fetchwire.ResponsePartition {
	out := fetchwire.NewResponsePartition(f.Partition)
	p, err := b.replica(tp)
	var r replica.ReadResult
	if err == nil {
		r, err = p.Read(replica.ReadParams{
			Offset: f.FetchOffset, MaxBytes: int(f.MaxBytes), MinOne: true, ReplicaID: req.ReplicaID, ReplicaEpoch: req.ReplicaEpoch, ReplicaStart: f.LogStartOffset,
			CurrentEpoch: f.CurrentLeaderEpoch, LastFetched: f.LastFetchedEpoch,
		})
	}
	if err != nil {
		out.ErrorCode, _ = api.CodeOf(err)
		return out
	}
	out.HighWatermark, out.LogStartOffset = r.HighWatermark, r.LogStart
	if r.Diverges() {
		out.DivergingEpoch = &fetchwire.EpochEndOffset{Epoch: r.DivergingEpoch, EndOffset: r.DivergingEnd}
	}
	if raw := spanBytes(b.c, r.Spans); len(raw) > 0 {
		out.Records = []record.Span{record.MemSpan(raw)}
	}
	r.Release()
	return out
}

// appended has waiting followers' fetches answered.
func (b *broker) appended(*replica.Partition) { b.wake() }

func (b *broker) wake() {
	parked := b.repl.parked
	b.repl.parked = nil
	for _, w := range parked {
		if !w.done {
			b.after(b.c.between(0, 2*time.Millisecond), w.answer)
		}
	}
	b.repl.parked = slices.DeleteFunc(b.repl.parked, func(w *parkedFetch) bool { return w.done })
}
