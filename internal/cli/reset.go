package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// resetFlags choose the new offsets of a group, exactly one of the modes being given.
type resetFlags struct {
	topics             []string
	allTopics, execute bool

	earliest, latest, current bool
	offset, shift             int64
	datetime                  string
	by                        time.Duration
}

func (a *app) groupsReset() *cobra.Command {
	var f resetFlags
	c := &cobra.Command{
		Use: "reset-offsets GROUP", Short: "Show or set new committed offsets of a group without members", Args: exactly("GROUP"),
		Long: "Shows the offsets a reset would commit; with --execute it commits them. The group must have no members.\n" +
			"A topic is NAME for all its partitions or NAME:0,1,2 for some.",
		Example: "  milena groups reset-offsets g --topic orders --to-earliest --execute",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, adm *admin) error { return a.resetOffsets(ctx, cmd, adm, args[0], &f) })
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.topics, "topic", nil, "topic, `NAME[:PARTITIONS]`; may be repeated")
	fl.BoolVar(&f.allTopics, "all-topics", false, "all topics the group has offsets for")
	fl.BoolVar(&f.execute, "execute", false, "commit the new offsets")
	fl.BoolVar(&f.earliest, "to-earliest", false, "to the log start offset")
	fl.BoolVar(&f.latest, "to-latest", false, "to the log end offset")
	fl.BoolVar(&f.current, "to-current", false, "to the committed offset")
	fl.Int64Var(&f.offset, "to-offset", 0, "to this offset")
	fl.Int64Var(&f.shift, "shift-by", 0, "by so many records, negative backwards")
	fl.StringVar(&f.datetime, "to-datetime", "", "to the first record at or after this time, `YYYY-MM-DDTHH:mm:SS.sss[Z]`")
	fl.DurationVar(&f.by, "by-duration", 0, "to the first record younger than this")
	return a.clientFlags(c)
}

func (f *resetFlags) check(cmd *cobra.Command) error {
	modes := 0
	for _, n := range []string{"to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration"} {
		if cmd.Flags().Changed(n) {
			modes++
		}
	}
	switch {
	case modes != 1:
		return usagef("give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration")
	case f.allTopics == (len(f.topics) > 0):
		return usagef("give either --topic or --all-topics")
	}
	return nil
}

func (a *app) resetOffsets(ctx context.Context, cmd *cobra.Command, adm *admin, groupName string, f *resetFlags) error {
	committed, err := committedOffsets(ctx, adm.Client, groupName)
	if err != nil {
		return err
	}
	want, err := f.scope(ctx, adm, committed)
	if err != nil {
		return err
	}
	targets, err := f.targets(ctx, cmd, adm, want, committed)
	if err != nil {
		return err
	}
	if f.execute {
		rs, err := adm.CommitOffsets(ctx, groupName, targets)
		if err != nil {
			return answer("group "+groupName, err, "")
		}
		for _, r := range rs.Sorted() {
			if isCode(r.Err, "UNKNOWN_MEMBER_ID") {
				return fmt.Errorf("group %s has active members: stop its consumers first", groupName)
			}
			if err := answer(fmt.Sprintf("%s-%d", r.Topic, r.Partition), r.Err, ""); err != nil {
				return err
			}
		}
	}
	type row struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		Offset    int64  `json:"new_offset"`
	}
	rows, t := []row{}, table{header: []string{"GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"}}
	for _, o := range targets.Sorted() {
		rows = append(rows, row{o.Topic, o.Partition, o.At})
		t.add(groupName, o.Topic, o.Partition, o.At)
	}
	if a.json {
		return a.printJSON(map[string]any{"group": groupName, "executed": f.execute, "offsets": rows})
	}
	a.printf("%s", t.String())
	if !f.execute {
		a.notef("Nothing was changed: add --execute to commit these offsets.\n")
	}
	return nil
}

// scope is the set of partitions to reset.
func (f *resetFlags) scope(ctx context.Context, adm *admin, committed kadm.OffsetResponses) (kadm.TopicsSet, error) {
	want := kadm.TopicsSet{}
	if f.allTopics {
		for _, o := range committed.Sorted() {
			want.Add(o.Topic, o.Partition)
		}
		if len(want) == 0 {
			return nil, fmt.Errorf("the group has no committed offsets: name topics with --topic")
		}
		return want, nil
	}
	for _, spec := range f.topics {
		name, parts, some := strings.Cut(spec, ":")
		if some {
			for _, s := range strings.Split(parts, ",") {
				p, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
				if err != nil || p < 0 {
					return nil, usagef("--topic %q: %q is no partition", spec, s)
				}
				want.Add(name, int32(p))
			}
			continue
		}
		ts, err := adm.ListTopics(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := answer("topic "+name, ts[name].Err, ""); err != nil {
			return nil, err
		}
		want.Add(name, ts[name].Partitions.Numbers()...)
	}
	return want, nil
}

// targets computes the new offset of each partition, kept within the log.
func (f *resetFlags) targets(ctx context.Context, cmd *cobra.Command, adm *admin, want kadm.TopicsSet, committed kadm.OffsetResponses) (kadm.Offsets, error) {
	topics := want.Topics()
	starts, startsErr := adm.ListStartOffsets(ctx, topics...)
	ends, endsErr := adm.ListEndOffsets(ctx, topics...)
	var byTime kadm.ListedOffsets
	if at, ok, err := f.time(cmd, time.Now()); err != nil {
		return nil, err
	} else if ok {
		var partly *kadm.ShardErrors
		if byTime, err = adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...); err != nil && !errors.As(err, &partly) {
			return nil, err
		}
	}
	out := kadm.Offsets{}
	for _, tp := range want.Sorted() {
		for _, p := range slices.Sorted(slices.Values(tp.Partitions)) {
			start, okStart := starts.Lookup(tp.Topic, p)
			end, okEnd := ends.Lookup(tp.Topic, p)
			if !okStart || !okEnd || start.Err != nil || end.Err != nil {
				why := cmp.Or(start.Err, end.Err, notListed(startsErr, tp.Topic, p), notListed(endsErr, tp.Topic, p), error(kerr.UnknownTopicOrPartition))
				return nil, answer(fmt.Sprintf("%s-%d", tp.Topic, p), why, "")
			}
			old, has := committed.Lookup(tp.Topic, p)
			var at int64
			switch {
			case f.earliest:
				at = start.Offset
			case f.latest:
				at = end.Offset
			case byTime != nil:
				o, ok := byTime.Lookup(tp.Topic, p)
				if !ok || o.Err != nil {
					return nil, answer(fmt.Sprintf("%s-%d", tp.Topic, p), cmp.Or(o.Err, error(kerr.LeaderNotAvailable)), "")
				}
				if at = o.Offset; at < 0 {
					at = end.Offset
				}
			case cmd.Flags().Changed("to-offset"):
				at = f.offset
			default: // --to-current and --shift-by start at the committed offset
				if !has || old.At < 0 {
					return nil, fmt.Errorf("%s-%d: the group has no committed offset there", tp.Topic, p)
				}
				at = old.At + f.shift
			}
			out.Add(kadm.Offset{Topic: tp.Topic, Partition: p, At: min(max(at, start.Offset), end.Offset), LeaderEpoch: -1})
		}
	}
	return out, nil
}

func (f *resetFlags) time(cmd *cobra.Command, now time.Time) (time.Time, bool, error) {
	if cmd.Flags().Changed("by-duration") {
		return now.Add(-f.by), true, nil
	}
	if f.datetime == "" {
		return time.Time{}, false, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999Z07:00", "2006-01-02T15:04:05.999"} {
		if t, err := time.Parse(layout, f.datetime); err == nil {
			return t, true, nil
		}
	}
	return time.Time{}, false, usagef("--to-datetime %q is not YYYY-MM-DDTHH:mm:SS.sss, with or without a zone", f.datetime)
}
