package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peertest"
	"milena/internal/record"
)

// bad sends what no client should send. After each case another client's old connection and a fresh one must work, and
// the process must run and have stayed small.
type bad struct {
	*part
	b   *peertest.Broker
	adm *kadm.Client
	// other is a connection that was there all the time.
	other *rawConn
}

const (
	plainTopic, compactTopic = "plain", "compacted"
	// maxRequest is socket.request.max.bytes here.
	maxRequest = 16 << 20
	// maxMemory is the most the process may ever have held.
	maxMemory = 1 << 30
)

func runBadInput(ctx context.Context, p *part) error {
	x := &bad{part: p}
	if err := p.steps(ctx, step{"start", x.start}); err != nil {
		return err
	}
	// The cases don't depend on each other: all are tried, as long as the broker runs.
	var failed []error
	for _, c := range x.cases() {
		err := p.steps(ctx, step{c.name, func(ctx context.Context) error { return x.try(ctx, c) }})
		failed = append(failed, err)
		if x.b.Running() != nil {
			return errors.Join(failed...)
		}
	}
	failed = append(failed, p.steps(ctx, step{"stop cleanly", func(context.Context) error { return x.b.Stop() }}))
	f := &badFiles{part: p}
	if err := p.steps(ctx, step{"fill a data directory", f.fill}); err != nil {
		return errors.Join(append(failed, err)...)
	}
	for _, s := range f.cases() {
		failed = append(failed, p.steps(ctx, s))
	}
	return errors.Join(failed...)
}

func (x *bad) start(ctx context.Context) (err error) {
	x.b, err = x.target(ctx, map[string]string{"socket.request.max.bytes": itoa(maxRequest), "message.max.bytes": "8388608", "auto.create.topics.enable": "false"})
	if err != nil {
		return err
	}
	if x.adm, err = x.admin(x.b.Addr); err != nil {
		return err
	}
	if _, err := x.adm.CreateTopic(ctx, 2, 1, nil, plainTopic); err != nil {
		return err
	}
	if _, err := x.adm.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, compactTopic); err != nil {
		return err
	}
	x.other, err = dialRaw(ctx, x.b.Addr)
	x.onCleanUp(func() error { return x.other.Close() })
	return err
}

// badCase is one kind of bad input. logs, if set, is what the broker's log must say about it.
type badCase struct {
	name string
	run  func(context.Context) error
	logs string
}

func (x *bad) cases() []badCase {
	limit := "(socket.request.max.bytes)"
	return []badCase{
		{"oversized length", x.closes(bytes.Repeat([]byte{0x7f}, 64)), limit},
		{"length just above the limit", x.closes(binary.BigEndian.AppendUint32(nil, maxRequest+1)), limit},
		{"negative length", x.closes([]byte{0xff, 0xff, 0xff, 0xff, 0, 18, 0, 0}), limit},
		{"length 0", x.closes([]byte{0, 0, 0, 0, 0, 18, 0, 0}), limit},
		{"HTTP", x.closes([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")), limit},
		{"TLS", x.closes([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")), "malformed"},
		{"garbage", x.garbage, ""},
		{"truncated frames", x.truncated, ""},
		{"unknown API", x.closes(frame(9999, 0, 1, []byte{0xff, 0xff})), "9999"},
		{"unknown version", x.closes(frame(3, 99, 1, []byte{0xff, 0xff, 0})), "version 99 of Metadata"},
		{"unknown version of ApiVersions", x.apiVersions, ""},
		{"array length beyond the frame", x.closes(frame(3, 1, 1, []byte{0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})), "malformed"},
		{"random bodies for all APIs and versions", x.randomBodies, ""},
		{"wrong CRC", x.produceBad(plainTopic, kerr.CorruptMessage, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), ""},
		{"unknown magic", x.produceBad(plainTopic, kerr.CorruptMessage, func(b []byte) []byte { b[16] = 7; return b }), ""},
		{"magic 1", x.produceBad(plainTopic, kerr.InvalidRecord, func(b []byte) []byte { b[16] = 1; return b }), ""},
		{"batch length beyond the request", x.produceBad(plainTopic, nil, func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<30); return b }), ""},
		{"record count of 2 billion", x.produceBad(plainTopic, kerr.InvalidRecord, func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 1<<31-1); return checksummed(b) }), ""},
		{"unknown codec", x.produceBad(plainTopic, kerr.UnsupportedCompressionType, func(b []byte) []byte { b[22] |= 6; return checksummed(b) }), ""},
		{"payload that is not gzip", x.produceBad(compactTopic, kerr.InvalidRecord, func(b []byte) []byte { b[22] |= 1; return checksummed(b) }), ""},
		{"decompression bombs", x.bombs, ""},
		{"decompression bombs, eight at once", x.manyBombs, ""},
		{"300 connections that say half of something", x.slow, ""},
	}
}

// try runs a case and looks whether everybody else is well. The broker's log holds back what it has just said, or too much
// of it: what must be there is looked for in a second try after that second.
func (x *bad) try(ctx context.Context, c badCase) error {
	err := x.once(ctx, c)
	if !errors.Is(err, errUnsaid) {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(1100 * time.Millisecond):
		return x.once(ctx, c)
	}
}

var errUnsaid = errors.New("the broker's log does not say")

func (x *bad) once(ctx context.Context, c badCase) error {
	from, err := os.Stat(x.b.LogFile)
	if err != nil {
		return err
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	if err := x.healthy(ctx); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	text, err := os.ReadFile(x.b.LogFile)
	if err != nil {
		return err
	}
	said := string(text[from.Size():])
	if strings.Contains(said, "a handler failed") || strings.Contains(said, "panic") {
		return fmt.Errorf("a handler failed: %s", peertest.Tail(said, 30))
	}
	if !strings.Contains(said, c.logs) {
		return fmt.Errorf("%w %q: %s", errUnsaid, c.logs, peertest.Tail(said, 10))
	}
	return nil
}

func (x *bad) healthy(ctx context.Context) error {
	if err := x.b.Running(); err != nil {
		return err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	if err := x.other.call(req, kmsg.NewPtrApiVersionsResponse()); err != nil {
		return fmt.Errorf("the other connection: %w", err)
	}
	if err := roundTrip(ctx, x.b.Addr, plainTopic); err != nil {
		return err
	}
	peak, err := x.b.PeakMemory()
	if err != nil {
		return err
	}
	if peak > maxMemory {
		return fmt.Errorf("the process has held %d MiB", peak>>20)
	}
	return nil
}

// roundTrip produces a record with a fresh client and reads it back.
func roundTrip(ctx context.Context, addr, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	r := &kgo.Record{Topic: topic, Key: []byte("k"), Value: fmt.Appendf(nil, "healthy at %d", time.Now().UnixNano())}
	if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
		return fmt.Errorf("a healthy client produces: %w", err)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(r.Offset)}})
	fs := cl.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		return fmt.Errorf("a healthy client fetches: %w", err)
	}
	if got := fs.Records(); len(got) == 0 || !bytes.Equal(got[0].Value, r.Value) {
		return fmt.Errorf("a healthy client fetched %d records at %d, the first is not its own", len(got), r.Offset)
	}
	return nil
}

// closes is a case whose bytes make the broker close the connection.
func (x *bad) closes(b []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := dialRaw(ctx, x.b.Addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(b); err != nil {
			return err
		}
		return c.closedByPeer(5 * time.Second)
	}
}

func (x *bad) garbage(ctx context.Context) error {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c, err := dialRaw(ctx, x.b.Addr)
		if err != nil {
			return err
		}
		b := make([]byte, r.IntN(4000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if r.IntN(2) == 0 && len(b) > 4 {
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		}
		// The broker may have closed already: that is its right.
		_, _ = c.Write(b)
		c.Close()
	}
	return nil
}

// truncated ends connections in the middle of a frame, at every byte of a good one.
func (x *bad) truncated(ctx context.Context) error {
	whole := kmsg.NewRequestFormatter(kmsg.FormatterClientID("cut")).AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)
	for i := range whole {
		c, err := dialRaw(ctx, x.b.Addr)
		if err != nil {
			return err
		}
		if _, err := c.Write(whole[:i]); err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// apiVersions at a version of the future is answered at version 0 with the error and what is there (KIP-511).
func (x *bad) apiVersions(ctx context.Context) error {
	c, err := dialRaw(ctx, x.b.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(frame(18, 99, 77, []byte{0xff, 0xff, 0, 0})); err != nil {
		return err
	}
	b, err := c.read(5 * time.Second)
	if err != nil {
		return err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if binary.BigEndian.Uint32(b) != 77 {
		return fmt.Errorf("answer to %d", binary.BigEndian.Uint32(b))
	}
	if err := resp.ReadFrom(b[4:]); err != nil {
		return err
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) == 0 {
		return fmt.Errorf("answer %+v", resp)
	}
	// The connection goes on.
	return c.call(kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrApiVersionsResponse())
}

// randomBodies sends requests with good headers and random bodies.
func (x *bad) randomBodies(ctx context.Context) error {
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := x.other.call(kmsg.NewPtrApiVersionsRequest(), resp); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, k := range resp.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			c, err := dialRaw(ctx, x.b.Addr)
			if err != nil {
				return err
			}
			for i := range 3 {
				body := make([]byte, r.IntN(60))
				for j := range body {
					// Small numbers get further into a decoder than large ones.
					if body[j] = byte(r.Uint32()); r.IntN(3) > 0 {
						body[j] &= 3
					}
				}
				// A null client id and no tags, so that the body begins where it should.
				b := frame(k.ApiKey, v, int32(i), append([]byte{0xff, 0xff, 0}, body...))
				if _, err := c.Write(b); err != nil {
					break // closed after the one before
				}
			}
			c.Close()
		}
	}
	return nil
}

// batch is a good batch of two records.
func batch(codec record.Codec) ([]byte, error) {
	now := time.Now().UnixMilli()
	return record.Build(record.BuilderOptions{LeaderEpoch: -1, Compression: record.Compression{Codec: codec}},
		record.Record{Key: []byte("a"), Value: []byte("1"), Timestamp: now}, record.Record{Offset: 1, Key: []byte("b"), Value: []byte("2"), Timestamp: now})
}

// checksummed sets the checksum anew.
func checksummed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32c(b[21:]))
	return b
}

// produceBad sends a spoilt batch beside a good one for another partition. The bad one must be refused with the error
// (any, if nil); the good one must be taken where both are readable.
func (x *bad) produceBad(topic string, want error, spoil func([]byte) []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		b, err := batch(record.None)
		if err != nil {
			return err
		}
		code, err := x.produce(ctx, topic, spoil(b))
		if err != nil {
			return err
		}
		switch got := kerr.ErrorForCode(code); {
		case got == nil:
			return errors.New("it was taken")
		case want != nil && !errors.Is(got, want):
			return fmt.Errorf("answered %w, want %w", got, want)
		}
		return nil
	}
}

// produce sends a batch as it is to partition 0 and returns the error code; partition 1 of the plain topic gets a good
// batch in the same request, which must be taken.
func (x *bad) produce(ctx context.Context, topic string, b []byte) (int16, error) {
	c, err := dialRaw(ctx, x.b.Addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	good, err := batch(record.None)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 10000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: b}}}}
	side := kmsg.ProduceRequestTopicPartition{Partition: 1, Records: good}
	if topic == plainTopic {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, side)
	} else {
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: plainTopic, Partitions: []kmsg.ProduceRequestTopicPartition{side}})
	}
	resp := kmsg.NewPtrProduceResponse()
	if err := c.call(req, resp); err != nil {
		return 0, err
	}
	code, answered := int16(0), 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answered++
			if t.Topic == topic && p.Partition == 0 {
				code = p.ErrorCode
				continue
			}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("the good batch beside it: %w", err)
			}
		}
	}
	if answered != 2 {
		return 0, fmt.Errorf("%d partitions answered", answered)
	}
	return code, nil
}

// bombSize is what a bomb decompresses to: less than int32 holds, so that no length field is wrong.
const bombSize = 1 << 30

// bomb is a batch of one small record by its header, whose payload decompresses to 1 GiB.
func bomb(codec record.Codec) ([]byte, error) {
	var out bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Close() error
	}
	var err error
	switch codec {
	case record.Gzip:
		w, err = gzip.NewWriterLevel(&out, gzip.BestSpeed)
	case record.LZ4:
		w = lz4.NewWriter(&out)
	case record.Zstd:
		w, err = zstd.NewWriter(&out)
	default:
		return snappyBomb()
	}
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for range bombSize >> 20 {
		if _, err := w.Write(zeros); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return withPayload(codec, out.Bytes())
}

// snappyBomb is in Java's framing: many blocks of 32 MiB of zeros each.
func snappyBomb() ([]byte, error) {
	block := s2.EncodeSnappy(nil, make([]byte, 32<<20))
	out := append([]byte{0x82}, "SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"...)
	for len(out)+len(block) < 7<<20 {
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
	}
	return withPayload(record.Snappy, out)
}

// withPayload is a valid batch header of one record over any payload.
func withPayload(codec record.Codec, payload []byte) ([]byte, error) {
	b, err := record.Build(record.BuilderOptions{LeaderEpoch: -1}, record.Record{Key: []byte("k"), Timestamp: time.Now().UnixMilli()})
	if err != nil {
		return nil, err
	}
	out := append(bytes.Clone(b[:record.HeaderSize]), payload...)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-record.LengthOverhead))
	out[22] |= byte(codec)
	return checksummed(out), nil
}

func (x *bad) bombs(ctx context.Context) error {
	for _, c := range codecs()[1:] {
		b, err := bomb(c)
		if err != nil {
			return err
		}
		code, err := x.produce(ctx, compactTopic, b)
		if err != nil {
			return fmt.Errorf("%s bomb of %d bytes: %w", c, len(b), err)
		}
		if err := kerr.ErrorForCode(code); !errors.Is(err, kerr.InvalidRecord) && !errors.Is(err, kerr.MessageTooLarge) {
			return fmt.Errorf("%s bomb of %d bytes: answered %w", c, len(b), err)
		}
		// Where nothing looks inside, it may be taken; it must do no harm either way.
		if _, err := x.produce(ctx, plainTopic, b); err != nil {
			return fmt.Errorf("%s bomb to a topic that isn't compacted: %w", c, err)
		}
	}
	return nil
}

func (x *bad) manyBombs(ctx context.Context) error {
	b, err := bomb(record.Zstd)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			code, err := x.produce(ctx, compactTopic, b)
			if err == nil && code == 0 {
				err = errors.New("a bomb was taken")
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// slow holds many connections open in the middle of a frame while others work.
func (x *bad) slow(ctx context.Context) error {
	var held []*rawConn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range 300 {
		c, err := dialRaw(ctx, x.b.Addr)
		if err != nil {
			return err
		}
		held = append(held, c)
		if _, err := c.Write([]byte{0, 1, 0, 0, 0, 3}); err != nil {
			return err
		}
	}
	return x.healthy(ctx)
}
