package partlog

import (
	"sort"
	"sync"
	"time"

	"milena/internal/api"
	"milena/internal/record"
)

// keptBatches is how many batches of a producer are remembered to answer
// duplicates: a client has at most five requests in flight.
const keptBatches = 5

// batchMeta is what is remembered of a producer's batch.
type batchMeta struct {
	lastSeq     int32
	offsetDelta int32 // last offset less first
	lastOffset  int64
	timestamp   int64
}

func metaOf(b record.Batch) batchMeta {
	return batchMeta{lastSeq: b.LastSequence(), lastOffset: b.LastOffset(), offsetDelta: b.LastOffsetDelta(), timestamp: b.MaxTimestamp()}
}

func (b batchMeta) firstSeq() int32 {
	if b.lastSeq >= b.offsetDelta {
		return b.lastSeq - b.offsetDelta
	}
	return int32(int64(b.lastSeq) - int64(b.offsetDelta) + 1<<31) // the numbers went on at 0
}

// producer is the state of one producer id.
type producer struct {
	id         int64
	epoch      int16 // -1: unknown
	coordEpoch int32 // of the last marker, -1: none
	lastTime   int64 // ms
	txnStart   int64 // -1: no open transaction

	batches [keptBatches]batchMeta // oldest first, n of them
	n       int8
}

func (p *producer) lastSeq() int32 {
	if p.n == 0 {
		return record.NoSequence
	}
	return p.batches[p.n-1].lastSeq
}

func (p *producer) add(b batchMeta) {
	if p.n == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
	p.lastTime = b.timestamp
}

// setEpoch moves to a new epoch, which forgets the batches of the old one.
func (p *producer) setEpoch(e int16) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

// duplicate finds a remembered batch with the same epoch and sequences.
func (p *producer) duplicate(b record.Batch) (batchMeta, bool) {
	if b.ProducerEpoch() != p.epoch {
		return batchMeta{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, m := range p.batches[:p.n] {
		if m.lastSeq == last && m.firstSeq() == first {
			return m, true
		}
	}
	return batchMeta{}, false
}

// txnSpan is a transaction with an undecided or unreplicated end.
type txnSpan struct{ producerID, first, last int64 } // last -1: open

// producers is the producer state of a log: what idempotence and transactions
// need. It is a pure function of the log's batches (KIP-98). mu guards all;
// writers hold the log's lock too.
type producers struct {
	mu      sync.Mutex
	byID    map[int64]*producer
	open    []txnSpan // rising by first
	decided []txnSpan // marker at or above the high watermark when last looked; rising by first

	end      int64 // offset up to which batches were seen
	snapshot int64 // offset of the newest snapshot, -1: none

	// unseen is the offset below which there may be batches that producers have
	// forgotten, -1: there are none (see Log.recall).
	unseen     int64
	recallLeft int64 // bytes that may be read below unseen
}

func newProducers() *producers { return &producers{snapshot: -1, unseen: -1} }

// appendCheck is the result of checking a batch before it is appended.
type appendCheck struct {
	duplicate bool
	meta      batchMeta
	forgotten bool // refused, but the log may have it
}

// check applies the rules for a leader's append to one batch that has its
// offset stamped already.
func (ps *producers) check(b record.Batch, o AppendOptions, name string) (appendCheck, error) {
	if !b.HasProducerID() {
		return appendCheck{}, nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byID[b.ProducerID()]
	if b.IsControl() {
		return appendCheck{}, checkMarker(b, p, o, name)
	}
	if p == nil {
		return appendCheck{}, nil // after loss or expiry any sequence is accepted (KIP-360)
	}
	if o.Origin == OriginClient {
		if m, ok := p.duplicate(b); ok {
			return appendCheck{duplicate: true, meta: m}, nil
		}
	}
	if b.ProducerEpoch() < p.epoch {
		return appendCheck{}, api.Errorf(api.InvalidProducerEpoch,
			"producer %d of %s has epoch %d, which is older than the last seen, %d", p.id, name, b.ProducerEpoch(), p.epoch)
	}
	if o.Origin == OriginClient {
		if err := p.checkSequence(b, name); err != nil {
			return appendCheck{forgotten: ps.unseen >= 0 && p.behind(b)}, err
		}
	}
	if p.txnStart >= 0 && !b.IsTransactional() {
		return appendCheck{}, api.Errorf(api.InvalidTxnState,
			"producer %d of %s has an open transaction; the batch must be part of it", p.id, name)
	}
	return appendCheck{}, nil
}

func (p *producer) checkSequence(b record.Batch, name string) error {
	first := b.BaseSequence()
	if p.epoch == record.NoProducerEpoch {
		return nil
	}
	if b.ProducerEpoch() != p.epoch {
		if first != 0 {
			return api.Errorf(api.OutOfOrderSequenceNumber,
				"producer %d of %s starts epoch %d with sequence %d instead of 0", p.id, name, b.ProducerEpoch(), first)
		}
		return nil
	}
	want := int32(0) // also after an epoch that a marker began
	if last := p.lastSeq(); last != record.NoSequence {
		want = record.AddSequence(last, 1)
	}
	if first != want {
		return api.Errorf(api.OutOfOrderSequenceNumber,
			"producer %d of %s sent sequence %d, expected %d", p.id, name, first, want)
	}
	return nil
}

func checkMarker(b record.Batch, p *producer, o AppendOptions, name string) error {
	c, ok, err := b.Control()
	if err != nil {
		return api.Errorf(api.InvalidRecord, "control batch for %s: %v", name, err)
	}
	if !ok || !isTxnMarker(c) || p == nil {
		return nil
	}
	epoch := b.ProducerEpoch()
	switch {
	case o.TxnVersion >= 2 && epoch == p.epoch && p.txnStart < 0:
		// A retry of a marker that was written already (KAFKA-19999).
	case epoch < p.epoch, o.TxnVersion >= 2 && epoch == p.epoch:
		return api.Errorf(api.InvalidProducerEpoch,
			"marker for producer %d of %s has epoch %d, the last seen is %d", p.id, name, epoch, p.epoch)
	}
	if p.coordEpoch > c.CoordinatorEpoch {
		return api.Errorf(api.TransactionCoordinatorFenced,
			"marker for producer %d of %s has coordinator epoch %d, the last seen is %d", p.id, name, c.CoordinatorEpoch, p.coordEpoch)
	}
	return nil
}

func isTxnMarker(c record.Control) bool {
	return c.Type == record.ControlAbort || c.Type == record.ControlCommit
}

// update takes in a batch that is in the log. If it ends a transaction with
// data that was aborted, it returns the entry for the transaction index.
func (ps *producers) update(b record.Batch) (aborted txnEntry, ok bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.end = b.NextOffset()
	if b.IsControl() {
		c, found, err := b.Control()
		if err != nil || !found {
			return txnEntry{}, false // compaction emptied it, or a type of a newer release
		}
		if c.Type == record.ControlMirrorPIDReset {
			ps.clearLocked()
			return txnEntry{}, false
		}
		if !isTxnMarker(c) || !b.HasProducerID() {
			return txnEntry{}, false
		}
		return ps.endTxn(b, c)
	}
	if !b.HasProducerID() {
		return txnEntry{}, false
	}
	p := ps.get(b.ProducerID())
	p.setEpoch(max(p.epoch, b.ProducerEpoch()))
	p.add(metaOf(b))
	if b.IsTransactional() && p.txnStart < 0 {
		p.txnStart = b.BaseOffset()
		ps.open = append(ps.open, txnSpan{p.id, b.BaseOffset(), -1})
	}
	return txnEntry{}, false
}

func (ps *producers) get(id int64) *producer {
	p := ps.byID[id]
	if p == nil {
		if ps.byID == nil {
			ps.byID = make(map[int64]*producer)
		}
		p = &producer{id: id, epoch: record.NoProducerEpoch, coordEpoch: -1, lastTime: record.NoTimestamp, txnStart: -1}
		ps.byID[id] = p
	}
	return p
}

func (ps *producers) endTxn(b record.Batch, c record.Control) (txnEntry, bool) {
	p := ps.get(b.ProducerID())
	p.setEpoch(max(p.epoch, b.ProducerEpoch()))
	p.coordEpoch = max(p.coordEpoch, c.CoordinatorEpoch)
	p.lastTime = b.MaxTimestamp()
	if p.txnStart < 0 {
		return txnEntry{}, false
	}
	first := p.txnStart
	p.txnStart = -1
	for i, t := range ps.open {
		if t.producerID == p.id {
			ps.open = append(ps.open[:i], ps.open[i+1:]...)
			break
		}
	}
	at := b.BaseOffset()
	i := sort.Search(len(ps.decided), func(i int) bool { return ps.decided[i].first > first })
	ps.decided = append(ps.decided, txnSpan{})
	copy(ps.decided[i+1:], ps.decided[i:])
	ps.decided[i] = txnSpan{p.id, first, at}
	stable := at + 1
	if len(ps.open) > 0 {
		stable = ps.open[0].first
	}
	return txnEntry{producerID: p.id, first: first, last: at, stable: stable}, c.Type == record.ControlAbort
}

// stable is the first offset at or below hw of a transaction that is open or
// whose marker isn't below hw, else hw.
func (ps *producers) stable(hw int64) int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := 0
	for _, t := range ps.decided {
		if t.last >= hw {
			ps.decided[n] = t
			n++
		}
	}
	ps.decided = ps.decided[:n]
	lso := hw
	if n > 0 {
		lso = min(lso, ps.decided[0].first)
	}
	if len(ps.open) > 0 {
		lso = min(lso, ps.open[0].first)
	}
	return lso
}

// clear forgets everything; the state is then that of an empty log that starts at off.
func (ps *producers) clear(off int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.clearLocked()
	ps.end = off
}

func (ps *producers) clearLocked() {
	ps.byID, ps.open, ps.decided = nil, nil, nil
	ps.unseen = -1
}

// expire forgets producers that wrote nothing for d and have no open transaction.
func (ps *producers) expire(now time.Time, d time.Duration) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := 0
	for id, p := range ps.byID {
		if p.expired(now, d) {
			delete(ps.byID, id)
			n++
		}
	}
	return n
}

func (p *producer) expired(now time.Time, d time.Duration) bool {
	return p.txnStart < 0 && d > 0 && now.UnixMilli()-p.lastTime >= d.Milliseconds()
}

// list is a copy of all states, by id.
func (ps *producers) list() []producer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]producer, 0, len(ps.byID))
	for _, p := range ps.byID {
		out = append(out, *p)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

func (ps *producers) load(list []producer, end int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.clearLocked()
	ps.end = end
	ps.unseen, ps.recallLeft = end, recallBytes
	for _, p := range list {
		*ps.get(p.id) = p
		if p.txnStart >= 0 {
			ps.open = append(ps.open, txnSpan{p.id, p.txnStart, -1})
		}
	}
	sort.Slice(ps.open, func(i, j int) bool { return ps.open[i].first < ps.open[j].first })
}
