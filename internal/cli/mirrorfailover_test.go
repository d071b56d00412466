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
	out, errs := run(ExitFailed, "", "mirrors", "failover", "dr", "--timeout", "300ms")
	want := `topic stuck.one is not failed over: partition 0 is LOG_TRUNCATION and holds the offsets 0 up to 3; milena mirrors stop dr --topics 'stuck\.one' --force makes it writable as it is`
	if !strings.Contains(errs, want) || !regexp.MustCompile(`(?m)^orders +0 +STOPPED +2 `).MatchString(out) {
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
		{mirroradm.FailoverPartition{LastMirrored: 7, SourceEnd: 10}, "7 10 3"},
		{mirroradm.FailoverPartition{LastMirrored: 7, SourceEnd: -1}, "7 - -"},
		{mirroradm.FailoverPartition{LastMirrored: -1, SourceEnd: 10}, "- 10 -"},
		{mirroradm.FailoverPartition{LastMirrored: 12, SourceEnd: 10}, "12 10 0"},
	} {
		x := failoverRow(&c.p)
		if got := fmt.Sprint(number(x.LastMirrored), " ", number(x.SourceEnd), " ", number(x.Missing)); got != c.want || x.LastRecord != nil {
			t.Errorf("%+v: %s", c.p, got)
		}
	}
}
