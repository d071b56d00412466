package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// fakeGroups are groups of all types, as a cluster with KIP-848 and KIP-932 answers for them.
type fakeGroups struct{ types map[string]string }

func (f fakeGroups) ListGroups(context.Context, ...string) (kadm.ListedGroups, error) {
	out := kadm.ListedGroups{}
	for g, kind := range f.types {
		out[g] = kadm.ListedGroup{Group: g, GroupType: strings.TrimSuffix(kind, " late")}
		if strings.HasSuffix(kind, " late") {
			delete(out, g) // not listed yet
		}
	}
	return out, nil
}

func (f fakeGroups) Lag(_ context.Context, groups ...string) (kadm.DescribedGroupLags, error) {
	if len(groups) == 0 {
		return nil, errors.New("asked for all groups")
	}
	out := kadm.DescribedGroupLags{}
	for _, g := range groups {
		l := kadm.DescribedGroupLag{Group: g, State: "Empty"}
		if f.types[g] != classicGroup {
			l.DescribeErr = kerr.GroupIDNotFound
		}
		out[g] = l
	}
	return out, nil
}

func (f fakeGroups) DescribeConsumerGroups(_ context.Context, groups ...string) (kadm.DescribedConsumerGroups, error) {
	out := kadm.DescribedConsumerGroups{}
	for _, g := range groups {
		d := kadm.DescribedConsumerGroup{Group: g, State: "Stable", AssignorName: "uniform", Coordinator: kadm.BrokerDetail{NodeID: 1, Host: "h", Port: 9}}
		if !strings.HasPrefix(f.types[g], consumerGroup) {
			d.Err = kerr.GroupIDNotFound
		}
		assigned := kadm.TopicsSet{}
		assigned.Add("t", 1)
		d.Members = []kadm.ConsumerGroupMember{{MemberID: "m", ClientID: "c", ClientHost: "/1.2.3.4", SubscribedTopics: []string{"t"}, Assignment: assigned}}
		out[g] = d
	}
	return out, nil
}

func (fakeGroups) FetchManyOffsets(_ context.Context, groups ...string) kadm.FetchOffsetsResponses {
	out := kadm.FetchOffsetsResponses{}
	for _, g := range groups {
		os := kadm.OffsetResponses{}
		os.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "t", Partition: 1, At: 3}})
		out[g] = kadm.FetchOffsetsResponse{Group: g, Fetched: os}
	}
	return out
}

func (fakeGroups) ListEndOffsets(_ context.Context, topics ...string) (kadm.ListedOffsets, error) {
	out := kadm.ListedOffsets{}
	for _, t := range topics {
		out[t] = map[int32]kadm.ListedOffset{0: {Topic: t, Partition: 0, Offset: 4}, 1: {Topic: t, Partition: 1, Offset: 5}}
	}
	return out, nil
}

// Groups of the new consumer protocol are described as those of the classic one; others are named.
func TestDescribeGroupsOfEveryType(t *testing.T) {
	src := fakeGroups{map[string]string{"old": "classic", "new": "consumer", "fresh": "consumer late", "shared": "share", "flow": "streams"}}
	names := func(gs []groupJSON) string {
		var out []string
		for _, g := range gs {
			out = append(out, g.Group)
		}
		return strings.Join(out, " ")
	}
	text := func(errs []error) string { return oneLine(errors.Join(append(errs, errors.New("."))...).Error()) }

	out, others, failed := describeGroups(t.Context(), src, nil)
	if names(out) != "new old" || len(failed) != 0 || !strings.HasPrefix(text(others), "group flow is a streams group, ") || !strings.Contains(text(others), "group shared is a share group, ") {
		t.Errorf("all: %s; %s; %s", names(out), text(others), text(failed))
	}
	got, err := json.Marshal(out[0])
	const want = `{"group":"new","state":"Stable","protocol":"uniform","coordinator":"h:9 (1)","members":1,"partitions":[` +
		`{"topic":"t","partition":0,"current_offset":null,"log_end_offset":4,"lag":null},` +
		`{"topic":"t","partition":1,"current_offset":3,"log_end_offset":5,"lag":2,"consumer_id":"m","host":"/1.2.3.4","client_id":"c"}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
	// One that can't be described hides none of the others.
	out, others, failed = describeGroups(t.Context(), src, []string{"shared", "nobody", "old", "fresh", "new", "old"})
	if names(out) != "fresh new old" || len(others) != 0 || len(failed) != 2 || !strings.Contains(text(failed), "group shared is a share group") ||
		!strings.Contains(text(failed), "group nobody: The group id does not exist (GROUP_ID_NOT_FOUND)") {
		t.Errorf("named: %s; %s; %s", names(out), text(others), text(failed))
	}
	// Nothing classic is no request for all classic groups.
	if out, _, failed := describeGroups(t.Context(), fakeGroups{map[string]string{"new": "consumer"}}, nil); names(out) != "new" || len(failed) != 0 {
		t.Errorf("only new ones: %s; %s", names(out), text(failed))
	}
}

// retriedDelete deletes groups, but answers as if the request of "retried" was carried out and sent again. A request for several
// groups is sent again as a whole, as the client does it.
type retriedDelete struct {
	groups  []string
	loading int // so many listings fail because a coordinator loads
}

func (f *retriedDelete) ListGroups(context.Context, ...string) (kadm.ListedGroups, error) {
	out := kadm.ListedGroups{}
	if f.loading--; f.loading >= 0 {
		return out, kerr.CoordinatorLoadInProgress
	}
	for _, g := range f.groups {
		out[g] = kadm.ListedGroup{Group: g}
	}
	return out, nil
}

func (f *retriedDelete) DeleteGroups(_ context.Context, groups ...string) (kadm.DeleteGroupResponses, error) {
	var out kadm.DeleteGroupResponses
	for range 1 + min(1, len(groups)-1) {
		out = kadm.DeleteGroupResponses{}
		for _, g := range groups {
			r := kadm.DeleteGroupResponse{Group: g}
			if i := slices.Index(f.groups, g); i < 0 || g == "retried" {
				r.Err = kerr.GroupIDNotFound
			}
			f.groups = slices.DeleteFunc(f.groups, func(x string) bool { return x == g })
			out[g] = r
		}
	}
	return out, nil
}

func TestDeleteGroupsCountsWhatIsGone(t *testing.T) {
	deleted, failed := deleteGroups(t.Context(), &retriedDelete{groups: []string{"a", "b", "retried"}, loading: 1}, []string{"retried", "b", "a", "b", "nobody"})
	if !slices.Equal(deleted, []string{"a", "b", "retried"}) || len(failed) != 1 || !strings.HasPrefix(failed[0].Error(), "group nobody: ") {
		t.Errorf("deleted %q, failed %v", deleted, failed)
	}
}
