package mirrors_test

import (
	"strings"
	"testing"

	"milena/internal/controller"
	"milena/internal/controller/mirrors"
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
