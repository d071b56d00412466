package node

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/coord/group"
	"milena/internal/handle"
	"milena/internal/handle/admin"
	"milena/internal/handle/cluster"
	"milena/internal/handle/data"
	handlegroup "milena/internal/handle/group"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/replica"
	"milena/internal/replica/follow"
	"milena/internal/server"
)

// memDialer makes a dialer of an in-memory listener's.
func memDialer(dial func(context.Context) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
}

func (n *Node) codePoints() api.CodePoints {
	if n.o.Config.Mirror.PrototypeCodePoints {
		return api.Prototype
	}
	return api.Milena
}

// buildBroker makes the parts of the broker and has them follow the metadata, each after those it builds on.
func (n *Node) buildBroker(context.Context) error {
	c := n.o.Config
	n.live.Subscribe(n.applyLimits)
	n.follower.Subscribe(n.applyDynamic)
	if !c.Broker {
		return nil
	}
	var err error
	n.replicas, err = replica.New(replica.Options{
		NodeID: c.ID, Dirs: n.dirs, Settings: n.topicSettings, Logger: n.log, Registerer: n.o.Registry,
		SessionSlots: c.Socket.FetchSessionCacheSlots, CheckpointInterval: c.Replica.HighWatermarkInterval,
		Controller: n.toController(n.links.isr), BrokerEpoch: n.brokerEpoch, LagTimeMax: c.Replica.LagTimeMax, Suspended: true, Random: n.random32,
		Current: func() bool { return n.session.Current() },
	})
	if err != nil {
		return err
	}
	n.replicas.SetThrottles(c.Replica.LeaderThrottle, c.Replica.FollowerThrottle, c.Mirror.Throttle)
	n.replicas.SetMoveRate(c.Replica.MoveRate)
	n.fetchers, err = follow.New(follow.Options{
		NodeID: c.ID, Replicas: n.replicas, BrokerEpoch: n.brokerEpoch, Dial: n.DialBroker, Settings: n.fetchSettings, Logger: n.log, Registerer: n.o.Registry,
	})
	if err != nil {
		return err
	}
	n.groups = group.NewService(group.Options{
		NodeID: c.ID, Open: coord.Replicas(n.replicas, group.Topic), Config: n.groupConfig, Logger: n.log, Registerer: n.o.Registry, Rand: n.o.Random,
		Held: n.heldByMirror,
	})
	if err := n.buildMirrors(); err != nil {
		return err
	}
	n.follower.Subscribe(n.replicas.Apply)
	n.follower.Subscribe(n.groups.Apply)
	n.follower.Subscribe(n.mirrors.apply)
	if err := n.newSession(); err != nil {
		return err
	}
	n.dirs.Start(n.ctx)
	n.replicas.Start(n.ctx)
	n.fetchers.Start(n.ctx)
	return nil
}

// random32 gives ids of fetch sessions.
func (n *Node) random32() uint32 {
	var b [4]byte
	if _, err := io.ReadFull(n.o.Random, b[:]); err != nil {
		n.log.Warn("the random source failed", "error", err)
	}
	return binary.BigEndian.Uint32(b[:])
}

// brokerEpoch is that of this broker's registration, -1 before it.
func (n *Node) brokerEpoch() int64 {
	return n.session.Epoch()
}

// fetchSettings are what followers ask for.
func (n *Node) fetchSettings() follow.Settings {
	r := n.live.Node().Replica
	return follow.Settings{
		Fetchers: r.Fetchers, MinBytes: r.FetchMinBytes, MaxBytes: r.FetchMaxBytes, ResponseMaxBytes: r.FetchResponseBytes, MaxWait: r.FetchWait, Backoff: r.FetchBackoff,
	}
}

// serve lets clients in.
func (n *Node) serve(context.Context) error {
	c := n.o.Config
	if !c.Broker {
		return nil
	}
	broker := cluster.NewBroker(cluster.BrokerOptions{
		NodeID: c.ID, ClusterID: n.clusterID, Image: n.follower.Image, WaitOffset: n.follower.WaitOffset, Controller: n.links.forward,
		AutoCreate: func() bool { return n.live.Node().Topics.AutoCreate }, MaxDescribedPartitions: int32(c.Socket.MaxPartitionsPerRequest),
		ForwardTimeout: c.Client.RequestTimeout, CodePoints: n.codePoints(), Logger: n.log,
		InternalTopics: map[string]cluster.InternalTopic{
			group.Topic: {Partitions: c.Offsets.Partitions, ReplicationFactor: c.Offsets.ReplicationFactor, Configs: offsetsTopicConfigs(c)},
		},
	})
	parts := []handle.Registrar{
		broker,
		data.New(data.Options{Replicas: n.replicas, Dirs: n.dirs, Image: n.follower.Image, ProducerIDs: n.producerIDs, FetchMaxBytes: int(c.Socket.FetchMaxBytes), RackAware: c.Replica.RackAware, Logger: n.log}),
		handlegroup.New(handlegroup.Options{Groups: n.groups, Image: n.follower.Image, Logger: n.log}),
		admin.NewConfigs(admin.ConfigsOptions{Node: n.live.Node, Image: n.follower.Image, Forward: broker.ForwardRequest, Loggers: n.loggers(), Logger: n.log}),
		n.mirrors.handlers(broker),
	}
	table := handle.Table(parts...)
	table[api.ApiVersions] = n.apiVersions(table, n.codePoints(), false)
	n.redirectClients(table)
	mem, dial := server.NewMemListener()
	var listeners []server.Listener
	for _, b := range n.bound {
		if b.controller {
			continue
		}
		l, ln := b.conf, b.Listener
		if l.Name == n.advertise[0].Name {
			ln = join(ln, mem)
		}
		listeners = append(listeners, server.Listener{Listener: ln, Name: l.Name, Protocol: l.Protocol.String(), MaxConnections: max(l.MaxConnections, 0)})
	}
	srv, err := server.New(server.Options{
		Listeners: listeners, Table: func(string) server.Table { return table }, MaxFrame: c.Socket.MaxRequestBytes, MaxInFlightPerConn: c.Socket.MaxInFlight,
		QueuedMaxBytes: c.Socket.QueuedMaxBytes, IdleTimeout: c.Socket.IdleTimeout, Logger: n.log, Metrics: n.requests, CodePoints: n.codePoints(),
		Limits: serverLimits(c),
	})
	if err != nil {
		return err
	}
	n.serving.Store(&serving{srv, dial})
	n.wg.Go(func() {
		if err := srv.Serve(); err != nil && n.ctx.Err() == nil {
			n.fail(err)
		}
	})
	return nil
}

func (n *Node) loggers() Loggers {
	if n.o.Loggers != nil {
		return n.o.Loggers
	}
	return noLoggers{}
}

// producerIDs gets a block of producer ids for idempotent producers.
func (n *Node) producerIDs(ctx context.Context) (int64, int32, error) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Config.Client.RequestTimeout)
	defer cancel()
	return metafollow.AllocateProducerIDs(ctx, n.toController(n.links.forward), n.o.Config.ID, n.session.Epoch())
}

// image is the broker's current metadata.
func (n *Node) image() *meta.Image { return n.follower.Image() }

// shutdownGrace bounds each step of a shutdown that waits for others.
const shutdownGrace = 10 * time.Second
