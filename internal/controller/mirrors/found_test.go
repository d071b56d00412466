package mirrors_test

import "testing"

// What a mirror's owner has found by patterns is started only if the patterns still want it when the controller decides: a stop that took a
// name or a pattern back in between holds, and so does one of the topic itself.
func TestFoundTopicsByThePatternsOfNow(t *testing.T) {
	b := newBench(t, 1)
	b.mirror("m", "mirror.topics.include", "a.*,late,b.*,c.*")
	found := startRequest("m", "a1", "late", "b1", "c1")
	stop := stopRequest("m", "late")
	stop.Patterns = []string{"b.*"}
	b.must(b.c.Stop(stop))
	b.must(b.c.Start(startRequest("m", "c1")))
	b.must(b.c.Stop(stopRequest("m", "c1")))
	b.must(b.c.StartFound(found))
	for topic, want := range map[string]string{"a1": "m MIRRORING", "late": "no topic", "b1": "no topic", "c1": "m STOPPED"} {
		expect(t, topic, b.wish(topic), want)
	}
	// An exclude list that was cleared in between stops nothing.
	excluded := stopRequest("m", "a1")
	b.must(b.c.StopExcluded(excluded))
	expect(t, "not excluded", b.wish("a1"), "m MIRRORING")
	r := stopRequest("m")
	r.Patterns = []string{"a.*"}
	b.must(b.c.Stop(r))
	expect(t, "before", b.wish("a1"), "m MIRRORING")
	b.must(b.c.StopExcluded(excluded))
	expect(t, "excluded", b.wish("a1"), "m STOPPED")
}
