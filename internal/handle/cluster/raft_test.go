package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
)

func describeRequest(topic string, partition int32) *kmsg.DescribeQuorumRequest {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	p := kmsg.NewDescribeQuorumRequestTopicPartition()
	p.Partition = partition
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func TestDescribeQuorum(t *testing.T) {
	n := startNode(t, newMem(), nil)
	r, err := n.broker.CallController(t.Context(), describeRequest(meta.TopicName, 0), 2)
	if err != nil {
		t.Fatal(err)
	}
	p := r.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark < 1 || len(p.CurrentVoters) != 1 {
		t.Fatalf("partition %+v", p)
	}
	v := p.CurrentVoters[0]
	if v.ReplicaID != 1 || v.ReplicaDirectoryID != [16]byte{0: 7} || v.LogEndOffset < p.HighWatermark || v.LastFetchTimestamp <= 0 || v.LastCaughtUpTimestamp <= 0 {
		t.Errorf("voter %+v", v)
	}
	if len(p.Observers) != 0 {
		t.Errorf("a combined node is its own observer: %+v", p.Observers)
	}
	n.quorum.Observed(quorum.Member{ID: 7}, p.HighWatermark)
	r, err = n.broker.CallController(t.Context(), describeRequest(meta.TopicName, 0), 2)
	if err != nil {
		t.Fatal(err)
	}
	if o := r.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0].Observers; len(o) != 1 || o[0].ReplicaID != 7 || o[0].LogEndOffset != p.HighWatermark || o[0].LastFetchTimestamp <= 0 {
		t.Errorf("observers %+v", o)
	}
	for _, bad := range []*kmsg.DescribeQuorumRequest{describeRequest("orders", 0), describeRequest(meta.TopicName, 1)} {
		r, err := n.broker.CallController(t.Context(), bad, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p := r.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]; p.ErrorCode != int16(api.UnknownTopicOrPartition) || p.LeaderID != -1 {
			t.Errorf("%+v is described: %+v", bad.Topics[0], p)
		}
	}
}

func TestVoterRequestsAreChecked(t *testing.T) {
	n := startNode(t, newMem(), nil)
	other := "AAAAAAAAAAAAAAAAAAAACg"
	listener := []kmsg.AddRaftVoterRequestListener{{Name: "C", Host: "h", Port: 9}}
	add := func(edit func(*kmsg.AddRaftVoterRequest)) kmsg.Request {
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID, req.Listeners, req.TimeoutMillis = 2, ids.UUID{0: 8}, listener, 50
		edit(req)
		return req
	}
	remove := func(id int32, dir ids.UUID) kmsg.Request {
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = id, dir
		return req
	}
	for _, c := range []struct {
		name string
		req  kmsg.Request
		want api.Code
	}{
		{"another cluster", add(func(r *kmsg.AddRaftVoterRequest) { r.ClusterID = &other }), api.InconsistentClusterID},
		{"no directory", add(func(r *kmsg.AddRaftVoterRequest) { r.VoterDirectoryID = ids.UUID{} }), api.InvalidRequest},
		{"no endpoint", add(func(r *kmsg.AddRaftVoterRequest) { r.Listeners = nil }), api.InvalidRequest},
		{"negative id", add(func(r *kmsg.AddRaftVoterRequest) { r.VoterID = -1 }), api.InvalidRequest},
		{"there already", add(func(r *kmsg.AddRaftVoterRequest) { r.VoterID = 1 }), api.DuplicateVoter},
		{"remove nobody", remove(5, ids.UUID{0: 8}), api.VoterNotFound},
		{"remove no directory", remove(1, ids.UUID{}), api.InvalidRequest},
		{"remove the last voter", remove(1, ids.UUID{0: 7}), api.InvalidRequest},
		{"never catches up", add(func(*kmsg.AddRaftVoterRequest) {}), api.RequestTimedOut}, // the last: its end is not waited for
	} {
		r, err := n.broker.CallController(t.Context(), c.req, c.req.MaxVersion())
		if err != nil {
			t.Fatal(err)
		}
		code := int16(0)
		switch r := r.(type) {
		case *kmsg.AddRaftVoterResponse:
			code = r.ErrorCode
		case *kmsg.RemoveRaftVoterResponse:
			code = r.ErrorCode
		}
		if api.Code(code) != c.want {
			t.Errorf("%s: %s, want %s", c.name, api.Code(code), c.want)
		}
	}
}

func TestUpdateRaftVoter(t *testing.T) {
	n := startNode(t, newMem(), nil)
	update := func(edit func(*kmsg.UpdateRaftVoterRequest)) *kmsg.UpdateRaftVoterResponse {
		t.Helper()
		req := kmsg.NewPtrUpdateRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID, req.CurrentLeaderEpoch = 1, ids.UUID{0: 7}, n.quorum.Status().Epoch
		req.Listeners = []kmsg.UpdateRaftVoterRequestListener{{Name: "C", Host: "h", Port: 9}}
		req.KRaftVersionFeature.MaxSupportedVersion = 1
		edit(req)
		r, err := loop{n.ctl}.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*kmsg.UpdateRaftVoterResponse)
	}
	r := update(func(*kmsg.UpdateRaftVoterRequest) {})
	if r.ErrorCode != 0 || r.CurrentLeader.LeaderID != 1 || r.CurrentLeader.Host != "h" || r.CurrentLeader.Port != 9 {
		t.Errorf("update %+v", r)
	}
	if vs := n.quorum.VoterSet(); len(vs) != 1 || len(vs[0].Endpoints) != 1 || vs[0].Endpoints[0].Addr() != "h:9" {
		t.Errorf("voters %+v", vs)
	}
	for want, edit := range map[api.Code]func(*kmsg.UpdateRaftVoterRequest){
		api.FencedLeaderEpoch:  func(r *kmsg.UpdateRaftVoterRequest) { r.CurrentLeaderEpoch-- },
		api.UnknownLeaderEpoch: func(r *kmsg.UpdateRaftVoterRequest) { r.CurrentLeaderEpoch++ },
		api.VoterNotFound:      func(r *kmsg.UpdateRaftVoterRequest) { r.VoterID = 2 },
		api.InvalidRequest:     func(r *kmsg.UpdateRaftVoterRequest) { r.KRaftVersionFeature.MaxSupportedVersion = 0 },
	} {
		if r := update(edit); api.Code(r.ErrorCode) != want {
			t.Errorf("%s, want %s", api.Code(r.ErrorCode), want)
		}
	}
}

// Messages are for one voter of one cluster and one quorum.
func TestRaftMessagesAreChecked(t *testing.T) {
	n := startNode(t, newMem(), nil)
	self := quorum.Member{ID: 1, Directory: ids.UUID{0: 7}}
	good := transport.Request{ClusterID: testCluster, From: quorum.Voter{Member: quorum.Member{ID: 2}}, To: self}
	for name, c := range map[string]struct {
		edit func(*transport.Request)
		want api.Code
	}{
		"nothing":            {func(*transport.Request) {}, api.NoError},
		"another cluster":    {func(r *transport.Request) { r.ClusterID = "x" }, api.InconsistentClusterID},
		"another disk":       {func(r *transport.Request) { r.To.Directory = ids.UUID{9} }, api.InvalidVoterKey},
		"another generation": {func(r *transport.Request) { r.Generation = 5 }, api.InconsistentVoterSet},
		"a newcomer":         {func(r *transport.Request) { r.Generation = transport.NoGeneration }, api.NoError},
		"no message":         {func(r *transport.Request) { r.Messages = [][]byte{[]byte("no")} }, api.InvalidRequest},
	} {
		req := good
		c.edit(&req)
		if code, _ := codeAndMessage(n.ctl.takeMessages(t.Context(), req.AppendTo(nil))); api.Code(code) != c.want {
			t.Errorf("%s: %s, want %s", name, api.Code(code), c.want)
		}
	}
	if code, _ := codeAndMessage(n.ctl.takeMessages(t.Context(), []byte{1})); api.Code(code) != api.InvalidRequest {
		t.Errorf("rubbish: %s", api.Code(code))
	}
}
