package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// mirrorsCut are the commands about records that truncations of mirror partitions took (spec D4).
func (a *app) mirrorsCut() *cobra.Command {
	return group("cut", "Records that truncations of mirror topics took and brokers have set aside",
		a.cutList(), a.cutDump(), a.cutReplay(), a.cutPurge())
}

// cutFlags choose what a command is about.
type cutFlags struct {
	mirror    string
	topics    []string
	olderThan time.Duration
}

func (f *cutFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.mirror, "mirror", "", "only what was cut for the mirror `NAME`")
	c.Flags().StringArrayVar(&f.topics, "topics", nil, "only of these topics, comma separated; may be repeated")
	c.Flags().DurationVar(&f.olderThan, "older-than", 0, "only what was set aside longer ago than that, such as 72h")
}

func (f *cutFlags) filter() mirroradm.CutFilter {
	out := mirroradm.CutFilter{Mirror: f.mirror, Topics: splitList(f.topics)}
	if f.olderThan > 0 {
		out.Before = time.Now().Add(-f.olderThan)
	}
	return out
}

// some are the files that the flags choose; none is an error.
func (f *cutFlags) some(ctx context.Context, m *mirroradm.Client) ([]mirroradm.Cut, error) {
	cuts, err := m.Cuts(ctx, f.filter())
	if err == nil && len(cuts) == 0 {
		err = errors.New("nothing is set aside that matches: see milena mirrors cut list")
	}
	return cuts, err
}

// none says that nothing is set aside, or nothing that the flags choose.
func (f *cutFlags) none(ctx context.Context, m *mirroradm.Client) string {
	if f.mirror == "" && len(splitList(f.topics)) == 0 && f.olderThan <= 0 {
		return "Nothing is set aside"
	}
	all, err := m.Cuts(ctx, mirroradm.CutFilter{})
	switch {
	case err != nil:
		return "Nothing is set aside that matches"
	case len(all) == 0:
		return "Nothing is set aside"
	}
	return fmt.Sprintf("Nothing is set aside that matches; %d files of other mirrors, topics or times are: milena mirrors cut list", len(all))
}

// setAsideJSON is how much is set aside of a mirror.
type setAsideJSON struct {
	Files   int   `json:"files"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`

	gaps []gapJSON
}

// gapJSON are offsets that a mirror went on without.
type gapJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int64  `json:"first_offset"`
	End       int64  `json:"end_offset"`
	Missing   int64  `json:"missing"`
	At        string `json:"at"`
	Reason    string `json:"reason"`
}

// add counts a file. Leaders that follow one another may each keep the same gap.
func (x *setAsideJSON) add(c *mirroradm.Cut) {
	if !c.Gap() {
		x.Files, x.Records, x.Bytes = x.Files+1, x.Records+c.Records, x.Bytes+c.Bytes
		return
	}
	if !slices.ContainsFunc(x.gaps, func(g gapJSON) bool {
		return g.Topic == c.Topic && g.Partition == c.Partition && g.First == c.First && g.End == c.End
	}) {
		x.gaps = append(x.gaps, gapJSON{c.Topic, c.Partition, c.First, c.End, c.End - c.First, c.Created.UTC().Format(time.RFC3339), strings.TrimPrefix(c.Reason, "gap: ")})
	}
}

// shownGaps is how many gaps describe shows; cut list has all.
const shownGaps = 20

// printSetAside says what is set aside of a mirror, and which offsets it has not at all.
func (a *app) printSetAside(mirror string, x *setAsideJSON) {
	if x == nil {
		return
	}
	if x.Files > 0 {
		a.printf("Set aside by cuts of mirror %s: %d records in %d files (milena mirrors cut list --mirror %s).\n", mirror, x.Records, x.Files, mirror)
	}
	for i, g := range x.gaps {
		if i == shownGaps {
			a.printf("%d more gaps: milena mirrors cut list --mirror %s.\n", len(x.gaps)-i, mirror)
			return
		}
		a.printf("Gap in mirror %s: %s-%d lacks offsets %d to %d, since %s: %s.\n", mirror, g.Topic, g.Partition, g.First, g.End-1, g.At, g.Reason)
	}
}

// unaskedJSON is a broker that could not tell what it has set aside.
type unaskedJSON struct {
	Broker *int32 `json:"broker"` // null: none could
	Error  string `json:"error"`
}

// unasked are the brokers that an error of Cuts is about.
func unasked(err error) []unaskedJSON {
	var out []unaskedJSON
	errs := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		errs = many.Unwrap()
	}
	for _, e := range errs {
		var b *mirroradm.BrokerError
		switch {
		case e == nil:
		case errors.As(e, &b):
			out = append(out, unaskedJSON{&b.Broker, oneLine(rootCause(b.Err).Error())})
		default:
			out = append(out, unaskedJSON{nil, oneLine(e.Error())})
		}
	}
	return out
}

// setAside is how much is set aside, by mirror, and which brokers could not tell.
func (a *app) setAside(ctx context.Context, m *mirroradm.Client) (map[string]*setAsideJSON, []unaskedJSON) {
	cuts, err := m.Cuts(ctx, mirroradm.CutFilter{})
	out := map[string]*setAsideJSON{}
	for _, c := range cuts {
		if out[c.Mirror] == nil {
			out[c.Mirror] = &setAsideJSON{}
		}
		out[c.Mirror].add(&c)
	}
	return out, unasked(err)
}

type cutJSON struct {
	Mirror      string `json:"mirror"`
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	First       int64  `json:"first_offset"`
	End         int64  `json:"end_offset"`
	Records     int64  `json:"records"`
	Bytes       int64  `json:"bytes"`
	Created     string `json:"created"`
	Broker      int32  `json:"broker"`
	File        string `json:"file"`
	Dir         string `json:"dir"`
	LeaderEpoch int32  `json:"leader_epoch"`
	Reason      string `json:"reason"`
}

func (a *app) cutList() *cobra.Command {
	var f cutFlags
	c := &cobra.Command{
		Use: "list", Short: "List what is set aside, on all brokers", Args: noArgs,
		Long: "Before a mirror partition is truncated, the records that go are set aside on the broker that led it, for\n" +
			"mirror.cut.retention.ms and at most mirror.cut.retention.bytes. Leaders that cut one after the other may both have them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				cuts, err := m.Cuts(ctx, f.filter())
				rows, t := []cutJSON{}, table{header: []string{"MIRROR", "TOPIC", "PARTITION", "OFFSETS", "RECORDS", "BYTES", "CUT-AT", "BROKER", "FILE", "REASON"}}
				for _, x := range cuts {
					at := x.Created.UTC().Format(time.RFC3339)
					rows = append(rows, cutJSON{x.Mirror, x.Topic, x.Partition, x.First, x.End, x.Records, x.Bytes, at, x.Broker, x.File, x.Dir, x.LeaderEpoch, x.Reason})
					t.add(x.Mirror, x.Topic, x.Partition, fmt.Sprintf("%d-%d", x.First, x.End-1), x.Records, x.Bytes, at, x.Broker, x.File, dash(oneLine(x.Reason)))
				}
				switch {
				case a.json:
					return errors.Join(a.printJSON(map[string]any{"cuts": rows}), err)
				case len(rows) == 0 && err == nil:
					a.notef("%s.\n", f.none(ctx, m))
				default:
					a.printf("%s", t.String())
				}
				return err
			})
		},
	}
	f.add(c)
	return a.clientFlags(c)
}

func (a *app) cutDump() *cobra.Command {
	var f cutFlags
	var raw string
	c := &cobra.Command{
		Use: "dump", Short: "Print the records that are set aside, as lines of JSON", Args: noArgs,
		Long: "Prints a line of JSON for each record, as milena consume --json does, each record once. Records of transactions that did not\n" +
			"commit have \"committed\": false. With --raw the files themselves are written to a directory, in the format of log\n" +
			"segments, which milena dump-log and Kafka's kafka-dump-log read.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				cuts, missing := f.some(ctx, m)
				if len(cuts) == 0 {
					return missing
				}
				if raw != "" {
					return errors.Join(a.dumpRaw(ctx, m, cuts, raw), missing)
				}
				w := bufio.NewWriter(a.env.Stdout)
				for r, err := range m.CutRecords(ctx, cuts) {
					if err != nil {
						return errors.Join(w.Flush(), err)
					}
					writeCutJSON(w, &r)
				}
				return errors.Join(w.Flush(), missing)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&raw, "raw", "", "write the files to `DIR` instead")
	return a.clientFlags(c)
}

// cutRecordJSON is a record that was set aside as cut dump prints it.
type cutRecordJSON struct {
	*recordJSON
	// Committed is there for records of transactions.
	Committed *bool `json:"committed,omitempty"`
}

func writeCutJSON(w io.Writer, r *mirroradm.CutRecord) {
	j := cutRecordJSON{recordJSON: asJSON(&kgo.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: r.Headers,
	})}
	if r.Transactional {
		j.Committed = &r.Committed
	}
	encodeJSON(w, &j)
}

// dumpRaw writes each file to a directory, under the number of its broker.
func (a *app) dumpRaw(ctx context.Context, m *mirroradm.Client, cuts []mirroradm.Cut, dir string) error {
	for _, x := range cuts {
		sub := filepath.Join(dir, fmt.Sprintf("broker-%d", x.Broker))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		path := filepath.Join(sub, filepath.Base(x.File))
		out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		for data, readErr := range m.CutData(ctx, x) {
			if err = readErr; err == nil {
				_, err = out.Write(data)
			}
			if err != nil {
				break
			}
		}
		if err := errors.Join(err, out.Close()); err != nil {
			return errors.Join(err, os.Remove(path)) // half a file would pass for the whole
		}
		if !a.json {
			a.printf("%s\n", path)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"directory": dir, "files": len(cuts)})
	}
	return nil
}

func (a *app) cutReplay() *cobra.Command {
	var f cutFlags
	var to string
	var transactions bool
	c := &cobra.Command{
		Use: "replay --to TOPIC", Short: "Produce the records that are set aside to a topic", Args: noArgs,
		Long: "Produces each record once, in order, to the partition of the same number, with its key, value, headers and timestamp. Records of\n" +
			"transactions that aren't known to have committed are left out, unless --uncommitted is given. The files stay:\n" +
			"milena mirrors cut purge removes them.",
		Example: "  milena mirrors cut replay --mirror back --topics orders --to orders-recovered",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return usagef("mirrors cut replay needs --to TOPIC")
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				cuts, err := f.some(ctx, m)
				if err != nil {
					return err
				}
				sent, left, err := a.replay(cmd, m, cuts, to, transactions)
				if err != nil {
					return failedf("%d records were produced to %s, then: %w", sent, to, err)
				}
				if a.json {
					return a.printJSON(map[string]any{"topic": to, "records": sent, "left_out": left})
				}
				a.printf("Produced %d records to topic %s.\n", sent, to)
				if left > 0 {
					a.notef("%d records of transactions that aren't known to have committed were left out; --uncommitted includes them.\n", left)
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&to, "to", "", "the `TOPIC` to produce to")
	c.Flags().BoolVar(&transactions, "uncommitted", false, "also records of transactions that aren't known to have committed")
	return a.clientFlags(c)
}

// replayBatch is how many records are produced before their acknowledgements are waited for.
const replayBatch = 1000

func (a *app) replay(cmd *cobra.Command, m *mirroradm.Client, cuts []mirroradm.Cut, to string, uncommitted bool) (sent, left int, err error) {
	cl, err := a.connect(cmd, mirroradm.Software(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(64<<20))
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	ctx := cmd.Context()
	ts, err := kadm.NewClient(cl).ListTopics(ctx, to)
	if err == nil {
		err = ts[to].Err
	}
	if err != nil {
		return 0, 0, fmt.Errorf("topic %s: %w", to, err)
	}
	most := slices.MaxFunc(cuts, func(x, y mirroradm.Cut) int { return int(x.Partition) - int(y.Partition) }).Partition
	if n := len(ts[to].Partitions); n <= int(most) {
		return 0, 0, fmt.Errorf("topic %s has %d partitions, the records are of up to %d: give it as many", to, n, most+1)
	}
	var batch []*kgo.Record
	flush := func() error {
		results := cl.ProduceSync(ctx, batch...)
		for _, r := range results {
			if r.Err == nil {
				sent++
			}
		}
		batch = batch[:0]
		if err := results.FirstErr(); err != nil {
			return fmt.Errorf("%w%s%s", describe(err), recordAdvice(to, err, ""), a.mirrorHint(ctx, cl, to, err))
		}
		return nil
	}
	for r, err := range m.CutRecords(ctx, cuts) {
		switch {
		case err != nil:
			return sent, left, errors.Join(err, flush())
		case !r.Committed && !uncommitted:
			left++
			continue
		}
		batch = append(batch, &kgo.Record{Topic: to, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
		if len(batch) == replayBatch {
			if err := flush(); err != nil {
				return sent, left, err
			}
		}
	}
	return sent, left, flush()
}

func (a *app) cutPurge() *cobra.Command {
	var f cutFlags
	var yes bool
	c := &cobra.Command{
		Use: "purge --yes", Short: "Remove what is set aside, for good", Args: noArgs,
		Example: "  milena mirrors cut purge --mirror back --older-than 24h --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usagef("mirrors cut purge removes records for good: say --yes")
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				cuts, err := f.some(ctx, m)
				if err != nil {
					return err
				}
				if err := m.PurgeCuts(ctx, cuts); err != nil {
					return err
				}
				records := int64(0)
				for _, x := range cuts {
					records += x.Records
				}
				if a.json {
					return a.printJSON(map[string]any{"files": len(cuts), "records": records})
				}
				a.printf("Removed %d records in %d files.\n", records, len(cuts))
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&yes, "yes", false, "yes, remove them")
	return a.clientFlags(c)
}
