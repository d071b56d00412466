package sim

import (
	"fmt"
	"time"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// Clients live outside the hosts: their messages take a moment and may get lost on the way, and they know the metadata of some broker.

// ask sends a request to a host and hands its answer to done, or errNet. Late answers are dropped.
func ask[T any](c *cores, to *host, timeout time.Duration, serve func(reply func(T, error)), done func(T, error)) {
	over := false
	end := func(v T, err error) {
		if !over && len(c.failed) == 0 {
			over = true
			done(v, err)
		}
	}
	lost := func() bool { return c.net.loss > 0 && c.chance(c.net.loss) }
	if to.up && !lost() {
		c.after(c.between(50*time.Microsecond, c.net.delay), to.live(func() {
			to.work(func() {
				serve(func(v T, err error) {
					if !lost() {
						c.after(c.between(50*time.Microsecond, c.net.delay), func() { end(v, err) })
					}
				})
			})
		}))
	}
	c.after(timeout, func() {
		var none T
		end(none, errNet)
	})
}

// view is what a client knows of a partition: like real ones it takes no older leader epoch for a newer one.
type view struct {
	c     *cores
	tp    topicPartition
	epoch int32
}

// leader is who leads the partition as some broker sees it, nil if that knows none, or less than the client.
func (v *view) leader() *host {
	h := pick(v.c.loop, v.c.hosts)
	if !h.up {
		return nil
	}
	p := v.tp.in(h.brk.img)
	if p == nil || p.Leader < 0 || p.LeaderEpoch < v.epoch {
		return nil
	}
	v.epoch = p.LeaderEpoch
	return v.c.hosts[p.Leader]
}

// topicPartition is a partition of a topic; id is set where topics of one name come and go.
type topicPartition struct {
	topic     string
	partition int32
	id        ids.UUID
}

func (t topicPartition) String() string {
	if t.id.IsZero() {
		return tpName(t.topic, t.partition)
	}
	return tpName(t.topic, t.partition) + "@" + t.id.String()
}

// in is what an image knows of the partition, nil if nothing.
func (t topicPartition) in(img *meta.Image) *meta.Partition {
	if topic := img.TopicByName(t.topic); topic == nil || !t.id.IsZero() && t.id != topic.ID {
		return nil
	}
	return img.Partition(t.topic, t.partition)
}

// replica is the broker's replica of a partition.
func (b *broker) replica(t topicPartition) (*replica.Partition, error) {
	if t.id.IsZero() {
		return b.mgr.Get(t.topic, t.partition)
	}
	return b.mgr.GetByID(t.id, t.partition)
}

// producer writes to one partition with acks=all, idempotent, one batch at a time, and sends a batch again until it is acknowledged.
type producer struct {
	view
	id    int
	n     int // records so far
	idle  bool
	batch []string
	first int  // sequence of the batch's first record
	over  bool // its topic is about to be deleted
}

func (p *producer) next() {
	if p.over {
		return
	}
	if p.c.quiet {
		p.idle = true
		return
	}
	p.idle = false
	p.first, p.batch = p.n, nil
	for range 1 + p.c.rnd.IntN(3) {
		v := fmt.Sprintf("p%d-%d", p.id, p.n)
		p.c.hist.send(p.tp.String(), p.id, p.n, v, time.Now())
		p.batch = append(p.batch, v)
		p.n++
	}
	p.try()
}

func (p *producer) encode() []byte {
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: int64(1000 + p.id), BaseSequence: int32(p.first)}})
	for _, v := range p.batch {
		b.Append(record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	out, err := b.Batch()
	if err != nil {
		p.c.failf("producer %d: %v", p.id, err)
	}
	return out
}

type produced struct {
	base int64
	isr  []int32
}

func (p *producer) try() {
	if p.over {
		return
	}
	to := p.leader()
	if to == nil {
		p.c.after(p.c.between(20*time.Millisecond, 80*time.Millisecond), p.try)
		return
	}
	ask(p.c, to, 2*time.Second, func(reply func(produced, error)) {
		to.brk.produce(p.tp, p.encode(), reply)
	}, func(r produced, err error) {
		switch {
		case p.over:
			return
		case err == nil:
			p.c.logf("producer %d: records %d to %d acknowledged by host %d at %s offset %d", p.id, p.first, p.first+len(p.batch)-1, to.id, p.tp, r.base)
			for i, v := range p.batch {
				at := r.base
				if at >= 0 {
					at += int64(i)
				}
				p.c.hist.ack(p.tp.String(), v, at, r.isr)
			}
			p.c.acked[p.tp]++
			p.c.after(p.c.between(time.Millisecond, 60*time.Millisecond), p.next)
			return
		case isCode(err, api.OutOfOrderSequenceNumber), isCode(err, api.InvalidProducerEpoch), isCode(err, api.UnknownProducerID):
			p.refused(err)
			return
		}
		p.c.logf("producer %d: record %d at host %d: %v", p.id, p.first, to.id, err)
		p.c.after(p.c.between(10*time.Millisecond, 100*time.Millisecond), p.try)
	})
}

// refused is final to a real client: an acknowledged record must be missing.
func (p *producer) refused(err error) {
	p.c.check.sequence(p, err)
	// Where the loss is one that must be borne, the producer begins anew.
	p.id += 100
	p.n = 0
	p.c.after(50*time.Millisecond, p.next)
}

// produce is what a Produce request with acks=all does.
func (b *broker) produce(tp topicPartition, batch []byte, reply func(produced, error)) {
	p, err := b.replica(tp)
	if err == nil {
		err = b.dirs.CheckSpace(p.Log(), int64(len(batch)))
	}
	if err != nil {
		reply(produced{}, err)
		return
	}
	info, err := p.Append(batch, replica.AppendOptions{Origin: partlog.OriginClient, Acks: -1, Epoch: replica.AnyEpoch})
	if err != nil {
		reply(produced{}, err)
		return
	}
	b.appended(p)
	p.AwaitHW(info.LastEpoch, info.LastOffset+1, func(err error) {
		if err == nil {
			err = p.CheckMinISR()
		}
		reply(produced{base: info.FirstOffset, isr: p.InSync()}, err)
	})
}

// consumer reads one partition from its start, over and over.
type consumer struct {
	view
	next int64
	last int32 // epoch of the last batch it has
}

type fetched struct {
	batches []byte
	hw      int64
	isr     []int32
	diverge bool
}

func (k *consumer) poll() {
	again := func() { k.c.after(k.c.between(5*time.Millisecond, 60*time.Millisecond), k.poll) }
	to := k.leader()
	if to == nil {
		again()
		return
	}
	ask(k.c, to, time.Second, func(reply func(fetched, error)) {
		to.brk.fetch(k.tp, k.epoch, k.next, k.last, reply)
	}, func(f fetched, err error) {
		defer again()
		switch {
		case isCode(err, api.OffsetOutOfRange):
			k.c.logf("consumer of %s: host %d says that offset %d is out of range: %v", k.tp, to.id, k.next, err)
			k.c.hist.gone(k.tp.String(), k.next, "OFFSET_OUT_OF_RANGE")
			k.next, k.last = 0, -1
		case err != nil:
		case f.diverge:
			k.c.logf("consumer of %s: host %d says that the log diverges before offset %d of epoch %d", k.tp, to.id, k.next, k.last)
			k.c.hist.gone(k.tp.String(), k.next, "that the log was truncated")
			k.next, k.last = 0, -1
		default:
			k.take(f)
		}
	})
}

func (k *consumer) take(f fetched) {
	for b, err := range record.Batches(f.batches) {
		if err != nil {
			k.c.failf("consumer of %s: %v", k.tp, err)
			return
		}
		for r, err := range b.Records(0) {
			if err != nil {
				k.c.failf("consumer of %s: %v", k.tp, err)
				return
			}
			if r.Offset >= k.next {
				k.c.hist.consume(k.tp.String(), r.Offset, f.hw, string(r.Value), f.isr)
			}
		}
		k.next, k.last = max(k.next, b.NextOffset()), b.LeaderEpoch()
	}
}

// fetch is what a consumer's Fetch request does.
func (b *broker) fetch(tp topicPartition, epoch int32, offset int64, last int32, reply func(fetched, error)) {
	p, err := b.replica(tp)
	if err != nil {
		reply(fetched{}, err)
		return
	}
	r, err := p.Read(replica.ReadParams{Offset: offset, MaxBytes: 2000, MinOne: true, ReplicaID: -1, CurrentEpoch: epoch, LastFetched: last})
	if err != nil {
		reply(fetched{}, err)
		return
	}
	out := fetched{hw: r.HighWatermark, isr: p.InSync(), diverge: r.Diverges()}
	out.batches = spanBytes(b.c, r.Spans)
	r.Release()
	b.c.check.served(b, tp, p, out)
	reply(out, nil)
}

// spanBytes copies spans, without a batch that is cut.
func spanBytes(c *cores, spans []record.Span) []byte {
	out, err := joined(spans)
	if err != nil && !c.badRead(err) {
		c.failf("read: %v", err)
	}
	return out
}

// committer commits growing offsets of a group and reads them back.
type committer struct {
	view
	id   string
	n    int64
	wait int64 // an offset whose commit isn't acknowledged yet; -1: none
}

const committedTopic = "t"

func (k *committer) step() {
	if k.c.quiet && k.wait < 0 {
		k.c.after(50*time.Millisecond, k.step)
		return
	}
	again := func() { k.c.after(k.c.between(10*time.Millisecond, 150*time.Millisecond), k.step) }
	to := k.leader()
	if to == nil {
		again()
		return
	}
	if k.wait < 0 && k.c.chance(0.4) {
		k.fetch(to, again)
		return
	}
	if k.wait < 0 {
		k.n++
		k.wait = k.n
		k.c.hist.tryCommit(k.id, k.n)
	}
	at := time.Now()
	ask(k.c, to, time.Second, func(reply func(offsetGot, error)) {
		brk, epoch := to.brk, to.brk.group.epoch
		brk.group.commit(k.id, committedTopic, 0, k.n, func(err error) { reply(offsetGot{isr: brk.offsetsISR(), epoch: epoch}, err) })
	}, func(g offsetGot, err error) {
		if err == nil {
			k.c.logf("group %s: offset %d committed at host %d in epoch %d", k.id, k.n, to.id, g.epoch)
			k.c.hist.ackCommit(k.id, g.epoch, k.n, vouched{g.isr, at, time.Now()})
			k.wait = -1
		}
		again()
	})
}

// offsetGot is a coordinator's answer.
type offsetGot struct {
	offset int64
	epoch  int32
	isr    []int32
}

func (k *committer) fetch(to *host, again func()) {
	at := time.Now()
	ask(k.c, to, time.Second, func(reply func(offsetGot, error)) {
		brk, epoch := to.brk, to.brk.group.epoch
		brk.group.fetch(k.id, committedTopic, 0, func(o int64, err error) { reply(offsetGot{o, epoch, brk.offsetsISR()}, err) })
	}, func(g offsetGot, err error) {
		if err == nil {
			k.c.hist.fetched(k.id, at, g.epoch, g.offset, vouched{g.isr, at, time.Now()})
		}
		again()
	})
}

// offsetsISR are the in-sync replicas of __consumer_offsets-0.
func (b *broker) offsetsISR() []int32 {
	if p, err := b.mgr.Get(group.Topic, 0); err == nil {
		return p.InSync()
	}
	return nil
}
