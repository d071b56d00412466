package mirror_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/mirroradm"
)

// values reads a topic's partition 0 from its start to its end, as a consumer does.
func (c *cluster) values(topic string, more ...kgo.Opt) (out []string) {
	c.t.Helper()
	end := c.end(topic, 0)
	cl, err := kgo.NewClient(append(more, kgo.SeedBrokers(c.addr), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	for at := int64(0); at < end; {
		fs := cl.PollFetches(c.t.Context())
		if err := fs.Err(); err != nil {
			c.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if at = r.Offset + 1; !r.Attrs.IsControl() {
				out = append(out, string(r.Value))
			}
		})
	}
	return out
}

// say produces one record for each value.
func (c *cluster) say(topic string, values ...string) {
	c.t.Helper()
	if err := c.trySay(topic, values...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) trySay(topic string, values ...string) error {
	var rs []*kgo.Record
	for _, v := range values {
		rs = append(rs, &kgo.Record{Topic: topic, Value: []byte(v)})
	}
	return c.cl.ProduceSync(c.t.Context(), rs...).FirstErr()
}

// refuses checks that clients can't write to a topic.
func (c *cluster) refuses(topic string) {
	c.t.Helper()
	if err := c.trySay(topic, "refused"); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		c.t.Errorf("a produce to %s: %v", topic, err)
	}
}

func (c *cluster) holds(topic string, want ...string) {
	c.t.Helper()
	if got := c.values(topic); !slices.Equal(got, want) {
		c.t.Errorf("%s holds %v, want %v", topic, got, want)
	}
}

// topics are the names of the topics there are, internal ones left out.
func (c *cluster) topics() []string {
	c.t.Helper()
	ts, err := c.adm.ListTopics(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return ts.Names()
}

// awaitTopic waits until a topic is mirrored and level.
func (c *cluster) awaitTopic(mirror, topic string) {
	c.t.Helper()
	c.await(mirror, topic, 0, level)
}

// config is what a topic has set for a key, "" if nothing.
func (c *cluster) config(topic, key string) string {
	c.t.Helper()
	rs, err := c.adm.DescribeTopicConfigs(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, x := range rs[0].Configs {
		if x.Key == key && x.Source == kmsg.ConfigSourceDynamicTopicConfig {
			return *x.Value
		}
	}
	return ""
}

func (c *cluster) mirrors() (names []string) {
	c.t.Helper()
	ms, err := c.mir.List(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range ms {
		names = append(names, m.Name)
	}
	return names
}

// startWith starts what patterns match.
func (c *cluster) startWith(mirror string, include, exclude []string) {
	c.t.Helper()
	if _, err := c.mir.Start(c.t.Context(), mirror, nil, include, exclude); err != nil {
		c.t.Fatal(err)
	}
}

// some are n values that begin with a prefix.
func some(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// 1. Basic failover and failback (older form): topic 1P RF2, 3 records on A; create mirror, start, wait lag 0, try to produce to B, stop,
// produce 1 to B, 2 to A, then mirror back B to A; B has 3 records, the produce to B while mirroring is refused, after stop B accepts 1
// record, A's 2 unmirrored records vanish, A ends with 4 records.
func TestScenario1(t *testing.T) {
	a, b := pair(t)
	a.say("t", "1", "2", "3")
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 3)
	b.refuses("t")
	b.holds("t", "1", "2", "3")
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	b.say("t", "b")
	a.say("t", "lost 1", "lost 2")
	a.mirror("m", b)
	a.begin("m", "t")
	a.awaitTopic("m", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.holds("t", "1", "2", "3", "b")
}

// 2. Failover and failback with different mirror names (current form): 3 records, rolling restart of A (raises epoch), 3 more; mirror
// a-to-b, lag 0; B has 6; stop, STOPPED; produce 1 to B and 2 to A (A has 8); on A create b-to-a, start, lag 0; A ends with 7 records (2
// unmirrored ones truncated, 1 new), and A's broker log shows an LME answer for P0 with epoch >= 1 (newer: and last offset 6).
func TestScenario2(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("a", 3)...)
	a.restart()
	a.say("t", some("b", 3)...)
	b.mirror("a-to-b", a)
	b.begin("a-to-b", "t")
	b.awaitEnd("t", 0, 6)
	b.stop("a-to-b", "t")
	b.awaitState("a-to-b", "t", "STOPPED")
	b.say("t", "new")
	a.say("t", "lost", "lost")
	ds, err := b.mir.DescribeWith(t.Context(), mirroradm.DescribeOptions{SourceClusterID: a.n.ClusterID(), State: true})
	if err != nil || len(ds) != 1 || len(ds[0].Partitions) != 1 || ds[0].Partitions[0].LastMirrorEpoch < 1 || ds[0].Partitions[0].LastMirrorOffset != 6 {
		t.Errorf("last mirror epoch and offset: %+v, %v", ds, err)
	}
	a.mirror("b-to-a", b)
	a.begin("b-to-a", "t")
	a.awaitTopic("b-to-a", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.holds("t", append(append(some("a", 3), some("b", 3)...), "new")...)
	a.same(b, "t", 0, 0)
}

// 3. Pause and resume: 3 records mirrored; pause, produce 1 to A; state PAUSED, B still has 3, produce to B is refused; resume: MIRRORING,
// lag 0, B has 4.
func TestScenario3(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("v", 3)...)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 3)
	if rs, err := b.mir.Pause(t.Context(), "m", []string{"t"}); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	b.awaitState("m", "t", "PAUSED")
	a.say("t", "4")
	b.refuses("t")
	b.holds("t", some("v", 3)...)
	if rs, err := b.mir.Resume(t.Context(), "m", []string{"t"}); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	b.awaitEnd("t", 0, 4)
	b.awaitTopic("m", "t")
}

// 5. Mirror deletion: topic MIRRORING; delete mirror; then stop, wait STOPPED, delete again; first delete fails and the mirror is still
// listed, second succeeds and it is gone from the list.
func TestScenario5(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitState("m", "t", "MIRRORING")
	if err := b.mir.Delete(t.Context(), "m"); !hasCode(err, "INVALID_CLUSTER_MIRROR_STATES") {
		t.Errorf("first delete: %v", err)
	}
	if ms := b.mirrors(); !slices.Equal(ms, []string{"m"}) {
		t.Errorf("mirrors: %v", ms)
	}
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	if err := b.mir.Delete(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if ms := b.mirrors(); len(ms) != 0 {
		t.Errorf("mirrors: %v", ms)
	}
}

// 6. Source topic deletion: topic MIRRORING; delete topic on A, wait a refresh; all partitions of the topic FAILED.
func TestScenario6(t *testing.T) { deletedAtTheSource(t) }

// 59. Deleted source topic: MIRRORING; delete on A; FAILED with retry attempt -1, and it stays so over three refreshes.
func TestScenario59(t *testing.T) {
	a, b := deletedAtTheSource(t)
	for i := range 3 { // what is found by a refresh shows that there was one
		probe := fmt.Sprintf("probe%d", i)
		a.topic(probe, 1)
		b.awaitTopic("m", probe)
		if p, err := b.state("m", "t", 0); err != nil || p.State != "FAILED" || p.RetryAttempt != -1 {
			t.Errorf("after refresh %d: %+v, %v", i+1, p, err)
		}
	}
}

func deletedAtTheSource(t *testing.T) (a, b *cluster) {
	a, b = pair(t)
	a.topic("more", 2)
	b.mirror("m", a, "mirror.topics.include", "probe.*")
	b.begin("m", "t", "more")
	b.awaitState("m", "t", "MIRRORING")
	b.await("m", "more", 1, level)
	if _, err := a.adm.DeleteTopics(t.Context(), "t", "more"); err != nil {
		t.Fatal(err)
	}
	for topic, n := range map[string]int32{"t": 1, "more": 2} {
		for i := range n {
			b.await("m", topic, i, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
		}
	}
	return a, b
}

// 7. Topic filtering by start command: four topics orders-us, orders-eu, orders-internal, payments with 3, 3, 2, 2 records; start
// orders-.* with exclude orders-internal; only orders-us and orders-eu exist on B with 3 records each.
func TestScenario7(t *testing.T) {
	filtered(t, func(b *cluster) { b.startWith("m", []string{"orders-.*"}, []string{"orders-internal"}) })
}

// 9. (continues 7) Create orders-jp on A with 3 records; it is discovered, MIRRORING, lag 0, 3 records on B.
func TestScenario9(t *testing.T) {
	discovered(t, func(b *cluster) { b.startWith("m", []string{"orders-.*"}, []string{"orders-internal"}) })
}

// 11. Same as 7 and 9 but include and exclude are set with the config tool before any start command (newer); same results, discovery alone
// starts the topics.
func TestScenario11(t *testing.T) {
	discovered(t, func(b *cluster) {
		b.alterMirror("m", kadm.AlterConfig{Op: kadm.SetConfig, Name: "mirror.topics.include", Value: kadm.StringPtr("orders-.*")},
			kadm.AlterConfig{Op: kadm.SetConfig, Name: "mirror.topics.exclude", Value: kadm.StringPtr("orders-internal")})
	})
}

func discovered(t *testing.T, begin func(b *cluster)) {
	a, b := filtered(t, begin)
	a.topic("orders-jp", 1)
	a.say("orders-jp", some("jp", 3)...)
	b.awaitTopic("m", "orders-jp")
	b.awaitEnd("orders-jp", 0, 3)
}

func filtered(t *testing.T, begin func(b *cluster)) (a, b *cluster) {
	a, b = newCluster(t, "source"), newCluster(t, "destination")
	for topic, n := range map[string]int{"orders-us": 3, "orders-eu": 3, "orders-internal": 2, "payments": 2} {
		a.topic(topic, 1)
		a.say(topic, some(topic, n)...)
	}
	b.mirror("m", a)
	begin(b)
	for _, topic := range []string{"orders-us", "orders-eu"} {
		b.awaitTopic("m", topic)
		b.awaitEnd(topic, 0, 3)
		b.holds(topic, some(topic, 3)...)
	}
	if got := b.topics(); !slices.Equal(got, []string{"orders-eu", "orders-us"}) {
		t.Errorf("topics on B: %v", got)
	}
	return a, b
}

// 12. Topic property exclusion: mirror with properties exclude = retention.bytes, min.insync.replicas; change retention.ms,
// retention.bytes, min.insync.replicas on A, wait a refresh; retention.ms is equal on B, the other two are not.
func TestScenario12(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a, "mirror.topic.properties.exclude", "retention.bytes,min.insync.replicas")
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.setTopic("t", "retention.bytes", "123456")
	a.setTopic("t", "min.insync.replicas", "1")
	a.setTopic("t", "retention.ms", "654321")
	eventually(t, func() error {
		if v := b.config("t", "retention.ms"); v != "654321" {
			return fmt.Errorf("retention.ms is %q", v)
		}
		return nil
	})
	for _, key := range []string{"retention.bytes", "min.insync.replicas"} {
		if v := b.config("t", key); v != "" {
			t.Errorf("%s is %q on B", key, v)
		}
	}
}

// 13. Group filtering: groups app-group1, app-group2, internal-group1 committed on A; mirror with groups include app-.*, exclude app-group2;
// after a refresh B lists only app-group1.
func TestScenario13(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("v", 5)...)
	for _, g := range []string{"app-group1", "app-group2", "internal-group1"} {
		a.commit(g, "t", 3, "")
	}
	b.mirror("m", a, "mirror.groups.include", "app-.*", "mirror.groups.exclude", "app-group2")
	b.begin("m", "t")
	b.awaitCommitted("app-group1", "t", 3)
	a.commit("app-last", "t", 1, "") // another sync
	b.awaitCommitted("app-last", "t", 1)
	gs, err := b.adm.ListGroups(t.Context())
	if got := gs.Groups(); err != nil || !slices.Equal(got, []string{"app-group1", "app-last"}) {
		t.Errorf("groups on B: %v, %v", got, err)
	}
}

// 20. Consumer group sync: my-topic and other-topic, group committed on both at 3; mirror only my-topic; after a refresh B's group shows
// my-topic and not other-topic.
func TestScenario20(t *testing.T) { groupSync(t) }

// 21. (continues 20) Two more records consumed on A, lag 0, refresh, stop; B's committed offset for my-topic is 5.
func TestScenario21(t *testing.T) {
	a, b := groupSync(t)
	a.say("my-topic", "4", "5")
	a.commit("g", "my-topic", 5, "")
	b.awaitEnd("my-topic", 0, 5)
	b.awaitCommitted("g", "my-topic", 5)
	b.stop("m", "my-topic")
	b.awaitState("m", "my-topic", "STOPPED")
	if at, _ := b.committed("g", "my-topic"); at != 5 {
		t.Errorf("committed: %d", at)
	}
}

func groupSync(t *testing.T) (a, b *cluster) {
	a, b = newCluster(t, "source"), newCluster(t, "destination")
	for _, topic := range []string{"my-topic", "other-topic"} {
		a.topic(topic, 1)
		a.say(topic, some("v", 3)...)
		a.commit("g", topic, 3, "")
	}
	b.mirror("m", a)
	b.begin("m", "my-topic")
	b.awaitCommitted("g", "my-topic", 3)
	if at, _ := b.committed("g", "other-topic"); at != -1 {
		t.Errorf("the offset of a topic that isn't mirrored: %d", at)
	}
	return a, b
}

// 28. Failed retry: 3P RF1 topic, 3 records, MIRRORING; stop all A brokers; start them again; partitions become FAILED, then MIRRORING by
// automatic retry; 3 more records arrive, B has 6.
func TestScenario28(t *testing.T) { sourceReturns(t, 3) }

// 61. Automatic recovery: shut A down, FAILED; start A; lag 0 again without operator; 20 more records arrive (40).
func TestScenario61(t *testing.T) { sourceReturns(t, 20) }

func sourceReturns(t *testing.T, n int) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	a.topic("t", 3)
	b.mirror("m", a)
	b.begin("m", "t")
	for i := range int32(3) {
		a.produce("t", i, n)
		b.awaitEnd("t", i, int64(n))
	}
	a.kill()
	for i := range int32(3) {
		b.await("m", "t", i, func(p mirroradm.Partition) bool { return p.State == "FAILED" })
	}
	a.start()
	for i := range int32(3) {
		b.await("m", "t", i, level)
		a.produce("t", i, n)
		b.awaitEnd("t", i, int64(2*n))
	}
}

// 42. Async smoke: 50 records; start; lag 0; 50 more; B consumer gets 100.
func TestScenario42(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("a", 50)...)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.say("t", some("b", 50)...)
	b.awaitEnd("t", 0, 100)
	b.holds("t", append(some("a", 50), some("b", 50)...)...)
}

// 43. Failover and failback with LME lookup: 10 records mirrored a-to-b, stop, 5 on B; describe on B with A's cluster ID and the topic
// partition; exactly one result, for that partition, with LME >= 0; start b-to-a on A: 15 records readable on A.
func TestScenario43(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("a", 10)...)
	b.mirror("a-to-b", a)
	b.begin("a-to-b", "t")
	b.awaitEnd("t", 0, 10)
	b.stop("a-to-b", "t")
	b.awaitState("a-to-b", "t", "STOPPED")
	b.say("t", some("b", 5)...)
	ds, err := b.mir.DescribeWith(t.Context(), mirroradm.DescribeOptions{SourceClusterID: a.n.ClusterID(), State: true, Topics: map[string][]int32{"t": {0}}})
	if err != nil || len(ds) != 1 || len(ds[0].Partitions) != 1 || ds[0].Partitions[0].Topic != "t" || ds[0].Partitions[0].LastMirrorEpoch < 0 {
		t.Errorf("describe: %+v, %v", ds, err)
	}
	a.mirror("b-to-a", b)
	a.begin("b-to-a", "t")
	a.awaitTopic("b-to-a", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.holds("t", append(some("a", 10), some("b", 5)...)...)
}

// 46. Include regex, then append: mirror created with include orders-.*, no start call; orders-us is discovered (30 records); append
// events-.* by altering the config: events-click is discovered (20).
func TestScenario46(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	a.topic("orders-us", 1)
	a.say("orders-us", some("o", 30)...)
	a.topic("events-click", 1)
	a.say("events-click", some("e", 20)...)
	b.mirror("m", a, "mirror.topics.include", "orders-.*")
	b.awaitTopic("m", "orders-us")
	b.awaitEnd("orders-us", 0, 30)
	b.alterMirror("m", kadm.AlterConfig{Op: kadm.AppendConfig, Name: "mirror.topics.include", Value: kadm.StringPtr("events-.*")})
	b.awaitTopic("m", "events-click")
	b.awaitEnd("events-click", 0, 20)
}

// discovers checks that of the topics a mirror with these configs finds the wanted ones, and not the others over three refreshes.
func discovers(t *testing.T, topics map[string]int, configs []string, want ...string) (a, b *cluster) {
	a, b = newCluster(t, "source"), newCluster(t, "destination")
	for topic, n := range topics {
		a.topic(topic, 1)
		a.say(topic, some("v", n)...)
	}
	b.mirror("m", a, configs...)
	for _, topic := range want {
		b.awaitTopic("m", topic)
		b.awaitEnd(topic, 0, int64(topics[topic]))
	}
	for i := range 3 { // what is found by a refresh shows that there was one
		probe := fmt.Sprintf("%s%d", want[0], i)
		a.topic(probe, 1)
		want = append(want, probe)
		b.awaitTopic("m", probe)
	}
	slices.Sort(want)
	if got := b.topics(); !slices.Equal(got, want) {
		t.Errorf("topics on B: %v, want %v", got, want)
	}
	return a, b
}

// 47. Include and exclude: include orders-.*, exclude orders-internal; only orders-us is mirrored, the excluded topic stays empty/absent over
// three refreshes.
func TestScenario47(t *testing.T) {
	discovers(t, map[string]int{"orders-us": 3, "orders-internal": 2}, []string{"mirror.topics.include", "orders-.*", "mirror.topics.exclude", "orders-internal"}, "orders-us")
}

// 49. Default exclude: include .*, no exclude; user-events is mirrored, __test-internal is not.
func TestScenario49(t *testing.T) {
	discovers(t, map[string]int{"user-events": 3, "__test-internal": 2}, []string{"mirror.topics.include", ".*"}, "user-events")
}

// 50. Literal include: include payments; 40 records arrive.
func TestScenario50(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	a.topic("payments", 1)
	a.say("payments", some("p", 40)...)
	b.mirror("m", a, "mirror.topics.include", "payments")
	b.awaitTopic("m", "payments")
	b.awaitEnd("payments", 0, 40)
}

// 51. Literal and regex include: payments,orders-.*; payments (20) and orders-eu (15) arrive, logs-app does not.
func TestScenario51(t *testing.T) {
	discovers(t, map[string]int{"orders-eu": 15, "payments": 20, "logs-app": 3}, []string{"mirror.topics.include", "payments,orders-.*"}, "orders-eu", "payments")
}

// 53. Start with include patterns: mirror without include; start topic with include pattern orders-.*; 30 records arrive and the mirror's
// stored include list contains the pattern.
func TestScenario53(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	a.topic("orders-us", 1)
	a.say("orders-us", some("o", 30)...)
	b.mirror("m", a)
	b.startWith("m", []string{"orders-.*"}, nil)
	b.awaitTopic("m", "orders-us")
	b.awaitEnd("orders-us", 0, 30)
	cs, err := b.mir.Configs(t.Context(), "m")
	if err != nil || !slices.ContainsFunc(cs, func(c mirroradm.Config) bool {
		return c.Key == "mirror.topics.include" && c.Value != nil && strings.Contains(*c.Value, "orders-.*")
	}) {
		t.Errorf("configs: %+v, %v", cs, err)
	}
}

// 63. Create partitions on a non-mirror topic while a mirror exists: allowed, count becomes 2.
func TestScenario63(t *testing.T) { createPartitions(t, "other") }

// 64. Create partitions, mixed request: the mirror topic (MIRRORING) is refused (with Milena's numbers by POLICY_VIOLATION, D10) and keeps 1
// partition, the other topic gets 2.
func TestScenario64(t *testing.T) { createPartitions(t, "t", "other") }

func createPartitions(t *testing.T, topics ...string) {
	a, b := pair(t)
	b.topic("other", 1)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	rs, err := b.adm.CreatePartitions(t.Context(), 1, topics...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if refused := r.Err != nil && strings.Contains(r.Err.Error(), "POLICY_VIOLATION"); refused != (r.Topic == "t") {
			t.Errorf("topic %s: %v", r.Topic, r.Err)
		}
	}
	ts, err := b.adm.ListTopics(t.Context())
	if err != nil || len(ts["other"].Partitions) != 2 || len(ts["t"].Partitions) != 1 {
		t.Errorf("topics: %v, %v", ts, err)
	}
}

// 66. Delete topics, mixed request: the mirror topic is refused, the other is deleted.
func TestScenario66(t *testing.T) { deleteTopics(t) }

// 67. Delete a mirror topic: refused while MIRRORING; allowed when STOPPED.
func TestScenario67(t *testing.T) {
	b := deleteTopics(t)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	if rs, err := b.adm.DeleteTopics(t.Context(), "t"); err != nil || rs["t"].Err != nil {
		t.Errorf("delete when STOPPED: %v, %v", rs, err)
	}
}

func deleteTopics(t *testing.T) *cluster {
	a, b := pair(t)
	b.topic("other", 1)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	rs, err := b.adm.DeleteTopics(t.Context(), "t", "other")
	if err != nil || rs["other"].Err != nil || rs["t"].Err == nil || !strings.Contains(rs["t"].Err.Error(), "POLICY_VIOLATION") {
		t.Errorf("delete: %v, %v", rs, err)
	}
	if got := b.topics(); !slices.Equal(got, []string{"t"}) {
		t.Errorf("topics: %v", got)
	}
	return b
}

// 69. Delete records on a non-mirror topic while a mirror exists: allowed.
func TestScenario69(t *testing.T) {
	a, b := pair(t)
	b.topic("other", 1)
	b.say("other", some("v", 4)...)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.trim("other", 3)
	if at := b.first("other"); at != 3 {
		t.Errorf("log start %d", at)
	}
}

// 130. Failover while the source is dead and partitions are FAILED: stop works, all partitions become STOPPED and writable.
func TestScenario130(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination")
	a.topic("t", 2)
	b.mirror("m", a)
	b.begin("m", "t")
	for i := range int32(2) {
		a.produce("t", i, 5)
		b.awaitEnd("t", i, 5)
	}
	a.kill()
	for i := range int32(2) {
		b.await("m", "t", i, func(p mirroradm.Partition) bool { return p.State == "FAILED" })
	}
	b.stop("m", "t")
	for i := range int32(2) {
		b.await("m", "t", i, func(p mirroradm.Partition) bool { return p.State == "STOPPED" })
		b.produce("t", i, 1)
	}
}

// 132. After failover, change configs, group offsets and ACLs on the old source: stopped topics on B are not touched.
func TestScenario132(t *testing.T) {
	a, b := pair(t)
	a.topic("active", 1)
	a.say("t", some("v", 5)...)
	a.commit("g", "t", 2, "")
	a.setTopic("t", "retention.ms", "1000000")
	b.mirror("m", a)
	b.begin("m", "t", "active")
	b.awaitCommitted("g", "t", 2)
	b.awaitTopic("m", "active")
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	a.setTopic("t", "retention.ms", "2000000")
	a.commit("g", "t", 4, "")
	a.say("active", "x")
	a.setTopic("active", "retention.ms", "3000000")
	a.commit("g", "active", 1, "")
	b.awaitCommitted("g", "active", 1)
	eventually(t, func() error {
		if v := b.config("active", "retention.ms"); v != "3000000" {
			return fmt.Errorf("retention.ms of the active topic is %q", v)
		}
		return nil
	})
	if at, _ := b.committed("g", "t"); at != 2 || b.config("t", "retention.ms") != "1000000" {
		t.Errorf("the stopped topic: committed %d, retention.ms %s", at, b.config("t", "retention.ms"))
	}
}

// 147. One unreachable source among several mirrors: the others' refresh is not delayed.
func TestScenario147(t *testing.T) {
	a, b := pair(t)
	b.mirrorAt("dead", "127.0.0.1:1", "nowhere", "mirror.topics.include", ".*")
	b.mirror("m", a, "mirror.topics.include", "found.*")
	for i := range 3 {
		topic := fmt.Sprintf("found%d", i)
		a.topic(topic, 1)
		b.awaitTopic("m", topic)
	}
}

// 150. Restart of all B brokers: every partition returns to its former state; no truncation for MIRRORING or PAUSED partitions.
func TestScenario150(t *testing.T) {
	a, b := pair(t)
	a.topic("paused", 1)
	a.topic("stopped", 1)
	for _, topic := range []string{"t", "paused", "stopped"} {
		a.say(topic, some(topic, 4)...)
	}
	b.mirror("m", a)
	b.begin("m", "t", "paused", "stopped")
	for _, topic := range []string{"t", "paused", "stopped"} {
		b.awaitEnd(topic, 0, 4)
	}
	if rs, err := b.mir.Pause(t.Context(), "m", []string{"paused"}); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	b.stop("m", "stopped")
	b.awaitState("m", "paused", "PAUSED")
	b.awaitState("m", "stopped", "STOPPED")
	b.kill() // TestRestarts has a clean one
	b.start()
	for topic, want := range map[string]string{"t": "MIRRORING", "paused": "PAUSED", "stopped": "STOPPED"} {
		b.awaitState("m", topic, want)
		b.holds(topic, some(topic, 4)...)
	}
	if cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{}); err != nil || len(cuts) != 0 {
		t.Errorf("cuts: %+v, %v", cuts, err)
	}
}

// 157. Expand partitions on the source: new partitions appear on B within a refresh and mirror from offset 0.
func TestScenario157(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	if rs, err := a.adm.CreatePartitions(t.Context(), 2, "t"); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	eventually(t, func() error {
		return a.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 2, Value: []byte("x")}).FirstErr()
	})
	b.await("m", "t", 2, level)
	b.awaitEnd("t", 2, 1)
}

// 166. The source comes back empty (disk lost) under the same cluster ID: what the standby cuts is set aside, counted and can be listed and
// produced again; with mirror.max.cut.records=0 the partition is FAILED instead and nothing is cut.
func TestScenario166(t *testing.T) {
	a, b := pair(t)
	a.topic("kept", 1)
	for _, topic := range []string{"t", "kept"} {
		a.say(topic, some(topic, 6)...)
	}
	b.mirror("m", a)
	b.mirror("careful", a, "mirror.max.cut.records", "0")
	b.begin("m", "t")
	b.begin("careful", "kept")
	b.awaitEnd("t", 0, 6)
	b.awaitEnd("kept", 0, 6)
	a.cutSource("t", 0)
	a.cutSource("kept", 0)
	p := b.awaitState("careful", "kept", "FAILED")
	if p.RetryAttempt != -1 || !strings.Contains(p.LastError, "6 records would be cut, mirror.max.cut.records allows 0") {
		t.Errorf("reason: %+v", p)
	}
	b.awaitEnd("t", 0, 0)
	b.awaitTopic("m", "t")
	if end := b.end("kept", 0); end != 6 {
		t.Errorf("kept ends at %d", end)
	}
	cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{})
	if err != nil || len(cuts) != 1 || cuts[0].Topic != "t" || cuts[0].Records != 6 {
		t.Fatalf("cuts: %+v, %v", cuts, err)
	}
	b.topic("again", 1)
	for r, err := range b.mir.CutRecords(t.Context(), cuts) {
		if err != nil {
			t.Fatal(err)
		}
		b.say("again", string(r.Value))
	}
	b.holds("again", some("t", 6)...)
}

// 176. Stop, then start again in the same direction: with nothing written on B in between only the ABORT markers and the PID reset are cut and
// nothing is copied again; with 3 records written on B those are set aside, listed, and B equals A. The same after a whole forward, reverse,
// forward cycle.
func TestScenario176(t *testing.T) {
	a, b := pair(t)
	a.say("t", some("a", 10)...)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 10)
	again := func(want ...string) {
		t.Helper()
		known := len(b.cutRecords(mirroradm.CutFilter{}))
		b.stop("m", "t")
		b.awaitState("m", "t", "STOPPED")
		end := b.end("t", 0)
		if len(want) > 0 {
			b.say("t", want...)
		}
		b.begin("m", "t")
		b.awaitTopic("m", "t")
		b.awaitEnd("t", 0, a.end("t", 0))
		b.same(a, "t", 0, 0)
		got := b.cutRecords(mirroradm.CutFilter{})[known:]
		for i := range want {
			want[i] = fmt.Sprintf("%d:%s", end+int64(i), want[i])
		}
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("set aside: %v, want %v", got, want)
		}
	}
	again()
	again("b1", "b2", "b3")
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	a.stop("back", "t")
	a.awaitState("back", "t", "STOPPED")
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, a.end("t", 0))
	b.same(a, "t", 0, 0)
	again()
	again("b4", "b5", "b6")
}
