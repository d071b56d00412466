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
	"milena/internal/replica"
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
	quorum    *quorum.Node
	control   *controller.Service
	ctlServer *server.Server
	follower  *metafollow.Follower
	session   *metafollow.Session
	links     links
	replicas  *replica.Manager
	groups    *group.Service
	mirrors   *mirrorParts
	serving   atomic.Pointer[serving] // nil until clients are let in
	console   *console.Server
	bound     []boundListener
	advertise []meta.Endpoint
}

// boundListener is an open listener for clients, with what the configuration says of it.
type boundListener struct {
	net.Listener
	conf config.Listener
}

// serving is what clients reach: the server, and a way in for the process itself.
type serving struct {
	server *server.Server
	dial   func(ctx context.Context) (net.Conn, error)
}

// links are the connections to the controller: what waits and what must not wait use their own.
type links struct{ follow, session, forward *metafollow.Link }

// Start opens the disks, recovers, and returns once the node serves clients, or with the error that kept it from it; then
// nothing of it is left. The node runs until Shutdown or Kill, whatever becomes of ctx.
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
	if !n.o.Config.Broker || !n.o.Config.Controller {
		return errors.New("process.roles: this release runs both roles in one process: set process.roles=broker,controller or leave it out")
	}
	registerProcess(n.o.Registry, n.o.Version)
	for _, step := range []func(context.Context) error{
		n.openDirs, n.bind, n.startController, n.buildBroker, n.join, n.registerOverview, n.serve, n.startConsole,
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

// Addr is the address of the first listener clients connect to.
func (n *Node) Addr() string {
	e := n.advertise[0]
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// HTTPAddr is the address of the console, empty if it is off.
func (n *Node) HTTPAddr() string {
	if n.console == nil {
		return ""
	}
	return n.console.Addr()
}

// ClusterID is the cluster's id.
func (n *Node) ClusterID() string { return n.dirs.ClusterID() }

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
		FS: n.o.FS, Dirs: c.LogDirs, NodeID: c.ID, Logger: n.log, Registerer: n.o.Registry,
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
	n.dirs = dirs
	return nil
}

func (n *Node) dirOffline(dir string, err error) {
	if n.replicas != nil {
		n.replicas.DirectoryOffline(dir, err)
	}
	if dir == n.o.Config.MetadataLogDir {
		n.fail(fmt.Errorf("log directory %s holds the metadata and failed: %w", dir, err))
	}
}

// bind opens the listeners, so that the ports are known, and lets nobody in yet.
func (n *Node) bind(context.Context) error {
	c := n.o.Config
	ports := map[string]int{}
	for _, l := range c.Listeners {
		if slices.Contains(c.ControllerListeners, l.Name) {
			// The only controller is reached in the process. Opened to the network its APIs would need rights checked first.
			n.log.Warn("the controller's listener is not opened: this release has one controller, reached in the process", "listener", l.Name)
			continue
		}
		ln, err := n.o.Listen("tcp", net.JoinHostPort(l.Host, strconv.Itoa(l.Port)))
		if err != nil {
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		n.bound = append(n.bound, boundListener{ln, l})
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			ports[l.Name] = a.Port
		} else {
			ports[l.Name] = l.Port
		}
	}
	if len(n.bound) == 0 {
		return errors.New("listeners: there is no listener for clients")
	}
	c = c.Advertise(ports)
	for _, a := range c.Advertised {
		n.advertise = append(n.advertise, meta.Endpoint{Name: a.Name, Host: a.Host, Port: uint16(a.Port), SecurityProtocol: int16(a.Protocol)})
	}
	return nil
}

// startConsole serves health and metrics over HTTP.
func (n *Node) startConsole(context.Context) error {
	addr := n.o.Config.HTTPListen
	if addr == "" {
		return nil
	}
	ln, err := n.o.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("milena.http.listen: %w", err)
	}
	n.console = console.New(console.Options{Listener: ln, Registry: n.o.Registry, Ready: n.ready, Logger: n.log})
	n.wg.Go(n.console.Serve)
	return nil
}

// ready is nil when clients can be served.
func (n *Node) ready() error {
	if err := n.Err(); err != nil {
		return err
	}
	if n.ctx.Err() != nil {
		return errors.New("shutting down")
	}
	img := n.follower.Image()
	if !img.Alive(n.o.Config.ID) {
		return errors.New("the controller has not let this broker in")
	}
	return nil
}

func (n *Node) metadataDir() string { return filepath.Join(n.o.Config.MetadataLogDir, quorumDir) }
