package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

func (a *app) mirrorsFailback() *cobra.Command {
	p := &planned{a: a}
	c := &cobra.Command{
		Use: "failback NAME --reverse-config FILE", Short: "Have a mirror's old source copy this cluster", Args: exactly("NAME"),
		Long: "After a failover, with the old source back: creates and starts a mirror there that copies this cluster. It shows first, of each\n" +
			"partition, what will be cut of the old source's log: records that this cluster never got. They are set aside there and can be\n" +
			"read (milena mirrors cut). The old source's topics are fenced first, where it has fences, and nothing is cut beyond what was\n" +
			"shown. When the old source has caught up, production moves back with milena mirrors switchover there.",
		Example: "  milena mirrors failback dr --reverse-config back.properties",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.asks(); err != nil {
				return err
			}
			switch {
			case p.reverseConfig == "":
				return usagef("mirrors failback needs --reverse-config FILE: how the old source reaches this cluster")
			case p.timeout <= 0:
				return usagef("--timeout must be above 0")
			}
			return p.failback(cmd, args[0])
		},
	}
	return p.flags(c)
}

func (p *planned) failback(cmd *cobra.Command, mirror string) error {
	reverse, err := p.reverse()
	if err != nil {
		return err
	}
	return p.both(cmd, mirror, func(ctx context.Context, source, here *kgo.Client) error {
		f, err := mirroradm.PlanFailback(ctx, source, here, mirror, mirroradm.FailbackOptions{Reverse: reverse, ReverseName: p.reverseName})
		if errors.Is(err, mirroradm.ErrNoMirroring) {
			err = fmt.Errorf("%w; only Milena can copy this cluster back", err)
		}
		if err != nil {
			return failedf("mirror %s can't be failed back, and nothing was changed: %w", mirror, err)
		}
		p.showFailback(f)
		if err := f.Refused(); err != nil {
			return fmt.Errorf("mirror %s is not failed back, and nothing was changed: %w", mirror, err)
		}
		if !p.yes {
			records, bytes := f.Cut()
			if err := p.a.confirm(fmt.Sprintf("Cut %d records (%d bytes) of the old source's topics, and copy this cluster?", records, bytes)); err != nil {
				return err
			}
		}
		return p.reportFailback(ctx, f, f.Run(ctx, p.stepped))
	})
}

// showFailback says what will be cut.
func (p *planned) showFailback(f *mirroradm.Failback) {
	if p.a.json {
		return
	}
	t := table{header: []string{"TOPIC", "PARTITION", "OLD-SOURCE-END", "CUT-TO", "CUT-RECORDS", "CUT-BYTES", "TO-COPY"}}
	for _, x := range f.Partitions {
		t.add(x.Topic, x.Partition, x.End, x.CutTo, x.Records, x.Bytes, x.Copied)
	}
	p.a.printf("%s", t.String())
	for _, n := range f.New {
		p.a.printf("Topic %s is not at the old source: it is created there.\n", n)
	}
	for _, n := range slices.Sorted(maps.Keys(f.LeftOut)) {
		p.a.printf("Left out: topic %s: %s.\n", n, f.LeftOut[n])
	}
	records, bytes := f.Cut()
	p.a.printf("Of the old source %d records, %d bytes are cut; they are set aside there. Mirror %s there will copy %d topics.\n", records, bytes, f.ReverseName(), len(f.Topics))
	if !f.Fence {
		p.a.printf("The old source has no write fence: what its clients write until it is a copy is cut too.\n")
	}
}

func (p *planned) reportFailback(ctx context.Context, f *mirroradm.Failback, failed error) error {
	if p.a.json {
		err := p.a.printJSON(failbackReport(f, failed == nil))
		if failed != nil {
			err = failedf("the failback of mirror %s is not complete: %w", f.Mirror, failed)
		}
		return err
	}
	if failed == nil {
		p.a.printf("Topics copied back: %d. To move production back: milena mirrors switchover %s --bootstrap-server (the old source) --reverse-config FILE\n", len(f.Topics), f.ReverseName())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(lookTime, p.timeout))
	defer cancel()
	w := f.Where(ctx)
	p.a.notef("State of things now:\n")
	say := p.say
	say(w.Fenced, "fenced against writes at the old source")
	say(w.Open, "taking writes at the old source")
	say(w.Back, "in mirror "+f.ReverseName()+" at the old source (milena mirrors describe there)")
	if w.Err != nil {
		p.a.notef("  the old source could not be asked, so what was done there isn't known: %v\n", rootCause(w.Err))
	}
	p.a.notef("  taking writes here, as before: %s\n", strings.Join(f.Topics, ", "))
	p.a.notef("To go on: the same command again, or once the mirror there has caught up, milena mirrors unfence at the old source.\n")
	if len(w.Back) == 0 {
		p.a.notef("To go back: milena mirrors unfence --topics %s --bootstrap-server (the old source).\n", topicArguments(f.Topics))
	} else {
		p.a.notef("To go back: milena mirrors stop %s --topics %s --bootstrap-server (the old source), which makes its topics writable once they are unfenced.\n", f.ReverseName(), topicArguments(w.Back))
	}
	return failedf("the failback of mirror %s is not complete: %w", f.Mirror, failed)
}

func failbackReport(f *mirroradm.Failback, complete bool) map[string]any {
	type part struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		End       int64  `json:"old_source_end"`
		CutTo     int64  `json:"cut_to"`
		Records   int64  `json:"cut_records"`
		Bytes     int64  `json:"cut_bytes"`
		Copied    int64  `json:"to_copy"`
	}
	parts := []part{}
	for _, x := range f.Partitions {
		parts = append(parts, part{x.Topic, x.Partition, x.End, x.CutTo, x.Records, x.Bytes, x.Copied})
	}
	return map[string]any{
		"mirror": f.Mirror, "source_cluster_id": f.Source, "reverse_mirror": f.ReverseName(), "complete": complete, "partitions": parts, "steps": stepsJSON(f.Steps),
		"created": list(f.New), "left_out": f.LeftOut,
	}
}
