package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// dump checks the broker's files with Kafka's own DumpLogSegments.
type dump struct {
	*part
	b   *peertest.Broker
	adm *kadm.Client
	// produced are the acknowledged records by partition and offset.
	produced map[int32]map[int64]*kgo.Record
}

const dumpTopic = "dumped"

func runDumpLog(ctx context.Context, p *part) error {
	d := &dump{part: p, produced: map[int32]map[int64]*kgo.Record{}}
	return p.steps(ctx,
		step{"start", func(ctx context.Context) (err error) {
			if d.b, err = p.target(ctx, nil); err != nil {
				return err
			}
			d.adm, err = p.admin(d.b.Addr)
			return err
		}},
		step{"produce", d.produce},
		step{"commit offsets", d.commit},
		step{"kill -9, start and produce again", func(ctx context.Context) error {
			if err := d.b.Kill(); err != nil {
				return err
			}
			if err := d.b.Start(ctx); err != nil {
				return err
			}
			return d.fill(ctx, 50)
		}},
		step{"dump the live files", d.check},
		step{"stop cleanly", func(context.Context) error { return d.b.Stop() }},
		step{"dump the closed files", d.check},
		step{"dump indexes, snapshots and offsets", d.others},
	)
}

func (d *dump) produce(ctx context.Context) error {
	// The smallest segments and indexes that Kafka 4 allows, so that there are several.
	configs := map[string]*string{"segment.bytes": kadm.StringPtr("1048576"), "index.interval.bytes": kadm.StringPtr("512")}
	if _, err := d.adm.CreateTopic(ctx, 2, 1, configs, dumpTopic); err != nil {
		return err
	}
	if err := d.fill(ctx, 800); err != nil {
		return err
	}
	for p := range int32(2) {
		files, err := peertest.Segments(d.b.PartitionDir(dumpTopic, p))
		if err != nil {
			return err
		}
		if len(files) < 3 {
			return fmt.Errorf("only %d segments: %v", len(files), files)
		}
	}
	return nil
}

// fill produces n records with each codec, and remembers where they went.
func (d *dump) fill(ctx context.Context, n int) error {
	for i, c := range codecs() {
		opts := []kgo.Opt{kgo.SeedBrokers(d.b.Addr), kgo.ProducerBatchCompression(kgoCodec(c)), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
			kgo.ProducerLinger(0), kgo.MaxBufferedRecords(20)}
		if i%2 == 1 {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			return err
		}
		noise := newNoise(uint64(n + i))
		now := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
		var recs []*kgo.Record
		for j := range n {
			r := &kgo.Record{Topic: dumpTopic, Key: fmt.Append(nil, j), Value: noise.bytes(3000 + j), Timestamp: now.Add(time.Duration(j) * time.Millisecond)}
			switch j % 25 {
			case 1:
				r.Key = nil
			case 2:
				r.Value = nil
			case 3:
				r.Headers = []kgo.RecordHeader{{Key: "one", Value: []byte("1")}, {Key: "two"}}
			}
			recs = append(recs, r)
		}
		err = cl.ProduceSync(ctx, recs...).FirstErr()
		cl.Close()
		if err != nil {
			return err
		}
		for _, r := range recs {
			if d.produced[r.Partition] == nil {
				d.produced[r.Partition] = map[int64]*kgo.Record{}
			}
			d.produced[r.Partition][r.Offset] = r
		}
	}
	return nil
}

func (d *dump) commit(ctx context.Context) error {
	var o kadm.Offsets
	o.AddOffset(dumpTopic, 0, 12, -1)
	o.AddOffset(dumpTopic, 1, 34, -1)
	r, err := d.adm.CommitOffsets(ctx, "dump-group", o)
	return errors.Join(err, r.Error())
}

// complaints are what DumpLogSegments prints about files that are wrong; its exit code is 0 then.
var complaints = []string{"Found timestamp mismatch", "Found out of order timestamp", "Mismatches in",
	"Index position", "isvalid: false", "Exception", "corrupt", "not found in log", "unreadable", "zero-sized"}

var followedBy = regexp.MustCompile(`(?m)^\s*(-?\d+) is followed by (-?\d+)`)

// dumpLog runs the tool and fails if it complains.
func (p *part) dumpLog(ctx context.Context, files []string, args ...string) (string, error) {
	out, err := p.dumpCompacted(ctx, files, args...)
	if err != nil {
		return "", err
	}
	for _, m := range followedBy.FindAllStringSubmatch(out, -1) {
		if m[1] != "-1" { // what it takes for the offset before a file's first
			return "", fmt.Errorf("dump-log of %v: offset %s is followed by %s", files, m[1], m[2])
		}
	}
	return out, nil
}

// dumpCompacted is dumpLog for logs with gaps.
func (p *part) dumpCompacted(ctx context.Context, files []string, args ...string) (string, error) {
	out, err := p.kafka.Run(ctx, "dump-log", append(args, "--files", strings.Join(files, ","))...)
	if err != nil {
		return "", err
	}
	for _, c := range complaints {
		for _, text := range []string{out.Stdout, out.Stderr} {
			if i := strings.Index(text, c); i >= 0 {
				return "", fmt.Errorf("dump-log of %v complains:\n%s", files, peertest.Tail(text[:min(len(text), i+500)], 8))
			}
		}
	}
	return out.Stdout, nil
}

var dumpedRecord = regexp.MustCompile(`^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) headerKeys: \[(.*?)\]`)

// check compares each record that the tool prints with what was produced.
func (d *dump) check(ctx context.Context) error {
	for p := range int32(2) {
		files, err := peertest.Segments(d.b.PartitionDir(dumpTopic, p))
		if err != nil {
			return err
		}
		out, err := d.dumpLog(ctx, files, "--deep-iteration")
		if err != nil {
			return err
		}
		seen := map[int64]bool{}
		codecsSeen := map[string]bool{}
		lines := bufio.NewScanner(strings.NewReader(out))
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), " compresscodec: "); ok {
				codecsSeen[strings.ToLower(strings.Fields(rest)[0])] = true
			}
			m := dumpedRecord.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			offset, _ := strconv.ParseInt(m[1], 10, 64)
			r := d.produced[p][offset]
			if r == nil || seen[offset] {
				return fmt.Errorf("partition %d: offset %d was dumped, produced %v, dumped before %v", p, offset, r != nil, seen[offset])
			}
			seen[offset] = true
			var headers []string
			for _, h := range r.Headers {
				headers = append(headers, h.Key)
			}
			want := []string{itoa(r.Timestamp.UnixMilli()), itoa(size(r.Key)), itoa(size(r.Value)), strings.Join(headers, ",")}
			if got := []string{m[2], m[3], m[4], m[6]}; !slices.Equal(got, want) {
				return fmt.Errorf("partition %d, offset %d: dumped time, sizes, headers %v, produced %v", p, offset, got, want)
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
		if len(seen) != len(d.produced[p]) {
			return fmt.Errorf("partition %d: %d records dumped, %d produced", p, len(seen), len(d.produced[p]))
		}
		for _, c := range codecs() {
			if !codecsSeen[c.String()] {
				return fmt.Errorf("partition %d: no batch with codec %s dumped, only %v", p, c, codecsSeen)
			}
		}
	}
	return nil
}

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// others checks the files beside the log, and the offsets topic through Kafka's decoder.
func (d *dump) others(ctx context.Context) error {
	var indexes, snapshots []string
	for p := range int32(2) {
		dir := d.b.PartitionDir(dumpTopic, p)
		for _, pattern := range []string{"*.index", "*.timeindex"} {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return err
			}
			if len(found) < 3 {
				return fmt.Errorf("only %d files %s in %s", len(found), pattern, dir)
			}
			indexes = append(indexes, found...)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
		if err != nil {
			return err
		}
		snapshots = append(snapshots, found...)
	}
	if _, err := d.dumpLog(ctx, indexes, "--index-sanity-check"); err != nil {
		return err
	}
	if _, err := d.dumpLog(ctx, indexes, "--verify-index-only"); err != nil {
		return err
	}
	out, err := d.dumpLog(ctx, snapshots)
	if err != nil {
		return err
	}
	if err := wantAll(out, "producerId: ", "producerEpoch: ", "lastSequence: ", "coordinatorEpoch: -1"); err != nil {
		return err
	}
	var offsets []string
	dirs, err := filepath.Glob(filepath.Join(d.b.DataDir, "__consumer_offsets-*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		s, err := peertest.Segments(dir)
		if err != nil {
			return err
		}
		offsets = append(offsets, s...)
	}
	if out, err = d.dumpLog(ctx, offsets, "--offsets-decoder"); err != nil {
		return err
	}
	return wantAll(out, `"group":"dump-group","topic":"dumped","partition":0`, `"offset":12`, `"offset":34`)
}
