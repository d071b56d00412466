// Command interop runs real Kafka programs against the milena binary, and mirrors a real Apache Kafka.
//
//	go run ./test/interop [part…]
//
// It needs what test/interop/setup.sh fetches. Each part starts its own servers on free loopback ports with their own
// folders and removes them; it ends with one line a part, `interop NAME ok|FAILED SECONDS`, and exit code 1 if one
// failed. Progress, and for a failed part the reason and the end of the logs, go to standard error.
//
// Environment:
//
//	INTEROP_TARGET        "kafka" runs the client parts against Apache Kafka: what fails then is the test
//	INTEROP_MILENA        a milena binary to test instead of building one
//	INTEROP_KEEP          "1" keeps the folders of all parts (a failed part's are always kept)
//	INTEROP_MIRROR_BYTES  how much mirror-kafka mirrors, in bytes (default 100 MiB); migrate-mm2 a quarter of it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"milena/internal/peertest"
)

// partSpec is one part of the run.
type partSpec struct {
	name string
	// milenaOnly marks what makes no sense against another broker.
	milenaOnly bool
	run        func(context.Context, *part) error
	// within bounds the part.
	within time.Duration
}

func allParts() []partSpec {
	return []partSpec{
		{"java", false, runJava, 8 * time.Minute},
		{"librdkafka", false, runLibrdkafka, 2 * time.Minute},
		{"kafka-python", false, runKafkaPython, 2 * time.Minute},
		{"franz-go", false, runFranz, 2 * time.Minute},
		{"sarama", false, runSarama, 5 * time.Minute},
		{"kcat", false, runKcat, 2 * time.Minute},
		{"dump-log", false, runDumpLog, 4 * time.Minute},
		{"cluster-tools", false, runClusterTools, 15 * time.Minute},
		{"cluster-moves", false, runClusterMoves, 5 * time.Minute},
		{"same-answers", true, runAnswers, 5 * time.Minute},
		{"commands", true, runCommands, 5 * time.Minute},
		{"mirror-kafka", true, runMirrorKafka, 30 * time.Minute},
		{"cluster-mirror", true, runClusterMirror, 8 * time.Minute},
		{"mirror-scenarios", true, runMirrorScenarios, 10 * time.Minute},
		{"switchover-acl", true, runSwitchoverACL, 4 * time.Minute},
		{"client-failover", true, runClientFailover, 6 * time.Minute},
		{"mirror-old", true, runMirrorOld, 10 * time.Minute},
		{"migrate-mm2", true, runFromMM2, 5 * time.Minute},
		{"bad-input", true, runBadInput, 6 * time.Minute},
	}
}

// setting is what all parts share.
type setting struct {
	root        string
	dir         string
	target      string // "milena" or "kafka"
	milena      string // the binary
	kafka       *peertest.KafkaTools
	mirrorBytes int64
}

type verdict struct {
	name string
	err  error
	took time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, names []string) int {
	s, err := prepare(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 2
	}
	chosen, err := choose(names, s.target)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 2
	}
	var verdicts []verdict
	keep := os.Getenv("INTEROP_KEEP") == "1"
	for _, spec := range chosen {
		v := runPart(ctx, s, spec)
		verdicts = append(verdicts, v)
		if v.err == nil && !keep {
			if err := os.RemoveAll(filepath.Join(s.dir, spec.name)); err != nil {
				fmt.Fprintln(os.Stderr, "interop:", err)
			}
		}
	}
	code := 0
	for _, v := range verdicts {
		state := "ok"
		if v.err != nil {
			state, code = "FAILED", 1
		}
		fmt.Printf("interop %s %s %.1f\n", v.name, state, v.took.Seconds())
	}
	if code == 0 && !keep {
		if err := os.RemoveAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
		}
	} else {
		fmt.Fprintln(os.Stderr, "interop: folders are in", s.dir)
	}
	return code
}

func prepare(ctx context.Context) (*setting, error) {
	root, err := peertest.ModuleRoot()
	if err != nil {
		return nil, err
	}
	s := &setting{root: root, target: os.Getenv("INTEROP_TARGET"), mirrorBytes: 100 << 20}
	if v := os.Getenv("INTEROP_MIRROR_BYTES"); v != "" {
		if s.mirrorBytes, err = strconv.ParseInt(v, 10, 64); err != nil || s.mirrorBytes < 1<<20 {
			return nil, fmt.Errorf("INTEROP_MIRROR_BYTES=%s: want a number of bytes from 1048576", v)
		}
	}
	if s.kafka, err = peertest.FindKafkaTools(root); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "interop-"); err != nil {
		return nil, err
	}
	switch s.target {
	case "", "milena":
		s.target = "milena"
		if s.milena = os.Getenv("INTEROP_MILENA"); s.milena == "" {
			s.milena, err = peertest.BuildMilena(ctx, root, s.dir)
		} else {
			s.milena, err = filepath.Abs(s.milena)
		}
	case "kafka":
	default:
		err = fmt.Errorf("INTEROP_TARGET=%s: want milena or kafka", s.target)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// choose picks the parts by name; without names all that make sense for the target.
func choose(names []string, target string) ([]partSpec, error) {
	all := allParts()
	var chosen []partSpec
	if len(names) == 0 {
		for _, p := range all {
			if !p.milenaOnly || target == "milena" {
				chosen = append(chosen, p)
			}
		}
		return chosen, nil
	}
	for _, n := range names {
		i := slices.IndexFunc(all, func(p partSpec) bool { return p.name == n })
		if i < 0 {
			return nil, fmt.Errorf("no part %q", n)
		}
		if all[i].milenaOnly && target != "milena" {
			return nil, fmt.Errorf("part %s needs INTEROP_TARGET=milena", n)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func runPart(ctx context.Context, s *setting, spec partSpec) verdict {
	from := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, spec.within, fmt.Errorf("not done within %s", spec.within))
	defer cancel()
	p := &part{setting: s, name: spec.name, dir: filepath.Join(s.dir, spec.name), began: from}
	err := os.MkdirAll(p.dir, 0o755)
	if err == nil {
		err = spec.run(ctx, p)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	if err != nil {
		// Before the cleaning up, so that the logs end where it failed.
		p.report(err)
	}
	p.cleanUp()
	return verdict{name: spec.name, err: err, took: time.Since(from)}
}
