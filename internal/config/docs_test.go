package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md instead of comparing it")

const docsFile = "../../docs/configuration.md"

// TestDocs holds docs/configuration.md against the tables. After a change: go test ./internal/config -run TestDocs -update
func TestDocs(t *testing.T) {
	want := docs()
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s doesn't say what the tables say; run: go test ./internal/config -run TestDocs -update", docsFile)
	}
}

const docsHead = `# Configuration

<!-- Generated from the tables in internal/config by: go test ./internal/config -run TestDocs -update -->

A node reads Kafka's ` + "`server.properties`" + ` (` + "`milena server start --config FILE`" + `), with Kafka's keys, types and bounds. ` + "`--override key=value`" + ` stands above
the file. Files are ISO 8859-1 with Java's escapes; ` + "`${...}`" + ` is taken as it stands.

Every broker key of Apache Kafka 4.4 is in one of three classes:

- **Honoured**: Milena does what the key says.
- **Without meaning**: the key sizes or tunes something that Milena doesn't have, such as a thread pool, or a feature that this release
  doesn't have and that can't be used unnoticed. It is accepted, and one line at start lists those that were given.
- **Refused**: ignoring the key would change durability, security or semantics. Its default (and other values that ask for nothing) pass;
  anything else stops the start with a message that says why and what to do.

An unknown key is a warning at start that names it and the nearest known one. Of keys that start with ` + "`listener.name.NAME.`" + `,
` + "`max.connections`" + ` is honoured; others are refused where the key behind the prefix would be honoured or refused.

Where a value comes from, strongest first: the dynamic config of this broker, the dynamic cluster default, the file, the default. Keys
marked *cluster-wide* may be changed while brokers run, for one broker or for all (` + "`milena configs alter`" + `, or Kafka's ` + "`kafka-configs`" + `); all others
need a restart, and a dynamic change of them is refused. For a topic its own config stands above all of these, and broker keys are its
defaults: ` + "`log.segment.bytes`" + ` for ` + "`segment.bytes`" + `, and so on. ` + "`log.retention.ms`" + ` wins over ` + "`.minutes`" + `, which wins over ` + "`.hours`" + `; likewise
` + "`log.roll.ms`" + ` and ` + "`log.roll.jitter.ms`" + ` over ` + "`.hours`" + `. Passwords are never shown.

Different from Kafka on purpose:

- ` + "`process.roles`" + ` and ` + "`node.id`" + ` may be left out: the node is broker and controller, with number 1. Without any ` + "`controller.quorum.`" + ` key it needs
  no controller listener.
- ` + "`log.dir`" + ` defaults to ` + "`milena-data`" + ` in the working directory.
- A listener on every interface (an empty host, ` + "`0.0.0.0`, `::`" + `) is advertised under the machine's host name, never as such.
- Replication factors of internal topics are lowered to the number of brokers when such a topic is created, and raised again when brokers join.
- ` + "`controller.quorum.election.timeout.ms` and `controller.quorum.fetch.timeout.ms`" + ` default to 500 instead of 1000 and 2000: another controller takes over
  within two seconds.
`

func docs() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, s := range []Support{Honoured, Refused, WithoutMeaning} {
		fmt.Fprintf(&b, "\n## Broker keys: %s\n\n", s)
		writeTable(&b, ResourceBroker, s)
	}
	b.WriteString("\n## Topic configs\n\nSet at creation or with `milena topics alter` and `milena configs alter`; they hold at once.\n")
	writeSection(&b, ResourceTopic, "Honoured", Honoured)
	writeSection(&b, ResourceTopic, "Refused", Refused)
	writeSection(&b, ResourceTopic, "Without meaning", WithoutMeaning)
	b.WriteString("\n## Mirror configs\n\nConfigs of a mirror (resource type 64): set with `milena mirrors create --source-config FILE` or `milena configs alter`; all can change while\nthe mirror runs. An unknown key is refused. `bootstrap.servers` is needed. Pattern lists are comma separated regular expressions of the RE2\ndialect that must match a whole name.\n")
	writeSection(&b, ResourceClusterMirror, "Honoured", Honoured)
	writeSection(&b, ResourceClusterMirror, "Refused", Refused)
	writeSection(&b, ResourceClusterMirror, "Without meaning", WithoutMeaning)
	b.WriteString("\n## Group configs\n\nThe classic group protocol has no configs of a group. Those of Kafka's newer protocols are stored and have no effect yet.\n")
	writeSection(&b, ResourceGroup, "Without meaning", WithoutMeaning)
	return b.String()
}

func writeSection(b *strings.Builder, resource int8, title string, s Support) {
	fmt.Fprintf(b, "\n### %s\n\n", title)
	writeTable(b, resource, s)
}

func writeTable(b *strings.Builder, resource int8, s Support) {
	head, line := "| key | type | default | values |", "|---|---|---|---|"
	if resource == ResourceBroker {
		head, line = head+" change |", line+"---|"
	}
	fmt.Fprintf(b, "%s what it does |\n%s---|\n", head, line)
	for d := range Keys(resource) {
		if d.Support != s || d.Internal {
			continue
		}
		def := "`" + d.Default + "`"
		switch {
		case d.Null:
			def = "none"
		case d.Default == "":
			def = "empty"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |", d.Name, strings.ToLower(d.Type.String()), def, cell(d.Valid()))
		if resource == ResourceBroker {
			fmt.Fprintf(b, " %s |", d.Mode)
		}
		fmt.Fprintf(b, " %s", cell(d.Doc))
		if d.Why != "" {
			fmt.Fprintf(b, " Refused: %s.", cell(d.Why))
		}
		b.WriteString(" |\n")
	}
}

// cell is text that a cell of a table can hold.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "*", "\\*", "<", "&lt;").Replace(s)
}
