package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// fakeLog is the log of one partition. With hold, nothing is committed until
// commit is called.
type fakeLog struct {
	mu        sync.Mutex
	recs      []machine.Record
	hw        int64
	hold      bool
	failNext  bool
	refuse    error // what Check says
	replaying chan struct{}
	committed func(int64)
	lost      func(error)
}

func (l *fakeLog) Append(recs []machine.Record) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failNext {
		l.failNext = false
		return -1, errors.New("disk on fire")
	}
	l.recs = append(l.recs, recs...)
	if !l.hold {
		l.hw = int64(len(l.recs))
	}
	return int64(len(l.recs)) - 1, nil
}

func (l *fakeLog) Replay(fn func(int64, machine.Record) error) error {
	if l.replaying != nil {
		<-l.replaying
	}
	for i, r := range l.recs {
		if err := fn(int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

func (l *fakeLog) EndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.recs))
}

func (l *fakeLog) HighWatermark() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hw
}

func (l *fakeLog) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuse
}

func (l *fakeLog) Close() {}

// set changes the log under its lock.
func (l *fakeLog) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// commit moves the high watermark to the end.
func (l *fakeLog) commit() {
	l.mu.Lock()
	l.hw = int64(len(l.recs))
	hw, tell := l.hw, l.committed
	l.mu.Unlock()
	tell(hw)
}

// rig is a service over fake logs.
type rig struct {
	t      *testing.T
	svc    *Service
	logs   map[int32]*fakeLog
	topics map[string]*meta.Topic
	image  *meta.Image
	reg    *prometheus.Registry
}

const selfID, otherID = 1, 2

func newRig(t *testing.T, logs ...*fakeLog) *rig {
	r := &rig{t: t, logs: map[int32]*fakeLog{}, topics: map[string]*meta.Topic{}, image: meta.Empty("c"), reg: prometheus.NewRegistry()}
	for i, l := range logs {
		r.logs[int32(i)] = l
	}
	cfg := DefaultConfig()
	r.svc = NewService(Options{
		NodeID: selfID,
		Config: func() Config { return cfg },
		Open: func(p, _ int32, committed func(int64), lost func(error)) (coord.Log, error) {
			l := r.logs[p]
			l.set(func() { l.committed, l.lost = committed, lost })
			return l, nil
		},
		Registerer: r.reg,
		Rand:       &counter{},
	})
	t.Cleanup(r.svc.Close)
	return r
}

// lead makes the leaders of the topic's partitions those given, at the epoch.
func (r *rig) lead(epoch int32, leaders ...int32) {
	t := &meta.Topic{Name: Topic, ID: ids.UUID{9}}
	for _, l := range leaders {
		t.Partitions = append(t.Partitions, &meta.Partition{Leader: l, LeaderEpoch: epoch})
	}
	r.change(t)
}

// change applies metadata with the topics given in place of those of their names.
func (r *rig) change(topics ...*meta.Topic) {
	r.t.Helper()
	for _, t := range topics {
		r.topics[t.Name] = t
	}
	next := build(r.t, r.topics)
	d := meta.Diff(r.image, next)
	r.image = next
	r.svc.Apply(d)
}

func (r *rig) join(group, memberID string, version int16) chan *kmsg.JoinGroupResponse {
	out := make(chan *kmsg.JoinGroupResponse, 1)
	r.svc.Join(Client{"c", "/h"}, &kmsg.JoinGroupRequest{
		Version: version, Group: group, MemberID: memberID, SessionTimeoutMillis: 10_000, RebalanceTimeoutMillis: 30_000,
		ProtocolType: "x", Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "p", Metadata: []byte("m")}},
	}, func(resp *kmsg.JoinGroupResponse) { out <- resp })
	return out
}

func (r *rig) sync(group, memberID string, generation int32) chan *kmsg.SyncGroupResponse {
	out := make(chan *kmsg.SyncGroupResponse, 1)
	r.svc.Sync(&kmsg.SyncGroupRequest{
		Group: group, MemberID: memberID, Generation: generation,
		GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: memberID, MemberAssignment: []byte("a")}},
	}, func(resp *kmsg.SyncGroupResponse) { out <- resp })
	return out
}

func (r *rig) commit(group string, offset int64) chan api.Code {
	out := make(chan api.Code, 1)
	req := &CommitRequest{Version: 9, Group: group, Generation: -1, RetentionMs: -1, Topics: []CommitTopic{
		{TopicRef{Name: "t"}, []CommitPartition{{Partition: 0, Offset: offset, LeaderEpoch: -1}}},
	}}
	r.svc.Commit(req, func() { out <- req.Topics[0].Partitions[0].Code })
	return out
}

func (r *rig) fetch(group string) chan FetchResult {
	out := make(chan FetchResult, 1)
	r.svc.Fetch(&FetchRequest{Group: group}, func(f FetchResult) { out <- f })
	return out
}

func (r *rig) heartbeat(group, memberID string, generation int32) api.Code {
	out := make(chan api.Code, 1)
	r.svc.Heartbeat(&kmsg.HeartbeatRequest{Group: group, MemberID: memberID, Generation: generation}, func(c api.Code) { out <- c })
	return <-out
}

// got returns what is in the channel once everything has come to rest, zero if
// nothing is.
func got[T any](c chan T) (v T, ok bool) {
	synctest.Wait()
	select {
	case v := <-c:
		return v, true
	default:
		return v, false
	}
}

func wantCode(t *testing.T, what string, c chan api.Code, want api.Code) {
	t.Helper()
	if code, ok := got(c); !ok || code != want {
		t.Errorf("%s: %v (answered: %v), want %v", what, code, ok, want)
	}
}

func TestServiceFollowsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l0, l1 := &fakeLog{replaying: make(chan struct{})}, &fakeLog{}
		r := newRig(t, l0, l1)
		var here, there string // groups of partition 0 and 1
		for i := 0; here == "" || there == ""; i++ {
			if g := fmt.Sprintf("g%d", i); PartitionOf(g, 2) == 0 {
				here = g
			} else {
				there = g
			}
		}
		wantCode(t, "commit without the topic", r.commit(here, 1), api.NotCoordinator)

		r.lead(1, selfID, otherID)
		wantCode(t, "commit elsewhere", r.commit(there, 1), api.NotCoordinator)
		wantCode(t, "commit while loading", r.commit(here, 1), api.CoordinatorLoadInProgress)
		if resp, _ := got(r.join(here, "m", 9)); resp.ErrorCode != int16(api.CoordinatorLoadInProgress) || resp.Generation != -1 {
			t.Errorf("join while loading: %+v", resp)
		}
		// "The group is still loading, so respond just blindly": a member must not give up.
		if code := r.heartbeat(here, "m", 1); code != api.NoError {
			t.Errorf("heartbeat while loading: %v", code)
		}
		listed := make(chan api.Code, 1)
		r.svc.List(nil, nil, func(c api.Code, _ []Listed) { listed <- c })
		wantCode(t, "list while loading", listed, api.CoordinatorLoadInProgress)

		close(l0.replaying)
		synctest.Wait()
		wantCode(t, "commit", r.commit(here, 7), api.NoError)
		r.svc.List([]string{"EMPTY"}, []string{"Classic"}, func(c api.Code, g []Listed) {
			if len(g) != 1 || g[0] != (Listed{here, "", Empty}) {
				t.Errorf("listed %v", g)
			}
			listed <- c
		})
		wantCode(t, "list", listed, api.NoError)

		// A join waits, and the leadership goes elsewhere.
		join := r.join(here, "", 3)
		if resp, ok := got(join); ok {
			t.Fatalf("join was answered at once: %+v", resp)
		}
		r.lead(2, otherID, otherID)
		if resp, ok := got(join); !ok || resp.ErrorCode != int16(api.NotCoordinator) {
			t.Errorf("join after the leadership went: %+v", resp)
		}
		wantCode(t, "commit after the leadership went", r.commit(here, 9), api.NotCoordinator)

		// It comes back: the offset is there again.
		r.lead(3, selfID, otherID)
		synctest.Wait()
		f, ok := got(r.fetch(here))
		if !ok || len(f.Topics) != 1 || f.Topics[0].Partitions[0].Offset != 7 {
			t.Errorf("fetched %+v", f)
		}
		r.svc.Close()
		wantCode(t, "commit after close", r.commit(here, 9), api.NotCoordinator)
	})
}

// A log with a record of a newer release is not served, by name; the other partitions are, and so is this one once the
// record is gone.
func TestServiceRefusesRecordsOfNewerReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := []machine.Record{offsetRecord("g", "t", 0, committed{offset: 4, epoch: -1, expireMs: -1})}
		newer := &fakeLog{recs: append(slices.Clone(good), machine.Record{Key: []byte("\x00\x05\x00\x01g"), Value: []byte{0, 0, 1}}), hw: 2}
		r := newRig(t, newer, &fakeLog{})
		r.lead(1, selfID, selfID)
		synctest.Wait()
		groups := map[int32]string{}
		for i := 0; len(groups) < 2; i++ {
			g := fmt.Sprintf("g%d", i)
			groups[PartitionOf(g, 2)] = g
		}
		wantCode(t, "commit", r.commit(groups[0], 1), api.CoordinatorNotAvailable)
		if resp, _ := got(r.join(groups[0], "m", 9)); resp.ErrorCode != int16(api.CoordinatorNotAvailable) {
			t.Errorf("join: %+v", resp)
		}
		if code := r.heartbeat(groups[0], "m", 1); code != api.CoordinatorNotAvailable {
			t.Errorf("heartbeat: %v", code)
		}
		wantCode(t, "commit to another partition", r.commit(groups[1], 1), api.NoError)
		sh, err := r.svc.hosts.Shard(0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sh.Do(t.Context(), func(*serving) machine.Command { return nil })
		for _, want := range []string{"__consumer_offsets-0", "offset 1 ", "type 5 (Kafka's ConsumerGroupMemberMetadata) version 0", "run that release again"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		newer.set(func() { newer.recs, newer.hw = good, 1 })
		time.Sleep(2 * time.Minute)
		wantCode(t, "commit after the record is gone", r.commit(groups[0], 1), api.NoError)
	})
}

// A joins' end, an assignment and an offset are told only when they are stored.
func TestServiceWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{}
		r := newRig(t, l)
		r.lead(1, selfID)
		synctest.Wait()
		join := r.join("g", "", 3)
		synctest.Wait()
		time.Sleep(3 * time.Second)
		j, ok := got(join)
		if !ok || j.ErrorCode != 0 || j.Generation != 1 {
			t.Fatalf("join: %+v", j)
		}
		l.set(func() { l.hold = true })
		sync := r.sync("g", j.MemberID, 1)
		if resp, ok := got(sync); ok {
			t.Fatalf("sync was answered before its commit: %+v", resp)
		}
		// Heartbeats overtake and don't wait.
		if code := r.heartbeat("g", j.MemberID, 1); code != api.NoError {
			t.Errorf("heartbeat: %v", code)
		}
		commit := r.commit("other", 5)
		fetch := r.fetch("other")
		if _, ok := got(commit); ok {
			t.Error("commit was answered before its commit")
		}
		if _, ok := got(fetch); ok {
			t.Error("a fetch showed an offset that isn't committed")
		}
		if _, ok := got(r.fetch("third")); !ok {
			t.Error("a fetch waits for another group's commit")
		}
		l.commit()
		if resp, ok := got(sync); !ok || string(resp.MemberAssignment) != "a" {
			t.Errorf("sync: %+v", resp)
		}
		wantCode(t, "commit", commit, api.NoError)
		if f, ok := got(fetch); !ok || f.Topics[0].Partitions[0].Offset != 5 {
			t.Errorf("fetch: %+v", f)
		}

		// Without a commit the client gets a retriable error in time, once.
		commit = r.commit("other", 6)
		time.Sleep(4900 * time.Millisecond)
		if _, ok := got(commit); ok {
			t.Error("commit was answered too soon")
		}
		time.Sleep(200 * time.Millisecond)
		wantCode(t, "commit that isn't replicated", commit, api.CoordinatorNotAvailable)
		l.commit()
		if f, _ := got(r.fetch("other")); f.Topics[0].Partitions[0].Offset != 6 {
			t.Errorf("fetch after the late commit: %+v", f)
		}
		views, err := r.svc.Views(context.Background())
		if err != nil || len(views) != 2 || views[0].Group != "g" || views[0].State != Stable || views[1].Offsets[0].Offset != 6 {
			t.Errorf("views %+v, %v", views, err)
		}
	})
}

// A log that fails while the leadership stays: waiting requests fail, the shard
// loads again and goes on from what was stored.
func TestServiceLoadsAgainAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{}
		r := newRig(t, l)
		r.lead(1, selfID)
		synctest.Wait()
		wantCode(t, "commit", r.commit("g", 1), api.NoError)
		waiting := r.join("h", "", 3)
		synctest.Wait()
		l.set(func() { l.failNext = true })
		wantCode(t, "commit to a broken log", r.commit("g", 2), api.NotCoordinator)
		if resp, ok := got(waiting); !ok || resp.ErrorCode != int16(api.NotCoordinator) {
			t.Errorf("join: %+v", resp)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if f, _ := got(r.fetch("g")); f.Code != api.NoError || f.Topics[0].Partitions[0].Offset != 1 {
			t.Errorf("fetched %+v", f)
		}
		// A partition that can't take appends now refuses, and isn't lost.
		l.set(func() { l.refuse = &api.Error{Code: api.NotEnoughReplicas} })
		wantCode(t, "commit below min ISR", r.commit("g", 3), api.CoordinatorNotAvailable)
		l.set(func() { l.refuse = nil })
		wantCode(t, "commit", r.commit("g", 3), api.NoError)
		// The log's own word of the lost leadership.
		l.lost(&api.Error{Code: api.NotLeaderOrFollower})
		synctest.Wait()
		wantCode(t, "commit after lost", r.commit("g", 4), api.CoordinatorLoadInProgress)
	})
}

func TestServiceRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{}
		r := newRig(t, l)
		topic := &meta.Topic{Name: "t", ID: ids.UUID{1}, Partitions: []*meta.Partition{{Leader: selfID}}}
		r.lead(1, selfID)
		r.change(topic)
		synctest.Wait()

		if resp, _ := got(r.join("", "", 9)); resp.ErrorCode != int16(api.InvalidGroupID) {
			t.Errorf("join of no group: %+v", resp)
		}
		out := make(chan *kmsg.JoinGroupResponse, 1)
		r.svc.Join(Client{}, &kmsg.JoinGroupRequest{Group: "g", SessionTimeoutMillis: 5_999}, func(resp *kmsg.JoinGroupResponse) { out <- resp })
		if resp, _ := got(out); resp.ErrorCode != int16(api.InvalidSessionTimeout) {
			t.Errorf("join with a short session: %+v", resp)
		}
		if resp, _ := got(r.sync("", "m", 1)); resp.ErrorCode != int16(api.InvalidGroupID) {
			t.Errorf("sync of no group: %+v", resp)
		}
		if code := r.heartbeat("", "m", 1); code != api.InvalidGroupID {
			t.Errorf("heartbeat of no group: %v", code)
		}
		codes := make(chan api.Code, 1)
		r.svc.Leave("", nil, func(c api.Code, _ []api.Code) { codes <- c })
		wantCode(t, "leave of no group", codes, api.InvalidGroupID)
		r.svc.Leave("g", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}, func(_ api.Code, c []api.Code) { codes <- c[0] })
		wantCode(t, "leave of an unknown group", codes, api.UnknownMemberID)
		// The empty group id is an old way to store offsets, and still served.
		wantCode(t, "commit for the empty group", r.commit("", 1), api.NoError)

		wantCode(t, "commit", r.commit("g", 8), api.NoError)
		clamped := make(chan []Clamped, 1)
		r.svc.ClampOffsets(TopicRef{Name: "t"}, 0, 3, 1, func(err error, c []Clamped) {
			if err != nil {
				t.Error(err)
			}
			clamped <- c
		})
		if c, ok := got(clamped); !ok || len(c) != 1 || c[0] != (Clamped{"g", 8, 3}) {
			t.Errorf("clamped %v", c)
		}
		// The topic is deleted: so are the offsets.
		r.remove(topic)
		synctest.Wait()
		if f, _ := got(r.fetch("g")); len(f.Topics) != 0 {
			t.Errorf("fetched %+v", f)
		}
		r.svc.DeleteGroup("g", func(c api.Code) { codes <- c })
		wantCode(t, "delete", codes, api.NoError)
		described := make(chan Description, 1)
		r.svc.Describe("g", func(d Description) { described <- d })
		if d, _ := got(described); d.Code != api.GroupIDNotFound || d.State != Dead {
			t.Errorf("described %+v", d)
		}
		if n := testutil.ToFloat64(gaugeOf(t, r.reg, "kafka_server_group_coordinator_metrics_offset_commit_count")); n != 2 {
			t.Errorf("%v offset commits counted", n)
		}
		if n := testutil.ToFloat64(gaugeOf(t, r.reg, "kafka_coordinator_group_groupmetadatamanager_numgroups")); n != 1 {
			t.Errorf("%v groups counted, want that of the empty id", n)
		}
	})
}

// remove applies metadata without the topic.
func (r *rig) remove(t *meta.Topic) {
	delete(r.topics, t.Name)
	r.change()
}

// build makes an image of the topics, by name.
func build(t *testing.T, topics map[string]*meta.Topic) *meta.Image {
	t.Helper()
	d := meta.Empty("c").Draft()
	offset := int64(0)
	apply := func(rec meta.Record) {
		if err := d.Apply(offset, 1, rec); err != nil {
			t.Fatal(err)
		}
		offset++
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		topic := topics[name]
		apply(&meta.TopicRecord{TopicName: topic.Name, TopicID: topic.ID})
		for i, p := range topic.Partitions {
			apply(&meta.PartitionRecord{
				PartitionID: int32(i), TopicID: topic.ID, Replicas: []int32{selfID}, ISR: []int32{selfID},
				Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Directories: []ids.UUID{{1}},
			})
		}
	}
	return d.Image()
}

// gaugeOf gathers one metric of the registry.
func gaugeOf(t *testing.T, reg *prometheus.Registry, name string) prometheus.Collector {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "v"}, func() float64 { return v })
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}
