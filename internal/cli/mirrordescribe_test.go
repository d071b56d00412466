package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/mirroradm"
)

// "lag is never falsely zero: shown as unknown, the last value beside it" (spec D6), and its age.
func TestDescribeUnknownLag(t *testing.T) {
	for _, c := range []struct {
		p    mirroradm.Partition
		want string
	}{
		{mirroradm.Partition{State: "MIRRORING", SourceOffset: 9, SourceAge: time.Second, DestinationOffset: 7, LastSourceOffset: 9}, "9 2"},
		{mirroradm.Partition{State: "MIRRORING", SourceOffset: 9, SourceAge: 13 * time.Second, DestinationOffset: 7, LastSourceOffset: 9}, "- (9, 13s ago) - (2 or more)"},
		{mirroradm.Partition{State: "FAILED", SourceOffset: -1, SourceAge: -1, DestinationOffset: 7, LastSourceOffset: 9, LastSourceAge: time.Minute}, "- (9, 1m0s ago) - (2 or more)"},
		{mirroradm.Partition{State: "FAILED", SourceOffset: -1, SourceAge: -1, DestinationOffset: -1, LastSourceOffset: 9, LastSourceAge: time.Minute}, "- (9, 1m0s ago) -"},
		{mirroradm.Partition{State: "MIRRORING", SourceOffset: -1, SourceAge: -1, DestinationOffset: 7, LastSourceOffset: -1, LastSourceAge: -1}, "- -"},
		{mirroradm.Partition{State: "STOPPED", SourceOffset: -1, SourceAge: -1, DestinationOffset: 12, LastSourceOffset: 9, LastSourceAge: time.Minute}, "- -"},
	} {
		if got := sourceOffset(&c.p) + " " + lagCell(&c.p); got != c.want {
			t.Errorf("%+v: %s, want %s", c.p, got, c.want)
		}
	}
}

// "Continuing after retention overtook the mirror is never silent: the gap is … shown in describe, and kept."
func TestDescribeShowsGaps(t *testing.T) {
	src, dst := testCluster(t), testCluster(t)
	until := func(pattern string, args ...string) string {
		t.Helper()
		var out string
		peertest.Eventually(t, 15*time.Second, func() error {
			out, _ = runAt(t, dst, ExitOK, "", args...)
			if !regexp.MustCompile("(?m)" + pattern).MatchString(out) {
				return fmt.Errorf("%s did not come: %s", pattern, out)
			}
			return nil
		})
		return out
	}
	runAt(t, src, ExitOK, "", "topics", "create", "orders")
	runAt(t, src, ExitOK, "1\n2\n", "produce", "orders")
	runAt(t, dst, ExitOK, "", "mirrors", "create", "dr", "--source", src.Addr(), "--topics", "orders", "--config", "mirror.fetch.wait.max.ms=50")
	until(`^dr +orders +0 +MIRRORING +2 +2 +0 `, "mirrors", "describe", "dr")
	runAt(t, dst, ExitOK, "", "mirrors", "pause", "dr", "--topics", "orders")
	runAt(t, src, ExitOK, "3\n4\n5\n", "produce", "orders")
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 4})
	if _, err := kadm.NewClient(testClient(t, kgo.SeedBrokers(src.Addr()))).DeleteRecords(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	runAt(t, dst, ExitOK, "", "mirrors", "resume", "dr", "--topics", "orders")
	out := until(`^Gap in mirror dr: orders-0 lacks offsets 2 to 3, since 20[0-9TZ:-]+: .*; 2 records are missing\.$`, "mirrors", "describe", "dr")
	if strings.Contains(out, "Set aside by cuts") {
		t.Errorf("a gap is no file of records: %s", out)
	}
	until(`"gaps":\[\{"topic":"orders","partition":0,"first_offset":2,"end_offset":4,"missing":2,"at":"20[^"]+","reason":"[^"]+2 records are missing"\}\]`, "mirrors", "describe", "dr", "--json")
	until(`^dr +orders +0 +2-3 +0 +0 .* gap: .*2 records are missing$`, "mirrors", "cut", "list")
}
