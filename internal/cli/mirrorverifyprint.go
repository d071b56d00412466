package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"milena/mirroradm"
)

type verifyDifferenceJSON struct {
	Offset      int64  `json:"offset"`
	Source      string `json:"source_hash"`
	Destination string `json:"destination_hash"`
	What        string `json:"what"`
}

type verifyPartitionJSON struct {
	Topic      string                `json:"topic"`
	Partition  int32                 `json:"partition"`
	From       int64                 `json:"from"`
	To         int64                 `json:"to"`
	Proven     int64                 `json:"proven"`
	By         string                `json:"by"` // batch or record
	Batches    int64                 `json:"batches"`
	Records    int64                 `json:"records"`
	Bytes      int64                 `json:"bytes"`
	Read       int64                 `json:"read"`              // offsets
	Removed    int64                 `json:"removed,omitempty"` // offsets that retention took first
	Result     string                `json:"result"`            // equal, unread, undecided, different
	Unread     string                `json:"unread,omitempty"`  // why
	Difference *verifyDifferenceJSON `json:"difference,omitempty"`
	Error      string                `json:"error,omitempty"`

	known bool // proven as a whole by an earlier run
}

// row is what came of a partition. It is equal if something of it was read, now or by an earlier run, or there is nothing on either side.
func (s *verifyState) row(r *mirroradm.VerifyResult) verifyPartitionJSON {
	x := verifyPartitionJSON{Topic: r.Topic, Partition: r.Partition, From: r.From, To: r.To, Proven: r.Proven, By: "batch", Batches: r.Batches, Records: r.Records,
		Bytes: r.Bytes, Read: r.Read, Removed: r.Gone, Result: "equal", known: s.known[rangeKey(&r.Range)]}
	if r.Compacted {
		x.By = "record"
	}
	switch {
	case r.Difference != nil:
		x.Result = "different"
		x.Difference = &verifyDifferenceJSON{r.Difference.Offset, r.Difference.Source, r.Difference.Destination, r.Difference.What}
	case r.Err != nil:
		x.Result, x.Error = "undecided", oneLine(r.Err.Error())
	case r.Nothing != "":
		x.Unread = r.Nothing
	case r.From == r.To || r.Read > 0:
	case r.Gone > 0:
		x.Unread = "retention took its offsets before they were read"
	default:
		x.Unread = "none of its chunks is in the sample"
	}
	if x.Unread != "" {
		x.Result, x.Proven = "unread", x.From
	}
	return x
}

// verdict is what all partitions together come to.
type verdict struct {
	result   string // as of a partition
	byRecord bool
	first    error // why it is not equal
	// equal are partitions of which something was read, removed offsets.
	equal, removed int64
	// reasons are why partitions are unread, and unread which are.
	reasons []string
	unread  map[string][]string
}

func (v *mirrorVerify) judge(rows []verifyPartitionJSON) *verdict {
	d := &verdict{result: "equal", unread: map[string][]string{}}
	for _, x := range rows {
		d.byRecord = d.byRecord || x.By == "record"
		d.removed += x.Removed
		switch {
		case x.Result == "equal":
			if x.From < x.To || x.known {
				d.equal++
			}
		case x.Result == "unread":
			if d.unread[x.Unread] == nil {
				d.reasons = append(d.reasons, x.Unread)
			}
			d.unread[x.Unread] = append(d.unread[x.Unread], fmt.Sprintf("%s-%d", x.Topic, x.Partition))
		case x.Result == "different" && d.result != "different":
			d.result = x.Result
			d.first = &exitError{verifyDifferent, fmt.Errorf("topic %s partition %d differs at offset %d: %s: source %s, destination %s", x.Topic, x.Partition,
				x.Difference.Offset, x.Difference.What, x.Difference.Source, x.Difference.Destination)}
		case x.Result == "undecided" && d.result == "equal":
			d.result = x.Result
			d.first = &exitError{verifyUndecided, fmt.Errorf("topic %s partition %d could not be compared: %s%s", x.Topic, x.Partition, x.Error, v.goOn())}
		}
	}
	if d.result == "equal" && d.equal == 0 && len(d.reasons) > 0 {
		d.result = "unread"
		d.first = fmt.Errorf("nothing was compared: %s", d.notRead(0))
	}
	return d
}

// notRead words one of the reasons.
func (d *verdict) notRead(i int) string {
	names := d.unread[d.reasons[i]]
	text := names[0]
	if n := len(names) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ": " + d.reasons[i]
}

// print shows the results; its error carries the exit code.
func (v *mirrorVerify) print(mirror string, s *verifyState, results []mirroradm.VerifyResult) error {
	slices.SortFunc(results, func(a, b mirroradm.VerifyResult) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	rows, t := []verifyPartitionJSON{}, table{header: []string{"TOPIC", "PARTITION", "FROM", "TO", "BY", "RESULT"}}
	for i := range results {
		x := s.row(&results[i])
		rows = append(rows, x)
		t.add(x.Topic, x.Partition, x.From, x.To, x.By, x.Result)
	}
	d := v.judge(rows)
	if v.a.json {
		out := map[string]any{"mirror": mirror, "result": d.result, "partitions": rows, "sample": s.Sample, "from": v.from, "proven_before": s.spared}
		if s.Sample < 1 {
			out["seed"] = s.Seed
		}
		return errors.Join(v.a.printJSON(out), d.first)
	}
	v.a.printf("%s", t.String())
	v.printLimits(s, d)
	v.a.printf("Mirror %s and its source are %s.\n", mirror, v.words(s, d))
	return d.first
}

// printLimits says what was not read.
func (v *mirrorVerify) printLimits(s *verifyState, d *verdict) {
	if d.byRecord {
		v.a.printf("Compacted topics were compared record by record: what both hold is the same, and what one lacks compaction may remove.\n")
	}
	if v.from > 0 {
		v.a.printf("Offsets below %d were not read (--from).\n", v.from)
	}
	if s.Sample < 1 {
		v.a.printf("Only a sample of %g of the chunks was read, --seed %d.\n", s.Sample, s.Seed)
	}
	if s.spared > 0 {
		v.a.printf("%d offsets were not read again, since %s has them from before.\n", s.spared, v.resume)
	}
	if d.removed > 0 {
		v.a.printf("%d offsets were not compared, since retention took them before they were read.\n", d.removed)
	}
	for i := range d.reasons {
		v.a.printf("Not read: %s.\n", d.notRead(i))
	}
}

func (v *mirrorVerify) words(s *verifyState, d *verdict) string {
	switch {
	case d.result == "different":
		return "different"
	case d.result == "undecided":
		return "not fully compared"
	case d.result == "unread":
		return "not compared"
	case v.from > 0 || s.Sample < 1 || d.removed > 0 || len(d.reasons) > 0:
		return "equal in what was compared"
	}
	return "equal"
}

func (v *mirrorVerify) goOn() string {
	if v.resume == "" {
		return ""
	}
	return ": run it again with --progress " + v.resume + " to go on"
}
