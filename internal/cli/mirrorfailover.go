package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

type failoverPartitionJSON struct {
	Topic        string  `json:"topic"`
	Partition    int32   `json:"partition"`
	State        string  `json:"state"`
	LastMirrored *int64  `json:"last_mirrored_offset"`
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
			"(LOG_TRUNCATION) are tried again until --timeout is over; what can't be stopped is named then, with what it holds and the\n" +
			"command that forces it writable.\n\n" +
			"Of each partition it shows the last mirrored offset, the time of the last mirrored record, and the last end of the source\n" +
			"that was seen: what is missing here. What isn't known is a dash.",
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
			f, err := mirroradm.StopAll(ctx, cl, args[0])
			if err = a.noMirroring(err); err != nil {
				return fmt.Errorf("mirror %s: %w", args[0], err)
			}
			for _, w := range f.Warnings {
				a.notef("%v\n", w)
			}
			return a.printFailover(args[0], f)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "give up after this time on topics that can't be stopped yet")
	return a.clientFlags(c)
}

func failoverRow(p *mirroradm.FailoverPartition) failoverPartitionJSON {
	x := failoverPartitionJSON{Topic: p.Topic, Partition: p.Partition, State: p.State}
	if p.State != "STOPPED" {
		x.Error = p.Error
	}
	if p.LastMirrored >= 0 {
		x.LastMirrored = &p.LastMirrored
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

// printFailover shows what came of it; the error names each topic that takes no writes.
func (a *app) printFailover(mirror string, f *mirroradm.Failover) error {
	rows, t := []failoverPartitionJSON{}, table{header: []string{"TOPIC", "PARTITION", "STATE", "LAST-MIRRORED-OFFSET", "LAST-MIRRORED-TIME", "SOURCE-END", "MISSING"}}
	var failed []error
	forced := map[string]bool{}
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
		if p.State != "STOPPED" && !forced[p.Topic] {
			forced[p.Topic] = true
			held := "nothing that is known"
			if p.LastMirrored >= 0 && p.Start >= 0 {
				held = fmt.Sprintf("the offsets %d up to %d", p.Start, p.LastMirrored)
			}
			why := ""
			if p.Error != "" {
				why = " (" + oneLine(p.Error) + ")"
			}
			failed = append(failed, fmt.Errorf("topic %s is not failed over: partition %d is %s%s and holds %s; milena mirrors stop %s --topics %s --force makes it writable as it is",
				p.Topic, p.Partition, p.State, why, held, mirror, topicArgument(p.Topic)))
		}
	}
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
