package controller

import (
	"slices"
	"testing"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

func TestUpdateFeatures(t *testing.T) {
	const mv = meta.MetadataVersionFeature
	up := func(name string, level int16) FeatureUpdate { return FeatureUpdate{name, level, UpgradeFeature} }
	down := func(name string, level int16) FeatureUpdate { return FeatureUpdate{name, level, DowngradeFeature} }
	unsafe := func(name string, level int16) FeatureUpdate {
		return FeatureUpdate{name, level, UnsafeDowngradeFeature}
	}
	start := map[string]int16{mv: 31, MirrorFeature: 0}
	for _, tt := range []struct {
		name    string
		start   map[string]int16
		updates []FeatureUpdate
		want    []api.Code // nil: all succeed
		after   map[string]int16
	}{
		{"up", start, []FeatureUpdate{up(mv, 33)}, nil, map[string]int16{mv: 33}},
		{"both at once, in any order", start, []FeatureUpdate{up(MirrorFeature, 1), up(mv, 33)}, nil, map[string]int16{mv: 33, MirrorFeature: 1}},
		{"what is already", start, []FeatureUpdate{up(mv, 31), down(MirrorFeature, 0)}, nil, map[string]int16{mv: 31}},
		{"down without loss", start, []FeatureUpdate{down(mv, 30)}, nil, map[string]int16{mv: 30}},
		{"down with loss", start, []FeatureUpdate{down(mv, 29)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"unsafe down with loss", start, []FeatureUpdate{unsafe(mv, 29)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"down as an upgrade", start, []FeatureUpdate{up(mv, 30)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"up as a downgrade", start, []FeatureUpdate{down(mv, 32)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"above what is supported", start, []FeatureUpdate{up(mv, 34)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"below what is supported", start, []FeatureUpdate{unsafe(mv, 0)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"negative", start, []FeatureUpdate{unsafe(mv, -1)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"unknown", start, []FeatureUpdate{up("kraft.version", 1)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"not there yet", start, []FeatureUpdate{up(GroupFeature, 1)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"an unknown kind", start, []FeatureUpdate{{mv, 33, 9}}, []api.Code{api.InvalidRequest}, nil},
		{"twice", start, []FeatureUpdate{up(mv, 33), up(mv, 33)}, []api.Code{api.NoError, api.InvalidRequest}, nil},
		{"all or nothing", start, []FeatureUpdate{up(mv, 33), up("x", 1)}, []api.Code{api.NoError, api.InvalidUpdateVersion}, nil},
		{"a feature without what it needs", start, []FeatureUpdate{up(MirrorFeature, 1)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"what a feature needs goes", map[string]int16{mv: 32, MirrorFeature: 1}, []FeatureUpdate{down(mv, 31)}, []api.Code{api.InvalidUpdateVersion}, nil},
		{"a feature goes", map[string]int16{mv: 33, MirrorFeature: 1}, []FeatureUpdate{down(MirrorFeature, 0)}, nil, map[string]int16{mv: 33}},
		{"a feature a guard holds", map[string]int16{mv: 33, MirrorFeature: 2}, []FeatureUpdate{down(MirrorFeature, 1)}, []api.Code{api.InvalidUpdateVersion}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				o.Bootstrap = nil
				for _, name := range []string{mv, MirrorFeature} {
					if level := tt.start[name]; level > 0 {
						o.Bootstrap = append(o.Bootstrap, &meta.FeatureLevelRecord{Feature: name, Level: level})
					}
				}
				o.Guards = []Guard{func(_ *meta.Image, op Op) *api.Error {
					if op.Kind == OpUpdateFeature && op.Feature == MirrorFeature && op.Level == 1 && tt.start[mv] == 33 {
						return api.Errorf(api.InvalidUpdateVersion, "held")
					}
					return nil
				}}
			})
			before := len(b.log)
			dry, _ := b.run(b.s.UpdateFeatures(b.now, tt.updates, true)).([]*api.Error)
			if len(b.log) != before {
				t.Error("a dry run left records")
			}
			errs, _ := b.run(b.s.UpdateFeatures(b.now, tt.updates, false)).([]*api.Error)
			for i := range tt.updates {
				want := api.NoError
				if tt.want != nil {
					want = tt.want[i]
				}
				if code(errs[i]) != want || code(dry[i]) != want {
					t.Errorf("%+v: %v, as a dry run %v, want %v", tt.updates[i], errs[i], dry[i], want)
				}
			}
			after := tt.after
			if tt.want != nil {
				after = tt.start
			}
			for _, name := range []string{mv, MirrorFeature} {
				if got := b.s.Image().Feature(name); got != after[name] {
					t.Errorf("%s is at %d, want %d", name, got, after[name])
				}
			}
		})
	}
}

// A level needs the support of every registered node, also of those that are away.
func TestFeaturesNeedEveryNode(t *testing.T) {
	old := []meta.FeatureRange{{Name: meta.MetadataVersionFeature, Min: 7, Max: 32}}
	update := []FeatureUpdate{{meta.MetadataVersionFeature, 33, UpgradeFeature}}
	edit := func(o *Options) {
		o.Bootstrap = []meta.Record{&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 32}}
	}
	b := newBench(t, edit)
	r := b.registration(1, 1)
	r.Features = old
	b.run(b.s.RegisterBroker(b.now, r))
	if errs, _ := b.run(b.s.UpdateFeatures(b.now, update, false)).([]*api.Error); code(errs[0]) != api.InvalidUpdateVersion {
		t.Errorf("with an old broker: %v", errs[0])
	}
	b.run(b.s.UnregisterBroker(b.now, 1))
	reg := ControllerRegistration{ID: 7, Incarnation: incarnation(7, 1), Features: old, Endpoints: []meta.Endpoint{{Name: "CONTROLLER", Host: "h", Port: 1}}}
	b.run(b.s.RegisterController(b.now, reg))
	if c := b.s.Image().Controller(7); c == nil || !slices.Equal(c.Endpoints, reg.Endpoints) || !slices.Equal(c.Features, old) {
		t.Errorf("controller 7 is %+v", c)
	}
	if errs, _ := b.run(b.s.UpdateFeatures(b.now, update, false)).([]*api.Error); code(errs[0]) != api.InvalidUpdateVersion {
		t.Errorf("with an old controller: %v", errs[0])
	}
	before := len(b.log)
	b.run(b.s.RegisterController(b.now, reg))
	if len(b.log) != before {
		t.Error("the same registration left a record again")
	}
	reg.Incarnation, reg.Features = incarnation(7, 2), Features()
	b.run(b.s.RegisterController(b.now, reg))
	if errs, _ := b.run(b.s.UpdateFeatures(b.now, update, false)).([]*api.Error); errs[0] != nil {
		t.Errorf("with new nodes only: %v", errs[0])
	}
	r.Incarnation = incarnation(1, 2)
	if err, _ := b.run(b.s.RegisterBroker(b.now, r)).(error); err == nil {
		t.Error("an old broker can register after the upgrade")
	}
	reg.Features = old
	if err, _ := b.run(b.s.RegisterController(b.now, reg)).(error); err == nil {
		t.Error("an old controller can register after the upgrade")
	}
	reg.Incarnation = ids.UUID{}
	if err, _ := b.run(b.s.RegisterController(b.now, reg)).(error); err == nil {
		t.Error("a controller without incarnation can register")
	}
}

// A new cluster has the newest levels, and its records begin with metadata.version.
func TestBootstrap(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Bootstrap = Bootstrap() })
	for _, f := range Features() {
		if got := b.s.Image().Feature(f.Name); got != f.Max {
			t.Errorf("%s is at %d, want %d", f.Name, got, f.Max)
		}
	}
	if first, err := meta.Decode(b.log[0].Value); err != nil || *first.(*meta.FeatureLevelRecord) != (meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 33}) {
		t.Errorf("the log begins with %+v, %v", first, err)
	}
}

// What AlterPartition, ElectLeaders, AssignDirs and the reassignments answer beyond what the
// scripts show.
func TestStaleAlterPartition(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2)
	b.create(assigned("a", []int32{1, 2}))
	b.run(b.s.BumpLeaderEpochs(b.now, []EpochBump{{"a", 0, 4}})) // leader epoch 5, partition epoch 1
	img := b.s.Image()
	id := img.TopicByName("a").ID
	both := []ISRMember{{1, -1}, {2, -1}}
	for _, tt := range []struct {
		name   string
		broker int32
		change AlterISR
		want   api.Code
	}{
		{"as it is", 1, AlterISR{id, 0, 5, 1, both, 0, nil}, api.NoError},
		{"an old leader epoch", 1, AlterISR{id, 0, 4, 1, both, 0, nil}, api.FencedLeaderEpoch},
		{"a leader epoch of the future", 1, AlterISR{id, 0, 6, 1, both, 0, nil}, api.NotController},
		{"an old partition epoch", 1, AlterISR{id, 0, 5, 0, both, 0, nil}, api.InvalidUpdateVersion},
		{"a partition epoch of the future", 1, AlterISR{id, 0, 5, 2, both, 0, nil}, api.NotController},
		{"by a follower", 2, AlterISR{id, 0, 5, 1, both, 0, nil}, api.InvalidRequest},
		{"to recovering", 1, AlterISR{id, 0, 5, 1, both[:1], 1, nil}, api.InvalidRequest},
		{"an unknown recovery state", 1, AlterISR{id, 0, 5, 1, both, 2, nil}, api.InvalidRequest},
		{"an unknown topic", 1, AlterISR{ids.UUID{1}, 0, 5, 1, both, 0, nil}, api.UnknownTopicID},
		{"an unknown partition", 1, AlterISR{id, 1, 5, 1, both, 0, nil}, api.UnknownTopicOrPartition},
		{"a member of another time", 1, AlterISR{id, 0, 5, 1, []ISRMember{{1, -1}, {2, 99}}, 0, nil}, api.IneligibleReplica},
	} {
		before := len(b.log)
		epoch := img.Broker(tt.broker).Epoch
		res, _ := b.run(b.s.AlterPartition(b.now, tt.broker, epoch, []AlterISR{tt.change})).([]AlterISRResult)
		if len(res) != 1 || code(res[0].Err) != tt.want || len(b.log) != before {
			t.Errorf("%s: %+v and %d records, want %v and none", tt.name, res, len(b.log)-before, tt.want)
		}
		if r := b.s.AlterPartition(b.now, tt.broker, epoch+1, nil); r.Err == nil {
			t.Errorf("%s: a stale broker epoch is taken", tt.name)
		}
	}
	twice := AlterISR{id, 0, 5, 1, both[:1], 0, nil}
	res, _ := b.run(b.s.AlterPartition(b.now, 1, img.Broker(1).Epoch, []AlterISR{twice, twice})).([]AlterISRResult)
	if res[0].Err != nil || !slices.Equal(res[0].ISR, []int32{1}) || res[0].PartitionEpoch != 2 || res[0].Leader != 1 || res[0].LeaderEpoch != 5 || code(res[1].Err) != api.InvalidRequest {
		t.Errorf("a partition twice: %+v", res)
	}
}

func TestElectLeadersEverywhere(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2)
	b.create(assigned("a", []int32{1, 2}, []int32{2, 1}), assigned("b", []int32{1}))
	b.beat(1, func(h *Heartbeat) { h.WantFence = true })
	b.beat(1, nil)
	isr := AlterISR{Topic: b.s.Image().TopicByName("a").ID, LeaderEpoch: 1, PartitionEpoch: 1, ISR: []ISRMember{{2, -1}, {1, -1}}}
	b.run(b.s.AlterPartition(b.now, 2, b.s.Image().Broker(2).Epoch, []AlterISR{isr}))
	res, _ := b.run(b.s.ElectLeaders(b.now, PreferredElection, nil)).([]ElectionResult)
	if len(res) != 1 || res[0].TopicPartition != (TopicPartition{"a", 0}) || res[0].Err != nil || b.s.Image().Partition("a", 0).Leader != 1 {
		t.Errorf("elections everywhere: %+v", res)
	}
	if res, _ := b.run(b.s.ElectLeaders(b.now, PreferredElection, []TopicPartition{})).([]ElectionResult); len(res) != 0 {
		t.Errorf("elections nowhere: %+v", res)
	}
}

func TestListReassignments(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2)
	b.create(assigned("a", []int32{1}, []int32{1}), assigned("b", []int32{1}))
	b.run(b.s.AlterReassignments(b.now, []Reassignment{{TopicPartition{"a", 1}, []int32{2}}, {TopicPartition{"b", 0}, []int32{2, 1}}}, true))
	all, _ := b.run(b.s.ListReassignments(b.now, nil)).([]Reassigning)
	if len(all) != 2 || all[0].TopicPartition != (TopicPartition{"a", 1}) || !slices.Equal(all[0].Replicas, []int32{2, 1}) ||
		!slices.Equal(all[0].Adding, []int32{2}) || !slices.Equal(all[0].Removing, []int32{1}) || len(all[1].Removing) != 0 {
		t.Errorf("all: %+v", all)
	}
	some, _ := b.run(b.s.ListReassignments(b.now, []TopicPartition{{"a", 0}, {"b", 0}, {"c", 0}})).([]Reassigning)
	if len(some) != 1 || some[0].Topic != "b" {
		t.Errorf("some: %+v", some)
	}
}
