package cli

import (
	"encoding/json"
	"fmt"
	"strings"
)

// table prints rows under a header in aligned columns, as Kafka's tools do.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *table) String() string {
	width := make([]int, len(t.header))
	for _, r := range append([][]string{t.header}, t.rows...) {
		for i, c := range r {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	for _, r := range append([][]string{t.header}, t.rows...) {
		var line strings.Builder
		for i, c := range r {
			fmt.Fprintf(&line, "%-*s ", width[i], c)
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// printJSON writes v as one line.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.env.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.env.Stdout, format, args...) }

func (a *app) notef(format string, args ...any) { fmt.Fprintf(a.env.Stderr, format, args...) }

// keyValues parses k=v arguments.
func keyValues(flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range args {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || strings.TrimSpace(k) == "" {
			return nil, usagef("--%s %q is not KEY=VALUE", flag, kv)
		}
		out[strings.TrimSpace(k)] = v
	}
	return out, nil
}
