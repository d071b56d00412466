package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/mirrormsg"
	"milena/internal/record"
	"milena/internal/replica"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// mirrorWriter writes to the mirrored topic on its side, all the time, a record at a time: a mirror has to refuse it.
type mirrorWriter struct {
	p     *mirrorCores
	c     *cores
	id    int
	i     int
	count [mirrorPartitions]int
	views [mirrorPartitions]view
}

func (w *mirrorWriter) next() {
	p := w.p
	part := w.i % mirrorPartitions
	if w.c.newest().TopicByName(mirrorTopic) == nil || p.holding {
		p.after(50*time.Millisecond, w.next)
		return
	}
	w.i++
	writer := fmt.Sprintf("%s%d/%d", p.check.names[w.c.side], w.id, part)
	x := &written{value: fmt.Sprintf("%s/%d", writer, w.count[part]), side: w.c.side, writer: writer, n: w.count[part], part: int32(part), at: time.Now(), offset: -1}
	w.count[part]++
	p.check.records[x.value] = x
	p.busy++
	p.pids++
	// A refusal says that the record isn't there only if the topic was a mirror's before the first try.
	mirrored := w.c.wish() == mirrormsg.Mirroring || w.c.wish() == mirrormsg.Paused
	if v := &w.views[part]; v.c == nil {
		v.c, v.tp = w.c, topicPartition{topic: mirrorTopic, partition: x.part}
		p.views[w.c.side] = append(p.views[w.c.side], v)
	}
	w.try(x, p.pids, mirrored, 0)
}

func (w *mirrorWriter) try(x *written, pid int64, mirrored bool, tries int) {
	p, v := w.p, &w.views[x.part]
	end := func(pause time.Duration) {
		p.busy--
		p.after(pause, w.next)
	}
	again := func() {
		if tries >= 40 {
			end(50 * time.Millisecond)
			return
		}
		p.after(p.between(10*time.Millisecond, 100*time.Millisecond), func() { w.try(x, pid, mirrored, tries+1) })
	}
	to := v.leader()
	if to == nil {
		again()
		return
	}
	ask(w.c, to, time.Second, func(reply func(produced, error)) {
		b, err := record.Build(record.BuilderOptions{Producer: &record.Producer{ID: pid}}, record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(x.value)})
		if err != nil {
			reply(produced{}, err)
			return
		}
		to.brk.produce(v.tp, b, reply)
	}, func(r produced, err error) {
		switch {
		case err == nil:
			if r.base >= 0 {
				x.acked, x.offset = true, r.base
			}
			p.acked[w.c.side][x.part]++
			w.c.logf("%s of partition %d is at offset %d, says host %d", x.value, x.part, r.base, to.id)
			end(p.between(20*time.Millisecond, 160*time.Millisecond))
		case isCode(err, api.PolicyViolation):
			x.refused = mirrored
			end(p.between(100*time.Millisecond, 500*time.Millisecond)) // it isn't this side's turn
		default:
			again()
		}
	})
}

// mirrorReader reads the mirrored topic on its side, as a consumer does, over and over.
type mirrorReader struct {
	p *mirrorCores
	c *cores
}

func (r *mirrorReader) begin() {
	for part := range int32(mirrorPartitions) {
		k := &consumer{view: view{c: r.c, tp: topicPartition{topic: mirrorTopic, partition: part}}, last: -1}
		r.p.views[r.c.side] = append(r.p.views[r.c.side], &k.view)
		r.p.after(0, func() { r.poll(k) })
	}
}

func (r *mirrorReader) poll(k *consumer) {
	again := func() {
		r.p.after(r.p.between(50*time.Millisecond, 250*time.Millisecond), func() { r.poll(k) })
	}
	to := k.leader()
	if to == nil {
		again()
		return
	}
	at := time.Now()
	ask(r.c, to, time.Second, func(reply func(fetched, error)) {
		p, err := to.brk.replica(k.tp)
		if err != nil {
			reply(fetched{}, err)
			return
		}
		x, err := p.Read(replica.ReadParams{Offset: k.next, MaxBytes: 2000, MinOne: true, ReplicaID: -1, CurrentEpoch: k.epoch, LastFetched: k.last})
		if err != nil {
			reply(fetched{}, err)
			return
		}
		out := fetched{hw: x.HighWatermark, diverge: x.Diverges(), batches: spanBytes(r.c, x.Spans)}
		x.Release()
		reply(out, nil)
	}, func(f fetched, err error) {
		defer again()
		switch {
		case isCode(err, api.OffsetOutOfRange), f.diverge, at.Before(r.p.remade[r.c.side]):
			k.next, k.last = 0, -1
		case err == nil:
			for b, err := range record.Batches(f.batches) {
				if err != nil {
					r.c.failf("reader: %v", err)
					return
				}
				if !b.IsControl() {
					for x, err := range b.Records(0) {
						if err == nil && x.Offset >= k.next {
							r.p.check.served(r.c, k.tp.partition, x, f.hw)
						}
					}
				}
				k.next, k.last = max(k.next, b.NextOffset()), b.LeaderEpoch()
			}
		}
	})
}

// mirrorCommitter commits offsets of a group without members while its side is the one to write to: the source of the leg under way.
type mirrorCommitter struct {
	p *mirrorCores
	c *cores
	n int
}

func (k *mirrorCommitter) next() {
	p := k.p
	k.n++
	again := func() { p.after(p.between(100*time.Millisecond, 300*time.Millisecond), k.next) }
	part := int32(k.n % mirrorPartitions)
	from, to := k.c.knownLeader(mirrorTopic, part), k.c.knownLeader(group.Topic, 0)
	if p.holding || len(p.legs) == 0 || p.legs[len(p.legs)-1].src != k.c || from == nil || to == nil {
		again()
		return
	}
	ask(k.c, from, time.Second, func(reply func(offsetAt, error)) {
		reply(from.brk.offsetAt(topicPartition{topic: mirrorTopic, partition: part}, -1, replica.TimeLatest, replica.ReadUncommitted))
	}, func(o offsetAt, err error) {
		if err != nil || o.offset <= 0 || len(p.legs) > 0 && p.legs[len(p.legs)-1].src != k.c {
			again()
			return
		}
		ask(k.c, to, time.Second, func(reply func(struct{}, error)) {
			to.brk.group.commitAt(mirrorGroup, mirrorTopic, part, o.offset, o.epoch, func(err error) { reply(struct{}{}, err) })
		}, func(_ struct{}, err error) {
			if err != nil && !errors.Is(err, errNet) {
				k.c.logf("commit: %v", err)
			}
			again()
		})
	})
}
