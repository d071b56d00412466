package node_test

import (
	"context"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/node"
	"milena/internal/server"
)

// at is a listener in memory with an address of its own.
type at struct {
	net.Listener
	addr net.TCPAddr
}

func (l *at) Addr() net.Addr { return &l.addr }

// Rule: a start waits for nothing: neither the first one, which formats, nor those after a clean stop or a kill. What its processor and
// its disk need is measured by BenchmarkStart; ready is meant to be under 0.5 s.
func TestStartDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disk.NewMem(1)
		for _, after := range []string{"nothing", "a clean stop", "a kill"} {
			begun := time.Now()
			n := startInMemory(t, mem)
			if took := time.Since(begun); took > 50*time.Millisecond {
				t.Errorf("after %s: ready after %s of waiting", after, took)
			}
			if after == "a clean stop" {
				n.Kill()
				continue
			}
			stop(t, n)
		}
	})
}

func startInMemory(t *testing.T, mem disk.FS) *node.Node {
	t.Helper()
	conf, _, err := config.Load(map[string]string{"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:9092", "milena.http.listen": "off"}, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := server.NewMemListener()
	n, err := node.Start(t.Context(), node.Options{
		Config: conf, FS: mem, Version: "test",
		Listen: func(string, string) (net.Listener, error) {
			return &at{l, net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkStart is the time from the start of a node to its readiness, formatting included, on the machine's disk.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		conf, _, err := config.Load(map[string]string{"log.dirs": b.TempDir(), "listeners": "PLAINTEXT://127.0.0.1:0", "milena.http.listen": "127.0.0.1:0"}, config.Env{Hostname: os.Hostname})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		n, err := node.Start(context.Background(), node.Options{Config: conf, Version: "test"})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		n.Kill()
		b.StartTimer()
	}
}
