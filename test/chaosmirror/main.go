// Command chaosmirror mirrors a real Apache Kafka to three real nodes while clients write to it and read from it, kills the nodes at
// random with -9 and restarts the source, and then fails over with the source dead. Up to the last mirrored offset the batches must be
// equal on all nodes, no group may stand beyond the log, and every partition must take writes again.
//
//	go run ./test/chaosmirror --minutes 10 --seed 7        (make chaos-mirror)
//
// It needs what test/interop/setup.sh fetches. The seed and each event go to standard error with the time since the start. The last
// line is `chaos-mirror ok|FAILED SECONDS`. Exit code 1 is a broken promise, 2 a harness that could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"milena/internal/peertest"
)

// options are the command line.
type options struct {
	minutes    float64
	seed       uint64
	partitions int
	milena     string
	dir        string
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos-mirror", flag.ContinueOnError)
	f.Float64Var(&o.minutes, "minutes", 10, "how long nodes are killed and the source is restarted")
	f.Uint64Var(&o.seed, "seed", 0, "of all random choices; 0 takes one and prints it")
	f.IntVar(&o.partitions, "partitions", 1000, "how many partitions are failed over beside those that are written to")
	f.StringVar(&o.milena, "milena", "", "a milena binary to test instead of building one")
	f.StringVar(&o.dir, "dir", "", "folder for data and logs, kept; by default a temporary one, removed after success")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.minutes < 0 || o.partitions < 0 || o.partitions > 100_000 {
		return o, errors.New("want flags only, --minutes not negative, --partitions 0 to 100000")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, nil
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 2
	if err == nil {
		code, err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos-mirror:", err)
	}
	os.Exit(code)
}

// run prepares a folder and the programs, and runs all in it.
func run(ctx context.Context, o options) (int, error) {
	root, err := peertest.ModuleRoot()
	if err != nil {
		return 2, err
	}
	r := &rig{o: o, began: time.Now(), rand: rand.New(rand.NewPCG(o.seed, 0)), healed: map[string]time.Duration{}}
	if r.tools, err = peertest.FindKafkaTools(root); err != nil {
		return 2, err
	}
	keep := o.dir != ""
	if keep {
		r.o.dir, err = filepath.Abs(o.dir)
	} else {
		r.o.dir, err = os.MkdirTemp("", "chaos-mirror-")
	}
	if err == nil && o.milena == "" {
		r.o.milena, err = peertest.BuildMilena(ctx, root, r.o.dir)
	} else if err == nil {
		r.o.milena, err = filepath.Abs(o.milena)
	}
	if err != nil {
		return 2, err
	}
	r.printf("seed %d, logs in %s", o.seed, r.o.dir)
	err = r.run(ctx)
	r.cleanUp()
	if err != nil {
		fmt.Printf("chaos-mirror FAILED %.0f\n", time.Since(r.began).Seconds())
		return 1, err
	}
	fmt.Printf("chaos-mirror ok %.0f\n", time.Since(r.began).Seconds())
	if keep {
		return 0, nil
	}
	return 0, os.RemoveAll(r.o.dir)
}
