package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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

// An interrupt that comes while no record is under way doesn't make the rest of the input a success.
func TestProduceInterruptedBetweenRecords(t *testing.T) {
	k := &acks{}
	if err := k.stop(); err == nil || !strings.Contains(err.Error(), "record 1 of") || k.sent(1, time.Now()) {
		t.Errorf("stopped before the first record: %v", err)
	}
	k = &acks{}
	if !k.sent(1, time.Now()) || !k.sent(2, time.Now()) {
		t.Fatal("records can't be sent")
	}
	if err := k.stop(); err == nil || !strings.Contains(err.Error(), "record 3 of") || k.sent(3, time.Now()) {
		t.Errorf("stopped after two records: %v", err)
	}
}

// Of records that the client never answers for, the first is named, and not the end of the input.
func TestUnansweredRecordIsNamed(t *testing.T) {
	k := &acks{count: &counter{}}
	for line := 1; line <= 5; line++ {
		k.sent(line, time.Now())
	}
	k.done(1, partitionOf{}, nil)
	k.done(3, partitionOf{}, nil)
	if acked, line, _, err := k.result(); acked != 2 || line != 2 || !errors.Is(err, errUnanswered) {
		t.Errorf("%d acknowledged, line %d: %v", acked, line, err)
	}
	k.done(4, partitionOf{}, kgo.ErrAborting)
	if _, line, _, err := k.result(); line != 2 || !errors.Is(err, kgo.ErrAborting) {
		t.Errorf("line %d: %v", line, err)
	}
	k.done(2, partitionOf{}, nil)
	k.done(5, partitionOf{}, nil)
	if acked, line, _, err := k.result(); acked != 4 || line != 4 || !errors.Is(err, kgo.ErrAborting) {
		t.Errorf("%d acknowledged, line %d: %v", acked, line, err)
	}
}

// run is a command line under way.
type run struct {
	code        chan ExitCode
	out, errors bytes.Buffer
}

func begin(t *testing.T, stdin io.Reader, stdout io.Writer, args ...string) *run {
	t.Helper()
	r := &run{code: make(chan ExitCode, 1)}
	if stdout == nil {
		stdout = &r.out
	}
	go func() {
		r.code <- Run(t.Context(), &Env{Args: args, Stdin: stdin, Stdout: stdout, Stderr: &r.errors})
	}()
	return r
}

// end waits for the command to end by itself.
func (r *run) end(t *testing.T) ExitCode {
	t.Helper()
	select {
	case c := <-r.code:
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("the command does not end")
		return 0
	}
}

// A producer whose broker goes away gives up when its time is over, though its input goes on, and names the first record that
// was not acknowledged.
func TestProduceGivesUp(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if code, _, errs := invoke("", "topics", "create", "t", "--bootstrap-server", n.Addr()); code != 0 {
		t.Fatal(errs)
	}
	in, feed := io.Pipe()
	defer in.Close()
	r := begin(t, in, nil, "produce", "t", "--bootstrap-server", n.Addr(), "--timeout-ms", "1500")
	wrote := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			if i == 100 {
				close(wrote)
			}
			if _, err := io.WriteString(feed, "line\n"); err != nil {
				return
			}
		}
	}()
	select {
	case <-wrote:
	case code := <-r.code:
		t.Fatalf("exit code %d before the broker was gone: %s", code, r.errors.String())
	}
	n.Kill()
	code := r.end(t)
	if code != ExitFailed || !regexp.MustCompile(`^milena: record \d+ of standard input was not acknowledged: .*(; the last (connection|answer)|last err: )`).MatchString(r.errors.String()) {
		t.Errorf("exit code %d: %s", code, r.errors.String())
	}
}

// What a broker answered last is told, not only that the time is over.
func TestProduceTellsTheCause(t *testing.T) {
	for _, f := range []struct {
		to   string
		p    partitionOf
		want string
	}{
		{"t[0{retrying@-1,3(NOT_ENOUGH_REPLICAS: few.)}, 1{7=>9}]", partitionOf{"t", 0}, "; the last answer for t-0: NOT_ENOUGH_REPLICAS: few."},
		{"t[0{retrying@-1,3(A: a)}, 1{7=>9}], u.x[1{retrying@-1,3(B: b)}]", partitionOf{"u.x", 1}, "; the last answer for u.x-1: B: b"},
		{"t[0{retrying@-1,3(A: a)}, 1{7=>9}]", partitionOf{"t", 1}, ""},
	} {
		b := &brokerAnswers{}
		b.Log(kgo.LogLevelDebug, "produced", "broker", "1", "to", f.to)
		if got := b.last(f.p); got != f.want {
			t.Errorf("%s: %q, want %q", f.to, got, f.want)
		}
		b.Log(kgo.LogLevelDebug, "produced", "broker", "1", "to", fmt.Sprintf("%s[%d{1=>2}]", f.p.topic, f.p.partition))
		if got := b.last(f.p); got != "" {
			t.Errorf("after a success: %q", got)
		}
	}
}

// What ran out of time says why, as far as the cluster told, and what to do.
func TestTimeoutAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		last string
		want string
	}{
		{&overdue{time.Second}, "", "see milena topics describe orders for the partition's leader, or raise --timeout-ms"},
		{kgo.ErrRecordTimeout, "; the last answer for orders-0: KAFKA_STORAGE_ERROR: Disk error", "disk of the broker is full or failed"},
		{kgo.ErrRecordTimeout, "; the last answer for orders-0: NOT_ENOUGH_REPLICAS: x", "--under-min-isr"},
		{kerr.InvalidRecord, "; the last answer for orders-0: INVALID_RECORD: x", ""},
	} {
		if got := recordAdvice("orders", c.err, c.last); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v%s: %q", c.err, c.last, got)
		}
	}
}

// An error of one piece of a request is told in the cluster's words.
func TestShardErrorsAreWorded(t *testing.T) {
	err := error(&kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{{Err: kerr.LeaderNotAvailable}}})
	if got := message(err, "x:1"); !strings.HasPrefix(got, "ListOffsets: ") || !strings.Contains(got, "(LEADER_NOT_AVAILABLE): a partition has no leader now: see milena topics describe --unavailable") {
		t.Error(got)
	}
}
