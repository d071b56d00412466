package config

import (
	"fmt"
	"strings"
	"testing"
)

// line is an entry as text: name=value source [synonyms].
func line(e Entry) string {
	var b strings.Builder
	show := func(name string, v *string, s Source) {
		text := "null"
		if v != nil {
			text = *v
		}
		fmt.Fprintf(&b, "%s=%s %d", name, text, s)
	}
	show(e.Def.Name, e.Value, e.Source)
	if e.ReadOnly {
		b.WriteString(" ro")
	}
	for _, s := range e.Synonyms {
		b.WriteString(" | ")
		show(s.Name, s.Value, s.Source)
	}
	return b.String()
}

func check1(t *testing.T, entries []Entry, want ...string) {
	t.Helper()
	have := map[string]string{}
	for _, e := range entries {
		have[e.Def.Name] = line(e)
	}
	for _, w := range want {
		name, _, _ := strings.Cut(w, "=")
		if have[name] != w {
			t.Errorf("%s\nwant %s", have[name], w)
		}
	}
}

// TestDescribe: values, sources and what stands behind them, as Kafka 4.4 answers for the same settings.
func TestDescribe(t *testing.T) {
	n, _ := load(t, "node.id=3\nlog.segment.bytes=2000000\nlog.retention.hours=1\nauto.create.topics.enable=FALSE\nlog.cleanup.policy=compact , delete\nlog.roll.ms=7200000")
	n, notes := n.WithDynamic(map[string]string{"log.segment.bytes": "3000000", "message.max.bytes": "9"}, map[string]string{"log.segment.bytes": "4000000"})
	if len(notes) > 0 {
		t.Fatal(notes)
	}
	check1(t, n.DescribeBroker(),
		"node.id=3 4 ro | node.id=3 4",
		"broker.id=3 4 ro | broker.id=3 4 | broker.id=-1 5",
		"log.segment.bytes=4000000 2 | log.segment.bytes=4000000 2 | log.segment.bytes=3000000 3 | log.segment.bytes=2000000 4 | log.segment.bytes=1073741824 5",
		"message.max.bytes=9 3 | message.max.bytes=9 3 | message.max.bytes=1048588 5",
		"auto.create.topics.enable=false 4 ro | auto.create.topics.enable=FALSE 4 | auto.create.topics.enable=true 5",
		"log.cleanup.policy=compact,delete 4 | log.cleanup.policy=compact , delete 4 | log.cleanup.policy=delete 5",
		"log.retention.hours=1 4 ro | log.retention.hours=1 4 | log.retention.hours=168 5",
		"log.retention.ms=null 5",
		"log.roll.ms=7200000 4 | log.roll.ms=7200000 4 | log.roll.hours=168 5",
		"log.roll.hours=168 5 ro | log.roll.hours=168 5",
		"log.cleaner.io.max.bytes.per.second=1.7976931348623157E308 5 | log.cleaner.io.max.bytes.per.second=1.7976931348623157E308 5",
		"ssl.keystore.password=null 5 ro",
	)
	check1(t, n.DescribeTopic(map[string]string{"cleanup.policy": "compact", "max.message.bytes": "7"}),
		"cleanup.policy=compact 1 | cleanup.policy=compact 1 | log.cleanup.policy=compact , delete 4 | log.cleanup.policy=delete 5",
		"max.message.bytes=7 1 | max.message.bytes=7 1 | message.max.bytes=9 3 | message.max.bytes=1048588 5",
		"segment.bytes=4000000 2 | log.segment.bytes=4000000 2 | log.segment.bytes=3000000 3 | log.segment.bytes=2000000 4 | log.segment.bytes=1073741824 5",
		"retention.ms=3600000 5",
		"leader.replication.throttled.replicas= 5",
		"min.cleanable.dirty.ratio=0.5 5 | log.cleaner.min.cleanable.ratio=0.5 5",
	)
	check1(t, DescribeClusterDefault(map[string]string{"log.segment.bytes": "3000000"}), "log.segment.bytes=3000000 3 | log.segment.bytes=3000000 3")
	check1(t, n.DescribeGroup(map[string]string{"share.isolation.level": "read_committed"}),
		"share.isolation.level=read_committed 8 | share.isolation.level=read_committed 8 | share.isolation.level=read_uncommitted 5",
		"share.renew.acknowledge.enable=true 5 | share.renew.acknowledge.enable=true 5",
		"streams.assignor.name=sticky 5 | group.streams.assignors=sticky 5",
		"consumer.session.timeout.ms=45000 5 | group.consumer.session.timeout.ms=45000 5")
	check1(t, DescribeMirror(map[string]string{"bootstrap.servers": "a:1, b:2"}),
		"bootstrap.servers=a:1,b:2 9 | bootstrap.servers=a:1,b:2 9",
		"mirror.groups.sync.interval.ms=5000 5",
		"mirror.socket.receive.buffer.bytes=-1 5",
		"sasl.jaas.config=null 5")
	for _, e := range n.DescribeBroker() {
		if e.Def.Internal {
			t.Errorf("%s is internal", e.Def.Name)
		}
	}
}

func TestRules(t *testing.T) {
	var r Rules
	if def, ok := r.List(ResourceTopic, "cleanup.policy"); def != "delete" || !ok {
		t.Errorf("cleanup.policy: %q %t", def, ok)
	}
	for _, key := range []string{"segment.bytes", "nonsense"} {
		if _, ok := r.List(ResourceTopic, key); ok {
			t.Errorf("%s is no list", key)
		}
	}
	if err := r.Validate(ResourceTopic, "t", "segment.bytes", "x"); err == nil {
		t.Error("x passes")
	}
	if err := r.ValidateAll(ResourceClusterMirror, "m", map[string]string{"sasl.mechanism": "PLAIN"}); err == nil {
		t.Error("a mirror without a source passes")
	}
}
