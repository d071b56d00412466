package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
)

type produceFlags struct {
	key, keySeparator string
	headers           []string
	partition         int32
	codec, acks       string
	maxLine           int
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
	fl.StringArrayVar(&f.headers, "header", nil, "a header of every record, `KEY=VALUE`; may be repeated")
	fl.Int32Var(&f.partition, "partition", -1, "write to this partition; -1 chooses by key, or spreads")
	fl.StringVar(&f.codec, "compression", "", "none, gzip, snappy, lz4 or zstd")
	fl.StringVar(&f.acks, "acks", "", "all, 1 or 0")
	fl.IntVar(&f.maxLine, "max-line-bytes", 64<<20, "longest line accepted")
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
	headers, err := f.recordHeaders()
	if err != nil {
		return err
	}
	cl, err := a.open(cmd.Context(), conf, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	var mu sync.Mutex
	first := struct {
		line int
		err  error
	}{}
	acked, line := 0, 0
	in := bufio.NewReaderSize(a.env.Stdin, 1<<20)
	for {
		text, err := readLine(in, f.maxLine)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		line++
		n := line
		rec := &kgo.Record{Topic: topic, Value: text, Headers: headers, Partition: f.partition}
		if err := f.setKey(rec, n); err != nil {
			cancel()
			return err
		}
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked++
			} else if first.err == nil || n < first.line {
				first.line, first.err = n, err
			}
		})
		mu.Lock()
		failed := first.err != nil
		mu.Unlock()
		if failed {
			break // a broken pipe of records is reported now, not after the rest of the input
		}
	}
	flushErr := cl.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	switch {
	case first.err != nil:
		return fmt.Errorf("record %d of standard input was not acknowledged: %w", first.line, first.err)
	case flushErr != nil:
		return flushErr
	case a.json:
		return a.printJSON(map[string]any{"topic": topic, "records": acked})
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
	return append(opts, kgo.ProducerBatchMaxBytes(int32(min(f.maxLine+4096, 1<<30)))), nil
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

// setKey sets the record's key, from the flag or from the line.
func (f *produceFlags) setKey(rec *kgo.Record, line int) error {
	if f.key != "" {
		rec.Key = []byte(f.key)
	}
	if f.keySeparator == "" {
		return nil
	}
	k, v, ok := bytes.Cut(rec.Value, []byte(f.keySeparator))
	if !ok {
		return fmt.Errorf("line %d of standard input has no key separator %q; lines before it may have been written", line, f.keySeparator)
	}
	rec.Key, rec.Value = k, v
	return nil
}

// readLine reads a line of any length up to limit, without its end of line. The last line may lack one.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, fmt.Errorf("a line is longer than %d bytes: raise --max-line-bytes", limit)
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
