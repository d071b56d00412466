package cli

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/node/nodetest"
	"milena/internal/peertest"
	"milena/mirroradm"
)

// deaf accepts connections at an address and answers nothing.
func deaf(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range held {
			c.Close()
		}
	})
}

// "topics in LOG_TRUNCATION are retried until they leave it, bounded by --timeout, then reported as not failed over, with what they
// hold and the command that forces them writable" (spec 16.2).
func TestFailoverWhileAligning(t *testing.T) {
	src, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { src.Kill() }()
	dst, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Kill()
	run := func(want ExitCode, stdin string, args ...string) (string, string) {
		t.Helper()
		code, out, errs := invoke(stdin, append(args, "--bootstrap-server", dst.Addr())...)
		if code != want {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		return out, errs
	}
	until := func(pattern string) {
		t.Helper()
		re := regexp.MustCompile("(?m)" + pattern)
		for deadline := time.Now().Add(15 * time.Second); ; {
			out, _ := run(ExitOK, "", "mirrors", "describe", "dr")
			if re.MatchString(out) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s did not come: %s", pattern, out)
			}
		}
	}
	for _, topic := range []string{"orders", "stuck.one"} {
		if code, _, errs := invoke("", "topics", "create", topic, "--bootstrap-server", src.Addr()); code != ExitOK {
			t.Fatal(errs)
		}
		if code, _, errs := invoke("one\ntwo\n", "produce", topic, "--bootstrap-server", src.Addr()); code != ExitOK {
			t.Fatal(errs)
		}
	}
	run(ExitOK, "", "mirrors", "create", "dr", "--source", src.Addr(), "--topics", "orders", "--topics", "stuck.one", "--config", "mirror.fetch.wait.max.ms=50")
	until(`^dr +orders +0 +MIRRORING +2 +2 +0 `)
	until(`^dr +stuck.one +0 +MIRRORING +2 +2 +0 `)
	run(ExitOK, "", "mirrors", "stop", "dr", "--topics", "stuck.one")
	addr := src.Addr()
	src.Kill()
	deaf(t, addr)

	cl, err := kgo.NewClient(kgo.SeedBrokers(dst.Addr()), kgo.MaxVersions(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "stuck.one")
	if err != nil {
		t.Fatal(err)
	}
	again := []mirroradm.StartTopic{{Name: "stuck.one", ID: topics["stuck.one"].ID, Partitions: 1}}
	if _, err := mirroradm.NewClient(cl).Start(t.Context(), "dr", again, nil, nil); err != nil {
		t.Fatal(err)
	}
	until(`^dr +stuck.one +0 +LOG_TRUNCATION `)
	out, errs := run(ExitFailed, "", "mirrors", "failover", "dr", "--timeout", "900ms")
	want := `topic stuck.one is not failed over: partition 0 is LOG_TRUNCATION and holds the offsets 0 to 2; milena mirrors stop dr --topics 'stuck\.one' --force makes it writable as it is`
	if !strings.Contains(errs, want) || !regexp.MustCompile(`(?m)^orders +0 +STOPPED +1 `).MatchString(out) ||
		!regexp.MustCompile(`(?m)^stuck.one +0 +LOG_TRUNCATION +1 `).MatchString(out) {
		t.Fatalf("%s%s", out, errs)
	}
	run(ExitOK, "three\n", "produce", "orders")
	run(ExitOK, "", "mirrors", "stop", "dr", "--topics", `stuck\.one`, "--force")
	run(ExitOK, "three\n", "produce", "stuck.one")
	if out, _ := run(ExitOK, "", "mirrors", "failover", "dr"); !strings.Contains(out, "All 2 partitions of mirror dr take writes") {
		t.Error(out)
	}
}

// What isn't known is a dash, never zero; what is missing is counted from the source's last known end.
func TestFailoverReport(t *testing.T) {
	for _, c := range []struct {
		p    mirroradm.FailoverPartition
		want string
	}{
		{mirroradm.FailoverPartition{LastMirrored: 7, SourceEnd: 10}, "6 10 3"},
		{mirroradm.FailoverPartition{LastMirrored: 7, SourceEnd: -1}, "6 - -"},
		{mirroradm.FailoverPartition{LastMirrored: -1, SourceEnd: 10}, "- 10 -"},
		{mirroradm.FailoverPartition{LastMirrored: 12, SourceEnd: 10}, "11 10 0"},
		{mirroradm.FailoverPartition{LastMirrored: 0, SourceEnd: 0}, "- 0 0"},
		{mirroradm.FailoverPartition{LastMirrored: 7, Start: 7, SourceEnd: 7}, "- 7 0"},
	} {
		x := failoverRow(&c.p)
		if got := fmt.Sprint(number(x.LastMirrored), " ", number(x.SourceEnd), " ", number(x.Missing)); got != c.want || x.LastRecord != nil {
			t.Errorf("%+v: %s", c.p, got)
		}
	}
}

// Without a majority of controllers nothing can be stopped: that is what is said, not that the mirror finds no more topics, nor that
// something could be forced; what was asked may still happen.
func TestNoMajority(t *testing.T) {
	src := testCluster(t)
	c := nodetest.Start(t, nodetest.Options{Props: map[string]string{"mirror.metadata.refresh.interval.ms": "200"}})
	at := func(want ExitCode, args ...string) (string, string) {
		t.Helper()
		code, out, errs := invoke("", append(args, "--bootstrap-server", c.Node(1).Addr())...)
		if code != want {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		return out, errs
	}
	runAt(t, src, ExitOK, "", "topics", "create", "orders")
	runAt(t, src, ExitOK, "one\n", "produce", "orders")
	at(ExitOK, "mirrors", "create", "dr", "--source", src.Addr(), "--topics", "orders", "--config", "mirror.fetch.wait.max.ms=50")
	peertest.Eventually(t, 15*time.Second, func() error {
		if out, _ := at(ExitOK, "mirrors", "describe", "dr"); !strings.Contains(out, " MIRRORING 1 ") {
			return fmt.Errorf("not mirrored: %s", out)
		}
		return nil
	})
	c.Kill(2)
	c.Kill(3)
	out, errs := at(ExitFailed, "mirrors", "failover", "dr", "--timeout", "900ms")
	for _, want := range []string{
		"1 topics of mirror dr are not failed over, and whether they will be is open, since the cluster has not answered their stop: no controller answers",
		"mirror.topics.include of mirror dr was not emptied, since no controller answers.",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is missing: %s", want, errs)
		}
	}
	for _, never := range []string{"finds no more topics", "--force", "nothing that is known"} {
		if strings.Contains(out+errs, never) {
			t.Errorf("%q: %s%s", never, out, errs)
		}
	}
	for l := range strings.Lines(errs) {
		if strings.HasPrefix(l, "context deadline exceeded") {
			t.Errorf("it says nothing: %s", errs)
		}
	}
	const open = "has not answered within 400ms: no controller answers, and nothing can be changed without a majority of them: start those that are gone (milena cluster describe); whether what was asked for is carried out is open"
	if _, errs := at(ExitUnreachable, "mirrors", "configs", "dr", "--set", "mirror.max.cut.records=1", "--timeout-ms", "400"); !strings.Contains(errs, open) || strings.Contains(errs, "cannot reach") {
		t.Error(errs)
	}
}
