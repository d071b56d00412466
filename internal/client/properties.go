package client

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// class says what Milena does with a client property.
type class int

const (
	honoured class = iota
	// noMeaning properties tune the Java client or name Java classes whose job is done elsewhere here.
	noMeaning
	// refused properties change security or semantics in a way that is not implemented.
	refused
)

// propertyClasses lists every property of Kafka 4.4's admin client, producer and consumer.
func propertyClasses() map[string]class {
	m := make(map[string]class, 160)
	for c, names := range map[class][]string{
		honoured: {
			"bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism", "sasl.jaas.config",
			"request.timeout.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms",
			"connections.max.idle.ms", "retries",
			"ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm",
			"ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
			"ssl.keystore.certificate.chain", "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
			"ssl.truststore.certificates",
			"acks", "linger.ms", "compression.type", "delivery.timeout.ms", "enable.idempotence", "max.request.size",
			"max.in.flight.requests.per.connection",
			"group.id", "group.instance.id", "auto.offset.reset", "isolation.level", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
			"max.partition.fetch.bytes", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "client.rack",
			"allow.auto.create.topics",
		},
		noMeaning: {
			"auto.commit.interval.ms", "bootstrap.resolve.timeout.ms", "buffer.memory", "buffer.memory.allocation.strategy", "check.crcs",
			"client.dns.lookup", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "enable.auto.commit", "enable.metrics.push",
			"exclude.internal.topics", "internal.throw.on.fetch.stable.offset.unsupported", "key.deserializer", "key.serializer", "max.block.ms",
			"max.poll.records", "metadata.cluster.check.enable", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
			"metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
			"partition.assignment.strategy", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
			"partitioner.ignore.keys", "partitioner.rack.aware", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
			"send.buffer.bytes", "ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
			"value.deserializer", "value.serializer", "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
			"sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
			"sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
			"batch.size", "transaction.timeout.ms", "metadata.max.age.ms", "retry.backoff.ms", "retry.backoff.max.ms", "socket.connection.setup.timeout.max.ms", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor", "share.acknowledgement.mode", "share.acquire.mode",
		},
		refused: {
			"bootstrap.controllers", "config.providers", "group.protocol", "group.remote.assignor", "interceptor.classes", "partitioner.class",
			"sasl.client.callback.handler.class", "sasl.kerberos.service.name", "sasl.login.callback.handler.class", "sasl.login.class",
			"sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer",
			"sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds",
			"sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
			"sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.private.key.file",
			"sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.template.file",
			"sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
			"sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
			"sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
			"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwt.retriever.class",
			"sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.scope", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
			"sasl.oauthbearer.token.endpoint.url", "security.providers", "ssl.engine.factory.class",
			"transaction.two.phase.commit.enable", "transactional.id",
		},
	} {
		for _, n := range names {
			m[n] = c
		}
	}
	return m
}

// props reads typed values and remembers the first error, so that a parser stays a list of fields.
type props struct {
	m   map[string]string
	err error
}

func (p *props) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("property %s: %s", name, fmt.Sprintf(format, args...))
	}
}

func (p *props) str(name, def string) string {
	if v, ok := p.m[name]; ok {
		return strings.TrimSpace(v)
	}
	return def
}

func (p *props) list(name string) []string {
	var out []string
	for _, v := range strings.Split(p.str(name, ""), ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

func (p *props) oneOf(name, def string, valid ...string) string {
	v := p.str(name, def)
	if !slices.Contains(valid, v) {
		p.fail(name, "%q is not one of %s", v, strings.Join(valid, ", "))
	}
	return v
}

func (p *props) integer(name string, def, lowest int64) int64 {
	v, ok := p.m[name]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil {
		p.fail(name, "%q is not a whole number", v)
		return def
	}
	if n < lowest {
		p.fail(name, "%d is below the lowest value %d", n, lowest)
	}
	return n
}

func (p *props) millis(name string, def time.Duration) time.Duration {
	ms := p.integer(name, def.Milliseconds(), 0)
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond // Kafka's LONG reaches beyond 292 years
}

func (p *props) boolean(name string, def bool) bool {
	switch v := strings.ToLower(p.str(name, strconv.FormatBool(def))); v {
	case "true":
		return true
	case "false":
		return false
	default:
		p.fail(name, "%q is neither true nor false", v)
		return def
	}
}

// check sorts the property names and refuses the first that is not honoured. Names under an extra prefix
// that the caller understands itself (a mirror's own keys) are left out before.
func check(m map[string]string) (ignored []string, err error) {
	classes := propertyClasses()
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		c, known := classes[n]
		switch {
		case !known:
			return nil, fmt.Errorf("property %s is not a Kafka client property: remove it or correct its name", n)
		case c == refused && strings.TrimSpace(m[n]) != "":
			return nil, fmt.Errorf("property %s is not supported by Milena's clients: remove it; ignoring it would change security or meaning", n)
		case c == noMeaning:
			ignored = append(ignored, n)
		}
	}
	return ignored, nil
}
