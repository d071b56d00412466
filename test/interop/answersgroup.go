package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// askGroups asks for coordinators, and for offsets and groups without members.
func (x *answers) askGroups() error {
	if err := x.from("coordinators", 10, 4, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.CoordinatorKeys = []string{"g", "", "another"}
		return r
	}); err != nil {
		return err
	}
	for _, kind := range []int8{0, 9} {
		for _, key := range []string{"g", ""} {
			if err := x.all(fmt.Sprintf("coordinator of type %d for %q", kind, key), 10, func(v int16, _ *asked) kmsg.Request {
				r := kmsg.NewPtrFindCoordinatorRequest()
				r.CoordinatorKey, r.CoordinatorType = key, kind
				if v >= 4 {
					r.CoordinatorKeys = []string{key}
				}
				return r
			}); err != nil {
				return err
			}
		}
	}
	long := string(make([]byte, 5000))
	for _, c := range []struct {
		name, group, member, topic string
		generation, partition      int32
		metadata                   *string
	}{
		{"commit", "simple", "", "a", -1, 0, ptr("m")},
		{"commit without metadata", "simple", "", "a", -1, 1, nil},
		{"commit too much metadata", "simple", "", "a", -1, 1, &long},
		{"commit for no topic", "simple", "", "nosuch", -1, 0, nil},
		{"commit for no partition", "simple", "", "a", -1, 9, nil},
		{"commit for an empty group", "", "", "a", -1, 0, nil},
		{"commit as an unknown member", "simple", "who", "a", 3, 0, nil},
		{"commit as a member of an unknown group", "unknown", "who", "a", 3, 0, nil},
	} {
		if err := x.all(c.name, 8, func(v int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Group, r.MemberID, r.Generation, r.RetentionTimeMillis = c.group, c.member, c.generation, -1
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = c.partition, 3, 0, c.metadata
			t := kmsg.OffsetCommitRequestTopic{Topic: c.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}
			if v >= 10 {
				if t.TopicID = a.ids[c.topic]; t.TopicID == [16]byte{} {
					t.TopicID = [16]byte{9}
				}
			}
			r.Topics = append(r.Topics, t)
			return r
		}); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name, group string
		all, stable bool
	}{{"committed", "simple", false, false}, {"committed, stable", "simple", false, true}, {"committed, all", "simple", true, false}, {"committed of nobody", "unknown", false, false}, {"committed of an empty group", "", false, false}} {
		least := int16(1)
		if c.all {
			least = 2
		}
		if err := x.from(c.name, 9, least, func(v int16, a *asked) kmsg.Request { return committedOf(v, a, c.group, c.all, c.stable && v >= 7) }); err != nil {
			return err
		}
	}
	return x.askGroupAdmin("of a simple group", "simple")
}

func committedOf(v int16, a *asked, group string, all, stable bool) kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.RequireStable = stable
	if v < 8 {
		r.Group = group
		if !all {
			r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "a", Partitions: []int32{0, 1, 9}}, {Topic: "nosuch", Partitions: []int32{0}}}
		}
		return r
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if !all {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "a", TopicID: a.ids["a"], Partitions: []int32{0, 1, 9}}, {Topic: "nosuch", TopicID: [16]byte{9}, Partitions: []int32{0}}}
	}
	r.Groups = append(r.Groups, g)
	return r
}

// askGroupAdmin lists and describes a group, and tries to delete what is not there.
func (x *answers) askGroupAdmin(name, group string) error {
	for _, f := range []struct {
		name          string
		least         int16
		states, types []string
	}{{"groups", 0, nil, nil}, {"groups, empty ones", 4, []string{"Empty"}, nil}, {"groups, lower case", 4, []string{"stable"}, nil}, {"groups in no state", 4, []string{"Nosuch"}, nil}, {"groups, classic", 5, nil, []string{"classic"}}, {"groups of no type", 5, nil, []string{"nosuch"}}} {
		if err := x.from(f.name+" "+name, 16, f.least, func(int16, *asked) kmsg.Request {
			r := kmsg.NewPtrListGroupsRequest()
			r.StatesFilter, r.TypesFilter = f.states, f.types
			return r
		}); err != nil {
			return err
		}
	}
	if err := x.all("describe "+name, 15, func(v int16, _ *asked) kmsg.Request {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups, r.IncludeAuthorizedOperations = []string{group, "unknown", ""}, v >= 3
		return r
	}); err != nil {
		return err
	}
	if err := x.all("delete offsets "+name, 47, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}, {Partition: 9}}}, {Topic: "nosuch", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
		return r
	}); err != nil {
		return err
	}
	return x.all("delete unknown groups "+name, 42, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{"unknown", ""}
		return r
	})
}

// askMembers goes through a group's life, a group for each version of JoinGroup.
func (x *answers) askMembers() error {
	group := func(v int16) string { return fmt.Sprintf("members-%d", v) }
	join := func(member bool, change func(*kmsg.JoinGroupRequest)) func(int16, *asked) kmsg.Request {
		return func(v int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrJoinGroupRequest()
			r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = group(v), 60000, 60000, "consumer"
			if change != nil {
				r.Group = "refused"
			}
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0}}, {Name: "roundrobin", Metadata: []byte{0, 1}}}
			if member {
				r.MemberID = a.member
			}
			if change != nil {
				change(r)
			}
			return r
		}
	}
	bad := []struct {
		name   string
		change func(*kmsg.JoinGroupRequest)
	}{
		{"join an empty group", func(r *kmsg.JoinGroupRequest) { r.Group = "" }},
		{"join for too short a session", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 }},
		{"join for too long a session", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 }},
		{"join as a member unknown", func(r *kmsg.JoinGroupRequest) { r.MemberID = "who" }},
		{"join without protocols", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }},
		{"join without a type", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }},
	}
	for _, b := range bad {
		if err := x.all(b.name, 11, join(false, b.change)); err != nil {
			return err
		}
	}
	for v := int16(0); v <= x.brokers[0].ranges[11][1]; v++ {
		if err := x.oneLife(v, group(v), join); err != nil {
			return err
		}
	}
	return nil
}

// oneLife joins, syncs, commits, is listed, and leaves.
func (x *answers) oneLife(v int16, group string, join func(bool, func(*kmsg.JoinGroupRequest)) func(int16, *asked) kmsg.Request) error {
	at := func(key int16) int16 { return min(v, x.brokers[0].ranges[key][1]) }
	remember := func(got []kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		for i, r := range got {
			x.brokers[i].member = r.(*kmsg.JoinGroupResponse).MemberID
		}
		return nil
	}
	if err := remember(x.one("join", v, join(false, nil))); err != nil {
		return err
	}
	if v >= 4 {
		if err := remember(x.one("join with the member id", v, join(true, nil))); err != nil {
			return err
		}
	}
	sync := func(generation int32, member func(*asked) string) func(int16, *asked) kmsg.Request {
		return func(sv int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrSyncGroupRequest()
			r.Group, r.Generation, r.MemberID = group, generation, member(a)
			if sv >= 5 {
				r.ProtocolType, r.Protocol = ptr("consumer"), ptr("range")
			}
			r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: r.MemberID, MemberAssignment: []byte{0, 1, 2}}}
			return r
		}
	}
	mine, who := func(a *asked) string { return a.member }, func(*asked) string { return "who" }
	label := func(s string) string { return fmt.Sprintf("%s (life %d)", s, v) }
	for _, s := range []struct {
		name       string
		generation int32
		member     func(*asked) string
	}{{"sync with a wrong generation", 9, mine}, {"sync as nobody", 1, who}, {"sync", 1, mine}} {
		if _, err := x.one(label(s.name), at(14), sync(s.generation, s.member)); err != nil {
			return err
		}
		if _, err := x.one(label("heartbeat after "+s.name), at(12), func(_ int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrHeartbeatRequest()
			r.Group, r.Generation, r.MemberID = group, s.generation, s.member(a)
			return r
		}); err != nil {
			return err
		}
	}
	if err := x.commitsOfAMember(v, group, label); err != nil {
		return err
	}
	return x.lastOfAMember(v, group, label)
}

func (x *answers) commitsOfAMember(v int16, group string, label func(string) string) error {
	for _, g := range []int32{1, 0, 2, -1} {
		if _, err := x.one(label(fmt.Sprintf("commit in generation %d", g)), max(2, min(v, 9)), func(_ int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Group, r.MemberID, r.Generation, r.RetentionTimeMillis = group, a.member, g, -1
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Offset, p.LeaderEpoch = 3, -1
			r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
			return r
		}); err != nil {
			return err
		}
	}
	if v%3 == 0 {
		if err := x.askGroupAdmin(label("of a group with a member"), group); err != nil {
			return err
		}
	}
	return nil
}

// lastOfAMember leaves, and deletes the group.
func (x *answers) lastOfAMember(v int16, group string, label func(string) string) error {
	at := min(v, x.brokers[0].ranges[13][1])
	mine, who := func(a *asked) string { return a.member }, func(*asked) string { return "who" }
	if _, err := x.one(label("delete a group with a member"), 1, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{group}
		return r
	}); err != nil {
		return err
	}
	for _, member := range []func(*asked) string{who, mine, mine} {
		n := len(x.brokers[0].labels)
		if _, err := x.one(label(fmt.Sprintf("leave, request %d", n)), at, func(lv int16, a *asked) kmsg.Request {
			r := kmsg.NewPtrLeaveGroupRequest()
			r.Group = group
			if lv < 3 {
				r.MemberID = member(a)
			} else {
				r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member(a)}}
			}
			return r
		}); err != nil {
			return err
		}
	}
	if _, err := x.one(label("describe the empty group"), 5, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{group}
		return r
	}); err != nil {
		return err
	}
	_, err := x.one(label("delete the empty group"), 1, func(int16, *asked) kmsg.Request {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{group}
		return r
	})
	return err
}
