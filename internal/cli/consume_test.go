package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/record"
)

// The end of a log may hold no record at all: compaction keeps an empty batch for its last offset, and markers of transactions
// are not shown. --exit-at-end ends there all the same, and nothing of it is printed.
func TestConsumeEndsBehindGapsAndMarkers(t *testing.T) {
	dir := t.TempDir()
	n, err := startNode(nodeProps(dir))
	if err != nil {
		t.Fatal(err)
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		code, out, errs := invoke(stdin, append(args, "--bootstrap-server", n.Addr())...)
		if code != 0 {
			t.Fatalf("%v: %s", args, errs)
		}
		return out
	}
	must("", "topics", "create", "t", "--partitions", "2")
	must("0\n1\n", "produce", "t", "--partition", "0")
	must("alone\n", "produce", "t", "--partition", "1")
	if err := n.shutdown(); err != nil {
		t.Fatal(err)
	}
	last := int64(9)
	appendBatches(t, segment(t, dir, "t-0"),
		marker(2),
		build(t, record.BuilderOptions{BaseOffset: 5}, record.Record{Offset: 5, Timestamp: 1, Key: []byte("k"), Value: []byte("5")}),
		marker(6),
		build(t, record.BuilderOptions{BaseOffset: 8, LastOffset: &last}))
	appendBatches(t, segment(t, dir, "t-1"), marker(1))
	// Without the mark of a clean shutdown the next start reads the segments.
	if err := os.Remove(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
	if n, err = startNode(nodeProps(dir)); err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	for _, args := range [][]string{{}, {"--group", "g"}, {"--command-config", committedOnly(t)}} {
		began := time.Now()
		args = append([]string{"consume", "t", "--from-beginning", "--exit-at-end", "--format", "%p %o %v"}, args...)
		out := must("", args...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 4 || !strings.Contains(out, "0 0 0\n0 1 1\n0 5 5\n") || !strings.Contains(out, "1 0 alone\n") {
			t.Errorf("%v printed %q", args, out)
		}
		if d := time.Since(began); d > 50*time.Second { // it ended by its time-out
			t.Errorf("%v took %s", args, d)
		}
	}
	// The group's commit is behind the last record, and the rest is skipped again.
	if out := must("", "consume", "t", "--group", "g", "--exit-at-end"); out != "" {
		t.Errorf("read twice: %q", out)
	}
}

func committedOnly(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "c.properties")
	if err := os.WriteFile(name, []byte("isolation.level=read_committed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// marker is the marker of an aborted transaction at an offset.
func marker(offset int64) record.Batch {
	b := record.EndTxnMarker(false, 0, 4711, 0, 1)
	b.SetBaseOffset(offset)
	b.SetLeaderEpoch(0)
	return b
}

func build(t *testing.T, o record.BuilderOptions, recs ...record.Record) record.Batch {
	t.Helper()
	b, err := record.Build(o, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func appendBatches(t *testing.T, file string, batches ...record.Batch) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// fullPipe takes nothing.
type fullPipe struct{}

func (fullPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A group commits nothing that could not be printed.
func TestConsumeCommitsOnlyWhatWasPrinted(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	for _, args := range [][]string{{"topics", "create", "t"}, {"produce", "t"}} {
		if code, _, errs := invoke("0\n1\n", append(args, "--bootstrap-server", n.Addr())...); code != 0 {
			t.Fatal(errs)
		}
	}
	var errs bytes.Buffer
	code := Run(context.Background(), &Env{Args: []string{"consume", "t", "--group", "g", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr()}, Stdout: fullPipe{}, Stderr: &errs})
	if code != ExitFailed || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if _, out, _ := invoke("", "consume", "t", "--group", "g", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr()); out != "0\n1\n" {
		t.Errorf("read %q afterwards", out)
	}
}

// gate is a writer whose first write waits until it is opened.
type gate struct {
	reached, open chan struct{}
	once          sync.Once
}

func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() {
		close(g.reached)
		<-g.open
	})
	return len(p), nil
}

// A consumer that is to end gives up when its broker goes away on the way.
func TestConsumeGivesUp(t *testing.T) {
	n, err := startNode(nodeProps(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if code, _, errs := invoke("", "topics", "create", "t", "--bootstrap-server", n.Addr()); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := invoke(strings.Repeat(strings.Repeat("x", 50_000)+"\n", 40), "produce", "t", "--bootstrap-server", n.Addr()); code != 0 {
		t.Fatal(errs)
	}
	conf := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(conf, []byte("fetch.max.bytes=1000\nmax.partition.fetch.bytes=1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	r := begin(t, nil, g, "consume", "t", "--from-beginning", "--exit-at-end", "--bootstrap-server", n.Addr(), "--command-config", conf, "--timeout-ms", "500")
	<-g.reached
	n.Kill()
	close(g.open)
	if code := r.end(t); code != ExitUnreachable || !strings.Contains(r.errors.String(), "gave no answer for 500ms") {
		t.Errorf("exit code %d: %s", code, r.errors.String())
	}
}

// A consumer without an end says once that its broker is gone, and again only after it was back.
func TestConsumeSaysThatTheClusterIsGone(t *testing.T) {
	var w bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		u := &unreachable{a: &app{env: &Env{Stderr: &w}, bootstrap: "h:1"}, limit: 5 * time.Second}
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		for range 2 {
			for range 20 {
				u.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, refused)
				time.Sleep(time.Second)
			}
			u.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, nil)
		}
	})
	const want = "milena: the cluster at h:1 cannot be reached for 5s: dial tcp: connection refused; still trying\n"
	if w.String() != want+want {
		t.Errorf("said %q", w.String())
	}
}

// Long commands count on standard error if that is a terminal, and only there.
func TestProgress(t *testing.T) {
	var w bytes.Buffer
	a := &app{env: &Env{Stderr: &w}}
	c := a.counter("records")
	c.drawn = c.drawn.Add(-time.Hour)
	c.add(5)
	c.end()
	if w.Len() != 0 {
		t.Errorf("no terminal got %q", w.String())
	}
	a.env.StderrTerminal = true
	c = a.counter("records")
	c.add(1)
	if w.Len() != 0 {
		t.Errorf("drawn at once: %q", w.String())
	}
	c.drawn = c.drawn.Add(-time.Hour)
	c.add(1)
	c.add(1)
	c.end()
	if w.String() != "\r2 records\r3 records\n" {
		t.Errorf("a terminal got %q", w.String())
	}
}
