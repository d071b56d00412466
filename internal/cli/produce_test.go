package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// A producer that is interrupted names the first record that was not acknowledged, however many were.
func TestProduceInterrupted(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if code, _, errs := invoke("", "topics", "create", "t", "--bootstrap-server", n.Addr()); code != 0 {
		t.Fatal(errs)
	}
	in, feed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs bytes.Buffer
	done := make(chan ExitCode)
	go func() {
		done <- Run(ctx, &Env{Args: []string{"produce", "t", "--bootstrap-server", n.Addr(), "--timeout-ms", "60000"}, Stdin: in, Stdout: io.Discard, Stderr: &errs})
	}()
	if _, err := io.WriteString(feed, "first\n"); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, out := "", ""; out != "first\n"; {
		if _, out, _ = invoke("", "consume", "t", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr()); time.Now().After(deadline) {
			t.Fatal("the first record was not written")
		}
	}
	n.Kill() // the next records get no answer
	if _, err := io.WriteString(feed, "second\nthird\n"); err != nil {
		t.Fatal(err)
	}
	_ = feed.Close()
	cancel()
	if code := <-done; code != ExitFailed || !strings.HasPrefix(errs.String(), "milena: record 2 of standard input was not acknowledged: ") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
