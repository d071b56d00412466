package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/record"
)

var (
	idA = ids.UUID{0: 0xa}
	idB = ids.UUID{0: 0xb}
	idG = ids.UUID{0: 0xc}
)

// testImage has brokers 1 (listeners PLAIN and SSL), 2 (PLAIN only) and 3 (fenced), and topics
//
//	a-0 leader 1; a-1 leader 2; a-2 no leader, replica on the fenced broker
//	b-0 leader 1, its directory lost
//	__consumer_offsets-0..4 leader 2
func testImage(t *testing.T) *meta.Image {
	t.Helper()
	d := meta.Empty(testCluster).Draft()
	rack := "r1"
	dir := ids.UUID{0: 1}
	recs := []meta.Record{
		&meta.RegisterBrokerRecord{BrokerID: 1, Rack: &rack, LogDirs: []ids.UUID{dir}, EndPoints: []meta.Endpoint{
			{Name: "PLAIN", Host: "one", Port: 9092}, {Name: "SSL", Host: "one.example", Port: 9093}}},
		&meta.RegisterBrokerRecord{BrokerID: 2, EndPoints: []meta.Endpoint{{Name: "PLAIN", Host: "two", Port: 9092}}},
		&meta.RegisterBrokerRecord{BrokerID: 3, Fenced: true, EndPoints: []meta.Endpoint{{Name: "PLAIN", Host: "three", Port: 9092}}},
		&meta.TopicRecord{TopicName: "a", TopicID: idA},
		&meta.PartitionRecord{TopicID: idA, PartitionID: 0, Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1, LeaderEpoch: 4, Directories: []ids.UUID{dir, ids.UnassignedDir}},
		&meta.PartitionRecord{TopicID: idA, PartitionID: 1, Replicas: []int32{2, 3}, ISR: []int32{2}, Leader: 2, LeaderEpoch: 5},
		&meta.PartitionRecord{TopicID: idA, PartitionID: 2, Replicas: []int32{3}, ISR: []int32{3}, Leader: meta.NoLeader, LeaderEpoch: 6, ELR: []int32{3}},
		&meta.TopicRecord{TopicName: "b", TopicID: idB},
		&meta.PartitionRecord{TopicID: idB, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, Directories: []ids.UUID{{0: 99}}},
		&meta.TopicRecord{TopicName: GroupOffsetsTopic, TopicID: idG},
	}
	for i := range int32(5) {
		recs = append(recs, &meta.PartitionRecord{TopicID: idG, PartitionID: i, Replicas: []int32{2}, ISR: []int32{2}, Leader: 2})
	}
	for i, r := range recs {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image()
}

// still is a broker over an image that doesn't change, and which can't create topics.
func still(t *testing.T) *Broker {
	img := testImage(t)
	return NewBroker(BrokerOptions{
		NodeID: 2, ClusterID: testCluster, Image: func() *meta.Image { return img },
		AutoCreate: func() bool { return false }, MaxDescribedPartitions: 6,
	})
}

func name(s string) kmsg.MetadataRequestTopic {
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &s
	return t
}

func byID(id ids.UUID) kmsg.MetadataRequestTopic {
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = id
	return t
}

// shown is a response as a client of the version sees it.
func shown(t *testing.T, b *Broker, version int16, listener string, topics []kmsg.MetadataRequestTopic) string {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(version)
	req.Topics = topics
	resp := b.Metadata(t.Context(), req, listener)
	got := kmsg.NewPtrMetadataResponse()
	got.SetVersion(version)
	if err := got.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, tp := range got.Topics {
		s := "-"
		if tp.Topic != nil {
			s = *tp.Topic
		}
		if !ids.UUID(tp.TopicID).IsZero() {
			s += fmt.Sprintf("/%x", tp.TopicID[0])
		}
		if tp.IsInternal {
			s += " internal"
		}
		if tp.ErrorCode != 0 {
			s += " " + api.Code(tp.ErrorCode).Name()
		}
		for _, p := range tp.Partitions {
			s += fmt.Sprintf(" %d:%d@%d%v%v%v", p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas)
			if p.ErrorCode != 0 {
				s += api.Code(p.ErrorCode).Name()
			}
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestMetadataByVersion(t *testing.T) {
	all := "__consumer_offsets"
	onlyA := []kmsg.MetadataRequestTopic{name("a")}
	for _, tt := range []struct {
		name     string
		version  int16
		listener string
		topics   []kmsg.MetadataRequestTopic
		want     string // contained in what is shown
		exact    bool
	}{
		{"v0: an empty list is all", 0, "PLAIN", []kmsg.MetadataRequestTopic{}, all, false},
		{"v1: an empty list is none", 1, "PLAIN", []kmsg.MetadataRequestTopic{}, "", true},
		{"v1: null is all", 1, "PLAIN", nil, "__consumer_offsets internal 0:2", false},
		{"v13: null is all", 13, "PLAIN", nil, "; b/b ", false},
		{"v0: unreachable replicas are left out", 0, "PLAIN", onlyA,
			"a 0:1@-1[1 2][1 2][] 1:2@-1[2][2][]REPLICA_NOT_AVAILABLE 2:-1@-1[][][]LEADER_NOT_AVAILABLE", true},
		{"v1: replicas are all there", 1, "PLAIN", onlyA,
			"a 0:1@-1[1 2][1 2][] 1:2@-1[2 3][2][] 2:-1@-1[3][3][]LEADER_NOT_AVAILABLE", true},
		{"v5: offline replicas", 5, "PLAIN", onlyA,
			"a 0:1@-1[1 2][1 2][] 1:2@-1[2 3][2][3] 2:-1@-1[3][3][3]LEADER_NOT_AVAILABLE", true},
		{"v7: leader epochs", 7, "PLAIN", onlyA,
			"a 0:1@4[1 2][1 2][] 1:2@5[2 3][2][3] 2:-1@6[3][3][3]LEADER_NOT_AVAILABLE", true},
		{"v10: topic ids", 10, "PLAIN", onlyA,
			"a/a 0:1@4[1 2][1 2][] 1:2@5[2 3][2][3] 2:-1@6[3][3][3]LEADER_NOT_AVAILABLE", true},
		{"v5: a leader without the listener", 5, "SSL", onlyA,
			"a 0:1@-1[1 2][1 2][] 1:-1@-1[2 3][2][3]LEADER_NOT_AVAILABLE 2:-1@-1[3][3][3]LEADER_NOT_AVAILABLE", true},
		{"v6: LISTENER_NOT_FOUND", 6, "SSL", onlyA,
			"a 0:1@-1[1 2][1 2][] 1:-1@-1[2 3][2][3]LISTENER_NOT_FOUND 2:-1@-1[3][3][3]LEADER_NOT_AVAILABLE", true},
		{"v12: by id", 12, "PLAIN", []kmsg.MetadataRequestTopic{byID(idB)}, "b/b 0:1@0[1][1][1]", true},
		{"v12: by an unknown id", 12, "PLAIN", []kmsg.MetadataRequestTopic{byID(ids.UUID{0: 0xee})}, "-/ee UNKNOWN_TOPIC_ID", true},
		{"v13: ids win over names", 13, "PLAIN", []kmsg.MetadataRequestTopic{name("a"), byID(idB)}, "b/b 0:1@0[1][1][1]", true},
		{"v12: by neither", 12, "PLAIN", []kmsg.MetadataRequestTopic{{}}, "- UNKNOWN_TOPIC_ID", true},
		{"v10: ids in a request", 10, "PLAIN", []kmsg.MetadataRequestTopic{byID(idB)}, "/b INVALID_REQUEST", true},
		{"unknown and invalid names", 9, "PLAIN", []kmsg.MetadataRequestTopic{name("zz"), name("a/b"), name("zz")},
			"a/b INVALID_TOPIC_EXCEPTION; zz UNKNOWN_TOPIC_OR_PARTITION", true},
		{"an unknown internal topic", 9, "PLAIN", []kmsg.MetadataRequestTopic{name(MirrorStateTopic)}, "__mirror_state internal UNKNOWN_TOPIC_OR_PARTITION", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := shown(t, still(t), tt.version, tt.listener, tt.topics)
			if tt.exact && got != tt.want || !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestMetadataOfTheCluster(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(version)
		req.IncludeClusterAuthorizedOperations = version == 9
		req.IncludeTopicAuthorizedOperations = version == 9
		req.Topics = []kmsg.MetadataRequestTopic{name("a")}
		resp := still(t).Metadata(t.Context(), req, "PLAIN")
		got := kmsg.NewPtrMetadataResponse()
		got.SetVersion(version)
		if err := got.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if len(got.Brokers) != 2 || got.Brokers[0].Host != "one" || got.Brokers[1].NodeID != 2 || got.Brokers[1].Port != 9092 {
			t.Errorf("v%d: brokers %+v, want the live ones", version, got.Brokers)
		}
		if version >= 1 && (got.ControllerID != 2 || got.Brokers[0].Rack == nil || *got.Brokers[0].Rack != "r1") {
			t.Errorf("v%d: controller %d, brokers %+v", version, got.ControllerID, got.Brokers)
		}
		if version >= 2 && (got.ClusterID == nil || *got.ClusterID != testCluster) {
			t.Errorf("v%d: cluster id %v", version, got.ClusterID)
		}
		clusterOps, topicOps := int32(-1<<31), int32(-1<<31)
		if version == 9 {
			clusterOps, topicOps = 8096, 3576 // what Kafka answers without an authorizer
		}
		if version >= 8 && (got.AuthorizedOperations != clusterOps || got.Topics[0].AuthorizedOperations != topicOps) {
			t.Errorf("v%d: authorized operations %d, of the topic %d", version, got.AuthorizedOperations, got.Topics[0].AuthorizedOperations)
		}
	}
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(13)
	if got := still(t).Metadata(t.Context(), req, "SSL"); len(got.Brokers) != 1 || got.Brokers[0].Host != "one.example" || got.Brokers[0].Port != 9093 {
		t.Errorf("by the listener SSL: brokers %+v", got.Brokers)
	}
}

// auto.create.topics.enable, the request's flag, and versions below 4 that had none.
func TestMetadataCreatesTopics(t *testing.T) {
	n := startNode(t, newMem(), nil)
	enabled := true
	n.broker.o.AutoCreate = func() bool { return enabled }
	ask := func(version int16, allow bool, topics ...string) []kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(version)
		req.AllowAutoTopicCreation = allow
		for _, tp := range topics {
			req.Topics = append(req.Topics, name(tp))
		}
		return n.broker.Metadata(t.Context(), req, "PLAIN").Topics
	}
	if got := ask(4, false, "no"); got[0].ErrorCode != int16(api.UnknownTopicOrPartition) {
		t.Errorf("v4 without the flag: code %d", got[0].ErrorCode)
	}
	if got := ask(3, false, "implied"); got[0].ErrorCode != 0 || len(got[0].Partitions) != 2 || got[0].Partitions[0].Leader != 1 {
		t.Errorf("v3: %+v, want the topic with the default of 2 partitions", got[0])
	}
	got := ask(13, true, "made", "bad/name", "implied")
	if got[0].ErrorCode != int16(api.InvalidTopicException) || got[1].ErrorCode != 0 || got[2].ErrorCode != 0 {
		t.Errorf("v13: %+v", got)
	}
	if got := ask(13, true, "made.x", "made_x"); got[0].ErrorCode != 0 && got[1].ErrorCode != 0 {
		t.Errorf("names that collide with each other: %+v", got)
	}
	if got := ask(13, true, GroupOffsetsTopic); len(got[0].Partitions) != 5 || !got[0].IsInternal {
		t.Errorf("an internal topic was created as %+v", got[0])
	}
	if c := n.follower.Image().Config(meta.ResourceTopic, GroupOffsetsTopic)["cleanup.policy"]; c != "compact" {
		t.Errorf("the internal topic has cleanup.policy %q", c)
	}
	enabled = false
	if got := ask(13, true, "never"); got[0].ErrorCode != int16(api.UnknownTopicOrPartition) {
		t.Errorf("with auto.create.topics.enable=false: code %d", got[0].ErrorCode)
	}
	if n.follower.Image().TopicByName("no") != nil || n.follower.Image().TopicByName("never") != nil {
		t.Error("a topic was created against the flags")
	}
}

func TestFindCoordinator(t *testing.T) {
	b := still(t)
	for version := int16(0); version <= 6; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.SetVersion(version)
		req.CoordinatorKey, req.CoordinatorKeys = "group-1", []string{"group-1", "other"}
		resp := b.FindCoordinator(t.Context(), req, "PLAIN")
		got := kmsg.NewPtrFindCoordinatorResponse()
		got.SetVersion(version)
		if err := got.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if version < 4 && (got.NodeID != 2 || got.Host != "two" || got.Port != 9092 || got.ErrorCode != 0) {
			t.Errorf("v%d: %+v", version, got)
		}
		if version >= 4 && (len(got.Coordinators) != 2 || got.Coordinators[1].Key != "other" || got.Coordinators[1].NodeID != 2) {
			t.Errorf("v%d: %+v", version, got.Coordinators)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(6)
	req.CoordinatorKeys = []string{"g"}
	if got := b.FindCoordinator(t.Context(), req, "SSL").Coordinators[0]; got.ErrorCode != int16(api.CoordinatorNotAvailable) || got.NodeID != -1 {
		t.Errorf("on a listener the coordinator lacks: %+v", got)
	}
	req.CoordinatorType = 1
	if got := b.FindCoordinator(t.Context(), req, "PLAIN").Coordinators[0]; got.ErrorCode != 0 || got.NodeID < 0 || got.Host == "" || got.Key != "g" {
		t.Errorf("of a transaction: %+v", got)
	}
	req.CoordinatorType = 2
	if got := b.FindCoordinator(t.Context(), req, "PLAIN").Coordinators[0]; got.ErrorCode != int16(api.InvalidRequest) || got.ErrorMessage == nil {
		t.Errorf("of a share group: %+v", got)
	}
	// "abs(hash) % partitions", and Java's hash of "group-1" is 293427299.
	if got := PartitionFor("group-1", 50); got != 49 {
		t.Errorf("partition %d, want 49", got)
	}
	// Hashes below zero: the absolute value counts, not the lower bits. Both sides of a group must agree on it.
	for _, name := range []string{"librdkafka", "polygenelubricants", "orders-consumer"} {
		for _, n := range []int{5, 50} {
			if got, want := PartitionFor(name, n), group.PartitionOf(name, int32(n)); got != want {
				t.Errorf("PartitionFor(%s, %d) = %d, the coordinators say %d", name, n, got, want)
			}
		}
	}
}

func TestFindCoordinatorCreatesTheTopic(t *testing.T) {
	n := startNode(t, newMem(), nil)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(4)
	req.CoordinatorKeys = []string{"g"}
	got := n.broker.FindCoordinator(t.Context(), req, "PLAIN").Coordinators
	if len(got) != 1 || got[0].ErrorCode != 0 || got[0].NodeID != 1 || got[0].Host != "one" {
		t.Errorf("%+v", got)
	}
	if tp := n.follower.Image().TopicByName(GroupOffsetsTopic); tp == nil || len(tp.Partitions) != 5 || len(tp.Partitions[0].Replicas) != 1 {
		t.Errorf("created %+v, want 5 partitions on the one broker", tp)
	}
}

func TestDescribeCluster(t *testing.T) {
	b := still(t)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.SetVersion(2)
	got := b.DescribeCluster(req, "PLAIN")
	if len(got.Brokers) != 2 || got.ControllerID != 2 || got.ClusterID != testCluster || got.ErrorCode != 0 || got.ClusterAuthorizedOperations != -1<<31 {
		t.Errorf("%+v", got)
	}
	req.IncludeFencedBrokers = true
	if got := b.DescribeCluster(req, "PLAIN"); len(got.Brokers) != 3 || !got.Brokers[2].IsFenced {
		t.Errorf("with fenced ones: %+v", got.Brokers)
	}
	for kind, want := range map[int8]api.Code{2: api.MismatchedEndpointType, 9: api.UnsupportedEndpointType} {
		req.EndpointType = kind
		if got := b.DescribeCluster(req, "PLAIN"); got.ErrorCode != int16(want) || got.ClusterID != "" {
			t.Errorf("endpoint type %d: code %d, want %v", kind, got.ErrorCode, want)
		}
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	b := still(t)
	ask := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) (string, *kmsg.DescribeTopicPartitionsResponseNextCursor) {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, tp := range topics {
			rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
			rt.Topic = tp
			req.Topics = append(req.Topics, rt)
		}
		resp := b.DescribeTopicPartitions(req, "PLAIN")
		got := kmsg.NewPtrDescribeTopicPartitionsResponse()
		if err := got.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, tp := range got.Topics {
			s := *tp.Topic
			if tp.ErrorCode != 0 {
				s += " " + api.Code(tp.ErrorCode).Name()
			}
			for _, p := range tp.Partitions {
				s += fmt.Sprintf(" %d", p.Partition)
				if p.Partition == 2 && *tp.Topic == "a" && (!slices.Equal(p.EligibleLeaderReplicas, []int32{3}) || p.LeaderID != -1) {
					t.Errorf("a-2: %+v", p)
				}
			}
			out = append(out, s)
		}
		return strings.Join(out, "; "), got.NextCursor
	}
	for _, tt := range []struct {
		limit  int32
		topics []string
		want   []string // page by page
	}{
		{100, nil, []string{"__consumer_offsets 0 1 2 3 4; a 0", "a 1 2; b 0"}}, // the broker's own limit is 6
		{2, nil, []string{"__consumer_offsets 0 1", "__consumer_offsets 2 3", "__consumer_offsets 4; a 0", "a 1 2", "b 0"}},
		{3, []string{"b", "a", "zz", "a"}, []string{"a 0 1 2", "b 0; zz UNKNOWN_TOPIC_OR_PARTITION"}},
		{1, []string{"zz", "b"}, []string{"b 0; zz UNKNOWN_TOPIC_OR_PARTITION"}},
		{0, []string{"a"}, []string{"a 0", "a 1", "a 2"}}, // at least one, as Kafka
		{-7, []string{"b"}, []string{"b 0"}},
	} {
		var cursor *kmsg.DescribeTopicPartitionsRequestCursor
		var pages []string
		for range 20 {
			page, next := ask(tt.limit, cursor, tt.topics...)
			pages = append(pages, page)
			if next == nil {
				break
			}
			cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: next.Topic, Partition: next.Partition}
		}
		if !slices.Equal(pages, tt.want) {
			t.Errorf("limit %d, topics %v:\n%s\nwant\n%s", tt.limit, tt.topics, strings.Join(pages, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

func TestDescribeTopicPartitionsBadCursor(t *testing.T) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "a"}}
	for _, cursor := range []kmsg.DescribeTopicPartitionsRequestCursor{{Topic: "a", Partition: -1}, {Topic: "zz"}, {Topic: ""}} {
		req.Cursor = &cursor
		badCursor(t, req)
	}
}

func badCursor(t *testing.T, req *kmsg.DescribeTopicPartitionsRequest) {
	t.Helper()
	resp := still(t).DescribeTopicPartitions(req, "PLAIN")
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != int16(api.InvalidRequest) || len(resp.Topics[0].Partitions) != 0 || resp.NextCursor != nil {
		t.Errorf("%+v", resp)
	}
}

// Every forwarded API passes through an envelope, in every version it is served in.
func TestForwardedRequestsByVersion(t *testing.T) {
	n := startNode(t, newMem(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, row := range api.Table() {
		if !row.Forward || !row.Broker || row.Key.IsMirror() {
			continue
		}
		for v := row.Min; v <= row.KafkaMax(); v++ {
			req := kmsg.RequestForKey(int16(row.Key))
			resp, err := n.broker.CallController(ctx, req, v)
			if err != nil || resp == nil {
				t.Errorf("%s v%d: %v", row.Name, v, err)
			}
		}
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	for _, key := range []string{"good", "bad"} {
		res.Configs = nil
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = key, kmsg.StringPtr("v")
		res.Configs = append(res.Configs, c)
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{res}
		r, err := n.broker.CallController(ctx, req, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		if key == "good" && (got.ErrorCode != 0 || n.follower.Image().Config(meta.ResourceBroker, "1")["good"] != "v") {
			t.Errorf("a good config: %+v", got)
		}
		if key == "bad" && (got.ErrorCode != int16(api.InvalidConfig) || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, "invalid value")) {
			t.Errorf("a bad config: %+v", got)
		}
	}
	if _, err := n.broker.CallController(ctx, kmsg.NewPtrMetadataRequest(), 13); err == nil {
		t.Error("an API that isn't forwarded passed through an envelope")
	}
}

// A topic of many partitions becomes one transaction of several batches: a follower that
// reads batch by batch sees it as a whole.
func TestManyPartitionsAtOnce(t *testing.T) {
	n := startNode(t, newMem(), nil)
	slow := metafollow.New(metafollow.Options{NodeID: 2, ClusterID: testCluster, Controller: loop{n.ctl}, MaxBytes: 1, MaxWait: time.Millisecond})
	var seen []int
	slow.Subscribe(func(d *meta.Delta) {
		if tp := d.Next.TopicByName("many"); tp != nil {
			seen = append(seen, len(tp.Partitions))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- slow.Run(ctx) }()
	if err := slow.WaitOffset(ctx, n.follower.Image().Offset); err != nil {
		t.Fatal(err)
	}
	if got := n.create(t, creatable("many", 10_000)); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if got := len(n.follower.Image().TopicByName("many").Partitions); got != 10_000 {
		t.Errorf("the broker's metadata has %d partitions when the answer comes", got)
	}
	if err := slow.WaitOffset(ctx, n.follower.Image().Offset); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	if !slices.Equal(seen, []int{10_000}) {
		t.Errorf("the topic was seen with %v partitions", seen)
	}
	batches := 0
	for at := int64(0); ; batches++ {
		b, err := n.quorum.ReadCommitted(at, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			break
		}
		at = record.Batch(b).NextOffset()
	}
	if batches < 5 {
		t.Errorf("the log has %d batches: the topic did not span several", batches)
	}
}
