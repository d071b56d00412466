package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// tool runs kafka-cluster-mirrors.
func tool(t *testing.T, want ExitCode, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := invokeAs(mirrorToolName, "", args...)
	if code != want {
		t.Fatalf("%v: exit %d: %s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

// 123. No action or two actions: usage, exit 1. Missing --bootstrap-server, --mirror, --mirror-config (create), --topics (start, stop,
// pause, resume): message, exit 1.
func TestScenario123(t *testing.T) {
	const at = "--bootstrap-server=127.0.0.1:1"
	for _, args := range [][]string{{}, {"--list", "--describe", at}} {
		if _, errs := tool(t, ExitFailed, args...); !strings.Contains(errs, "Usage:") || !strings.Contains(errs, "exactly one action") {
			t.Errorf("%v: %s", args, errs)
		}
	}
	for missing, args := range map[string][]string{
		"--bootstrap-server": {"--list"}, "--mirror,": {"--delete", at}, "--mirror-config": {"--create", "--mirror=m", at},
	} {
		if _, errs := tool(t, ExitFailed, args...); !strings.Contains(errs, missing) {
			t.Errorf("%v: %s", args, errs)
		}
	}
	for _, action := range []string{"--start", "--stop", "--pause", "--resume"} {
		if _, errs := tool(t, ExitFailed, action, "--mirror=m", at); !strings.Contains(errs, "missing option --topics, which "+action+" needs") {
			t.Errorf("%s: %s", action, errs)
		}
	}
}

// 124. --exclude without --start, --json or --failed without --describe: message, exit 1.
func TestScenario124(t *testing.T) {
	for option, args := range map[string][]string{"--exclude": {"--stop", "--mirror=m", "--topics=t", "--exclude=x"}, "--json": {"--list", "--json"}, "--failed": {"--list", "--failed"}} {
		if _, errs := tool(t, ExitFailed, append(args, "--bootstrap-server=127.0.0.1:1")...); !strings.Contains(errs, option+" can only be used with") {
			t.Errorf("%s: %s", option, errs)
		}
	}
}

// 125. List without mirrors: "No mirrors found". Describe without partitions: "No mirror partitions found", with --json `[]`. --failed
// without failures: "No failed partitions found".
func TestScenario125(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"No mirrors found\n", []string{"--list"}}, {"No mirror partitions found\n", []string{"--describe"}}, {"[]", []string{"--describe", "--json"}},
		{"No failed partitions found\n", []string{"--describe", "--failed"}},
	} {
		if out, _ := tool(t, ExitOK, append(c.args, "--bootstrap-server", n.Addr())...); out != c.want {
			t.Errorf("%v: %q", c.args, out)
		}
	}
}

// 45. Pre-created topic: create the topic on B with A's topic ID (CreateTopics with mirror info); start; 50 records arrive.
// 120. CreateTopics with mirror info: ID kept; ID already used: only this topic fails with TOPIC_ALREADY_EXISTS.
// 128. Start with patterns that match nothing: exit 0, text about saved patterns, no "Started".
// 129. Pause and resume with a regex: only matching destination topics are sent.
func TestScenario45(t *testing.T) { testPrecreated(t) }

// 120. See 45.
func TestScenario120(t *testing.T) { testPrecreated(t) }

// 126. Long mirror name and bootstrap are cut from the left with three dots; -1 offsets show as a dash; rows are sorted by mirror, topic,
// partition.
func TestScenario126(t *testing.T) {
	TestCuts(t)
	TestMirrorToolRows(t)
}

// 128. See 45.
func TestScenario128(t *testing.T) { testPrecreated(t) }

// 129. See 45.
func TestScenario129(t *testing.T) { testPrecreated(t) }

func testPrecreated(t *testing.T) {
	src, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Kill()
	dst, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Kill()
	at := []string{"--bootstrap-server", dst.Addr()}
	for _, topic := range []string{"orders", "other"} {
		if code, _, errs := invoke("", "topics", "create", topic, "--bootstrap-server", src.Addr()); code != ExitOK {
			t.Fatal(errs)
		}
	}
	if code, _, errs := invoke(strings.Repeat("x\n", 50), "produce", "orders", "--bootstrap-server", src.Addr()); code != ExitOK {
		t.Fatal(errs)
	}
	scl, err := kgo.NewClient(kgo.SeedBrokers(src.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer scl.Close()
	dcl, err := kgo.NewClient(kgo.SeedBrokers(dst.Addr()), kgo.MaxVersions(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer dcl.Close()
	theirs, err := kadm.NewClient(scl).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	adm := mirroradm.NewClient(dcl)
	copied := mirroradm.NewTopic{Name: "orders", SourceID: theirs["orders"].ID, Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "-1"}}
	if err := adm.CreateTopic(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	ours, err := kadm.NewClient(dcl).ListTopics(t.Context(), "orders")
	if err != nil || ours["orders"].ID != theirs["orders"].ID {
		t.Errorf("%v: id %s, the source's is %s", err, ours["orders"].ID, theirs["orders"].ID)
	}
	copied.Name = "again"
	if err := adm.CreateTopic(t.Context(), copied); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("an id that another topic has: %v", err)
	}
	copied.SourceID = [16]byte{}
	if err := adm.CreateTopic(t.Context(), copied); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("no id: %v", err)
	}

	file := filepath.Join(t.TempDir(), "m.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+src.Addr()+"\nmirror.fetch.wait.max.ms=50\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, ExitOK, append(at, "--create", "--mirror=m", "--mirror-config", file)...)
	if out, _ := tool(t, ExitOK, append(at, "--start", "--mirror=m", "--topics=nothing-.*")...); strings.Contains(out, "Started") || !strings.Contains(out, "saved to mirror m for auto-discovery") {
		t.Error(out)
	}
	tool(t, ExitOK, append(at, "--start", "--mirror=m", "--topics=orders,other")...)
	until := func(pattern string) {
		t.Helper()
		re := regexp.MustCompile(pattern)
		for deadline := time.Now().Add(15 * time.Second); ; {
			out, _ := tool(t, ExitOK, append(at, "--describe")...)
			if re.MatchString(out) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s did not come: %s", pattern, out)
			}
		}
	}
	until(`(?m)^m +orders +0 +50 +50 +0 +MIRRORING`)
	until(`(?m)^m +other +0 +.*MIRRORING`)
	if out, _ := tool(t, ExitOK, append(at, "--pause", "--mirror=m", "--topics=ord.*")...); !strings.Contains(out, ": [orders]\n") {
		t.Error(out)
	}
	until(`(?m)^m +orders .* PAUSED`)
	if out, _ := tool(t, ExitOK, append(at, "--resume", "--mirror=m", "--topics=ord.*")...); !strings.Contains(out, ": [orders]\n") {
		t.Error(out)
	}
	until(`(?m)^m +orders .* MIRRORING`)
}
