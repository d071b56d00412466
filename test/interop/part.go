package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/record"
)

// part is a part while it runs: its folder, its servers, and what it says. Used by one goroutine.
type part struct {
	*setting
	name    string
	dir     string
	began   time.Time
	brokers []*peertest.Broker
	procs   []*peertest.Process
	undo    []func() error
	logs    []string
}

// step is a named piece of a part; its name leads the error.
type step struct {
	name string
	run  func(context.Context) error
}

func (p *part) steps(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		from := time.Now()
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		p.logf("%s (%.1f s)", s.name, time.Since(from).Seconds())
		for _, b := range p.brokers {
			if b.Started() {
				if err := b.Running(); err != nil {
					return fmt.Errorf("after %s: %w", s.name, err)
				}
			}
		}
	}
	return nil
}

func (p *part) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f %s: %s\n", time.Since(p.began).Seconds(), p.name, fmt.Sprintf(format, args...))
}

func (p *part) report(err error) {
	fmt.Fprintf(os.Stderr, "\n=== interop %s FAILED: %v\n", p.name, err)
	for _, log := range p.logs {
		if st, err := os.Stat(log); err == nil && st.Size() > 0 {
			fmt.Fprintf(os.Stderr, "--- end of %s\n%s\n", log, peertest.TailFile(log, 30))
		}
	}
	fmt.Fprintln(os.Stderr)
}

func (p *part) cleanUp() {
	var errs []error
	for _, proc := range p.procs {
		errs = append(errs, proc.Kill())
	}
	for _, b := range p.brokers {
		errs = append(errs, b.Kill())
	}
	for _, undo := range slices.Backward(p.undo) {
		errs = append(errs, undo())
	}
	if err := errors.Join(errs...); err != nil {
		p.logf("cleaning up: %v", err)
	}
}

// onCleanUp adds what is to be undone after all processes are gone, the last first.
func (p *part) onCleanUp(undo func() error) { p.undo = append(p.undo, undo) }

// start starts a program beside the part; its standard error, and its output without Lines, go to a log.
func (p *part) start(name string, c peertest.Command) (*peertest.Process, error) {
	log := filepath.Join(p.dir, name+".log")
	proc, err := peertest.Start(c, log)
	if err != nil {
		return nil, err
	}
	p.procs = append(p.procs, proc)
	p.logs = append(p.logs, log)
	return proc, nil
}

func (p *part) addBroker(b *peertest.Broker) {
	p.brokers = append(p.brokers, b)
	p.logs = append(p.logs, b.LogFile)
}

// target starts the broker under test with these broker properties.
func (p *part) target(ctx context.Context, props map[string]string) (*peertest.Broker, error) {
	var b *peertest.Broker
	var err error
	if p.setting.target == "kafka" {
		b, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: p.kafka, Dir: filepath.Join(p.dir, "kafka"), Properties: props})
	} else {
		b, err = p.newMilena("milena", "", props)
	}
	if err != nil {
		return nil, err
	}
	p.addBroker(b)
	return b, b.Start(ctx)
}

// newMilena prepares a milena node in its own folder below the part's; dataDir may be elsewhere.
func (p *part) newMilena(name, dataDir string, props map[string]string) (*peertest.Broker, error) {
	// Many small groups rebalance here; Kafka's own tests set this as well.
	all := map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
	maps.Copy(all, props)
	var overrides []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		overrides = append(overrides, k+"="+all[k])
	}
	return peertest.NewMilena(peertest.MilenaOptions{Binary: p.milena, Dir: filepath.Join(p.dir, name), DataDir: dataDir, Overrides: overrides})
}

// tool runs one of Kafka's tools against a broker and returns its standard output.
func (p *part) tool(ctx context.Context, b *peertest.Broker, name string, args ...string) (string, error) {
	return p.toolWith(ctx, peertest.Command{}, b, name, args...)
}

// toolWith is tool with the input and time of base.
func (p *part) toolWith(ctx context.Context, base peertest.Command, b *peertest.Broker, name string, args ...string) (string, error) {
	c := p.kafka.Command(name, append([]string{"--bootstrap-server", b.Addr}, args...)...)
	c.Stdin, c.Timeout = base.Stdin, base.Timeout
	out, err := peertest.Run(ctx, c)
	return out.Stdout, err
}

// admin is a client for looking at what a client under test did; addrs are a bootstrap list.
func (p *part) admin(addrs string) (*kadm.Client, error) {
	// The client caches metadata for as long as the minimum age.
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	p.onCleanUp(func() error { cl.Close(); return nil })
	return kadm.NewClient(cl), nil
}

// codecs are all of Kafka's, none first.
func codecs() []record.Codec {
	return []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}
}

// checkStored wants exactly this many records in a topic's partitions, all of them in batches of this codec.
func checkStored(b *peertest.Broker, topic string, partitions int32, codec record.Codec, records int64) error {
	var n int64
	for i := range partitions {
		dir := b.PartitionDir(topic, i)
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue // a broker may make it with the first record
		}
		s, err := peertest.Inspect(dir)
		if err != nil {
			return err
		}
		if s.Records == 0 {
			continue
		}
		if err := s.OnlyCodec(codec); err != nil {
			return fmt.Errorf("%s-%d: %w", topic, i, err)
		}
		n += s.Records
	}
	if n != records {
		return fmt.Errorf("%s: %d records stored, want %d", topic, n, records)
	}
	return nil
}

// checkCommitted wants the group's committed offsets to be the ends of all partitions of the topic.
func checkCommitted(ctx context.Context, adm *kadm.Client, group, topic string) error {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	n := 0
	var errs []error
	ends.Each(func(e kadm.ListedOffset) {
		n++
		c, ok := committed.Lookup(topic, e.Partition)
		errs = append(errs, e.Err, c.Err)
		if !ok || c.At != e.Offset {
			errs = append(errs, fmt.Errorf("group %s committed %d (listed: %v) for %s-%d, whose end is %d", group, c.At, ok, topic, e.Partition, e.Offset))
		}
	})
	if n == 0 {
		return fmt.Errorf("no end offsets of %s", topic)
	}
	return errors.Join(errs...)
}

// wantAll wants each of these in the text.
func wantAll(text string, wants ...string) error {
	for _, w := range wants {
		if !strings.Contains(text, w) {
			return fmt.Errorf("%q is missing in:\n%s", w, peertest.Tail(text, 40))
		}
	}
	return nil
}

// fields are the whitespace-separated words of the lines that have the first of them at the column.
func fields(text string, column int, word string) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > column && f[column] == word {
			out = append(out, f)
		}
	}
	return out
}

func itoa[T ~int | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }
