package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/handle/cluster"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/quorum"
	"milena/internal/quorum/offline"
	"milena/internal/quorum/transport"
	"milena/internal/server"
)

// insideListener names the in-memory listener of the controller, which the node itself uses.
const insideListener = "CONTROLLER"

func itoa[T ~int | ~int16 | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// startController opens this node's part of the quorum and serves the controller's APIs: in memory for the node itself, and
// on the controller's listeners for others.
func (n *Node) startController(ctx context.Context) error {
	if !n.o.Config.Controller {
		return nil
	}
	if err := n.openQuorum(); err != nil {
		return err
	}
	if err := n.buildControl(); err != nil {
		return err
	}
	if err := n.serveController(ctx); err != nil {
		return err
	}
	if n.transport != nil {
		n.transport.Attach(n.quorum)
	}
	n.quorum.Start()
	n.run("controller", n.control.Run)
	if n.transport != nil {
		n.run("voters", n.transport.Run)
	}
	return nil
}

func (n *Node) openQuorum() error {
	if err := n.checkMetadataThere(); err != nil {
		return err
	}
	directory, err := n.metadataDirID()
	if err != nil {
		return err
	}
	o := n.quorumOptions(directory)
	if len(o.Endpoints) > 0 {
		n.transport = transport.New(n.transportOptions(o.Endpoints))
		o.Transport = n.transport
	}
	n.quorum, err = quorum.Open(o)
	if err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	return nil
}

// quorumOptions are this node's part in the quorum as it is configured, without a transport.
func (n *Node) quorumOptions(directory ids.UUID) quorum.Options {
	c := n.o.Config
	endpoints := n.controllerEndpoints()
	tick, election := quorumTicks(c)
	o := quorum.Options{
		FS: n.o.FS, Dir: n.metadataDir(), Self: quorum.Member{ID: c.ID, Directory: directory}, Endpoints: endpoints,
		Logger: n.log, Registerer: n.o.Registry, Fatal: n.fail, Tick: tick, ElectionTicks: election,
		Snapshot:      func(w io.Writer) (int64, error) { return n.control.Snapshot(w) },
		SnapshotBytes: c.Quorum.SnapshotMaxBytes, SnapshotInterval: c.Quorum.SnapshotMaxInterval,
	}
	switch {
	case len(c.Voters) > 0:
		for _, v := range c.Voters {
			name := insideListener
			if len(c.ControllerListeners) > 0 {
				name = c.ControllerListeners[0]
			}
			o.Voters = append(o.Voters, quorum.Voter{Member: quorum.Member{ID: v.ID}, Endpoints: []quorum.Endpoint{{Name: name, Host: v.Host, Port: uint16(v.Port)}}})
		}
	case !c.QuorumConfigured:
		o.Voters = []quorum.Voter{{Member: o.Self, Endpoints: endpoints}}
	}
	return o
}

func (n *Node) transportOptions(endpoints []quorum.Endpoint) transport.Options {
	c := n.o.Config
	return transport.Options{
		ClusterID: n.clusterID, Dial: n.dialVoter, Endpoints: endpoints, Bootstrap: bootstrapEndpoints(c.BootstrapServers), AutoJoin: c.Quorum.AutoJoin,
		RequestTimeout: c.Quorum.RequestTimeout, RetryBackoff: c.Quorum.RetryBackoff, Logger: n.log,
	}
}

// quorumTicks is raft's clock as it is configured.
func quorumTicks(c *config.Node) (tick time.Duration, election int) {
	return quorum.Ticks(c.Quorum.FetchTimeout, c.Quorum.ElectionTimeout)
}

func electionTimeout(c *config.Node) time.Duration {
	tick, election := quorumTicks(c)
	return tick * time.Duration(election)
}

func bootstrapEndpoints(addrs []string) []quorum.Endpoint {
	var out []quorum.Endpoint
	for _, a := range addrs {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			continue // config has checked it
		}
		if p, err := strconv.ParseUint(port, 10, 16); err == nil {
			out = append(out, quorum.Endpoint{Host: host, Port: uint16(p)})
		}
	}
	return out
}

// controllerEndpoints are the controller's listeners as others reach them, the one that nodes connect to first.
func (n *Node) controllerEndpoints() []quorum.Endpoint {
	var out []quorum.Endpoint
	for _, l := range n.reachable {
		out = append(out, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(l.Port)})
	}
	return out
}

// buildControl makes the service that leads when the quorum says so.
func (n *Node) buildControl() error {
	c := n.o.Config
	first := controller.Bootstrap()
	formatted, err := offline.ReadBootstrap(n.o.FS, c.MetadataLogDir)
	if err != nil {
		return err
	}
	if formatted != nil {
		first = formatted
	}
	o := controller.Options{
		ClusterID: n.clusterID, Random: n.o.Random, Configs: config.Rules{}, Guards: n.mirrorGuards(), DeleteTopics: c.Topics.DeleteEnable,
		SessionTimeout: c.Quorum.BrokerSession, Grace: 2 * electionTimeout(c), Bootstrap: first, Logger: n.log,
		Defaults: func(*meta.Image) (int32, int16) {
			d := n.live.Node().Topics
			return d.Partitions, d.ReplicationFactor
		},
		MinISR: c.Topics.Log.MinInsyncReplicas, UncleanElection: c.Topics.Log.UncleanLeaderElection, UncleanInterval: c.Quorum.UncleanInterval,
		InternalTopics: n.internalTopics,
	}
	if c.Quorum.AutoRebalance {
		o.RebalanceInterval = c.Quorum.RebalanceInterval
	}
	n.control = controller.NewService(controller.ServiceOptions{Node: n.quorum, Logger: n.log, State: o})
	return nil
}

// internalTopics are those that are given more replicas as brokers join, with the factors that are configured.
func (n *Node) internalTopics(*meta.Image) []controller.InternalTopic {
	c := n.o.Config
	return []controller.InternalTopic{
		{Name: cluster.GroupOffsetsTopic, ReplicationFactor: c.Offsets.ReplicationFactor},
		{Name: cluster.MirrorStateTopic, ReplicationFactor: c.Mirror.StateReplicationFactor},
	}
}

func (n *Node) serveController(context.Context) error {
	c := n.o.Config
	ctl := cluster.NewController(cluster.ControllerOptions{
		NodeID: c.ID, ClusterID: n.clusterID, Service: n.control, Quorum: n.quorum, Extra: n.mirrorControllerAPIs(), CodePoints: n.codePoints(), TopicConfigs: n.createdConfigs, Logger: n.log,
	})
	table := server.Table{}
	ctl.Register(table)
	table[api.ApiVersions] = n.apiVersions(table, api.Milena, true)
	mem, dial := server.NewMemListener()
	n.dialInside = dial
	var listeners []server.Listener
	idle := c.Socket.IdleTimeout
	for _, b := range n.bound {
		if !b.controller {
			continue
		}
		ln := b.Listener
		if b.conf.Name == c.ControllerListeners[0] {
			ln = join(ln, mem)
		}
		listeners = append(listeners, server.Listener{Listener: ln, Name: b.conf.Name, Protocol: b.conf.Protocol.String(), MaxConnections: max(b.conf.MaxConnections, 0)})
	}
	alone := len(listeners) == 0 // nobody but the node itself
	if alone {
		listeners = append(listeners, server.Listener{Listener: mem, Name: insideListener, Protocol: config.Plaintext.String()})
		idle = -1
	}
	o := server.Options{
		Listeners: listeners, Table: func(string) server.Table { return table }, IdleTimeout: idle, MaxFrame: c.Socket.MaxRequestBytes, Logger: n.log,
	}
	if !alone { // what a node says to itself is no traffic
		o.Metrics = n.requests
	}
	var err error
	if n.ctlServer, err = server.New(o); err != nil {
		return err
	}
	n.wg.Go(func() {
		if err := n.ctlServer.Serve(); err != nil && n.ctx.Err() == nil {
			n.fail(err)
		}
	})
	return nil
}

// checkMetadataThere refuses to begin an empty metadata log over logs full of records: their topics would be gone, and their
// files stand in the way of new topics of these names. A node that joins a quorum gets the metadata from others.
func (n *Node) checkMetadataThere() error {
	known, err := quorum.Known(n.o.FS, n.metadataDir())
	if err != nil || known || n.o.Config.QuorumConfigured {
		return err
	}
	logs := 0
	n.dirs.Logs(func(*partlog.Log) bool { logs++; return true })
	if logs == 0 {
		return nil
	}
	return fmt.Errorf("metadata log: %s is missing, but the log directories hold %d partitions: restore it, or move the partitions away to begin an empty cluster",
		n.metadataDir(), logs)
}

// metadataDirID is the directory id of the metadata log directory: a wiped disk is another voter (KIP-853).
func (n *Node) metadataDirID() (ids.UUID, error) {
	c := n.o.Config
	for _, d := range n.dirs.Dirs() {
		if d.Path == c.MetadataLogDir {
			return d.ID, nil
		}
	}
	m, err := logdir.ReadMeta(n.o.FS, c.MetadataLogDir)
	known, errKnown := quorum.Known(n.o.FS, n.metadataDir())
	switch {
	case errKnown != nil:
		return ids.UUID{}, errKnown
	case err == nil && (m.ClusterID != n.clusterID || m.NodeID != c.ID):
		return ids.UUID{}, fmt.Errorf("metadata.log.dir %s is formatted for node %d of cluster %s", c.MetadataLogDir, m.NodeID, m.ClusterID)
	case errors.Is(err, logdir.ErrNotFormatted) && known:
		return ids.UUID{}, nil // an earlier release gave such a directory no id
	}
	return m.Directory, err
}

// offlineDirs are the ids of the directories that have failed.
func (n *Node) offlineDirs() []ids.UUID {
	var out []ids.UUID
	for _, d := range n.dirs.Dirs() {
		if !d.Online && !d.ID.IsZero() {
			out = append(out, d.ID)
		}
	}
	return out
}

// logDirs are the directories to open: a controller alone needs that of the metadata only.
func (n *Node) logDirs() []string {
	c := n.o.Config
	if !c.Broker {
		return []string{c.MetadataLogDir}
	}
	return c.LogDirs
}

// formattedDirs are all directories with a meta.properties.
func (n *Node) formattedDirs() []string {
	dirs := slices.Clone(n.logDirs())
	if meta := filepath.Clean(n.o.Config.MetadataLogDir); n.o.Config.Controller && !slices.Contains(dirs, meta) {
		dirs = append(dirs, meta)
	}
	return dirs
}
