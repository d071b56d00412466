package mirrors_test

import (
	"strings"
	"testing"

	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// A start by name of a topic that the source does not have yet is taken back by a stop of that name; a name that was never started is an
// unknown topic.
func TestStopWithdrawsAStart(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m", "mirror.topics.include", "orders.*")
	r := startRequest("m", "later", "b.c")
	r.Topics[0].NumPartitions, r.Topics[1].NumPartitions = 0, 0
	b.must(b.c.Start(r))
	include := func() string { return b.s.Image().Config(meta.ResourceClusterMirror, "m")["mirror.topics.include"] }
	expect(t, "include after the start", include(), "orders.*,later,b.c")
	res := b.do(b.c.Stop(stopRequest("m", "later", "never")))
	expect(t, "stop", code(res), "never:UNKNOWN_TOPIC_OR_PARTITION")
	if note := res.Topics[0].Note; !strings.Contains(note, "withdrawn") {
		t.Errorf("the stop says %q", note)
	}
	expect(t, "include after the stop", include(), "orders.*,b.c")
	expect(t, "stop again", code(b.do(b.c.Stop(stopRequest("m", "later")))), "later:UNKNOWN_TOPIC_OR_PARTITION")
	// A name that a pattern finds as well can't be taken back so.
	r = startRequest("m")
	r.IncludePatterns = []string{"b.*"}
	b.must(b.c.Start(r))
	expect(t, "stop of what a pattern finds", code(b.do(b.c.Stop(stopRequest("m", "b.c")))), "b.c:UNKNOWN_TOPIC_OR_PARTITION")
	// With a topic of the name here nothing is withdrawn: that one is stopped.
	r = startRequest("m", "b.c")
	b.must(b.c.Start(r))
	b.must(b.c.Stop(stopRequest("m", "b.c")))
	expect(t, "wish", b.wish("b.c"), "m "+mirrormsg.Stopped.String())
	expect(t, "include with the topic here", include(), "orders.*,b.c,b.*")
}
