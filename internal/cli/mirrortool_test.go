package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"milena/mirroradm"
)

// Called by the name of KIP-1279's tool, milena is that tool.
func TestMirrorToolByName(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(t.TempDir(), mirrorToolName)
	if err := os.Symlink(self, tool); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		c := exec.CommandContext(t.Context(), tool, args...)
		c.Env = append(os.Environ(), mainEnv+"=1")
		out, _ := c.CombinedOutput() // the exit code is looked at elsewhere
		return string(out)
	}
	if got := run("--version"); got != "v1.2.3\n" {
		t.Errorf("--version printed %q", got)
	}
	if got := run("--list"); got != mirrorToolName+": missing required option --bootstrap-server\n" {
		t.Errorf("--list printed %q", got)
	}
}

// "Rows are sorted by mirror, topic, partition"; a source offset of long ago is unknown, and so is the lag (D6).
func TestMirrorToolRows(t *testing.T) {
	tool := &mirrorTool{}
	part := func(topic string, n int32) mirroradm.Partition {
		return mirroradm.Partition{Topic: topic, Partition: n, State: "MIRRORING", SourceOffset: 9, DestinationOffset: 7}
	}
	old := part("a", 10)
	old.SourceAge = 3600e9
	rows := tool.rows(mirroradm.DescribedMirrors{
		{Name: "n", Partitions: []mirroradm.Partition{part("b", 0), old, part("a", 9)}}, {Name: "m", Partitions: []mirroradm.Partition{part("z", 0)}},
	})
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join([]string{r.Mirror, r.Topic, unlessNone(int64(r.Partition)), unlessNone(r.SourceOffset), unlessNone(r.Lag)}, " "))
	}
	if s := strings.Join(got, ", "); s != "m z 0 9 2, n a 9 9 2, n a 10 - -, n b 0 9 2" {
		t.Error(s)
	}
}

// "Mirror name and bootstrap are cut from the left to the width with a leading ..."; "ERROR is cut to 80 characters with a trailing ...".
func TestCuts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{cutLeft("abcdef", 6), "abcdef"}, {cutLeft("abcdefg", 6), "...efg"}, {cutRight("abcdef", 6), "abcdef"}, {cutRight("abcdefg", 6), "abc..."},
		{cutLeft("äöüäöüß", 6), "...öüß"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// "an array without trailing newline".
func TestMirrorToolJSON(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if code, out, errs := invokeAs(mirrorToolName, "", "--describe", "--json", "--bootstrap-server", n.Addr()); code != ExitOK || out != "[]" {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
}
