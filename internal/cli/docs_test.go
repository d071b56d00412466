package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli.md")

const cliDoc = "../../docs/cli.md"

// docs/cli.md is what the commands say about themselves.
func TestReference(t *testing.T) {
	want := reference()
	if *update {
		if err := os.WriteFile(cliDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(cliDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/cli.md is not what the commands say: run go test ./internal/cli -run TestReference -update")
	}
}

func reference() []byte {
	var b bytes.Buffer
	b.WriteString(`# Command line

Generated from the commands: ` + "`go test ./internal/cli -run TestReference -update`" + `.

Output meant for programs goes to standard output, as text or with ` + "`--json`" + ` as one line of JSON. Everything else goes to
standard error. An error is one plain line there that says what to do. A count of records is shown on standard error while
` + "`produce` and `consume`" + ` run, if it is a terminal.

The client commands work against Milena and Apache Kafka alike. ` + "`--command-config`" + ` takes Kafka's client properties: PLAINTEXT, SSL,
SASL_PLAINTEXT and SASL_SSL with PLAIN and SCRAM, JAAS lines, PEM, PKCS12 and JKS stores. A property that is not honoured is
refused by name. ` + "`--bootstrap-server`" + ` wins over the file.

## Exit codes

| code | meaning |
| --- | --- |
`)
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	b.WriteString("\nThe numbers are stable.\n")
	root := (&app{env: &Env{}}).root()
	root.InitDefaultCompletionCmd("x")
	document(&b, root)
	return b.Bytes()
}

func document(b *bytes.Buffer, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	if c.HasParent() {
		level := "##"
		if c.Parent().HasParent() {
			level = "###"
		}
		fmt.Fprintf(b, "\n%s %s\n\n", level, c.CommandPath())
		if !c.HasSubCommands() {
			use := strings.TrimSuffix(c.UseLine(), " [flags]")
			fmt.Fprintf(b, "    %s\n\n", use)
		}
		fmt.Fprintf(b, "%s.\n", c.Short)
		if c.Long != "" && c.Parent().Name() != "completion" {
			fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimSpace(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", dedent(c.Example))
		}
		flags(b, c)
	}
	for _, sub := range c.Commands() {
		document(b, sub)
	}
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func flags(b *bytes.Buffer, c *cobra.Command) {
	head := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		if !head {
			b.WriteString("\n| flag | default | |\n| --- | --- | --- |\n")
			head = true
		}
		name, usage := pflag.UnquoteUsage(f)
		text := "--" + f.Name
		if f.Shorthand != "" {
			text += ", -" + f.Shorthand
		}
		if name != "" {
			text += " " + name
		}
		def := ""
		switch f.DefValue {
		case "", "[]", "false":
		default:
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", text, def, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
