package partlog

import (
	"sort"

	"milena/internal/record"
)

// lastOfProducer is the last data batch of a producer (offset -1: only
// markers are known) and its epoch.
type lastOfProducer struct {
	offset int64
	epoch  int16
}

// lastRecords lists the last data offset of each live producer.
func (ps *producers) lastRecords() map[int64]lastOfProducer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make(map[int64]lastOfProducer, len(ps.byID))
	for id, p := range ps.byID {
		last := lastOfProducer{-1, p.epoch}
		if p.n > 0 {
			last.offset = p.batches[p.n-1].lastOffset
		}
		out[id] = last
	}
	return out
}

// txnTracker tells, batch by batch in offset order, which belong to aborted
// transactions, and which markers have no data left before them.
type txnTracker struct {
	aborted   []txnEntry // by first offset, not begun yet
	running   map[int64]*runningAbort
	committed map[int64]bool // producers with data of a transaction whose end was not met yet
	kept      []txnEntry     // aborted transactions whose marker and data stay
}

type runningAbort struct {
	e    txnEntry
	data bool // a batch of it was met
}

func newTxnTracker(aborted []txnEntry) *txnTracker {
	sort.Slice(aborted, func(i, j int) bool { return aborted[i].first < aborted[j].first })
	return &txnTracker{aborted: aborted, running: map[int64]*runningAbort{}, committed: map[int64]bool{}}
}

// observe takes in the next batch. It returns true for a data batch of an
// aborted transaction and for a marker of a transaction without data.
func (t *txnTracker) observe(b record.Batch) bool {
	for len(t.aborted) > 0 && t.aborted[0].first <= b.LastOffset() {
		e := t.aborted[0]
		t.aborted = t.aborted[1:]
		t.running[e.producerID] = &runningAbort{e: e}
	}
	if !b.IsControl() {
		if !b.IsTransactional() {
			return false
		}
		if r := t.running[b.ProducerID()]; r != nil {
			r.data = true
			return true
		}
		t.committed[b.ProducerID()] = true
		return false
	}
	c, ok, err := b.Control()
	switch {
	case err != nil:
		return false
	case !ok:
		return true // an emptied one
	}
	switch c.Type {
	case record.ControlAbort:
		r := t.running[b.ProducerID()]
		delete(t.running, b.ProducerID())
		if r == nil || !r.data {
			return true
		}
		t.kept = append(t.kept, r.e)
		return false
	case record.ControlCommit:
		had := t.committed[b.ProducerID()]
		delete(t.committed, b.ProducerID())
		return !had
	}
	return false
}

// takeKept are the entries for the transaction index of the segment that is
// finished now.
func (t *txnTracker) takeKept() []txnEntry {
	out := t.kept
	t.kept = nil
	sort.Slice(out, func(i, j int) bool { return out[i].last < out[j].last })
	return out
}
