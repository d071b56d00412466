package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

type mirrorPartitionJSON struct {
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	State             string `json:"state"`
	SourceOffset      *int64 `json:"source_offset"`
	DestinationOffset *int64 `json:"destination_offset"`
	Lag               *int64 `json:"lag"`
	SourceAgeMs       *int64 `json:"source_age_ms"`
	// LastSourceOffset is what the source was seen to have last, though it may not answer any more, and its age.
	LastSourceOffset *int64 `json:"last_source_offset"`
	LastSourceAgeMs  *int64 `json:"last_source_age_ms"`
	LastError        string `json:"last_error,omitempty"`
}

type mirrorJSON struct {
	Mirror     string                `json:"mirror"`
	Source     string                `json:"source"`
	ClusterID  string                `json:"source_cluster_id"`
	Partitions []mirrorPartitionJSON `json:"partitions"`
	Weaker     []string              `json:"weaker,omitempty"`
	GroupsGone []string              `json:"groups_deleted_at_source,omitempty"`
	// Problems are why the mirror's periodic work failed last.
	Problems []string `json:"problems,omitempty"`
	// SetAside is what cuts took and brokers keep.
	SetAside *setAsideJSON `json:"set_aside,omitempty"`
	// Gaps are offsets that the mirror goes on without.
	Gaps []gapJSON `json:"gaps,omitempty"`
}

func (a *app) mirrorsDescribe() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "describe [NAME…]", Short: "Show state, offsets and lag of every mirrored partition",
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && a.json {
				return usagef("--watch does not go with --json")
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				// What some broker can't tell in time is left unknown; it must not keep the rest from being shown.
				m.SetTimeout(min(time.Duration(a.timeout)*time.Millisecond/4, 10*time.Second))
				if !watch {
					return a.describeMirrors(ctx, m, args)
				}
				return a.watchMirrors(cmd.Context(), m, args)
			})
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "repeat every two seconds until interrupted")
	return a.clientFlags(c)
}

func (a *app) watchMirrors(ctx context.Context, m *mirroradm.Client, names []string) error {
	for {
		if a.env.StdoutTerminal {
			a.printf("\x1b[H\x1b[2J")
		}
		if err := a.describeMirrors(ctx, m, names); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

func (a *app) describeMirrors(ctx context.Context, m *mirroradm.Client, names []string) error {
	ds, err := m.Describe(ctx, names...)
	if err != nil {
		return err
	}
	aside, missing := a.setAside(ctx, m)
	out := []mirrorJSON{}
	t := table{header: []string{"MIRROR", "TOPIC", "PARTITION", "STATE", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "LAST-ERROR"}}
	for _, d := range ds {
		if d.Err != nil {
			return ofMirror(d.Name, d.Err)
		}
		j := mirrorJSON{Mirror: d.Name, Source: d.SourceBootstrap, ClusterID: d.SourceClusterID, Partitions: []mirrorPartitionJSON{}, Weaker: d.Weaker, GroupsGone: d.GroupsGone, Problems: d.Problems}
		if x := aside[d.Name]; x != nil {
			if j.Gaps = x.gaps; x.Files > 0 {
				j.SetAside = x
			}
		}
		for _, p := range d.Partitions {
			x := describedRow(&p)
			j.Partitions = append(j.Partitions, x)
			t.add(d.Name, p.Topic, p.Partition, p.State, sourceOffset(&p), number(x.DestinationOffset), lagCell(&p), dash(p.LastError))
		}
		out = append(out, j)
	}
	if a.json {
		return a.printJSON(describedJSON(out, missing))
	}
	a.printf("%s", t.String())
	for _, x := range missing {
		if x.Broker == nil {
			a.printf("What brokers have set aside isn't known: %s.\n", x.Error)
		} else {
			a.printf("What broker %d has set aside isn't known: %s.\n", *x.Broker, x.Error)
		}
	}
	for _, d := range ds {
		for _, p := range d.Problems {
			a.printf("Problem: mirror %s: %s.\n", d.Name, strings.TrimSuffix(oneLine(p), "."))
		}
		for _, w := range d.Weaker {
			a.printf("Weaker than on the source: %s.\n", w)
		}
		for _, g := range d.GroupsGone {
			a.printf("Deleted at the source, kept here: group %s.\n", g)
		}
		if age, ok := oldest(d.Partitions); ok {
			a.printf("The lags of mirror %s are of what the source had up to %s ago.\n", d.Name, age.Round(100*time.Millisecond))
		}
		a.printSetAside(d.Name, aside[d.Name])
	}
	return nil
}

func describedRow(p *mirroradm.Partition) mirrorPartitionJSON {
	x := mirrorPartitionJSON{Topic: p.Topic, Partition: p.Partition, State: p.State, LastError: p.LastError}
	if p.SourceOffset >= 0 {
		age := p.SourceAge.Milliseconds()
		x.SourceOffset, x.SourceAgeMs = &p.SourceOffset, &age
	}
	if p.DestinationOffset >= 0 {
		x.DestinationOffset = &p.DestinationOffset
	}
	if lag, ok := p.Lag(); ok {
		x.Lag = &lag
	}
	if n, age, ok := lastSeen(p); ok {
		ms := age.Milliseconds()
		x.LastSourceOffset, x.LastSourceAgeMs = &n, &ms
	}
	return x
}

// lastSeen is how far a partition's source was seen to have come, and how long ago.
func lastSeen(p *mirroradm.Partition) (offset int64, age time.Duration, ok bool) {
	switch {
	case p.SourceOffset >= 0 && p.SourceAge >= 0:
		return p.SourceOffset, p.SourceAge, true
	case p.LastSourceOffset >= 0 && p.LastSourceAge >= 0:
		return p.LastSourceOffset, p.LastSourceAge, true
	}
	return 0, 0, false
}

// sourceOffset is how far the source has come: unknown where it has not answered of late, with what it had last beside it (spec D6). What is
// stopped has no source any more.
func sourceOffset(p *mirroradm.Partition) string {
	n, age, ok := lastSeen(p)
	switch _, fresh := p.Lag(); {
	case fresh:
		return strconv.FormatInt(p.SourceOffset, 10)
	case !ok || p.State == "STOPPED":
		return "-"
	}
	return fmt.Sprintf("- (%d, %s ago)", n, age.Round(time.Second))
}

// lagCell is the lag, and where that is unknown what it is at least.
func lagCell(p *mirroradm.Partition) string {
	n, _, ok := lastSeen(p)
	switch lag, fresh := p.Lag(); {
	case fresh:
		return strconv.FormatInt(lag, 10)
	case !ok || p.State == "STOPPED" || p.DestinationOffset < 0:
		return "-"
	}
	return fmt.Sprintf("- (%d or more)", max(n-p.DestinationOffset, 0))
}

// oldest is the age of the oldest source offset of which a lag is made.
func oldest(ps []mirroradm.Partition) (age time.Duration, ok bool) {
	for i := range ps {
		if _, fresh := ps[i].Lag(); fresh {
			age, ok = max(age, ps[i].SourceAge), true
		}
	}
	return age, ok
}

func describedJSON(mirrors []mirrorJSON, missing []unaskedJSON) map[string]any {
	out := map[string]any{"mirrors": mirrors}
	if len(missing) > 0 {
		out["set_aside_unknown"] = missing
	}
	return out
}
