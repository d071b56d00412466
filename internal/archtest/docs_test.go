package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are the tree's Markdown files by path from its root.
func documents(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, more...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.ToSlash(rel)] = string(data)
	}
	if len(out) < 8 {
		t.Fatalf("only %d documents below %s", len(out), root)
	}
	return out
}

// Rule: what a document points at exists: files, headings, tests, metrics.
func TestDocuments(t *testing.T) {
	root := moduleRoot(t)
	docs := documents(t, root)
	tests := testNames(t, root)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	test := regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)[A-Za-z]+)`")
	metric := regexp.MustCompile("`((?:kafka|milena)_[a-z]+_[a-z_]+[a-z])[`{]")
	for name, text := range docs {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			at := name
			if file != "" {
				at = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			} else if heading != "" && !hasHeading(docs[at], heading) {
				t.Errorf("%s links to %s, and there is no such heading", name, m[1])
			}
		}
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]+"."+m[2]] {
				t.Errorf("%s names the test %s.%s, which does not exist", name, m[1], m[2])
			}
		}
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(docs["docs/metrics.md"], "| `"+m[1]+"` |") {
				t.Errorf("%s names the metric %s, which docs/metrics.md does not have", name, m[1])
			}
		}
	}
}

// hasHeading says whether a document has a heading with that anchor.
func hasHeading(text, anchor string) bool {
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	for _, l := range strings.Split(text, "\n") {
		h, ok := strings.CutPrefix(strings.TrimLeft(l, "#"), " ")
		if ok && strings.HasPrefix(l, "#") && strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(h), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// testNames are the tests and fuzz targets of the tree, by the last part of their package's path.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range decl.FindAllStringSubmatch(string(data), -1) {
			out[filepath.Base(filepath.Dir(path))+"."+m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Rule: the picture in docs/architecture.md has the packages of tiers(), each in its tier.
func TestArchitectureShowsTheTiers(t *testing.T) {
	root := moduleRoot(t)
	text := documents(t, root)["docs/architecture.md"]
	_, picture, ok := strings.Cut(text, "## Tiers")
	picture, _, ok2 := strings.Cut(picture, "\nA package imports")
	if !ok || !ok2 {
		t.Fatal("docs/architecture.md has no picture of the tiers")
	}
	shown := map[string]int{}
	tier := 7 // what stands above the numbered ones
	number := regexp.MustCompile(`^(\d)  `)
	name := regexp.MustCompile(`(?:internal|test|cmd)/[a-z/{},]+|mirroradm`)
	for _, l := range strings.Split(picture, "\n") {
		if m := number.FindStringSubmatch(l); m != nil {
			tier = int(m[1][0] - '0')
		} else if strings.HasPrefix(l, "tests:") {
			tier = 8
		} else if !strings.HasPrefix(l, "   internal") && !strings.HasPrefix(l, "   mirroradm") && tier < 7 {
			continue
		}
		for _, n := range name.FindAllString(columns(l, tier), -1) {
			base, list, braces := strings.Cut(strings.TrimRight(n, ","), "{")
			if !braces {
				shown[base] = tier
				continue
			}
			for _, part := range strings.Split(strings.TrimSuffix(list, "}"), ",") {
				shown[base+part] = tier
			}
		}
	}
	want := tiers()
	for p, n := range want {
		if shown[p] != min(n, 8) {
			t.Errorf("package %s is in tier %d, docs/architecture.md shows it in %d (0: not at all)", p, n, shown[p])
		}
		delete(shown, p)
	}
	for p := range shown {
		t.Errorf("docs/architecture.md shows the package %s, which tiers() does not have", p)
	}
}

// columns is what of a line of the picture names packages: all of it where several stand in a line, else what comes
// before the description.
func columns(line string, tier int) string {
	if tier == 1 || tier == 8 {
		return line
	}
	first, _, _ := strings.Cut(strings.TrimLeft(line, " "), "  ")
	return first
}
