package peertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports below those that Linux hands out to outgoing connections (32768 and up). A client that keeps dialling a
// killed broker on such a port may otherwise connect to itself, and the broker can't come back.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePorts returns n different loopback ports that nothing listens on.
func FreePorts(n int) ([]int, error) {
	held := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		if tries == 50*n {
			return nil, errors.New("no free port found on 127.0.0.1")
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	return ports, nil
}

// Loopback is the address of a port on this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freeAddrs(n int) ([]string, error) {
	ports, err := FreePorts(n)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, n)
	for i, p := range ports {
		addrs[i] = Loopback(p)
	}
	return addrs, nil
}

// Port is the port number of a host:port address.
func Port(addr string) (int, error) {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(p)
	if err != nil {
		return 0, fmt.Errorf("port of %s: %w", addr, err)
	}
	return n, nil
}
