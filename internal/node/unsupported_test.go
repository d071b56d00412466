package node_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// kafkaAPI is a line of what Kafka's client jar says of its APIs.
type kafkaAPI struct {
	key, min, max int16
	name          string
}

func kafkaAPIs(t *testing.T) []kafkaAPI {
	t.Helper()
	f, err := os.Open("../api/testdata/kafka-4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []kafkaAPI
	for s := bufio.NewScanner(f); s.Scan(); {
		var a kafkaAPI
		if n, _ := fmt.Sscanf(s.Text(), "api %d %s %d %d", &a.key, &a.name, &a.min, &a.max); n == 4 {
			all = append(all, a)
		}
	}
	if len(all) < 90 {
		t.Fatalf("only %d APIs of Kafka are known", len(all))
	}
	return all
}

// absent are the entries of UNSUPPORTED.md that begin with an API key, with what they say of versions.
func absent(t *testing.T) map[int16]string {
	t.Helper()
	data, err := os.ReadFile("../../UNSUPPORTED.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int16]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| ([^|]+) \|`).FindAllStringSubmatch(string(data), -1) {
		var key int16
		if _, err := fmt.Sscan(m[1], &key); err != nil {
			t.Fatal(err)
		}
		out[key] = m[2] + " " + strings.TrimSpace(m[3])
	}
	return out
}

// versions writes a range as UNSUPPORTED.md does.
func versions(lo, hi int16) string {
	switch {
	case hi < 0:
		return "retired"
	case lo == hi:
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}

// Rule: every API of Kafka 4.4 is served at all of Kafka's versions, or UNSUPPORTED.md says that it is not.
func TestUnsupportedIsComplete(t *testing.T) {
	r := startRig(t)
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), r.cl)
	if err != nil {
		t.Fatal(err)
	}
	type span struct{ min, max int16 }
	served := map[int16]span{}
	for _, k := range resp.ApiKeys {
		served[k.ApiKey] = span{k.MinVersion, k.MaxVersion}
	}
	entries := absent(t)
	for _, a := range kafkaAPIs(t) {
		entry, listed := entries[a.key]
		delete(entries, a.key)
		s, ok := served[a.key]
		row, known := api.Lookup(api.Key(a.key))
		a.max += row.Own // versions of KIP-1279
		switch {
		case ok && listed:
			t.Errorf("API %d (%s) is served, and UNSUPPORTED.md lists it", a.key, a.name)
		case ok && s != span{row.AdvertisedMin, a.max}:
			t.Errorf("API %d (%s) is served at %s, Kafka has %s", a.key, a.name, versions(s.min, s.max), versions(a.min, a.max))
		case ok, !listed && known && row.Controller && !row.Broker:
			// served, or between broker and controller only
		case entry != a.name+" "+versions(a.min, a.max):
			t.Errorf("API %d is not served, UNSUPPORTED.md has %q and should begin a line with: | %d | %s | %s |", a.key, entry, a.key, a.name, versions(a.min, a.max))
		}
	}
	for key, e := range entries {
		t.Errorf("UNSUPPORTED.md lists API %d (%s), which Kafka 4.4 does not have", key, e)
	}
}
