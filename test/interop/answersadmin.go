package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peertest"
)

// askTopics creates, grows and deletes.
func (x *answers) askTopics() error {
	type topic = kmsg.CreateTopicsRequestTopic
	with := func(name string, partitions int32, replicas int16, configs ...kmsg.CreateTopicsRequestTopicConfig) topic {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor, t.Configs = name, partitions, replicas, configs
		return t
	}
	assigned := func(name string, partitions int32, replicas int16, of map[int32][]int32) topic {
		t := with(name, partitions, replicas)
		for p := range int32(3) {
			if r, ok := of[p]; ok {
				t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: r})
			}
		}
		return t
	}
	config := func(k string, v *string) kmsg.CreateTopicsRequestTopicConfig {
		return kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: v}
	}
	for _, c := range []struct {
		name     string
		validate bool
		least    int16
		topics   func(v int16) []topic
	}{
		{"create", false, 2, func(v int16) []topic { return []topic{with(fmt.Sprintf("new-%d", v), 2, 1)} }},
		{"create by defaults", false, 4, func(v int16) []topic { return []topic{with(fmt.Sprintf("default-%d", v), -1, -1)} }},
		{"create with configs", false, 2, func(v int16) []topic {
			return []topic{with(fmt.Sprintf("configured-%d", v), 1, 1, config("retention.ms", ptr("5000")), config("cleanup.policy", ptr("compact,delete")))}
		}},
		{"create assigned", false, 2, func(v int16) []topic {
			return []topic{assigned(fmt.Sprintf("assigned-%d", v), -1, -1, map[int32][]int32{0: {1}, 1: {1}})}
		}},
		{"create only to look", true, 2, func(int16) []topic {
			return []topic{with("a", 1, 1), with("look", 3, 1), with("bad/name", 1, 1), with("", 1, 1), with(".", 1, 1), with(strings.Repeat("x", 250), 1, 1), with("n-0", 0, 1), with("n-2", -2, 1),
				with("r-0", 1, 0), with("r-2", 1, 2), with("look_config", 1, 1, config("nosuch.key", ptr("1"))), with("bad.value", 1, 1, config("retention.ms", ptr("soon"))),
				with("null.value", 1, 1, config("retention.ms", nil)), with("out.of.bounds", 1, 1, config("segment.bytes", ptr("3"))), with("cleanup", 1, 1, config("cleanup.policy", ptr("burn"))),
				assigned("both", 2, 1, map[int32][]int32{0: {1}, 1: {1}}), assigned("nobroker", -1, -1, map[int32][]int32{0: {7}}), assigned("gap", -1, -1, map[int32][]int32{0: {1}, 2: {1}}),
				assigned("twice", -1, -1, map[int32][]int32{0: {1, 1}}), assigned("norep", -1, -1, map[int32][]int32{0: {}})}
		}},
		{"create one twice", false, 2, func(v int16) []topic {
			n := fmt.Sprintf("twice-%d", v)
			return []topic{with(n, 1, 1), with(n, 1, 1), with("only-"+n, 1, 1)}
		}},
		{"create a name with a dot", false, 2, func(v int16) []topic { return []topic{with(fmt.Sprintf("c.%d", v), 1, 1)} }},
		{"create a name that collides with it", false, 2, func(v int16) []topic { return []topic{with(fmt.Sprintf("c_%d", v), 1, 1)} }},
	} {
		r, top := x.brokers[0].ranges[19], x.brokers[1].ranges[19]
		for v := max(r[0], c.least); v <= min(r[1], top[1]); v++ {
			if _, err := x.one(c.name, v, func(v int16, _ *asked) kmsg.Request {
				r := kmsg.NewPtrCreateTopicsRequest()
				r.TimeoutMillis, r.ValidateOnly, r.Topics = 10000, c.validate, c.topics(v)
				return r
			}); err != nil {
				return err
			}
		}
	}
	if err := x.askPartitions(); err != nil {
		return err
	}
	return x.askDeletion()
}

func (x *answers) askDeletion() error {
	for _, c := range []struct {
		name   string
		least  int16
		topics func(v int16, a *asked) []kmsg.DeleteTopicsRequestTopic
	}{
		{"delete", 0, func(v int16, _ *asked) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{{Topic: ptr(fmt.Sprintf("new-%d", v+1))}, {Topic: ptr("nosuch")}}
		}},
		{"delete by id", 6, func(_ int16, a *asked) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{9}}, {Topic: ptr("a"), TopicID: a.ids["a"]}, {Topic: ptr("bad/name")}}
		}},
		{"delete twice", 0, func(int16, *asked) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("compacted")}, {Topic: ptr("compacted")}}
		}},
	} {
		if err := x.from(c.name, 20, c.least, func(v int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrDeleteTopicsRequest()
			r.TimeoutMillis = 10000
			for _, t := range c.topics(v, a) {
				if v < 6 {
					r.TopicNames = append(r.TopicNames, *t.Topic)
				} else {
					r.Topics = append(r.Topics, t)
				}
			}
			return r
		}); err != nil {
			return err
		}
	}
	return nil
}

func (x *answers) askPartitions() error {
	type topic = kmsg.CreatePartitionsRequestTopic
	to := func(name string, n int32, brokers ...[]int32) topic {
		t := topic{Topic: name, Count: n}
		for _, b := range brokers {
			t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: b})
		}
		return t
	}
	for name, topics := range map[string][]topic{
		"grow": {to("a", 1), to("nosuch", 3), to("bad/name", 3), to("compacted", 2), to("idem", -1)}, "grow assigned": {to("a", 4, []int32{1}), to("compacted", 3, []int32{7}), to("idem", 3, []int32{})},
		"grow twice": {to("a", 3), to("a", 4)}, "grow to 0": {to("a", 0)}, "grow well": {to("a", 3, []int32{1}), to("compacted", 5)},
	} {
		if err := x.all(name, 37, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrCreatePartitionsRequest()
			r.TimeoutMillis, r.Topics, r.ValidateOnly = 10000, topics, true
			return r
		}); err != nil {
			return err
		}
	}
	if err := x.all("really grow", 37, func(v int16, _ *asked) kmsg.Request {
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.TimeoutMillis, r.Topics = 10000, []topic{to("idem", int32(v)+3)}
		return r
	}); err != nil {
		return err
	}
	type cursor = kmsg.DescribeTopicPartitionsRequestCursor
	for name, c := range map[string]struct {
		topics []string
		limit  int32
		cursor *cursor
	}{
		"partitions": {[]string{"idem", "nosuch", "a", "bad/name"}, 2000, nil}, "partitions of all": {nil, 3, nil}, "partitions, one": {[]string{"a", "idem"}, 1, nil},
		"partitions from": {[]string{"a", "idem"}, 10, &cursor{Topic: "idem", Partition: 1}}, "partitions from nowhere": {[]string{"a"}, 10, &cursor{Topic: "zz", Partition: 0}},
		"partitions from a negative one": {[]string{"a"}, 10, &cursor{Topic: "a", Partition: -3}}, "partitions without a limit": {[]string{"a"}, 0, nil},
	} {
		if err := x.all(name, 75, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrDescribeTopicPartitionsRequest()
			r.ResponsePartitionLimit, r.Cursor = c.limit, c.cursor
			for _, t := range c.topics {
				r.Topics = append(r.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
			}
			return r
		}); err != nil {
			return err
		}
	}
	return nil
}

// askConfigs describes and changes configs of all kinds of resources.
func (x *answers) askConfigs() error {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	resources := []resource{{2, "a"}, {2, "nosuch"}, {2, "bad/name"}, {4, "1"}, {4, ""}, {4, "7"}, {4, "x"}, {8, "1"}, {8, "7"}, {16, "m"}, {32, "g"}, {1, "z"}, {77, "z"}}
	describe := func(name string, keys []string, of ...resource) error {
		return x.all(name, 32, func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrDescribeConfigsRequest()
			r.IncludeSynonyms, r.IncludeDocumentation = true, v >= 3
			for _, o := range of {
				r.Resources = append(r.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: o.kind, ResourceName: o.name, ConfigNames: keys})
			}
			return r
		})
	}
	some := []string{"retention.ms", "cleanup.policy", "nosuch.key", "log.retention.ms", "min.insync.replicas", "advertised.listeners", "consumer.session.timeout.ms"}
	for _, o := range resources {
		if err := describe(fmt.Sprintf("configs of %d %q", o.kind, o.name), some, o); err != nil {
			return err
		}
	}
	if err := describe("all configs of a topic", nil, resource{2, "a"}); err != nil {
		return err
	}
	type op = kmsg.IncrementalAlterConfigsRequestResourceConfig
	set := func(k, v string) op { return op{Name: k, Op: 0, Value: &v} }
	alterations := []struct {
		name string
		of   resource
		ops  []op
	}{
		{"set", resource{2, "a"}, []op{set("retention.ms", "70000000000")}}, {"set a bad value", resource{2, "a"}, []op{set("retention.ms", "soon")}}, {"set an unknown key", resource{2, "a"}, []op{set("nosuch.key", "1")}},
		{"set null", resource{2, "a"}, []op{{Name: "retention.ms", Op: 0}}}, {"append", resource{2, "a"}, []op{{Name: "cleanup.policy", Op: 2, Value: ptr("compact")}}}, {"append to what is no list", resource{2, "a"}, []op{{Name: "retention.ms", Op: 2, Value: ptr("1")}}},
		{"subtract", resource{2, "a"}, []op{{Name: "cleanup.policy", Op: 3, Value: ptr("compact")}}}, {"subtract what is not there", resource{2, "a"}, []op{{Name: "cleanup.policy", Op: 3, Value: ptr("compact")}}}, {"op 9", resource{2, "a"}, []op{{Name: "retention.ms", Op: 9, Value: ptr("1")}}},
		{"a key twice", resource{2, "a"}, []op{set("retention.ms", "1000"), set("retention.ms", "2000")}}, {"no key", resource{2, "a"}, nil}, {"an empty key", resource{2, "a"}, []op{set("", "1")}},
		{"topic unknown", resource{2, "nosuch"}, []op{set("retention.ms", "1000")}}, {"topic without a name", resource{2, ""}, []op{set("retention.ms", "1000")}},
		{"broker, dynamic", resource{4, "1"}, []op{set("log.retention.ms", "900000000")}}, {"broker, read-only", resource{4, "1"}, []op{set("num.partitions", "3")}}, {"broker, bad value", resource{4, "1"}, []op{set("log.retention.ms", "soon")}},
		{"cluster default", resource{4, ""}, []op{set("log.retention.ms", "800000000")}}, {"cluster default, only for brokers", resource{4, ""}, []op{set("advertised.listeners", "PLAINTEXT://x:1")}}, {"broker unknown", resource{4, "7"}, []op{set("log.retention.ms", "900000000")}},
		{"broker, no number", resource{4, "x"}, []op{set("log.retention.ms", "900000000")}}, {"type 77", resource{77, "z"}, []op{set("log.retention.ms", "900000000")}}, {"type 1", resource{1, "z"}, []op{set("k", "1")}},
		{"cluster default, taken away", resource{4, ""}, []op{{Name: "log.retention.ms", Op: 1}}}, {"broker, taken away", resource{4, "1"}, []op{{Name: "log.retention.ms", Op: 1}}}, {"taken away what is not there", resource{2, "a"}, []op{{Name: "flush.ms", Op: 1}}},
	}
	for _, c := range alterations {
		for _, validate := range []bool{true, false} {
			name := fmt.Sprintf("alter, %s, look only %t", c.name, validate)
			if err := x.all(name, 44, func(int16, *asked) kmsg.Request {
				r := kmsg.NewPtrIncrementalAlterConfigsRequest()
				r.ValidateOnly = validate
				r.Resources = append(r.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: c.of.kind, ResourceName: c.of.name, Configs: c.ops})
				return r
			}); err != nil {
				return err
			}
		}
		if err := x.askConfigAfter(c.name, c.of.kind, c.of.name, c.ops); err != nil {
			return err
		}
	}
	for _, kinds := range [][]int8{nil, {2}, {4, 16}, {77}} {
		if err := x.all(fmt.Sprintf("resources of types %v", kinds), 74, func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrListConfigResourcesRequest()
			if v >= 1 {
				r.ResourceTypes = kinds
			}
			return r
		}); err != nil {
			return err
		}
	}
	return nil
}

// askConfigAfter does the same by the older request where it can, and looks at the value then in force.
func (x *answers) askConfigAfter(name string, kind kmsg.ConfigResourceType, of string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	if err := x.all("older alter, "+name, 33, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrAlterConfigsRequest()
		res := kmsg.AlterConfigsRequestResource{ResourceType: kind, ResourceName: of}
		for _, o := range ops {
			res.Configs = append(res.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: o.Name, Value: o.Value})
		}
		r.Resources, r.ValidateOnly = append(r.Resources, res), true
		return r
	}); err != nil {
		return err
	}
	if of == "" && kind == 4 || of == "nosuch" {
		return nil // brokers learn of a cluster default each in its time
	}
	if err := peertest.Pause(x.ctx, 200*time.Millisecond); err != nil { // until the broker has followed the controller
		return err
	}
	_, err := x.one("value after "+name, 4, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.IncludeSynonyms = kind == 2
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: "a", ConfigNames: []string{"retention.ms", "cleanup.policy"}}}
		return r
	})
	return err
}

// askCluster asks what concerns brokers, controllers and disks.
func (x *answers) askCluster() error {
	for name, c := range map[string]struct {
		least  int16
		kind   int8
		fenced bool
	}{"cluster": {0, 1, false}, "cluster's controllers": {1, 2, false}, "cluster, endpoints of type 9": {1, 9, false}, "cluster, fenced ones too": {2, 1, true}} {
		if err := x.from(name, 60, c.least, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrDescribeClusterRequest()
			r.EndpointType, r.IncludeFencedBrokers, r.IncludeClusterAuthorizedOperations = c.kind, c.fenced, true
			return r
		}); err != nil {
			return err
		}
	}
	for name, topics := range map[string][]kmsg.DescribeLogDirsRequestTopic{"log directories": {{Topic: "a", Partitions: []int32{0, 1, 9}}, {Topic: "nosuch", Partitions: []int32{0}}}, "log directories of nothing": {}} {
		if err := x.all(name, 35, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = topics
			return r
		}); err != nil {
			return err
		}
	}
	for name, c := range map[string]struct {
		dir   func(*asked) string
		topic string
	}{"move to the same directory": {func(a *asked) string { return a.dirs[0] }, "a"}, "move to no directory": {func(*asked) string { return "/nosuch" }, "a"}, "move to a relative one": {func(*asked) string { return "x" }, "a"}, "move no topic": {func(a *asked) string { return a.dirs[0] }, "nosuch"}} {
		if err := x.all(name, 34, func(_ int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrAlterReplicaLogDirsRequest()
			r.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: c.dir(a), Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: c.topic, Partitions: []int32{0, 9}}}}}
			return r
		}); err != nil {
			return err
		}
	}
	for _, kind := range []int8{0, 1, 9} {
		for name, topics := range map[string][]kmsg.ElectLeadersRequestTopic{"some": {{Topic: "a", Partitions: []int32{0, 9}}, {Topic: "nosuch", Partitions: []int32{0}}}, "all": nil} {
			if err := x.all(fmt.Sprintf("elect %s, kind %d", name, kind), 43, func(int16, *asked) kmsg.Request {
				r := kmsg.NewPtrElectLeadersRequest()
				r.ElectionType, r.Topics, r.TimeoutMillis = kind, topics, 5000
				return r
			}); err != nil {
				return err
			}
		}
	}
	return x.askCluster2()
}

func (x *answers) askCluster2() error {
	for name, replicas := range map[string][]int32{"reassign to an unknown one": {7}, "reassign to nobody": {}, "reassign twice the same": {1, 1}, "reassign to itself": {1}, "reassign, take back": nil} {
		if err := x.all(name, 45, func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			r.TimeoutMillis = 5000
			for _, t := range []string{"a", "nosuch"} {
				r.Topics = append(r.Topics, kmsg.AlterPartitionAssignmentsRequestTopic{Topic: t, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: replicas}, {Partition: 9, Replicas: replicas}}})
			}
			return r
		}); err != nil {
			return err
		}
	}
	for name, topics := range map[string][]kmsg.ListPartitionReassignmentsRequestTopic{"all": nil, "some": {{Topic: "a", Partitions: []int32{0}}, {Topic: "nosuch", Partitions: []int32{0}}}} {
		if err := x.all("reassignments of "+name, 46, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrListPartitionReassignmentsRequest()
			r.TimeoutMillis, r.Topics = 5000, topics
			return r
		}); err != nil {
			return err
		}
	}
	for name, topic := range map[string]string{"quorum": "__cluster_metadata", "quorum of a topic": "a"} {
		if err := x.all(name, 55, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrDescribeQuorumRequest()
			r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
			return r
		}); err != nil {
			return err
		}
	}
	for name, f := range map[string]kmsg.UpdateFeaturesRequestFeatureUpdate{"unknown": {Feature: "nosuch.version", MaxVersionLevel: 1, UpgradeType: 1}, "too high": {Feature: "metadata.version", MaxVersionLevel: 9999, UpgradeType: 1}, "no way": {Feature: "metadata.version", MaxVersionLevel: 9, UpgradeType: 9},
		"down without leave": {Feature: "metadata.version", MaxVersionLevel: 7, UpgradeType: 1}, "to 0": {Feature: "metadata.version", MaxVersionLevel: 0, UpgradeType: 2}} {
		if err := x.all("feature "+name, 57, func(v int16, _ *asked) kmsg.Request {
			r := kmsg.NewPtrUpdateFeaturesRequest()
			r.TimeoutMillis, r.ValidateOnly, r.FeatureUpdates = 5000, v >= 1, []kmsg.UpdateFeaturesRequestFeatureUpdate{f}
			if v == 0 {
				r.FeatureUpdates[0].AllowDowngrade = f.UpgradeType > 1
			}
			return r
		}); err != nil {
			return err
		}
	}
	if err := x.all("unregister an unknown broker", 64, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = 7
		return r
	}); err != nil {
		return err
	}
	if err := x.all("add a voter of another cluster", 80, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrAddRaftVoterRequest()
		r.ClusterID, r.VoterID, r.TimeoutMillis, r.VoterDirectoryID = ptr("another"), 3, 1000, [16]byte{1}
		r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 1}}
		return r
	}); err != nil {
		return err
	}
	return x.all("remove a voter of another cluster", 81, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrRemoveRaftVoterRequest()
		r.ClusterID, r.VoterID, r.VoterDirectoryID = ptr("another"), 3, [16]byte{1}
		return r
	})
}

// askNothing sends the emptiest request of every API at every version that both serve.
func (x *answers) askNothing() error {
	ours := x.brokers[1].ranges
	for key := range int16(100) {
		r, both := x.brokers[0].ranges[key]
		if _, ok := ours[key]; !ok || !both || key == 18 || key == 80 || key == 81 {
			continue // 18 is compared by what is advertised; the voters must stay what they are
		}
		for v := r[0]; v <= r[1]; v++ {
			if _, err := x.one(fmt.Sprintf("nothing for API %d", key), v, func(int16, *asked) kmsg.Request {
				req := kmsg.RequestForKey(key)
				if p, ok := req.(*kmsg.ProduceRequest); ok {
					p.Acks = -1 // 0 is never answered
				}
				return req
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
