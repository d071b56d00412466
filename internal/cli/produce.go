package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
)

type produceFlags struct {
	key, keySeparator string
	nullMarker        string
	headers           []string
	partition         int32
	codec, acks       string
	maxLine, maxBatch int
}

func (a *app) produceCommand() *cobra.Command {
	var f produceFlags
	c := &cobra.Command{
		Use: "produce TOPIC", Short: "Write records, one a line of standard input", Args: exactly("TOPIC"),
		Long: "Writes one record a line. Ends with success only if every record was acknowledged; otherwise the first one\n" +
			"that was not is named by its line.",
		Example: "  printf 'a:1\\nb:2\\n' | milena produce orders --key-separator : --compression zstd",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.produce(cmd, args[0], &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.key, "key", "", "key of every record (none by default)")
	fl.StringVar(&f.keySeparator, "key-separator", "", "a line is KEY, this separator, VALUE")
	fl.StringVar(&f.nullMarker, "null-marker", "", "a key or value that is exactly this `TEXT` is null")
	fl.StringArrayVar(&f.headers, "header", nil, "a header of every record, `KEY=VALUE`; may be repeated")
	fl.Int32Var(&f.partition, "partition", -1, "write to this partition; -1 chooses by key, or spreads")
	fl.StringVar(&f.codec, "compression", "", "none, gzip, snappy, lz4 or zstd")
	fl.StringVar(&f.acks, "acks", "", "all, 1 or 0")
	fl.IntVar(&f.maxLine, "max-line-bytes", 64<<20, "longest line accepted")
	fl.IntVar(&f.maxBatch, "max-batch-bytes", 0, "most bytes of a batch, and so of a record; 0 takes max.request.size, else what clusters take by default")
	values(c, "compression", "none", "gzip", "snappy", "lz4", "zstd")
	values(c, "acks", "all", "1", "0")
	return a.clientFlags(c)
}

func (a *app) produce(cmd *cobra.Command, topic string, f *produceFlags) error {
	conf, err := a.settings(cmd)
	if err != nil {
		return err
	}
	opts, err := f.opts(conf)
	if err != nil {
		return &usageError{err}
	}
	limit := conf.DeliveryTimeout()
	if cmd.Flags().Changed("timeout-ms") {
		limit = time.Duration(a.timeout) * time.Millisecond
		opts = append(opts, kgo.RecordDeliveryTimeout(max(limit, time.Second))) // the client takes no less; watch does
	}
	headers, err := f.recordHeaders()
	if err != nil {
		return err
	}
	answers := &brokerAnswers{}
	cl, err := a.open(cmd.Context(), conf, append(opts, kgo.WithLogger(answers))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	out := &acks{count: a.counter("records acknowledged")}
	go out.watch(ctx, limit, cancel)
	inputErr := f.sendUntil(ctx, a.env.Stdin, cl, topic, headers, out)
	if err := cl.Flush(ctx); err != nil {
		// Interrupted, or given up: what is still under way ends now, so that the first record of it can be named.
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer stop()
		if err := cl.AbortBufferedRecords(end); err != nil {
			cl.UnsafeAbortBufferedRecords() // a broker that is gone never answers what it was sent
		}
	}
	acked, line, where, failed := out.result()
	var late *overdue
	gaveUp := errors.Is(failed, kgo.ErrAborting) || errors.Is(failed, context.Canceled) || errors.Is(failed, errUnanswered)
	if gaveUp && errors.As(context.Cause(ctx), &late) {
		failed = late
	}
	failed = partitionHint(topic, failed)
	switch {
	case failed != nil:
		// Whatever the cause, what counts is which record it was.
		last := answers.last(where)
		return &exitError{ExitFailed, fmt.Errorf("record %d of standard input was not acknowledged: %w%s%s%s",
			line, describe(failed), last, recordAdvice(topic, failed, last), a.mirrorHint(cmd.Context(), cl, topic, failed))}
	case inputErr != nil:
		return inputErr
	case a.json:
		return a.printJSON(map[string]any{"topic": topic, "records": acked})
	}
	return nil
}

// abortTimeout bounds the wait for answers to what is under way when a producer gives up.
const abortTimeout = 2 * time.Second

// sendUntil is send that returns when ctx ends, too, though the input may block for ever then.
func (f *produceFlags) sendUntil(ctx context.Context, in io.Reader, cl *kgo.Client, topic string, headers []kgo.RecordHeader, out *acks) error {
	done := make(chan error, 1)
	go func() { done <- f.send(ctx, in, cl, topic, headers, out) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return out.stop()
	}
}

// send hands the lines of in to the client until the end, or a failure: a broken pipe of records is reported then, and not
// after the rest of the input.
func (f *produceFlags) send(ctx context.Context, in io.Reader, cl *kgo.Client, topic string, headers []kgo.RecordHeader, out *acks) error {
	r := bufio.NewReaderSize(in, 1<<20)
	for line := 1; !out.failed() && ctx.Err() == nil; line++ {
		text, err := readLine(r, f.maxLine)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d of standard input: %w", line, err)
		}
		rec := &kgo.Record{Topic: topic, Value: text, Headers: headers, Partition: f.partition}
		if err := f.fill(rec, line); err != nil {
			return err
		}
		if !out.sent(line, time.Now()) {
			break
		}
		cl.Produce(ctx, rec, func(r *kgo.Record, err error) { out.done(line, partitionOf{r.Topic, r.Partition}, err) })
	}
	if ctx.Err() != nil {
		return out.stop()
	}
	return nil
}

func (f *produceFlags) opts(conf *client.Config) ([]kgo.Opt, error) {
	opts, err := conf.ProducerOpts()
	if err != nil {
		return nil, err
	}
	if f.codec != "" {
		codec, err := client.CompressionCodec(f.codec)
		if err != nil {
			return nil, fmt.Errorf("--compression: %w", err)
		}
		opts = append(opts, kgo.ProducerBatchCompression(codec))
	}
	switch f.acks {
	case "":
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks %q is not one of all, 1, 0", f.acks)
	}
	if f.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if f.maxBatch != 0 {
		if f.maxBatch < 1024 || f.maxBatch > 1<<30 {
			return nil, fmt.Errorf("--max-batch-bytes %d is not between 1024 and %d", f.maxBatch, 1<<30)
		}
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(f.maxBatch)), kgo.BrokerMaxWriteBytes(int32(min(max(f.maxBatch+1<<20, 100<<20), 1<<30))))
	}
	return opts, nil
}

func (f *produceFlags) recordHeaders() ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, h := range f.headers {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return nil, usagef("--header %q is not KEY=VALUE", h)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// fill sets the record's key, from the flag or from the line, and nulls.
func (f *produceFlags) fill(rec *kgo.Record, line int) error {
	if f.key != "" {
		rec.Key = []byte(f.key)
	}
	if f.keySeparator != "" {
		k, v, ok := bytes.Cut(rec.Value, []byte(f.keySeparator))
		if !ok {
			return fmt.Errorf("line %d of standard input has no key separator %q; the lines before it were written", line, f.keySeparator)
		}
		rec.Key, rec.Value = k, v
	}
	if f.nullMarker != "" {
		if string(rec.Key) == f.nullMarker {
			rec.Key = nil
		}
		if string(rec.Value) == f.nullMarker {
			rec.Value = nil
		}
	}
	return nil
}

// readLine reads a line of any length up to limit, without its end of line. The last line may lack one.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	line := []byte{} // an empty line is an empty value, not null
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, fmt.Errorf("it is longer than %d bytes: raise --max-line-bytes", limit)
		case err == nil:
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}
