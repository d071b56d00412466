package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/handle/cluster"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/partlog"
	"milena/internal/peer"
	"milena/internal/quorum"
	"milena/internal/server"
)

// controllerListener names the in-memory listener of the controller.
const controllerListener = "CONTROLLER"

func itoa[T ~int | ~int16 | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// startController opens the quorum of one voter and serves the controller's APIs in memory.
func (n *Node) startController(context.Context) error {
	c := n.o.Config
	self := quorum.Member{ID: c.ID, Directory: n.metadataDirID()}
	if err := n.checkMetadataThere(); err != nil {
		return err
	}
	q, err := quorum.Open(quorum.Options{
		FS: n.o.FS, Dir: n.metadataDir(), Self: self, Voters: []quorum.Member{self}, Logger: n.log, Registerer: n.o.Registry, Fatal: n.fail,
		Snapshot:      func(w io.Writer) (int64, error) { return n.control.Snapshot(w) },
		SnapshotBytes: c.Quorum.SnapshotMaxBytes, SnapshotInterval: c.Quorum.SnapshotMaxInterval,
	})
	if err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	n.quorum = q
	n.control = controller.NewService(controller.ServiceOptions{Node: q, Logger: n.log, State: controller.Options{
		ClusterID: n.dirs.ClusterID(), Random: n.o.Random, Configs: config.Rules{}, Guards: n.mirrorGuards(), DeleteTopics: c.Topics.DeleteEnable,
		SessionTimeout: c.Quorum.BrokerSession, Bootstrap: bootstrap(), Logger: n.log,
		Defaults: func(*meta.Image) (int32, int16) {
			d := n.live.Node().Topics
			return d.Partitions, d.ReplicationFactor
		},
	}})
	ctl := cluster.NewController(cluster.ControllerOptions{
		NodeID: c.ID, ClusterID: n.dirs.ClusterID(), Service: n.control, Quorum: q, Extra: n.mirrorControllerAPIs(), CodePoints: n.codePoints(), TopicConfigs: n.createdConfigs, Logger: n.log,
	})
	table := server.Table{}
	ctl.Register(table)
	table[api.ApiVersions] = n.apiVersions(table, api.Milena, true)
	ln, dial := server.NewMemListener()
	n.ctlServer, err = server.New(server.Options{
		Listeners: []server.Listener{{Listener: ln, Name: controllerListener, Protocol: "PLAINTEXT"}}, Table: func(string) server.Table { return table },
		IdleTimeout: -1, Logger: n.log,
	})
	if err != nil {
		return err
	}
	link := func(name string) *metafollow.Link {
		return metafollow.NewLink(func(ctx context.Context) (metafollow.Conn, error) {
			return peer.Dial(ctx, peer.Options{Dial: memDialer(dial), Addr: "controller:0", ClientID: "broker-" + itoa(c.ID) + "-" + name, Logger: n.log, RequestTimeout: time.Minute})
		})
	}
	n.links = links{follow: link("metadata"), session: link("heartbeat"), forward: link("forward")}
	q.Start()
	n.run("controller", n.control.Run)
	n.wg.Go(func() {
		if err := n.ctlServer.Serve(); err != nil && n.ctx.Err() == nil {
			n.fail(err)
		}
	})
	return nil
}

// checkMetadataThere refuses to begin an empty metadata log over logs full of records: their topics would be gone, and their
// files stand in the way of new topics of these names.
func (n *Node) checkMetadataThere() error {
	known, err := quorum.Known(n.o.FS, n.metadataDir())
	if err != nil || known {
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
func (n *Node) metadataDirID() ids.UUID {
	for _, d := range n.dirs.Dirs() {
		if d.Path == n.o.Config.MetadataLogDir {
			return d.ID
		}
	}
	return ids.UUID{}
}

// offlineDirs are the ids of the directories that have failed.
func (n *Node) offlineDirs() []ids.UUID {
	var out []ids.UUID
	for _, d := range n.dirs.Dirs() {
		if !d.Online {
			out = append(out, d.ID)
		}
	}
	return out
}

// features are the feature levels this release knows, by name; a cluster it formats starts at the newest (spec D15).
func features() []meta.FeatureRange {
	return []meta.FeatureRange{
		{Name: meta.MetadataVersionFeature, Min: 7, Max: 33},
		{Name: "mirror.version", Min: 0, Max: 1},
	}
}

// bootstrap are the first records of an empty metadata log.
func bootstrap() []meta.Record {
	var recs []meta.Record
	for _, f := range features() {
		recs = append(recs, &meta.FeatureLevelRecord{Feature: f.Name, Level: f.Max})
	}
	return recs
}

// join registers the broker, follows the metadata, and returns when the controller has let the broker in.
func (n *Node) join(ctx context.Context) error {
	c := n.o.Config
	incarnation, err := ids.New(n.o.Random)
	if err != nil {
		return err
	}
	var dirs []ids.UUID
	for _, d := range n.dirs.Dirs() {
		dirs = append(dirs, d.ID)
	}
	var rack *string
	if c.Rack != "" {
		rack = &c.Rack
	}
	n.session = metafollow.NewSession(metafollow.SessionOptions{
		NodeID: c.ID, ClusterID: n.dirs.ClusterID(), Incarnation: incarnation, Endpoints: n.advertise, Features: features(), Rack: rack, LogDirs: dirs,
		PreviousEpoch: n.dirs.CleanShutdownEpoch(), Controller: n.links.session, Follower: n.follower, Heartbeat: c.Quorum.BrokerHeartbeat,
		Retry: 2 * time.Millisecond, OfflineDirs: n.offlineDirs, Logger: n.log,
	})
	n.run("session with the controller", n.session.Run)
	n.run("metadata", func(ctx context.Context) error {
		select {
		case <-n.session.Registered():
			return n.follower.Run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	select {
	case <-n.session.Ready():
		return n.replicas.Settled(n.dirs.SetAside)
	case <-n.failed:
		return n.failure
	case <-ctx.Done():
		return errors.Join(errors.New("the node was stopped before it was ready"), ctx.Err())
	}
}
