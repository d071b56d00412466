package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// tiers is the picture of docs/architecture.md: a package imports only from tiers below its own, or from
// its own tier where sameTier allows it. A new package is added here with its tier, on purpose.
func tiers() map[string]int {
	return map[string]int{
		// 1 vocabulary
		"internal/api": 1, "internal/ids": 1, "internal/wire": 1, "internal/mirrormsg": 1, "internal/fetchwire": 1,
		"internal/record": 1, "internal/disk": 1, "internal/obs": 1, "internal/deadline": 1,
		// 2 shared state and policy, pure
		"internal/meta": 2, "internal/config": 2,
		// 3 engines
		"internal/machine": 3, "internal/quorum": 3, "internal/partlog": 3, "internal/logdir": 3, "internal/peer": 3,
		"internal/metafollow": 3, "internal/client": 3, "internal/compare": 3, "internal/quorum/transport": 3, "internal/quorum/offline": 3,
		// 4 what a broker does
		"internal/controller": 4, "internal/replica": 4, "internal/replica/follow": 4, "internal/coord": 4, "internal/coord/group": 4, "internal/coord/mirrorstate": 4,
		"internal/mirror": 4, "internal/controller/mirrors": 4,
		// 5 request edge
		"internal/server": 5, "internal/handle": 5, "internal/handle/data": 5, "internal/handle/group": 5,
		"internal/handle/admin": 5, "internal/handle/cluster": 5, "internal/handle/mirror": 5,
		// 6 assembly and edges
		"internal/node": 6, "internal/console": 6, "internal/demo": 6, "internal/cli": 6, "mirroradm": 6,
		"cmd/milena": 7,
		// tests
		"internal/archtest": 8, "internal/peertest": 8, "internal/peertest/history": 8, "internal/node/nodetest": 8, "internal/sim": 8, "internal/formats": 8, "test/interop": 9, "test/bench": 9, "test/chaos": 9, "test/chaosmirror": 9,
	}
}

// sameTier lists, by tier, the order inside it: a package may import those named before it.
func sameTier() map[int][]string {
	return map[int][]string{
		1: {"internal/ids", "internal/deadline", "internal/api", "internal/disk", "internal/obs", "internal/record", "internal/wire", "internal/mirrormsg", "internal/fetchwire"},
		2: {"internal/meta", "internal/config"},
		3: {"internal/partlog", "internal/logdir", "internal/machine", "internal/quorum", "internal/client", "internal/compare", "internal/peer", "internal/metafollow", "internal/quorum/transport", "internal/quorum/offline"},
		4: {"internal/controller", "internal/replica", "internal/replica/follow", "internal/coord", "internal/coord/group", "internal/coord/mirrorstate", "internal/controller/mirrors", "internal/mirror"},
		5: {"internal/server", "internal/handle/data", "internal/handle/group", "internal/handle/admin", "internal/handle/cluster", "internal/handle/mirror", "internal/handle"},
		6: {"mirroradm", "internal/console", "internal/node", "internal/demo", "internal/cli"},
		8: {"internal/peertest", "internal/peertest/history", "internal/node/nodetest"},
	}
}

// mirrorOnly are the packages that mirroring consists of. Nothing below assembly may import them but
// themselves: deleting them must leave a building broker.
func mirrorOnly() []string {
	return []string{"internal/mirrormsg", "internal/coord/mirrorstate", "internal/controller/mirrors", "internal/handle/mirror", "internal/mirror", "mirroradm"}
}

// mirrorAssemblers are the files that may tie mirroring to the rest: one a package, and the commands'. CreateTopics has fields
// for mirrors from version 8 on.
func mirrorAssemblers() []string {
	return []string{"internal/node/mirror.go", "internal/cli/mirror", "internal/demo/", "internal/handle/cluster/19_create_topics.go"}
}

type source struct {
	pkg, file string
	imports   []string
	test      bool
}

// sources reads the imports of every Go file of the module (nested modules and testdata left out).
func sources(t *testing.T) []source {
	t.Helper()
	root := moduleRoot(t)
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "target") {
				return filepath.SkipDir
			}
			if rel != "." {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := source{pkg: filepath.ToSlash(filepath.Dir(rel)), file: filepath.ToSlash(rel), test: strings.HasSuffix(path, "_test.go")}
		for _, im := range f.Imports {
			p, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			if after, ok := strings.CutPrefix(p, "milena/"); ok {
				s.imports = append(s.imports, after)
			}
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d Go files found below %s", len(out), root)
	}
	return out
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = up
	}
}

// Rule: imports point down the tiers, and inside a tier follow its order.
func TestImportsPointDown(t *testing.T) {
	tier, same := tiers(), sameTier()
	missing := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue // a test may build on higher tiers of what it proves
		}
		own, ok := tier[s.pkg]
		if !ok {
			missing[s.pkg] = true
			continue
		}
		for _, im := range s.imports {
			other, ok := tier[im]
			if !ok {
				missing[im] = true
				continue
			}
			if other < own {
				continue
			}
			order := same[own]
			if other == own && slices.Index(order, im) >= 0 && slices.Index(order, im) < slices.Index(order, s.pkg) {
				continue
			}
			t.Errorf("%s (tier %d) imports %s (tier %d): imports point down only, see docs/architecture.md", s.file, own, im, other)
		}
	}
	for _, p := range sortedKeys(missing) {
		t.Errorf("package %s has no tier: add it to tiers() where it belongs", p)
	}
}

// Rule: mirroring is additive; nothing else imports its packages.
func TestMirroringIsAdditive(t *testing.T) {
	own := mirrorOnly()
	for _, s := range sources(t) {
		if s.test || slices.Contains(own, s.pkg) || strings.HasPrefix(s.pkg, "test/") {
			continue
		}
		allowed := slices.ContainsFunc(mirrorAssemblers(), func(p string) bool { return strings.HasPrefix(s.file, p) })
		for _, im := range s.imports {
			if slices.Contains(own, im) && !allowed {
				t.Errorf("%s imports %s: only %v may tie mirroring to the rest", s.file, im, mirrorAssemblers())
			}
		}
	}
}

func sortedKeys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
