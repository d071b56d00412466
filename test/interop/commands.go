package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"milena/internal/peertest"
)

// commands runs milena's client commands against Apache Kafka and against Milena, as text and as JSON: both must end with
// the code that is expected and say the same.
type commands struct {
	*part
	// kafka is Apache Kafka, ours is Milena.
	apache, ours *peertest.Broker
}

// command is one to run. In args T stands for a topic and G for a group of the run's own.
type command struct {
	args  string
	stdin string
	code  int
	// says is in standard output, or with a code in standard error, of both.
	says string
	// own marks commands that tell what is the cluster's own: configs of brokers, ids, feature levels. Their texts are not compared.
	own bool
}

func runCommands(ctx context.Context, p *part) error {
	x := &commands{part: p}
	return p.steps(ctx, step{"start", x.start}, step{"text", func(ctx context.Context) error { return x.all(ctx, false) }},
		step{"json", func(ctx context.Context) error { return x.all(ctx, true) }}, step{"mirrors", x.mirrors}, step{"dump-log", x.dumpLog})
}

func (x *commands) start(ctx context.Context) (err error) {
	props := map[string]string{"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0"}
	if x.apache, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: x.kafka, Dir: filepath.Join(x.dir, "kafka"), Properties: props}); err != nil {
		return err
	}
	if x.ours, err = x.newMilena("milena", "", props); err != nil {
		return err
	}
	for _, b := range []*peertest.Broker{x.apache, x.ours} {
		x.addBroker(b)
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (x *commands) list() []command {
	reset := "groups reset-offsets G --topic T "
	return []command{
		{args: "topics create T --partitions 3 --config retention.ms=100000000000", says: "T"},
		{args: "topics create T", code: 1, says: "exists"},
		{args: "topics create T --if-not-exists"},
		{args: "topics create bad/name", code: 1, says: "bad/name"},
		{args: "topics create T-2 --replication-factor 5", code: 1, says: "T-2"},
		{args: "topics create T-2 --config nosuch=1", code: 1, says: "nosuch"},
		{args: "topics list", says: "T"}, {args: "topics list --exclude-internal", says: "T"},
		{args: "topics describe T", says: "retention.ms=100000000000"}, {args: "topics describe nosuch", code: 1, says: "nosuch"},
		{args: "topics describe --under-replicated"}, {args: "topics describe --unavailable"}, {args: "topics describe --under-min-isr"},
		{args: "topics alter T --partitions 4"}, {args: "topics alter T --partitions 2", code: 1, says: "T"}, {args: "topics alter nosuch --partitions 9", code: 1, says: "nosuch"},
		{args: "configs alter --topic T --set cleanup.policy=compact --set max.message.bytes=2000000"},
		{args: "configs alter --topic T --append cleanup.policy=delete"}, {args: "configs describe --topic T", says: "compact,delete"},
		{args: "configs alter --topic T --subtract cleanup.policy=compact --delete max.message.bytes"}, {args: "configs describe --topic T"},
		{args: "configs describe --topic T --all", says: "segment.bytes", own: true}, {args: "configs describe --topic nosuch", code: 1, says: "nosuch"},
		{args: "configs alter --topic T --set retention.ms=soon", code: 1, says: "retention.ms"}, {args: "configs alter --topic T --set nosuch=1", code: 1, says: "nosuch"},
		{args: "configs alter --broker 1 --set log.retention.ms=900000000"}, {args: "configs alter --broker 1 --set node.id=3", code: 1, says: "node.id"},
		{args: "configs describe --broker 1", says: "log.retention.ms", own: true}, {args: "configs describe --broker 9", code: 1, own: true},
		{args: "configs alter --entity-type brokers --entity-default --set log.retention.ms=800000000"}, {args: "configs describe --entity-type brokers --entity-default", says: "800000000", own: true},
		{args: "configs alter --entity-type brokers --entity-default --delete log.retention.ms"}, {args: "configs alter --broker 1 --delete log.retention.ms"},
		{args: "configs describe --entity-type broker-loggers --entity-name 1", own: true},
		{args: "configs alter --group G --set consumer.session.timeout.ms=50000"}, {args: "configs describe --group G", says: "50000"}, {args: "configs alter --group G --delete consumer.session.timeout.ms"},
		{args: "produce T --key-separator : --partition 0", stdin: "a:1\nb:2\n"}, {args: "produce T --compression gzip --partition 1 --header h=v", stdin: "x\ny\n"},
		{args: "produce T --compression snappy --partition 1 --acks 1", stdin: "x\n"}, {args: "produce T --compression lz4 --partition 2 --acks all --key k", stdin: "lz\n"},
		{args: "produce T --compression zstd --partition 2 --null-marker NULL --key-separator :", stdin: "k:NULL\n"}, {args: "produce T --partition 9", stdin: "x\n", code: 1, says: "9"},
		{args: "produce bad/name", stdin: "x\n", code: 1, says: `"bad/name" is internal`}, {args: "produce T --acks 0 --partition 3", stdin: "unseen\n"},
		{args: "consume T --from-beginning --exit-at-end --partition 0 --format %p/%o/%k=%v", says: "1"}, {args: "consume T --from-beginning --exit-at-end --partition 1 --format %o:%v:%h", says: "h"},
		{args: "consume T --from-beginning --exit-at-end --partition 2 --format %k%v%e"}, {args: "consume T --from-beginning --max-records 1 --partition 0"},
		{args: "consume T --from-beginning --exit-at-end --group G --format %p%o", says: "0"}, {args: "consume T --exit-at-end --group G"}, {args: "consume nosuch --exit-at-end", code: 1, says: "nosuch"},
		{args: "groups list", says: "G"}, {args: "groups describe G", says: "T"}, {args: "groups describe", says: "G"}, {args: "groups describe nosuch", code: 1, says: "nosuch"},
		{args: reset + "--to-earliest"}, {args: reset + "--to-earliest --execute"}, {args: "groups describe G"}, {args: reset + "--shift-by 1 --execute"}, {args: reset + "--to-offset 1"},
		{args: reset + "--to-datetime 2020-01-01T00:00:00.000"}, {args: reset + "--by-duration 1h"}, {args: reset + "--to-latest --execute"}, {args: "groups reset-offsets G --all-topics --to-current"},
		{args: "groups reset-offsets G --topic T:0,1 --to-earliest"}, {args: "groups reset-offsets G --topic nosuch --to-earliest", code: 1, says: "nosuch"},
		{args: "groups delete G"}, {args: "groups delete nosuch", code: 1, says: "nosuch"},
		{args: "cluster describe", says: "1", own: true}, {args: "cluster unregister 99", code: 1, says: "99"}, {args: "quorum describe", says: "1", own: true},
		{args: "features describe", says: "metadata.version", own: true}, {args: "features upgrade metadata.version=9999", code: 1, says: "metadata.version"},
		{args: "topics delete T"}, {args: "topics delete nosuch", code: 1, says: "nosuch"}, {args: "topics delete nosuch --if-exists"},
	}
}

func (x *commands) all(ctx context.Context, asJSON bool) error {
	topic, group := "orders", "billing"
	if asJSON {
		topic, group = "orders-json", "billing-json"
	}
	names := strings.NewReplacer("T", topic, "G", group)
	var errs []error
	for _, c := range x.list() {
		args := strings.Fields(c.args)
		for i, a := range args {
			if a == "T" || a == "G" || strings.HasPrefix(a, "T:") || strings.HasPrefix(a, "T-") {
				args[i] = names.Replace(a)
			}
		}
		says := c.says
		if says == "T" || says == "G" || says == "T-2" {
			says = names.Replace(says)
		}
		if asJSON {
			if i := slices.Index(args, "--format"); i > 0 {
				args, says = append(args[:i:i], args[i+2:]...), `"offset":` // a line of JSON has all of a record
			}
			args = append(args, "--json")
			says = strings.ReplaceAll(says, "retention.ms=100000000000", "100000000000")
		}
		errs = append(errs, x.both(ctx, c, args, says, asJSON))
	}
	return errors.Join(errs...)
}

func (x *commands) both(ctx context.Context, c command, args []string, says string, asJSON bool) error {
	var outs [2]string
	for i, b := range []*peertest.Broker{x.apache, x.ours} {
		out, err := x.run(ctx, b, c.stdin, args)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("milena %s at %s", strings.Join(args, " "), b.Kind)
		if out.Code != c.code {
			return fmt.Errorf("%s: code %d, want %d: %s%s", what, out.Code, c.code, out.Stdout, out.Stderr)
		}
		said := out.Stdout
		if c.code != 0 {
			said = out.Stderr
			if n := strings.Count(strings.TrimSpace(said), "\n"); n > 0 || !strings.HasPrefix(said, "milena: ") {
				return fmt.Errorf("%s: standard error is not one line of the command: %q", what, said)
			}
		}
		if !strings.Contains(said, says) {
			return fmt.Errorf("%s: %q is not in %q", what, says, said)
		}
		if asJSON {
			if err := everyValueIsJSON(out.Stdout); err != nil {
				return fmt.Errorf("%s: %w: %q", what, err, out.Stdout)
			}
		}
		outs[i] = sorted(b, out.Stdout)
	}
	if !c.own && outs[0] != outs[1] {
		return fmt.Errorf("milena %s says at kafka\n%s\nand at milena\n%s", strings.Join(args, " "), outs[0], outs[1])
	}
	return nil
}

func (x *commands) run(ctx context.Context, b *peertest.Broker, stdin string, args []string) (peertest.Output, error) {
	out, err := peertest.Run(ctx, peertest.Command{Path: x.milena, Args: append(slices.Clone(args), "--bootstrap-server", b.Addr), Stdin: strings.NewReader(stdin), Timeout: time.Minute})
	var ended *peertest.ExitError
	if errors.As(err, &ended) && out.Code >= 0 {
		err = nil
	}
	return out, err
}

// everyValueIsJSON reads values until the end.
func everyValueIsJSON(text string) error {
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var v any
		if err := d.Decode(&v); err != nil {
			return err
		}
	}
	return nil
}

var byAccident = map[*regexp.Regexp]string{
	regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b`): "ID", regexp.MustCompile(`\b1[6-9]\d{11}\b`): "NOW", regexp.MustCompile(` {2,}`): "  ",
}

// sorted takes out of a text what is different by accident, and sorts its lines: that is how partitions come.
func sorted(b *peertest.Broker, text string) string {
	text = strings.ReplaceAll(text, b.Addr, "ADDRESS")
	for _, re := range slices.SortedFunc(maps.Keys(byAccident), func(p, q *regexp.Regexp) int { return strings.Compare(p.String(), q.String()) }) {
		text = re.ReplaceAllString(text, byAccident[re])
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// mirrors are what Apache Kafka 4.4 does not have: the commands say so, with the code for what a cluster can't do.
func (x *commands) mirrors(ctx context.Context) error {
	for _, args := range []string{"mirrors list", "mirrors describe", "mirrors describe dr", "mirrors create dr --source " + x.ours.Addr, "mirrors start dr --topics a", "mirrors pause dr --topics a",
		"mirrors resume dr --topics a", "mirrors stop dr --topics a", "mirrors delete dr", "mirrors list --json", "mirrors describe --json"} {
		out, err := x.run(ctx, x.apache, "", strings.Fields(args))
		if err != nil {
			return err
		}
		if out.Code != 1 || out.Stdout != "" || strings.Count(out.Stderr, "\n") != 1 || !strings.Contains(out.Stderr, "mirror") {
			return fmt.Errorf("milena %s at kafka: code %d, %q, %q", args, out.Code, out.Stdout, out.Stderr)
		}
		if !strings.Contains(args, "list") && args != "mirrors describe" {
			continue
		}
		if out, err = x.run(ctx, x.ours, "", strings.Fields(args)); err != nil || out.Code != 0 {
			return fmt.Errorf("milena %s at milena: code %d, %q: %w", args, out.Code, out.Stderr, err)
		}
	}
	return nil
}

// dumpLog reads Apache Kafka's own segment files.
func (x *commands) dumpLog(ctx context.Context) error {
	if _, err := x.run(ctx, x.apache, "", []string{"topics", "create", "dumped", "--partitions", "1"}); err != nil {
		return err
	}
	out, err := x.run(ctx, x.apache, "k:one\nk:two\n", []string{"produce", "dumped", "--key-separator", ":"})
	if err != nil || out.Code != 0 {
		return fmt.Errorf("produce: %w: %s", err, out.Stderr)
	}
	files, err := filepath.Glob(filepath.Join(x.apache.PartitionDir("dumped", 0), "*.log"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("segments of Apache Kafka: %v, %w", files, err)
	}
	got, err := peertest.Run(ctx, peertest.Command{Path: x.milena, Args: []string{"dump-log", "--print-data-log", files[0]}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	return wantAll(got.Stdout, "one", "two")
}
