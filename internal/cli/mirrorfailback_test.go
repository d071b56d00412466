package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"milena/internal/peertest"
	"milena/mirroradm"
)

// failedOver is a pair whose source got records that the standby hasn't, and whose standby has taken over and was written to.
func failedOver(t *testing.T) *pair {
	p := newPair(t)
	addr := p.dst.Addr()
	runAt(t, p.dst, ExitOK, "", "mirrors", "pause", "dr", "--topics", "payments")
	p.until(p.dst, "dr", `payments +0 +PAUSED `)
	runAt(t, p.src, ExitOK, "lost one\nlost two\nlost three\n", "produce", "payments")
	runAt(t, p.dst, ExitOK, "", "mirrors", "failover", "dr")
	runAt(t, p.dst, ExitOK, "here\n", "produce", "payments")
	if addr != p.dst.Addr() {
		t.Fatal("another address")
	}
	return p
}

// "mirrors failback NAME --reverse-config FILE: shows first, per partition, what would be cut (records and bytes), asks, then runs."
func TestFailback(t *testing.T) {
	p := failedOver(t)
	file := p.file(p.dst)
	// The source holds one, two and the three that were lost; the standby one, two, the producers' reset, and one more.
	row := regexp.MustCompile(`(?m)^payments +0 +5 +2 +3 +[1-9]\d* +2$`)
	out, errs := runAt(t, p.dst, ExitFailed, "n\n", "mirrors", "failback", "dr", "--reverse-config", file)
	if !row.MatchString(out) || !strings.Contains(out, "Of the old source 3 records, ") || !strings.Contains(errs, "Cut 3 records (") || !strings.Contains(errs, "not confirmed; nothing was changed") {
		t.Fatalf("%s%s", out, errs)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "topics", "describe", "payments"); strings.Contains(out, "milena.write.fence") {
		t.Error(out)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "mirrors", "list", "--json"); out != `{"mirrors":[]}`+"\n" {
		t.Error(out)
	}
	out, _ = runAt(t, p.dst, ExitOK, "y\n", "mirrors", "failback", "dr", "--reverse-config", file)
	for _, want := range []string{"3 records, ", "will be cut, as shown", "3 records are set aside there for mirror dr", "To move production back: milena mirrors switchover dr"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if a, b := p.records(p.src, "payments"), p.records(p.dst, "payments"); a != b {
		t.Errorf("%d at the old source, %d here", a, b)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "mirrors", "cut", "dump", "--mirror", "dr"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "lost two") {
		t.Error(out)
	}
	if out, _ := runAt(t, p.src, ExitOK, "", "topics", "describe", "payments"); strings.Contains(out, "milena.write.fence") {
		t.Error(out)
	}
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "failback", "dr", "--reverse-config", file, "--yes"); !strings.Contains(errs, "there is nothing to fail back: topic orders: it is copied back already") {
		t.Error(errs)
	}
}

// Nothing is cut beyond what was shown: what is written to the old source between the question and the answer ends it there.
func TestFailbackMoreThanShown(t *testing.T) {
	p := failedOver(t)
	source, dest := p.clients()
	plan := func() *mirroradm.Failback {
		t.Helper()
		f, err := mirroradm.PlanFailback(t.Context(), source, dest, "dr", mirroradm.FailbackOptions{Reverse: map[string]string{"bootstrap.servers": p.dst.Addr(), "mirror.fetch.wait.max.ms": "50"}, ReverseName: "back"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := plan()
	runAt(t, p.src, ExitOK, "late\n", "produce", "payments")
	err := f.Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "4 records of payments-0 would be cut now, 3 were shown") {
		t.Fatal(err)
	}
	w := f.Where(t.Context())
	if got := fmt.Sprint(w.Fenced, w.Open, w.Back, w.Err); got != "[orders payments] [] [] <nil>" {
		t.Error(got)
	}
	// Interrupted after the start it says so, and the next run of the old source's mirror needs nobody.
	f = plan()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := f.Run(ctx, func(s mirroradm.SwitchoverStep) {
		if s.Name == "start" {
			cancel()
		}
	}); err == nil {
		t.Error("it ran to its end")
	}
	if w := f.Where(t.Context()); fmt.Sprint(w.Fenced, w.Open, w.Back, w.Err) != "[orders payments] [] [orders payments] <nil>" {
		t.Errorf("%+v", w)
	}
	peertest.Eventually(t, 10*time.Second, func() error {
		if a, b := p.records(p.src, "payments"), p.records(p.dst, "payments"); a != b {
			return fmt.Errorf("%d at the old source, %d here", a, b)
		}
		return nil
	})
}

// What is in the way of a failback is said before anything is changed.
func TestFailbackRefused(t *testing.T) {
	p := newPair(t)
	if _, errs := runAt(t, p.dst, ExitUsage, "", "mirrors", "failback", "dr"); !strings.Contains(errs, "needs --reverse-config") {
		t.Error(errs)
	}
	file := p.file(p.dst)
	if _, errs := runAt(t, p.dst, ExitUsage, "", "mirrors", "failback", "dr", "--reverse-config", file, "--json"); !strings.Contains(errs, "--json needs --yes") {
		t.Error(errs)
	}
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "failback", "dr", "--reverse-config", file, "--yes"); !strings.Contains(errs, "topic orders: it is not stopped here") {
		t.Error(errs)
	}
	runAt(t, p.dst, ExitOK, "", "mirrors", "failover", "dr")
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "failback", "dr", "--reverse-config", p.file(p.src), "--yes"); !strings.Contains(errs, "it leads to cluster "+p.src.ClusterID()) {
		t.Error(errs)
	}
	// A mirror that is made anew knows nothing of what both share.
	runAt(t, p.dst, ExitOK, "", "mirrors", "delete", "dr")
	runAt(t, p.dst, ExitOK, "", "mirrors", "create", "dr", "--source", p.src.Addr())
	if _, errs := runAt(t, p.dst, ExitFailed, "", "mirrors", "failback", "dr", "--reverse-config", file, "--yes"); !strings.Contains(errs, "it has no topics") {
		t.Error(errs)
	}
}
