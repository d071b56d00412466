package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeFlags struct {
	group                    string
	fromBeginning, exitAtEnd bool
	format                   string
	partitions               []int32
	maxRecords               int64
}

func (a *app) consumeCommand() *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use: "consume TOPIC", Short: "Print records, one a line", Args: exactly("TOPIC"),
		Long: "Prints the value of each record and nothing else on standard output. --format chooses other parts:\n" +
			"  %k key  %v value  %t topic  %p partition  %o offset  %e leader epoch  %T timestamp in milliseconds\n" +
			"  %h headers k=v,k=v  %% a percent sign  \\n \\t \\\\ as usual\n" +
			"--exit-at-end stops at the end offsets read at start, control records included.",
		Example: "  milena consume orders --from-beginning --exit-at-end --format '%k=%v'",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.consume(cmd, args[0], &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.group, "group", "", "consume as a member of this group, committing its offsets")
	fl.BoolVar(&f.fromBeginning, "from-beginning", false, "start at the log start where nothing is committed")
	fl.BoolVar(&f.exitAtEnd, "exit-at-end", false, "stop at the end offsets read at start")
	fl.StringVar(&f.format, "format", "%v", "what a line holds")
	fl.Int32SliceVar(&f.partitions, "partition", nil, "only these partitions (not with --group)")
	fl.Int64Var(&f.maxRecords, "max-records", -1, "stop after so many records")
	return a.clientFlags(c)
}

func (a *app) consume(cmd *cobra.Command, topic string, f *consumeFlags) error {
	format, err := parseFormat(f.format)
	if err != nil {
		return &usageError{err}
	}
	if f.group != "" && len(f.partitions) > 0 {
		return usagef("--partition does not go with --group: the group assigns partitions")
	}
	conf, err := a.settings(cmd)
	if err != nil {
		return err
	}
	opts, err := conf.ConsumerOpts(f.group)
	if err != nil {
		return &usageError{err}
	}
	start := kgo.NewOffset().AtEnd()
	if f.fromBeginning {
		start = kgo.NewOffset().AtStart()
		opts = append(opts, kgo.ConsumeResetOffset(start))
	}
	if f.group != "" {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if len(f.partitions) > 0 {
		m := map[int32]kgo.Offset{}
		for _, p := range f.partitions {
			m[p] = start
		}
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: m}))
	} else {
		opts = append(opts, kgo.ConsumeTopics(topic))
	}
	// Control records are kept so that the end is recognised behind the last transaction's marker.
	opts = append(opts, kgo.KeepControlRecords())
	ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
	defer cancel()
	plain, err := a.open(ctx, conf)
	if err != nil {
		return err
	}
	defer plain.Close()
	left, err := f.remaining(ctx, kadm.NewClient(plain), topic)
	if err != nil {
		return err
	}
	if f.exitAtEnd && len(left) == 0 {
		return nil
	}
	cl, err := kgo.NewClient(append(conf.KgoOpts(nil), opts...)...)
	if err != nil {
		return &usageError{err}
	}
	defer cl.Close()
	err = a.consumeLoop(cmd.Context(), cl, f, format, left)
	if f.group != "" {
		commitCtx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
		defer cancel()
		err = errors.Join(err, cl.CommitUncommittedOffsets(commitCtx))
	}
	return err
}

// remaining are the end offsets to reach by partition, those with nothing to read left out; nil without --exit-at-end.
func (f *consumeFlags) remaining(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	ts, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := answer("topic "+topic, ts[topic].Err, ""); err != nil {
		return nil, err
	}
	if !f.exitAtEnd {
		return nil, nil
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	from, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	committed := kadm.OffsetResponses{}
	if f.group != "" {
		if committed, err = adm.FetchOffsets(ctx, f.group); err != nil {
			return nil, answer("group "+f.group, err, "")
		}
	}
	wanted := map[int32]bool{}
	for _, p := range f.partitions {
		if _, ok := ends.Lookup(topic, p); !ok {
			return nil, fmt.Errorf("topic %s has no partition %d", topic, p)
		}
		wanted[p] = true
	}
	left := map[int32]int64{}
	for _, e := range ends.Offsets().Sorted() {
		begin := e.At
		if o, ok := from.Lookup(topic, e.Partition); ok && f.fromBeginning {
			begin = o.Offset
		}
		if o, ok := committed.Lookup(topic, e.Partition); ok && o.At >= 0 {
			begin = o.At
		}
		if begin < e.At && (len(wanted) == 0 || wanted[e.Partition]) {
			left[e.Partition] = e.At
		}
	}
	return left, nil
}

func (a *app) consumeLoop(ctx context.Context, cl *kgo.Client, f *consumeFlags, format []formatPart, left map[int32]int64) error {
	out := bufio.NewWriterSize(a.env.Stdout, 64<<10)
	defer out.Flush()
	seen := int64(0)
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for _, e := range fetches.Errors() {
			return answer(fmt.Sprintf("%s-%d", e.Topic, e.Partition), e.Err, "")
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			end, bounded := left[r.Partition]
			if !r.Attrs.IsControl() && (!f.exitAtEnd || bounded && r.Offset < end) {
				writeRecord(out, format, r)
				if seen++; seen == f.maxRecords {
					return out.Flush()
				}
			}
			if bounded && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("standard output: %w", err)
		}
		if f.exitAtEnd && len(left) == 0 {
			return nil
		}
		if f.group != "" {
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				return answer("group "+f.group, err, "")
			}
		}
	}
}

// formatPart is literal text, or a verb with text empty.
type formatPart struct {
	verb byte
	text string
}

func parseFormat(s string) ([]formatPart, error) {
	var out []formatPart
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			out = append(out, formatPart{text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '%' || c == '\\') && i+1 == len(s) {
			return nil, fmt.Errorf("--format %q ends in the middle of an escape", s)
		}
		switch c {
		case '%':
			i++
			if s[i] == '%' {
				text.WriteByte('%')
				continue
			}
			if !strings.ContainsRune("kvtpoeTh", rune(s[i])) {
				return nil, fmt.Errorf("--format: %%%c is unknown: use %%k %%v %%t %%p %%o %%e %%T %%h", s[i])
			}
			flush()
			out = append(out, formatPart{verb: s[i]})
		case '\\':
			i++
			esc := map[byte]byte{'n': '\n', 't': '\t', '\\': '\\', 'r': '\r', '0': 0}
			r, ok := esc[s[i]]
			if !ok {
				return nil, fmt.Errorf("--format: \\%c is unknown", s[i])
			}
			text.WriteByte(r)
		default:
			text.WriteByte(c)
		}
	}
	flush()
	return out, nil
}

func writeRecord(w io.Writer, format []formatPart, r *kgo.Record) {
	var b []byte
	for _, p := range format {
		switch p.verb {
		case 0:
			b = append(b, p.text...)
		case 'k':
			b = append(b, r.Key...)
		case 'v':
			b = append(b, r.Value...)
		case 't':
			b = append(b, r.Topic...)
		case 'p':
			b = strconv.AppendInt(b, int64(r.Partition), 10)
		case 'o':
			b = strconv.AppendInt(b, r.Offset, 10)
		case 'e':
			b = strconv.AppendInt(b, int64(r.LeaderEpoch), 10)
		case 'T':
			b = strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10)
		case 'h':
			for i, h := range r.Headers {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(append(append(b, h.Key...), '='), h.Value...)
			}
		}
	}
	_, _ = w.Write(append(b, '\n')) // the buffered writer keeps the error for Flush
}
