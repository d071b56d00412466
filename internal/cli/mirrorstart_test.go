package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// D3: "consent is the mirror-level config mirror.truncate.unrelated.topics, set with the config tool or milena mirrors start
// --truncate-unrelated". What would go is shown first, and asked about.
func TestTruncateUnrelated(t *testing.T) {
	p := &pair{t, testCluster(t), testCluster(t)}
	for _, topic := range []string{"orders", "other"} {
		runAt(t, p.src, ExitOK, "", "topics", "create", topic)
		runAt(t, p.src, ExitOK, "one\ntwo\n", "produce", topic)
	}
	source, dest := p.clients()
	theirs, err := kadm.NewClient(source).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	copied := mirroradm.NewTopic{Name: "orders", SourceID: theirs["orders"].ID, Partitions: 1, ReplicationFactor: 1}
	if err := mirroradm.NewClient(dest).CreateTopic(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	const own = "mine 1\nmine 2\nmine 3\n"
	runAt(t, p.dst, ExitOK, own, "produce", "orders")
	runAt(t, p.dst, ExitOK, "", "mirrors", "create", "dr", "--source", p.src.Addr(), "--config", "mirror.fetch.wait.max.ms=50")
	runAt(t, p.dst, ExitOK, "", "mirrors", "start", "dr", "--topics", "orders")
	p.until(p.dst, "dr", `orders +0 +FAILED .*holds 3 records here that do not come from this source.*--truncate-unrelated`)
	start := func(want ExitCode, stdin string, more ...string) (out, errs string) {
		t.Helper()
		return runAt(t, p.dst, want, stdin, append([]string{"mirrors", "start", "dr", "--truncate-unrelated", "--topics"}, more...)...)
	}
	if _, errs := start(ExitUsage, "", "ord.*"); !strings.Contains(errs, "needs the topics by their names: ord.* is a pattern") {
		t.Error(errs)
	}
	if _, errs := start(ExitUsage, "", "orders", "--json"); !strings.Contains(errs, "--json needs --yes") {
		t.Error(errs)
	}
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "start", "none", "--topics", "orders", "--truncate-unrelated", "--yes"); !strings.Contains(errs, "mirror none: ") {
		t.Error(errs)
	}
	out, errs := start(ExitFailed, "n\n", "orders,other")
	if !regexp.MustCompile(`^TOPIC +PARTITION +FROM +UP-TO +OFFSETS\norders +0 +0 +3 +3\nWhat of these does not come from the source of mirror dr is set aside .*, and cut\.\n$`).MatchString(out) ||
		!strings.Contains(errs, "Cut up to 3 records of orders here? [y/N] ") || !strings.Contains(errs, "not confirmed; nothing was changed") {
		t.Errorf("%s%s", out, errs)
	}
	allowed := func() string {
		out, _ := runAt(t, p.dst, ExitOK, "", "mirrors", "configs", "dr")
		return out
	}
	if got := allowed(); strings.Contains(got, "truncate") {
		t.Error(got)
	}
	if out, _ := runAt(t, p.dst, ExitOK, "", "consume", "orders", "--from-beginning", "--exit-at-end"); out != own {
		t.Error(out)
	}

	// A partition that is FAILED for it goes on at once; a topic that isn't here needs nothing.
	if out, _ := start(ExitOK, "y\n", "orders,other"); !strings.Contains(out, "Started topic other of mirror dr.\n") {
		t.Error(out)
	}
	p.until(p.dst, "dr", `orders +0 +MIRRORING +2 +2 +0 `, `other +0 +MIRRORING +2 +2 +0 `)
	if got := allowed(); !strings.Contains(got, "mirror.truncate.unrelated.topics=orders,other\n") {
		t.Error(got)
	}
	if out, _ := runAt(t, p.dst, ExitOK, "", "mirrors", "cut", "dump", "--mirror", "dr", "--topics", "orders"); strings.Count(out, `"value":"mine`) != 3 {
		t.Error(out)
	}

	// What is mirrored, and what was stopped, shares its history: nothing is shown and nothing asked.
	if out, errs := start(ExitFailed, "", "orders"); out != "" || !strings.Contains(errs, "is wished to be MIRRORING already") {
		t.Error(out, errs)
	}
	runAt(t, p.dst, ExitOK, "", "mirrors", "stop", "dr", "--topics", "orders")
	runAt(t, p.dst, ExitOK, own, "produce", "orders")
	held, err := mirroradm.Unrelated(t.Context(), testClient(t, kgo.SeedBrokers(p.dst.Addr()), kgo.MaxVersions(nil)), "dr", "orders", "other", "nowhere")
	if err != nil || len(held) != 0 {
		t.Errorf("%v %v", held, err)
	}
	if out, _ := start(ExitOK, "", "orders", "--yes", "--json"); out != `{"mirror":"dr","topics":[{"topic":"orders"}]}`+"\n" {
		t.Error(out)
	}
	p.until(p.dst, "dr", `orders +0 +MIRRORING +2 +2 +0 `)
}
