package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/client"
	"milena/internal/config"
	"milena/internal/console"
	"milena/internal/controller"
	"milena/internal/coord/group"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
	"milena/internal/replica"
	"milena/internal/replica/follow"
	"milena/internal/server"
)

// quorumDir is the directory of the raft log, below the metadata log directory.
const quorumDir = "quorum"

// Options configure a Node. Config is required; the zero value of the rest is the real thing.
type Options struct {
	Config   *config.Node
	FS       disk.FS
	Listen   func(network, addr string) (net.Listener, error)
	Dial     client.Dialer
	Random   io.Reader
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Loggers sets log levels at run time; nil: there is nothing to set.
	Loggers Loggers
	Version string
}

func (o *Options) defaults() {
	if o.FS == nil {
		o.FS = disk.OS()
	}
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Node is a running process.
type Node struct {
	o       Options
	log     *slog.Logger
	live    *config.Live
	ctx     context.Context // ends when the node stops
	stop    context.CancelFunc
	wg      sync.WaitGroup
	failed  chan struct{} // closed once the node can't go on
	failure error         // set before failed is closed
	once    sync.Once

	dirs      *logdir.Set
	clusterID string
	bound     []boundListener
	advertise []meta.Endpoint   // listeners for clients, as they reach them
	reachable []config.Listener // the controller's listeners, as others reach them
	requests  *server.Metrics   // of all listeners

	// Of a controller:
	quorum     *quorum.Node
	transport  *transport.Transport // nil without a controller listener
	control    *controller.Service
	ctlServer  *server.Server
	dialInside func(context.Context) (net.Conn, error)

	// Of every node:
	finder   *metafollow.Finder
	links    links
	follower *metafollow.Follower
	console  *console.Server

	// Of a broker:
	session  *metafollow.Session
	replicas *replica.Manager
	fetchers *follow.Fetchers
	groups   *group.Service
	mirrors  *mirrorParts
	serving  atomic.Pointer[serving] // nil until clients are let in
}

// boundListener is an open listener, with what the configuration says of it.
type boundListener struct {
	net.Listener
	conf       config.Listener
	controller bool
}

// serving is what clients reach: the server, and a way in for the process itself.
type serving struct {
	server *server.Server
	dial   func(ctx context.Context) (net.Conn, error)
}

// Start opens the disks, recovers, and returns once the node serves clients, or with the error that kept it from it; then
// nothing of it is left. A controller alone serves nobody but other nodes, and needs no leader to have started. The node
// runs until Shutdown or Kill, whatever becomes of ctx.
func Start(ctx context.Context, o Options) (*Node, error) {
	o.defaults()
	n := &Node{o: o, log: o.Logger, live: config.NewLive(o.Config), failed: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.start(ctx); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	registerProcess(n.o.Registry, n.o.Version)
	var err error
	if n.requests, err = server.NewMetrics(n.o.Registry); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		n.openDirs, n.bind, n.startController, n.connectControllers, n.buildBroker, n.registerOverview, n.startConsole, n.join, n.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Config is the node's current settings.
func (n *Node) Config() *config.Node { return n.live.Node() }

// Failed is closed when the node can't go on: a disk of the metadata log failed, or the controller refused it for good. Err
// tells why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err is why the node failed, nil before Failed is closed.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

func (n *Node) fail(err error) {
	n.once.Do(func() {
		n.failure = err
		close(n.failed)
		n.log.Error("the node can't go on", "error", err)
	})
}

// Addr is the address of the first listener that clients connect to; of a controller alone, that of its first listener.
func (n *Node) Addr() string {
	if len(n.advertise) == 0 {
		return n.ControllerAddr()
	}
	return endpointAddr(n.advertise[0])
}

// ControllerAddr is the address of the controller's first listener, empty if it has none.
func (n *Node) ControllerAddr() string {
	if len(n.reachable) == 0 {
		return ""
	}
	return n.reachable[0].Address()
}

// HTTPAddr is the address of the console, empty if it is off.
func (n *Node) HTTPAddr() string {
	if n.console == nil {
		return ""
	}
	return n.console.Addr()
}

// ClusterID is the cluster's id.
func (n *Node) ClusterID() string { return n.clusterID }

// go runs f until the node stops; an error before that is the node's failure.
func (n *Node) run(what string, f func(context.Context) error) {
	n.wg.Go(func() {
		if err := f(n.ctx); err != nil && n.ctx.Err() == nil {
			n.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// openDirs formats fresh directories and opens them: every log is recovered here.
func (n *Node) openDirs(ctx context.Context) error {
	c := n.o.Config
	if err := n.format(); err != nil {
		return err
	}
	dirs, err := logdir.Open(logdir.Options{
		FS: n.o.FS, Dirs: n.logDirs(), NodeID: c.ID, Logger: n.log, Registerer: n.o.Registry,
		// Topics' own configs are known once the metadata is read; until then nothing is deleted or compacted.
		Config: func(string, ids.UUID) partlogConfig {
			conf := logConfig(&c.Topics.Log, c)
			conf.Delete, conf.Compact = false, false
			return conf
		},
		OnOffline:    func(dir string, id ids.UUID, err error) { n.dirOffline(dir, err) },
		ReserveBytes: c.Log.ReserveBytes, FlushCheckpointInterval: c.Log.RecoveryPointInterval, StartCheckpointInterval: c.Log.StartOffsetInterval,
		FlushCheckInterval: c.Log.FlushCheck, RetentionInterval: c.Log.RetentionCheck, Cleaner: cleanerOptions(c),
		SpaceInterval: time.Second, DeleteDelay: time.Minute,
	})
	if err != nil {
		return err
	}
	n.dirs, n.clusterID = dirs, dirs.ClusterID()
	return nil
}

func (n *Node) dirOffline(dir string, err error) {
	if n.replicas != nil {
		n.replicas.DirectoryOffline(dir, err)
	}
	switch {
	case dir == n.o.Config.MetadataLogDir && n.o.Config.Controller:
		n.fail(fmt.Errorf("log directory %s holds the metadata and failed: %w", dir, err))
	case n.dirs != nil && !slices.ContainsFunc(n.dirs.Dirs(), func(d logdir.DirInfo) bool { return d.Online }):
		n.wg.Go(func() {
			n.failLastDir(fmt.Errorf("log directory %s was the last one that worked, and failed: %w", dir, err))
		})
	}
}

// failLastDir ends a node without log directories, after the time for a heartbeat that tells the controller: others take its
// partitions over then, and need not wait for the end of its session.
func (n *Node) failLastDir(err error) {
	told := time.NewTimer(n.o.Config.Quorum.BrokerHeartbeat + time.Second)
	defer told.Stop()
	select {
	case <-told.C:
	case <-n.ctx.Done():
	}
	n.fail(err)
}

// bind opens the listeners, so that the ports are known, and lets nobody in yet.
func (n *Node) bind(context.Context) error {
	c := n.o.Config
	ports := map[string]int{}
	for _, l := range c.Listeners {
		ln, err := n.o.Listen("tcp", net.JoinHostPort(l.Host, strconv.Itoa(l.Port)))
		if err != nil {
			return fmt.Errorf("listener %s: %w%s", l.Name, err, advice(err, "listeners, or --listen"))
		}
		n.bound = append(n.bound, boundListener{ln, l, slices.Contains(c.ControllerListeners, l.Name)})
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			ports[l.Name] = a.Port
		} else {
			ports[l.Name] = l.Port
		}
	}
	c = c.Advertise(ports)
	n.reachable = c.ControllerAdvertised
	for _, a := range c.Advertised {
		n.advertise = append(n.advertise, meta.Endpoint{Name: a.Name, Host: a.Host, Port: uint16(a.Port), SecurityProtocol: int16(a.Protocol)})
	}
	return nil
}

// advice says what to do about an address that can't be listened on.
func advice(err error, key string) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return ": another process listens there: stop it or set " + key
	}
	return ""
}

// startConsole serves health and metrics over HTTP.
func (n *Node) startConsole(context.Context) error {
	addr := n.o.Config.HTTPListen
	if addr == "" {
		return nil
	}
	ln, err := n.o.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("milena.http.listen: %w%s", err, advice(err, "milena.http.listen, or --http"))
	}
	n.console = console.New(console.Options{Listener: ln, Registry: n.o.Registry, Ready: n.ready, Degraded: n.degraded, Logger: n.log})
	n.wg.Go(n.console.Serve)
	return nil
}

func (n *Node) metadataDir() string { return filepath.Join(n.o.Config.MetadataLogDir, quorumDir) }

// LeadsQuorum reports whether this node is the active controller, as far as it knows.
func (n *Node) LeadsQuorum() bool { return n.quorum != nil && n.quorum.Status().IsLeader }

// Replicas are this broker's partitions, nil on a controller alone.
func (n *Node) Replicas() *replica.Manager { return n.replicas }

// Image is the cluster's metadata as this node has it.
func (n *Node) Image() *meta.Image { return n.image() }
