package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"milena/internal/peertest"
)

// network is a bridge in this process's network namespace, where the clients are, with a namespace for each node.
//
// One direction of a path is cut by a permanent neighbour entry with an address that no one has: packets leave and
// arrive nowhere, as on a real network, and no connection is told. That needs no packet filter in the kernel.
type network struct {
	nodes int
	// cut are the directions that are cut, from and to; 0 is the clients.
	cut map[[2]int]bool
}

const hubAddr = "10.77.0.254"

func nodeAddr(node int) string {
	if node == 0 {
		return hubAddr
	}
	return fmt.Sprintf("10.77.0.%d", node)
}

func netnsName(node int) string { return fmt.Sprintf("node%d", node) }

// privateMounts gives this process a view of the file system that it can change alone.
func privateMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Names of namespaces stand here; on a file system of ours they are nobody else's.
	const names = "/run/netns"
	if err := os.MkdirAll(names, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", names, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", names, err)
	}
	return nil
}

// mountSized mounts a file system in memory of a size at dir.
func mountSized(dir string, bytes int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

func ip(ctx context.Context, args ...string) error {
	_, err := peertest.Run(ctx, peertest.Command{Path: "ip", Args: args})
	return err
}

func newNetwork(ctx context.Context, nodes int) (*network, error) {
	n := &network{nodes: nodes, cut: map[[2]int]bool{}}
	cmds := [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "hub", "type", "bridge"},
		{"addr", "add", hubAddr + "/24", "dev", "hub"},
		{"link", "set", "hub", "up"},
	}
	for i := 1; i <= nodes; i++ {
		ns, port := netnsName(i), fmt.Sprintf("port%d", i)
		cmds = append(cmds, [][]string{
			{"netns", "add", ns},
			{"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"link", "set", port, "master", "hub", "up"},
			{"-n", ns, "addr", "add", nodeAddr(i) + "/24", "dev", "eth0"},
			{"-n", ns, "link", "set", "lo", "up"},
			{"-n", ns, "link", "set", "eth0", "up"},
		}...)
	}
	for _, c := range cmds {
		if err := ip(ctx, c...); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// neighbour changes what `from` knows about where `to` is.
func (n *network) neighbour(ctx context.Context, verb string, from, to int, more ...string) error {
	args := []string{"neigh", verb, nodeAddr(to)}
	if from == 0 {
		args = append(args, "dev", "hub")
	} else {
		args = append([]string{"-n", netnsName(from)}, append(args, "dev", "eth0")...)
	}
	return ip(ctx, append(args, more...)...)
}

// block drops all packets on the way from one to the other.
func (n *network) block(ctx context.Context, from, to int) error {
	n.cut[[2]int{from, to}] = true
	return n.neighbour(ctx, "replace", from, to, "lladdr", fmt.Sprintf("02:de:ad:00:00:%02x", to), "nud", "permanent")
}

// isolate drops all packets between a node and the others, and the clients if so said.
func (n *network) isolate(ctx context.Context, node int, clients bool) error {
	first := 1
	if clients {
		first = 0
	}
	for other := first; other <= n.nodes; other++ {
		if other == node {
			continue
		}
		if err := errors.Join(n.block(ctx, node, other), n.block(ctx, other, node)); err != nil {
			return err
		}
	}
	return nil
}

// heal ends all cuts.
func (n *network) heal(ctx context.Context) error {
	var errs []error
	for c := range n.cut {
		errs = append(errs, n.neighbour(ctx, "del", c[0], c[1]))
		delete(n.cut, c)
	}
	return errors.Join(errs...)
}

// fillDisk takes all but about `leave` bytes of the file system at dir, while others write there.
func fillDisk(dir string, leave int64) (taken int64, err error) {
	f, err := os.Create(ballast(dir))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for chunk := int64(64 << 20); chunk >= 4096; {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return taken, err
		}
		if left := int64(st.Bavail)*st.Bsize - leave; left < chunk {
			chunk /= 2
			continue
		}
		switch err := syscall.Fallocate(int(f.Fd()), 0, taken, chunk); {
		case errors.Is(err, syscall.ENOSPC):
			chunk /= 2
		case err != nil:
			return taken, err
		default:
			taken += chunk
		}
	}
	if taken == 0 {
		return 0, fmt.Errorf("%s had less than %d bytes free before", dir, leave)
	}
	return taken, nil
}

func freeDisk(dir string) error { return os.Remove(ballast(dir)) }

// ballast stands beside the log directory, on the same file system.
func ballast(dir string) string { return filepath.Join(dir, "ballast") }
