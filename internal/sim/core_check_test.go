package sim

import (
	"hash/fnv"
	"slices"
	"time"

	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/quorum"
	"milena/internal/record"
	"milena/internal/replica"
)

// coreCheck holds a run of the cores against the rules while it goes on.
type coreCheck struct {
	c       *cores
	checked map[replicaKey]int64 // below: compared already
	draft   *meta.Draft          // of the committed log, record by record
	known   map[topicPartition]*meta.Partition
	members map[topicPartition][]int32 // those that could be elected safely, as far as is known
}

type replicaKey struct {
	host, gen int
	tp        topicPartition
}

func (k *coreCheck) leads(host int, epoch int32) { k.c.hist.lead(host, epoch) }

// stopped notes the end of a host's process. clean says that it left word of a shutdown in order.
func (k *coreCheck) stopped(host int, how stop, clean bool) {
	if !clean {
		k.c.hist.stop(int32(host), time.Now(), how == power || how == torn)
	}
}

// image notes a broker's metadata.
func (k *coreCheck) image(img *meta.Image) {
	d := fnv.New64a()
	for r := range img.Records() {
		b, err := meta.Encode(r)
		if err != nil {
			k.c.failf("image at offset %d: %v", img.Offset, err)
			return
		}
		_, _ = d.Write(b)
	}
	k.c.hist.metadata(img.Offset, d.Sum64())
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			if p.Leader >= 0 && !slices.Contains(p.ISR, p.Leader) {
				k.c.failf("leader: %s-%d has leader %d, which is not in its ISR %v", t.Name, i, p.Leader, p.ISR)
			}
			if b := img.Broker(p.Leader); p.Leader >= 0 && (b == nil || b.Fenced) {
				k.c.failf("leader: %s-%d has leader %d, which is fenced, at offset %d", t.Name, i, p.Leader, img.Offset)
			}
		}
	}
}

// follow takes committed metadata, record by record.
func (k *coreCheck) follow(batches []byte) {
	for b, err := range record.Batches(batches) {
		if err != nil {
			k.c.failf("metadata: %v", err)
			return
		}
		for r, err := range b.Records(0) {
			if err != nil {
				k.c.failf("metadata: %v", err)
				return
			}
			if r.Offset != k.draft.Speculative().Offset+1 {
				continue
			}
			m, err := meta.Decode(r.Value)
			if err == nil {
				err = k.draft.Apply(r.Offset, b.LeaderEpoch(), m)
			}
			if err != nil {
				k.c.failf("metadata at offset %d: %v", r.Offset, err)
				return
			}
			k.elections(k.draft.Speculative())
		}
	}
}

// elections notes what became of the partitions.
func (k *coreCheck) elections(img *meta.Image) {
	for _, tp := range slices.Concat(k.c.tps, k.c.also) {
		p, old := tp.in(img), k.known[tp]
		if p == nil || p == old || old != nil && p.PartitionEpoch == old.PartitionEpoch {
			continue
		}
		k.known[tp] = p
		k.c.logf("metadata %d: %s leader %d epoch %d ISR %v ELR %v last known %v replicas %v adding %v removing %v recovery %d",
			img.Offset, tp, p.Leader, p.LeaderEpoch, p.ISR, p.ELR, p.LastKnownELR, p.Replicas, p.Adding, p.Removing, p.LeaderRecoveryState)
		if len(p.Unaligned) > 0 {
			k.c.logf("metadata %d: %s is to be cut by %v", img.Offset, tp, p.Unaligned)
		}
		if old != nil && p.LeaderRecoveryState != 0 && p.LeaderEpoch != old.LeaderEpoch {
			k.c.hist.elect(tp.String(), time.Now(), k.members[tp])
		}
		if set := slices.Concat(p.ISR, p.ELR); p.Leader >= 0 {
			k.members[tp] = set
		} else { // those that leave it one by one until there is a leader again were members, too
			k.members[tp] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(k.members[tp], set))))
		}
	}
}

// sequence is told that a producer was refused for a gap in its sequence.
func (k *coreCheck) sequence(p *producer, err error) {
	for _, s := range k.c.hist.part(p.tp.String()).sent {
		if s.producer == p.id && s.acked && !k.c.hist.safe(p.tp.String(), s.by) {
			k.c.logf("producer %d begins anew: %v", p.id, err)
			return // one of its records may be lost
		}
	}
	k.c.failf("lost: producer %d of %s: %v", p.id, p.tp, err)
}

// served checks what a leader served a consumer: nothing that a member of the committed ISR hasn't. Of a leader that was replaced,
// which may not know yet, the comparison of replicas says as much.
func (k *coreCheck) served(b *broker, tp topicPartition, p *replica.Partition, f fetched) {
	end := int64(-1)
	for batch, err := range record.Batches(f.batches) {
		if err == nil {
			end = batch.NextOffset()
		}
	}
	if end < 0 {
		return
	}
	k.catchUp()
	img := k.draft.Speculative()
	mp := tp.in(img)
	if _, epoch, _ := p.Leader(); mp == nil || mp.Leader != b.id || mp.LeaderEpoch != epoch {
		return
	}
	for _, id := range mp.ISR {
		h := k.c.hosts[id]
		if r := img.Broker(id); !h.up || r == nil || r.Epoch != h.brk.epoch {
			continue
		}
		if r, err := h.brk.replica(tp); err == nil && r.LogEndOffset() < end {
			k.c.failf("above: host %d serves %s up to offset %d, its high watermark is %d, but host %d of the ISR %v has no more than %d",
				b.id, tp, end, f.hw, id, mp.ISR, r.LogEndOffset())
		}
	}
}

// catchUp takes what is committed now, from any controller that knows of it.
func (k *coreCheck) catchUp() {
	for _, h := range k.c.hosts[:k.c.controllers] {
		if h.up && h.ctl != nil {
			k.committed(h.ctl.q)
		}
	}
}

// committed takes what a controller knows to be committed.
func (k *coreCheck) committed(q *quorum.Node) {
	for {
		next := k.draft.Speculative().Offset + 1
		if q.Status().HighWatermark <= next {
			return
		}
		batches, err := q.ReadCommitted(next, 64<<10)
		if err != nil || len(batches) == 0 {
			return
		}
		k.follow(batches)
		if k.draft.Speculative().Offset < next {
			return
		}
	}
}

// look compares the replicas' committed parts, what is new of them.
func (k *coreCheck) look(whole bool) {
	for _, h := range k.c.hosts {
		if !h.up {
			continue
		}
		for _, tp := range k.c.tps {
			if p, err := h.brk.replica(tp); err == nil {
				k.replica(h, tp, p, whole)
			}
		}
	}
}

func (k *coreCheck) replica(h *host, tp topicPartition, p *replica.Partition, whole bool) {
	key := replicaKey{h.id, h.gen, tp}
	hw, start, end := p.HighWatermark(), p.LogStartOffset(), p.LogEndOffset()
	if hw < start || hw > end {
		k.c.failf("marks: %s on host %d: high watermark %d is outside %d to %d", tp, h.id, hw, start, end)
		return
	}
	if whole {
		all := k.c.readLog(p.Log(), start, end)
		k.c.hist.log(tp.String(), int32(h.id), all, start, p.Log().Epochs())
		k.checked[key] = 0
	}
	from := min(k.checked[key], hw)
	k.checked[key] = hw
	if from == hw {
		return
	}
	below := k.c.readLog(p.Log(), from, hw)
	below = slices.DeleteFunc(below, func(b batchSum) bool { return b.next > hw })
	k.c.hist.replica(tp.String(), int32(h.id), below, p.InSync(), k.c.sentTime)
}

// sentTime bounds from below when a batch came to be: no replica can have had it before.
func (c *cores) sentTime(b batchSum) time.Time {
	if at, ok := c.born[b.sum]; ok {
		return at
	}
	return c.begin
}

// readLog lists a log's batches from the one with offset from up to upTo.
func (c *cores) readLog(l *partlog.Log, from, upTo int64) (out []batchSum) {
	for from < upTo {
		info, err := l.Read(from, 1<<20, upTo, true)
		if err != nil {
			if c.badRead(err) {
				return out
			}
			c.failf("read of %s-%d at %d: %v", l.Topic(), l.Partition(), from, err)
			return out
		}
		raw := spanBytes(c, info.Spans)
		info.Release()
		before := from
		for b, err := range record.Batches(raw) {
			if err == nil {
				err = b.CheckCRC()
			}
			if err != nil {
				c.failf("read of %s-%d at %d: %v", l.Topic(), l.Partition(), from, err)
				return out
			}
			d := fnv.New64a()
			_, _ = d.Write(b)
			sum := batchSum{b.BaseOffset(), b.NextOffset(), b.LeaderEpoch(), d.Sum64()}
			c.born[sum.sum] = time.UnixMilli(b.BaseTimestamp())
			out = append(out, sum)
			from = b.NextOffset()
		}
		if from == before {
			return out
		}
	}
	return out
}

// records lists a log's records from its start.
func (c *cores) records(l *partlog.Log) []rec {
	_, recs, err := scan(l)
	if err != nil {
		c.failf("read of %s-%d: %v", l.Topic(), l.Partition(), err)
	}
	return recs
}

// scan lists a log's batches and records, but for control records.
func scan(l *partlog.Log) (sums []batchSum, recs []rec, err error) {
	return scanFrom(l, l.StartOffset())
}

// scanFrom is scan from the batch with an offset on.
func scanFrom(l *partlog.Log, from int64) (sums []batchSum, recs []rec, err error) {
	err = eachBatch(l, from, func(b record.Batch) error {
		d := fnv.New64a()
		_, _ = d.Write(b)
		sums = append(sums, batchSum{b.BaseOffset(), b.NextOffset(), b.LeaderEpoch(), d.Sum64()})
		if b.IsControl() {
			return nil
		}
		for r, err := range b.Records(0) {
			if err != nil {
				return err
			}
			recs = append(recs, rec{r.Offset, string(r.Value)})
		}
		return nil
	})
	return sums, recs, err
}

// eachBatch calls fn for each batch of a log, from the one with an offset on, until it returns an error.
func eachBatch(l *partlog.Log, from int64, fn func(b record.Batch) error) error {
	for from < l.EndOffset() {
		info, err := l.Read(from, 1<<20, l.EndOffset(), true)
		if err != nil {
			return err
		}
		raw, err := joined(info.Spans)
		info.Release()
		if err != nil {
			return err
		}
		before := from
		for b, err := range record.Batches(raw) {
			if err == nil {
				err = b.CheckCRC()
			}
			if err == nil {
				err = fn(b)
			}
			if err != nil {
				return err
			}
			from = b.NextOffset()
		}
		if from == before {
			break
		}
	}
	return nil
}

// joined copies spans, without a batch that is cut at the end.
func joined(spans []record.Span) ([]byte, error) {
	var all, out []byte
	for _, s := range spans {
		raw, err := s.Bytes()
		if err != nil {
			return nil, err
		}
		all = append(all, raw...)
	}
	for len(all) >= record.LengthOverhead {
		n := record.Batch(all).Len()
		if n > int64(len(all)) {
			break
		}
		out, all = append(out, all[:n]...), all[n:]
	}
	return out, nil
}
