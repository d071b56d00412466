package node

import (
	"context"
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
	var err error
	n.replicas, err = replica.New(replica.Options{
		NodeID: c.ID, Dirs: n.dirs, Settings: n.topicSettings, Logger: n.log, Registerer: n.o.Registry,
		SessionSlots: c.Socket.FetchSessionCacheSlots, CheckpointInterval: c.Replica.HighWatermarkInterval,
	})
	if err != nil {
		return err
	}
	n.groups = group.NewService(group.Options{
		NodeID: c.ID, Open: coord.Replicas(n.replicas, group.Topic), Config: n.groupConfig, Logger: n.log, Registerer: n.o.Registry, Rand: n.o.Random,
		Held: n.heldByMirror,
	})
	n.follower = metafollow.New(metafollow.Options{NodeID: c.ID, ClusterID: n.dirs.ClusterID(), Controller: n.links.follow, Logger: n.log})
	if err := n.buildMirrors(); err != nil {
		return err
	}
	n.live.Subscribe(n.applyLimits)
	n.follower.Subscribe(n.applyDynamic)
	n.follower.Subscribe(n.replicas.Apply)
	n.follower.Subscribe(n.groups.Apply)
	n.follower.Subscribe(n.mirrors.apply)
	n.dirs.Start(n.ctx)
	n.replicas.Start(n.ctx)
	return nil
}

// serve lets clients in.
func (n *Node) serve(context.Context) error {
	c := n.o.Config
	broker := cluster.NewBroker(cluster.BrokerOptions{
		NodeID: c.ID, ClusterID: n.dirs.ClusterID(), Image: n.follower.Image, WaitOffset: n.follower.WaitOffset, Controller: n.links.forward,
		AutoCreate: func() bool { return n.live.Node().Topics.AutoCreate }, MaxDescribedPartitions: int32(c.Socket.MaxPartitionsPerRequest),
		ForwardTimeout: c.Client.RequestTimeout, CodePoints: n.codePoints(), Logger: n.log,
		InternalTopics: map[string]cluster.InternalTopic{
			group.Topic: {Partitions: c.Offsets.Partitions, ReplicationFactor: c.Offsets.ReplicationFactor, Configs: offsetsTopicConfigs(c)},
		},
	})
	parts := []handle.Registrar{
		broker,
		data.New(data.Options{Replicas: n.replicas, Dirs: n.dirs, Image: n.follower.Image, ProducerIDs: n.producerIDs, FetchMaxBytes: int(c.Socket.FetchMaxBytes), Logger: n.log}),
		handlegroup.New(handlegroup.Options{Groups: n.groups, Image: n.follower.Image, Logger: n.log}),
		admin.NewConfigs(admin.ConfigsOptions{Node: n.live.Node, Image: n.follower.Image, Forward: broker.ForwardRequest, Loggers: n.loggers(), Logger: n.log}),
		n.mirrors.handlers(broker),
	}
	table := handle.Table(parts...)
	table[api.ApiVersions] = n.apiVersions(table, n.codePoints(), false)
	mem, dial := server.NewMemListener()
	var listeners []server.Listener
	for _, b := range n.bound {
		l, ln := b.conf, b.Listener
		if l.Name == n.advertise[0].Name {
			ln = join(ln, mem)
		}
		listeners = append(listeners, server.Listener{Listener: ln, Name: l.Name, Protocol: l.Protocol.String(), MaxConnections: max(l.MaxConnections, 0)})
	}
	srv, err := server.New(server.Options{
		Listeners: listeners, Table: func(string) server.Table { return table }, MaxFrame: c.Socket.MaxRequestBytes, MaxInFlightPerConn: c.Socket.MaxInFlight,
		QueuedMaxBytes: c.Socket.QueuedMaxBytes, IdleTimeout: c.Socket.IdleTimeout, Logger: n.log, Registerer: n.o.Registry, CodePoints: n.codePoints(),
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
	return metafollow.AllocateProducerIDs(ctx, n.links.forward, n.o.Config.ID, n.session.Epoch())
}

// image is the broker's current metadata.
func (n *Node) image() *meta.Image { return n.follower.Image() }

// shutdownGrace bounds each step of a shutdown that waits for others.
const shutdownGrace = 10 * time.Second
