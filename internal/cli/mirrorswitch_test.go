package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/mirroradm"
)

// pair is a source and a destination with a mirror dr of topics orders and payments.
type pair struct {
	t        *testing.T
	src, dst *testNode
}

func newPair(t *testing.T) *pair {
	p := &pair{t, testCluster(t), testCluster(t)}
	runAt(t, p.src, ExitOK, "", "topics", "create", "orders", "--partitions", "2")
	runAt(t, p.src, ExitOK, "", "topics", "create", "payments")
	runAt(t, p.src, ExitOK, "one\ntwo\n", "produce", "payments")
	runAt(t, p.dst, ExitOK, "", "mirrors", "create", "dr", "--source", p.src.Addr(), "--topics", "orders|payments", "--config", "mirror.fetch.wait.max.ms=50", "--config", "mirror.fetch.backoff.ms=50")
	p.until(p.dst, "dr", `orders +0 +MIRRORING +\d+ +\d+ +0 `, `orders +1 +MIRRORING +\d+ +\d+ +0 `, `payments +0 +MIRRORING +\d+ +\d+ +0 `)
	return p
}

// until waits until the description of a mirror has lines that match.
func (p *pair) until(n *testNode, mirror string, patterns ...string) {
	p.t.Helper()
	var out string
	peertest.Eventually(p.t, 15*time.Second, func() error {
		out, _ = runAt(p.t, n, ExitOK, "", "mirrors", "describe", mirror)
		for _, x := range patterns {
			if !regexp.MustCompile("(?m)^" + mirror + " +" + x).MatchString(out) {
				return fmt.Errorf("no %s in %s", x, out)
			}
		}
		return nil
	})
}

// file writes properties that lead to a node.
func (p *pair) file(n *testNode) string {
	name := filepath.Join(p.t.TempDir(), "reverse.properties")
	if err := os.WriteFile(name, []byte("bootstrap.servers="+n.Addr()+"\nmirror.fetch.wait.max.ms=50\nmirror.fetch.backoff.ms=50\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return name
}

// clients are tools' clients on both sides.
func (p *pair) clients() (source, dest *kgo.Client) {
	return testClient(p.t, kgo.SeedBrokers(p.src.Addr()), kgo.MaxVersions(nil), mirroradm.Software()), testClient(p.t, kgo.SeedBrokers(p.dst.Addr()), kgo.MaxVersions(nil), mirroradm.Software())
}

func (p *pair) records(n *testNode, topic string) int64 {
	p.t.Helper()
	cl := testClient(p.t, kgo.SeedBrokers(n.Addr()))
	ends, err := kadm.NewClient(cl).ListEndOffsets(p.t.Context(), topic)
	if err != nil {
		p.t.Fatal(err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum
}

// "mirrors switchover NAME [--reverse-config FILE] [--yes] (planned, no loss)": under load, there and back again. What the source
// acknowledged is here, groups are where they were, and the mirror back copies what is written here.
func TestSwitchover(t *testing.T) {
	p := newPair(t)
	var acked atomic.Int64
	load := testClient(t, kgo.SeedBrokers(p.src.Addr()), kgo.DefaultProduceTopic("orders"), kgo.MaxBufferedRecords(10))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if err := load.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
				return // fenced
			}
			acked.Add(1)
		}
	}()
	source, dest := p.clients()
	if err := kadm.NewClient(source).CommitAllOffsets(t.Context(), "g", kadm.Offsets{"payments": {0: kadm.Offset{Topic: "payments", At: 1, LeaderEpoch: -1, Metadata: "m"}}}); err != nil {
		t.Fatal(err)
	}
	out, _ := runAt(t, p.dst, ExitOK, "", "mirrors", "switchover", "dr", "--reverse-config", p.file(p.dst), "--yes")
	<-stopped
	for _, want := range []string{`^Mirror dr of cluster \S+: 2 topics, 3 partitions, `, `(?m)^fence +\d.*refuses writes to 2 topics\.$`, `(?m)^drain `, `(?m)^groups .*1 group with offsets`, `(?m)^stop .*2 topics writable here, 0 offsets lost\.$`,
		`(?m)^reverse `, `(?m)^release `, `(?m)^Switched 2 topics over in .*\. Records lost: 0\.$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	offsets, err := kadm.NewClient(dest).FetchOffsets(t.Context(), "g")
	if o, ok := offsets.Lookup("payments", 0); err != nil || !ok || o.At != 1 || o.Metadata != "m" {
		t.Errorf("%v: %+v", err, offsets)
	}
	// Of the source's topics nothing is lost: control records of the stop come on top.
	if here, there := p.records(p.dst, "orders"), acked.Load(); here < there || here > there+8 {
		t.Errorf("%d records acknowledged, %d here", there, here)
	}
	runAt(t, p.dst, ExitOK, "three\n", "produce", "payments")
	if _, errs := runAt(t, p.src, ExitFailed, "three\n", "produce", "payments"); !strings.Contains(errs, "mirror dr keeps topic payments read-only") {
		t.Error(errs)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "topics", "describe", "payments"); strings.Contains(out, "milena.write.fence") {
		t.Error(out)
	}
	peertest.Eventually(t, 10*time.Second, func() error {
		if a, b := p.records(p.src, "payments"), p.records(p.dst, "payments"); a != b {
			return fmt.Errorf("%d at the old source, %d here", a, b)
		}
		return nil
	})
	// And back.
	p.until(p.src, "dr", `orders +0 +MIRRORING +\d+ +\d+ +0 `, `orders +1 +MIRRORING +\d+ +\d+ +0 `, `payments +0 +MIRRORING +\d+ +\d+ +0 `)
	out, _ = runAt(t, p.src, ExitOK, "", "mirrors", "switchover", "dr", "--reverse-config", p.file(p.src), "--yes", "--json")
	if !regexp.MustCompile(`"complete":true.*"lost":0`).MatchString(out) {
		t.Error(out)
	}
	runAt(t, p.src, ExitOK, "four\n", "produce", "payments")
	runAt(t, p.dst, ExitFailed, "four\n", "produce", "payments")
	if out, _ := runAt(t, p.src, ExitOK, "", "mirrors", "cut", "list"); strings.Contains(out, "payments") || strings.Contains(out, "orders") {
		t.Errorf("something was cut: %s", out)
	}
}

// What is in the way is said before anything is changed.
func TestSwitchoverRefused(t *testing.T) {
	p := newPair(t)
	dead := filepath.Join(t.TempDir(), "dead.properties")
	if err := os.WriteFile(dead, []byte("bootstrap.servers=127.0.0.1:1\nrequest.timeout.ms=300\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.properties")
	if err := os.WriteFile(bad, []byte("bootstrap.servers=127.0.0.1:1\nmirror.nonsense=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.properties")
	if err := os.WriteFile(none, []byte("mirror.fetch.wait.max.ms=50\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code ExitCode
		want string
		args []string
	}{
		"another cluster": {ExitFailed, "tried from there it leads to cluster " + p.src.ClusterID() + ", not to this one, " + p.dst.ClusterID(), []string{"--yes", "--reverse-config", p.file(p.src)}},
		"nobody there":    {ExitFailed, "tried from there: broker 1: it can't be reached", []string{"--yes", "--reverse-config", dead}},
		"unknown config":  {ExitFailed, "mirror.nonsense", []string{"--yes", "--reverse-config", bad}},
		"no address":      {ExitUsage, "has no bootstrap.servers", []string{"--yes", "--reverse-config", none}},
		"no file":         {ExitUsage, "--reverse-config", []string{"--yes", "--reverse-config", none + "x"}},
		"no answer":       {ExitFailed, "not confirmed; nothing was changed", nil},
		"an ACL":          {ExitFailed, "an ACL that denies writes is not needed", []string{"--yes", "--deny-acl"}},
		"another source":  {ExitFailed, "the mirror's source is " + p.src.ClusterID(), []string{"--yes", "--source", p.dst.Addr()}},
	} {
		if _, errs := runAt(t, p.dst, c.code, "n\n", append([]string{"mirrors", "switchover", "dr"}, c.args...)...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s", name, errs)
		}
	}
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "switchover", "none"); !strings.Contains(errs, "UNKNOWN_CLUSTER_MIRROR") {
		t.Error(errs)
	}
	// A mirror back that would not take the topics is found out before anything is fenced.
	runAt(t, p.src, ExitOK, "", "mirrors", "create", "dr", "--source", p.dst.Addr(), "--exclude", "pay.*", "--exclude", "orders")
	_, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "switchover", "dr", "--yes", "--reverse-config", p.file(p.dst))
	if !strings.Contains(errs, "nothing was changed: topic payments is excluded from the mirror back, dr, by pay.* in mirror.topics.exclude: take that out at the cluster that is to hold it (milena mirrors configs dr --set") || strings.Contains(errs, "topic orders") {
		t.Error(errs)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "topics", "describe"); strings.Contains(out, "milena.write.fence") {
		t.Error(out)
	}
	runAt(t, p.dst, ExitOK, "", "mirrors", "pause", "dr", "--topics", "payments")
	p.until(p.dst, "dr", `payments +0 +PAUSED `)
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "switchover", "dr", "--yes"); !strings.Contains(errs, "nothing was changed: payments-0 is PAUSED") || strings.Contains(errs, "fenced") {
		t.Error(errs)
	}
	// What an earlier run has fenced is said.
	runAt(t, p.src, ExitOK, "", "mirrors", "fence", "--topics", "orders")
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "switchover", "dr", "--yes"); !strings.Contains(errs, "fenced at the source still, so that clients can't write there: orders (milena mirrors unfence at the source ends that)") {
		t.Error(errs)
	}
	runAt(t, p.src, ExitOK, "", "mirrors", "unfence", "--topics", "orders")
	runAt(t, p.src, ExitOK, "more\n", "produce", "payments")
	runAt(t, p.src, ExitOK, "more\n", "produce", "orders")
	p.src.Kill()
	if _, errs := runAt(t, p.dst, ExitUnreachable, "", "mirrors", "switchover", "dr", "--yes"); !strings.Contains(errs, "cannot reach the source cluster") {
		t.Error(errs)
	}
}

// "interrupted halfway it says what state things are in and how to go on or back": after each step, and the next run goes on.
func TestSwitchoverInterrupted(t *testing.T) {
	p := newPair(t)
	source, dest := p.clients()
	plan := func() *mirroradm.Switchover {
		t.Helper()
		s, err := mirroradm.PlanSwitchover(t.Context(), source, dest, "dr", mirroradm.SwitchoverOptions{MaxLag: 1000, Reverse: map[string]string{"bootstrap.servers": p.dst.Addr(), "mirror.fetch.wait.max.ms": "50"}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct{ after, state string }{
		{"fence", "fenced [orders payments] open [] back [] stopped [] mirrored [orders payments]"},
		{"groups", "fenced [orders payments] open [] back [] stopped [] mirrored [orders payments]"},
		{"stop", "fenced [orders payments] open [] back [] stopped [orders payments] mirrored []"},
		{"reverse", "fenced [orders payments] open [] back [orders payments] stopped [orders payments] mirrored []"},
	} {
		s := plan()
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Run(ctx, func(x mirroradm.SwitchoverStep) {
			if x.Name == c.after {
				cancel()
			}
		})
		cancel()
		w := s.Where(t.Context())
		if got := fmt.Sprint("fenced ", w.Fenced, " open ", w.Open, " back ", w.Back, " stopped ", w.Stopped, " mirrored ", w.Mirrored); !errors.Is(err, context.Canceled) || got != c.state || s.Done {
			t.Errorf("after %s: %v: %s", c.after, err, got)
		}
	}
	out, _ := runAt(t, p.dst, ExitOK, "", "mirrors", "switchover", "dr", "--reverse-config", p.file(p.dst), "--yes")
	if !strings.Contains(out, "Records lost: 0.") {
		t.Error(out)
	}
	w := plan().Where(t.Context())
	if len(w.Fenced) > 0 || len(w.Back) != 2 || len(w.Stopped) != 2 {
		t.Errorf("%+v", w)
	}
}

// hook is an input that does something before it gives an answer.
type hook struct {
	do     func()
	answer string
}

func (h *hook) Read(b []byte) (int, error) {
	if h.do != nil {
		h.do()
		h.do = nil
	}
	n := copy(b, h.answer)
	h.answer = h.answer[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// What breaks between the question and the end is named, with what was done and what was not, and nothing else is claimed.
func TestSwitchoverBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(p *pair)
		want   []string
	}{
		"the source is gone": {func(p *pair) { p.src.Kill() }, []string{
			"the switchover of mirror dr is not complete: fence: ", "the source could not be asked, so what is fenced there isn't known", "still mirrored, read-only here: orders, payments",
			"To go back: milena mirrors unfence --topics orders,payments"}},
		"this cluster is gone": {func(p *pair) { p.dst.Kill() }, []string{
			"not complete: drain: ", "fenced against writes at the source: orders, payments", "this cluster could not be asked", "To go back: milena mirrors unfence --topics orders,payments"}},
		"a topic was paused": {func(p *pair) { runAt(p.t, p.dst, ExitOK, "", "mirrors", "pause", "dr", "--topics", "payments") }, []string{
			"not complete: drain: mirror dr: payments-0 is PAUS", "fenced against writes at the source: orders, payments", "still mirrored, read-only here: orders\n",
			"still to be mirrored, read-only here, not MIRRORING now (milena mirrors describe dr): payments\n", "To go back: milena mirrors unfence --topics orders,payments"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			var stdout, stderr bytes.Buffer
			limit := "400ms" // before the mirror gives up a source that is gone
			if name == "a topic was paused" {
				limit = "2s" // the state has to be seen within it
			}
			code := Run(t.Context(), &Env{Program: "milena", Args: []string{"mirrors", "switchover", "dr", "--bootstrap-server", p.dst.Addr(), "--timeout", limit},
				Stdin: &hook{func() { c.breaks(p) }, "y\n"}, Stdout: &stdout, Stderr: &stderr, Hostname: os.Hostname})
			if code != ExitFailed {
				t.Errorf("exit %d", code)
			}
			for _, want := range append(c.want, "To go on: the same command again.") {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q in %s%s", want, &stdout, &stderr)
				}
			}
			if strings.Contains(stdout.String(), "Switched") {
				t.Error(&stdout)
			}
		})
	}
}

// Without a way back the fence stays, and what an earlier stop left writable on both sides is left alone.
func TestSwitchoverWithoutReverse(t *testing.T) {
	p := newPair(t)
	runAt(t, p.dst, ExitOK, "", "mirrors", "stop", "dr", "--topics", "payments")
	runAt(t, p.dst, ExitOK, "here\n", "produce", "payments")
	out, _ := runAt(t, p.dst, ExitOK, "y\n", "mirrors", "switchover", "dr")
	for _, want := range []string{"Left out: topic payments: it is stopped already, and the source takes writes.", "The source's topics stay fenced. To mirror back: milena mirrors failback dr", "Records lost: 0."} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	runAt(t, p.src, ExitFailed, "x\n", "produce", "orders")
	runAt(t, p.src, ExitOK, "x\n", "produce", "payments")
	runAt(t, p.dst, ExitOK, "x\n", "produce", "orders")
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "switchover", "dr", "--yes"); !strings.Contains(errs, "topics orders are switched over already") {
		t.Error(errs)
	}
}
