package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scenarios are the numbers of the scenarios of Cluster Mirroring that this release has to show. Later ones bring what they need for 18, 19,
// 24 to 26, 36 to 41, 89 to 93, 122, 143, 148 and 153, unless a test is there already.
func scenarios() []int {
	return slices.Concat(span(1, 7), []int{9}, span(11, 14), []int{20, 21, 28, 29, 31, 32, 34, 35, 42, 43, 45, 46, 47, 49, 50, 51, 53, 54, 55, 56, 57, 59, 61, 63, 64, 66, 67, 69, 70},
		span(72, 76), span(78, 80), span(83, 88), span(94, 100), []int{102, 103, 105, 106, 107}, span(110, 121), span(123, 126), []int{128, 129, 130, 132, 133, 135, 136, 137, 139, 140, 142},
		span(144, 147), span(150, 152), []int{154, 156, 157, 159}, span(161, 176))
}

// fieldCases are the numbers of the field cases: what users of such systems ran into. Later ones bring what they need for 7, 12, 51, 52, 57
// and 59.
func fieldCases() []int {
	return []int{1, 3, 4, 5, 6, 8, 10, 11, 13, 14, 16, 17, 18, 20, 21, 22, 23, 24, 25, 27, 28, 30, 31, 32, 33, 35, 37, 39, 40, 42, 44, 45, 46, 47, 48, 54, 55, 58,
		60, 61, 63, 64, 65, 67, 68, 69, 70, 71, 72, 75, 76, 77, 78, 80, 81}
}

func span(from, to int) (out []int) {
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

// numbered are the numbers in the names of the tests of the module that begin so; a name may have several, as TestScenario29And31.
func numbered(t *testing.T, prefix string) map[int]bool {
	t.Helper()
	root := moduleRoot(t)
	decl := regexp.MustCompile(`(?m)^func ` + prefix + `(\d+(?:And\d+)*)[A-Za-z]*\(`)
	out := map[int]bool{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, s.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range decl.FindAllStringSubmatch(string(data), -1) {
			for _, d := range strings.Split(m[1], "And") {
				n, err := strconv.Atoi(d)
				if err != nil {
					t.Fatal(err)
				}
				out[n] = true
			}
		}
	}
	return out
}

// Rule: every scenario of Cluster Mirroring is a test, TestScenario18, and every field case one, TestFieldCase31, or a line of
// docs/mirroring.md that says why it isn't, "FieldCase48: why".
func TestScenariosAndFieldCasesAreTests(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "mirroring.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:- )?FieldCase(\d+): \S+ \S+`).FindAllStringSubmatch(string(doc), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		reasons[n] = true
	}
	var missing []string
	have := numbered(t, "TestScenario")
	for _, n := range scenarios() {
		if !have[n] {
			missing = append(missing, fmt.Sprintf("TestScenario%d", n))
		}
	}
	cases := numbered(t, "TestFieldCase")
	for _, n := range fieldCases() {
		if !cases[n] && !reasons[n] {
			missing = append(missing, fmt.Sprintf("TestFieldCase%d", n))
		}
	}
	if len(missing) > 0 {
		t.Errorf("there is no %s", strings.Join(missing, ", "))
	}
}
