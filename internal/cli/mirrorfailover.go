package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

type failoverPartitionJSON struct {
	Topic        string  `json:"topic"`
	Partition    int32   `json:"partition"`
	State        string  `json:"state"`
	Start        *int64  `json:"start"`
	End          *int64  `json:"end"`
	LastMirrored *int64  `json:"last_mirrored_offset"`
	MirroredEnd  *int64  `json:"mirrored_end"`
	LastRecord   *string `json:"last_mirrored_time"`
	SourceEnd    *int64  `json:"source_end"`
	SourceSeenMs *int64  `json:"source_end_age_ms"`
	Missing      *int64  `json:"missing"`
	Error        string  `json:"error,omitempty"`
}

func (a *app) mirrorsFailover() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "failover NAME", Short: "Make all topics of a mirror writable, with the source gone", Args: exactly("NAME"),
		Long: "Stops all topics of the mirror at once, from whatever state; nothing of the source is needed. The mirror's include list is\n" +
			"emptied, so that a source that comes back adds no topics. Topics whose log is just being aligned with the source\n" +
			"(LOG_TRUNCATION) are tried again until little is left of --timeout, which bounds the whole command; what can't be stopped is\n" +
			"named then, with what it holds and the command that forces it writable.\n\n" +
			"Of each partition it shows the offset and the time of the last mirrored record, and the last end of the source that was seen:\n" +
			"what is missing here. What isn't known is a dash, and so is the last record of a partition that has none.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usagef("--timeout must be above 0")
			}
			cl, err := a.connect(cmd, mirroradm.Software())
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			controllers := askControllers(ctx, cl, 0)
			f, err := mirroradm.StopAll(ctx, cl, args[0])
			if err = a.unanswered(a.noMirroring(err), timeout, controllers, false); err != nil {
				return ofMirror(args[0], err)
			}
			for _, w := range f.Warnings {
				a.notef("%s.\n", oneLine(w.Error()))
			}
			return a.printFailover(args[0], f)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "give up after this time, and say what is not stopped")
	return a.clientFlags(c)
}

func failoverRow(p *mirroradm.FailoverPartition) failoverPartitionJSON {
	x := failoverPartitionJSON{Topic: p.Topic, Partition: p.Partition, State: p.State}
	if p.State != "STOPPED" {
		x.Error = p.Error
	}
	x.Start, x.End, x.MirroredEnd = known(p.Start), known(p.End), known(p.LastMirrored)
	if n, ok := p.LastOffset(); ok {
		x.LastMirrored = &n
	}
	if !p.LastRecord.IsZero() {
		s := p.LastRecord.UTC().Format("2006-01-02T15:04:05.000Z")
		x.LastRecord = &s
	}
	if p.SourceEnd >= 0 {
		age := p.SourceSeen.Milliseconds()
		x.SourceEnd, x.SourceSeenMs = &p.SourceEnd, &age
	}
	if n, ok := p.Missing(); ok {
		x.Missing = &n
	}
	return x
}

// topicArgument is a topic's name for --topics on a shell's command line: as a pattern that matches no other.
func topicArgument(name string) string {
	if q := regexp.QuoteMeta(name); q != name {
		return "'" + q + "'"
	}
	return name
}

// held words what a partition holds.
func held(p *mirroradm.FailoverPartition) string {
	switch {
	case p.End < 0:
		return "holds what isn't known"
	case p.Start < 0:
		return fmt.Sprintf("holds offsets up to %d, from where isn't known", p.End-1)
	case p.Start >= p.End:
		return "holds no records"
	}
	return fmt.Sprintf("holds the offsets %d to %d", p.Start, p.End-1)
}

// notFailedOver says of each topic that takes no writes why, and what to do.
func notFailedOver(mirror string, f *mirroradm.Failover) []error {
	var names, open []string
	parts := map[string][]*mirroradm.FailoverPartition{}
	for i := range f.Partitions {
		p := &f.Partitions[i]
		if p.State == "STOPPED" {
			continue
		}
		if parts[p.Topic] == nil {
			names = append(names, p.Topic)
		}
		parts[p.Topic] = append(parts[p.Topic], p)
	}
	var out []error
	for _, t := range names {
		aligning := slices.ContainsFunc(parts[t], func(p *mirroradm.FailoverPartition) bool { return p.State == "LOG_TRUNCATION" })
		if f.Unanswered[t] != nil && (f.Controllerless || !aligning) {
			open = append(open, t)
			continue
		}
		var are []string
		for _, p := range parts[t] {
			text := fmt.Sprintf("partition %d is %s", p.Partition, p.State)
			if p.Error != "" {
				text += " (" + oneLine(p.Error) + ")"
			}
			are = append(are, text+" and "+held(p))
		}
		what := "its stop is accepted and goes on: see milena mirrors describe " + mirror
		switch why := f.Refused[t]; {
		case aligning:
			what = fmt.Sprintf("milena mirrors stop %s --topics %s --force makes it writable as it is", mirror, topicArgument(t))
		case why != nil:
			what = "its stop was refused: " + oneLine(why.Error())
		}
		out = append(out, fmt.Errorf("topic %s is not failed over: %s; %s", t, strings.Join(are, ", "), what))
	}
	if len(open) > 0 {
		out = append(out, notAnswered(mirror, f, open))
	}
	return out
}

// notAnswered is about topics of which nobody has said what becomes of their stop.
func notAnswered(mirror string, f *mirroradm.Failover, topics []string) error {
	why := rootCause(f.Unanswered[topics[0]]).Error()
	if f.Controllerless {
		why = "no controller answers, and without a majority of them nothing can be stopped: start those that are gone (milena cluster describe)"
	}
	return fmt.Errorf("%d topics of mirror %s are not failed over, and whether they will be is open, since the cluster has not answered their stop: %s; then run milena mirrors failover %s again. They are %s",
		len(topics), mirror, oneLine(why), mirror, strings.Join(topics, ", "))
}

// printFailover shows what came of it; the error names each topic that takes no writes.
func (a *app) printFailover(mirror string, f *mirroradm.Failover) error {
	rows, t := []failoverPartitionJSON{}, table{header: []string{"TOPIC", "PARTITION", "STATE", "LAST-MIRRORED-OFFSET", "LAST-MIRRORED-TIME", "SOURCE-END", "MISSING"}}
	missing, unknown := int64(0), 0
	for i := range f.Partitions {
		p := &f.Partitions[i]
		x := failoverRow(p)
		rows = append(rows, x)
		when := "-"
		if x.LastRecord != nil {
			when = *x.LastRecord
		}
		t.add(x.Topic, x.Partition, x.State, number(x.LastMirrored), when, number(x.SourceEnd), number(x.Missing))
		if n, ok := p.Missing(); ok {
			missing += n
		} else {
			unknown++
		}
	}
	failed := notFailedOver(mirror, f)
	for _, t := range f.Fenced {
		failed = append(failed, fmt.Errorf("topic %s takes no writes, since it is fenced here (milena.write.fence=true): milena mirrors unfence --topics %s", t, topicArgument(t)))
	}
	if a.json {
		out := map[string]any{"mirror": mirror, "fenced": list(f.Fenced), "partitions": rows, "took_ms": f.Took.Milliseconds(), "complete": f.Done(), "topics_include_was": f.Include, "weaker": append([]string{}, f.Weaker...)}
		return errors.Join(a.printJSON(out), errors.Join(failed...))
	}
	a.printf("%s", t.String())
	for _, w := range f.Weaker {
		a.printf("Weaker than on the source: %s.\n", w)
	}
	if f.Include != "" {
		a.printf("The mirror finds no more topics: mirror.topics.include was %s.\n", f.Include)
	}
	if f.Done() && len(f.Fenced) == 0 {
		a.printf("All %d partitions of mirror %s take writes, after %s.\n", len(rows), mirror, f.Took.Round(time.Millisecond))
	}
	switch {
	case len(rows) == 0:
	case unknown > 0:
		a.printf("Missing: %d offsets, and it isn't known of %d partitions how far the source had come.\n", missing, unknown)
	default:
		a.printf("Missing: %d offsets that the source was seen to have.\n", missing)
	}
	return errors.Join(failed...)
}
