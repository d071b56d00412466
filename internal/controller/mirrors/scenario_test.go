package mirrors_test

import (
	"slices"
	"strings"
	"testing"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// 95. Create twice: second answers CLUSTER_MIRROR_ALREADY_EXISTS, configs unchanged.
func TestScenario95(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	expect(t, "again", code(b.do(b.c.Create(createRequest("m", "mirror.fetch.max.bytes", "7")))), "CLUSTER_MIRROR_ALREADY_EXISTS")
	if own := b.s.Image().Config(meta.ResourceClusterMirror, "m"); len(own) != 2 || own["bootstrap.servers"] != "h:1" {
		t.Errorf("configs: %v", own)
	}
}

// 96. Create without bootstrap.servers: INVALID_REQUEST. Without source cluster ID: INVALID_REQUEST.
func TestScenario96(t *testing.T) {
	b := newBench(t, 1)
	for i := range 2 {
		r := createRequest("m")
		r.Config = append(r.Config[:i], r.Config[i+1:]...)
		expect(t, r.Config[0].Name+" alone", code(b.do(b.c.Create(r))), "INVALID_REQUEST")
	}
}

// 97. Create with feature level 0: UNSUPPORTED_VERSION. Any other mirror RPC too.
func TestScenario97(t *testing.T) {
	b := newBench(t, 0)
	for _, cmd := range []controller.Command{b.c.Create(createRequest("m")), b.c.Start(startRequest("m", "a")), b.c.Stop(stopRequest("m", "a")),
		b.c.Pause(pauseRequest("m", "a")), b.c.Resume(resumeRequest("m", "a")), b.c.Delete(deleteRequest("m"))} {
		expect(t, "off", code(b.do(cmd)), "UNSUPPORTED_VERSION")
	}
}

// 98. First create makes `__mirror_state` with compaction, configured partitions and RF; second create leaves it alone.
func TestScenario98(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	st := b.s.Image().TopicByName(mirrors.StateTopic)
	if st == nil || len(st.Partitions) != 3 || b.s.Image().Config(meta.ResourceTopic, mirrors.StateTopic)["cleanup.policy"] != "compact" {
		t.Fatalf("%+v", st)
	}
	b.mirror("n")
	if again := b.s.Image().TopicByName(mirrors.StateTopic); again.ID != st.ID {
		t.Error("made anew")
	}
}

// 99. Start, unknown mirror: UNKNOWN_CLUSTER_MIRROR (seed; the prototype does not check).
func TestScenario99(t *testing.T) {
	b := newBench(t, 1)
	expect(t, "start", code(b.do(b.c.Start(startRequest("m", "a")))), "UNKNOWN_CLUSTER_MIRROR")
}

// 100. Start, new topic with ID and 3 partitions: topic created with that ID, 3 partitions, default RF, leader epoch 0, plus one state
// record MIRRORING, all in one batch.
func TestScenario100(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m", "mirror.topics.include", ".*")
	r := startRequest("m", "a")
	r.Topics[0].NumPartitions = 3
	n := b.writes(b.c.Start(r))
	b.must(b.c.Start(r))
	topic := b.s.Image().TopicByName("a")
	if topic == nil || topic.ID != id('a') || len(topic.Partitions) != 3 || len(topic.Partitions[0].Replicas) != 1 || topic.Partitions[0].LeaderEpoch != 0 {
		t.Fatalf("%+v", topic)
	}
	if n != 1+3+1 {
		t.Errorf("%d records, want the topic, its partitions and the wish", n)
	}
	expect(t, "wish", b.wish("a"), "m MIRRORING")
}

// 102. Start, missing topic without partition count: success, no topic, only the pattern is stored.
func TestScenario102(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	r := startRequest("m", "later")
	r.Topics[0].NumPartitions = 0
	res := b.do(b.c.Start(r))
	if expect(t, "start", code(res), ""); len(res.Topics) != 1 || res.Topics[0].Note == "" {
		t.Errorf("nothing says that the topic isn't there: %+v", res.Topics)
	}
	expect(t, "topic", b.wish("later"), "no topic")
	expect(t, "pattern", b.s.Image().Config(meta.ResourceClusterMirror, "m")["mirror.topics.include"], "later")
}

// 103. Start, name exists with another ID: TOPIC_ALREADY_EXISTS. ID exists under another name: TOPIC_ALREADY_EXISTS.
func TestScenario103(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	b.must(b.c.Stop(stopRequest("m", "a")))
	r := startRequest("m", "a")
	r.Topics[0].TopicID = id('z')
	expect(t, "other id", code(b.do(b.c.Start(r))), "TOPIC_ALREADY_EXISTS a:TOPIC_ALREADY_EXISTS")
	r = startRequest("m", "x")
	r.Topics[0].TopicID = id('a')
	expect(t, "other name", code(b.do(b.c.Start(r))), "TOPIC_ALREADY_EXISTS x:TOPIC_ALREADY_EXISTS")
}

// 105. Start, already MIRRORING in this mirror: success, no record. PAUSED: INVALID_CLUSTER_MIRROR_STATES.
func TestScenario105(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	if n := b.writes(b.c.Start(startRequest("m", "a"))); n != 0 {
		t.Errorf("%d records", n)
	}
	b.must(b.c.Pause(pauseRequest("m", "a")))
	expect(t, "paused", code(b.do(b.c.Start(startRequest("m", "a")))), "INVALID_CLUSTER_MIRROR_STATES a:INVALID_CLUSTER_MIRROR_STATES")
}

// 106. Start with one assigned broker fenced: INVALID_REPLICATION_FACTOR, no topic.
func TestScenario106(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	reply := b.run(b.s.RegisterBroker(at(), controller.Registration{ // it is registered, and has not been let in
		BrokerID: 2, ClusterID: "c", Incarnation: ids.UUID{0: 9, 15: 2}, Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 9093}},
		Features: []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 33}, {Name: mirrors.Feature, Max: 1}}, LogDirs: []ids.UUID{{0: 8, 15: 2}},
	}))
	if _, ok := reply.(int64); !ok || !b.s.Image().Broker(2).Fenced {
		t.Fatalf("%v %+v", reply, b.s.Image().Broker(2))
	}
	b.factor = 2
	expect(t, "start", code(b.do(b.c.Start(startRequest("m", "a")))), "INVALID_REPLICATION_FACTOR a:INVALID_REPLICATION_FACTOR")
	expect(t, "topic", b.wish("a"), "no topic")
	b.factor = 1
	b.must(b.c.Start(startRequest("m", "a")))
}

// 107. Start, topic matches an exclude pattern of the same request: INVALID_REQUEST, nothing is written.
func TestScenario107(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	r := startRequest("m", "orders")
	r.ExcludePatterns = []string{"ord.*"}
	expect(t, "excluded", code(b.do(b.c.Start(r))), "INVALID_REQUEST orders:INVALID_REQUEST")
	expect(t, "topic", b.wish("orders"), "no topic")
}

// 110. Start/Stop/Pause/Resume with StateOffset lower than the topic's last change offset: INVALID_CLUSTER_MIRROR_STATES, nothing
// written. Equal or higher: passes. -1: not checked.
func TestScenario110(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	at := b.s.Image().TopicByName("a").MirrorChangeOffset
	with := func(offset int64) map[string]controller.Command {
		start, stop, pause, resume := startRequest("m", "a"), stopRequest("m", "a"), pauseRequest("m", "a"), resumeRequest("m", "a")
		start.StateOffset, stop.StateOffset, pause.StateOffset, resume.StateOffset = offset, offset, offset, offset
		return map[string]controller.Command{"start": b.c.Start(start), "stop": b.c.Stop(stop), "pause": b.c.Pause(pause), "resume": b.c.Resume(resume)}
	}
	for name, cmd := range with(at - 1) {
		if got := code(peek(b, cmd)); got != "INVALID_CLUSTER_MIRROR_STATES" || b.writes(cmd) != 0 {
			t.Errorf("%s below: %q, %d records", name, got, b.writes(cmd))
		}
	}
	for _, offset := range []int64{at, at + 5, -1} {
		for name, cmd := range with(offset) {
			expect(t, name, code(peek(b, cmd)), "")
		}
	}
}

// 111. Stop MIRRORING: desired STOPPED. Stop PAUSED: desired STOPPED (seed). Stop STOPPED: success without record.
func TestScenario111(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a", "b")))
	b.must(b.c.Pause(pauseRequest("m", "b")))
	b.must(b.c.Stop(stopRequest("m", "a", "b")))
	expect(t, "from MIRRORING", b.wish("a"), "m STOPPED")
	expect(t, "from PAUSED", b.wish("b"), "m STOPPED")
	if n := b.writes(b.c.Stop(stopRequest("m", "a", "b"))); n != 0 {
		t.Errorf("%d records", n)
	}
}

// 112. Stop, topic in no mirror: UNKNOWN_CLUSTER_MIRROR; in another: TOPIC_NOT_IN_CLUSTER_MIRROR; missing: UNKNOWN_TOPIC_OR_PARTITION.
func TestScenario112(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.mirror("n")
	b.must(b.c.Start(startRequest("n", "a")))
	expect(t, "others", code(b.do(b.c.Stop(stopRequest("m", "a", "none", mirrors.StateTopic)))),
		"a:TOPIC_NOT_IN_CLUSTER_MIRROR none:UNKNOWN_TOPIC_OR_PARTITION "+mirrors.StateTopic+":UNKNOWN_CLUSTER_MIRROR")
}

// 113. Stop with patterns: pattern leaves include and enters exclude (both).
func TestScenario113(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m", "mirror.topics.include", "a.*,b")
	r := stopRequest("m")
	r.Patterns = []string{"a.*"}
	b.must(b.c.Stop(r))
	own := b.s.Image().Config(meta.ResourceClusterMirror, "m")
	if own["mirror.topics.include"] != "b" || !strings.Contains(own["mirror.topics.exclude"], "a.*") {
		t.Errorf("%v", own)
	}
}

// 114. Pause MIRRORING: desired PAUSED; PAUSED: success; STOPPED: INVALID_CLUSTER_MIRROR_STATES.
// 115. Resume PAUSED: desired MIRRORING; MIRRORING: success; STOPPED: INVALID_CLUSTER_MIRROR_STATES.
func TestScenario114(t *testing.T) { testPauseAndResume(t) }

// 115. See 114.
func TestScenario115(t *testing.T) { testPauseAndResume(t) }

func testPauseAndResume(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	for range 2 {
		b.must(b.c.Pause(pauseRequest("m", "a")))
		expect(t, "pause", b.wish("a"), "m PAUSED")
	}
	for range 2 {
		b.must(b.c.Resume(resumeRequest("m", "a")))
		expect(t, "resume", b.wish("a"), "m MIRRORING")
	}
	b.must(b.c.Stop(stopRequest("m", "a")))
	expect(t, "pause of STOPPED", code(b.do(b.c.Pause(pauseRequest("m", "a")))), "a:INVALID_CLUSTER_MIRROR_STATES")
	expect(t, "resume of STOPPED", code(b.do(b.c.Resume(resumeRequest("m", "a")))), "a:INVALID_CLUSTER_MIRROR_STATES")
}

// 116. Delete with a topic desired MIRRORING or PAUSED: INVALID_CLUSTER_MIRROR_STATES. All STOPPED: each topic record with null mirror,
// all configs removed, one atomic batch.
func TestScenario116(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a", "b")))
	expect(t, "MIRRORING", code(b.do(b.c.Delete(deleteRequest("m")))), "INVALID_CLUSTER_MIRROR_STATES")
	b.must(b.c.Stop(stopRequest("m", "a")))
	b.must(b.c.Pause(pauseRequest("m", "b")))
	expect(t, "PAUSED", code(b.do(b.c.Delete(deleteRequest("m")))), "INVALID_CLUSTER_MIRROR_STATES")
	b.must(b.c.Stop(stopRequest("m", "b")))
	b.must(b.c.Delete(deleteRequest("m")))
	expect(t, "topic", b.wish("a"), " "+mirrormsg.Unknown.String())
	if own := b.s.Image().Config(meta.ResourceClusterMirror, "m"); len(own) != 0 {
		t.Errorf("configs: %v", own)
	}
}

// 117. Delete, unknown mirror: UNKNOWN_CLUSTER_MIRROR. Changed after StateOffset: INVALID_CLUSTER_MIRROR_STATES.
func TestScenario117(t *testing.T) {
	b := newBench(t, 1)
	expect(t, "unknown", code(b.do(b.c.Delete(deleteRequest("m")))), "UNKNOWN_CLUSTER_MIRROR")
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	b.must(b.c.Stop(stopRequest("m", "a")))
	r := deleteRequest("m")
	r.StateOffset = b.s.Image().TopicByName("a").MirrorChangeOffset - 1
	expect(t, "changed", code(b.do(b.c.Delete(r))), "INVALID_CLUSTER_MIRROR_STATES")
}

// 118. BumpLeaderEpochs with minimum below the current epoch: no record. Equal or above: new epoch = minimum + 1, leader and ISR
// unchanged, partition epoch + 1.
func TestScenario118(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	bump := func(minimum int32) int {
		t.Helper()
		r := b.s.BumpLeaderEpochs(at(), []controller.EpochBump{{Topic: "a", Partition: 1, Min: minimum}})
		n := len(r.Records)
		for _, err := range b.run(r).([]*api.Error) {
			if err != nil {
				t.Errorf("minimum %d: %v", minimum, err)
			}
		}
		return n
	}
	part := func() meta.Partition { return *b.s.Image().TopicByName("a").Partition(1) }
	was := part()
	if n := bump(was.LeaderEpoch - 1); n != 0 || part().LeaderEpoch != was.LeaderEpoch {
		t.Errorf("below: %d records, %+v", n, part())
	}
	for _, minimum := range []int32{was.LeaderEpoch, 41} {
		was := part()
		n, now := bump(minimum), part()
		if n != 1 || now.LeaderEpoch != minimum+1 || now.Leader != was.Leader || !slices.Equal(now.ISR, was.ISR) || now.PartitionEpoch != was.PartitionEpoch+1 {
			t.Errorf("minimum %d: %d records, %+v after %+v", minimum, n, now, was)
		}
	}
	if other := b.s.Image().TopicByName("a").Partition(0); other.LeaderEpoch != 0 {
		t.Errorf("another partition: %+v", other)
	}
}

// 57. Delete mirror: mirror topic, one CLUSTER_MIRROR config resource listed; stop, STOPPED, delete; mirror not listed, no config
// resource. (The tombstones in `__mirror_state` are the coordinator's part.)
func TestScenario57(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	listed := func() (names []string) {
		for name := range b.s.Image().Configs(meta.ResourceClusterMirror) {
			names = append(names, name)
		}
		return names
	}
	if got := listed(); !slices.Equal(got, []string{"m"}) {
		t.Fatal(got)
	}
	expect(t, "before the stop", code(b.do(b.c.Delete(deleteRequest("m")))), "INVALID_CLUSTER_MIRROR_STATES")
	b.must(b.c.Stop(stopRequest("m", "a")))
	b.must(b.c.Delete(deleteRequest("m")))
	if got := listed(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	expect(t, "topic", b.wish("a"), " UNKNOWN")
}

// 151. mirror.version lowered with existing mirrors: refused, or mirror topics stay read-only.
func TestScenario151(t *testing.T) {
	b := newBench(t, 1)
	lower := func() string {
		t.Helper()
		r := b.s.UpdateFeatures(at(), []controller.FeatureUpdate{{Name: mirrors.Feature, Level: 0, Kind: controller.DowngradeFeature}}, false)
		for _, err := range r.Reply.([]*api.Error) {
			if err != nil {
				return err.Code.Name()
			}
		}
		b.run(r)
		return ""
	}
	b.mirror("m")
	b.must(b.c.Start(startRequest("m", "a")))
	expect(t, "with a mirror", lower(), "INVALID_UPDATE_VERSION")
	if level := b.s.Image().Feature(mirrors.Feature); level != 1 {
		t.Errorf("level %d", level)
	}
	b.must(b.c.Stop(stopRequest("m", "a")))
	expect(t, "with a stopped mirror", lower(), "INVALID_UPDATE_VERSION")
	b.must(b.c.Delete(deleteRequest("m")))
	expect(t, "without mirrors", lower(), "")
}

// 137. Two operators: pause and stop at the same time; one wins, the other gets INVALID_CLUSTER_MIRROR_STATES; state never mixes.
func TestScenario137(t *testing.T) {
	for _, stopFirst := range []bool{true, false} {
		b := newBench(t, 1)
		b.mirror("m")
		b.must(b.c.Start(startRequest("m", "a")))
		stop, pause := stopRequest("m", "a"), pauseRequest("m", "a")
		pause.StateOffset = b.next - 1 // both saw the same metadata
		stop.StateOffset = pause.StateOffset
		first, second, want := b.c.Stop(stop), b.c.Pause(pause), "m STOPPED"
		if !stopFirst {
			first, second, want = second, first, "m PAUSED"
		}
		b.must(first)
		expect(t, "the second", code(b.do(second)), "INVALID_CLUSTER_MIRROR_STATES")
		expect(t, "wish", b.wish("a"), want)
	}
}
