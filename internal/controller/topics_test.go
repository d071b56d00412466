package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

func TestCreateTopics(t *testing.T) {
	assigned := func(a map[int32][]int32) NewTopic {
		return NewTopic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignments: a}
	}
	with := func(tp NewTopic, edit func(*NewTopic)) NewTopic { edit(&tp); return tp }
	for _, tt := range []struct {
		name       string
		topic      NewTopic
		want       api.Code
		partitions int32
		rf         int16
	}{
		{"as asked", topic("n", 3, 1), api.NoError, 3, 1},
		{"by default", topic("n", -1, -1), api.NoError, 4, 2},
		{"by hand", assigned(map[int32][]int32{0: {2, 1}, 1: {1, 2}}), api.NoError, 2, 2},
		{"existing", topic("taken", 1, 1), api.TopicAlreadyExists, 0, 0},
		{"colliding", topic("co_llide.x", 1, 1), api.InvalidTopicException, 0, 0},
		{"no name", topic("", 1, 1), api.InvalidTopicException, 0, 0},
		{"a dot", topic(".", 1, 1), api.InvalidTopicException, 0, 0},
		{"a bad character", topic("a/b", 1, 1), api.InvalidTopicException, 0, 0},
		{"a name of 249 characters", topic(strings.Repeat("x", 249), 1, 1), api.NoError, 1, 1},
		{"a name of 250 characters", topic(strings.Repeat("x", 250), 1, 1), api.InvalidTopicException, 0, 0},
		{"no partitions", topic("n", 0, 1), api.InvalidPartitions, 0, 0},
		{"less than none", topic("n", -2, 1), api.InvalidPartitions, 0, 0},
		{"too many partitions", topic("n", 10_001, 1), api.PolicyViolation, 0, 0},
		{"the most partitions", topic("n", 1<<31-1, 1), api.PolicyViolation, 0, 0},
		{"no replicas", topic("n", 1, 0), api.InvalidReplicationFactor, 0, 0},
		{"more replicas than brokers", topic("n", 1, 4), api.InvalidReplicationFactor, 0, 0},
		{"a fenced broker takes replicas if needed", topic("n", 1, 3), api.NoError, 1, 3},
		{"but not if all must be active", with(topic("n", 1, 3), func(t *NewTopic) { t.ActiveOnly = true }), api.InvalidReplicationFactor, 0, 0},
		{"assignment with a gap", assigned(map[int32][]int32{0: {1}, 2: {1}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment without replicas", assigned(map[int32][]int32{0: {}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment with a broker twice", assigned(map[int32][]int32{0: {1, 1}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment with a stranger", assigned(map[int32][]int32{0: {9}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment of uneven factors", assigned(map[int32][]int32{0: {1}, 1: {1, 2}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment to a fenced broker alone", assigned(map[int32][]int32{0: {3}}), api.InvalidReplicaAssignment, 0, 0},
		{"assignment and number", with(assigned(map[int32][]int32{0: {1}}), func(t *NewTopic) { t.Partitions = 1 }), api.InvalidRequest, 0, 0},
		{"assignment and factor", with(assigned(map[int32][]int32{0: {1}}), func(t *NewTopic) { t.ReplicationFactor = 1 }), api.InvalidRequest, 0, 0},
		{"a config", with(topic("n", 1, 1), func(t *NewTopic) { t.Configs = map[string]*string{"retention.ms": str("5")} }), api.NoError, 1, 1},
		{"a bad config", with(topic("n", 1, 1), func(t *NewTopic) { t.Configs = map[string]*string{"retention.ms": str("x")} }), api.InvalidConfig, 0, 0},
		{"a null config", with(topic("n", 1, 1), func(t *NewTopic) { t.Configs = map[string]*string{"retention.ms": nil} }), api.InvalidConfig, 0, 0},
		{"configs that don't go together", with(topic("n", 1, 1), func(t *NewTopic) { t.Configs = map[string]*string{"a": str("1"), "b": str("1")} }), api.InvalidConfig, 0, 0},
		{"a given id", with(topic("n", 1, 1), func(t *NewTopic) { t.ID = ids.UUID{0: 77} }), api.NoError, 1, 1},
		{"a reserved id", with(topic("n", 1, 1), func(t *NewTopic) { t.ID = ids.MetadataTopic }), api.InvalidRequest, 0, 0},
		{"an id in use", with(topic("n", 1, 1), func(t *NewTopic) { t.ID = ids.UUID{0: 66} }), api.TopicAlreadyExists, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.up(1, 2)
			b.register(3, 1, "") // stays fenced
			b.create(with(topic("taken", 1, 1), func(t *NewTopic) { t.ID = ids.UUID{0: 66} }), topic("co.llide_x", 1, 1))
			before := len(b.log)
			got := b.create(tt.topic)[0]
			if code(got.Err) != tt.want || got.Partitions != tt.partitions || got.ReplicationFactor != tt.rf {
				t.Fatalf("%v partitions %d factor %d, want %v %d %d", got.Err, got.Partitions, got.ReplicationFactor, tt.want, tt.partitions, tt.rf)
			}
			if tt.want != api.NoError {
				if len(b.log) != before {
					t.Error("a refused topic left records")
				}
				return
			}
			b.check()
			made := b.s.Image().TopicByName(tt.topic.Name)
			if made == nil || made.ID != got.ID || !tt.topic.ID.IsZero() && made.ID != tt.topic.ID {
				t.Fatalf("topic %+v, answered id %s", made, got.ID)
			}
			for i, p := range made.Partitions {
				if a := tt.topic.Assignments[int32(i)]; a != nil && !slices.Equal(a, p.Replicas) {
					t.Errorf("partition %d on %v, assigned to %v", i, p.Replicas, a)
				}
				if p.Leader != p.Replicas[0] || p.LeaderEpoch != 0 || p.Dirs[0] != (ids.UUID{0: 8, 15: byte(p.Leader)}) {
					t.Errorf("partition %d: %+v", i, *p)
				}
				if slices.Contains(p.ISR, 3) {
					t.Errorf("partition %d has the fenced broker in its ISR %v", i, p.ISR)
				}
			}
			for k, v := range tt.topic.Configs {
				if b.s.Image().Config(meta.ResourceTopic, tt.topic.Name)[k] != *v || got.Configs[k] != *v {
					t.Errorf("config %s is not set", k)
				}
			}
		})
	}
}

// Each topic of a request stands for itself.
func TestCreateTopicsOneByOne(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	same := ids.UUID{0: 5}
	got := b.create(topic("a", 1, 1), topic("bad/", 1, 1), topic("twice", 1, 1), topic("twice", 2, 1),
		NewTopic{Name: "x", ID: same, Partitions: 1, ReplicationFactor: 1}, NewTopic{Name: "y", ID: same, Partitions: 1, ReplicationFactor: 1},
		topic("big", 9_990, 1), topic("rest", 20, 1))
	want := []api.Code{api.NoError, api.InvalidTopicException, api.InvalidRequest, api.NoError, api.InvalidRequest, api.NoError, api.PolicyViolation}
	for i, r := range got {
		if i >= len(want) || code(r.Err) != want[i] {
			t.Errorf("%s: %v", r.Name, r.Err)
		}
	}
	if len(got) != len(want) || b.s.Image().TopicCount() != 3 {
		t.Errorf("%d results, %d topics; want %d, 3", len(got), b.s.Image().TopicCount(), len(want))
	}
	before := len(b.log)
	dry, _ := b.run(b.s.CreateTopics(b.now, []NewTopic{topic("dry", 2, 1), topic("a", 1, 1)}, true)).([]TopicResult)
	if code(dry[0].Err) != api.NoError || dry[0].Partitions != 2 || code(dry[1].Err) != api.TopicAlreadyExists || len(b.log) != before {
		t.Errorf("validate only: %+v, %d records", dry, len(b.log)-before)
	}
}

func TestCreateWithoutBrokers(t *testing.T) {
	b := newBench(t, nil)
	if got := b.create(topic("a", 1, 1))[0]; code(got.Err) != api.InvalidReplicationFactor {
		t.Errorf("without any broker: %v", got.Err)
	}
	b.register(1, 1, "")
	if got := b.create(topic("a", 1, 1))[0]; code(got.Err) != api.InvalidReplicationFactor || !strings.Contains(got.Err.Message, "fenced") {
		t.Errorf("with a fenced broker only: %v", got.Err)
	}
}

// Leaders go round robin, and replicas to different racks.
func TestPlacement(t *testing.T) {
	b := newBench(t, nil)
	for i, rack := range []string{"a", "a", "b", "b", "c", "c"} {
		b.register(int32(i), 1, rack)
		b.beat(int32(i), nil)
	}
	b.create(topic("t", 60, 3))
	leaders, all := map[int32]int{}, map[int32]int{}
	for i, p := range b.s.Image().TopicByName("t").Partitions {
		leaders[p.Leader]++
		racks := map[int32]bool{}
		for _, r := range p.Replicas {
			racks[r/2] = true
			all[r]++
		}
		if len(racks) != 3 {
			t.Errorf("partition %d on %v: not three racks", i, p.Replicas)
		}
	}
	for broker := range int32(6) {
		if leaders[broker] != 10 {
			t.Errorf("broker %d leads %d partitions, want 10", broker, leaders[broker])
		}
		if all[broker] < 20 || all[broker] > 40 {
			t.Errorf("broker %d holds %d replicas, want about 30", broker, all[broker])
		}
	}
	b.create(topic("wide", 7, 6))
	for i, p := range b.s.Image().TopicByName("wide").Partitions {
		seen := slices.Clone(p.Replicas)
		slices.Sort(seen)
		if len(slices.Compact(seen)) != 6 {
			t.Errorf("partition %d of a topic with six replicas is on %v", i, p.Replicas)
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	for _, tt := range []struct {
		name string
		more MorePartitions
		want api.Code
		have int
	}{
		{"more", MorePartitions{Name: "a", Count: 5}, api.NoError, 5},
		{"by hand", MorePartitions{Name: "a", Count: 4, Assignments: [][]int32{{2}, {1}}}, api.NoError, 4},
		{"as many", MorePartitions{Name: "a", Count: 2}, api.InvalidPartitions, 2},
		{"fewer", MorePartitions{Name: "a", Count: 1}, api.InvalidPartitions, 2},
		{"far too many", MorePartitions{Name: "a", Count: 1<<31 - 1}, api.PolicyViolation, 2},
		{"a wrong number of assignments", MorePartitions{Name: "a", Count: 4, Assignments: [][]int32{{1}}}, api.InvalidReplicaAssignment, 2},
		{"another factor", MorePartitions{Name: "a", Count: 3, Assignments: [][]int32{{1, 2}}}, api.InvalidReplicaAssignment, 2},
		{"unknown", MorePartitions{Name: "z", Count: 3}, api.UnknownTopicOrPartition, 2},
		{"guarded", MorePartitions{Name: "guarded", Count: 3}, api.PolicyViolation, 2},
		{"guarded, but the cluster's own", MorePartitions{Name: "guarded", Count: 3, Internal: true}, api.NoError, 2},
	} {
		b := newBench(t, guarded)
		b.up(1, 2)
		b.create(topic("a", 2, 1), topic("guarded", 2, 1))
		got, _ := b.run(b.s.CreatePartitions(b.now, []MorePartitions{tt.more}, false)).([]TopicResult)
		if len(got) != 1 || code(got[0].Err) != tt.want || len(b.s.Image().TopicByName("a").Partitions) != tt.have {
			t.Errorf("%s: %+v, %d partitions", tt.name, got, len(b.s.Image().TopicByName("a").Partitions))
		}
		b.check()
	}
	b := newBench(t, nil)
	b.up(1)
	b.create(topic("a", 2, 1))
	got, _ := b.run(b.s.CreatePartitions(b.now, []MorePartitions{{Name: "a", Count: 3}, {Name: "a", Count: 4}}, false)).([]TopicResult)
	if len(got) != 1 || code(got[0].Err) != api.InvalidRequest {
		t.Errorf("a topic twice: %+v", got)
	}
}

// guarded refuses every change of the topic "guarded", and of the key "a" anywhere.
func guarded(o *Options) {
	o.Guards = []Guard{func(_ *meta.Image, op Op) *api.Error {
		if op.Topic != nil && op.Topic.Name == "guarded" || slices.Contains(op.Keys, "a") {
			return api.Errorf(api.PolicyViolation, "guarded")
		}
		return nil
	}}
}

func TestDeleteTopics(t *testing.T) {
	b := newBench(t, guarded)
	b.up(1)
	made := b.create(topic("a", 1, 1), topic("b", 1, 1), topic("c", 1, 1), topic("guarded", 1, 1))
	got, _ := b.run(b.s.DeleteTopics(b.now, []DeleteTopic{
		{Name: "a"}, {ID: made[1].ID}, {Name: "z"}, {ID: ids.UUID{0: 99}}, {Name: "c", ID: made[2].ID}, {}, {Name: "c"}, {Name: "guarded"}, {ID: made[2].ID},
	})).([]TopicResult)
	want := []api.Code{api.NoError, api.NoError, api.UnknownTopicOrPartition, api.UnknownTopicID, api.InvalidRequest, api.InvalidRequest, api.InvalidRequest, api.PolicyViolation}
	for i, r := range got {
		if i >= len(want) || code(r.Err) != want[i] {
			t.Errorf("%d: %v", i, r.Err)
		}
	}
	if got[1].Name != "b" || b.s.Image().TopicCount() != 2 {
		t.Errorf("deleted by id: %+v; %d topics are left, want 2", got[1], b.s.Image().TopicCount())
	}
	got, _ = b.run(b.s.DeleteTopics(b.now, []DeleteTopic{{Name: "guarded", Internal: true}})).([]TopicResult)
	if code(got[0].Err) != api.NoError {
		t.Errorf("the cluster itself can't delete: %v", got[0].Err)
	}
	b.s.o.DeleteTopics = false
	got, _ = b.run(b.s.DeleteTopics(b.now, []DeleteTopic{{Name: "c"}})).([]TopicResult)
	if code(got[0].Err) != api.TopicDeletionDisabled {
		t.Errorf("with deletion disabled: %v", got[0].Err)
	}
}

// Spec 4.14: if current leader epoch <= MinLeaderEpoch then new epoch = MinLeaderEpoch + 1,
// leader unchanged; else nothing is written and the answer is success.
func TestBumpLeaderEpochs(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	b.create(topic("a", 2, 1))
	bump := func(bumps ...EpochBump) []*api.Error {
		errs, _ := b.run(b.s.BumpLeaderEpochs(b.now, bumps)).([]*api.Error)
		return errs
	}
	errs := bump(EpochBump{"a", 0, 7}, EpochBump{"a", 1, -1}, EpochBump{"a", 2, 1}, EpochBump{"z", 0, 1}, EpochBump{"a", 0, 3}, EpochBump{"a", 1, 1<<31 - 1})
	want := []api.Code{0, 0, api.UnknownTopicOrPartition, api.UnknownTopicOrPartition, 0, api.InvalidRequest}
	for i, err := range errs {
		if code(err) != want[i] {
			t.Errorf("bump %d: %v, want %v", i, err, want[i])
		}
	}
	p0, p1 := b.s.Image().Partition("a", 0), b.s.Image().Partition("a", 1)
	if p0.LeaderEpoch != 8 || p0.Leader != 1 || p1.LeaderEpoch != 0 {
		t.Errorf("epochs %d and %d, want 8 and 0", p0.LeaderEpoch, p1.LeaderEpoch)
	}
	before := len(b.log)
	if bump(EpochBump{"a", 0, 7}); len(b.log) != before {
		t.Error("a bump that was reached already left a record")
	}
	if bump(EpochBump{"a", 0, 8}); b.s.Image().Partition("a", 0).LeaderEpoch != 9 {
		t.Error("a bump at the current epoch did not raise it")
	}
	// A source's batches may say any epoch: what leaves none for elections is refused.
	if errs := bump(EpochBump{"a", 0, maxBumpedEpoch}, EpochBump{"a", 1, maxBumpedEpoch - 1}); code(errs[0]) != api.InvalidRequest || code(errs[1]) != 0 {
		t.Errorf("bumps at the limit: %v", errs)
	}
}

// Never two leaders under one epoch: after the last one nothing changes any more.
func TestNoElectionAfterTheLastEpoch(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2)
	b.create(topic("a", 1, 2))
	tp := b.s.Image().TopicByName("a")
	b.run(b.s.result(nil, BumpRecord(tp, 0, 1<<31-1)))
	before := b.s.Image().Partition("a", 0)
	b.silence(before.Leader)
	if p := b.s.Image().Partition("a", 0); p.Leader != before.Leader || p.LeaderEpoch != before.LeaderEpoch {
		t.Errorf("leader %d epoch %d after leader %d epoch %d", p.Leader, p.LeaderEpoch, before.Leader, before.LeaderEpoch)
	}
}

func TestAlterConfigs(t *testing.T) {
	res := func(kind int8, name string) meta.Resource { return meta.Resource{Type: kind, Name: name} }
	set := func(k, v string) ConfigChange { return ConfigChange{Key: k, Value: &v} }
	onTopic := func(changes ...ConfigChange) AlterResource {
		return AlterResource{Resource: res(meta.ResourceTopic, "t"), Changes: changes}
	}
	for _, tt := range []struct {
		name    string
		alter   AlterResource
		want    api.Code
		entries string
	}{
		{"set", onTopic(set("retention.ms", "9")), 0, "map[b:0 retention.ms:9]"},
		{"set the same", onTopic(set("b", "0")), 0, "map[b:0]"},
		{"delete", onTopic(ConfigChange{Key: "b", Op: DeleteConfig}), 0, "map[]"},
		{"delete what isn't there", onTopic(ConfigChange{Key: "x", Op: DeleteConfig}), 0, "map[b:0]"},
		{"append to the default", onTopic(ConfigChange{Key: "cleanup.policy", Op: AppendConfig, Value: str("compact,delete")}), 0, "map[b:0 cleanup.policy:delete,compact]"},
		{"subtract from the default", onTopic(ConfigChange{Key: "cleanup.policy", Op: SubtractConfig, Value: str("delete")}), 0, "map[b:0 cleanup.policy:]"},
		{"append to no list", onTopic(ConfigChange{Key: "b", Op: AppendConfig, Value: str("1")}), api.InvalidConfig, "map[b:0]"},
		{"an unknown operation", onTopic(ConfigChange{Key: "b", Op: 9, Value: str("1")}), api.InvalidRequest, "map[b:0]"},
		{"null", onTopic(ConfigChange{Key: "b"}), api.InvalidRequest, "map[b:0]"},
		{"a key twice", onTopic(set("b", "1"), set("b", "2")), api.InvalidRequest, "map[b:0]"},
		{"all or nothing", onTopic(set("retention.ms", "1"), set("retention.x", "1")), api.InvalidConfig, "map[b:0]"},
		{"what doesn't go together", onTopic(set("a", "0")), api.InvalidConfig, "map[b:0]"},
		{"guarded", onTopic(set("a", "1")), api.PolicyViolation, "map[b:0]"},
		{"replace", AlterResource{Resource: res(meta.ResourceTopic, "t"), Replace: true, Changes: []ConfigChange{set("retention.ms", "1")}}, 0, "map[retention.ms:1]"},
		{"replace by nothing", AlterResource{Resource: res(meta.ResourceTopic, "t"), Replace: true}, 0, "map[]"},
		{"an unknown topic", AlterResource{Resource: res(meta.ResourceTopic, "z"), Changes: []ConfigChange{set("b", "1")}}, api.UnknownTopicOrPartition, ""},
		{"a topic with a bad name", AlterResource{Resource: res(meta.ResourceTopic, "/"), Changes: []ConfigChange{set("b", "1")}}, api.InvalidTopicException, ""},
		{"a broker", AlterResource{Resource: res(meta.ResourceBroker, "1"), Changes: []ConfigChange{set("b", "1")}}, 0, "map[b:1]"},
		{"all brokers", AlterResource{Resource: res(meta.ResourceBroker, ""), Changes: []ConfigChange{set("b", "1")}}, 0, "map[b:1]"},
		{"an unknown broker", AlterResource{Resource: res(meta.ResourceBroker, "7"), Changes: []ConfigChange{set("b", "1")}}, api.BrokerIDNotRegistered, ""},
		{"no broker at all", AlterResource{Resource: res(meta.ResourceBroker, "x"), Changes: []ConfigChange{set("b", "1")}}, api.InvalidRequest, ""},
		{"a group", AlterResource{Resource: res(meta.ResourceGroup, "g"), Changes: []ConfigChange{set("b", "1")}}, 0, "map[b:1]"},
		{"a group without a name", AlterResource{Resource: res(meta.ResourceGroup, ""), Changes: []ConfigChange{set("b", "1")}}, api.InvalidRequest, ""},
		{"a mirror", AlterResource{Resource: res(meta.ResourceClusterMirror, "m"), Changes: []ConfigChange{set("retention.ms", "1")}}, 0, "map[b:0 retention.ms:1]"},
		{"an unknown mirror", AlterResource{Resource: res(meta.ResourceClusterMirror, "x"), Changes: []ConfigChange{set("b", "1")}}, api.UnknownClusterMirror, ""},
		{"a mirror to nothing", AlterResource{Resource: res(meta.ResourceClusterMirror, "m"), Replace: true}, api.InvalidRequest, "map[b:0]"},
		{"guarded, but the cluster's own", AlterResource{Resource: res(meta.ResourceTopic, "t"), Internal: true, Changes: []ConfigChange{set("a", "1")}}, 0, "map[a:1 b:0]"},
		{"a logger", AlterResource{Resource: res(meta.ResourceBrokerLogger, "1"), Changes: []ConfigChange{set("b", "1")}}, api.InvalidRequest, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, guarded)
			b.up(1)
			b.create(NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"b": str("0")}})
			b.run(b.s.Result(nil, &meta.ConfigRecord{ResourceType: meta.ResourceClusterMirror, ResourceName: "m", Key: "b", Value: str("0")}))
			for _, dry := range []bool{true, false} {
				before := len(b.log)
				errs, _ := b.run(b.s.AlterConfigs(b.now, []AlterResource{tt.alter}, dry)).([]*api.Error)
				if len(errs) != 1 || code(errs[0]) != tt.want {
					t.Fatalf("%v, want %v", errs, tt.want)
				}
				if (dry || tt.want != 0) && len(b.log) != before {
					t.Errorf("dry run %v, code %v: %d records", dry, tt.want, len(b.log)-before)
				}
			}
			got := b.s.Image().Config(tt.alter.Resource.Type, tt.alter.Resource.Name)
			if tt.entries != "" && fmt.Sprint(got) != tt.entries {
				t.Errorf("entries %v, want %s", got, tt.entries)
			}
		})
	}
	b := newBench(t, nil)
	twice := AlterResource{Resource: res(meta.ResourceGroup, "g"), Changes: []ConfigChange{set("b", "1")}}
	other := AlterResource{Resource: res(meta.ResourceGroup, "h"), Changes: []ConfigChange{set("b", "1")}}
	errs, _ := b.run(b.s.AlterConfigs(b.now, []AlterResource{twice, other, twice}, false)).([]*api.Error)
	if code(errs[0]) != api.InvalidRequest || code(errs[1]) != 0 || code(errs[2]) != api.InvalidRequest {
		t.Errorf("a resource twice: %v", errs)
	}
}

func TestProducerIDBlocks(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	epoch := b.s.Image().Broker(1).Epoch
	for i := range int64(3) {
		if got := b.run(b.s.AllocateProducerIDs(b.now, 1, epoch)); got != i*ProducerIDBlock {
			t.Errorf("block %d begins at %v", i, got)
		}
	}
	if r := b.s.AllocateProducerIDs(b.now, 1, epoch+1); r.Err == nil {
		t.Error("a wrong broker epoch got a block")
	}
}

// What no record can hold is refused before any rule looks at it.
func TestHugeConfigs(t *testing.T) {
	b := newBench(t, nil)
	b.up(1)
	b.create(topic("t", 1, 1))
	huge := strings.Repeat("x", math.MaxInt16+1)
	for _, ch := range []ConfigChange{{Key: "a", Value: &huge}, {Key: "cleanup.policy", Op: AppendConfig, Value: &huge}} {
		r := AlterResource{Resource: meta.Resource{Type: meta.ResourceTopic, Name: "t"}, Changes: []ConfigChange{ch}}
		errs := b.run(b.s.AlterConfigs(b.now, []AlterResource{r}, false)).([]*api.Error)
		if len(errs) != 1 || errs[0] == nil || errs[0].Code != api.InvalidConfig || len(errs[0].Message) > 500 {
			t.Errorf("%s: %v", ch.Key, errs)
		}
	}
	res := b.create(NewTopic{Name: "u", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"a": &huge}})
	if res[0].Err == nil || res[0].Err.Code != api.InvalidConfig {
		t.Errorf("a topic with a huge config: %v", res[0].Err)
	}
}
