package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: every package says in a package comment what it is.
func TestEveryPackageHasAComment(t *testing.T) {
	root := moduleRoot(t)
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		documented[s.pkg] = documented[s.pkg] || f.Doc != nil
	}
	for p, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", p)
		}
	}
}

// Rule: no registration by init(), no sleeping in tests, no panics.
func TestBannedConstructs(t *testing.T) {
	root := moduleRoot(t)
	for _, s := range sources(t) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		synctest := importsPath(f, "testing/synctest")
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s declares init(): wire things up explicitly", s.file)
				}
			case *ast.CallExpr:
				// raft's logger interface asks for panics; they end in the quorum's own recovery.
				if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" && !s.test && s.file != "internal/quorum/logger.go" {
					t.Errorf("%s panics: return an error", s.file)
				}
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" && sel.Sel.Name == "Sleep" && s.test && !synctest {
					t.Errorf("%s sleeps: wait for what it waits for, or use testing/synctest", s.file)
				}
			}
			return true
		})
	}
}

func importsPath(f *ast.File, path string) bool {
	for _, im := range f.Imports {
		if im.Path.Value == `"`+path+`"` {
			return true
		}
	}
	return false
}

// Rule: files stay readable. Over 800 lines needs a reason, written here.
func TestFilesStayReadable(t *testing.T) {
	reasons := map[string]string{}
	root := moduleRoot(t)
	for _, s := range sources(t) {
		b, err := os.ReadFile(filepath.Join(root, s.file))
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(b, []byte("\n"))
		if n > 800 && reasons[s.file] == "" && !strings.HasSuffix(s.file, "_gen.go") {
			t.Errorf("%s has %d lines: split it by verb, or add its reason to this test", s.file, n)
		}
	}
}
