package config

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// rows reads a file of tab separated fields in testdata.
func rows(t *testing.T, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		if !strings.HasPrefix(s.Text(), "#") {
			out = append(out, strings.Split(s.Text(), "\t"))
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return out
}

func resourceOf(t *testing.T, word string) int8 {
	t.Helper()
	switch word {
	case "broker":
		return ResourceBroker
	case "topic":
		return ResourceTopic
	case "group":
		return ResourceGroup
	}
	t.Fatalf("no resource %q", word)
	return 0
}

// narrowed are keys that change at run time in Kafka and only at a restart here.
var narrowed = map[string]bool{"cordoned.log.dirs": true, "listener.security.protocol.map": true, "listeners": true, "principal.builder.class": true}

// TestTableHasEveryKeyOfKafka holds names, types, defaults, bounds, importance and modes against Kafka's own definitions.
func TestTableHasEveryKeyOfKafka(t *testing.T) {
	ownDefaults := map[string]string{"log.dir": "milena-data", "controller.quorum.election.timeout.ms": "500", "controller.quorum.fetch.timeout.ms": "500"}
	for _, f := range rows(t, "kafka-4.4.0-keys.tsv") {
		name := f[1]
		d, ok := Lookup(resourceOf(t, f[0]), name)
		if !ok {
			t.Errorf("%s key %s is missing", f[0], name)
			continue
		}
		def := f[3]
		if own, ok := ownDefaults[name]; ok {
			def = own
		}
		if isNull := def == "<null>" || def == "<none>"; isNull != d.Null || !isNull && def != d.Default {
			t.Errorf("%s: default %q (null %t), Kafka's is %q", name, d.Default, d.Null, def)
		}
		if d.Type.String() != f[2] || !strings.EqualFold(d.Importance.String(), f[5]) || d.Internal != (f[6] == "internal") || d.Valid() != f[4] {
			t.Errorf("%s: %s %s internal=%t %q, Kafka has %v", name, d.Type, d.Importance, d.Internal, d.Valid(), f[2:])
		}
		mode := f[7]
		if narrowed[name] || strings.HasPrefix(name, "ssl.") || strings.HasPrefix(name, "sasl.") {
			mode = "read-only"
		}
		if f[0] == "broker" && d.Mode.String() != mode {
			t.Errorf("%s: mode %s, Kafka's is %s", name, d.Mode, f[7])
		}
	}
}

// TestValuesAsInKafka gives values to keys of each type and bounds and compares the verdict with Kafka's, word for word.
func TestValuesAsInKafka(t *testing.T) {
	unescape := strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n")
	for _, f := range rows(t, "kafka-4.4.0-values.tsv") {
		d, ok := Lookup(resourceOf(t, f[0]), f[1])
		if !ok {
			t.Fatalf("no key %s", f[1])
		}
		text := unescape.Replace(f[2])
		v, err := parse(d.Name, text, d.Type)
		if err == nil && d.check.fn != nil {
			err = d.check.fn(d.Name, v, d.Type)
		}
		got := "ok"
		if err != nil {
			got = err.Error()
		}
		if d.Name == "controller.quorum.bootstrap.servers" && text == "0:1:2" {
			continue // Kafka takes an IPv6 address without brackets and guesses the port
		}
		if want := unescape.Replace(f[3]); got != want {
			t.Errorf("%s=%q: %q, Kafka says %q", d.Name, text, got, want)
		}
	}
}

// TestTableIsWhole checks what every row must have.
func TestTableIsWhole(t *testing.T) {
	for _, resource := range []int8{ResourceTopic, ResourceBroker, ResourceGroup, ResourceClusterMirror} {
		var names []string
		for d := range Keys(resource) {
			names = append(names, d.Name)
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") || len(d.Doc) > 200 {
				t.Errorf("%s: doc %q must be a short sentence", d.Name, d.Doc)
			}
			if (d.Why != "") != (d.Support == Refused) {
				t.Errorf("%s is %s and its reason is %q", d.Name, d.Support, d.Why)
			}
			if !d.Null {
				if err := d.Value(d.Default); err != nil {
					t.Errorf("the default of %s doesn't pass: %v", d.Name, err)
				}
			}
		}
		if !slices.IsSorted(names) || len(slices.Compact(names)) != len(names) {
			t.Errorf("%s: keys aren't sorted, or one is there twice", ResourceName(resource))
		}
	}
}

func TestSynonymsAreKeys(t *testing.T) {
	for key, list := range synonyms {
		if _, ok := Lookup(ResourceTopic, key); !ok {
			t.Errorf("%s is no topic key", key)
		}
		for _, s := range list {
			if _, ok := Lookup(ResourceBroker, s.name); !ok {
				t.Errorf("%s is no broker key", s.name)
			}
		}
	}
}
