package cluster

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/meta"
)

// ask sends a request of that version to the controller's handler; the response comes back
// through its bytes.
func (n *node) ask(t *testing.T, req kmsg.Request, version int16) kmsg.Response {
	t.Helper()
	key := api.Key(req.Key())
	row, ok := api.Lookup(key)
	if !ok || !row.Controller || !row.Serves(version) {
		t.Fatalf("%s %d is not served by controllers", key, version)
	}
	req.SetVersion(version)
	msg := n.ctl.apis[key](t.Context(), &ControllerRequest{Key: key, Version: version, Body: req.AppendTo(nil), Forwarded: true})
	if msg == nil {
		t.Fatalf("%s %d: the connection was closed", key, version)
	}
	msg.SetVersion(version)
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := resp.ReadFrom(msg.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return resp
}

// join registers another broker and lets it in; it returns its epoch.
func (n *node) join(t *testing.T, id int32, dirs ...ids.UUID) int64 {
	t.Helper()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.PreviousBrokerEpoch = id, testCluster, [16]byte{9, 15: byte(id)}, -1
	for _, d := range dirs {
		req.LogDirs = append(req.LogDirs, d)
	}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAIN", "two", 9092
	req.Listeners = append(req.Listeners, l)
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = meta.MetadataVersionFeature, 7, 33
	req.Features = append(req.Features, f)
	reg := n.ask(t, req, 4).(*kmsg.BrokerRegistrationResponse)
	if reg.ErrorCode != 0 {
		t.Fatalf("broker %d: %v", id, api.Code(reg.ErrorCode))
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = id, reg.BrokerEpoch, reg.BrokerEpoch
	if r := n.ask(t, beat, 2).(*kmsg.BrokerHeartbeatResponse); r.ErrorCode != 0 || r.IsFenced {
		t.Fatalf("broker %d: %+v", id, r)
	}
	return reg.BrokerEpoch
}

// state waits until the follower has seen everything, and returns partition 0 of a topic.
func (n *node) state(t *testing.T, topic string) *meta.Partition {
	t.Helper()
	if err := n.follower.WaitOffset(t.Context(), n.service.CommittedOffset()); err != nil {
		t.Fatal(err)
	}
	return n.follower.Image().Partition(topic, 0)
}

// placed creates a topic with these replicas, and returns its id.
func (n *node) placed(t *testing.T, topic string, replicas ...int32) ids.UUID {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = replicas
	ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
	req.Topics = append(req.Topics, ct)
	resp := n.ask(t, req, 7).(*kmsg.CreateTopicsResponse)
	if resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("topic %s: %v", topic, api.Code(resp.Topics[0].ErrorCode))
	}
	return resp.Topics[0].TopicID
}

func TestAlterPartition(t *testing.T) {
	n := startNode(t, newMem(), nil)
	epoch2 := n.join(t, 2)
	topic := n.placed(t, "a", 1, 2)
	self := n.session.Epoch()
	alter := func(version int16, isr ...int32) *kmsg.AlterPartitionResponse {
		p := n.state(t, "a")
		req := kmsg.NewPtrAlterPartitionRequest()
		req.BrokerID, req.BrokerEpoch = 1, self
		rt := kmsg.NewAlterPartitionRequestTopic()
		rt.TopicID = topic
		rp := kmsg.NewAlterPartitionRequestTopicPartition()
		rp.LeaderEpoch, rp.PartitionEpoch, rp.NewISR = p.LeaderEpoch, p.PartitionEpoch, isr
		for _, b := range isr {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID, m.BrokerEpoch = b, map[int32]int64{1: self, 2: epoch2}[b]
			rp.NewEpochISR = append(rp.NewEpochISR, m)
		}
		unknown := kmsg.NewAlterPartitionRequestTopicPartition()
		unknown.Partition = 8
		rt.Partitions = append(rt.Partitions, rp, unknown)
		req.Topics = append(req.Topics, rt)
		return n.ask(t, req, version).(*kmsg.AlterPartitionResponse)
	}
	for _, tt := range []struct {
		version int16
		isr     []int32
	}{{2, []int32{1}}, {2, []int32{1, 2}}, {3, []int32{1}}, {3, []int32{1, 2}}} {
		resp := alter(tt.version, tt.isr...)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].TopidID != topic || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("version %d: %+v", tt.version, resp)
		}
		got, p := resp.Topics[0].Partitions[0], n.state(t, "a")
		if got.ErrorCode != 0 || got.LeaderID != 1 || got.LeaderEpoch != p.LeaderEpoch || got.PartitionEpoch != p.PartitionEpoch || !slices.Equal(got.ISR, tt.isr) || !slices.Equal(p.ISR, tt.isr) {
			t.Errorf("version %d: answered %+v, the partition is %+v", tt.version, got, *p)
		}
		if c := resp.Topics[0].Partitions[1].ErrorCode; api.Code(c) != api.UnknownTopicOrPartition {
			t.Errorf("version %d: an unknown partition is answered %v", tt.version, api.Code(c))
		}
	}
	self++
	if resp := alter(3, 1); api.Code(resp.ErrorCode) != api.StaleBrokerEpoch {
		t.Errorf("with a stale epoch: %v", api.Code(resp.ErrorCode))
	}
}

func TestReassignAndElect(t *testing.T) {
	n := startNode(t, newMem(), nil)
	n.join(t, 2)
	n.placed(t, "a", 1)
	reassign := func(version int16, allow bool, replicas ...int32) api.Code {
		t.Helper()
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.AllowReplicationFactorChange = allow
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = "a"
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Replicas = replicas
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp := n.ask(t, req, version).(*kmsg.AlterPartitionAssignmentsResponse)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || version >= 1 && resp.AllowReplicationFactorChange != allow {
			t.Fatalf("%+v", resp)
		}
		return api.Code(resp.Topics[0].Partitions[0].ErrorCode)
	}
	list := func(topics []kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
		t.Helper()
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		resp := n.ask(t, req, 0).(*kmsg.ListPartitionReassignmentsResponse)
		if resp.ErrorCode != 0 {
			t.Fatalf("%+v", resp)
		}
		return resp.Topics
	}
	if got := reassign(1, false, 2, 1); got != api.InvalidReplicationFactor {
		t.Errorf("another factor: %v", got)
	}
	if got := reassign(0, false, 2, 1); got != api.NoError { // version 0 knows no such wish
		t.Errorf("another factor by version 0: %v", got)
	}
	all := list(nil)
	if len(all) != 1 || all[0].Topic != "a" || len(all[0].Partitions) != 1 || !slices.Equal(all[0].Partitions[0].AddingReplicas, []int32{2}) || !slices.Equal(all[0].Partitions[0].Replicas, []int32{2, 1}) {
		t.Errorf("reassignments: %+v", all)
	}
	if some := list([]kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "b", Partitions: []int32{0}}}); len(some) != 0 {
		t.Errorf("reassignments of another topic: %+v", some)
	}
	if got := reassign(1, true); got != api.NoError || len(n.state(t, "a").Adding) != 0 {
		t.Errorf("cancelled: %v, %+v", got, *n.state(t, "a"))
	}
	if got := reassign(1, true); got != api.NoReassignmentInProgress {
		t.Errorf("cancelled again: %v", got)
	}
	elect := func(version int16, kind int8, topics ...kmsg.ElectLeadersRequestTopic) *kmsg.ElectLeadersResponse {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.Topics = kind, topics
		return n.ask(t, req, version).(*kmsg.ElectLeadersResponse)
	}
	a := kmsg.ElectLeadersRequestTopic{Topic: "a", Partitions: []int32{0, 3}}
	for version := int16(0); version <= 2; version++ {
		resp := elect(version, 0, a)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("version %d: %+v", version, resp)
		}
		ps := resp.Topics[0].Partitions
		if api.Code(ps[0].ErrorCode) != api.ElectionNotNeeded || api.Code(ps[1].ErrorCode) != api.UnknownTopicOrPartition {
			t.Errorf("version %d: %+v", version, ps)
		}
		if version == 0 {
			continue
		}
		if resp := elect(version, 0); len(resp.Topics) != 0 || resp.ErrorCode != 0 {
			t.Errorf("version %d everywhere: %+v", version, resp)
		}
		if resp := elect(version, 9, a); api.Code(resp.ErrorCode) != api.InvalidRequest {
			t.Errorf("version %d of an unknown kind: %v", version, api.Code(resp.ErrorCode))
		}
	}
}

func TestUpdateFeatures(t *testing.T) {
	n := startNodeWith(t, newMem(), nil, func(o *controller.Options) { o.Features = controller.Features() })
	update := func(version int16, kind int8, levels ...any) *kmsg.UpdateFeaturesResponse {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		for i := 0; i < len(levels); i += 2 {
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel = levels[i].(string), int16(levels[i+1].(int))
			u.UpgradeType, u.AllowDowngrade = kind, kind != 1
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		return n.ask(t, req, version).(*kmsg.UpdateFeaturesResponse)
	}
	for version := int16(0); version <= 2; version++ {
		// The broker of this test doesn't know mirror.version.
		resp := update(version, 1, meta.MetadataVersionFeature, 33, controller.MirrorFeature, 1)
		if api.Code(resp.ErrorCode) != api.InvalidUpdateVersion || resp.ErrorMessage == nil || len(resp.Results) != 0 {
			t.Errorf("version %d: %+v", version, resp)
		}
		resp = update(version, 2, controller.MirrorFeature, 0)
		if resp.ErrorCode != 0 || version < 2 && (len(resp.Results) != 1 || resp.Results[0].ErrorCode != 0) {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
}

func TestDirectoriesAndUnregistering(t *testing.T) {
	n := startNode(t, newMem(), nil)
	dirs := []ids.UUID{{0: 1}, {0: 2}}
	epoch := n.join(t, 2, dirs...)
	topic := n.placed(t, "a", 2, 1)
	assign := func(dir ids.UUID, epoch int64) *kmsg.AssignReplicasToDirsResponse {
		req := kmsg.NewPtrAssignReplicasToDirsRequest()
		req.BrokerID, req.BrokerEpoch = 2, epoch
		d := kmsg.NewAssignReplicasToDirsRequestDirectory()
		d.ID = dir
		dt := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
		dt.TopicID = topic
		for i := range int32(2) {
			p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
			p.Partition = i
			dt.Partitions = append(dt.Partitions, p)
		}
		d.Topics = append(d.Topics, dt)
		req.Directories = append(req.Directories, d)
		return n.ask(t, req, 0).(*kmsg.AssignReplicasToDirsResponse)
	}
	resp := assign(dirs[1], epoch)
	if resp.ErrorCode != 0 || len(resp.Directories) != 1 || resp.Directories[0].ID != dirs[1] || resp.Directories[0].Topics[0].TopicID != topic {
		t.Fatalf("%+v", resp)
	}
	ps := resp.Directories[0].Topics[0].Partitions
	if len(ps) != 2 || ps[0].ErrorCode != 0 || api.Code(ps[1].ErrorCode) != api.UnknownTopicOrPartition {
		t.Errorf("%+v", ps)
	}
	if p := n.state(t, "a"); p.Dirs[0] != dirs[1] || p.Leader != 2 {
		t.Errorf("assigned: %+v", *p)
	}
	assign(ids.LostDir, epoch)
	if p := n.state(t, "a"); p.Leader != 1 || !slices.Equal(p.ISR, []int32{1}) {
		t.Errorf("lost: %+v", *p)
	}
	if resp := assign(dirs[0], epoch+1); api.Code(resp.ErrorCode) != api.StaleBrokerEpoch {
		t.Errorf("with another epoch: %v", api.Code(resp.ErrorCode))
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 2
	for _, want := range []api.Code{api.NoError, api.BrokerIDNotRegistered} {
		if resp := n.ask(t, req, 0).(*kmsg.UnregisterBrokerResponse); api.Code(resp.ErrorCode) != want || (want != 0) != (resp.ErrorMessage != nil) {
			t.Errorf("unregistered: %+v, want %v", resp, want)
		}
	}
	if n.state(t, "a"); n.follower.Image().Broker(2) != nil {
		t.Error("broker 2 is still registered")
	}
}

func TestControllerRegistration(t *testing.T) {
	n := startNode(t, newMem(), nil)
	n.placed(t, "a", 1) // waits until there is a broker, and so a log
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = 3, [16]byte{1}
	l := kmsg.NewControllerRegistrationRequestListener()
	l.Name, l.Host, l.Port, l.SecurityProtocol = "CONTROLLER", "three", 9093, 2
	req.Listeners = append(req.Listeners, l)
	f := kmsg.NewControllerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = meta.MetadataVersionFeature, 7, 33
	req.Features = append(req.Features, f)
	if resp := n.ask(t, req, 0).(*kmsg.ControllerRegistrationResponse); resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	n.state(t, "a")
	c := n.follower.Image().Controller(3)
	if c == nil || c.IncarnationID != (ids.UUID{1}) || len(c.Features) != 1 {
		t.Fatalf("controller 3 is %+v", c)
	}
	if e, ok := c.Endpoint("CONTROLLER"); !ok || e != (meta.Endpoint{Name: "CONTROLLER", Host: "three", Port: 9093, SecurityProtocol: 2}) {
		t.Errorf("it is at %+v", e)
	}
	req.Features = nil
	if resp := n.ask(t, req, 0).(*kmsg.ControllerRegistrationResponse); api.Code(resp.ErrorCode) != api.UnsupportedVersion || resp.ErrorMessage == nil {
		t.Errorf("without the cluster's features: %+v", resp)
	}
}

// A malformed body is answered where the response has a place for it, else by closing the
// connection.
func TestMalformedControllerRequests(t *testing.T) {
	n := startNode(t, newMem(), nil)
	for _, row := range api.Table() {
		f := n.ctl.apis[row.Key]
		if f == nil {
			continue
		}
		for v := row.Min; v <= row.Max; v++ {
			resp := f(t.Context(), &ControllerRequest{Key: row.Key, Version: v, Body: []byte{1}})
			if resp == nil {
				continue
			}
			resp.SetVersion(v)
			if again := kmsg.ResponseForKey(int16(row.Key)); again != nil {
				again.SetVersion(v)
				if err := again.ReadFrom(resp.AppendTo(nil)); err != nil {
					t.Errorf("%s %d: %v", row.Name, v, err)
				}
			}
		}
	}
}
