// Command bench measures what a broker costs: it starts the milena binary, produces and consumes through it with franz-go,
// and prints the server's CPU seconds per GB of record values and its peak memory.
//
//	go run ./test/bench [-gb 2] [-record 1024] [-partitions 16]
//	go run ./test/bench -topics 10000
//
// The second measures how long it takes to create so many topics on three nodes.
//
// Throughput is printed too, but on a small machine the client is the limit: compare CPU seconds, and run what you compare
// with in the same minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type flags struct {
	binary     string
	addr       string
	pid        int
	gb         float64
	record     int
	partitions int
	topics     int
}

func main() {
	var f flags
	flag.StringVar(&f.binary, "binary", "bin/milena", "the milena binary to start")
	flag.StringVar(&f.addr, "addr", "", "measure the broker at this address instead of starting one (needs -pid)")
	flag.IntVar(&f.pid, "pid", 0, "process id of the broker at -addr")
	flag.Float64Var(&f.gb, "gb", 2, "GB of record values")
	flag.IntVar(&f.record, "record", 1024, "bytes of a record's value")
	flag.IntVar(&f.partitions, "partitions", 16, "partitions")
	flag.IntVar(&f.topics, "topics", 0, "measure the creation of so many topics on three nodes instead")
	flag.Parse()
	if err := run(context.Background(), &f); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f *flags) error {
	if f.topics > 0 {
		return f.creations(ctx)
	}
	if f.addr == "" {
		stop, err := f.start(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic := "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(f.partitions), 1, nil, topic); err != nil {
		return err
	}
	count := int64(f.gb * 1e9 / float64(f.record))
	if err := f.measure("produce", count, func() error { return f.produce(ctx, topic, count) }); err != nil {
		return err
	}
	return f.measure("consume", count, func() error { return f.consume(ctx, topic, count) })
}

// start runs the binary in a folder of its own and waits until it answers.
func (f *flags) start(ctx context.Context) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "milena-bench")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.addr = ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(f.binary, "server", "start", "--data-dir", filepath.Join(dir, "data"), "--listen", f.addr, "--http", "off")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f.pid = cmd.Process.Pid
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its exit does not matter to the figures
		_ = os.RemoveAll(dir)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
		if err == nil {
			return stop, c.Close()
		}
		if time.Now().After(deadline) {
			stop()
			return nil, errors.New("the broker does not answer")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *flags) produce(ctx context.Context, topic string, count int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.addr), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(256<<10), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	value := make([]byte, f.record)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(value); err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	for range count {
		cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

func (f *flags) consume(ctx context.Context, topic string, count int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for seen := int64(0); seen < count; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		seen += int64(fs.NumRecords())
	}
	return nil
}

// measure prints what fn cost the broker.
func (f *flags) measure(what string, count int64, fn func() error) error {
	user, sys, err := cpu(f.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	user2, sys2, err := cpu(f.pid)
	if err != nil {
		return err
	}
	gb := float64(count) * float64(f.record) / 1e9
	fmt.Printf("%s: %.2f GB, %.0f MB/s, broker %.2f CPU s/GB (user %.2f, system %.2f), peak memory %s\n",
		what, gb, gb*1000/took, (user2-user+sys2-sys)/gb, (user2-user)/gb, (sys2-sys)/gb, peak(f.pid))
	return nil
}

// cpu reads a process's CPU seconds from /proc.
func cpu(pid int) (user, system float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, 0, errors.New("/proc/PID/stat is too short")
	}
	const ticks = 100 // USER_HZ
	u, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return 0, 0, err
	}
	s, err := strconv.ParseFloat(fields[12], 64)
	return u / ticks, s / ticks, err
}

func peak(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "VmHWM:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
