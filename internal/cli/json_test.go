package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientCommands are the commands that talk to a cluster, without the program's name. kafka-cluster-mirrors is not among them: its output
// is that of KIP-1279.
func clientCommands(c *cobra.Command) []string {
	var out []string
	if !c.HasSubCommands() && c.Flags().Lookup("bootstrap-server") != nil && c.Name() != mirrorToolName {
		out = append(out, words(c))
	}
	for _, sub := range c.Commands() {
		out = append(out, clientCommands(sub)...)
	}
	return out
}

// Every client command prints only lines of JSON with --json.
func TestJSONEverywhere(t *testing.T) {
	source, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Kill()
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	for _, name := range []string{"m", "other"} {
		if code, _, errs := invoke("", "topics", "create", name, "--bootstrap-server", source.Addr()); code != 0 {
			t.Fatal(errs)
		}
	}
	const refused = -1 // by a node that is no quorum of controllers, or has nothing of the kind
	ran := map[string]bool{}
	for _, step := range []struct {
		command, args string
		lines         int
	}{
		{"topics create", "t --partitions 2", 1},
		{"produce", "t", 1},
		{"consume", "t --from-beginning --exit-at-end --group g", 2},
		{"topics list", "", 1},
		{"topics describe", "t", 1},
		{"topics alter", "t --partitions 3", 1},
		{"configs alter", "--topic t --set retention.ms=1000000", 1},
		{"configs describe", "--topic t", 1},
		{"groups list", "", 1},
		{"groups describe", "g", 1},
		{"groups reset-offsets", "g --topic t --to-earliest --execute", 1},
		{"groups delete", "g", 1},
		{"mirrors create", "dr --source " + source.Addr() + " --topics m", 1},
		{"mirrors list", "", 1},
		{"mirrors describe", "dr", 1},
		{"mirrors pause", "dr --topics m", 1},
		{"mirrors resume", "dr --topics m", 1},
		{"mirrors start", "dr --topics other", 1},
		{"mirrors recover", "dr --topics m", 1},
		{"mirrors configs", "dr", 1},
		{"mirrors verify", "dr --topics m", 1},
		{"mirrors skip", "dr --topic m", refused},
		{"mirrors cut list", "", 1},
		{"mirrors cut dump", "", refused},
		{"mirrors cut replay", "--to t", refused},
		{"mirrors cut purge", "--yes", refused},
		{"mirrors fence", "--topics t", 1},
		{"mirrors unfence", "--topics t", 1},
		{"mirrors switchover", "dr --yes", 1},
		{"mirrors failback", "dr --yes --reverse-config " + (&pair{t: t}).file(n), 1},
		{"mirrors stop", "dr --topics m,other", 1},
		{"mirrors failover", "dr", 1},
		{"mirrors delete", "dr", 1},
		{"features describe", "", 1},
		{"features downgrade", "mirror.version=0 --dry-run", 1},
		{"features upgrade", "mirror.version=2 --dry-run", 1},
		{"quorum describe", "", 1},
		{"quorum remove", "--controller-id 9 --controller-directory-id JEXY6aqzQY-32P5TStzaFg", refused},
		{"quorum add", "--controller-id 9 --controller-directory-id JEXY6aqzQY-32P5TStzaFg --endpoint CONTROLLER://127.0.0.1:1 --timeout-ms 300", refused},
		{"topics delete", "t", 1},
		{"cluster describe", "", 1},
		{"cluster unregister", "1", 1},
	} {
		ran[step.command] = true
		args := append(append(strings.Fields(step.command), strings.Fields(step.args)...), "--json", "--bootstrap-server", n.Addr())
		// A mirror's topics take a moment to get where the next command wants them.
		for deadline := time.Now().Add(10 * time.Second); ; {
			code, out, errs := invoke("one\ntwo\n", args...)
			if code != 0 && step.lines != refused && time.Now().Before(deadline) {
				continue
			}
			if (code != 0) != (step.lines == refused) || strings.Count(out, "\n") != max(step.lines, 0) {
				t.Errorf("%s: exit code %d: %q%s", step.command, code, out, errs)
			}
			for line := range strings.Lines(out) {
				if err := json.Unmarshal([]byte(line), &map[string]any{}); err != nil {
					t.Errorf("%s printed %q: %v", step.command, line, err)
				}
			}
			break
		}
	}
	all := clientCommands((&app{env: &Env{}}).root())
	slices.Sort(all)
	if got := slices.Sorted(maps.Keys(ran)); !slices.Equal(got, all) {
		t.Errorf("ran %q, the client commands are %q", got, all)
	}
}

// A record as JSON tells null from empty, and bytes that are no text are base64.
func TestConsumeJSON(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if code, _, errs := invoke("", "topics", "create", "t", "--bootstrap-server", n.Addr()); code != 0 {
		t.Fatal(errs)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	at := time.UnixMilli(1700000000000)
	if err := cl.ProduceSync(ctx,
		&kgo.Record{Timestamp: at, Key: []byte("k<\n"), Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "n"}, {Key: "b", Value: []byte{0xff}}}},
		&kgo.Record{Timestamp: at, Key: []byte{0xfe, 0}, Value: nil},
		&kgo.Record{Timestamp: at, Value: []byte{0xff}},
	).FirstErr(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke("", "consume", "t", "--from-beginning", "--exit-at-end", "--json", "--bootstrap-server", n.Addr())
	var want strings.Builder
	for i, rest := range []string{
		`"key":"k<\n","value":"","headers":[{"key":"h","value":"v"},{"key":"n","value":null},{"key":"b","value_base64":"/w=="}]`,
		`"key_base64":"/gA=","value":null,"headers":[]`,
		`"key":null,"value_base64":"/w==","headers":[]`,
	} {
		fmt.Fprintf(&want, `{"topic":"t","partition":0,"offset":%d,"leader_epoch":0,"timestamp":1700000000000,"timestamp_type":"CreateTime",%s}`+"\n", i, rest)
	}
	if code != 0 || out != want.String() {
		t.Errorf("exit code %d: %s%s\nwant %s", code, out, errs, want.String())
	}
}
