package group

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

func ptr[T any](v T) *T { return &v }

// each runs f for every version of the API that is served.
func each(t *testing.T, key api.Key, f func(t *testing.T, r *rig, v int16)) {
	row, ok := api.Lookup(key)
	if !ok {
		t.Fatalf("no row for %v", key)
	}
	r := newRig(t)
	for v := row.Min; v <= row.Max; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			r.t = t
			f(t, r, v)
		})
	}
}

// become lets a client be the only member of a group, at the JoinGroup version.
func become(r *rig, g string, v int16) *kmsg.JoinGroupResponse {
	r.t.Helper()
	req := &kmsg.JoinGroupRequest{
		Version: v, Group: g, SessionTimeoutMillis: 10_000, RebalanceTimeoutMillis: 20_000, ProtocolType: "consumer",
		Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: (&kmsg.ConsumerMemberMetadata{Topics: []string{"t"}}).AppendTo(nil)}},
	}
	resp := call(r, req).(*kmsg.JoinGroupResponse)
	if v >= 4 {
		if api.Code(resp.ErrorCode) != api.MemberIDRequired || !strings.HasPrefix(resp.MemberID, "me-") {
			r.t.Fatalf("first join: %+v", resp)
		}
		req.MemberID = resp.MemberID
		resp = call(r, req).(*kmsg.JoinGroupResponse)
	}
	if resp.ErrorCode != 0 || resp.Generation != 1 || resp.LeaderID != resp.MemberID || len(resp.Members) != 1 || *resp.Protocol != "range" {
		r.t.Fatalf("join: %+v", resp)
	}
	return resp
}

// stable is become with the sync.
func stable(r *rig, g string) string {
	r.t.Helper()
	j := become(r, g, 9)
	resp := call(r, syncRequest(g, j.MemberID, 5)).(*kmsg.SyncGroupResponse)
	if resp.ErrorCode != 0 || string(resp.MemberAssignment) != "assigned" {
		r.t.Fatalf("sync: %+v", resp)
	}
	return j.MemberID
}

func syncRequest(g, member string, v int16) *kmsg.SyncGroupRequest {
	return &kmsg.SyncGroupRequest{
		Version: v, Group: g, Generation: 1, MemberID: member, ProtocolType: ptr("consumer"), Protocol: ptr("range"),
		GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("assigned")}},
	}
}

func TestJoinGroup(t *testing.T) {
	each(t, api.JoinGroup, func(t *testing.T, r *rig, v int16) {
		resp := become(r, fmt.Sprintf("join-%d", v), v)
		if v >= 7 && (resp.ProtocolType == nil || *resp.ProtocolType != "consumer") {
			t.Errorf("protocol type %v", resp.ProtocolType)
		}
		bad := call(r, &kmsg.JoinGroupRequest{Version: v, Group: "g", SessionTimeoutMillis: 1, MemberID: "m"}).(*kmsg.JoinGroupResponse)
		if api.Code(bad.ErrorCode) != api.InvalidSessionTimeout || bad.MemberID != "m" || bad.Generation != -1 {
			t.Errorf("short session: %+v", bad)
		}
	})
}

func TestSyncAndHeartbeat(t *testing.T) {
	each(t, api.SyncGroup, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("sync-%d", v)
		member := become(r, g, 9).MemberID
		req := syncRequest(g, member, v)
		resp := call(r, req).(*kmsg.SyncGroupResponse)
		if resp.ErrorCode != 0 || string(resp.MemberAssignment) != "assigned" {
			t.Fatalf("sync: %+v", resp)
		}
		if v >= 5 {
			if *resp.Protocol != "range" || *resp.ProtocolType != "consumer" {
				t.Errorf("sync: %+v", resp)
			}
			req.Protocol = nil
			if resp := call(r, req).(*kmsg.SyncGroupResponse); api.Code(resp.ErrorCode) != api.InconsistentGroupProtocol {
				t.Errorf("sync without its protocol: %+v", resp)
			}
		}
		for hv := range int16(5) {
			hb := &kmsg.HeartbeatRequest{Version: hv, Group: g, Generation: 1, MemberID: member}
			if resp := call(r, hb).(*kmsg.HeartbeatResponse); resp.ErrorCode != 0 {
				t.Errorf("heartbeat v%d: %+v", hv, resp)
			}
			hb.Generation = 2
			if resp := call(r, hb).(*kmsg.HeartbeatResponse); api.Code(resp.ErrorCode) != api.IllegalGeneration {
				t.Errorf("heartbeat v%d of another generation: %+v", hv, resp)
			}
		}
	})
}

func TestLeaveGroup(t *testing.T) {
	each(t, api.LeaveGroup, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("leave-%d", v)
		member := stable(r, g)
		req := &kmsg.LeaveGroupRequest{Version: v, Group: g, MemberID: member, Members: []kmsg.LeaveGroupRequestMember{{MemberID: member}, {MemberID: "x"}}}
		resp := call(r, req).(*kmsg.LeaveGroupResponse)
		if resp.ErrorCode != 0 {
			t.Fatalf("leave: %+v", resp)
		}
		if v >= 3 && (len(resp.Members) != 2 || resp.Members[0].ErrorCode != 0 || api.Code(resp.Members[1].ErrorCode) != api.UnknownMemberID) {
			t.Errorf("leave: %+v", resp)
		}
		resp = call(r, req).(*kmsg.LeaveGroupResponse)
		if before3 := api.Code(resp.ErrorCode) == api.UnknownMemberID; before3 != (v < 3) {
			t.Errorf("leave twice: %+v", resp)
		}
	})
}

func TestOffsetCommit(t *testing.T) {
	each(t, api.OffsetCommit, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("commit-%d", v)
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group = v, g
		topic := func(name string, id [16]byte, parts ...int32) {
			ct := kmsg.OffsetCommitRequestTopic{Topic: name, TopicID: id}
			for _, p := range parts {
				cp := kmsg.NewOffsetCommitRequestTopicPartition()
				cp.Partition, cp.Offset, cp.LeaderEpoch, cp.Metadata = p, int64(10+p), 3, ptr("meta")
				ct.Partitions = append(ct.Partitions, cp)
			}
			req.Topics = append(req.Topics, ct)
		}
		topic("none", [16]byte{9}, 0)
		topic("t", topicT, 7, 1)
		topic("u", topicU, 0)
		resp := call(r, req).(*kmsg.OffsetCommitResponse)
		var codes []api.Code
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, api.Code(p.ErrorCode))
			}
		}
		unknown := api.UnknownTopicOrPartition
		if v >= 10 {
			unknown = api.UnknownTopicID
		}
		if want := []api.Code{unknown, api.UnknownTopicOrPartition, api.NoError, api.NoError}; !slices.Equal(codes, want) {
			t.Fatalf("codes %v, want %v", codes, want)
		}
		epoch := int32(3)
		if v < 6 {
			epoch = -1
		}
		f := fetchAll(r, g, 9)
		if got, want := fmt.Sprint(f), fmt.Sprintf("[t-1@11/%d/meta u-0@10/%d/meta]", epoch, epoch); got != want {
			t.Errorf("fetched %s, want %s", got, want)
		}
		// Members' generations, and a group that isn't there.
		req.Group, req.Generation, req.MemberID = g+"-not", 1, "m"
		want := api.IllegalGeneration
		if v >= 9 {
			want = api.GroupIDNotFound
		}
		if got := api.Code(call(r, req).(*kmsg.OffsetCommitResponse).Topics[2].Partitions[0].ErrorCode); got != want {
			t.Errorf("commit for an unknown group: %v, want %v", got, want)
		}
		// Nothing that exists: answered without the coordinator.
		req.Topics = req.Topics[:1]
		if got := api.Code(call(r, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode); got != unknown {
			t.Errorf("commit for an unknown topic: %v", got)
		}
	})
}

// fetchAll fetches all offsets of a group at a version from 8 on.
func fetchAll(r *rig, g string, v int16) []string {
	r.t.Helper()
	resp := call(r, &kmsg.OffsetFetchRequest{Version: v, Groups: []kmsg.OffsetFetchRequestGroup{{Group: g, MemberEpoch: -1}}}).(*kmsg.OffsetFetchResponse)
	if resp.Groups[0].ErrorCode != 0 {
		r.t.Fatalf("fetch: %+v", resp)
	}
	var out []string
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d@%d/%d/%s", t.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata))
		}
	}
	return out
}

func commitAdmin(r *rig, g, topic string, partition int32, offset int64) api.Code {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = 9, g
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return api.Code(call(r, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

func TestOffsetFetch(t *testing.T) {
	each(t, api.OffsetFetch, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("fetch-%d", v)
		commitAdmin(r, g, "t", 1, 5)
		if v < 8 {
			req := &kmsg.OffsetFetchRequest{Version: v, Group: g, Topics: []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{1, 0}}, {Topic: "none", Partitions: []int32{0}}}}
			resp := call(r, req).(*kmsg.OffsetFetchResponse)
			if resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].Offset != 5 || resp.Topics[0].Partitions[1].Offset != -1 || resp.Topics[1].Partitions[0].Offset != -1 {
				t.Errorf("fetch: %+v", resp)
			}
			if v >= 2 {
				req.Topics = nil
				resp := call(r, req).(*kmsg.OffsetFetchResponse)
				if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Offset != 5 {
					t.Errorf("fetch all: %+v", resp)
				}
			}
			return
		}
		req := &kmsg.OffsetFetchRequest{Version: v, Groups: []kmsg.OffsetFetchRequestGroup{
			{Group: g, MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{
				{Topic: "t", TopicID: topicT, Partitions: []int32{1}}, {Topic: "none", TopicID: [16]byte{9}, Partitions: []int32{0}},
			}},
			{Group: "nothing", MemberEpoch: -1},
			{Group: g, MemberEpoch: -1},
		}}
		resp := call(r, req).(*kmsg.OffsetFetchResponse)
		one, nothing, all := resp.Groups[0], resp.Groups[1], resp.Groups[2]
		if p := one.Topics[0].Partitions[0]; p.Offset != 5 || p.ErrorCode != 0 || *p.Metadata != "" {
			t.Errorf("fetch: %+v", one)
		}
		want := api.NoError
		if v >= 10 {
			want = api.UnknownTopicID
		}
		if p := one.Topics[1].Partitions[0]; p.Offset != -1 || api.Code(p.ErrorCode) != want {
			t.Errorf("fetch of an unknown topic: %+v", one.Topics[1])
		}
		if nothing.ErrorCode != 0 || len(nothing.Topics) != 0 {
			t.Errorf("fetch of an unknown group: %+v", nothing)
		}
		if len(all.Topics) != 1 || v < 10 && all.Topics[0].Topic != "t" || v >= 10 && all.Topics[0].TopicID != topicT {
			t.Errorf("fetch all: %+v", all)
		}
	})
}

func TestDescribeGroups(t *testing.T) {
	each(t, api.DescribeGroups, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("describe-%d", v)
		member := stable(r, g)
		req := &kmsg.DescribeGroupsRequest{Version: v, Groups: []string{g, "nothing"}, IncludeAuthorizedOperations: true}
		resp := call(r, req).(*kmsg.DescribeGroupsResponse)
		d := resp.Groups[0]
		if d.State != "Stable" || d.ProtocolType != "consumer" || d.Protocol != "range" || len(d.Members) != 1 {
			t.Fatalf("described %+v", d)
		}
		m := d.Members[0]
		if m.MemberID != member || m.ClientID != "me" || !strings.HasPrefix(m.ClientHost, "/") || string(m.MemberAssignment) != "assigned" || len(m.ProtocolMetadata) == 0 {
			t.Errorf("member %+v", m)
		}
		if v >= 3 && d.AuthorizedOperations != allGroupOperations {
			t.Errorf("operations %b", d.AuthorizedOperations)
		}
		n := resp.Groups[1]
		if n.State != "Dead" || (api.Code(n.ErrorCode) == api.GroupIDNotFound) != (v >= 6) || (n.ErrorMessage != nil) != (v >= 6) || v >= 6 && n.AuthorizedOperations != operationsNotAsked {
			t.Errorf("unknown group: %+v", n)
		}
		req.IncludeAuthorizedOperations = false
		if resp := call(r, req).(*kmsg.DescribeGroupsResponse); v >= 3 && resp.Groups[0].AuthorizedOperations != operationsNotAsked {
			t.Errorf("operations %b, though not asked", resp.Groups[0].AuthorizedOperations)
		}
		if resp := call(r, &kmsg.DescribeGroupsRequest{Version: v}).(*kmsg.DescribeGroupsResponse); len(resp.Groups) != 0 {
			t.Errorf("describe nothing: %+v", resp)
		}
	})
}

func TestListGroups(t *testing.T) {
	each(t, api.ListGroups, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("list-%d", v)
		stable(r, g)
		commitAdmin(r, g+"-simple", "t", 0, 1)
		listed := func(states, types []string) (mine []string) {
			resp := call(r, &kmsg.ListGroupsRequest{Version: v, StatesFilter: states, TypesFilter: types}).(*kmsg.ListGroupsResponse)
			for _, l := range resp.Groups {
				if strings.HasPrefix(l.Group, g) {
					mine = append(mine, strings.TrimSpace(strings.Join([]string{l.Group, l.ProtocolType, l.GroupState, l.GroupType}, " ")))
				}
			}
			return mine
		}
		want := []string{g + " consumer", g + "-simple"}
		if v >= 4 {
			want = []string{g + " consumer Stable", g + "-simple  Empty"}
		}
		if v >= 5 {
			want = []string{g + " consumer Stable classic", g + "-simple  Empty classic"}
		}
		if got := listed(nil, nil); !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
		if v >= 4 {
			if got := listed([]string{"stable"}, nil); !slices.Equal(got, want[:1]) {
				t.Errorf("stable: %q", got)
			}
		}
		if v >= 5 {
			if got := listed(nil, []string{"consumer"}); len(got) != 0 {
				t.Errorf("consumer type: %q", got)
			}
		}
	})
}

func TestDeleteGroups(t *testing.T) {
	each(t, api.DeleteGroups, func(t *testing.T, r *rig, v int16) {
		g := fmt.Sprintf("delete-%d", v)
		stable(r, g)
		commitAdmin(r, g+"-simple", "t", 0, 1)
		resp := call(r, &kmsg.DeleteGroupsRequest{Version: v, Groups: []string{g, g + "-simple", "nothing", g + "-simple"}}).(*kmsg.DeleteGroupsResponse)
		var got []api.Code
		for _, x := range resp.Groups {
			got = append(got, api.Code(x.ErrorCode))
		}
		if want := []api.Code{api.NonEmptyGroup, api.NoError, api.GroupIDNotFound}; !slices.Equal(got, want) {
			t.Errorf("codes %v, want %v", got, want)
		}
		if left := fetchAll(r, g+"-simple", 9); len(left) != 0 {
			t.Errorf("offsets left: %v", left)
		}
	})
}

func TestOffsetDelete(t *testing.T) {
	r := newRig(t)
	member := stable(r, "g")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation, commit.MemberID = 9, "g", 1, member
	for _, name := range []string{"t", "u"} {
		commit.Topics = append(commit.Topics, kmsg.OffsetCommitRequestTopic{Topic: name, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}})
	}
	call(r, commit)
	one := func(topic string, p int32) kmsg.OffsetDeleteRequestTopic {
		return kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: p}}}
	}
	req := &kmsg.OffsetDeleteRequest{Group: "g", Topics: []kmsg.OffsetDeleteRequestTopic{one("t", 0), one("u", 0), one("u", 5), one("none", 0)}}
	resp := call(r, req).(*kmsg.OffsetDeleteResponse)
	var got []api.Code
	for _, x := range resp.Topics {
		got = append(got, api.Code(x.Partitions[0].ErrorCode))
	}
	want := []api.Code{api.GroupSubscribedToTopic, api.NoError, api.UnknownTopicOrPartition, api.UnknownTopicOrPartition}
	if resp.ErrorCode != 0 || !slices.Equal(got, want) {
		t.Errorf("%v, codes %v, want %v", api.Code(resp.ErrorCode), got, want)
	}
	if left := fmt.Sprint(fetchAll(r, "g", 9)); left != "[t-0@1/0/]" {
		t.Errorf("left %s", left)
	}
	req.Group = "nothing"
	if resp := call(r, req).(*kmsg.OffsetDeleteResponse); api.Code(resp.ErrorCode) != api.GroupIDNotFound {
		t.Errorf("unknown group: %+v", resp)
	}
}

// A member waits in its join while others' requests on other connections, and
// the answers to earlier ones on its own, go on.
func TestJoinWaitsForOthers(t *testing.T) {
	r := newRig(t)
	first := stable(r, "g")
	second := &rig{t: t, dial: r.dial}
	second.connect()
	join := &kmsg.JoinGroupRequest{
		Version: 3, Group: "g", SessionTimeoutMillis: 10_000, RebalanceTimeoutMillis: 20_000, ProtocolType: "consumer",
		Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("x")}},
	}
	second.send(join)
	hb := &kmsg.HeartbeatRequest{Version: 4, Group: "g", Generation: 1, MemberID: first}
	for api.Code(call(r, hb).(*kmsg.HeartbeatResponse).ErrorCode) != api.RebalanceInProgress {
	}
	rejoin := *join
	rejoin.Version, rejoin.MemberID = 9, first
	mine := call(r, &rejoin).(*kmsg.JoinGroupResponse)
	body, err := second.read(false)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &kmsg.JoinGroupResponse{Version: 3}
	if err := theirs.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if mine.Generation != 2 || theirs.Generation != 2 || mine.LeaderID != theirs.LeaderID || len(mine.Members) != 2 {
		t.Errorf("joined %+v and %+v", mine, theirs)
	}
}

// A body that isn't a request ends the connection.
func TestMalformedBody(t *testing.T) {
	row, _ := api.Lookup(api.JoinGroup)
	r := newRig(t)
	good := kmsg.NewRequestFormatter().AppendRequest(nil, &kmsg.JoinGroupRequest{Version: row.Max, Group: "g"}, 1)
	good[len(good)-2] = 0x7f // the protocols' length
	if _, err := r.conn.Write(good); err != nil {
		t.Fatal(err)
	}
	if b, err := r.read(true); err != io.EOF {
		t.Errorf("answered %x, %v", b, err)
	}
}
