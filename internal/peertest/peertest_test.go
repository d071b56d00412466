package peertest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"milena/internal/record"
)

func batch(t *testing.T, base int64, epoch int32, c record.Codec, values ...string) []byte {
	t.Helper()
	var recs []record.Record
	for i, v := range values {
		recs = append(recs, record.Record{Offset: base + int64(i), Timestamp: 1000, Value: []byte(v)})
	}
	b, err := record.Build(record.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch, Compression: record.Compression{Codec: c}}, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// partition writes segment files, each from its batches, and returns the folder.
func partition(t *testing.T, segments map[string][][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, batches := range segments {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Join(batches, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const first, second = "00000000000000000000.log", "00000000000000000002.log"

func TestCompare(t *testing.T) {
	a, b, c := batch(t, 0, 1, record.None, "x", "y"), batch(t, 2, 1, record.Gzip, "z"), batch(t, 7, 4, record.Zstd, "after a gap")
	split := partition(t, map[string][][]byte{first: {a}, second: {b, c}})
	whole := partition(t, map[string][][]byte{first: {a, b, c}})
	got, err := Compare(split, whole, CompareOptions{})
	if err != nil || got.Batches != 3 || got.Records != 4 || got.Bytes != int64(len(a)+len(b)+len(c)) {
		t.Fatalf("Compare = %+v, %v", got, err)
	}
	other := batch(t, 2, 2, record.Gzip, "z") // only the leader epoch differs, which no checksum covers
	for _, tt := range []struct {
		name string
		dir  string
		o    CompareOptions
		want string
	}{
		{"shorter", partition(t, map[string][][]byte{first: {a, b}}), CompareOptions{}, "ends after 2 batches"},
		{"longer", partition(t, map[string][][]byte{first: {a, b, c, batch(t, 9, 4, record.None, "more")}}), CompareOptions{}, "ends after 3 batches"},
		{"epoch", partition(t, map[string][][]byte{first: {a, other, c}}), CompareOptions{}, "first different byte: 15"},
		{"epoch below the start", partition(t, map[string][][]byte{first: {a, other, c}}), CompareOptions{From: 3}, ""},
		{"longer, bounded", partition(t, map[string][][]byte{first: {a, b, c, batch(t, 9, 4, record.None, "more")}}), CompareOptions{To: 8}, ""},
		{"torn tail", partition(t, map[string][][]byte{first: {a, b, c, a[:40]}}), CompareOptions{}, ""},
		{"zeros at the end", partition(t, map[string][][]byte{first: {a, b, c, make([]byte, 100)}}), CompareOptions{}, ""},
		{"torn in the middle", partition(t, map[string][][]byte{first: {a[:50]}, second: {b, c}}), CompareOptions{}, "not the last segment"},
		{"damage", partition(t, map[string][][]byte{first: {a, b, flip(c, len(c)-1)}}), CompareOptions{}, "corrupt"},
		{"no files", t.TempDir(), CompareOptions{}, "no segment file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, dirs := range [][2]string{{whole, tt.dir}, {tt.dir, whole}} {
				_, err := Compare(dirs[0], dirs[1], tt.o)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
		})
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

func TestInspect(t *testing.T) {
	dir := partition(t, map[string][][]byte{
		first:  {batch(t, 0, 0, record.LZ4, "a", "b")},
		second: {batch(t, 4, 3, record.LZ4, "c"), record.EndTxnMarker(true, 0, 1, 0, 5)},
	})
	// The marker is not stamped, so its offset goes back.
	if _, err := Inspect(dir); err == nil {
		t.Error("offsets going back were accepted")
	}
	dir = partition(t, map[string][][]byte{first: {batch(t, 0, 0, record.LZ4, "a", "b")}, second: {batch(t, 4, 3, record.LZ4, "c")}})
	s, err := Inspect(dir)
	if err != nil || s.Records != 3 || s.Gaps != 2 || s.End != 5 || len(s.Epochs) != 2 {
		t.Fatalf("Inspect = %+v, %v", s, err)
	}
	if err := s.OnlyCodec(record.LZ4); err != nil {
		t.Error(err)
	}
	if err := s.OnlyCodec(record.None); err == nil {
		t.Error("lz4 batches passed as uncompressed")
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] || p < firstPort || p >= lastPort {
			t.Errorf("port %d: seen %v", p, seen[p])
		}
		seen[p] = true
	}
}

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "cat; echo bad >&2; exit 3"}, Stdin: strings.NewReader("in")})
	var exit *ExitError
	if !errors.As(err, &exit) || out.Code != 3 || out.Stdout != "in" || out.Stderr != "bad\n" || !strings.Contains(err.Error(), "bad") {
		t.Errorf("Run = %+v, %v", out, err)
	}
	from := time.Now()
	_, err = Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "sleep 60 & wait"}, Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "no end after 100ms") || time.Since(from) > 50*time.Second {
		t.Errorf("a hanging command: %v after %s", err, time.Since(from))
	}
}

// A kill reaches what the program started, too.
func TestProcessKillsItsGroup(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	lines := make(chan string, 10)
	p, err := Start(Command{Path: "sh", Args: []string{"-c", "echo said >&2; sleep 60 & echo $!; wait"}, Lines: func(s string) { lines <- s }}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Running(); err != nil {
		t.Error(err)
	}
	child := <-lines
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Running(); err == nil || !strings.Contains(err.Error(), "killed") || !strings.Contains(err.Error(), "said") {
		t.Errorf("after Kill: %v", err)
	}
	gone := func(context.Context) error {
		// A zombie that init has not fetched yet counts as gone.
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return errors.New("alive")
	}
	if err := WaitFor(t.Context(), 2*time.Second, "the child gone", gone); err != nil {
		t.Error(err)
	}
}

func TestProcessStop(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Path: "sh", Args: []string{"-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	ready := func(context.Context) error {
		if !strings.Contains(TailFile(log, 5), "ready") {
			return errors.New("not ready")
		}
		return nil
	}
	if err := WaitFor(t.Context(), 2*time.Second, "ready", ready); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(2 * time.Second); err != nil || p.ExitCode() != 7 {
		t.Errorf("Stop = %v, exit code %d", err, p.ExitCode())
	}
	if err := killGroup(p.Pid(), syscall.SIGTERM); err != nil {
		t.Errorf("signal to a group that is gone: %v", err)
	}
}

func TestWaitForKeepsTheReason(t *testing.T) {
	reason := errors.New("not yet")
	err := WaitFor(t.Context(), 60*time.Millisecond, "it", func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return reason
	})
	if !errors.Is(err, reason) {
		t.Errorf("WaitFor = %v", err)
	}
}
