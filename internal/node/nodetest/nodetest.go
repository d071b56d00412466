// Package nodetest runs clusters of several nodes in one process, for tests: combined or
// split roles, on real loopback ports or whatever network a test gives, with real
// directories or disks in memory. A node can be stopped, killed and started again; it
// keeps its ports and its disk.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"milena/internal/client"
	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/node"
	"milena/internal/peertest"
	"milena/internal/quorum"
)

// Options of a Cluster. The zero value is three combined nodes on disks in memory.
type Options struct {
	// Combined, Controllers and Brokers are how many nodes there are of each kind; the
	// default is three combined ones. Combined nodes come first: their ids begin at 1,
	// controllers' at 101, brokers' at 201.
	Combined, Controllers, Brokers int
	// Props are added to each node's configuration; Each is asked for more of one node's.
	Props map[string]string
	Each  func(id int32) map[string]string
	// Disk makes a node's disk; nil: disk.NewMem. It is asked once a node.
	Disk func(id int32) disk.FS
	// Dir is where data lies on a node's disk; nil: /data.
	Dir func(id int32) string
	// More are further log directories, on every node; the metadata log stays in the first.
	More []string
	// Listen and Dial are a node's network; nil: loopback.
	Listen func(id int32) func(network, addr string) (net.Listener, error)
	Dial   func(id int32) client.Dialer
	// Host is where a node listens; nil: 127.0.0.1, with free ports. With it a node has
	// the ports 9092, 9093 and no HTTP.
	Host func(id int32) string
	// Logger is a node's; nil: warnings and errors go to the test's log.
	Logger func(id int32) *slog.Logger
	// Static gives the voters by controller.quorum.voters instead of formatting them in.
	Static bool
	// Start is how long a node may take to start. Default 30 s.
	Start time.Duration
}

// Cluster is a set of nodes. Its methods are for one goroutine, except Node and Addrs.
type Cluster struct {
	t    testing.TB
	o    Options
	ID   string // cluster id
	spec map[int32]*spec

	mu    sync.Mutex
	nodes map[int32]*node.Node
}

// spec is what stays of a node while it is down.
type spec struct {
	id         int32
	broker     bool
	controller bool
	fs         disk.FS
	dir        string
	directory  ids.UUID
	host       string
	port       int // for clients, if broker
	ctl        int // for controllers, if controller
	reserved   map[string]net.Listener
}

// quick are time-outs for tests on a busy machine.
var quick = map[string]string{
	"controller.quorum.fetch.timeout.ms": "300", "controller.quorum.election.timeout.ms": "300", "controller.quorum.request.timeout.ms": "1000",
	"broker.heartbeat.interval.ms": "50", "broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "3000", "replica.fetch.wait.max.ms": "200", "replica.fetch.backoff.ms": "20",
	"offsets.topic.num.partitions": "3", "mirror.state.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0",
	"milena.http.listen": "off", "num.partitions": "3", "default.replication.factor": "3", "min.insync.replicas": "2",
}

// New formats a cluster's disks; no node runs yet. The test's end kills what runs.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Combined+o.Controllers+o.Brokers == 0 {
		o.Combined = 3
	}
	if o.Start <= 0 {
		o.Start = 30 * time.Second
	}
	c := &Cluster{t: t, o: o, spec: map[int32]*spec{}, nodes: map[int32]*node.Node{}}
	c.ID = id(t, "cluster").String()
	for i := range o.Combined {
		c.add(int32(1+i), true, true)
	}
	for i := range o.Controllers {
		c.add(int32(101+i), false, true)
	}
	for i := range o.Brokers {
		c.add(int32(201+i), true, false)
	}
	for _, n := range c.IDs() {
		c.format(c.spec[n], !o.Static)
	}
	t.Cleanup(c.KillAll)
	return c
}

// Start is New, with all nodes started.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := New(t, o)
	c.StartAll()
	return c
}

// id is a directory's or cluster's id, the same in each run.
func id(t testing.TB, what string) ids.UUID {
	t.Helper()
	u, err := ids.New(strings.NewReader(fmt.Sprintf("%-16.16s%-64.64s", what, t.Name())))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (c *Cluster) add(n int32, broker, controller bool) *spec {
	s := &spec{id: n, broker: broker, controller: controller, dir: "/data", host: "127.0.0.1", port: 9092, ctl: 9093, reserved: map[string]net.Listener{}, directory: id(c.t, fmt.Sprintf("dir-%d", n))}
	if c.o.Disk != nil {
		s.fs = c.o.Disk(n)
	} else {
		s.fs = disk.NewMem(uint64(n))
	}
	if c.o.Dir != nil {
		s.dir = c.o.Dir(n)
	}
	if c.o.Host != nil {
		s.host = c.o.Host(n)
	} else {
		s.port, s.ctl = c.reserve(s), c.reserve(s)
	}
	c.spec[n] = s
	return s
}

// reserve opens a free port, which the node takes over.
func (c *Cluster) reserve(s *spec) int {
	c.t.Helper()
	ports, err := peertest.FreePorts(1)
	if err != nil {
		c.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", peertest.Loopback(ports[0]))
	if err != nil {
		c.t.Fatal(err)
	}
	s.reserved[ln.Addr().String()] = ln
	return ports[0]
}

// release gives up ports that the node has not taken over.
func (c *Cluster) release(s *spec) {
	for addr, ln := range s.reserved {
		_ = ln.Close()
		delete(s.reserved, addr)
	}
}

// voters are the controllers that the cluster begins with.
func (c *Cluster) voters() []quorum.Voter {
	var out []quorum.Voter
	for _, n := range c.IDs() {
		if s := c.spec[n]; s.controller {
			out = append(out, quorum.Voter{Member: quorum.Member{ID: n, Directory: s.directory}, Endpoints: []quorum.Endpoint{{Name: "CONTROLLER", Host: s.host, Port: uint16(s.ctl)}}})
		}
	}
	return out
}

func (c *Cluster) format(s *spec, voters bool) {
	c.t.Helper()
	err := c.formatDirs(s, id(c.t, fmt.Sprintf("more-%d", s.id)))
	if err == nil && s.controller && voters {
		err = quorum.Format(s.fs, filepath.Join(s.dir, "quorum"), c.voters())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// formatDirs formats the log directories of a node that are not formatted; more begins the ids of all but the first.
func (c *Cluster) formatDirs(s *spec, more ids.UUID) error {
	have := map[string]ids.UUID{s.dir: s.directory}
	for i, dir := range c.o.More {
		more[15] += byte(i)
		have[dir] = more
	}
	return logdir.Format(logdir.FormatOptions{FS: s.fs, Dirs: append([]string{s.dir}, c.o.More...), NodeID: s.id, ClusterID: c.ID, DirectoryID: have, IgnoreFormatted: true})
}

// Replace puts an empty, formatted directory in the place of one of More, on a node that is down.
func (c *Cluster) Replace(n int32, dir string) {
	c.t.Helper()
	s := c.spec[n]
	if err := errors.Join(s.fs.RemoveAll(dir), c.formatDirs(s, id(c.t, fmt.Sprintf("new-%d", n)))); err != nil {
		c.t.Fatal(err)
	}
}

// AddController formats a new combined node that isn't a voter yet, and doesn't start it.
func (c *Cluster) AddController(n int32) {
	c.t.Helper()
	c.format(c.add(n, true, true), false)
}

// IDs lists the nodes in order.
func (c *Cluster) IDs() []int32 { return slices.Sorted(maps.Keys(c.spec)) }

// FS is a node's disk, SetFS replaces it while the node is down.
func (c *Cluster) FS(n int32) disk.FS { return c.spec[n].fs }

// SetFS replaces the disk of a node that is down, by what a crash has left of it for example.
func (c *Cluster) SetFS(n int32, fs disk.FS) { c.spec[n].fs = fs }

// Dir is where a node's data lies on its disk.
func (c *Cluster) Dir(n int32) string { return c.spec[n].dir }

// Config is a node's configuration.
func (c *Cluster) Config(n int32) *config.Node {
	c.t.Helper()
	s := c.spec[n]
	props := maps.Clone(quick)
	var roles, listeners, bootstrap, voters []string
	if s.broker {
		roles, listeners = append(roles, "broker"), append(listeners, fmt.Sprintf("PLAINTEXT://%s:%d", s.host, s.port))
	}
	if s.controller {
		roles, listeners = append(roles, "controller"), append(listeners, fmt.Sprintf("CONTROLLER://%s:%d", s.host, s.ctl))
	}
	for _, v := range c.voters() {
		e := v.Endpoints[0]
		bootstrap = append(bootstrap, fmt.Sprintf("%s:%d", e.Host, e.Port))
		voters = append(voters, fmt.Sprintf("%d@%s:%d", v.ID, e.Host, e.Port))
	}
	maps.Copy(props, map[string]string{
		"node.id": fmt.Sprint(n), "process.roles": strings.Join(roles, ","), "listeners": strings.Join(listeners, ","), "controller.listener.names": "CONTROLLER", "log.dirs": strings.Join(append([]string{s.dir}, c.o.More...), ","),
	})
	if len(c.o.More) > 0 {
		props["metadata.log.dir"] = s.dir
	}
	if c.o.Static {
		props["controller.quorum.voters"] = strings.Join(voters, ",")
	} else {
		props["controller.quorum.bootstrap.servers"] = strings.Join(bootstrap, ",")
	}
	maps.Copy(props, c.o.Props)
	if c.o.Each != nil {
		maps.Copy(props, c.o.Each(n))
	}
	conf, notice, err := config.Load(props, config.Env{Hostname: func() (string, error) { return s.host, nil }})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(notice.Unknown) > 0 {
		c.t.Fatal(notice.Unknown)
	}
	return conf
}

// StartAll starts all nodes that are down, at the same time: one alone may wait for others.
func (c *Cluster) StartAll() {
	c.t.Helper()
	var down []int32
	for _, n := range c.IDs() {
		if c.Node(n) == nil {
			down = append(down, n)
		}
	}
	c.StartNodes(down...)
}

// StartNodes starts the nodes at the same time and waits for all of them.
func (c *Cluster) StartNodes(list ...int32) {
	c.t.Helper()
	for _, n := range c.IDs() {
		if !slices.Contains(list, n) { // the reserved ports of a node that is down must refuse connections, not let them hang
			c.release(c.spec[n])
		}
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, n := range list {
		conf := c.Config(n)
		wg.Go(func() { errs[i] = c.start(n, conf) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			c.t.Fatalf("node %d: %v", list[i], err)
		}
	}
}

// TryStart starts a node and returns the error of it.
func (c *Cluster) TryStart(n int32) error { return c.start(n, c.Config(n)) }

func (c *Cluster) start(n int32, conf *config.Node) error {
	s := c.spec[n]
	o := node.Options{Config: conf, FS: s.fs, Version: "test", Listen: s.listen, Logger: c.logger(n)}
	if c.o.Listen != nil {
		o.Listen = c.o.Listen(n)
	}
	if c.o.Dial != nil {
		o.Dial = c.o.Dial(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Start)
	defer cancel()
	nd, err := node.Start(ctx, o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[n] = nd
	return nil
}

// listen hands out a reserved port once, then opens it anew.
func (s *spec) listen(network, addr string) (net.Listener, error) {
	if ln := s.reserved[addr]; ln != nil {
		delete(s.reserved, addr)
		return ln, nil
	}
	return net.Listen(network, addr)
}

func (c *Cluster) logger(n int32) *slog.Logger {
	if c.o.Logger != nil {
		return c.o.Logger(n)
	}
	return slog.New(slog.NewTextHandler(testLog{c.t}, &slog.HandlerOptions{Level: slog.LevelWarn})).With("node", n)
}

// testLog writes to a test's log until the test is over.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", strings.TrimSuffix(string(b), "\n"))
	}
	return len(b), nil
}

// Node is the running node of that id, nil while it is down.
func (c *Cluster) Node(n int32) *node.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[n]
}

func (c *Cluster) take(n int32) *node.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	nd := c.nodes[n]
	delete(c.nodes, n)
	return nd
}

// Kill ends a node without a word. Its disk stays as it is, with what was not flushed.
func (c *Cluster) Kill(n int32) {
	if nd := c.take(n); nd != nil {
		nd.Kill()
	}
}

// Stop ends a node cleanly.
func (c *Cluster) Stop(n int32) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Start)
	defer cancel()
	if nd := c.take(n); nd != nil {
		if err := nd.Shutdown(ctx); err != nil {
			c.t.Errorf("node %d: shutdown: %v", n, err)
		}
	}
}

// KillAll ends all nodes and gives reserved ports back.
func (c *Cluster) KillAll() {
	var wg sync.WaitGroup
	for _, n := range c.IDs() {
		wg.Go(func() { c.Kill(n) })
		c.release(c.spec[n])
	}
	wg.Wait()
}

// Addrs are the addresses of all brokers, up or down, for clients.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.IDs() {
		if s := c.spec[n]; s.broker {
			out = append(out, fmt.Sprintf("%s:%d", s.host, s.port))
		}
	}
	return out
}

// ActiveController is the node that leads the quorum by its own account, 0 if none does.
func (c *Cluster) ActiveController() int32 {
	for _, n := range c.IDs() {
		if nd := c.Node(n); nd != nil && nd.LeadsQuorum() {
			return n
		}
	}
	return 0
}

// Eventually is peertest's.
func Eventually(t testing.TB, within time.Duration, f func() error) {
	t.Helper()
	peertest.Eventually(t, within, f)
}
