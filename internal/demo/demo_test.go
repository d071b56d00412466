package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"milena/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The whole story, verified, in seconds, with nothing left behind.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	var out buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := Once(ctx, Options{Out: &out, Dir: dir, Records: 600})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !res.OK || !res.SegmentsIdentical || !res.GroupOffsetsIdentical || !res.CodecsVerified || !res.ReadOnlyWhileMirrored || !res.StandbyWriteReadBack || !res.GroupContinued {
		t.Errorf("not all was verified: %+v", res)
	}
	if want := int64(5*600 + payments + 1); res.RecordsMirrored < want || res.BatchesCompared < 10 || res.CompactionGaps < 2*customers || res.Partitions != 8 || res.GroupOffsetsCompared != 7 || res.FailoverMs <= 0 {
		t.Errorf("too little was verified: %+v", res)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	b, err := json.Marshal(res)
	if err != nil || !strings.HasPrefix(string(b), `{"ok":true,"records_mirrored":`) {
		t.Errorf("JSON %s %v", b, err)
	}
}

// A story that is cut short is no success, and leaves nothing behind either.
func TestOnceInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) {
		if strings.Contains(string(p), "created on the source") {
			cancel()
		}
	})
	res, err := Once(ctx, Options{Out: out, Dir: dir, Records: 600})
	if err == nil || res.OK || res.Error == "" {
		t.Errorf("%+v %v", res, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// On a terminal Live draws the picture until it is told and interrupted.
func TestLive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out buffer
	end := writerFunc(func(p []byte) {
		_, _ = out.Write(p)
		if strings.Contains(string(p), "end with Ctrl-C") {
			cancel()
		}
	})
	res, err := Live(ctx, Options{Out: end, Terminal: true, Dir: t.TempDir(), Steady: 100 * time.Millisecond})
	if err != nil || !res.OK {
		t.Fatalf("%+v %v\n%s", res, err, out.String())
	}
	for _, want := range []string{"\x1b[2J", "STATE", "orders-4", "STOPPED", "group offsets compared", "the source is gone", "look closer: milena mirrors describe"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the picture never showed %q", want)
		}
	}
}

// The traffic isn't ended before the group has read: a group that is slow to join has nothing to compare otherwise.
func TestAwaitRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &traffic{stop: func() {}}
		began := time.Now()
		go func() {
			time.Sleep(9 * time.Second)
			tr.consumed.Add(1)
		}()
		if err := tr.awaitRead(t.Context()); err != nil || time.Since(began) < 9*time.Second {
			t.Errorf("waited %s: %v", time.Since(began), err)
		}
		if err := (&traffic{stop: func() {}}).awaitRead(t.Context()); err == nil || !strings.Contains(err.Error(), "group billing") {
			t.Errorf("a group that never reads: %v", err)
		}
		tr = &traffic{stop: func() {}}
		tr.fail(errors.New("no broker"))
		began = time.Now()
		if err := tr.awaitRead(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("traffic that failed was waited for %s: %v", time.Since(began), err)
		}
	})
}

func batch(t *testing.T, base int64, value string) record.Batch {
	t.Helper()
	b, err := record.Build(record.BuilderOptions{BaseOffset: base}, record.Record{Offset: base, Timestamp: 1, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The comparison sees every difference but file boundaries.
func TestCompare(t *testing.T) {
	a, b, c, other := batch(t, 0, "a"), batch(t, 1, "b"), batch(t, 4, "c"), batch(t, 1, "x")
	damaged := append(record.Batch{}, b...)
	damaged[len(damaged)-1] ^= 1
	write := func(files map[string][]record.Batch) string {
		dir := t.TempDir()
		for name, bs := range files {
			if err := os.WriteFile(filepath.Join(dir, name), bytes.Join(asBytes(bs), nil), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const first, second = "00000000000000000000.log", "00000000000000000001.log"
	source := write(map[string][]record.Batch{first: {a, b, c}})
	for name, tc := range map[string]struct {
		files map[string][]record.Batch
		more  bool
		want  string
	}{
		"equal":            {map[string][]record.Batch{first: {a, b, c}}, false, ""},
		"other boundaries": {map[string][]record.Batch{first: {a}, second: {b, c}}, false, ""},
		"shorter":          {map[string][]record.Batch{first: {a, b}}, false, "ends before the source's batch of offsets 4 to 4"},
		"longer":           {map[string][]record.Batch{first: {a, b, c, batch(t, 5, "d")}}, false, "that the source has not"},
		"longer allowed":   {map[string][]record.Batch{first: {a, b, c, batch(t, 5, "d")}}, true, ""},
		"other value":      {map[string][]record.Batch{first: {a, other, c}}, false, "of offsets 1 to 1 differs"},
		"damaged":          {map[string][]record.Batch{first: {a, damaged, c}}, false, "checksum"},
		"no files":         {nil, false, "no segment file"},
	} {
		sum := tally{codecs: map[record.Codec]int64{}}
		err := sum.compare(source, write(tc.files), tc.more)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want == "" && (sum.batches != 3 || sum.records != 3 || sum.gaps != 2 || sum.codecs[record.None] != 3):
			t.Errorf("%s: counted %+v", name, sum)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func asBytes(bs []record.Batch) [][]byte {
	out := make([][]byte, len(bs))
	for i, b := range bs {
		out[i] = b
	}
	return out
}
