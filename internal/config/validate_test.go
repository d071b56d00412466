package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"milena/internal/api"
)

func TestValidate(t *testing.T) {
	const refusedRegexp = api.InvalidRegularExpression
	for _, c := range []struct {
		resource         int8
		name, key, value string
		code             api.Code
		want             string // in the message
	}{
		{ResourceTopic, "t", "segment.bytes", "1048576", api.NoError, ""},
		{ResourceTopic, "t", "segment.bytes", "1000", api.InvalidConfig, "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"},
		{ResourceTopic, "t", "cleanup.policy", "compact,delete", api.NoError, ""},
		{ResourceTopic, "t", "cleanup.policy", "", api.NoError, ""},
		{ResourceTopic, "t", "cleanup.policy", "shred", api.InvalidConfig, "String must be one of: compact, delete"},
		{ResourceTopic, "t", "compression.type", "brotli", api.InvalidConfig, "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{ResourceTopic, "t", "retention.bytes", "-5", api.NoError, ""},
		{ResourceTopic, "t", "retention.ms", "-2", api.InvalidConfig, "Value must be at least -1"},
		{ResourceTopic, "t", "remote.storage.enable", "true", api.InvalidConfig, "there is no tiered storage"},
		{ResourceTopic, "t", "remote.storage.enable", "false", api.NoError, ""},
		{ResourceTopic, "t", "mirror.replication.throttled.replicas", "0:1,3:2", api.NoError, ""},
		{ResourceTopic, "t", "mirror.replication.throttled.replicas", "*", api.NoError, ""},
		{ResourceTopic, "t", "mirror.replication.throttled.replicas", "0", api.InvalidConfig, "must be the literal"},
		{ResourceBroker, "1", "mirror.replication.throttled.rate", "0", api.NoError, ""},
		{ResourceBroker, "", "mirror.replication.throttled.rate", "1000000", api.NoError, ""},
		{ResourceBroker, "", "mirror.replication.throttled.rate", "-1", api.InvalidRequest, "Value must be at least 0"},
		{ResourceTopic, "t", "retention.m", "1", api.InvalidConfig, "Unknown topic config name: retention.m (did you mean retention.ms?)"},
		{ResourceTopic, "t", "log.segment.bytes", "1048576", api.InvalidConfig, "Unknown topic config name: log.segment.bytes"},
		{ResourceTopic, "t", "message.format.version", "3.0", api.InvalidConfig, "it has no effect since Kafka 4.0"},
		{ResourceBroker, "1", "message.max.bytes", "5", api.NoError, ""},
		{ResourceBroker, "", "message.max.bytes", "5", api.NoError, ""},
		{ResourceBroker, "1", "num.io.threads", "5", api.NoError, ""},
		{ResourceBroker, "", "min.insync.replicas", "2", api.NoError, ""},
		{ResourceBroker, "1", "min.insync.replicas", "1", api.InvalidConfig, "Broker-level min.insync.replicas cannot be altered"},
		{ResourceBroker, "1", "node.id", "5", api.InvalidRequest, "Cannot update these configs dynamically: [node.id]"},
		{ResourceBroker, "", "log.dirs", "5", api.InvalidRequest, "Cannot update these configs dynamically: [log.dirs]"},
		{ResourceBroker, "1", "listeners", "PLAINTEXT://:1", api.InvalidRequest, "Cannot update these configs dynamically: [listeners]"},
		{ResourceBroker, "1", "ssl.keystore.location", "/x", api.InvalidRequest, "Cannot update these configs dynamically"},
		{ResourceBroker, "1", "message.max.bytes", "-1", api.InvalidRequest, "Value must be at least 0"},
		{ResourceBroker, "1", "max.connection.creation.rate", "5", api.InvalidRequest, "connections aren't slowed down"},
		{ResourceBroker, "1", "nonsense", "5", api.InvalidRequest, "Unknown broker config name: nonsense"},
		{ResourceBroker, "1", "listener.name.a.max.connections", "5", api.InvalidRequest, "configs of one listener can't be changed at run time"},
		{ResourceGroup, "g", "consumer.session.timeout.ms", "50000", api.NoError, ""},
		{ResourceGroup, "g", "share.auto.offset.reset", "by_duration:PT1H", api.NoError, ""},
		{ResourceGroup, "g", "share.auto.offset.reset", "by_duration:1h", api.InvalidConfig, "must be either 'earliest', 'latest'"},
		{ResourceGroup, "g", "session.timeout.ms", "5", api.InvalidConfig, "Unknown group config name"},
		{ResourceClientMetrics, "m", "metrics", "x", api.InvalidConfig, "client metrics subscriptions aren't there"},
		{ResourceBrokerLogger, "1", "root", "INFO", api.InvalidRequest, "BROKER_LOGGER have no stored configs"},
		{99, "x", "k", "v", api.InvalidRequest, "UNKNOWN have no stored configs"},
		{ResourceClusterMirror, "m", "bootstrap.servers", "a:1,[::1]:2", api.NoError, ""},
		{ResourceClusterMirror, "m", "bootstrap.servers", "a", api.InvalidConfig, "Each entry must be host:port"},
		{ResourceClusterMirror, "m", "bootstrap.servers", "a:0", api.InvalidConfig, "Each entry must be host:port"},
		{ResourceClusterMirror, "m", "bootstrap.servers", "", api.InvalidConfig, "must not be empty"},
		{ResourceClusterMirror, "m", "mirror.topics.include", "orders.*,pay-[0-9]+", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.topics.include", "orders(", refusedRegexp, "mirror.topics.include"},
		{ResourceClusterMirror, "m", "mirror.topics.exclude", "(?<=x)y", refusedRegexp, "no regular expression of RE2"},
		{ResourceClusterMirror, "m", "mirror.groups.sync.interval.ms", "0", api.InvalidConfig, "Value must be at least 1"},
		{ResourceClusterMirror, "m", "mirror.max.cut.records", "-1", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.socket.receive.buffer.bytes", "-1", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.source.code.points", "milena", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.source.code.points", "prototype", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.acls.include", "TOPIC;orders.*,*", api.NoError, ""},
		{ResourceClusterMirror, "m", "mirror.acls.include", "a;b;c;d;e;f", api.InvalidConfig, "A rule is type;name"},
		{ResourceClusterMirror, "m", "mirror.acls.include", "TOPIC;(", refusedRegexp, "no regular expression"},
		{ResourceClusterMirror, "m", "sasl.mechanism", "GSSAPI", api.InvalidConfig, "String must be one of: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"},
		{ResourceClusterMirror, "m", "sasl.login.class", "x", api.InvalidConfig, "Java classes can't be loaded"},
		{ResourceClusterMirror, "m", "fetch.max.bytes", "1", api.InvalidConfig, "Unknown mirror config name: fetch.max.bytes"},
	} {
		err := Validate(c.resource, c.name, c.key, c.value)
		var e *api.Error
		switch {
		case c.code == api.NoError:
			if err != nil {
				t.Errorf("%s %s=%s: %v", ResourceName(c.resource), c.key, c.value, err)
			}
		case !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.want):
			t.Errorf("%s %s=%s: %v, want %s with %q", ResourceName(c.resource), c.key, c.value, err, c.code, c.want)
		}
	}
}

func TestValidateAll(t *testing.T) {
	codeOf := map[int8]api.Code{ResourceTopic: api.InvalidConfig, ResourceBroker: api.InvalidRequest, ResourceClusterMirror: api.InvalidConfig}
	for _, c := range []struct {
		resource int8
		all      map[string]string
		want     string
	}{
		{ResourceTopic, nil, ""},
		{ResourceTopic, map[string]string{"min.compaction.lag.ms": "5"}, ""},
		{ResourceTopic, map[string]string{"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"},
		{ResourceTopic, map[string]string{"min.compaction.lag.ms": "x"}, "Not a number of type LONG"},
		{ResourceBroker, map[string]string{"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{ResourceBroker, map[string]string{"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"},
		{ResourceBroker, map[string]string{"max.connections.per.ip.overrides": "a"}, "must be address:number"},
		{ResourceBroker, map[string]string{"log.retention.ms": "-1"}, ""},
		{ResourceClusterMirror, nil, ""},
		{ResourceClusterMirror, map[string]string{"sasl.mechanism": "PLAIN"}, "a mirror needs bootstrap.servers"},
		{ResourceClusterMirror, map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}, "security.protocol=SASL_SSL needs sasl.jaas.config"},
		{ResourceClusterMirror, map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.jaas.config": "x"}, ""},
	} {
		err := ValidateAll(c.resource, "1", c.all)
		var e *api.Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.all, err)
		case c.want != "" && (!errors.As(err, &e) || e.Code != codeOf[c.resource] || !strings.Contains(e.Message, c.want)):
			t.Errorf("%v: %v, want %q", c.all, err, c.want)
		}
	}
}

// TestValidateStep: "one change may at most halve or double the value" (spec 9.1).
func TestValidateStep(t *testing.T) {
	n, _ := load(t, "mirror.num.replica.fetchers=4")
	for v, ok := range map[string]bool{"1": false, "2": true, "4": true, "8": true, "9": false, "x": false} {
		if err := n.ValidateStep(ResourceBroker, "mirror.num.replica.fetchers", v); (err == nil) != ok {
			t.Errorf("4 to %s: %v", v, err)
		}
	}
	if err := n.ValidateStep(ResourceBroker, "message.max.bytes", "1"); err != nil {
		t.Error(err)
	}
}

// TestGroupBounds: a config of a group stays within the broker's bounds, with Kafka's words.
func TestGroupBounds(t *testing.T) {
	n, _ := load(t, "")
	for _, c := range []struct{ key, value, want string }{
		{"consumer.session.timeout.ms", "1", "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."},
		{"consumer.session.timeout.ms", "50000", ""},
		{"streams.num.standby.replicas", "3", "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"},
		{"streams.num.standby.replicas", "2", ""},
		{"share.isolation.level", "read_committed", ""},
	} {
		err := n.ValidateStep(ResourceGroup, c.key, c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

// TestSecretsAreNotShown goes over every password key of every resource.
func TestSecretsAreNotShown(t *testing.T) {
	const secret = "hunter2"
	for _, resource := range []int8{ResourceTopic, ResourceBroker, ResourceGroup, ResourceClusterMirror} {
		for d := range Keys(resource) {
			if d.Type != Password {
				continue
			}
			if err := d.Value(secret); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", d.Name, err)
			}
			if got := Redact(resource, d.Name, secret); got != "[hidden]" {
				t.Errorf("%s is shown as %s", d.Name, got)
			}
			if got := Redact(resource, "listener.name.a."+d.Name, secret); got != "[hidden]" {
				t.Errorf("%s of a listener is shown as %s", d.Name, got)
			}
		}
	}
	if Redact(ResourceBroker, "no.such.key", secret) != "[hidden]" || Redact(ResourceBroker, "log.dirs", "/a") != "/a" {
		t.Error("unknown keys are hidden, plain ones aren't")
	}
	for _, e := range DescribeMirror(map[string]string{"bootstrap.servers": "a:1", "sasl.jaas.config": secret, "ssl.keystore.key": secret}) {
		if e.Def.Sensitive() && e.Value != nil || e.Value != nil && *e.Value == secret {
			t.Errorf("%s is described as %q", e.Def.Name, *e.Value)
		}
		for _, s := range e.Synonyms {
			if s.Value != nil && *s.Value == secret {
				t.Errorf("a synonym of %s is shown", e.Def.Name)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	p, err := ParsePatterns(" orders.* ,, a|b ")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"orders": true, "orders.eu": true, "my-orders": false, "a": true, "ab": false, "": false} {
		if p.Match(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
	none, err := ParsePatterns(" , ")
	if err != nil || !none.Empty() || none.Match("") || none.Match("x") {
		t.Errorf("an empty list matches nothing: %v", err)
	}
}

func TestThrottledReplicas(t *testing.T) {
	n, _ := load(t, "")
	got := n.Topic(map[string]string{"leader.replication.throttled.replicas": "0:1,0:2,3:1", "follower.replication.throttled.replicas": "*"})
	if !slices.Equal(got.LeaderThrottled.Pairs[0], []int32{1, 2}) || !slices.Equal(got.LeaderThrottled.Pairs[3], []int32{1}) || !got.FollowerThrottled.All {
		t.Errorf("%+v", got)
	}
}
