package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"milena/internal/record"
)

// A damaged file's error says where the damage is and what it is.
func TestDumpLogSaysWhere(t *testing.T) {
	first := build(t, record.BuilderOptions{}, record.Record{Value: []byte("one")})
	second := build(t, record.BuilderOptions{BaseOffset: 1}, record.Record{Offset: 1, Value: []byte("two")})
	damaged := slices.Clone(second)
	damaged[len(damaged)-2] ^= 1
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"checksum":  {slices.Concat(first, damaged, first), fmt.Sprintf("1 damaged place(s) found, the first: FILE at position %d: ", len(first))},
		"cut short": {slices.Concat(first, second[:len(second)-1]), fmt.Sprintf("1 damaged place(s) found, the first: FILE at position %d: no whole batch begins there, %d bytes are left\n", len(first), len(second)-1)},
		"both":      {slices.Concat(damaged, first[:3]), "2 damaged place(s) found, the first: FILE at position 0: "},
	} {
		file := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(file, tc.file, 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := invoke("", "dump-log", file)
		if want := "milena: " + strings.ReplaceAll(tc.want, "FILE", file); code != ExitFailed || !strings.HasPrefix(errs, want) || strings.HasSuffix(errs, ": \n") {
			t.Errorf("%s: exit code %d: %s, want %s", name, code, errs, want)
		}
	}
}
