package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var artifacts = flag.String("sim.dir", filepath.Join(os.TempDir(), "milena-sim"), "where the event logs (and the nodes' disks) of failing seeds are kept")

// keepLog writes the event log of a failing seed to a file of its own and returns the directory.
func keepLog(t *testing.T, name string, lines []string) string {
	t.Helper()
	dir := filepath.Join(*artifacts, name)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "events.log"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	if err != nil {
		t.Logf("the event log is not kept: %v", err)
	}
	return dir
}

// tail is the end of a list of lines.
func tail(lines []string, n int) string { return strings.Join(lines[max(0, len(lines)-n):], "\n") }

func seedName(level string, seed uint64) string { return fmt.Sprintf("%s-%d", level, seed) }
