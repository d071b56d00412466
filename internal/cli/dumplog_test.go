package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/ids"
	"milena/internal/mirrormsg"
	"milena/internal/record"
)

// A damaged file's error says where the damage is and what it is.
func TestDumpLogSaysWhere(t *testing.T) {
	first := build(t, record.BuilderOptions{}, record.Record{Value: []byte("one")})
	second := build(t, record.BuilderOptions{BaseOffset: 1}, record.Record{Offset: 1, Value: []byte("two")})
	damaged := slices.Clone(second)
	damaged[len(damaged)-2] ^= 1
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"checksum":  {slices.Concat(first, damaged, first), fmt.Sprintf("1 damaged place(s) found, the first: FILE at position %d: ", len(first))},
		"cut short": {slices.Concat(first, second[:len(second)-1]), fmt.Sprintf("1 damaged place(s) found, the first: FILE at position %d: no whole batch begins there, %d bytes are left\n", len(first), len(second)-1)},
		"both":      {slices.Concat(damaged, first[:3]), "2 damaged place(s) found, the first: FILE at position 0: "},
	} {
		file := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(file, tc.file, 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := invoke("", "dump-log", file)
		if want := "milena: " + strings.ReplaceAll(tc.want, "FILE", file); code != ExitFailed || !strings.HasPrefix(errs, want) || strings.HasSuffix(errs, ": \n") {
			t.Errorf("%s: exit code %d: %s, want %s", name, code, errs, want)
		}
	}
}

// The records of __mirror_state as text (spec 10.2).
func TestDumpLogDecodesMirrorStates(t *testing.T) {
	reason := "the disk is full"
	state := mirrormsg.MirrorPartitionStateValue{State: int8(mirrormsg.Failed), LeaderEpoch: 7, StateEpoch: 3, ErrorMessage: &reason, RetryAttempt: 2, PreviousState: int8(mirrormsg.Mirroring)}
	last := mirrormsg.LastMirrorEpochsValue{LastMirrorEpoch: 5, StopWishOffset: 42, LastMirrorOffset: 1000}
	stateKey := mirrormsg.MirrorPartitionStateKey{MirrorName: "dr", TopicID: ids.UUID{1}, Partition: 4}
	lastKey := mirrormsg.LastMirrorEpochsKey(stateKey)
	batch := build(t, record.BuilderOptions{},
		record.Record{Key: stateKey.AppendTo(nil), Value: state.AppendTo(nil)},
		record.Record{Offset: 1, Key: lastKey.AppendTo(nil), Value: last.AppendTo(nil)},
		record.Record{Offset: 2, Key: stateKey.AppendTo(nil)},
		record.Record{Offset: 3, Key: []byte{0, 9}, Value: []byte("x")},
		record.Record{Offset: 4, Key: lastKey.AppendTo(nil), Value: []byte{0}})
	file := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(file, batch, 0o600); err != nil {
		t.Fatal(err)
	}
	_, out, _ := invoke("", "dump-log", "--mirror-state-decoder", file)
	for _, want := range []string{
		`key: {"data":{"mirrorName":"dr","partition":4,"topicId":"AQAAAAAAAAAAAAAAAAAAAA"},"type":2} payload: {"data":{"errorMessage":"the disk is full","leaderEpoch":7,"previousState":"MIRRORING","retryAttempt":2,"state":"FAILED","stateEpoch":3},"version":0}`,
		`"type":1} payload: {"data":{"lastMirrorEpoch":5,"lastMirrorOffset":1000,"stopWishOffset":42},"version":0}`,
		`"type":2} payload: <DELETE>`, `key: "\x00\t" (`, `payload: "\x00" (`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nis not in\n%s", want, out)
		}
	}
	format, err := parseFormat("%o %M") // the same of a consumer
	if err != nil {
		t.Fatal(err)
	}
	var line strings.Builder
	writeRecord(&line, format, &kgo.Record{Offset: 2, Key: stateKey.AppendTo(nil)})
	if want := `2 {"data":{"mirrorName":"dr","partition":4,"topicId":"AQAAAAAAAAAAAAAAAAAAAA"},"type":2} <DELETE>` + "\n"; line.String() != want {
		t.Errorf("consume prints %s, want %s", line.String(), want)
	}
}
