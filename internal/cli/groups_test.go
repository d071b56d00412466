package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A group with a member is described with it, and is neither reset nor deleted.
func TestActiveGroup(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	run := func(args ...string) (ExitCode, string, string) {
		return invoke("a\n", append(args, "--bootstrap-server", n.Addr())...)
	}
	for _, args := range [][]string{{"topics", "create", "t"}, {"produce", "t"}} {
		if code, _, errs := run(args...); code != 0 {
			t.Fatal(errs)
		}
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ClientID("me"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if fs := member.PollFetches(ctx); fs.Err() != nil || fs.NumRecords() != 1 {
		t.Fatal(fs.Err(), fs.NumRecords())
	}
	if err := member.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run("groups", "describe", "g")
	if code != 0 || errs != "" || !regexp.MustCompile(`(?m)^g +t +0 +1 +1 +0 +me-[0-9a-f-]+ +/?127\.0\.0\.1 +me$`).MatchString(out) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, _ := run("groups", "describe", "g", "--json"); code != 0 || !strings.Contains(out, `"state":"Stable","protocol":"cooperative-sticky"`) || !strings.Contains(out, `"client_id":"me"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out, _ := run("groups", "list"); code != 0 || !regexp.MustCompile(`(?m)^g +classic +Stable +consumer$`).MatchString(out) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out, errs := run("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute"); code != ExitFailed || out != "" || !strings.Contains(errs, "has active members: stop its consumers first") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs := run("groups", "delete", "g"); code != ExitFailed || out != "" || !strings.Contains(errs, "NON_EMPTY_GROUP") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
