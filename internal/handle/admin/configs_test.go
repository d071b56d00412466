package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/server"
)

// rig is a broker's config handlers behind a server, with a controller that notes what it is sent.
type rig struct {
	t    *testing.T
	conn net.Conn
	root *slog.LevelVar

	mu        sync.Mutex
	forwarded []kmsg.Request
	answer    func(kmsg.Request) (kmsg.Response, error)
}

func text(s string) *string { return &s }

// image has broker 3, topic t and some configs.
func image(t *testing.T) *meta.Image {
	t.Helper()
	d := meta.Empty("cluster").Draft()
	for i, r := range []meta.Record{
		&meta.RegisterBrokerRecord{BrokerID: 3, BrokerEpoch: 1},
		&meta.TopicRecord{TopicName: "t", TopicID: ids.UUID{1}},
		&meta.ConfigRecord{ResourceType: config.ResourceTopic, ResourceName: "t", Key: "max.message.bytes", Value: text("7")},
		&meta.ConfigRecord{ResourceType: config.ResourceBroker, ResourceName: "", Key: "message.max.bytes", Value: text("9")},
		&meta.ConfigRecord{ResourceType: config.ResourceGroup, ResourceName: "g", Key: "share.isolation.level", Value: text("read_committed")},
		&meta.ConfigRecord{ResourceType: config.ResourceClusterMirror, ResourceName: "m", Key: "bootstrap.servers", Value: text("a:1")},
		&meta.ConfigRecord{ResourceType: config.ResourceClusterMirror, ResourceName: "m", Key: "sasl.jaas.config", Value: text("hunter2")},
	} {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	node, _, err := config.Load(map[string]string{"node.id": "3", "listeners": "PLAINTEXT://127.0.0.1:0"}, config.Env{})
	if err != nil {
		t.Fatal(err)
	}
	img := image(t)
	live := config.NewLive(node)
	live.Apply(img.Config(config.ResourceBroker, ""), img.Config(config.ResourceBroker, "3"))
	r := &rig{t: t, root: new(slog.LevelVar)}
	log := slog.New(slog.DiscardHandler)
	h := NewConfigs(ConfigsOptions{
		Node: live.Node, Image: func() *meta.Image { return img }, Logger: log,
		Loggers: NewLogLevels(r.root, map[string]*slog.LevelVar{"replica": new(slog.LevelVar)}),
		Forward: func(_ context.Context, _ *server.Request, m kmsg.Request) (kmsg.Response, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.forwarded = append(r.forwarded, m)
			return r.answer(m)
		},
	})
	table := server.Table{}
	h.Register(table)
	ln, dial := server.NewMemListener()
	s, err := server.New(server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: "PLAINTEXT", Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return table }, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	if r.conn, err = dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.conn.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// call sends req at version and returns the answer.
func (r *rig) call(req kmsg.Request, version int16) kmsg.Response {
	r.t.Helper()
	req.SetVersion(version)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 5)
	if _, err := r.conn.Write(frame); err != nil {
		r.t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		r.t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r.conn, body); err != nil {
		r.t.Fatal(err)
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	body = body[4:]
	if resp.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		r.t.Fatal(err)
	}
	return resp
}

func (r *rig) describe(version int16, change func(*kmsg.DescribeConfigsRequest), resources ...resource) *kmsg.DescribeConfigsResponse {
	r.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, res := range resources {
		one := kmsg.NewDescribeConfigsRequestResource()
		one.ResourceType, one.ResourceName = kmsg.ConfigResourceType(res.kind), res.name
		req.Resources = append(req.Resources, one)
	}
	if change != nil {
		change(req)
	}
	return r.call(req, version).(*kmsg.DescribeConfigsResponse)
}

func TestDescribeConfigs(t *testing.T) {
	r := newRig(t)
	for version := int16(1); version <= 4; version++ {
		resp := r.describe(version, func(q *kmsg.DescribeConfigsRequest) {
			q.IncludeSynonyms, q.IncludeDocumentation = true, true
			q.Resources[0].ConfigNames = []string{"max.message.bytes", "nonsense"}
		}, resource{config.ResourceTopic, "t"}, resource{config.ResourceBroker, "3"}, resource{config.ResourceBroker, ""}, resource{config.ResourceGroup, "g"},
			resource{config.ResourceGroup, "new"}, resource{config.ResourceClusterMirror, "m"}, resource{config.ResourceBrokerLogger, "3"}, resource{config.ResourceClientMetrics, "x"})
		if len(resp.Resources) != 8 {
			t.Fatalf("%d resources", len(resp.Resources))
		}
		byName := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
		for _, res := range resp.Resources {
			if res.ErrorCode != 0 {
				t.Errorf("%d %q: %d", res.ResourceType, res.ResourceName, res.ErrorCode)
			}
			for _, c := range res.Configs {
				byName[fmt.Sprintf("%d %s %s", res.ResourceType, res.ResourceName, c.Name)] = c
			}
		}
		if n := len(resp.Resources[0].Configs); n != 1 {
			t.Errorf("v%d: %d configs of a topic asked for one", version, n)
		}
		c := byName["2 t max.message.bytes"]
		var behind []string
		for _, s := range c.ConfigSynonyms {
			behind = append(behind, fmt.Sprintf("%s=%s %d", s.Name, *s.Value, s.Source))
		}
		if d := cmp.Diff([]string{"max.message.bytes=7 1", "message.max.bytes=9 3", "message.max.bytes=1048588 5"}, behind); *c.Value != "7" || c.Source != 1 || c.ReadOnly || d != "" {
			t.Errorf("v%d: %+v\n%s", version, c, d)
		}
		if documented := version >= 3; documented != (c.Documentation != nil) || documented != (c.ConfigType == kmsg.ConfigTypeInt) {
			t.Errorf("v%d: documentation %v, type %d", version, c.Documentation, c.ConfigType)
		}
		if c := byName["4 3 node.id"]; *c.Value != "3" || c.Source != 4 || !c.ReadOnly {
			t.Errorf("v%d: %+v", version, c)
		}
		if c := byName["4  message.max.bytes"]; *c.Value != "9" || c.Source != 3 || len(resp.Resources[2].Configs) != 1 {
			t.Errorf("v%d: %+v", version, c)
		}
		if c := byName["32 g share.isolation.level"]; *c.Value != "read_committed" || c.Source != 8 {
			t.Errorf("v%d: %+v", version, c)
		}
		if c := byName["32 new share.isolation.level"]; *c.Value != "read_uncommitted" || c.Source != 5 {
			t.Errorf("v%d: %+v", version, c)
		}
		if c := byName["64 m sasl.jaas.config"]; c.Value != nil || !c.IsSensitive {
			t.Errorf("v%d: a mirror's password is shown: %+v", version, c)
		}
		if c := byName["8 3 root"]; *c.Value != "INFO" || c.Source != 6 {
			t.Errorf("v%d: %+v", version, c)
		}
	}
	plain := r.describe(4, nil, resource{config.ResourceTopic, "t"})
	for _, c := range plain.Resources[0].Configs {
		if c.ConfigSynonyms != nil || c.Documentation != nil {
			t.Fatalf("synonyms and documentation weren't asked for: %+v", c)
		}
	}
}

func TestDescribeConfigsErrors(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		res  resource
		code api.Code
		want string
	}{
		{resource{config.ResourceTopic, "nope"}, api.UnknownTopicOrPartition, ""},
		{resource{config.ResourceTopic, ""}, api.InvalidTopicException, "the empty string is not allowed"},
		{resource{config.ResourceTopic, "bad/name"}, api.InvalidTopicException, ""},
		{resource{config.ResourceBroker, "4"}, api.InvalidRequest, "Unexpected broker id, expected 3 or empty string, but received 4"},
		{resource{config.ResourceBroker, "x"}, api.InvalidRequest, "Broker id must be an integer, but it is: x"},
		{resource{config.ResourceBrokerLogger, ""}, api.InvalidRequest, "Broker id must not be empty"},
		{resource{config.ResourceBrokerLogger, "4"}, api.InvalidRequest, "Unexpected broker id"},
		{resource{config.ResourceGroup, ""}, api.InvalidRequest, "Group name must not be empty"},
		{resource{config.ResourceClientMetrics, ""}, api.InvalidRequest, "Client metrics subscription name must not be empty"},
		{resource{config.ResourceClusterMirror, "nope"}, api.UnknownClusterMirror, "there is no mirror"},
		{resource{99, "x"}, api.InvalidRequest, "Unsupported resource type"},
	} {
		got := r.describe(4, nil, c.res).Resources[0]
		message := ""
		if got.ErrorMessage != nil {
			message = *got.ErrorMessage
		}
		if api.Code(got.ErrorCode) != c.code || !strings.Contains(message, c.want) || len(got.Configs) > 0 {
			t.Errorf("%v: %d %q, want %d %q", c.res, got.ErrorCode, message, c.code, c.want)
		}
	}
}

// one is a request that changes one config.
func one(kind int8, name, key string, op kmsg.IncrementalAlterConfigOp, value *string) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(kind), name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	return req
}

// TestRefusedByTheBroker: what a broker can tell alone never reaches the controller, with Kafka's codes and words.
func TestRefusedByTheBroker(t *testing.T) {
	r := newRig(t)
	const set, del, add, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	for _, c := range []struct {
		req  *kmsg.IncrementalAlterConfigsRequest
		code api.Code
		want string
	}{
		{one(2, "t", "segment.bytes", set, text("5")), api.InvalidConfig, "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"},
		{one(2, "t", "nonsense", set, text("5")), api.InvalidConfig, "Unknown topic config name: nonsense"},
		{one(2, "t", "segment.bytes", set, nil), api.InvalidRequest, "Null value not supported for : segment.bytes"},
		{one(2, "t", "segment.bytes", add, text("5")), api.InvalidConfig, "Can't APPEND to key segment.bytes because its type is not LIST."},
		{one(2, "t", "segment.bytes", sub, text("5")), api.InvalidConfig, "Can't SUBTRACT to key segment.bytes because its type is not LIST."},
		{one(2, "", "segment.bytes", set, text("1048576")), api.InvalidRequest, "Default topic resources are not allowed."},
		{one(2, "t", "segment.bytes", 7, text("5")), api.InvalidRequest, "Unknown operation type 7"},
		{one(4, "3", "node.id", set, text("4")), api.InvalidRequest, "Cannot update these configs dynamically: [node.id]"},
		{one(4, "3", "message.max.bytes", set, text("-1")), api.InvalidRequest, "Value must be at least 0"},
		{one(4, "4", "message.max.bytes", set, text("1")), api.InvalidRequest, "Unexpected node id, expected 3 or empty string, but received 4"},
		{one(4, "x", "message.max.bytes", set, text("1")), api.InvalidRequest, "Node id must be an integer, but it is: x"},
		{one(4, "3", "mirror.num.replica.fetchers", set, text("3")), api.InvalidRequest, "at most halve or double"},
		{one(32, "", "consumer.session.timeout.ms", set, text("50000")), api.InvalidRequest, "Default group resources are not allowed."},
		{one(32, "g", "consumer.session.timeout.ms", set, text("1")), api.InvalidConfig, "must be in the range 45000 to 60000 inclusive."},
		{one(64, "m", "mirror.topics.include", set, text("(")), api.InvalidRegularExpression, "mirror.topics.include"},
		{one(99, "m", "x", set, text("(")), api.InvalidRequest, "Unknown resource type 99"},
		{one(8, "3", "root", set, text("FOO")), api.InvalidConfig, "Cannot set the log level of root to FOO as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"},
		{one(8, "3", "nologger", set, text("INFO")), api.InvalidConfig, "Logger nologger does not exist!"},
		{one(8, "3", "root", del, nil), api.InvalidRequest, "Removing the log level of the root logger is not allowed"},
		{one(8, "3", "root", add, text("INFO")), api.InvalidRequest, "APPEND operation is not allowed for the BROKER_LOGGER resource"},
		{one(8, "", "root", set, text("INFO")), api.InvalidRequest, "Node id must be an integer, but it is: "},
	} {
		for version := int16(0); version <= 1; version++ {
			got := r.call(c.req, version).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
			if api.Code(got.ErrorCode) != c.code || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, c.want) {
				t.Errorf("v%d %+v: %+v, want %d %q", version, c.req.Resources[0], got, c.code, c.want)
			}
		}
	}
	twice := one(2, "t", "segment.ms", set, text("5"))
	twice.Resources[0].Configs = append(twice.Resources[0].Configs, twice.Resources[0].Configs[0])
	if got := r.call(twice, 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; api.Code(got.ErrorCode) != api.InvalidRequest || !strings.Contains(*got.ErrorMessage, "duplicate config keys") {
		t.Errorf("a key twice: %+v", got)
	}
	twice = one(2, "t", "segment.ms", set, text("5"))
	twice.Resources = append(twice.Resources, twice.Resources[0])
	for _, got := range r.call(twice, 1).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if api.Code(got.ErrorCode) != api.InvalidRequest || *got.ErrorMessage != "Each resource must appear at most once." {
			t.Errorf("a resource twice: %+v", got)
		}
	}
	if len(r.forwarded) > 0 {
		t.Errorf("forwarded %v", r.forwarded)
	}
}

// TestForwarded: the rest goes to the controller, and its answers come back beside the broker's own, in the order asked.
func TestForwarded(t *testing.T) {
	r := newRig(t)
	r.answer = func(m kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, res := range slices.Backward(m.(*kmsg.IncrementalAlterConfigsRequest).Resources) {
			out := kmsg.NewIncrementalAlterConfigsResponseResource()
			out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
			if res.ResourceName == "locked" {
				out.ErrorCode, out.ErrorMessage = int16(api.PolicyViolation), text("belongs to mirror m")
			}
			resp.Resources = append(resp.Resources, out)
		}
		return resp, nil
	}
	req := one(2, "t", "cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, text("compact"))
	req.Resources = append(req.Resources,
		one(2, "t2", "segment.bytes", kmsg.IncrementalAlterConfigOpSet, text("x")).Resources[0],
		one(8, "3", "replica", kmsg.IncrementalAlterConfigOpSet, text("DEBUG")).Resources[0],
		one(2, "locked", "retention.ms", kmsg.IncrementalAlterConfigOpDelete, nil).Resources[0],
		one(4, "", "message.max.bytes", kmsg.IncrementalAlterConfigOpSet, text("5")).Resources[0])
	req.ValidateOnly = true
	resp := r.call(req, 1).(*kmsg.IncrementalAlterConfigsResponse)
	var got []string
	for _, res := range resp.Resources {
		got = append(got, fmt.Sprintf("%d %s %d", res.ResourceType, res.ResourceName, res.ErrorCode))
	}
	if d := cmp.Diff([]string{"2 t 0", "2 t2 40", "8 3 0", "2 locked 44", "4  0"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	sent := r.forwarded[0].(*kmsg.IncrementalAlterConfigsRequest)
	if len(sent.Resources) != 3 || !sent.ValidateOnly || sent.Resources[0].Configs[0].Op != kmsg.IncrementalAlterConfigOpAppend {
		t.Errorf("forwarded %+v", sent)
	}
	if got := r.describe(4, nil, resource{8, "3"}).Resources[0]; *got.Configs[0].Value != "INFO" {
		t.Errorf("validateOnly changed a level: %+v", got)
	}
}

func TestControllerDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	r.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, context.DeadlineExceeded }
	got := r.call(one(2, "t", "segment.ms", 0, text("5")), 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if api.Code(got.ErrorCode) != api.RequestTimedOut || !strings.Contains(*got.ErrorMessage, "whether the configs were changed is not known") {
		t.Errorf("%+v", got)
	}
	r.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, errors.New("secret detail") }
	got = r.call(one(2, "t", "segment.ms", 0, text("5")), 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if api.Code(got.ErrorCode) != api.UnknownServerError || strings.Contains(*got.ErrorMessage, "secret") {
		t.Errorf("%+v", got)
	}
	r.answer = func(kmsg.Request) (kmsg.Response, error) { return kmsg.NewPtrIncrementalAlterConfigsResponse(), nil }
	got = r.call(one(2, "t", "segment.ms", 0, text("5")), 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if api.Code(got.ErrorCode) != api.UnknownServerError {
		t.Errorf("%+v", got)
	}
}

func TestLoggerLevels(t *testing.T) {
	r := newRig(t)
	change := func(name string, op kmsg.IncrementalAlterConfigOp, value *string) {
		t.Helper()
		if got := r.call(one(8, "3", name, op, value), 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
			t.Fatalf("%+v", got)
		}
	}
	levels := func() string {
		var out []string
		for _, c := range r.describe(4, nil, resource{8, "3"}).Resources[0].Configs {
			out = append(out, c.Name+"="+*c.Value)
		}
		return strings.Join(out, " ")
	}
	for _, step := range []struct {
		name, value, want string
	}{
		{"root", "DEBUG", "replica=DEBUG root=DEBUG"},
		{"replica", "ERROR", "replica=ERROR root=DEBUG"},
		{"root", "WARN", "replica=ERROR root=WARN"},
		{"replica", "", "replica=WARN root=WARN"},
		{"root", "TRACE", "replica=TRACE root=TRACE"},
		{"root", "FATAL", "replica=FATAL root=FATAL"},
	} {
		if step.value == "" {
			change(step.name, kmsg.IncrementalAlterConfigOpDelete, nil)
		} else {
			change(step.name, kmsg.IncrementalAlterConfigOpSet, &step.value)
		}
		if got := levels(); got != step.want {
			t.Errorf("%s to %q: %s, want %s", step.name, step.value, got, step.want)
		}
	}
	if r.root.Level() != slog.LevelError+4 {
		t.Errorf("the process's level is %s", r.root.Level())
	}
}

func TestAlterConfigs(t *testing.T) {
	r := newRig(t)
	r.answer = func(m kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrAlterConfigsResponse()
		for _, res := range m.(*kmsg.AlterConfigsRequest).Resources {
			out := kmsg.NewAlterConfigsResponseResource()
			out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
			resp.Resources = append(resp.Resources, out)
		}
		return resp, nil
	}
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrAlterConfigsRequest()
		add := func(kind int8, name, key string, value *string) {
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(kind), name
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = key, value
			res.Configs = append(res.Configs, c)
			req.Resources = append(req.Resources, res)
		}
		add(2, "t", "segment.ms", text("5"))
		add(2, "t2", "segment.ms", nil)
		add(8, "3", "root", text("DEBUG"))
		add(4, "3", "log.dirs", text("x"))
		add(2, "t3", "segment.ms", text("5"))
		add(2, "t3", "segment.ms", text("6"))
		var got []int16
		for _, res := range r.call(req, version).(*kmsg.AlterConfigsResponse).Resources {
			got = append(got, res.ErrorCode)
		}
		if d := cmp.Diff([]int16{0, 42, 42, 42, 42, 42}, got); d != "" {
			t.Errorf("v%d (-want +got):\n%s", version, d)
		}
		if sent := r.forwarded[len(r.forwarded)-1].(*kmsg.AlterConfigsRequest); len(sent.Resources) != 1 || sent.Resources[0].ResourceName != "t" {
			t.Errorf("v%d: forwarded %+v", version, sent)
		}
	}
}

func TestListConfigResources(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		version int16
		types   []int8
		want    string
		code    api.Code
	}{
		{0, nil, "", 0},
		{1, nil, "2:t 4:3 8:3 32:g", 0},
		{1, []int8{2}, "2:t", 0},
		{1, []int8{2, 2}, "2:t", 0},
		{1, []int8{16}, "", 0},
		{1, []int8{64, 4}, "64:m 4:3", 0},
		{1, []int8{2, 99}, "", api.UnsupportedVersion},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = c.types
		resp := r.call(req, c.version).(*kmsg.ListConfigResourcesResponse)
		var got []string
		for _, res := range resp.ConfigResources {
			kind := res.Type
			if c.version == 0 {
				kind = config.ResourceClientMetrics
			}
			got = append(got, fmt.Sprintf("%d:%s", kind, res.Name))
		}
		if s := strings.Join(got, " "); s != c.want || api.Code(resp.ErrorCode) != c.code {
			t.Errorf("v%d %v: %q %d, want %q %d", c.version, c.types, s, resp.ErrorCode, c.want, c.code)
		}
	}
}

// TestMalformed: a body that isn't a request closes the connection.
func TestMalformed(t *testing.T) {
	r := newRig(t)
	frame := []byte{0, 0, 0, 14, 0, 44, 0, 0, 0, 0, 0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff}
	if _, err := r.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if n, err := r.conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came back", n)
	}
}
