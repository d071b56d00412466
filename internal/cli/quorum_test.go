package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"milena/internal/config"
	"milena/internal/node"
	"milena/internal/peertest"
)

// freePort is one that nobody listens on now, nor is given to an outgoing connection while the node is down.
func freePort(t *testing.T) int {
	t.Helper()
	ports, err := peertest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// grown is a node of a test that has a properties file, as an operator's has.
type grown struct {
	t    *testing.T
	file string
	*node.Node
}

func (g *grown) write(lines ...string) {
	g.t.Helper()
	if err := os.WriteFile(g.file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *grown) start() {
	g.t.Helper()
	props, err := propertiesFile(g.file)
	if err != nil {
		g.t.Fatal(err)
	}
	conf, _, err := config.Load(props, config.Env{Hostname: os.Hostname})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: conf, Version: "test"})
	if err != nil {
		g.t.Fatal(err)
	}
	g.Node = n
	g.t.Cleanup(n.Kill)
}

func (g *grown) stop() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		g.t.Fatal(err)
	}
}

// must runs a command line that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := invoke("", args...)
	if code != ExitOK {
		t.Fatalf("milena %s: exit code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// refused runs a command line that has to fail.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	code, _, stderr := invoke("", args...)
	if code == ExitOK || !strings.Contains(stderr, want) {
		t.Errorf("milena %s: exit code %d: %s, want %q", strings.Join(args, " "), code, stderr, want)
	}
}

func describedQuorum(t *testing.T, args ...string) quorumState {
	t.Helper()
	var s quorumState
	if err := json.Unmarshal([]byte(must(t, append([]string{"quorum", "describe", "--json"}, args...)...)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A single node that was started with no configuration at all becomes a quorum of three by
// configuration and `quorum add`, and loses the first controller again.
func TestSingleNodeGrows(t *testing.T) {
	dir := t.TempDir()
	common := []string{"milena.http.listen=off", "offsets.topic.num.partitions=1", "mirror.state.topic.num.partitions=1", "controller.quorum.fetch.timeout.ms=300", "controller.quorum.election.timeout.ms=300"}
	first := &grown{t: t, file: filepath.Join(dir, "1.properties")}
	first.write("node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+filepath.Join(dir, "1"), "milena.http.listen=off")
	first.start()
	must(t, "topics", "create", "orders", "--bootstrap-server", first.Addr())
	if s := describedQuorum(t, "--bootstrap-server", first.Addr()); s.Leader != 1 || len(s.Voters) != 1 || s.Voters[0].Lag == nil || *s.Voters[0].Lag != 0 {
		t.Fatalf("quorum %+v", s)
	}
	first.stop()

	ports := []int{freePort(t), freePort(t), freePort(t)}
	bootstrap := fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", ports[0])
	first.write(append(common, "node.id=1", "process.roles=broker,controller", "log.dirs="+filepath.Join(dir, "1"), bootstrap,
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:%d", ports[0]), "controller.listener.names=CONTROLLER")...)
	first.start()
	all := []*grown{first}
	for id := 2; id <= 3; id++ {
		g := &grown{t: t, file: filepath.Join(dir, fmt.Sprintf("%d.properties", id))}
		g.write(append(common, fmt.Sprintf("node.id=%d", id), "process.roles=controller", "log.dirs="+filepath.Join(dir, fmt.Sprint(id)), bootstrap,
			fmt.Sprintf("listeners=CONTROLLER://127.0.0.1:%d", ports[id-1]), "controller.listener.names=CONTROLLER")...)
		refused(t, "--no-initial-controllers", "storage", "format", "-t", first.ClusterID(), "-c", g.file)
		must(t, "storage", "format", "-t", first.ClusterID(), "-c", g.file, "--no-initial-controllers")
		g.start()
		out := must(t, "quorum", "add", "--config", g.file, "--bootstrap-server", first.Addr())
		if !strings.HasPrefix(out, fmt.Sprintf("Added controller %d with directory id ", id)) {
			t.Errorf("quorum add says %q", out)
		}
		refused(t, "DUPLICATE_VOTER", "quorum", "add", "--config", g.file, "--bootstrap-server", first.Addr())
		all = append(all, g)
	}
	var s quorumState
	for ok := false; !ok; { // the first voter's own endpoint comes with its start
		s = describedQuorum(t, "--bootstrap-controller", fmt.Sprintf("127.0.0.1:%d", ports[1]))
		ok = len(s.Voters) == 3 && len(s.Voters[0].Endpoints) == 1
	}
	if s.Leader != 1 || s.Voters[2].Endpoints[0] != fmt.Sprintf("CONTROLLER://127.0.0.1:%d", ports[2]) {
		t.Errorf("quorum %+v", s)
	}
	backup := filepath.Join(dir, "meta.backup")
	if out := must(t, "metadata", "backup", backup, "--bootstrap-controller", fmt.Sprintf("127.0.0.1:%d", ports[2])); !strings.Contains(out, "1 brokers") {
		t.Errorf("backup says %q", out)
	}
	must(t, "quorum", "remove", "--controller-id", "1", "--controller-directory-id", s.Voters[0].Directory, "--bootstrap-server", first.Addr())
	for ok := false; !ok; {
		after := describedQuorum(t, "--bootstrap-controller", fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", ports[1], ports[2]))
		ok = after.Leader > 1 && len(after.Voters) == 2
	}
	must(t, "topics", "create", "more", "--bootstrap-server", first.Addr())
	if out := must(t, "topics", "list", "--bootstrap-server", first.Addr()); !strings.Contains(out, "orders") || !strings.Contains(out, "more") {
		t.Errorf("topics %q", out)
	}
}

// After the loss of the majority one controller begins anew from what it has.
func TestMetadataDumpBackupRestore(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "1")
	n := &grown{t: t, file: filepath.Join(dir, "1.properties")}
	n.write("node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+data, "milena.http.listen=off",
		"offsets.topic.num.partitions=1", "mirror.state.topic.num.partitions=1")
	n.start()
	must(t, "topics", "create", "orders", "--config", "retention.ms=-1", "--bootstrap-server", n.Addr())
	if code, _, stderr := invoke("a\nb\n", "produce", "orders", "--bootstrap-server", n.Addr()); code != ExitOK {
		t.Fatal(stderr)
	}
	types := dumpTypes(t, data)
	for _, want := range []string{"SNAPSHOT_HEADER", "KRAFT_VOTERS", "LEADER_CHANGE", "FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} {
		if types[want] == 0 {
			t.Errorf("no %s in the dump: %v", want, types)
		}
	}
	n.stop()
	backup := filepath.Join(dir, "meta.backup")
	must(t, "metadata", "backup", backup, "--data-dir", data)
	refused(t, "exists", "metadata", "backup", backup, "--data-dir", data)
	refused(t, "--yes", "metadata", "restore", backup, "--config", n.file)
	refused(t, "move it away", "metadata", "restore", backup, "--config", n.file, "--yes")
	if err := os.Rename(filepath.Join(data, "quorum"), filepath.Join(dir, "quorum.old")); err != nil {
		t.Fatal(err)
	}
	must(t, "metadata", "restore", backup, "--config", n.file, "--yes")
	n.start()
	if out := must(t, "consume", "orders", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr()); out != "a\nb\n" {
		t.Errorf("consumed %q", out)
	}
	if code, _, stderr := invoke("c\n", "produce", "orders", "--bootstrap-server", n.Addr()); code != ExitOK {
		t.Fatal(stderr)
	}
	if out := must(t, "consume", "orders", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr()); out != "a\nb\nc\n" {
		t.Errorf("consumed %q", out)
	}
	if out := must(t, "configs", "describe", "--topic", "orders", "--bootstrap-server", n.Addr()); !strings.Contains(out, "retention.ms=-1") {
		t.Errorf("configs %q", out)
	}
	if s := describedQuorum(t, "--bootstrap-server", n.Addr()); s.Epoch <= 1000 || s.HighWatermark <= 10_000_000 {
		t.Errorf("the restored log goes on at offset %d in epoch %d", s.HighWatermark, s.Epoch)
	}
}

func dumpTypes(t *testing.T, path string) map[string]int {
	t.Helper()
	types := map[string]int{}
	for line := range strings.Lines(must(t, "metadata", "dump", path)) {
		var l struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Data == nil {
			t.Fatalf("%s: %v", line, err)
		}
		types[l.Type]++
	}
	return types
}
