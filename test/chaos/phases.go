package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"milena/internal/peertest"
)

// phases are the faults by name.
func phases() map[string]func(*rig, context.Context) error {
	return map[string]func(*rig, context.Context) error{
		"kills":      (*rig).kills,
		"partitions": (*rig).partitions,
		"disks":      (*rig).disks,
		"pauses":     (*rig).pauses,
	}
}

// between is a random time.
func (r *rig) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.rand.Int64N(int64(to-from)))
}

func (r *rig) node() int32 { return int32(r.rand.IntN(r.o.nodes)) + 1 }

func (r *rig) broker(node int32) *peertest.Broker { return r.cluster.Brokers[node-1] }

func (r *rig) kill(node int32) error {
	r.down[node] = true
	r.log.printf("kill -9 node %d", node)
	return r.broker(node).Kill()
}

func (r *rig) launchNode(node int32) error {
	r.log.printf("start node %d", node)
	delete(r.down, node)
	return r.broker(node).Launch()
}

// kills kills at random: mostly one node of a whole cluster, sometimes a second one while the first comes back, and
// sometimes all at once.
func (r *rig) kills(ctx context.Context) error {
	end := time.Now().Add(time.Duration(r.o.minutes * float64(time.Minute)))
	n := 0
	for time.Now().Before(end) {
		if err := r.clientsRun(); err != nil {
			return err
		}
		dice := r.rand.IntN(100)
		var err error
		switch {
		case dice < 70 || r.o.nodes < 3:
			r.gaps.during("one node is killed")
			n++
			err = r.killOne(ctx, r.node())
		case dice < 90:
			r.gaps.during("a second node is killed while the first comes back")
			n += 2
			err = r.killTwo(ctx)
		default:
			r.gaps.during("all nodes are killed")
			n += r.o.nodes
			err = r.killAll(ctx)
		}
		if err != nil {
			return err
		}
		if err := r.awaitHealth(ctx, healWithin); err != nil {
			return err
		}
		if err := r.pause(ctx, r.between(0, 3*time.Second)); err != nil {
			return err
		}
	}
	r.log.printf("%d kills", n)
	return nil
}

func (r *rig) killOne(ctx context.Context, node int32) error {
	if err := r.kill(node); err != nil {
		return err
	}
	// From at once to longer than a session lasts.
	if err := r.pause(ctx, r.between(0, 14*time.Second)); err != nil {
		return err
	}
	return r.launchNode(node)
}

func (r *rig) killTwo(ctx context.Context) error {
	first := r.node()
	second := first%int32(r.o.nodes) + 1
	if err := r.killOne(ctx, first); err != nil {
		return err
	}
	if err := r.pause(ctx, r.between(0, 3*time.Second)); err != nil {
		return err
	}
	return r.killOne(ctx, second)
}

func (r *rig) killAll(ctx context.Context) error {
	order := r.rand.Perm(r.o.nodes)
	for _, i := range order {
		if err := r.kill(int32(i) + 1); err != nil {
			return err
		}
	}
	for _, i := range r.rand.Perm(r.o.nodes) {
		if err := r.pause(ctx, r.between(0, 2*time.Second)); err != nil {
			return err
		}
		if err := r.launchNode(int32(i) + 1); err != nil {
			return err
		}
	}
	return nil
}

// partitions cuts the network in each way once, in random order, around random nodes.
func (r *rig) partitions(ctx context.Context) error {
	if r.o.nodes < 2 {
		return nil
	}
	node := r.node()
	other := node%int32(r.o.nodes) + 1
	cuts := []struct {
		what string
		make func() error
	}{
		{"one way: a node does not hear another", func() error { return r.net.block(ctx, int(other), int(node)) }},
		{"one way: no other node hears a node, clients do", func() error {
			for i := 1; i <= r.o.nodes; i++ {
				if i != int(node) {
					if err := r.net.block(ctx, int(node), i); err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"a node is cut off from the others, not from clients", func() error { return r.net.isolate(ctx, int(node), false) }},
		{"a node is cut off from all", func() error { return r.net.isolate(ctx, int(node), true) }},
		{"two nodes do not reach each other", func() error {
			if err := r.net.block(ctx, int(node), int(other)); err != nil {
				return err
			}
			return r.net.block(ctx, int(other), int(node))
		}},
		{"all nodes are cut off from each other", func() error {
			for i := 1; i <= r.o.nodes; i++ {
				if err := r.net.isolate(ctx, i, false); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	for _, i := range r.rand.Perm(len(cuts)) {
		node = r.node()
		other = node%int32(r.o.nodes) + 1
		c := cuts[i]
		r.gaps.during(c.what)
		r.log.printf("cut: %s (nodes %d, %d)", c.what, node, other)
		if err := c.make(); err != nil {
			return err
		}
		// Longer than a session and than it takes to leave the ISR.
		if err := r.pause(ctx, r.between(12*time.Second, 35*time.Second)); err != nil {
			return err
		}
		r.log.printf("heal")
		if err := r.net.heal(ctx); err != nil {
			return err
		}
		if err := r.awaitHealth(ctx, healWithin); err != nil {
			return err
		}
		if err := r.clientsRun(); err != nil {
			return err
		}
	}
	return nil
}

// disks fills the disk of a node: first into the reserve that Milena holds back, then to the last byte.
func (r *rig) disks(ctx context.Context) error {
	for _, f := range []struct {
		what  string
		leave int64
	}{
		{"a node's disk is short of space", diskBytes / 40},
		{"a node's disk is full", 0},
	} {
		node := r.node()
		r.gaps.during(f.what)
		r.mayExit[node] = f.leave == 0
		taken, err := fillDisk(r.disk(node), f.leave)
		if err != nil {
			return fmt.Errorf("node %d: %w", node, err)
		}
		r.log.printf("%s: node %d, %d MiB taken, %d KiB left", f.what, node, taken>>20, f.leave>>10)
		if err := r.pause(ctx, r.between(15*time.Second, 25*time.Second)); err != nil {
			return err
		}
		if err := freeDisk(r.disk(node)); err != nil {
			return err
		}
		r.log.printf("space again on node %d", node)
		// It is to go on by itself; what went offline comes back by a restart, the operator's part.
		if err := r.awaitHealth(ctx, 20*time.Second); err != nil && ctx.Err() == nil {
			r.log.printf("restart node %d: %v", node, firstLine(err.Error()))
			if err := r.broker(node).Kill(); err != nil {
				return err
			}
			if err := r.broker(node).Launch(); err != nil {
				return err
			}
		}
		if err := r.awaitHealth(ctx, healWithin); err != nil {
			return err
		}
		delete(r.mayExit, node)
	}
	return nil
}

// pauses stops nodes for a while, as a machine that swaps or a virtual one that is moved does: short ones nobody may notice, after long
// ones a node believes that it still leads.
func (r *rig) pauses(ctx context.Context) error {
	r.gaps.during("a node stands still")
	for range 10 {
		node := r.node()
		r.log.printf("stop node %d for a while", node)
		if err := syscall.Kill(r.broker(node).Pid(), syscall.SIGSTOP); err != nil {
			return fmt.Errorf("node %d: %w", node, err)
		}
		err := r.pause(ctx, r.between(500*time.Millisecond, 15*time.Second))
		if err := syscall.Kill(r.broker(node).Pid(), syscall.SIGCONT); err != nil {
			return fmt.Errorf("node %d: %w", node, err)
		}
		if err != nil {
			return err
		}
		if err := r.awaitHealth(ctx, healWithin); err != nil {
			return err
		}
	}
	return r.clientsRun()
}
