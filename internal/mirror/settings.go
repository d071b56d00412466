package mirror

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/config"
)

// Settings are the configs of one mirror (spec 9.2), parsed.
type Settings struct {
	// Client are the connection settings for the source.
	Client *client.Config
	// SourceClusterID is the cluster id that the source must have.
	SourceClusterID string
	// SourcePoints are the numbers of mirror requests at a source that doesn't offer Milena's own (spec D11).
	SourcePoints api.CodePoints

	FetchWait        time.Duration
	FetchBackoff     time.Duration
	FetchMinBytes    int32
	FetchMaxBytes    int32 // per partition
	ResponseMaxBytes int32
	// FetchMaxGrows and ResponseMaxGrows are set where these two are the defaults: more is asked for of partitions that are behind,
	// and on long lines. What is configured is a bound.
	FetchMaxGrows, ResponseMaxGrows bool
	SocketTimeout                   time.Duration
	ReceiveBuffer                   int // -1: the system's

	TopicConfigsExclude config.Patterns
	TopicsInclude       config.Patterns
	TopicsExclude       config.Patterns
	GroupsInclude       config.Patterns
	GroupsExclude       config.Patterns
	GroupsInterval      time.Duration

	// AuditInterval is how often a partition is compared with its source, AuditRate how many bytes a second are read for that;
	// 0: never.
	AuditInterval time.Duration
	AuditRate     int64

	// TruncateUnrelated are the topics whose records may go though they share no history with the source (spec D3).
	TruncateUnrelated map[string]bool
	// Skip are the damaged batches of the source that are left out (spec D14), as TOPIC:PARTITION:OFFSET.
	Skip map[string]bool
	// MaxCut is how many records a cut while mirroring may remove; -1: no limit.
	MaxCut int64
}

// filterKeys are the configs whose change needs no new connection to the source (spec 3.4).
func filterKeys() map[string]bool {
	return map[string]bool{
		"mirror.topics.include": true, "mirror.topics.exclude": true, "mirror.groups.include": true, "mirror.groups.exclude": true,
		"mirror.acls.include": true, "mirror.groups.sync.interval.ms": true, "mirror.topic.properties.exclude": true,
		"mirror.truncate.unrelated.topics": true, "mirror.skip.batches": true, "mirror.max.cut.records": true,
		"mirror.audit.interval.ms": true, "mirror.audit.bytes.per.second": true,
	}
}

// sameConnection reports whether two sets of a mirror's configs reach the source in the same way.
func sameConnection(a, b map[string]string) bool {
	skip := filterKeys()
	strip := func(m map[string]string) map[string]string {
		out := maps.Clone(m)
		maps.DeleteFunc(out, func(k, _ string) bool { return skip[k] })
		return out
	}
	return maps.Equal(strip(a), strip(b))
}

// ParseSettings reads a mirror's configs, defaults included. The error names the key.
func ParseSettings(own map[string]string) (*Settings, error) {
	all := map[string]string{}
	for _, e := range config.DescribeMirror(own) {
		if e.Value != nil {
			all[e.Def.Name] = *e.Value
		}
	}
	maps.Copy(all, own) // sensitive values are left out of the description
	props := map[string]string{}
	for k, v := range own {
		if !strings.HasPrefix(k, "mirror.") {
			props[k] = v
		}
	}
	if _, ok := props["sasl.mechanism"]; !ok {
		props["sasl.mechanism"] = "PLAIN" // a mirror's default, where Kafka's clients have GSSAPI
	}
	c, err := client.Parse(props)
	if err != nil {
		return nil, api.Errorf(api.InvalidConfig, "%v", err)
	}
	r := reader{m: all}
	s := &Settings{
		Client: c, SourceClusterID: all["mirror.source.cluster.id"],
		FetchWait: r.ms("mirror.fetch.wait.max.ms"), FetchBackoff: r.ms("mirror.fetch.backoff.ms"),
		FetchMinBytes: int32(r.num("mirror.fetch.min.bytes")), FetchMaxBytes: int32(r.num("mirror.fetch.max.bytes")),
		ResponseMaxBytes: int32(r.num("mirror.fetch.response.max.bytes")), SocketTimeout: r.ms("mirror.socket.timeout.ms"),
		ReceiveBuffer:       int(r.num("mirror.socket.receive.buffer.bytes")),
		TopicConfigsExclude: r.patterns("mirror.topic.properties.exclude"),
		TopicsInclude:       r.patterns("mirror.topics.include"), TopicsExclude: r.patterns("mirror.topics.exclude"),
		GroupsInclude: r.patterns("mirror.groups.include"), GroupsExclude: r.patterns("mirror.groups.exclude"),
		GroupsInterval: r.ms("mirror.groups.sync.interval.ms"),
		AuditInterval:  r.ms("mirror.audit.interval.ms"), AuditRate: r.num("mirror.audit.bytes.per.second"),
		TruncateUnrelated: map[string]bool{}, Skip: map[string]bool{}, MaxCut: r.num("mirror.max.cut.records"),
	}
	s.FetchMaxGrows, s.ResponseMaxGrows = !isSet(own, "mirror.fetch.max.bytes"), !isSet(own, "mirror.fetch.response.max.bytes")
	for _, t := range strings.Split(all["mirror.truncate.unrelated.topics"], ",") {
		if t = strings.TrimSpace(t); t != "" {
			s.TruncateUnrelated[t] = true
		}
	}
	for _, b := range strings.Split(all["mirror.skip.batches"], ",") {
		if b = strings.TrimSpace(b); b != "" {
			s.Skip[b] = true
		}
	}
	if all["mirror.source.code.points"] == api.Prototype.String() {
		s.SourcePoints = api.Prototype
	}
	return s, r.err
}

func isSet(own map[string]string, key string) bool {
	_, ok := own[key]
	return ok
}

// skipKey names a batch of the source in Settings.Skip.
func skipKey(t tp, offset int64) string {
	return t.topic + ":" + strconv.Itoa(int(t.partition)) + ":" + strconv.FormatInt(offset, 10)
}

// reader reads typed values and keeps the first error.
type reader struct {
	m   map[string]string
	err error
}

func (r *reader) num(key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(r.m[key]), 10, 64)
	if err != nil && r.err == nil {
		r.err = api.Errorf(api.InvalidConfig, "%s: %q is no number", key, r.m[key])
	}
	return n
}

func (r *reader) ms(key string) time.Duration { return config.Millis(r.num(key)) }

func (r *reader) patterns(key string) config.Patterns {
	p, err := config.ParsePatterns(r.m[key])
	if err != nil && r.err == nil {
		r.err = api.Errorf(api.InvalidRegularExpression, "%s: %v", key, err)
	}
	return p
}
