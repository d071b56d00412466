package mirror_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
	"milena/mirroradm"
)

func request[R kmsg.Response](c *cluster, req kmsg.Request) R {
	c.t.Helper()
	resp, err := c.cl.Request(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(R)
}

// 7.9: "It checks, for every topic in the request: the actual state of every partition". The valid states of each request.
func TestRequestsCheckActualStates(t *testing.T) {
	src, dst := pair(t)
	src.topic("s", 1)
	src.produce("t", 0, 2)
	dst.mirror("m", src)
	dst.begin("m", "t", "s")
	dst.await("m", "t", 0, level)
	dst.await("m", "s", 0, level)
	dst.stop("m", "s")
	dst.awaitState("m", "s", "STOPPED")
	ctx := t.Context()
	refused := func(name string, err error) {
		t.Helper()
		if !hasCode(err, "INVALID_CLUSTER_MIRROR_STATES") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := dst.mir.Start(ctx, "m", []mirroradm.StartTopic{{Name: "t"}}, nil, nil)
	refused("start of a mirrored topic", err)
	_, err = dst.mir.Pause(ctx, "m", []string{"s"})
	refused("pause of a stopped topic", err)
	_, err = dst.mir.Resume(ctx, "m", []string{"t"})
	refused("resume of a mirrored topic", err)
	refused("delete with a mirrored topic", dst.mir.Delete(ctx, "m"))
	if rs, err := dst.mir.Stop(ctx, "m", []string{"s", "nope"}, nil); err != nil || topicCode(rs, "s") != "" || topicCode(rs, "nope") != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("stop of a stopped topic and of none: %v %v", rs, err)
	}
	if _, err := dst.mir.Start(ctx, "gone", []mirroradm.StartTopic{{Name: "t"}}, nil, nil); !hasCode(err, "UNKNOWN_CLUSTER_MIRROR") {
		t.Errorf("start in no mirror: %v", err)
	}
	if rs, _ := dst.mir.Recover(ctx, "m", []string{"nope"}); topicCode(rs, "nope") != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("recover of no topic: %v", rs)
	}
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	if err := dst.mir.Delete(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	// Nothing is left of it: a new mirror of the name has no state of the old one.
	dst.mirror("m", src)
	p := mirrormsg.NewReadMirrorStatesPartition()
	read := request[*mirrormsg.ReadMirrorStatesResponse](dst, &mirrormsg.ReadMirrorStatesRequest{MirrorName: "m",
		Topics: []mirrormsg.ReadMirrorStatesTopic{{TopicName: "t", Partitions: []mirrormsg.ReadMirrorStatesPartition{p}}}})
	if x := read.Topics[0].Partitions[0]; x.ErrorCode != 0 || mirrormsg.State(x.State) != mirrormsg.Unknown || x.LastMirrorEpoch != -1 {
		t.Errorf("state of a deleted mirror: %+v", x)
	}
}

// 4.9: "A mirror that misses the name or source filter is omitted. The desired-state filter never removes a mirror, it only filters
// its topic list. With an empty state filter the topic list contains topics desired MIRRORING or PAUSED."
func TestListFilters(t *testing.T) {
	src, dst := pair(t)
	src.topic("s", 1)
	dst.mirror("a", src)
	dst.mirrorAt("b", "127.0.0.1:1", "another-cluster")
	dst.begin("a", "t", "s")
	dst.await("a", "s", 0, level)
	dst.await("a", "t", 0, level)
	dst.stop("a", "s")
	for _, c := range []struct {
		name    string
		req     mirrormsg.ListClusterMirrorsRequest
		mirrors []string
		topics  []string // of the first
	}{
		{"all", mirrormsg.ListClusterMirrorsRequest{}, []string{"a", "b"}, []string{"t"}},
		{"by name", mirrormsg.ListClusterMirrorsRequest{MirrorNameFilter: []string{"b", "c"}}, []string{"b"}, nil},
		{"by source", mirrormsg.ListClusterMirrorsRequest{SourceClusterIDFilter: []string{src.n.ClusterID()}}, []string{"a"}, []string{"t"}},
		{"by state", mirrormsg.ListClusterMirrorsRequest{DesiredMirrorStateFilter: []string{"STOPPED"}}, []string{"a", "b"}, []string{"s"}},
	} {
		r := request[*mirrormsg.ListClusterMirrorsResponse](dst, &c.req)
		var names []string
		for _, m := range r.Mirrors {
			names = append(names, m.MirrorName)
		}
		if !slices.Equal(names, c.mirrors) || len(r.Mirrors) > 0 && !slices.Equal(r.Mirrors[0].TopicNames, c.topics) && len(c.topics)+len(r.Mirrors[0].TopicNames) > 0 {
			t.Errorf("%s: %+v", c.name, r.Mirrors)
		}
	}
	bad := request[*mirrormsg.ListClusterMirrorsResponse](dst, &mirrormsg.ListClusterMirrorsRequest{DesiredMirrorStateFilter: []string{"running"}})
	if bad.ErrorCode == 0 {
		t.Error("a filter by a state that is none is taken")
	}
}

// 4.10: "null = all, so empty = none"; "UNKNOWN_CLUSTER_MIRROR, per mirror"; "If set, mirrors whose source cluster ID differs are
// dropped, and the LME is added"; 4.13: "A partition the receiver does not lead or does not mirror is answered with -1 / -1".
func TestDescribe(t *testing.T) {
	src, dst := pair(t)
	src.produce("t", 0, 4)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.await("m", "t", 0, level)
	describe := func(req mirrormsg.DescribeClusterMirrorsRequest) []mirrormsg.DescribedMirror {
		t.Helper()
		r := request[*mirrormsg.DescribeClusterMirrorsResponse](dst, &req)
		if r.ErrorCode != 0 {
			t.Fatalf("describe: %d", r.ErrorCode)
		}
		return r.Mirrors
	}
	if ms := describe(mirrormsg.DescribeClusterMirrorsRequest{MirrorNames: []string{}}); len(ms) != 0 {
		t.Errorf("no names: %v", ms)
	}
	if ms := describe(mirrormsg.DescribeClusterMirrorsRequest{MirrorNames: []string{"x"}}); len(ms) != 1 || ms[0].ErrorCode != 1137 {
		t.Errorf("unknown name: %+v", ms)
	}
	ms := describe(mirrormsg.DescribeClusterMirrorsRequest{})
	if p := ms[0].Topics[0].Partitions[0]; p.StateValue != "UNKNOWN" || p.SourceOffset != -1 || p.DestinationOffset != -1 || p.LastMirrorEpoch != -1 {
		t.Errorf("nothing was asked for: %+v", p)
	}
	own, other := src.n.ClusterID(), "another"
	if ms := describe(mirrormsg.DescribeClusterMirrorsRequest{ClusterID: &other}); len(ms) != 0 {
		t.Errorf("mirrors of another source: %v", ms)
	}
	dst.stop("m", "t")
	dst.awaitState("m", "t", "STOPPED")
	filter := []mirrormsg.DescribeMirrorTopicFilter{{TopicName: "t", Partitions: []int32{0}}, {TopicName: "x"}}
	ms = describe(mirrormsg.DescribeClusterMirrorsRequest{ClusterID: &own, IncludeMirrorState: true, TopicPartitions: filter})
	if p := ms[0].Topics[0].Partitions[0]; p.StateValue != "STOPPED" || p.LastMirrorEpoch < 0 || p.LastMirrorOffset != 4 {
		t.Errorf("last mirror epoch: %+v", p)
	}
	r := request[*mirrormsg.ReadMirrorOffsetsResponse](dst, &mirrormsg.ReadMirrorOffsetsRequest{MirrorName: "m",
		Topics: []mirrormsg.ReadMirrorOffsetsTopic{{TopicName: "x", Partitions: []int32{0}}}})
	if p := r.Topics[0].Partitions[0]; p.SourceOffset != -1 || p.DestinationOffset != -1 {
		t.Errorf("offsets of a partition that is not mirrored: %+v", p)
	}
	gone := request[*mirrormsg.WriteMirrorStatesResponse](dst, &mirrormsg.WriteMirrorStatesRequest{MirrorName: "nope"})
	if gone.ErrorCode != 1137 {
		t.Errorf("state write for no mirror: %d", gone.ErrorCode)
	}
}

// 7.8: the coordinator's fences, by the RPC: an older leader epoch, another state epoch, an illegal transition.
func TestWriteStates(t *testing.T) {
	src, dst := pair(t)
	dst.mirror("m", src)
	dst.begin("m", "t")
	dst.await("m", "t", 0, level)
	eventually(t, func() error { // the periodic bump of 8.5
		if dst.leaderEpoch() == 0 {
			return errors.New("the leader epoch was not raised")
		}
		return nil
	})
	if _, err := dst.mir.Pause(t.Context(), "m", []string{"t"}); err != nil {
		t.Fatal(err)
	}
	dst.awaitState("m", "t", "PAUSED")
	write := func(edit func(*mirrormsg.WriteMirrorStatesPartition)) int16 {
		t.Helper()
		p := mirrormsg.NewWriteMirrorStatesPartition()
		edit(&p)
		r := request[*mirrormsg.WriteMirrorStatesResponse](dst, &mirrormsg.WriteMirrorStatesRequest{MirrorName: "m",
			Topics: []mirrormsg.WriteMirrorStatesTopic{{TopicName: "t", Partitions: []mirrormsg.WriteMirrorStatesPartition{p}}}})
		return r.Topics[0].Partitions[0].ErrorCode
	}
	for name, c := range map[string]struct {
		want int16
		edit func(*mirrormsg.WriteMirrorStatesPartition)
	}{
		"older leader":    {74, func(p *mirrormsg.WriteMirrorStatesPartition) { p.State, p.LeaderEpoch = 3, 0 }},
		"other state":     {124, func(p *mirrormsg.WriteMirrorStatesPartition) { p.State, p.StateEpoch = 3, 77 }},
		"illegal":         {1145, func(p *mirrormsg.WriteMirrorStatesPartition) { p.State = int8(mirrormsg.Stopped) }},
		"no state at all": {42, func(p *mirrormsg.WriteMirrorStatesPartition) { p.State = 77 }},
	} {
		if got := write(c.edit); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
