// Command chaos runs three real nodes in network namespaces of their own, lets Java, librdkafka and franz-go clients
// write and read, and breaks things: kill -9 at random, network partitions, full disks. At the end every acknowledged
// record must be read back exactly once and in order by each kind of client, and all replicas must hold equal batches.
//
//	go run ./test/chaos --minutes 10 --seed 7        (make chaos)
//
// It needs root, iproute2, and what test/interop/setup.sh fetches. Everything runs below a process that leads its own
// process, mount and network namespaces: when that process ends, however it ends, the kernel takes all others, the
// links and the mounts with it.
//
// The seed and each event go to standard error with the time since the start, and to events.log in the run's folder.
// The last line is `chaos ok|FAILED SECONDS`. Exit code 1 is a broken promise, 2 a harness that could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"milena/internal/peertest"
)

// options are the command line.
type options struct {
	minutes float64
	seed    uint64
	target  string // "milena" or "kafka"
	milena  string
	dir     string
	phases  string
	nodes   int
	inside  bool
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Float64Var(&o.minutes, "minutes", 10, "how long nodes are killed at random; partitions and full disks come on top")
	f.Uint64Var(&o.seed, "seed", 0, "of all random choices; 0 takes one and prints it")
	f.StringVar(&o.target, "target", "milena", "milena, or kafka to try the harness on Apache Kafka")
	f.StringVar(&o.milena, "milena", "", "a milena binary to test instead of building one")
	f.StringVar(&o.dir, "dir", "", "folder for logs, kept; by default a temporary one, removed after success")
	f.StringVar(&o.phases, "phases", "kills,partitions,disks,pauses", "which faults, in this order")
	f.IntVar(&o.nodes, "nodes", 3, "number of nodes")
	f.BoolVar(&o.inside, "inside", false, "used by the program itself")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.target != "milena" && o.target != "kafka":
		return o, fmt.Errorf("--target %s: want milena or kafka", o.target)
	case o.minutes < 0 || o.nodes < 1 || o.nodes > 9:
		return o, errors.New("--minutes must not be negative, --nodes be 1 to 9")
	}
	for _, p := range o.phaseNames() {
		if _, ok := phases()[p]; !ok {
			return o, fmt.Errorf("--phases: no phase %q", p)
		}
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, nil
}

// phaseNames are the chosen phases.
func (o options) phaseNames() []string {
	var out []string
	for _, p := range strings.Split(o.phases, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 2
	switch {
	case err != nil:
	case o.inside:
		code, err = inside(ctx, o)
	default:
		code, err = outside(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	os.Exit(code)
}

// outside prepares what needs the machine's network, and starts the rest in namespaces of its own.
func outside(ctx context.Context, o options) (int, error) {
	if os.Getuid() != 0 {
		return 2, errors.New("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return 2, errors.New("ip is missing: install iproute2")
	}
	root, err := peertest.ModuleRoot()
	if err != nil {
		return 2, err
	}
	keep := o.dir != ""
	if keep {
		o.dir, err = filepath.Abs(o.dir)
		err = errors.Join(err, os.MkdirAll(o.dir, 0o755))
	} else {
		o.dir, err = os.MkdirTemp("", "chaos-")
	}
	if err != nil {
		return 2, err
	}
	if o.target == "milena" && o.milena == "" {
		o.milena, err = peertest.BuildMilena(ctx, root, o.dir)
	} else if o.milena != "" {
		o.milena, err = filepath.Abs(o.milena)
	}
	if err != nil {
		return 2, err
	}
	code, err := reexec(ctx, o)
	if code == 0 && !keep {
		err = errors.Join(err, os.RemoveAll(o.dir))
	} else {
		fmt.Fprintln(os.Stderr, "chaos: logs are in", o.dir)
	}
	return code, err
}

// reexec runs this program again as the first process of new namespaces.
func reexec(ctx context.Context, o options) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 2, err
	}
	// The death signal comes when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, "--inside", fmt.Sprint("--minutes=", o.minutes), fmt.Sprint("--seed=", o.seed), "--target="+o.target,
		"--milena="+o.milena, "--dir="+o.dir, "--phases="+o.phases, fmt.Sprint("--nodes=", o.nodes))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 2, fmt.Errorf("new namespaces: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			err = <-done
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 2, err
	}
	return 0, nil
}
