package partlog

import (
	"errors"
	"time"

	"milena/internal/api"
	"milena/internal/record"
)

// prepared is what a leader append writes, checked but for what only the log's
// lock can tell (offsets, producer state).
type prepared struct {
	buf        []byte
	appendTime int64 // ms, -1 with CreateTime
}

func (p prepared) all() func(yield func(record.Batch) bool) { return wholeBatches(p.buf) }

// prepare checks batches for a leader append and brings them into the form
// that is written: codec and timestamps as the topic wants them. It changes
// batches in place where it can.
func (l *Log) prepare(batches []byte, o AppendOptions, cfg *Config, now time.Time) (prepared, error) {
	p := prepared{appendTime: -1}
	if cfg.LogAppendTime {
		p.appendTime = now.UnixMilli()
	}
	var used, n int64
	var rebuilt []byte // nil while all batches are as they came
	for b, err := range record.Batches(batches) {
		if err == nil && n > 0 && o.Origin == OriginClient {
			return p, api.Errorf(api.InvalidRecord, "append to %s has more than one record batch; send one per partition", l.name)
		}
		var out record.Batch
		if err == nil {
			out, err = l.prepareBatch(b, o, cfg, now)
		}
		if err != nil {
			return p, l.refusal(err)
		}
		if rebuilt == nil && &out[0] != &b[0] {
			rebuilt = append(make([]byte, 0, int(used)+len(out)), batches[:used]...)
		}
		if rebuilt != nil {
			rebuilt = append(rebuilt, out...)
		}
		used += int64(len(b))
		n++
	}
	if n == 0 || used < int64(len(batches)) {
		return p, api.Errorf(api.CorruptMessage, "append to %s: %d bytes hold no whole record batch at byte %d", l.name, len(batches), used)
	}
	p.buf = batches[:used]
	if rebuilt != nil {
		p.buf = rebuilt
	}
	if int64(len(p.buf)) > cfg.SegmentBytes {
		return p, api.Errorf(api.RecordListTooLarge, "append of %d bytes to %s is larger than segment.bytes, %d", len(p.buf), l.name, cfg.SegmentBytes)
	}
	return p, nil
}

func (l *Log) prepareBatch(b record.Batch, o AppendOptions, cfg *Config, now time.Time) (record.Batch, error) {
	if err := l.checkSize(b, cfg); err != nil {
		return nil, err
	}
	if err := b.CheckCRC(); err != nil {
		return nil, err
	}
	var err error
	if o.Origin == OriginClient {
		err = b.ValidateProduced()
	} else {
		err = b.Validate()
	}
	if err != nil {
		return nil, err
	}
	if o.Origin == OriginClient {
		if b.TimestampType() == record.LogAppendTime && cfg.LogAppendTime {
			return nil, api.Errorf(api.InvalidTimestamp, "a producer may not set the timestamp type LogAppendTime (%s)", l.name)
		}
		if err := l.checkRecords(b, cfg, now); err != nil {
			return nil, err
		}
	}
	if want, ok := cfg.target(b); ok {
		if b, err = b.Recompress(want, cfg.decompressLimit()); err != nil {
			return nil, err
		}
		if err := l.checkSize(b, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.LogAppendTime {
		b.SetMaxTimestamp(record.LogAppendTime, now.UnixMilli())
	} else {
		b.SetMaxTimestamp(record.CreateTime, b.MaxTimestamp())
	}
	return b, nil
}

func (l *Log) checkSize(b record.Batch, cfg *Config) error {
	if int64(len(b)) <= cfg.MaxMessageBytes {
		return nil
	}
	return api.Errorf(api.MessageTooLarge, "record batch of %d bytes for %s is larger than max.message.bytes, %d", len(b), l.name, cfg.MaxMessageBytes)
}

// checkRecords looks at each record only where a rule needs that: a compacted
// topic's keys, a bound on old timestamps; a bound on timestamps in the future
// is judged by the header's largest first.
func (l *Log) checkRecords(b record.Batch, cfg *Config, now time.Time) error {
	before, after := cfg.TimestampBeforeMax, cfg.TimestampAfterMax
	if cfg.LogAppendTime {
		before, after = forever, forever
	}
	nowMs := now.UnixMilli()
	tooNew := after < forever && b.MaxTimestamp() > nowMs && b.MaxTimestamp()-nowMs > after.Milliseconds()
	if !cfg.Compact && before == forever && !tooNew {
		return nil
	}
	_, err := b.CheckRecords(record.CheckOptions{
		Limit:      cfg.decompressLimit(),
		RequireKey: cfg.Compact,
		Contiguous: true,
		Now:        nowMs,
		MaxBefore:  boundMs(before),
		MaxAfter:   boundMs(after),
	})
	return err
}

// decompressLimit bounds the memory for one batch, whatever the topic allows.
func (c *Config) decompressLimit() int64 {
	if c.MaxDecompressedBytes <= 0 {
		return record.DefaultLimit
	}
	return min(c.MaxDecompressedBytes, record.DefaultLimit)
}

// boundMs is a bound as CheckOptions has it: 0 is none.
func boundMs(d time.Duration) int64 {
	if d == forever {
		return 0
	}
	return max(d.Milliseconds(), 1)
}

// target is the compression a batch must get; ok is false if it may stay as it is.
func (c *Config) target(b record.Batch) (want record.Compression, ok bool) {
	switch c.Compression {
	case CompressionNone:
		want = record.Compression{Codec: record.None}
	case CompressionGzip:
		want = record.Compression{Codec: record.Gzip, Level: c.GzipLevel}
	case CompressionSnappy:
		want = record.Compression{Codec: record.Snappy}
	case CompressionLZ4:
		want = record.Compression{Codec: record.LZ4, Level: c.LZ4Level}
	case CompressionZstd:
		want = record.Compression{Codec: record.Zstd, Level: c.ZstdLevel}
	default:
		return want, false
	}
	return want, b.Codec() != want.Codec && !b.IsControl()
}

// refusal gives the errors of package record Kafka's codes.
func (l *Log) refusal(err error) error {
	var coded *api.Error
	if errors.As(err, &coded) {
		return err
	}
	code := api.CorruptMessage
	switch {
	case errors.Is(err, record.ErrTimestamp):
		code = api.InvalidTimestamp
	case errors.Is(err, record.ErrCodec):
		code = api.UnsupportedCompressionType
	case errors.Is(err, record.ErrCorrupt):
	case errors.Is(err, record.ErrInvalid), errors.Is(err, record.ErrMagic), errors.Is(err, record.ErrTooLarge):
		code = api.InvalidRecord
	}
	out := &api.Error{Code: code, Message: l.name + ": " + err.Error(), Err: err}
	var recs *record.InvalidRecordsError
	if errors.As(err, &recs) {
		list := &InvalidRecords{Kind: err}
		for _, r := range recs.Records {
			list.Records = append(list.Records, RecordError{BatchIndex: r.Index, Message: r.Message})
		}
		out.Err = list
		out.Message = "one or more records for " + l.name + " are refused"
	}
	return out
}
