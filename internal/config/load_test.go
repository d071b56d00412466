package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testEnv = Env{Hostname: func() (string, error) { return "box.example", nil }}

func load(t *testing.T, text string) (*Node, *Notice) {
	t.Helper()
	n, notice, err := Load(propsOf(t, text), testEnv)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return n, notice
}

func propsOf(t *testing.T, text string) map[string]string {
	t.Helper()
	list, err := ParseProperties(strings.NewReader(text), "test.properties")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, p := range list {
		m[p.Key] = p.Value
	}
	return m
}

// TestKafkasOwnFile loads the settings that Kafka ships for a combined node.
func TestKafkasOwnFile(t *testing.T) {
	n, notice := load(t, `
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
`)
	if len(notice.Unknown) != 0 {
		t.Errorf("unknown keys: %v", notice.Unknown)
	}
	want := []string{"num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "share.coordinator.state.topic.min.isr",
		"share.coordinator.state.topic.replication.factor", "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "transaction.state.log.min.isr", "transaction.state.log.replication.factor"}
	if d := cmp.Diff(want, notice.WithoutMeaning); d != "" {
		t.Errorf("without meaning (-want +got):\n%s", d)
	}
	wantListeners := []Listener{{"PLAINTEXT", "", 9092, Plaintext, -1}, {"CONTROLLER", "", 9093, Plaintext, -1}}
	if d := cmp.Diff(wantListeners, n.Listeners); d != "" {
		t.Errorf("listeners (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Listener{{"PLAINTEXT", "localhost", 9092, Plaintext, -1}}, n.Advertised); d != "" {
		t.Errorf("advertised (-want +got):\n%s", d)
	}
	if !n.QuorumConfigured || n.ID != 1 || !n.Broker || !n.Controller || n.InterBrokerListener != "PLAINTEXT" {
		t.Errorf("node %+v", n)
	}
}

func TestNoSettings(t *testing.T) {
	n, notice := load(t, "")
	if n.ID != 1 || !n.Broker || !n.Controller || n.QuorumConfigured || n.HTTPListen != "127.0.0.1:9644" || n.LogDirs[0] != "milena-data" || n.MetadataLogDir != "milena-data" {
		t.Errorf("node %+v", n)
	}
	if d := cmp.Diff([]Listener{{"PLAINTEXT", "box.example", 9092, Plaintext, -1}}, n.Advertised); d != "" {
		t.Errorf("advertised (-want +got):\n%s", d)
	}
	if len(notice.Unknown)+len(notice.WithoutMeaning)+len(notice.Warnings) > 0 {
		t.Errorf("notice %+v", notice)
	}
	if d := cmp.Diff(DefaultTopic(), n.Topics.Log); d != "" {
		t.Errorf("topic defaults (-want +got):\n%s", d)
	}
	if n.Log.CleanerBytesPerSecond != 0 || n.Log.FlushCheck != math.MaxInt64 || n.Log.ReserveBytes != -1 {
		t.Errorf("log dirs %+v", n.Log)
	}
	if n.Offsets.Retention != 7*24*time.Hour || n.Quorum.BrokerSession != 9*time.Second || n.Groups.InitialRebalanceDelay != 3*time.Second {
		t.Errorf("offsets %+v quorum %+v groups %+v", n.Offsets, n.Quorum, n.Groups)
	}
}

// TestDefaultTopic is Kafka's defaults.
func TestDefaultTopic(t *testing.T) {
	want := Topic{
		Cleanup: Cleanup{Delete: true}, GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		SegmentBytes: 1 << 30, SegmentAge: 168 * time.Hour, IndexBytes: 10 << 20, IndexInterval: 4096,
		Retention: 168 * time.Hour, RetentionBytes: -1, FlushMessages: math.MaxInt64, FlushInterval: math.MaxInt64,
		DeleteRetention: 24 * time.Hour, FileDeleteDelay: time.Minute, MinCleanableRatio: 0.5, MaxCompactionLag: math.MaxInt64,
		MaxMessageBytes: 1048588, MaxDecompressedBytes: 2147483639, MinInsyncReplicas: 1,
		TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: time.Hour,
	}
	if d := cmp.Diff(want, DefaultTopic()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"not a number", "num.partitions=many", "Invalid value many for configuration num.partitions: Not a number of type INT"},
		{"below", "num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{"refused", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer is refused: there is no authorization"},
		{"password", "ssl.keystore.password=secret", "ssl.keystore.password=[hidden] is refused: TLS isn't served"},
		{"super users", "super.users=User:a", "super.users=User:a is refused"},
		{"tiered", "remote.log.storage.system.enable=true", "there is no tiered storage"},
		{"provider", "config.providers=file", "would be taken as it stands"},
		{"protocols", "group.coordinator.rebalance.protocols=consumer", "classic must be in the list"},
		{"reporters", "metric.reporters=com.example.Reporter", "read /metrics"},
		{"listener tls", "listener.name.internal.ssl.keystore.location=/x", "listener.name.internal.ssl.keystore.location is refused"},
		{"listener sasl", "listener.name.internal.plain.sasl.jaas.config=x", "listener.name.internal.plain.sasl.jaas.config is refused"},
		{"listener limit", "listener.name.internal.max.connections=3", "listener.name.internal.max.connections: INTERNAL isn't in listeners"},
		{"listener limit's bounds", "listener.name.plaintext.max.connections=-3", "Value must be at least 0"},
		{"listener setting", "listener.name.internal.connections.max.idle.ms=3", "set connections.max.idle.ms for the node"},
		{"dynamic only", "mirror.replication.throttled.rate=5", "dynamic only"},
		{"retention", "log.retention.ms=0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{"retention hours", "log.retention.hours=0", "log.retention.hours must be unlimited (-1) or, greater than or equal to 1"},
		{"roll", "log.roll.ms=0", "log.roll.ms must be greater than or equal to 1"},
		{"jitter", "log.roll.jitter.ms=-1", "log.roll.jitter.ms must be greater than or equal to 0"},
		{"overrides", "max.connections.per.ip.overrides=127.0.0.1", "must be address:number"},
		{"override by name", "max.connections.per.ip.overrides=h:3", "with an IP address"},
		{"nobody", "max.connections.per.ip=0", "max.connections.per.ip=0 would let nobody in"},
		{"ids", "node.id=1\nbroker.id=2", "must be the same"},
		{"generated id", "broker.id=-1", "ids aren't generated"},
		{"broker alone", "process.roles=broker", "set controller.quorum.bootstrap.servers"},
		{"controller alone", "process.roles=controller\ncontroller.listener.names=C\nlisteners=C://h:2", "a controller alone needs controller.quorum.bootstrap.servers"},
		{"other voter", "controller.quorum.voters=2@h:1\ncontroller.listener.names=C\nlisteners=PLAINTEXT://h:1,C://h:2", "node 1 is a controller and isn't among them"},
		{"voter that is a broker", "process.roles=broker\ncontroller.quorum.voters=1@h:1\ncontroller.listener.names=C\nlisteners=PLAINTEXT://h:1", "isn't a controller"},
		{"voter twice", "controller.quorum.voters=1@h:1,1@h:2\ncontroller.listener.names=C\nlisteners=PLAINTEXT://h:1,C://h:2", "1 is there twice"},
		{"controller's broker listener", "process.roles=controller\ncontroller.quorum.bootstrap.servers=h:2\ncontroller.listener.names=C\nlisteners=PLAINTEXT://h:1,C://h:2", "PLAINTEXT isn't in controller.listener.names"},
		{"broker's controller listener", "process.roles=broker\ncontroller.quorum.bootstrap.servers=h:2\ncontroller.listener.names=C\nlisteners=PLAINTEXT://h:1,C://h:2", "C belongs to the controller"},
		{"selector", "replica.selector.class=com.example.Selector", "Java classes can't be loaded"},
		{"fetch wait", "replica.fetch.wait.max.ms=30000", "must be below replica.lag.time.max.ms"},
		{"voter", "controller.quorum.voters=h:1", "each entry must be id@host:port"},
		{"dirs", "log.dirs=/a,/b/../a", "/a is there twice"},
		{"sessions", "group.min.session.timeout.ms=10\ngroup.max.session.timeout.ms=5", "group.max.session.timeout.ms must be greater"},
		{"queued", "queued.max.request.bytes=0", "must be -1, or at least"},
		{"heartbeat", "broker.session.timeout.ms=2000", "fenced between two heartbeats"},
		{"factor", "default.replication.factor=0", "must be from 1 to"},
		{"lag", "log.cleaner.min.compaction.lag.ms=5\nlog.cleaner.max.compaction.lag.ms=4", "must not be above"},
		{"mirror listener", "mirror.admin.listener.name=X", "X isn't an advertised broker listener"},
		{"backoff", "mirror.failed.retry.max.backoff.ms=5", "must not be above"},
		{"http", "milena.http.listen=9644", "It must be host:port"},
		{"two inter broker keys", "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT", "only one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Load(propsOf(t, c.text), testEnv)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a password stands in %q", err)
			}
		})
	}
}

// TestAllFaultsAtOnce: a start tells everything that is wrong with a file.
func TestAllFaultsAtOnce(t *testing.T) {
	_, _, err := Load(map[string]string{"num.partitions": "x", "log.dirs": "", "ssl.client.auth": "required"}, testEnv)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got %v", err)
	}
}

func TestAcceptedRefusals(t *testing.T) {
	for k, v := range map[string]string{
		"ssl.client.auth": "none", "sasl.enabled.mechanisms": "", "metric.reporters": "", "security.inter.broker.protocol": "PLAINTEXT", "super.users": "",
		"group.coordinator.rebalance.protocols": "classic , consumer", "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
		"unstable.api.versions.enable": " FALSE ", "connections.max.reauth.ms": "0", "max.connection.creation.rate": "2147483647",
	} {
		if _, _, err := Load(map[string]string{k: v}, testEnv); err != nil {
			t.Errorf("%s=%s asks for nothing and is refused: %v", k, v, err)
		}
	}
}

func TestUnknownKeys(t *testing.T) {
	for key, want := range map[string]string{
		"log.retention.hour":                 "unknown config key log.retention.hour: did you mean log.retention.hours?",
		"num.partitons":                      "unknown config key num.partitons: did you mean num.partitions?",
		"adverstised.listeners":              "unknown config key adverstised.listeners: did you mean advertised.listeners?",
		"zookeeper.connect":                  "unknown config key zookeeper.connect: ZooKeeper is gone since Kafka 4.0",
		"my.plugin.setting":                  "unknown config key my.plugin.setting",
		"listener.name.x.my.plugin.key":      "unknown config key listener.name.x.my.plugin.key",
		"internal.metadata.log.segment.byte": "unknown config key internal.metadata.log.segment.byte", // an internal key isn't suggested
	} {
		_, notice := load(t, key+"=1")
		if d := cmp.Diff([]string{want}, notice.Unknown); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if _, notice := load(t, "listener.name.x.num.network.threads=2"); len(notice.WithoutMeaning) != 1 {
		t.Errorf("thread counts of a listener have no meaning: %+v", notice)
	}
}

// TestSynonyms: the finer key wins, wherever it stands (KIP-226 and Kafka's docs of log.retention.ms).
func TestSynonyms(t *testing.T) {
	n, _ := load(t, "log.retention.hours=2\nlog.roll.hours=3\nlog.roll.jitter.hours=1\nlog.flush.scheduler.interval.ms=700")
	got := n.Topic(nil)
	if got.Retention != 2*time.Hour || got.SegmentAge != 3*time.Hour || got.SegmentJitter != time.Hour || got.FlushInterval != 700*time.Millisecond {
		t.Errorf("%+v", got)
	}
	n, _ = load(t, "log.retention.hours=2\nlog.retention.minutes=5\nlog.roll.hours=3\nlog.roll.ms=40\nlog.flush.scheduler.interval.ms=700\nlog.flush.interval.ms=9")
	if got := n.Topic(nil); got.Retention != 5*time.Minute || got.SegmentAge != 40*time.Millisecond || got.FlushInterval != 9*time.Millisecond {
		t.Errorf("%+v", got)
	}
	n, _ = load(t, "log.retention.minutes=-1")
	if got := n.Topic(nil); got.Retention >= 0 {
		t.Errorf("retention %v, want none", got.Retention)
	}
	n, _ = load(t, "log.retention.hours=2147483647")
	if got := n.Topic(nil); got.Retention != math.MaxInt64 {
		t.Errorf("retention %v", got.Retention)
	}
}

func TestPrecedence(t *testing.T) {
	n, _ := load(t, "node.id=3\nlog.segment.bytes=2000000\nlog.retention.hours=1")
	step := func(cluster, broker, topic map[string]string, want int64) *Node {
		t.Helper()
		c, notes := n.WithDynamic(cluster, broker)
		if len(notes) > 0 {
			t.Errorf("notes %v", notes)
		}
		if got := c.Topic(topic).SegmentBytes; got != want {
			t.Errorf("segment.bytes %d, want %d", got, want)
		}
		return c
	}
	seg := func(v string) map[string]string { return map[string]string{"log.segment.bytes": v} }
	step(nil, nil, nil, 2000000)
	step(seg("3000000"), nil, nil, 3000000)
	step(seg("3000000"), seg("4000000"), nil, 4000000)
	step(seg("3000000"), seg("4000000"), map[string]string{"segment.bytes": "5000000"}, 5000000)
	c := step(map[string]string{"log.retention.ms": "1000", "message.max.bytes": "77"}, nil, nil, 2000000)
	if c.Topics.Log.Retention != time.Second || c.Topics.Log.MaxMessageBytes != 77 || n.Topics.Log.Retention != time.Hour {
		t.Errorf("a dynamic log.retention.ms stands above hours in the file: %v, before %v", c.Topics.Log.Retention, n.Topics.Log.Retention)
	}
	back, _ := c.WithDynamic(nil, nil)
	if d := cmp.Diff(n.Topics, back.Topics); d != "" {
		t.Errorf("taking the dynamic configs away doesn't lead back:\n%s", d)
	}
}

// TestStoredNonsense: a value in the metadata that doesn't pass is left out and named; the next source counts.
func TestStoredNonsense(t *testing.T) {
	n, _ := load(t, "message.max.bytes=5000")
	c, notes := n.WithDynamic(map[string]string{"message.max.bytes": "x", "node.id": "4", "nonsense": "1", "log.cleaner.backoff.ms": "9"}, nil)
	if len(notes) != 3 || c.Topics.Log.MaxMessageBytes != 5000 || c.Log.CleanerBackoff != 9*time.Millisecond || c.ID != 1 {
		t.Errorf("notes %q, node %+v", notes, c)
	}
	if got := n.Topic(map[string]string{"max.message.bytes": "x", "segment.ms": "8"}); got.MaxMessageBytes != 5000 || got.SegmentAge != 8*time.Millisecond {
		t.Errorf("topic %+v", got)
	}
}

func TestLive(t *testing.T) {
	n, _ := load(t, "")
	l := NewLive(n)
	var told []int
	l.Subscribe(func(before, after *Node) {
		if before.Socket.MaxConnections != after.Socket.MaxConnections {
			told = append(told, after.Socket.MaxConnections)
		}
	})
	if notes := l.Apply(map[string]string{"max.connections": "9"}, map[string]string{"max.connections": "7", "max.connections.per.ip.overrides": "[0::1]:3,10.0.0.1:0"}); len(notes) > 0 {
		t.Error(notes)
	}
	if d := cmp.Diff(map[string]int{"::1": 3, "10.0.0.1": 0}, l.Node().Socket.PerIPOverrides); d != "" {
		t.Error(d)
	}
	l.Apply(map[string]string{"max.connections": "9"}, nil)
	if d := cmp.Diff([]int{7, 9}, told); d != "" || l.Node().Socket.MaxConnections != 9 {
		t.Errorf("told %v", told)
	}
}

func TestHostnameFails(t *testing.T) {
	for name, env := range map[string]Env{
		"no name": {}, "error": {Hostname: func() (string, error) { return "", errors.New("no hostname file") }},
		"unspecified": {Hostname: func() (string, error) { return "0.0.0.0", nil }}, "empty": {Hostname: func() (string, error) { return "", nil }},
	} {
		_, _, err := Load(map[string]string{"listeners": "PLAINTEXT://:9092"}, env)
		if err == nil || !strings.Contains(err.Error(), "set advertised.listeners=PLAINTEXT://HOST:9092") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRoles: what nodes of one role need, and what is derived for them.
func TestRoles(t *testing.T) {
	ctl, _ := load(t, `
process.roles=controller
node.id=7
controller.quorum.voters=7@c7:9093,8@c8:9093
controller.listener.names=INTERNAL,CONTROLLER
listeners=CONTROLLER://:9093,INTERNAL://10.0.0.7:9095
advertised.listeners=CONTROLLER://c7.example:19093
listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.fetch.timeout.ms=700
controller.quorum.retry.backoff.ms=5
controller.quorum.auto.join.enable=true
auto.leader.rebalance.enable=false
leader.imbalance.check.interval.seconds=7
`)
	if ctl.Broker || !ctl.Controller || len(ctl.Advertised) != 0 || len(ctl.Voters) != 2 || ctl.Voters[1] != (Voter{8, "c8", 9093}) {
		t.Errorf("controller %+v", ctl)
	}
	// The first name is the listener that nodes connect to; what isn't advertised is reached where it listens.
	want := []Listener{{"INTERNAL", "10.0.0.7", 9095, Plaintext, -1}, {"CONTROLLER", "c7.example", 19093, Plaintext, -1}}
	if d := cmp.Diff(want, ctl.ControllerAdvertised); d != "" {
		t.Errorf("the controller's listeners (-want +got):\n%s", d)
	}
	q := ctl.Quorum
	if q.FetchTimeout != 700*time.Millisecond || q.ElectionTimeout != 500*time.Millisecond || q.RetryBackoff != 5*time.Millisecond || !q.AutoJoin || q.AutoRebalance || q.RebalanceInterval != 7*time.Second {
		t.Errorf("quorum %+v", q)
	}

	broker, _ := load(t, `
process.roles=broker
node.id=3
controller.quorum.bootstrap.servers=c7:9093,c8:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://:9092,INSIDE://:9094
listener.security.protocol.map=INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=INSIDE
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
num.replica.fetchers=3
replica.lag.time.max.ms=4000
replica.fetch.max.bytes=77
leader.replication.throttled.rate=99
`)
	if !broker.Broker || broker.Controller || broker.InterBrokerListener != "INSIDE" || len(broker.Advertised) != 2 || len(broker.BootstrapServers) != 2 {
		t.Errorf("broker %+v", broker)
	}
	r := broker.Replica
	if !r.RackAware || r.Fetchers != 3 || r.LagTimeMax != 4*time.Second || r.FetchMaxBytes != 77 || r.FetchWait != 500*time.Millisecond || r.LeaderThrottle != 99 || r.FollowerThrottle != math.MaxInt64 {
		t.Errorf("replica %+v", r)
	}
	if m := broker.Mirror; m.Fetchers != 1 || m.Throttle != math.MaxInt64 {
		t.Errorf("mirror %+v", m)
	}
	moved, notes := broker.WithDynamic(map[string]string{"mirror.num.replica.fetchers": "2", "mirror.replication.throttled.rate": "7"}, map[string]string{"mirror.replication.throttled.rate": "9"})
	if len(notes) != 0 || moved.Mirror.Fetchers != 2 || moved.Mirror.Throttle != 9 {
		t.Errorf("mirror after a dynamic change: %+v, %v", moved.Mirror, notes)
	}
	after, notes := broker.WithDynamic(map[string]string{"num.replica.fetchers": "5", "follower.replication.throttled.rate": "10"}, nil)
	if len(notes) != 0 || after.Replica.Fetchers != 5 || after.Replica.FollowerThrottle != 10 || after.Replica.LagTimeMax != 4*time.Second {
		t.Errorf("after a dynamic change: %+v, %v", after.Replica, notes)
	}
	// Port 0 becomes the one that was bound, on both kinds of listeners.
	both, _ := load(t, "listeners=PLAINTEXT://h:0,CONTROLLER://h:0\ncontroller.listener.names=CONTROLLER")
	both = both.Advertise(map[string]int{"PLAINTEXT": 5, "CONTROLLER": 6})
	if both.Advertised[0].Port != 5 || both.ControllerAdvertised[0].Port != 6 {
		t.Errorf("bound ports: %v, %v", both.Advertised, both.ControllerAdvertised)
	}
}
