package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: the block that starts three nodes in docs/operations.md is examples/three-nodes.sh.
func TestThreeNodesBlock(t *testing.T) {
	root := moduleRoot(t)
	script, err := os.ReadFile(filepath.Join(root, "examples", "three-nodes.sh"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(script), "\nset -eu\n")
	if !ok {
		t.Fatal("examples/three-nodes.sh has no line `set -eu` to begin with")
	}
	// `set -eu` would end the reader's shell.
	if !strings.Contains(documents(t, root)["docs/operations.md"], "```sh\n"+body+"```\n") {
		t.Errorf("docs/operations.md has no block that is examples/three-nodes.sh after `set -eu`:\n%s", body)
	}
}
