package cli

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A byte that differs in the destination's file is found: exit 1, with topic, partition, offset and both hashes.
func TestVerifyFindsDamage(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	src, err := startNode(nodeProps(dirs[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Kill()
	dst, err := startNode(nodeProps(dirs[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { dst.Kill() }()
	run := func(stdin string, args ...string) string {
		t.Helper()
		code, out, errs := invoke(stdin, args...)
		if code != ExitOK {
			t.Fatalf("%v: exit %d: %s", args, code, errs)
		}
		return out
	}
	run("", "topics", "create", "orders", "--bootstrap-server", src.Addr())
	for _, s := range []string{"one\ntwo\n", "three\n", "four\n"} {
		run(s, "produce", "orders", "--bootstrap-server", src.Addr())
	}
	run("", "mirrors", "create", "dr", "--source", src.Addr(), "--topics", "orders", "--config", "mirror.fetch.wait.max.ms=50", "--bootstrap-server", dst.Addr())
	level := regexp.MustCompile(`(?m)^dr +orders +0 +MIRRORING +4 +4 +0 `)
	for deadline := time.Now().Add(15 * time.Second); !level.MatchString(run("", "mirrors", "describe", "dr", "--bootstrap-server", dst.Addr())); {
		if time.Now().After(deadline) {
			t.Fatal("not mirrored in time")
		}
	}
	if err := dst.shutdown(); err != nil {
		t.Fatal(err)
	}
	file := segment(t, dirs[1], "orders-0")
	log, err := os.ReadFile(file)
	if err != nil || bytes.Count(log, []byte("three")) != 1 {
		t.Fatalf("%d bytes, %v", len(log), err)
	}
	if err := os.WriteFile(file, bytes.Replace(log, []byte("three"), []byte("thrEe"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if dst, err = startNode(dst.props); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(15 * time.Second)
	for {
		code, out, errs := invoke("", "mirrors", "verify", "dr", "--bootstrap-server", dst.Addr())
		if code == verifyDifferent {
			if !regexp.MustCompile(`topic orders partition 0 differs at offset 2: batches of different content: source [0-9a-f]{64}, destination [0-9a-f]{64}\n$`).MatchString(errs) ||
				!strings.Contains(out, "different\n") {
				t.Errorf("%s%s", out, errs)
			}
			break
		}
		if code != verifyUndecided || time.Now().After(deadline) { // the states are being loaded
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
	}
}
