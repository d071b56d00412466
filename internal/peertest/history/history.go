// Package history holds what clients of a cluster under faults say, their acknowledgements, reads and commits, against
// what stands in the topic in the end.
package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Place is where a record stands in the topic.
type Place struct {
	Partition int32
	Offset    int64 // -1 in an acknowledgement: the client wasn't told
}

func (p Place) String() string { return fmt.Sprintf("%d@%d", p.Partition, p.Offset) }

// RecordID is a record's identity: its value begins with it, PRODUCER.NUMBER, ended by the first space or the end of the value. A producer's
// numbers grow in the order in which it sends.
type RecordID string

// IDOf is the id of a record with this value.
func IDOf(value string) RecordID {
	id, _, _ := strings.Cut(value, " ")
	return RecordID(id)
}

// split is the producer and the number of an id.
func (id RecordID) split() (producer string, number int64, err error) {
	producer, n, ok := strings.Cut(string(id), ".")
	if !ok {
		return "", 0, fmt.Errorf("%q is no record of this test", string(id))
	}
	number, err = strconv.ParseInt(n, 10, 64)
	return producer, number, err
}

// History is all that the clients said. Safe for concurrent use.
type History struct {
	mu sync.Mutex
	// acked are the acknowledged records. offset is -1 if the client wasn't told.
	acked map[RecordID]Place
	// reads has what each group's members read while things broke, the last read of a place.
	reads map[string]map[Place]RecordID
	// committed is each group's highest committed offset by partition.
	committed map[string]map[int32]int64
	// failed are sends that a client gave up.
	failed map[string]int
	// broken are promises that were seen broken on the way.
	broken []string
}

// New returns an empty history.
func New() *History {
	return &History{acked: map[RecordID]Place{}, reads: map[string]map[Place]RecordID{}, committed: map[string]map[int32]int64{}, failed: map[string]int{}}
}

// maxBroken bounds what is listed: one fault breaks many records.
const maxBroken = 40

// Breakf notes a promise that was seen broken. The first 40 are kept.
func (h *History) Breakf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addBroken(fmt.Sprintf(format, args...))
}

func (h *History) addBroken(s string) {
	if len(h.broken) < maxBroken {
		h.broken = append(h.broken, s)
	}
}

// Broken are the promises that were seen broken so far.
func (h *History) Broken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.broken)
}

// Ack notes an acknowledged record.
func (h *History) Ack(id RecordID, at Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.acked[id]; ok {
		h.addBroken(fmt.Sprintf("record %s was acknowledged twice, at %s and %s", id, before, at))
	}
	h.acked[id] = at
}

func (h *History) sendFailed(client string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed[client]++
}

// Read notes what a member of a group was given. A place that changes its record is noticed at once.
func (h *History) Read(group string, at Place, id RecordID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.reads[group]
	if of == nil {
		of = map[Place]RecordID{}
		h.reads[group] = of
	}
	if before, ok := of[at]; ok && before != id {
		h.addBroken(fmt.Sprintf("group %s read %s at %s, and later %s there", group, before, at, id))
	}
	of[at] = id
}

// Commit notes a group's committed offset, which must not go back.
func (h *History) Commit(group string, partition int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.committed[group]
	if of == nil {
		of = map[int32]int64{}
		h.committed[group] = of
	}
	if offset < of[partition] {
		h.addBroken(fmt.Sprintf("committed offset of group %s for partition %d went back from %d to %d", group, partition, of[partition], offset))
	}
	of[partition] = max(of[partition], offset)
}

// Committed are a group's highest committed offsets by partition.
func (h *History) Committed(group string) map[int32]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.committed[group])
}

// Reached is nil when every group named has committed the ends of all partitions.
func (h *History) Reached(ends map[int32]int64, groups ...string) error {
	for _, g := range groups {
		have := h.Committed(g)
		for p, end := range ends {
			if have[p] != end {
				return fmt.Errorf("group %s has committed %d of %d in partition %d", g, have[p], end, p)
			}
		}
	}
	return nil
}

// Counts are the numbers of records acknowledged, and read by each group.
func (h *History) Counts() (acked int, reads map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reads = map[string]int{}
	for g, r := range h.reads {
		reads[g] = len(r)
	}
	return len(h.acked), reads
}

// Line takes a line of a client: the JSON that Kafka's verifiable tools print, which the other clients print as well.
// client names it in errors, group is its group if it reads. The result says whether the line was one.
func (h *History) Line(client, group, line string) bool {
	var e struct {
		Name      string
		Value     *string
		Partition int32
		Offset    int64
		Message   string
		Exception string
		Success   *bool
		Error     string
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		return false
	}
	switch {
	case e.Name == "producer_send_success" && e.Value != nil:
		h.Ack(IDOf(*e.Value), Place{e.Partition, e.Offset})
	case e.Name == "producer_send_error":
		h.sendFailed(client)
	case e.Name == "record_data" && e.Value != nil:
		h.Read(group, Place{e.Partition, e.Offset}, IDOf(*e.Value))
	case e.Name == "broken_promise":
		h.Breakf("%s: %s", client, e.Message)
	}
	return true
}

// ReadBack is the topic as one client read it from the beginning to the end: by partition, in the order of reading.
// Safe for concurrent use.
type ReadBack struct {
	mu      sync.Mutex
	client  string
	records map[int32][]backRecord
}

type backRecord struct {
	offset int64
	id     RecordID
}

// NewReadBack is empty; client names it in what is found broken.
func NewReadBack(client string) *ReadBack {
	return &ReadBack{client: client, records: map[int32][]backRecord{}}
}

// Add notes the next record.
func (r *ReadBack) Add(at Place, id RecordID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[at.Partition] = append(r.records[at.Partition], backRecord{at.Offset, id})
}

// Line takes a client's line, as History's does.
func (r *ReadBack) Line(line string) {
	var e struct {
		Name      string
		Value     *string
		Partition int32
		Offset    int64
	}
	if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil && e.Name == "record_data" && e.Value != nil {
		r.Add(Place{e.Partition, e.Offset}, IDOf(*e.Value))
	}
}

// Reached says whether all partitions were read up to their ends.
func (r *ReadBack) Reached(ends map[int32]int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, end := range ends {
		rs := r.records[p]
		if end > 0 && (len(rs) == 0 || rs[len(rs)-1].offset < end-1) {
			return fmt.Errorf("%s has read %d records of partition %d, which ends at %d", r.client, len(rs), p, end)
		}
	}
	return nil
}

// Check holds the history against what was read back from the beginning, by several clients, and the ends of the
// partitions. Each string is a promise that was broken.
func (h *History) Check(ends map[int32]int64, backs ...*ReadBack) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b brokenList
	b.list = append(b.list, h.broken...)
	final := map[Place]RecordID{}
	for i, r := range backs {
		if i == 0 {
			final = b.wholeLog(r, ends)
			continue
		}
		if other := b.wholeLog(r, ends); !maps.Equal(final, other) {
			b.addf("%s and %s read different logs: %s", backs[0].client, r.client, firstDifference(final, other))
		}
	}
	b.onceAndInOrder(backs[0])
	where := map[RecordID]Place{}
	for at, id := range final {
		where[id] = at
	}
	for _, id := range slices.Sorted(maps.Keys(h.acked)) {
		at := h.acked[id]
		got, ok := where[id]
		switch {
		case !ok:
			b.addf("record %s, acknowledged at %s, is lost; there is %q", id, at, string(final[at]))
		case at.Offset >= 0 && got != at:
			b.addf("record %s was acknowledged at %s and is at %s", id, at, got)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(h.reads)) {
		b.groupRead(group, h.reads[group], final)
	}
	return b.list
}

type brokenList struct {
	list []string
}

func (b *brokenList) addf(format string, args ...any) {
	if len(b.list) < maxBroken {
		b.list = append(b.list, fmt.Sprintf(format, args...))
	}
}

// wholeLog wants every offset of every partition once and in order.
func (b *brokenList) wholeLog(r *ReadBack, ends map[int32]int64) map[Place]RecordID {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[Place]RecordID{}
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		next := int64(0)
		for _, rec := range r.records[p] {
			if rec.offset != next {
				b.addf("%s read offset %d of partition %d where %d comes next", r.client, rec.offset, p, next)
			}
			next = rec.offset + 1
			all[Place{p, rec.offset}] = rec.id
		}
		if next != ends[p] {
			b.addf("%s read partition %d up to %d, which ends at %d", r.client, p, next, ends[p])
		}
	}
	return all
}

// onceAndInOrder wants no record twice, and each producer's records in the order of sending within a partition.
func (b *brokenList) onceAndInOrder(r *ReadBack) {
	seen := map[RecordID]Place{}
	for _, p := range slices.Sorted(maps.Keys(r.records)) {
		last := map[string]int64{}
		for _, rec := range r.records[p] {
			at := Place{p, rec.offset}
			if before, ok := seen[rec.id]; ok {
				b.addf("record %s is there twice, at %s and %s", rec.id, before, at)
				continue
			}
			seen[rec.id] = at
			producer, n, err := rec.id.split()
			if err != nil {
				b.addf("at %s: %v", at, err)
				continue
			}
			if before, ok := last[producer]; ok && n < before {
				b.addf("out of order: record %s at %s stands behind %s.%d", rec.id, at, producer, before)
			}
			last[producer] = n
		}
	}
}

// groupRead wants a group to have read all records, and nothing that is not there now.
func (b *brokenList) groupRead(group string, reads, final map[Place]RecordID) {
	for _, at := range slices.SortedFunc(maps.Keys(reads), comparePlaces) {
		if got, ok := final[at]; !ok || got != reads[at] {
			b.addf("group %s read record %s at %s, where now is %q", group, reads[at], at, string(got))
		}
	}
	missing := 0
	for at := range final {
		if _, ok := reads[at]; !ok {
			missing++
		}
	}
	if missing > 0 {
		b.addf("group %s was never given %d of %d records", group, missing, len(final))
	}
}

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

func firstDifference(a, b map[Place]RecordID) string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, at := range slices.SortedFunc(maps.Keys(both), comparePlaces) {
		if a[at] != b[at] {
			return fmt.Sprintf("at %s %q and %q", at, string(a[at]), string(b[at]))
		}
	}
	return "none"
}
