package sim

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"milena/internal/partlog"
)

// history is what clients were told and what replicas hold, and says when that can't be. Both levels write one.
//
// Rules (the numbers are those of the invariants in docs/architecture.md of the cluster):
//
//	lost        1   an acknowledged record isn't there, though a replica that vouched for it kept its disk
//	repeated    1   a record is there twice
//	order       1   a producer's records are not in its order
//	unknown     1   a record that nobody sent
//	moved       1   an acknowledged record is at another offset
//	replicas    2   two replicas hold different batches below both high watermarks
//	changed     3   what a consumer saw at an offset is not what is there
//	above       3   a consumer saw an offset at or above the high watermark
//	epochs      4   leader epochs in a log decrease
//	cache       4   an epoch cache isn't what the log's batches give
//	offset      5   a committed group offset went back
//	leaders         two controllers led one epoch
//	metadata        two brokers have different metadata at one offset
//	writable        the cluster can't be written to within the bound after healing
//	converge    11  replicas differ after all is healed, or after a restart
type history struct {
	fail    func(rule, format string, args ...any)
	parts   map[string]*partHistory
	commits map[string]*commitHistory
	leaders map[int32]int
	images  map[int64]uint64
	stops   map[int32][]stopped
	now     func() time.Time
}

// stopped is an end of a broker's process that was not in order; power says that unflushed bytes were lost.
type stopped struct {
	at    time.Time
	power bool
}

// vouched says which replicas had something, since when at the earliest, and when it was known to be committed.
type vouched struct {
	isr   []int32
	since time.Time
	known time.Time
}

// election is one of a leader that nothing vouches for: those that could have been elected safely, members, had all gone.
type election struct {
	at      time.Time
	members []int32
}

type sent struct {
	producer, n int
	at          time.Time
	acked       bool
	offset      int64 // -1: not known
	by          vouched
}

// batchSum stands for a batch.
type batchSum struct {
	base, next int64
	epoch      int32
	sum        uint64
}

type canonical struct {
	batchSum
	by   vouched
	from int32 // the broker it was first seen on
}

type seen struct {
	value string
	by    vouched
}

type partHistory struct {
	sent      map[string]*sent
	consumed  map[int64]seen
	canon     []canonical // committed batches, by offset
	elections []election
}

// commitHistory is what is known of the offset that a group commits for a partition.
type commitHistory struct {
	tried int64
	acked []ackedCommit
}

// ackedCommit is a commit that was acknowledged, or an offset that was read, by a coordinator of a leader epoch.
type ackedCommit struct {
	offset int64
	epoch  int32
	at     time.Time
	by     vouched
}

// staleFor is how long a coordinator that was replaced may go on answering from what it knew: until its session has run out, or it has
// read of its replacement.
const staleFor = 4 * time.Second

func newHistory(fail func(rule, format string, args ...any)) *history {
	return &history{
		fail: fail, parts: map[string]*partHistory{}, commits: map[string]*commitHistory{}, leaders: map[int32]int{}, images: map[int64]uint64{},
		stops: map[int32][]stopped{}, now: time.Now,
	}
}

func (h *history) part(tp string) *partHistory {
	p := h.parts[tp]
	if p == nil {
		p = &partHistory{sent: map[string]*sent{}, consumed: map[int64]seen{}}
		h.parts[tp] = p
	}
	return p
}

// lead notes that a controller leads an epoch.
func (h *history) lead(host int, epoch int32) {
	if other, ok := h.leaders[epoch]; ok && other != host {
		h.fail("leaders", "hosts %d and %d both lead the quorum's epoch %d", other, host, epoch)
	}
	h.leaders[epoch] = host
}

// metadata notes a digest of a broker's image at an offset.
func (h *history) metadata(offset int64, digest uint64) {
	if other, ok := h.images[offset]; ok && other != digest {
		h.fail("metadata", "two brokers have different metadata at offset %d", offset)
	}
	h.images[offset] = digest
}

// stop notes that a broker's process ended without a shutdown in order.
func (h *history) stop(broker int32, at time.Time, power bool) {
	h.stops[broker] = append(h.stops[broker], stopped{at, power})
}

// elect notes that a leader was elected though nothing vouches for it (KIP-966's last known leader).
func (h *history) elect(tp string, at time.Time, members []int32) {
	p := h.part(tp)
	p.elections = append(p.elections, election{at, slices.Clone(members)})
}

// safe says whether what the replicas vouched for must still be there: invariant 1. It must unless, since then, every one of them stopped out
// of order and one of those lost unflushed bytes; or a leader was elected for whom nothing vouches, because that happened to all that were
// in sync or eligible by then. Nobody can know then which of them to trust.
func (h *history) safe(tp string, by vouched) bool {
	if h.intact(by.isr, by.since, time.Time{}) {
		for _, e := range h.part(tp).elections {
			if e.at.After(by.known) && !h.intact(e.members, by.since, e.at) {
				return false
			}
		}
		return true
	}
	return false
}

// intact says whether one of the brokers hasn't stopped out of order since, or none of them lost anything. until, if set, is when to look.
func (h *history) intact(brokers []int32, since, until time.Time) bool {
	lossy := false
	for _, b := range brokers {
		clean := true
		for _, s := range h.stops[b] {
			if !s.at.Before(since) && (until.IsZero() || !s.at.After(until)) {
				clean = false
				lossy = lossy || s.power
			}
		}
		if clean {
			return true
		}
	}
	return !lossy
}

// send notes that a producer sends its nth record to a partition, for the first time.
func (h *history) send(tp string, producer, n int, value string, at time.Time) {
	h.part(tp).sent[value] = &sent{producer: producer, n: n, at: at, offset: -1}
}

// ack notes that a record was acknowledged at an offset (-1: a duplicate whose offset isn't known), while isr were the in-sync replicas.
func (h *history) ack(tp, value string, offset int64, isr []int32) {
	s := h.part(tp).sent[value]
	if s == nil {
		h.fail("unknown", "%s: %q was acknowledged, but never sent", tp, value)
		return
	}
	s.acked, s.offset, s.by = true, offset, vouched{slices.Clone(isr), s.at, h.now()}
}

// consume notes that a consumer saw a record, in an answer that gave hw as the high watermark.
func (h *history) consume(tp string, offset, hw int64, value string, isr []int32) {
	p := h.part(tp)
	if offset >= hw {
		h.fail("above", "%s: a consumer saw offset %d, the high watermark is %d", tp, offset, hw)
	}
	s := p.sent[value]
	if s == nil {
		h.fail("unknown", "%s: a consumer saw %q at offset %d, which nobody sent", tp, value, offset)
		return
	}
	if old, ok := p.consumed[offset]; ok && old.value != value && h.safe(tp, old.by) {
		h.fail("changed", "%s: a consumer saw %q at offset %d, where another saw %q", tp, value, offset, old.value)
	}
	p.consumed[offset] = seen{value, vouched{slices.Clone(isr), s.at, h.now()}}
}

// gone notes that a consumer was told that offset, up to which it had read, isn't there any more.
func (h *history) gone(tp string, offset int64, what string) {
	p := h.part(tp)
	if old, ok := p.consumed[offset-1]; ok && h.safe(tp, old.by) {
		h.fail("lost", "%s: a consumer that had read up to offset %d was told %s", tp, offset, what)
	}
}

// replica compares what a replica holds below its high watermark with what others held there. batches follow each other; since
// bounds when the replicas in isr got them.
func (h *history) replica(tp string, broker int32, batches []batchSum, isr []int32, since func(batchSum) time.Time) {
	p := h.part(tp)
	for _, b := range batches {
		if born := since(b); !h.safe(tp, vouched{isr, born, born}) {
			return // it may be of what was lost, and this replica doesn't know yet
		}
		i := sort.Search(len(p.canon), func(i int) bool { return p.canon[i].next > b.base })
		if i == len(p.canon) || p.canon[i].base >= b.next {
			p.canon = slices.Insert(p.canon, i, canonical{b, vouched{slices.Clone(isr), since(b), h.now()}, broker})
			continue
		}
		if p.canon[i].batchSum == b {
			continue
		}
		c := p.canon[i]
		if h.safe(tp, c.by) {
			h.fail("replicas", "%s: broker %d has offsets %d to %d of epoch %d (%08x) below its high watermark, broker %d had %d to %d of epoch %d (%08x)",
				tp, broker, b.base, b.next-1, b.epoch, b.sum, c.from, c.base, c.next-1, c.epoch, c.sum)
			return
		}
		// What was there may be lost: begin anew from here.
		p.canon = append(p.canon[:i], canonical{b, vouched{slices.Clone(isr), since(b), h.now()}, broker})
	}
}

// log checks a log by itself: epochs don't decrease, the cache is that of the batches.
func (h *history) log(tp string, broker int32, batches []batchSum, start int64, cache []partlog.EpochEntry) {
	var want []partlog.EpochEntry
	for i, b := range batches {
		if i > 0 && b.epoch < batches[i-1].epoch {
			h.fail("epochs", "%s on broker %d: epoch %d at offset %d follows epoch %d", tp, broker, b.epoch, b.base, batches[i-1].epoch)
		}
		if i == 0 || b.epoch != batches[i-1].epoch {
			want = append(want, partlog.EpochEntry{Epoch: b.epoch, Start: max(b.base, start)})
		}
	}
	if len(batches) > 0 && !slices.Equal(want, cache) {
		h.fail("cache", "%s on broker %d: the epoch cache is %v, the batches give %v", tp, broker, cache, want)
	}
}

// offsetsPartition holds the committed offsets.
const offsetsPartition = "__consumer_offsets-0"

// tryCommit notes that a group is about to commit an offset. Its offsets only grow.
func (h *history) tryCommit(key string, offset int64) { h.commit(key).tried = offset }

// ackCommit notes that a coordinator that leads an epoch acknowledged a commit.
func (h *history) ackCommit(key string, epoch int32, offset int64, by vouched) {
	c := h.commit(key)
	c.acked = append(c.acked, ackedCommit{offset, epoch, h.now(), by})
}

func (h *history) commit(key string) *commitHistory {
	c := h.commits[key]
	if c == nil {
		c = &commitHistory{tried: -1}
		h.commits[key] = c
	}
	return c
}

// fetched notes that a fetch, sent at that time, got an offset from a coordinator that leads an epoch. What was read once can't be taken
// back either. A coordinator need not know what those after it acknowledged, for a while.
func (h *history) fetched(key string, sent time.Time, epoch int32, offset int64, by vouched) {
	c := h.commit(key)
	if offset > c.tried {
		h.fail("offset", "%s: offset %d is read, nobody committed more than %d", key, offset, c.tried)
	}
	for _, a := range c.acked {
		if a.offset <= offset || !a.at.Before(sent) || !h.safe(offsetsPartition, a.by) {
			continue
		}
		if a.epoch <= epoch || sent.Sub(a.at) > staleFor {
			h.fail("offset", "%s: offset %d was committed by the coordinator of epoch %d, %v later that of epoch %d reads %d", key, a.offset, a.epoch, sent.Sub(a.at), epoch, offset)
			return
		}
	}
	if n := len(c.acked); offset >= 0 && (n == 0 || c.acked[n-1].offset != offset) {
		c.acked = append(c.acked, ackedCommit{offset, epoch, h.now(), by})
	}
}

// rec is a record as it is found at the end.
type rec struct {
	offset int64
	value  string
}

// final checks a partition's whole content against what was sent and acknowledged.
func (h *history) final(tp string, recs []rec) {
	p := h.part(tp)
	at := map[string]int64{}
	last := map[int]*sent{}
	for _, r := range recs {
		s := p.sent[r.value]
		if s == nil {
			h.fail("unknown", "%s: offset %d holds %q, which nobody sent", tp, r.offset, r.value)
			return
		}
		if first, ok := at[r.value]; ok {
			h.fail("repeated", "%s: %q is at offsets %d and %d", tp, r.value, first, r.offset)
		}
		at[r.value] = r.offset
		if prev := last[s.producer]; prev != nil && prev.n >= s.n {
			h.fail("order", "%s: record %d of producer %d at offset %d follows its record %d", tp, s.n, s.producer, r.offset, prev.n)
		}
		last[s.producer] = s
		if old, ok := p.consumed[r.offset]; ok && old.value != r.value && h.safe(tp, old.by) {
			h.fail("changed", "%s: offset %d holds %q, a consumer saw %q there", tp, r.offset, r.value, old.value)
		}
	}
	for _, value := range slices.Sorted(maps.Keys(p.sent)) {
		s := p.sent[value]
		if !s.acked || !h.safe(tp, s.by) {
			continue
		}
		got, ok := at[value]
		switch {
		case !ok:
			h.fail("lost", "%s: %q was acknowledged at offset %d with the ISR %v, and is not there", tp, value, s.offset, s.by.isr)
			return
		case s.offset >= 0 && s.offset != got:
			h.fail("moved", "%s: %q was acknowledged at offset %d and is at %d", tp, value, s.offset, got)
		}
	}
}

// counts says how much a history holds.
func (h *history) counts() string {
	n, acked := 0, 0
	for _, p := range h.parts {
		for _, s := range p.sent {
			n++
			if s.acked {
				acked++
			}
		}
	}
	return fmt.Sprintf("%d records sent, %d acknowledged", n, acked)
}
