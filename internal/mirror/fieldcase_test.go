package mirror_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/mirroradm"
)

// metric sums a metric over what matches all of the labels, given as name, value, ...; false if there is none.
func (c *cluster) metric(name string, labels ...string) (sum float64, found bool) {
	c.t.Helper()
	fams, err := c.reg.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range fams {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				ok := false
				for _, l := range m.GetLabel() {
					ok = ok || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !ok {
					continue next
				}
			}
			found = true
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum, found
}

// fill leaves the cluster's disk no space beyond its reserve, until the result is called.
func (c *cluster) fill() (empty func()) {
	c.t.Helper()
	free, total, err := c.mem.Free("/data")
	if err != nil {
		c.t.Fatal(err)
	}
	c.mem.SetCapacity(total - free + 1<<20)
	return func() { c.mem.SetCapacity(total) }
}

// FieldCase 1: "Negative lag at the target": never commit past T's log end. Stall data copy, keep committing at S; every synced offset ≤ T
// log end at all times.
func TestFieldCase1(t *testing.T) { stalledCopy(t) }

// FieldCase 3: "Group checkpointed before a mapping exists: raw source offset copied": commit at S before T holds the data; T's value is
// clamped, then rises.
func TestFieldCase3(t *testing.T) { stalledCopy(t) }

// FieldCase 13: both offset lag and time lag per partition. Stop the copy under load; both rise as expected and return to 0.
func TestFieldCase13(t *testing.T) { stalledCopy(t) }

func stalledCopy(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination", "log.dir.reserve.bytes", "4194304")
	a.topic("t", 1)
	a.produce("t", 0, 1)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.commit("g", "t", 1, "")
	b.awaitCommitted("g", "t", 1)
	empty := b.fill()
	n := int64(1)
	behind := func() error { // committed as far as there is anything, on both sides
		a.produce("t", 0, 1)
		n++
		a.commit("g", "t", n, "")
		end := b.end("t", 0)
		if at, _ := b.committed("g", "t"); at > end {
			t.Fatalf("the group is at %d, the log ends at %d", at, end)
		}
		lag, ok := b.metric("kafka_server_mirror_lag_offsets", "mirror", "m", "topic", "t")
		seconds, _ := b.metric("kafka_server_mirror_lag_seconds", "mirror", "m", "topic", "t")
		if !ok || lag < 3 || seconds < 0.1 {
			return fmt.Errorf("lag is %g offsets (%t), %g seconds", lag, ok, seconds)
		}
		return nil
	}
	eventually(t, behind)
	if at, _ := b.committed("g", "t"); at >= n {
		t.Errorf("the group is at %d, as at the source", at)
	}
	empty()
	b.awaitEnd("t", 0, n)
	b.awaitCommitted("g", "t", n)
	eventually(t, func() error {
		lag, ok := b.metric("kafka_server_mirror_lag_offsets", "mirror", "m", "topic", "t")
		seconds, _ := b.metric("kafka_server_mirror_lag_seconds", "mirror", "m", "topic", "t")
		if !ok || lag != 0 || seconds > 1 {
			return fmt.Errorf("lag is %g offsets, %g seconds", lag, seconds)
		}
		return nil
	})
}

// FieldCase 4: "Lagging groups translated coarsely; group rewinds after a restart of the mirror": exact for any lag. Groups at 1%, 50%, 99%
// of the log; restart T brokers; offsets equal, never go down.
func TestFieldCase4(t *testing.T) { exactOffsets(t, 2, 100, 198) }

// FieldCase 16: "50 consumed at S shows as 1 at T": equal. Consume 50 of 60, wait one interval; T = 50.
func TestFieldCase16(t *testing.T) { exactOffsets(t, 50) }

// FieldCase 17: "Identity naming: no group sync at all": same names and group sync together, by default settings.
func TestFieldCase17(t *testing.T) { exactOffsets(t, 200) }

func exactOffsets(t *testing.T, offsets ...int64) {
	a, b := pair(t)
	a.produce("t", 0, 200)
	b.mirror("m", a)
	b.begin("m", "t")
	name := func(at int64) string { return fmt.Sprintf("group-%d", at) }
	for _, at := range offsets {
		a.commit(name(at), "t", at, "meta")
	}
	check := func() {
		t.Helper()
		for _, at := range offsets {
			b.awaitCommitted(name(at), "t", at)
			if _, meta := b.committed(name(at), "t"); meta != "meta" {
				t.Errorf("metadata of the commit: %q", meta)
			}
		}
	}
	check()
	b.restart()
	for _, at := range offsets {
		if got, _ := b.committed(name(at), "t"); got != at {
			t.Errorf("after a restart the group is at %d, was at %d", got, at)
		}
	}
	a.produce("t", 0, 1)
	b.awaitEnd("t", 0, 201)
	check()
}

// FieldCase 5: "Target partition deleted; stale checkpoint retried for ever": error ends, one partition only. Delete T topic while syncing;
// other groups go on, log is quiet, state says why.
func TestFieldCase5(t *testing.T) {
	a, b := pair(t)
	a.topic("u", 1)
	a.produce("t", 0, 5)
	a.produce("u", 0, 5)
	b.mirror("m", a)
	b.begin("m", "t", "u")
	for _, topic := range []string{"t", "u"} {
		b.awaitTopic("m", topic)
		a.commit("g-"+topic, topic, 2, "")
		a.commit("both", topic, 2, "")
		b.awaitCommitted("g-"+topic, topic, 2)
	}
	if rs, err := b.adm.DeleteTopics(t.Context(), "t"); err != nil || !errors.Is(rs["t"].Err, kerr.PolicyViolation) || !strings.Contains(rs["t"].ErrMessage, "m") {
		t.Errorf("deletion of a mirror topic: %+v, %v", rs, err)
	}
	if rs, err := b.mir.Stop(t.Context(), "m", []string{"t"}, []string{"t"}); err != nil || rs.Error() != nil { // and found no more
		t.Fatal(rs, err)
	}
	b.awaitState("m", "t", "STOPPED")
	if rs, err := b.adm.DeleteTopics(t.Context(), "t"); err != nil || rs.Error() != nil {
		t.Fatal(rs, err)
	}
	before := len(b.logs.text())
	for at := int64(3); at <= 5; at++ {
		a.commit("g-t", "t", at, "")
		a.commit("g-u", "u", at, "")
		a.commit("both", "u", at, "")
		b.awaitCommitted("g-u", "u", at)
		b.awaitCommitted("both", "u", at)
	}
	if text := b.logs.text()[before:]; strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the log is not quiet:\n%s", text)
	}
	if ds, err := b.mir.Describe(t.Context(), "m"); err != nil || len(ds) != 1 || len(ds[0].Partitions) != 1 || ds[0].Partitions[0].Topic != "u" {
		t.Errorf("described: %+v, %v", ds, err)
	}
}

// A copy of a topic whose log starts above 0 begins there: nothing was overtaken, so nothing is missing, and no alarm is to be raised at
// each migration.
func TestCopyBeginsAtTheSourcesLogStart(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 10)
	a.produce("t", 0, 2)
	a.trim("t", 10)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, 12)
	b.same(a, "t", 0, 10)
	cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{})
	if n, _ := b.metric("kafka_server_mirror_gap_records_total", "mirror", "m"); n != 0 || err != nil || len(cuts) != 0 {
		t.Errorf("%g records are counted as missing; %+v, %v", n, cuts, err)
	}
}

// FieldCase 8: "Retention at S beats the mirror and the gap is silent": continue at S's log start, count the records lost, raise an event.
// Pause, expire half, resume; gap size is shown and exact.
func TestFieldCase8(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 5)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 5)
	b.pause("m", "t")
	a.produce("t", 0, 10)
	a.produce("t", 0, 10)
	a.trim("t", 15)
	b.resume("m", "t")
	b.awaitEnd("t", 0, 25)
	b.same(a, "t", 0, 15)
	if n, _ := b.metric("kafka_server_mirror_gap_records_total", "mirror", "m"); n != 10 {
		t.Errorf("%g records are counted as missing, want 10", n)
	}
	b.restart() // what describe shows of it outlives this
	cuts, err := b.mir.Cuts(t.Context(), mirroradm.CutFilter{Mirror: "m"})
	if err != nil || len(cuts) != 1 || cuts[0].First != 5 || cuts[0].End != 15 || cuts[0].Records != 0 || !strings.Contains(cuts[0].Reason, "10 records are missing") {
		t.Errorf("gaps: %+v, %v", cuts, err)
	}
	if got := b.cutRecords(mirroradm.CutFilter{}); len(got) != 0 {
		t.Errorf("a gap holds records: %v", got)
	}
}

// FieldCase 10: "First records of a new topic are lost with 'latest'": new topics always copied from log start. Create topic and produce
// before discovery; all records arrive.
func TestFieldCase10(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a, "mirror.topics.include", ".*")
	b.awaitTopic("m", "t")
	a.topic("new", 1)
	a.say("new", "1", "2", "3")
	b.awaitTopic("m", "new")
	b.awaitEnd("new", 0, 3)
	b.holds("new", "1", "2", "3")
}

// FieldCase 18: "Restart copies everything again": restart resumes. Restart all T brokers; bytes fetched after ≈ bytes produced after.
func TestFieldCase18(t *testing.T) {
	a, b := pair(t)
	for range 10 {
		a.produce("t", 0, 100)
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 1000)
	b.restart()
	a.produce("t", 0, 10)
	b.awaitEnd("t", 0, 1010)
	data, _ := a.batches("t", 0, 1000)
	if n, _ := b.metric("kafka_server_mirror_fetched_bytes_total", "mirror", "m"); n != float64(len(data)) {
		t.Errorf("%g bytes were fetched after the restart, %d were produced", n, len(data))
	}
}

// FieldCase 20: "Target rebuilt: topics made, no data": restart from nothing. Wipe T, define the mirror again; full copy.
func TestFieldCase20(t *testing.T) {
	a, b := pair(t)
	a.say("t", "1", "2", "3")
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.kill()
	rebuilt := newCluster(t, "rebuilt")
	rebuilt.mirror("m", a)
	rebuilt.begin("m", "t")
	rebuilt.awaitTopic("m", "t")
	rebuilt.awaitEnd("t", 0, 3)
	rebuilt.same(a, "t", 0, 0)
}

// FieldCase 22: "Some matching topics are missing, no error": for each matching topic: mirrored, or listed with a reason. Topics with odd
// names; sets match.
func TestFieldCase22(t *testing.T) { everyTopic(t) }

// FieldCase 81: "Topic id already in use at T": refused with a clear state, others go on.
func TestFieldCase81(t *testing.T) { everyTopic(t) }

func everyTopic(t *testing.T) {
	a, b := pair(t)
	names := []string{"t", ".hidden", "a.b", "a_b-c", "UPPER", strings.Repeat("long", 62), "-", "0", "__own", "x.__y"}
	for i := range 30 {
		names = append(names, fmt.Sprintf("topic-%d", i))
	}
	for _, n := range names[1:] {
		a.topic(n, 1)
	}
	b.topic("taken", 1) // of that name, with another id
	a.topic("taken", 1)
	ts, err := a.adm.ListTopics(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "other-name", SourceID: ts["t"].ID, Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	b.mirror("m", a, "mirror.topics.include", ".*")
	refused := []string{"t", "taken"}
	want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "__") || slices.Contains(refused, n) })
	slices.Sort(want)
	eventually(t, func() error {
		ms, err := b.mir.List(t.Context())
		if err != nil {
			return err
		}
		got := slices.Clone(ms[0].Topics)
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("mirrored: %v, want %v", got, want)
		}
		return nil
	})
	eventually(t, func() error {
		ds, err := b.mir.Describe(t.Context(), "m")
		if err != nil {
			return err
		}
		for _, topic := range refused {
			if !slices.ContainsFunc(ds[0].Problems, func(s string) bool {
				return strings.HasPrefix(s, "topic "+topic+" is not mirrored: TOPIC_ALREADY_EXISTS")
			}) {
				return fmt.Errorf("describe does not say why %s is missing: %v", topic, ds[0].Problems)
			}
		}
		return nil
	})
	a.say("topic-3", "x")
	b.awaitEnd("topic-3", 0, 1)
}

// FieldCase 24: "Both-way set-up copies one way": two mirrors on disjoint topics both work. A→B x, B→A y.
func TestFieldCase24(t *testing.T) {
	a, b := newCluster(t, "one"), newCluster(t, "other")
	a.topic("x", 1)
	b.topic("y", 1)
	b.mirror("m", a)
	a.mirror("m", b)
	b.begin("m", "x")
	a.begin("m", "y")
	for range 2 {
		a.produce("x", 0, 3)
		b.produce("y", 0, 3)
		b.awaitTopic("m", "x")
		a.awaitTopic("m", "y")
		b.awaitEnd("x", 0, a.end("x", 0))
		a.awaitEnd("y", 0, b.end("y", 0))
	}
	b.same(a, "x", 0, 0)
	a.same(b, "y", 0, 0)
}

// FieldCase 28: "Failing back repeats records unless the old cluster is emptied": delta only. Fail over, write 1,000 at T, fail back; no
// repeats, bytes moved ≈ delta.
func TestFieldCase28(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 500)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 500)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	b.produce("t", 0, 1000)
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, 1501)
	a.same(b, "t", 0, 0)
	delta, _ := b.batches("t", 0, 500)
	if n, _ := a.metric("kafka_server_mirror_fetched_bytes_total", "mirror", "back"); n != float64(len(delta)) {
		t.Errorf("%g bytes were moved, the difference has %d", n, len(delta))
	}
}

// FieldCase 37: "Log-start change reaches T only if new data flows": log start follows on idle partitions. DeleteRecords on an idle topic.
func TestFieldCase37(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 10)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 10)
	for _, at := range []int64{4, 10} {
		a.trim("t", at)
		eventually(t, func() error {
			if got := b.first("t"); got != at {
				return fmt.Errorf("log start %d, want %d", got, at)
			}
			return nil
		})
	}
}

// FieldCase 40: "DeleteRecords etc. must be refused on a mirror topic": every write path refused: produce, DeleteRecords, transactional
// commit, partition add, config change. One case per request type.
func TestFieldCase40(t *testing.T) {
	a, b := pair(t)
	a.setTopic("t", "retention.ms", "3600000")
	a.produce("t", 0, 4)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 4)
	for name, try := range map[string]func() error{
		"produce": func() error { return b.trySay("t", "x") },
		"DeleteRecords": func() error {
			o := kadm.Offsets{}
			o.AddOffset("t", 0, 2, -1)
			rs, err := b.adm.DeleteRecords(t.Context(), o)
			return errors.Join(err, rs.Error())
		},
		"CreatePartitions": func() error {
			rs, err := b.adm.CreatePartitions(t.Context(), 1, "t")
			return errors.Join(err, rs.Error())
		},
		"DeleteTopics": func() error {
			rs, err := b.adm.DeleteTopics(t.Context(), "t")
			return errors.Join(err, rs.Error())
		},
		"IncrementalAlterConfigs": func() error { return b.trySetTopic("t", "retention.ms", "1") },
		"AlterConfigs": func() error {
			rs, err := b.adm.AlterTopicConfigsState(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("1")}}, "t")
			if err == nil {
				err = rs[0].Err
			}
			return err
		},
		"a transaction's marker": func() error {
			req := kmsg.NewPtrWriteTxnMarkersRequest()
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.Committed = 9, true
			mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			mt.Topic, mt.Partitions = "t", []int32{0}
			m.Topics = append(m.Topics, mt)
			req.Markers = append(req.Markers, m)
			resp, err := req.RequestWith(t.Context(), b.cl)
			if err != nil {
				return err // not served at all
			}
			return kerr.ErrorForCode(resp.Markers[0].Topics[0].Partitions[0].ErrorCode)
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s on a mirror topic is accepted", name)
		} else if strings.Contains(name, "Config") && !strings.Contains(err.Error(), "POLICY_VIOLATION") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.same(a, "t", 0, 0)
	if at := b.first("t"); at != 0 {
		t.Errorf("log start %d", at)
	}
}

// FieldCase 42: "Group coordinator moved at S; sync errors": finds it again. Restart S coordinators.
func TestFieldCase42(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "destination")
	if _, err := a.adm.CreateTopic(t.Context(), 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, "t"); err != nil {
		t.Fatal(err)
	}
	a.produce("t", 0, 20)
	b.mirrorAt("m", strings.Join(a.nodes.Addrs(), ","), a.nodes.ID)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.commit("g", "t", 2, "")
	b.awaitCommitted("g", "t", 2)
	coords := a.adm.FindGroupCoordinators(t.Context(), "g")
	if coords["g"].Err != nil {
		t.Fatal(coords)
	}
	down := coords["g"].NodeID
	a.nodes.Kill(down)
	eventually(t, func() error { // the new coordinator may be loading
		o := kadm.Offsets{}
		o.Add(kadm.Offset{Topic: "t", At: 12, LeaderEpoch: -1})
		rs, err := a.adm.CommitOffsets(t.Context(), "g", o)
		return errors.Join(err, rs.Error())
	})
	b.awaitCommitted("g", "t", 12)
	a.nodes.StartNodes(down)
	a.commit("g", "t", 17, "")
	b.awaitCommitted("g", "t", 17)
}

// FieldCase 60: "Epoch −1 taken as a rewind; truncation not seen": Fetch and OffsetForLeaderEpoch always give a real epoch.
func TestFieldCase60(t *testing.T) { epochs(t) }

// FieldCase 61: "Metadata epoch went back; client loops or hangs": T's epoch ≥ S's at every moment. Move clients S→T→S; no epoch goes down.
func TestFieldCase61(t *testing.T) { epochs(t) }

func epochs(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	last := int32(-1)
	moved := func(to *cluster) { // what a client sees of the side it moves to
		t.Helper()
		e := to.leaderEpoch()
		if e < last {
			t.Errorf("the leader epoch went back from %d to %d", last, e)
		}
		last = e
		cl, err := kgo.NewClient(kgo.SeedBrokers(to.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		fs := cl.PollFetches(t.Context())
		fs.EachRecord(func(r *kgo.Record) {
			if r.LeaderEpoch < 0 || r.LeaderEpoch > e {
				t.Errorf("record %d has epoch %d, the leader %d", r.Offset, r.LeaderEpoch, e)
			}
		})
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, e
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), to.cl)
		if err != nil {
			t.Fatal(err)
		}
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LeaderEpoch < 0 || p.EndOffset != to.end("t", 0) {
			t.Errorf("the end of epoch %d: %+v", e, p)
		}
	}
	for range 4 { // elections at the source
		a.produce("t", 0, 2)
		b.awaitEnd("t", 0, a.end("t", 0))
		eventually(t, func() error {
			if s, d := a.leaderEpoch(), b.leaderEpoch(); d < s {
				return fmt.Errorf("leader epoch %d, the source's is %d", d, s)
			}
			return nil
		})
		a.restart()
	}
	moved(a)
	b.awaitTopic("m", "t")
	moved(b)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	last = b.leaderEpoch()
	b.produce("t", 0, 1)
	moved(b)
	a.mirror("back", b)
	a.begin("back", "t")
	a.awaitTopic("back", "t")
	a.awaitEnd("t", 0, b.end("t", 0))
	moved(a)
	a.stop("back", "t")
	a.awaitState("back", "t", "STOPPED")
	moved(a)
}

// FieldCase 23: "Partitions led by a broker added later are not mirrored": follow metadata, not the bootstrap list. Add an S broker, move
// leaders to it.
func TestFieldCase23(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "destination")
	if _, err := a.adm.CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	a.produce("t", 0, 3)
	b.mirrorAt("m", a.nodes.Node(1).Addr(), a.nodes.ID)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.nodes.AddController(4)
	a.nodes.StartNodes(4)
	eventually(t, func() error { // it may not be known yet
		req := kadm.AlterPartitionAssignmentsReq{}
		req.Assign("t", 0, []int32{4})
		rs, err := a.adm.AlterPartitionAssignments(t.Context(), req)
		return errors.Join(err, rs.Error())
	})
	eventually(t, func() error {
		if l := a.leader("t"); l != 4 {
			return fmt.Errorf("node %d leads still", l)
		}
		return nil
	})
	a.produce("t", 0, 3)
	b.awaitEnd("t", 0, 6)
	b.awaitTopic("m", "t")
}

// FieldCase 31: "Old timestamps rejected by the target": mirror appends skip the produce-time timestamp checks. Records dated two years back.
func TestFieldCase31(t *testing.T) {
	a := newCluster(t, "source")
	b := newCluster(t, "destination", "log.message.timestamp.before.max.ms", "1000", "log.message.timestamp.after.max.ms", "1000")
	a.topic("t", 1, "retention.ms", "-1")
	for _, at := range []time.Time{time.Now().AddDate(-2, 0, 0), time.Now().Add(50 * time.Minute)} {
		if err := a.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x"), Timestamp: at}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 2)
	b.same(a, "t", 0, 0)
}

// FieldCase 72: "Topic made again: endless out of range": topic id kept through failover; out-of-range answered once with usable log bounds.
func TestFieldCase72(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 10)
	a.produce("t", 0, 10)
	a.trim("t", 10)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	b.awaitEnd("t", 0, 20)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	id := func(c *cluster) kadm.TopicID {
		ts, err := c.adm.ListTopics(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		return ts["t"].ID
	}
	if id(a) != id(b) {
		t.Errorf("topic id %s, it was %s", id(b), id(a))
	}
	for _, at := range []int64{2, 1000} { // below and beyond: the client goes on from what it is told
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(at)}}))
		if err != nil {
			t.Fatal(err)
		}
		fs := cl.PollFetches(t.Context())
		if rs := fs.Records(); fs.Err() != nil || len(rs) == 0 || rs[0].Offset != 10 {
			t.Errorf("a consumer at %d reads %d records, %v", at, len(rs), fs.Err())
		}
		cl.Close()
	}
}
