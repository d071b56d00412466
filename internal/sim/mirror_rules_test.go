package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// mirrorRules are what both levels of mirrors are held against: see mirrorCheck and coreMirrorCheck for the list of them.
type mirrorRules struct {
	names    [2]string           // of the sides
	records  map[string]*written // by value
	readable [2]map[string]int64 // what could be read in a mirror, or was served, by the side
	legs     []*legSpan
	unclean  bool // leaders may be elected out of sync at the source: it loses records
}

func newMirrorRules(names [2]string, unclean bool) *mirrorRules {
	return &mirrorRules{names: names, records: map[string]*written{}, readable: [2]map[string]int64{{}, {}}, unclean: unclean}
}

// legSpan is what the rules need to know of a time that one side mirrors the other.
type legSpan struct {
	to int // the side that mirrors
	// base is up to where both sides shared their records by the stop before: what the side took beyond is cut, and kept aside.
	base    [mirrorPartitions]int64
	aligned time.Time // when it was seen to be the source's equal
}

const (
	mirrorTopic      = "m"
	mirrorPartitions = 2
	mirrorGroup      = "g"
)

// written is a record that a client wrote, or tried to.
type written struct {
	value   string
	side    int
	writer  string // who wrote it, to which partition
	n       int
	part    int32
	at      time.Time
	acked   bool
	refused bool
	offset  int64
}

// content says what is wrong with what a partition holds, and adds where things are to found.
func (k *mirrorRules) content(part int32, recs []rec, found map[string]int64) string {
	last := map[string]int{}
	for _, r := range recs {
		w := k.records[r.value]
		if w == nil || w.part != part {
			return fmt.Sprintf("unknown: offset %d of partition %d holds %q, which nobody wrote there", r.offset, part, r.value)
		}
		if at, ok := found[r.value]; ok {
			return fmt.Sprintf("repeated: %q is at offsets %d and %d of partition %d", r.value, at, r.offset, part)
		}
		if n, ok := last[w.writer]; ok && n >= w.n {
			return fmt.Sprintf("order: %q at offset %d of partition %d follows record %d of its writer", r.value, r.offset, part, n)
		}
		if w.refused {
			return fmt.Sprintf("readonly: %q is at offset %d of partition %d, its write was refused", r.value, r.offset, part)
		}
		found[r.value], last[w.writer] = r.offset, w.n
	}
	return ""
}

// account looks for every record that was acknowledged, or could be read in a mirror, in the log, or where a cut put it aside, and says what is
// wrong. aside says whether a side has a record among those that it has set aside.
func (k *mirrorRules) account(found map[string]int64, aside func(side int, value string) bool) string {
	for _, v := range slices.Sorted(maps.Keys(k.records)) {
		w := k.records[v]
		at, there := found[v]
		switch {
		case !w.acked:
		case there && at != w.offset:
			return fmt.Sprintf("moved: %q was acknowledged by %s at offset %d of partition %d and is at %d", v, k.names[w.side], w.offset, w.part, at)
		case there || k.unclean: // what leaders out of sync lose at a source is not set aside
		case !k.mayCut(w):
			return fmt.Sprintf("lost: %q was acknowledged by %s at offset %d of partition %d and is not there; set aside: %v", v, k.names[w.side], w.offset, w.part, aside(w.side, v))
		case !aside(w.side, v):
			return fmt.Sprintf("aside: %q was acknowledged by %s at offset %d of partition %d; it was cut and not set aside", v, k.names[w.side], w.offset, w.part)
		}
	}
	for i, values := range k.readable {
		for _, v := range slices.Sorted(maps.Keys(values)) {
			at, there := found[v]
			switch {
			case k.unclean && i == 0: // there leaders out of sync may be elected in a leg that mirrors to it, too
			case there && at != values[v] && k.unclean && aside(i, v): // the source lost it before it was acknowledged, and it was written again
			case there && at != values[v]:
				return fmt.Sprintf("moved: %q could be read at offset %d of %s and is at %d", v, values[v], k.names[i], at)
			case !there && !aside(i, v):
				return fmt.Sprintf("aside: %q could be read at offset %d of %s; it is not there and was not set aside", v, values[v], k.names[i])
			}
		}
	}
	return ""
}

// mayCut says whether a cut may have taken a record: it was written to a side that mirrors from before it on since.
func (k *mirrorRules) mayCut(w *written) bool {
	for _, l := range k.legs {
		if l.to == w.side && w.offset >= l.base[w.part] && (l.aligned.IsZero() || w.at.Before(l.aligned)) {
			return true
		}
	}
	return false
}

// checkStates says what is wrong with the history of a mirror's partition states in their log on a side.
func checkStates(log *partlog.Log, side string) (why string) {
	last := map[string]mirrormsg.MirrorPartitionStateValue{}
	err := eachRecord(log, func(r record.Record) error {
		key, err := mirrormsg.ParseKey(r.Key)
		if err != nil || key.Type != mirrormsg.MirrorPartitionStateType {
			return err
		}
		id := fmt.Sprintf("%s %s-%d", key.Mirror, key.TopicID, key.Partition)
		if r.Value == nil {
			delete(last, id)
			return nil
		}
		var v mirrormsg.MirrorPartitionStateValue
		if err := v.ReadFrom(r.Value); err != nil {
			return err
		}
		old, ok := last[id]
		last[id] = v
		switch state, before := mirrormsg.State(v.State), mirrormsg.State(old.State); {
		case !ok:
		case v.LeaderEpoch < old.LeaderEpoch || v.StateEpoch < old.StateEpoch:
			why = fmt.Sprintf("states: %s on %s: leader epoch %d, state epoch %d is followed by %d, %d", id, side, old.LeaderEpoch, old.StateEpoch, v.LeaderEpoch, v.StateEpoch)
		case v.StateEpoch == old.StateEpoch+1 && !state.CanFollow(before):
			why = fmt.Sprintf("states: %s on %s: %s follows %s", id, side, state, before)
		case state == mirrormsg.Failed && (v.ErrorMessage == nil || *v.ErrorMessage == ""):
			why = fmt.Sprintf("states: %s on %s is FAILED without a reason", id, side)
		}
		return nil
	})
	if err != nil {
		return fmt.Sprintf("states: %s of %s: %v", mirrorstate.Topic, side, err)
	}
	return why
}

// between lists whole batches and records between two offsets; nothing if the log can't be read now.
func between(l *partlog.Log, from, to int64) (sums []batchSum, recs []rec) {
	from = max(from, l.StartOffset())
	all, rs, err := scanFrom(l, from)
	if err != nil {
		return nil, nil
	}
	for _, b := range all {
		if b.base >= from && b.next <= to {
			sums = append(sums, b)
		}
	}
	for _, r := range rs {
		if r.offset >= from && r.offset < to {
			recs = append(recs, r)
		}
	}
	return sums, recs
}

// brief describes a list of batches by its end.
func brief(sums []batchSum) string {
	return fmt.Sprintf("%d batches, the last of them %+v", len(sums), sums[max(0, len(sums)-3):])
}

// eachRecord calls fn for each record of a log.
func eachRecord(l *partlog.Log, fn func(r record.Record) error) error {
	return eachBatch(l, l.StartOffset(), func(b record.Batch) error {
		for r, err := range b.Records(0) {
			if err == nil {
				err = fn(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// logEnds are where the logs of both sides end, by what leads them.
func logEnds(leader func(side int, part int32) *replica.Partition) string {
	var out []int64
	for part := range int32(mirrorPartitions) {
		for side := range 2 {
			if p := leader(side, part); p != nil {
				out = append(out, p.LogEndOffset())
			}
		}
	}
	return fmt.Sprint(out)
}

// committed adds the batches that a source has committed from an offset on, and returns where to go on.
func committed(src *replica.Partition, from int64, batches map[int64]batchSum) int64 {
	sums, _ := between(src.Log(), from, src.HighWatermark())
	for _, b := range sums {
		batches[b.base] = b
		from = b.next
	}
	return from
}
