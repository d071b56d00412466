//go:build synctests

package sim

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/disk"
)

// fill leaves a node's disk little space, for a while.
func (f *nodeFault) fill(ctx context.Context, wg *sync.WaitGroup, n *machineNode, left int64, d time.Duration) {
	free, total, err := n.fs.Free("/")
	if err != nil {
		f.m.failf("disk of node %d: %v", n.id, err)
		return
	}
	f.m.logf("the disk of node %d has %d bytes left", n.id, left)
	n.fs.SetCapacity(total - free + left)
	f.later(ctx, wg, d, func() {
		f.m.logf("the disk of node %d has space again", n.id)
		n.makeRoom()
	})
}

func (n *machineNode) makeRoom() { n.fs.SetCapacity(1 << 40) }

// slowDown makes a node's disk slow, for a while: the syncs of its metadata log take their time, and so does all that it is asked.
func (f *nodeFault) slowDown(ctx context.Context, wg *sync.WaitGroup, n *machineNode, most, d time.Duration) {
	f.m.logf("the disk of node %d is slow", n.id)
	set := func(most time.Duration) {
		n.disk.set(func(s *badDisk) { s.delay = 5 * most })
		f.m.net.change(func() { f.m.net.busy[n.host()] = most })
	}
	set(most)
	f.later(ctx, wg, d, func() {
		f.m.logf("the disk of node %d is fast again", n.id)
		set(0)
	})
}

// moveDir moves the replica that a node has of a partition to the other log directory.
func (f *nodeFault) moveDir(ctx context.Context, n *machineNode, partition int32, dir string) {
	cl, err := f.m.client("operator")
	if err != nil {
		return
	}
	defer cl.Close()
	var req kadm.AlterReplicaLogDirsReq
	req.Add(dir, kadm.TopicsSet{f.topic: {partition: {}}})
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	rs, err := kadm.NewClient(cl).AlterBrokerReplicaLogDirs(short, int32(n.id), req)
	if err == nil {
		rs.Each(func(r kadm.AlterReplicaLogDirsResponse) { err = errors.Join(err, r.Err) })
	}
	f.m.logf("move %s of node %d to %s: %v", tpName(f.topic, partition), n.id, dir, err)
}

// failDir has a node's second log directory fail; it is back when the node has started anew.
func (f *nodeFault) failDir(ctx context.Context, n *machineNode, d time.Duration) {
	f.m.logf("log directory %s of node %d fails", logDirs[1], n.id)
	n.disk.set(func(s *badDisk) { s.broken = true })
	wait2(ctx, d)
	n.stop(kill)
	n.disk.set(func(s *badDisk) { s.broken = false })
	f.m.logf("log directory %s of node %d is mended", logDirs[1], n.id)
	_ = n.ensure(ctx)
}

// badDisk makes the syncs of the metadata log slow for a while, and the second log directory fail. Syncs of other files happen under locks,
// which a bubble's clock can't wait for.
type badDisk struct {
	mu     sync.Mutex
	delay  time.Duration
	broken bool
}

func (s *badDisk) set(change func(s *badDisk)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *badDisk) rule(op disk.Op, name string) error {
	s.mu.Lock()
	delay, broken := s.delay, s.broken
	s.mu.Unlock()
	switch {
	case broken && strings.HasPrefix(name, logDirs[1]+"/"):
		return syscall.EIO
	case delay > 0 && op == disk.OpSync && filepath.Dir(name) == metadataDir:
		nap(delay)
	}
	return nil
}

// changeMinISR changes min.insync.replicas of the load's topic.
func (f *nodeFault) changeMinISR(ctx context.Context, to string) {
	cl, err := f.m.client("operator")
	if err != nil {
		return
	}
	defer cl.Close()
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	rs, err := kadm.NewClient(cl).AlterTopicConfigs(short, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: minISRKey, Value: &to}}, f.topic)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	f.m.logf("%s=%s: %v", minISRKey, to, err)
}

// saveDisk copies what is on a disk in memory to a directory.
func saveDisk(fsys *disk.Mem, from, to string) error {
	entries, err := fsys.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = saveDisk(fsys, src, dst)
		} else {
			err = saveFile(fsys, src, dst)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func saveFile(fsys *disk.Mem, from, to string) error {
	b, err := disk.ReadFile(fsys, from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
