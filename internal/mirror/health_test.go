package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/mirrormsg"
	"milena/internal/server"
	"milena/mirroradm"
)

// problems is what describe says of the mirror's periodic work.
func (c *cluster) problems(mirror string) []string {
	c.t.Helper()
	resp, err := c.cl.Request(c.t.Context(), &mirrormsg.DescribeClusterMirrorsRequest{MirrorNames: []string{mirror}, IncludeMirrorState: true, TimeoutMs: 5000})
	if err != nil {
		c.t.Fatal(err)
	}
	ms := resp.(*mirrormsg.DescribeClusterMirrorsResponse).Mirrors
	if len(ms) != 1 {
		c.t.Fatalf("%d mirrors", len(ms))
	}
	return ms[0].Problems
}

// A source that refuses the list of its groups shows in describe and in the spec's counter, and so does one that is gone, though the mirror
// has no topic yet. When it answers again nothing is left of it.
func TestProblemsAreDescribed(t *testing.T) {
	refuse := make(chan struct{})
	f := newFakeWith(t, 1, api.Milena, server.Table{api.ListGroups: func(_ context.Context, r *server.Request) {
		resp := kmsg.NewPtrListGroupsResponse()
		select {
		case <-refuse:
		default:
			resp.ErrorCode = int16(api.ClusterAuthorizationFailed)
		}
		r.Reply(server.Response{Msg: resp})
	}})
	f.add(1, 1)
	dst := newCluster(t, "destination")
	dst.mirrorAt("m", f.addr, fakeCluster)
	dst.begin("m", "t")
	dst.awaitState("m", "t", "MIRRORING")
	has := func(prefix, what string) func() error {
		return func() error {
			ps := dst.problems("m")
			if !slices.ContainsFunc(ps, func(p string) bool { return strings.HasPrefix(p, prefix) && strings.Contains(p, what) }) {
				return fmt.Errorf("problems: %q", ps)
			}
			return nil
		}
	}
	eventually(t, has("groups: ", "AUTHORIZATION_FAILED"))
	if n, _ := dst.metric("kafka_server_mirror_mirrormetadatamanager_consumergroupoffsetsyncerror_total"); n == 0 {
		t.Error("the error is not counted")
	}
	close(refuse)
	eventually(t, func() error {
		for _, p := range dst.problems("m") {
			if strings.HasPrefix(p, "groups: ") {
				return fmt.Errorf("still %q", p)
			}
		}
		return nil
	})
	dst.mirrorAt("gone", "127.0.0.1:1", fakeCluster)
	eventually(t, func() error {
		if ps := dst.problems("gone"); len(ps) == 0 || !strings.HasPrefix(ps[0], "refresh: ") {
			return fmt.Errorf("problems: %q", ps)
		}
		return nil
	})
	if n, _ := dst.metric("kafka_server_mirror_mirrormetadatamanager_topicmetadatarefresherror_total"); n == 0 {
		t.Error("the error is not counted")
	}
}

// "age of each sync (configs, groups per group, refresh)", and the gauges of section 11.
func TestSyncAges(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 5)
	for _, g := range []string{"g1", "g2"} {
		a.commit(g, "t", 3, "")
	}
	b.mirror("m", a, "mirror.groups.include", "g.*")
	b.begin("m", "t")
	b.awaitCommitted("g1", "t", 3)
	b.awaitCommitted("g2", "t", 3)
	b.await("m", "t", 0, level)
	age := func(group string) (float64, bool) {
		return b.metric("kafka_server_mirror_group_sync_age_seconds", "mirror", "m", "group", group)
	}
	eventually(t, func() error {
		for _, g := range []string{"g1", "g2"} {
			if n, ok := age(g); !ok || n < 0 || n > 20 {
				return fmt.Errorf("group %s: %v %t", g, n, ok)
			}
		}
		for _, sync := range []string{"refresh", "configs", "groups"} {
			if _, ok := b.metric("kafka_server_mirror_sync_age_seconds", "mirror", "m", "sync", sync); !ok {
				return fmt.Errorf("no age of %s", sync)
			}
		}
		return nil
	})
	for name, want := range map[string]float64{
		"mirrormetadatamanager_mirroringpartitionstate": 1, "mirrormetadatamanager_failedpartitionstate": 0, "mirrormetadatamanager_ulelogtruncationpartitionstate": 0,
		"mirrormetadatamanager_mirrortopiccount": 1, "mirrorfetchermanager_failedpartitionscount": 0, "mirrorfetchermanager_maxlag": 0,
	} {
		if n, ok := b.metric("kafka_server_mirror_" + name); !ok || n != want {
			t.Errorf("%s is %v %t, want %v", name, n, ok, want)
		}
	}
	if n, ok := b.metric("kafka_server_mirror_fetcherstats_bytes_total", "mirror", "m", "clientid", "MirrorFetcherThread-0-m"); !ok || n == 0 {
		t.Errorf("bytes of the fetcher: %v %t", n, ok)
	}
	for name, labels := range map[string][]string{
		"kafka_server_mirror_state_transitions_total":                             {"mirror", "m", "from", "LOG_TRUNCATION", "to", "MIRRORING"},
		"kafka_server_mirror_last_mirror_epoch_lookups_total":                     {"mirror", "m", "result", "none"},
		"kafka_server_cluster_mirror_coordinator_metrics_num_partitions":          {"state", "active"},
		"kafka_server_cluster_mirror_coordinator_metrics_partition_load_time_max": nil,
		"kafka_server_mirror_epoch_bumps_total":                                   {"mirror", "m"},
	} {
		if n, ok := b.metric(name, labels...); !ok || n < 1 && labels != nil {
			t.Errorf("%s%v is %v %t", name, labels, n, ok)
		}
	}
	for name, labels := range map[string][]string{
		"kafka_server_mirror_last_mirror_epoch_lookups_total":                 {"mirror", "m", "result", "error"},
		"kafka_server_cluster_mirror_coordinator_metrics_num_partitions":      {"state", "failed"},
		"kafka_server_cluster_mirror_coordinator_metrics_fenced_writes_total": nil,
		"kafka_server_mirror_skipped_groups":                                  {"mirror", "m"},
	} {
		if n, ok := b.metric(name, labels...); !ok || n != 0 {
			t.Errorf("%s%v is %v %t, want 0", name, labels, n, ok)
		}
	}
	// A group that is not to be synced any more has no age; nor has any after a failover.
	if err := b.mir.AlterConfigs(t.Context(), "m", map[string]string{"mirror.groups.exclude": "g1"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, ok := age("g1"); ok {
			return fmt.Errorf("an age of an excluded group")
		}
		return nil
	})
	b.stop("m", "t")
	b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "STOPPED" })
	eventually(t, func() error {
		if _, ok := age("g2"); ok {
			return fmt.Errorf("an age after the failover")
		}
		return nil
	})
}
