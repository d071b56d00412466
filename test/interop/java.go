package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/record"
)

// java drives Kafka's own command line tools, and with them the Java client.
type java struct {
	*part
	b   *peertest.Broker
	adm *kadm.Client
	t0  time.Time
}

func runJava(ctx context.Context, p *part) error {
	j := &java{part: p, t0: firstTimestamp()}
	return p.steps(ctx,
		step{"start", func(ctx context.Context) (err error) {
			if j.b, err = p.target(ctx, nil); err != nil {
				return err
			}
			j.adm, err = p.admin(j.b.Addr)
			return err
		}},
		step{"broker-api-versions, cluster", j.versions},
		step{"topics", j.topics},
		step{"configs", j.configs},
		step{"console-producer", j.consoleProduce},
		step{"producer-perf-test", j.perfProduce},
		step{"verifiable-producer", j.verifiableProduce},
		step{"console-consumer", j.consoleConsume},
		step{"consumer-perf-test", j.perfConsume},
		step{"verifiable-consumer, two members", j.group},
		step{"get-offsets", j.offsets},
		step{"consumer-groups, empty group", j.emptyGroup},
		step{"delete-records, log-dirs", j.deleteRecords},
		step{"topics --delete", j.delete},
	)
}

func (j *java) run(ctx context.Context, name string, args ...string) (string, error) {
	return j.tool(ctx, j.b, name, args...)
}

func (j *java) versions(ctx context.Context) error {
	out, err := j.run(ctx, "broker-api-versions")
	if err != nil {
		return err
	}
	if strings.Contains(out, "ERROR") || strings.Contains(out, "UNKNOWN(10") && j.setting.target == "kafka" {
		return fmt.Errorf("broker-api-versions: %s", out)
	}
	if err := wantAll(out, j.b.Addr+" (id: ", "Produce(0): 0 to 13", "Fetch(1): 4 to 18", "ApiVersions(18): 0 to "); err != nil {
		return err
	}
	out, err = j.kafkaCluster(ctx)
	if err != nil {
		return err
	}
	return wantAll(out, "Cluster ID: ")
}

func (j *java) kafkaCluster(ctx context.Context) (string, error) {
	out, err := j.kafka.Run(ctx, "cluster", "cluster-id", "--bootstrap-server", j.b.Addr)
	return out.Stdout, err
}

func javaTopic(c record.Codec) string { return "java-" + c.String() }

func (j *java) topics(ctx context.Context) error {
	// One JVM a topic is too slow; the other clients create theirs themselves. Here two by the tool, the rest by alter.
	out, err := j.run(ctx, "topics", "--create", "--topic", javaTopic(record.None), "--partitions", "1", "--replication-factor", "1",
		"--config", "segment.bytes=2097152", "--config", "cleanup.policy=delete")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Created topic java-none."); err != nil {
		return err
	}
	if out, err = j.run(ctx, "topics", "--alter", "--topic", javaTopic(record.None), "--partitions", itoa(partitions)); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, c := range codecs()[1:] {
		if _, err := j.adm.CreateTopic(ctx, partitions, 1, nil, javaTopic(c)); err != nil {
			return err
		}
	}
	if out, err = j.run(ctx, "topics", "--describe", "--topic", javaTopic(record.None)); err != nil {
		return err
	}
	if err := wantAll(out, "PartitionCount: 3", "ReplicationFactor: 1", "segment.bytes=2097152", "Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1"); err != nil {
		return err
	}
	if out, err = j.run(ctx, "topics", "--list"); err != nil {
		return err
	}
	return wantAll(out, "java-gzip\n", "java-lz4\n", "java-none\n", "java-snappy\n", "java-zstd\n")
}

func (j *java) configs(ctx context.Context) error {
	entity := []string{"--entity-type", "topics", "--entity-name", javaTopic(record.Gzip)}
	if out, err := j.run(ctx, "configs", append(entity, "--alter", "--add-config", "retention.ms=3600000,max.message.bytes=2000000")...); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	out, err := j.run(ctx, "configs", append(entity, "--describe")...)
	if err != nil {
		return err
	}
	if err := wantAll(out, "Dynamic configs for topic java-gzip are:", "retention.ms=3600000", "max.message.bytes=2000000", "DYNAMIC_TOPIC_CONFIG:retention.ms=3600000"); err != nil {
		return err
	}
	if out, err := j.run(ctx, "configs", append(entity, "--alter", "--delete-config", "retention.ms,max.message.bytes")...); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	// A value that can't be is refused, and the tool says why.
	out, err = j.run(ctx, "configs", append(entity, "--alter", "--add-config", "cleanup.policy=shred")...)
	var exit *peertest.ExitError
	if !errors.As(err, &exit) || !strings.Contains(exit.Output.Stderr+out, "InvalidConfigurationException") {
		return fmt.Errorf("cleanup.policy=shred: %w: %s", err, out)
	}
	broker := []string{"--entity-type", "brokers", "--entity-name", "1"}
	if out, err = j.run(ctx, "configs", append(broker, "--describe", "--all")...); err != nil {
		return err
	}
	return wantAll(out, "All configs for broker 1 are:", "num.partitions=1", "log.retention.hours=168", "DEFAULT_CONFIG:")
}

func (j *java) consoleProduce(ctx context.Context) error {
	for _, c := range []record.Codec{record.None, record.Gzip} {
		var in strings.Builder
		for i := range perCodec {
			fmt.Fprintf(&in, "h:v%d\tk%d\t%s\n", i, i, compressible(c.String(), i))
		}
		_, err := j.toolWith(ctx, peertest.Command{Stdin: strings.NewReader(in.String())}, j.b, "console-producer", "--topic", javaTopic(c),
			"--compression-codec", c.String(), "--command-property", "linger.ms=50",
			"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
		if err != nil {
			return err
		}
		if err := checkStored(j.b, javaTopic(c), partitions, c, perCodec); err != nil {
			return err
		}
	}
	return nil
}

func (j *java) perfProduce(ctx context.Context) error {
	payload := filepath.Join(j.dir, "payload")
	if err := os.WriteFile(payload, compressible("perf", 0), 0o644); err != nil {
		return err
	}
	for _, c := range []record.Codec{record.Snappy, record.LZ4} {
		out, err := j.run(ctx, "producer-perf-test", "--topic", javaTopic(c), "--num-records", itoa(20*perCodec), "--throughput", "-1",
			"--payload-file", payload, "--command-property", "compression.type="+c.String(), "acks=all", "linger.ms=20")
		if err != nil {
			return err
		}
		if err := wantAll(out, itoa(20*perCodec)+" records sent"); err != nil {
			return err
		}
		if err := checkStored(j.b, javaTopic(c), partitions, c, 20*perCodec); err != nil {
			return err
		}
	}
	return nil
}

func (j *java) verifiableProduce(ctx context.Context) error {
	props := filepath.Join(j.dir, "verifiable.properties")
	if err := peertest.WriteProperties(props, map[string]string{"compression.type": "zstd", "linger.ms": "20"}); err != nil {
		return err
	}
	out, err := j.run(ctx, "verifiable-producer", "--topic", javaTopic(record.Zstd), "--max-messages", itoa(perCodec), "--repeating-keys", "10",
		"--command-config", props, "--value-prefix", "7", "--message-create-time", itoa(j.t0.UnixMilli()))
	if err != nil {
		return err
	}
	if n := strings.Count(out, `"name":"producer_send_success"`); n != perCodec {
		return fmt.Errorf("%d sends succeeded: %s", n, peertest.Tail(out, 5))
	}
	if err := wantAll(out, `"name":"tool_data"`, `"acked":`+itoa(perCodec)); err != nil {
		return err
	}
	return checkStored(j.b, javaTopic(record.Zstd), partitions, record.Zstd, perCodec)
}

func (j *java) consoleConsume(ctx context.Context) error {
	out, err := j.run(ctx, "console-consumer", "--topic", javaTopic(record.Gzip), "--from-beginning", "--max-messages", itoa(perCodec), "--timeout-ms", "20000",
		"--group", "java-console", "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
	if err != nil {
		return err
	}
	lines := map[string]bool{}
	for line := range strings.Lines(out) {
		lines[strings.TrimSuffix(line, "\n")] = true
	}
	for i := range perCodec {
		if want := fmt.Sprintf("h:v%d\tk%d\t%s", i, i, compressible("gzip", i)); !lines[want] {
			return fmt.Errorf("%q was not consumed; %d lines", want, len(lines))
		}
	}
	return checkCommitted(ctx, j.adm, "java-console", javaTopic(record.Gzip))
}

func (j *java) perfConsume(ctx context.Context) error {
	out, err := j.run(ctx, "consumer-perf-test", "--topic", javaTopic(record.Snappy), "--num-records", itoa(20*perCodec), "--hide-header", "--timeout", "20000")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if f := strings.Split(line, ", "); len(f) > 5 {
			if n, err := strconv.Atoi(f[4]); err == nil && n == 20*perCodec {
				return nil
			}
		}
	}
	return fmt.Errorf("consumer-perf-test: %s", out)
}

// verifiable is a VerifiableConsumer; it prints an event a line.
type verifiable struct {
	proc *peertest.Process

	mu       sync.Mutex
	owned    int
	records  int
	commits  int
	failures []string
}

func (v *verifiable) line(s string) {
	var e struct {
		Name       string
		Count      int
		Success    bool
		Partitions []struct {
			Topic     string
			Partition int
		}
	}
	if json.Unmarshal([]byte(s), &e) != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Name {
	case "partitions_assigned":
		v.owned += len(e.Partitions)
	case "partitions_revoked":
		v.owned -= len(e.Partitions)
	case "records_consumed":
		v.records += e.Count
	case "offsets_committed":
		if v.commits++; !e.Success {
			v.failures = append(v.failures, s)
		}
	}
}

func (v *verifiable) has() (owned, records int, failures []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.owned, v.records, v.failures
}

func (j *java) join(name, group string) (*verifiable, error) {
	v := &verifiable{}
	c := j.kafka.Command("verifiable-consumer", "--bootstrap-server", j.b.Addr, "--topic", javaTopic(record.Zstd), "--group-id", group,
		"--session-timeout", "10000", "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
	c.Lines = v.line
	proc, err := j.start(name, c)
	v.proc = proc
	return v, err
}

func (j *java) group(ctx context.Context) error {
	const group = "java-group"
	a, err := j.join("consumer-a", group)
	if err != nil {
		return err
	}
	all := func() bool { n, _, _ := a.has(); return n == partitions }
	if err := owns(ctx, "one member has all", all); err != nil {
		return err
	}
	b, err := j.join("consumer-b", group)
	if err != nil {
		return err
	}
	shared := func() bool {
		x, _, _ := a.has()
		y, _, _ := b.has()
		return x > 0 && y > 0 && x+y == partitions
	}
	if err := owns(ctx, "two share", shared); err != nil {
		return err
	}
	out, err := j.run(ctx, "consumer-groups", "--describe", "--group", group)
	if err != nil {
		return err
	}
	rows := fields(out, 0, group)
	if len(rows) != partitions {
		return fmt.Errorf("consumer-groups --describe: %s", out)
	}
	for _, r := range rows { // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
		if r[3] != r[4] || r[5] != "0" || r[6] == "-" || r[7] != "/127.0.0.1" {
			return fmt.Errorf("consumer-groups --describe: %s", out)
		}
	}
	if out, err = j.run(ctx, "consumer-groups", "--describe", "--group", group, "--state"); err != nil {
		return err
	}
	if err := wantAll(out, "Stable", "cooperative-sticky", j.b.Addr); err != nil {
		return err
	}
	if err := b.proc.Stop(20 * time.Second); err != nil {
		return err
	}
	if err := owns(ctx, "one member has all again", all); err != nil {
		return err
	}
	if err := a.proc.Stop(20 * time.Second); err != nil {
		return err
	}
	_, x, failedA := a.has()
	_, y, failedB := b.has()
	if x+y != perCodec || len(failedA)+len(failedB) > 0 {
		return fmt.Errorf("consumed %d and %d records, want %d in all; failed commits: %v %v", x, y, perCodec, failedA, failedB)
	}
	return checkCommitted(ctx, j.adm, group, javaTopic(record.Zstd))
}

// total is the sum of the offsets that get-offsets prints for a topic's partitions.
func (j *java) total(ctx context.Context, topic, when string) (int64, error) {
	out, err := j.run(ctx, "get-offsets", "--topic", topic, "--time", when)
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			return 0, fmt.Errorf("get-offsets: %s", out)
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("get-offsets: %s: %w", out, err)
		}
		sum += n
	}
	return sum, nil
}

// timedTopic has a record a second from t0 on, in one partition.
const timedTopic = "java-timed"

func (j *java) offsets(ctx context.Context) error {
	if _, err := j.adm.CreateTopic(ctx, 1, 1, nil, timedTopic); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(j.b.Addr), kgo.DefaultProduceTopic(timedTopic))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 100 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("v"), Timestamp: j.t0.Add(time.Duration(i) * time.Second)}).FirstErr(); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		topic, when string
		want        int64
	}{
		{javaTopic(record.Zstd), "-1", perCodec},
		{javaTopic(record.Zstd), "-2", 0},
		{timedTopic, "-3", 99}, // of the newest timestamp
		{timedTopic, itoa(j.t0.UnixMilli() + 39500), 40},
	} {
		got, err := j.total(ctx, x.topic, x.when)
		if err != nil {
			return err
		}
		if got != x.want {
			return fmt.Errorf("get-offsets --topic %s --time %s: %d in all, want %d", x.topic, x.when, got, x.want)
		}
	}
	return nil
}

func (j *java) emptyGroup(ctx context.Context) error {
	const group = "java-group"
	topic := javaTopic(record.Zstd)
	out, err := j.run(ctx, "consumer-groups", "--list", "--state")
	if err != nil {
		return err
	}
	if rows := fields(out, 0, group); len(rows) != 1 || !strings.Contains(strings.Join(rows[0], " "), "Empty") {
		return fmt.Errorf("consumer-groups --list: %s", out)
	}
	// The columns are GROUP TOPIC PARTITION NEW-OFFSET.
	reset := func(topic, want string, rows int, how ...string) error {
		out, err := j.run(ctx, "consumer-groups", append([]string{"--reset-offsets", "--group", group, "--topic", topic, "--execute"}, how...)...)
		if err != nil {
			return err
		}
		got := fields(out, 0, group)
		for _, r := range got {
			if r[1] != topic || r[3] != want {
				return fmt.Errorf("--reset-offsets %v: %s", how, out)
			}
		}
		if len(got) != rows {
			return fmt.Errorf("--reset-offsets %v: %s", how, out)
		}
		return nil
	}
	if err := reset(timedTopic, "60", 1, "--to-datetime", j.t0.Add(59500*time.Millisecond).UTC().Format("2006-01-02T15:04:05.000")); err != nil {
		return err
	}
	if err := reset(topic, "0", partitions, "--to-earliest"); err != nil {
		return err
	}
	if err := reset(topic, "7", partitions, "--shift-by", "7"); err != nil {
		return err
	}
	if out, err = j.run(ctx, "consumer-groups", "--describe", "--group", group); err != nil {
		return err
	}
	var lag int64
	for _, r := range fields(out, 1, topic) {
		n, err := strconv.ParseInt(r[5], 10, 64)
		if err != nil || r[3] != "7" || r[6] != "-" {
			return fmt.Errorf("consumer-groups --describe: %s", out)
		}
		lag += n
	}
	if lag != perCodec-7*partitions {
		return fmt.Errorf("lag %d in all: %s", lag, out)
	}
	if out, err = j.run(ctx, "consumer-groups", "--delete-offsets", "--group", group, "--topic", topic); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := wantAll(out, "Successful"); err != nil {
		return err
	}
	if out, err = j.run(ctx, "consumer-groups", "--delete", "--group", "java-console"); err != nil {
		return err
	}
	if err := wantAll(out, "Deletion of requested consumer groups ('java-console') was successful."); err != nil {
		return err
	}
	return checkGone(ctx, j.adm, nil, []string{"java-console"})
}

func (j *java) deleteRecords(ctx context.Context) error {
	path := filepath.Join(j.dir, "offsets.json")
	doc := fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":0,"offset":11},{"topic":%q,"partition":1,"offset":-1}],"version":1}`,
		javaTopic(record.LZ4), javaTopic(record.LZ4))
	if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
		return err
	}
	out, err := j.run(ctx, "delete-records", "--offset-json-file", path)
	if err != nil {
		return err
	}
	ends, err := j.adm.ListEndOffsets(ctx, javaTopic(record.LZ4))
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(javaTopic(record.LZ4), 1)
	if err := wantAll(out, "partition: java-lz4-0\tlow_watermark: 11", "partition: java-lz4-1\tlow_watermark: "+itoa(end.Offset)); err != nil {
		return err
	}
	if out, err = j.run(ctx, "log-dirs", "--describe", "--topic-list", javaTopic(record.LZ4)); err != nil {
		return err
	}
	return wantAll(out, `"logDir":"`+j.b.DataDir+`"`, `"partition":"java-lz4-2"`, `"error":null`)
}

func (j *java) delete(ctx context.Context) error {
	out, err := j.run(ctx, "topics", "--delete", "--topic", "java-.*")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	topics := []string{timedTopic}
	for _, c := range codecs() {
		topics = append(topics, javaTopic(c))
	}
	return checkGone(ctx, j.adm, topics, nil)
}
