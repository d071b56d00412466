package mirrors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// bench runs commands on a controller's state without goroutines, as the machine would.
type bench struct {
	t    *testing.T
	s    *controller.State
	c    mirrors.Commands
	next int64
	// factor is the default replication factor.
	factor int16
}

func (*bench) After(string, time.Duration, machine.Command) {}
func (*bench) Cancel(string)                                {}

// at is the present of all tests; nothing here depends on the time.
func at() time.Time { return time.Unix(1000, 0) }

// newBench has one live broker, and mirroring on if level is 1.
func newBench(t *testing.T, level int16) *bench {
	t.Helper()
	b := &bench{t: t, c: mirrors.Commands{StatePartitions: 3, StateFactor: 3}, factor: 1}
	b.s = controller.New(controller.Options{
		ClusterID: "c", Random: rand.NewChaCha8([32]byte{1}), Configs: config.Rules{}, DeleteTopics: true, Guards: []controller.Guard{mirrors.Guard},
		Defaults: func(*meta.Image) (int32, int16) { return 1, b.factor },
		Bootstrap: []meta.Record{
			&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 33}, &meta.FeatureLevelRecord{Feature: mirrors.Feature, Level: level},
		},
	})
	b.s.Bind(b)
	b.s.Loaded(at())
	b.run(b.s.Activate(at()))
	epoch, ok := b.run(b.s.RegisterBroker(at(), controller.Registration{
		BrokerID: 1, ClusterID: "c", Incarnation: ids.UUID{0: 9, 15: 1}, Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 9092}},
		Features: []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}, {Name: mirrors.Feature, Max: 1}}, LogDirs: []ids.UUID{{0: 8, 15: 1}},
	})).(int64)
	if !ok {
		t.Fatal("the broker was not registered")
	}
	b.run(b.s.Heartbeat(at(), controller.Heartbeat{BrokerID: 1, BrokerEpoch: epoch, MetadataOffset: b.next}))
	return b
}

// run makes a result's records take effect and returns its reply.
func (b *bench) run(r machine.Result) any {
	b.t.Helper()
	if r.Err != nil {
		return r.Err
	}
	for _, rec := range r.Records {
		b.s.Apply(b.next, rec)
		b.next++
	}
	return r.Reply
}

func (b *bench) do(cmd controller.Command) mirrors.Result {
	b.t.Helper()
	r, ok := b.run(cmd(b.s, at())).(mirrors.Result)
	if !ok {
		b.t.Fatal("a command of mirrors has no Result")
	}
	return r
}

// writes is how many records a command has, which take no effect here.
func (b *bench) writes(cmd controller.Command) int { return len(cmd(b.s, at()).Records) }

func (b *bench) mirror(name string, more ...string) {
	b.t.Helper()
	if r := b.do(b.c.Create(createRequest(name, more...))); r.Err != nil {
		b.t.Fatal(r.Err)
	}
}

func createRequest(name string, more ...string) *mirrormsg.CreateClusterMirrorRequest {
	req := &mirrormsg.CreateClusterMirrorRequest{MirrorName: name}
	kv := append([]string{"bootstrap.servers", "h:1", "mirror.source.cluster.id", "src"}, more...)
	for i := 0; i < len(kv); i += 2 {
		req.Config = append(req.Config, mirrormsg.CreateClusterMirrorConfig{Name: kv[i], Value: &kv[i+1]})
	}
	return req
}

func id(n byte) ids.UUID { return ids.UUID{0: 7, 15: n} }

func startRequest(mirror string, topics ...string) *mirrormsg.StartMirrorTopicsRequest {
	r := mirrormsg.NewStartMirrorTopicsRequest()
	r.MirrorName = mirror
	for _, t := range topics {
		r.Topics = append(r.Topics, mirrormsg.StartMirrorTopic{TopicName: t, TopicID: id(t[0]), NumPartitions: 2})
	}
	return &r
}

func stopRequest(mirror string, topics ...string) *mirrormsg.StopMirrorTopicsRequest {
	r := mirrormsg.NewStopMirrorTopicsRequest()
	r.MirrorName = mirror
	for _, t := range topics {
		r.Topics = append(r.Topics, mirrormsg.StopMirrorTopic{TopicName: t})
	}
	return &r
}

func pauseRequest(mirror string, topics ...string) *mirrormsg.PauseMirrorTopicsRequest {
	r := mirrormsg.NewPauseMirrorTopicsRequest()
	r.MirrorName = mirror
	for _, t := range topics {
		r.Topics = append(r.Topics, mirrormsg.PauseMirrorTopic{TopicName: t})
	}
	return &r
}

func resumeRequest(mirror string, topics ...string) *mirrormsg.ResumeMirrorTopicsRequest {
	r := mirrormsg.NewResumeMirrorTopicsRequest()
	r.MirrorName = mirror
	for _, t := range topics {
		r.Topics = append(r.Topics, mirrormsg.ResumeMirrorTopic{TopicName: t})
	}
	return &r
}

func deleteRequest(mirror string) *mirrormsg.DeleteClusterMirrorRequest {
	r := mirrormsg.NewDeleteClusterMirrorRequest()
	r.MirrorName = mirror
	return &r
}

// must runs a command that has to succeed for all topics.
func (b *bench) must(cmd controller.Command) {
	b.t.Helper()
	r := b.do(cmd)
	if r.Err != nil {
		b.t.Fatal(r.Err)
	}
	for _, t := range r.Topics {
		if t.Err != nil {
			b.t.Fatalf("topic %s: %v", t.Name, t.Err)
		}
	}
}

// wish is the mirror and wish of a topic.
func (b *bench) wish(topic string) string {
	t := b.s.Image().TopicByName(topic)
	if t == nil {
		return "no topic"
	}
	return fmt.Sprintf("%s %s", t.MirrorName, mirrormsg.State(t.MirrorDesired))
}

// code is the top-level error and those of the topics, short.
func code(r mirrors.Result) string {
	var out []string
	if r.Err != nil {
		out = append(out, r.Err.Code.Name())
	}
	for _, t := range r.Topics {
		if t.Err != nil {
			out = append(out, t.Name+":"+t.Err.Code.Name())
		}
	}
	return strings.Join(out, " ")
}

func expect(t *testing.T, name, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// The errors of 4.3: "CLUSTER_MIRROR_ALREADY_EXISTS if the CLUSTER_MIRROR resource already has configs; INVALID_REQUEST if
// bootstrap.servers or mirror.source.cluster.id is missing; INVALID_CONFIG for an unknown key or bad value; a bad mirror name".
func TestCreateErrors(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	without := func(key string) *mirrormsg.CreateClusterMirrorRequest {
		r := createRequest("x")
		for i := range r.Config {
			if r.Config[i].Name == key {
				r.Config[i].Value = nil
			}
		}
		return r
	}
	for _, c := range []struct {
		name, want string
		req        *mirrormsg.CreateClusterMirrorRequest
	}{
		{"twice", "CLUSTER_MIRROR_ALREADY_EXISTS", createRequest("m")},
		{"no address", "INVALID_REQUEST", without("bootstrap.servers")},
		{"no cluster id", "INVALID_REQUEST", without("mirror.source.cluster.id")},
		{"unknown key", "INVALID_CONFIG", createRequest("x", "nonsense", "1")},
		{"bad value", "INVALID_CONFIG", createRequest("x", "mirror.fetch.max.bytes", "-1")},
		{"bad pattern", "INVALID_REGULAR_EXPRESSION", createRequest("x", "mirror.topics.include", "(")},
		{"key twice", "INVALID_REQUEST", createRequest("x", "mirror.fetch.max.bytes", "1", "mirror.fetch.max.bytes", "2")},
		{"key by two names", "INVALID_CONFIG", createRequest("x", "mirror.fetch.max.bytes", "1", "fetch.max.bytes", "2")},
		{"bad value by the later name", "INVALID_CONFIG", createRequest("x", "fetch.max.bytes", "-1")},
		{"empty name", "INVALID_REQUEST", createRequest("")},
		{"dots", "INVALID_REQUEST", createRequest("..")},
		{"colon", "INVALID_REQUEST", createRequest("a:b")},
		{"long", "INVALID_REQUEST", createRequest(strings.Repeat("x", 250))},
	} {
		before := b.next
		expect(t, c.name, code(b.do(b.c.Create(c.req))), c.want)
		if b.next != before {
			t.Errorf("%s: a refused create wrote records", c.name)
		}
	}
	st := b.s.Image().TopicByName(mirrors.StateTopic)
	if st == nil || len(st.Partitions) != 3 || len(st.Partitions[0].Replicas) != 1 {
		t.Fatalf("__mirror_state: %+v", st) // D15: the factor is at most the number of brokers
	}
	conf := b.s.Image().Config(meta.ResourceTopic, mirrors.StateTopic)
	if conf["cleanup.policy"] != "compact" || conf["retention.ms"] != "-1" || conf["flush.messages"] != "1" {
		t.Errorf("configs of __mirror_state: %v", conf)
	}
}

// Without an active broker __mirror_state can't be made, and nothing makes it later: what needs it is refused, and works when it is repeated.
func TestStateTopicCannotBeMade(t *testing.T) {
	b := newBench(t, 1)
	epoch := b.s.Image().Broker(1).Epoch
	b.run(b.s.Heartbeat(at(), controller.Heartbeat{BrokerID: 1, BrokerEpoch: epoch, MetadataOffset: b.next, WantFence: true}))
	before := b.next
	expect(t, "create", code(b.do(b.c.Create(createRequest("m")))), "COORDINATOR_NOT_AVAILABLE")
	if b.next != before {
		t.Error("a refused create wrote records")
	}
	b.run(b.s.Heartbeat(at(), controller.Heartbeat{BrokerID: 1, BrokerEpoch: epoch, MetadataOffset: b.next}))
	b.mirror("m")
	if b.s.Image().TopicByName(mirrors.StateTopic) == nil {
		t.Error("there is no __mirror_state")
	}
}

// "UNSUPPORTED_VERSION (35) when mirror.version is 0" (4.2); UNKNOWN_CLUSTER_MIRROR for all that need a mirror.
func TestFeatureAndUnknownMirror(t *testing.T) {
	off, on := newBench(t, 0), newBench(t, 1)
	expect(t, "create", code(off.do(off.c.Create(createRequest("m")))), "UNSUPPORTED_VERSION")
	for name, cmd := range map[string]controller.Command{
		"start": on.c.Start(startRequest("m", "a")), "stop": on.c.Stop(stopRequest("m", "a")), "pause": on.c.Pause(pauseRequest("m", "a")),
		"resume": on.c.Resume(resumeRequest("m", "a")), "delete": on.c.Delete(deleteRequest("m")),
	} {
		expect(t, name+" with the feature off", code(off.do(cmd)), "UNSUPPORTED_VERSION")
		expect(t, name, code(on.do(cmd)), "UNKNOWN_CLUSTER_MIRROR")
	}
}

// The errors of 4.4, per topic: the others of the request are started, and "the top-level error of Start is set to the first
// per-topic error".
func TestStartErrors(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.mirror("other")
	b.must(b.c.Start(startRequest("m", "a", "paused")))
	b.must(b.c.Pause(pauseRequest("m", "paused")))
	b.must(b.c.Start(startRequest("other", "o")))
	edit := func(f func(*mirrormsg.StartMirrorTopicsRequest), topics ...string) *mirrormsg.StartMirrorTopicsRequest {
		r := startRequest("m", topics...)
		f(r)
		return r
	}
	for _, c := range []struct {
		name, want string
		req        *mirrormsg.StartMirrorTopicsRequest
	}{
		{"active in another mirror", "TOPIC_ALREADY_IN_CLUSTER_MIRROR o:TOPIC_ALREADY_IN_CLUSTER_MIRROR", startRequest("m", "o")},
		{"paused", "INVALID_CLUSTER_MIRROR_STATES paused:INVALID_CLUSTER_MIRROR_STATES", startRequest("m", "paused")},
		{"id of another topic", "TOPIC_ALREADY_EXISTS x:TOPIC_ALREADY_EXISTS", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Topics[0].TopicID = id('a') }, "x")},
		{"other id", "TOPIC_ALREADY_EXISTS a:TOPIC_ALREADY_EXISTS", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Topics[0].TopicID = id('z') }, "a")},
		{"excluded by default", "INVALID_REQUEST __x:INVALID_REQUEST", startRequest("m", "__x")},
		{"internal", "INVALID_REQUEST __consumer_offsets:INVALID_REQUEST", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.ExcludePatterns = nil }, "__consumer_offsets")},
		{"excluded in the request", "INVALID_REQUEST x:INVALID_REQUEST", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.ExcludePatterns = []string{"x.*"} }, "x")},
		{"bad pattern", "INVALID_REGULAR_EXPRESSION", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.IncludePatterns = []string{"("} }, "x")},
		{"comma in a pattern", "INVALID_REGULAR_EXPRESSION", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.IncludePatterns = []string{"x,y"} }, "x")},
		{"twice", "INVALID_REQUEST x:INVALID_REQUEST", startRequest("m", "x", "x")},
		{"one id for two", "TOPIC_ALREADY_EXISTS y:TOPIC_ALREADY_EXISTS", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Topics[1].TopicID = r.Topics[0].TopicID }, "x", "y")},
		{"too many partitions", "POLICY_VIOLATION x:POLICY_VIOLATION", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Topics[0].NumPartitions = 1<<31 - 1 }, "x")},
		{"bad topic name", "INVALID_REGULAR_EXPRESSION", edit(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Topics[0].TopicName = "(" }, "x")},
	} {
		b2 := *b
		expect(t, c.name, code(peek(&b2, b2.c.Start(c.req))), c.want)
	}
	r := b.do(b.c.Start(startRequest("m", "o", "good")))
	expect(t, "one of two", code(r), "TOPIC_ALREADY_IN_CLUSTER_MIRROR o:TOPIC_ALREADY_IN_CLUSTER_MIRROR")
	expect(t, "the good one", b.wish("good"), "m MIRRORING")
	if inc := b.s.Image().Config(meta.ResourceClusterMirror, "m")["mirror.topics.include"]; inc != "a,paused,good" {
		t.Errorf("include list %q: a topic that could not be started is in it, or one that could is not", inc)
	}
}

// peek returns what a command answers without its records taking effect.
func peek(b *bench, cmd controller.Command) mirrors.Result {
	r, _ := cmd(b.s, at()).Reply.(mirrors.Result)
	return r
}

// "if the desired state is already MIRRORING in this mirror, success without a record"; "if no partition count is known and the
// topic does not exist, answer success and leave creation to the periodic refresh" (4.4).
func TestStartIsIdempotent(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m", "mirror.topics.include", "a|b.*")
	b.must(b.c.Start(startRequest("m", "a")))
	if got := b.s.Image().TopicByName("a"); got == nil || got.ID != id('a') || len(got.Partitions) != 2 {
		t.Fatalf("topic: %+v", got)
	}
	if n := b.writes(b.c.Start(startRequest("m", "a"))); n != 0 {
		t.Errorf("a start of a started topic writes %d records", n)
	}
	later := startRequest("m", "b1")
	later.Topics[0].NumPartitions = 0
	b.must(b.c.Start(later))
	expect(t, "without partitions", b.wish("b1"), "no topic")
	if inc := b.s.Image().Config(meta.ResourceClusterMirror, "m")["mirror.topics.include"]; inc != "a|b.*" {
		t.Errorf("include list %q: names that a pattern matches are not added", inc)
	}
	// A topic that another mirror stopped is taken over.
	b.must(b.c.Stop(stopRequest("m", "a")))
	b.mirror("n")
	b.must(b.c.Start(startRequest("n", "a")))
	expect(t, "taken over", b.wish("a"), "n MIRRORING")
	expect(t, "stop in the old one", code(b.do(b.c.Stop(stopRequest("m", "a")))), "a:TOPIC_NOT_IN_CLUSTER_MIRROR")
}

// "Stop: removed from include and added to exclude" (4.5); "each exclude pattern ... Every topic that is already in this mirror
// and now matches an exclude pattern gets a state-change record STOPPED", only on change; the list begins from the effective
// value, so that the default __.* is not lost (9.2).
func TestPatterns(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	r := startRequest("m", "a1", "b")
	r.IncludePatterns = []string{"a.*", "c.*"}
	b.must(b.c.Start(r))
	conf := func() string {
		c := b.s.Image().Config(meta.ResourceClusterMirror, "m")
		return c["mirror.topics.include"] + " / " + c["mirror.topics.exclude"]
	}
	expect(t, "start", conf(), "a.*,c.*,b / ") // the exclude list keeps its default, unstored
	stop := stopRequest("m", "b")
	stop.Patterns = []string{"b", "c.*"}
	b.must(b.c.Stop(stop))
	expect(t, "stop", conf(), "a.* / __.*,b,c.*")
	expect(t, "wish", b.wish("b"), "m STOPPED")
}

// The errors of 4.5 to 4.7: each per topic.
func TestChangeErrors(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.mirror("n")
	b.must(b.c.Start(startRequest("m", "a", "p", "s")))
	b.must(b.c.Start(startRequest("n", "x")))
	b.must(b.c.Pause(pauseRequest("m", "p")))
	b.must(b.c.Stop(stopRequest("m", "s")))
	b.run(b.s.CreateTopics(at(), []controller.NewTopic{{Name: "free", Partitions: 1, ReplicationFactor: 1}}, false))
	for _, c := range []struct {
		name, want string
		cmd        controller.Command
	}{
		{"stop of no topic", "q:UNKNOWN_TOPIC_OR_PARTITION", b.c.Stop(stopRequest("m", "q"))},
		{"stop of a topic in no mirror", "free:UNKNOWN_CLUSTER_MIRROR", b.c.Stop(stopRequest("m", "free"))},
		{"stop of another's topic", "x:TOPIC_NOT_IN_CLUSTER_MIRROR", b.c.Stop(stopRequest("m", "x"))},
		{"stop twice in one request", "a:INVALID_REQUEST", b.c.Stop(stopRequest("m", "a", "a"))},
		{"stop of a paused topic is legal", "", b.c.Stop(stopRequest("m", "p"))},
		{"stop of a stopped topic is no error", "", b.c.Stop(stopRequest("m", "s"))},
		{"stop with a bad pattern", "INVALID_REGULAR_EXPRESSION", b.c.Stop(&mirrormsg.StopMirrorTopicsRequest{MirrorName: "m", Patterns: []string{"("}, StateOffset: -1})},
		{"pause of a stopped topic", "s:INVALID_CLUSTER_MIRROR_STATES", b.c.Pause(pauseRequest("m", "s"))},
		{"pause of a paused topic", "", b.c.Pause(pauseRequest("m", "p"))},
		{"resume of a stopped topic", "s:INVALID_CLUSTER_MIRROR_STATES", b.c.Resume(resumeRequest("m", "s"))},
		{"resume of a mirrored topic", "", b.c.Resume(resumeRequest("m", "a"))},
		{"delete with active topics", "INVALID_CLUSTER_MIRROR_STATES", b.c.Delete(deleteRequest("m"))},
	} {
		expect(t, c.name, code(peek(b, c.cmd)), c.want)
	}
	if n := b.writes(b.c.Stop(stopRequest("m", "s"))); n != 0 {
		t.Errorf("a stop of a stopped topic writes %d records", n)
	}
}

// 7.9: "The controller refuses (INVALID_CLUSTER_MIRROR_STATES) if, for any topic of the request that is currently in this mirror,
// lastMirrorStateChangeOffset > StateOffset; with -1 no check".
func TestStateOffset(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	changed := b.s.Image().TopicByName("a").MirrorChangeOffset
	for offset, want := range map[int64]string{changed - 1: "INVALID_CLUSTER_MIRROR_STATES", changed: "", -1: ""} {
		stop := stopRequest("m", "a")
		stop.StateOffset = offset
		pause := pauseRequest("m", "a")
		pause.StateOffset = offset
		start := startRequest("m", "a")
		start.StateOffset = offset
		for name, cmd := range map[string]controller.Command{"stop": b.c.Stop(stop), "pause": b.c.Pause(pause), "start": b.c.Start(start)} {
			expect(t, fmt.Sprintf("%s at %d, changed at %d", name, offset, changed), code(peek(b, cmd)), want)
		}
	}
	b.must(b.c.Stop(stopRequest("m", "a")))
	del := deleteRequest("m")
	del.StateOffset = changed
	expect(t, "delete", code(peek(b, b.c.Delete(del))), "INVALID_CLUSTER_MIRROR_STATES")
}

// "removes the association of each stopped topic and all config keys in one atomic batch" (3.3).
func TestDelete(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	b.must(b.c.Stop(stopRequest("m", "a")))
	b.must(b.c.Delete(deleteRequest("m")))
	expect(t, "topic", b.wish("a"), " UNKNOWN")
	if c := b.s.Image().Config(meta.ResourceClusterMirror, "m"); len(c) > 0 {
		t.Errorf("configs are left: %v", c)
	}
	b.mirror("m") // the name is free
}

// D10 and D7: what a mirror owns is refused to clients and not to the cluster itself, with the mirror's error and the command that
// helps in the words; once stopped, the topic is the operator's.
func TestGuard(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	alter := func(key string, internal bool) *api.Error {
		value := "1000"
		if key == "milena.write.fence" {
			value = "true"
		}
		_, err := b.s.PlanConfigs(controller.AlterResource{Resource: meta.Resource{Type: meta.ResourceTopic, Name: "a"}, Internal: internal,
			Changes: []controller.ConfigChange{{Key: key, Value: &value}}})
		return err
	}
	b.run(b.s.AlterConfigs(at(), []controller.AlterResource{{Resource: meta.Resource{Type: meta.ResourceTopic, Name: "a"}, Internal: true,
		Changes: []controller.ConfigChange{{Key: "retention.ms", Value: ptr("5")}, {Key: "min.insync.replicas", Value: ptr("1")}}}}, false))
	check := func(name string, err *api.Error, refused bool) {
		t.Helper()
		switch {
		case refused && (err == nil || err.Code != api.PolicyViolation):
			t.Errorf("%s: %v", name, err)
		case refused && (!strings.Contains(err.Message, "INVALID_CLUSTER_MIRROR_STATES") || !strings.Contains(err.Message, "milena mirrors stop m --topics a")):
			t.Errorf("%s: the words are %q", name, err.Message)
		case !refused && err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
	grow := func(internal bool) *api.Error {
		r := b.s.CreatePartitions(at(), []controller.MorePartitions{{Name: "a", Count: 3, Internal: internal}}, true)
		return r.Reply.([]controller.TopicResult)[0].Err
	}
	check("partitions", grow(false), true)
	check("partitions by the mirror", grow(true), false)
	check("synced config", alter("retention.ms", false), true)
	check("synced config by the mirror", alter("retention.ms", true), false)
	check("excluded config", alter("min.insync.replicas", false), false)
	check("config that is not set", alter("retention.bytes", false), false)
	check("a fence", alter("milena.write.fence", false), false)
	topic := b.s.Image().TopicByName("a")
	drop := controller.Op{Kind: controller.OpDeleteTopic, Topic: topic}
	check("delete", mirrors.Guard(b.s.Image(), drop), true)
	if err := mirrors.PrototypeGuard(b.s.Image(), drop); err == nil || err.Code != api.InvalidClusterMirrorStates {
		t.Errorf("with the prototype's numbers: %v", err)
	}
	off := controller.Op{Kind: controller.OpUpdateFeature, Feature: mirrors.Feature}
	if err := mirrors.Guard(b.s.Image(), off); err == nil || err.Code != api.InvalidUpdateVersion || !strings.Contains(err.Message, "milena mirrors delete m") {
		t.Errorf("the feature goes while there is a mirror: %v", err)
	}
	b.must(b.c.Stop(stopRequest("m", "a")))
	check("partitions of a stopped topic", grow(false), false)
	check("config of a stopped topic", alter("retention.ms", false), false)
	states := controller.Op{Kind: controller.OpDeleteTopic, Topic: b.s.Image().TopicByName(mirrors.StateTopic)}
	if err := mirrors.Guard(b.s.Image(), states); err == nil || err.Code != api.PolicyViolation || !strings.Contains(err.Message, "milena mirrors delete m") {
		t.Errorf("the states of mirrors go: %v", err)
	}
	check("delete of a stopped topic", mirrors.Guard(b.s.Image(), controller.Op{Kind: controller.OpDeleteTopic, Topic: b.s.Image().TopicByName("a")}), false)
}

func ptr(s string) *string { return &s }

// D15: without mirrors the feature can be taken back.
func TestFeatureGoesWithoutMirrors(t *testing.T) {
	b := newBench(t, 1)
	if err := mirrors.Guard(b.s.Image(), controller.Op{Kind: controller.OpUpdateFeature, Feature: mirrors.Feature}); err != nil {
		t.Error(err)
	}
	b.mirror("m")
	b.must(b.c.Delete(deleteRequest("m")))
	if err := mirrors.Guard(b.s.Image(), controller.Op{Kind: controller.OpDeleteTopic, Topic: b.s.Image().TopicByName(mirrors.StateTopic)}); err != nil {
		t.Error(err)
	}
}

// D7: "remote.*, local.retention.* and keys this release doesn't know are never synced".
func TestCarried(t *testing.T) {
	for key, want := range map[string]bool{"retention.ms": true, "cleanup.policy": true, "remote.storage.enable": false, "local.retention.ms": false, "no.such.key": false, "milena.write.fence": false} {
		if mirrors.Carried(key) != want {
			t.Errorf("%s: carried is %v", key, !want)
		}
	}
}
