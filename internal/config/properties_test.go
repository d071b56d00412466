package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// TestPropertiesAsInJava compares with what java.util.Properties makes of the same bytes.
func TestPropertiesAsInJava(t *testing.T) {
	for _, f := range rows(t, "java-properties.tsv") {
		var text string
		if _, err := fmt.Sscanf(f[0], "%q", &text); err != nil {
			t.Fatal(f[0], err)
		}
		list, err := ParseProperties(bytes.NewReader(latin1(t, text)), "f")
		if text == "=b" { // Java has a property without a name
			if err == nil {
				t.Errorf("%q passes", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		m := map[string]string{}
		for _, p := range list {
			m[p.Key] = p.Value
		}
		var got strings.Builder
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&got, "%s=%s;", quoted(k), quoted(m[k]))
		}
		if got.String() != f[1] {
			t.Errorf("%q: %s, Java has %s", text, got.String(), f[1])
		}
	}
}

func latin1(t *testing.T, s string) []byte {
	t.Helper()
	var b []byte
	for _, r := range s {
		if r > 0xff {
			t.Fatalf("%q isn't ISO 8859-1", s)
		}
		b = append(b, byte(r))
	}
	return b
}

// quoted is s as the file has it: every character outside printable ASCII as \uxxxx.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 32 || r > 126:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

func TestPropertyLines(t *testing.T) {
	list, err := ParseProperties(strings.NewReader("# one\n\na=1\\\n  2\n! five\r\nb=2\n\nc\\\n=3\na=4"), "f")
	if err != nil {
		t.Fatal(err)
	}
	want := []Property{{"a", "12", 3}, {"b", "2", 6}, {"c", "3", 8}, {"a", "4", 10}}
	if d := cmp.Diff(want, list); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPropertyErrors(t *testing.T) {
	_, err := ParseProperties(strings.NewReader("a=1\n\nb=\\u12\nc=\\uzzzz"), "server.properties")
	if err == nil || !strings.Contains(err.Error(), "server.properties: line 3: ") || !strings.Contains(err.Error(), "server.properties: line 4: ") {
		t.Errorf("want both lines named, got %v", err)
	}
	if _, err := ParseProperties(io.LimitReader(neverEnding('a'), 2<<20), "f"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
	broken := errors.New("broken disk")
	if _, err := ParseProperties(iotest.ErrReader(broken), "f"); !errors.Is(err, broken) {
		t.Errorf("a reader's error: %v", err)
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// FuzzProperties feeds the loader and everything behind it: no input may panic, and what is accepted is within bounds.
func FuzzProperties(f *testing.F) {
	for _, seed := range []string{
		"", "a=b", "a=\\u0041", "a=\\u00", "a\\\n=b\\\r\n c", "\\", "=\\", "log.dirs=a,,b", "listeners=PLAINTEXT://[::]:9092,X://:1\nlistener.security.protocol.map=X:SSL",
		"advertised.listeners=PLAINTEXT://:0\nnode.id=-1", "controller.quorum.voters=1@h:9093,2@[::1]:1", "max.connections.per.ip.overrides=[::1]:3,a:b",
		"log.cleaner.io.max.bytes.per.second=1e400\nlog.retention.hours=2147483647\nlog.roll.hours=2147483647", "mirror.acls.include=*", "listener.name.x.y=1",
		"log.cleaner.min.cleanable.ratio=NaN", "group.coordinator.rebalance.protocols=classic", "milena.http.listen=[::1]:1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ParseProperties(bytes.NewReader(text), "f")
		if err != nil {
			return
		}
		m := map[string]string{}
		last := 0
		for _, p := range list {
			if p.Line < last || p.Line > bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r"))+1 {
				t.Fatalf("line %d after %d", p.Line, last)
			}
			last = p.Line
			m[p.Key] = p.Value
		}
		for k, v := range m {
			for _, resource := range []int8{ResourceTopic, ResourceBroker, ResourceGroup, ResourceClusterMirror} {
				if Validate(resource, "1", k, v) == nil && resource == ResourceTopic {
					_ = (&Node{}).Topic(map[string]string{k: v})
				}
			}
		}
		n, _, err := Load(m, testEnv)
		if err != nil {
			return
		}
		if len(n.Listeners) == 0 || len(n.Advertised) == 0 || len(n.LogDirs) == 0 || n.Topics.Partitions < 1 || n.Topics.Log.SegmentBytes < 1<<20 {
			t.Fatalf("node %+v", n)
		}
		for _, l := range n.Advertised {
			if unspecified(l.Host) {
				t.Fatalf("%s is advertised", l)
			}
		}
		n.DescribeTopic(m)
		DescribeMirror(m)
	})
}
