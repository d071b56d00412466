package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/coord"
	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/handle"
	"milena/internal/handle/cluster"
	handlemirror "milena/internal/handle/mirror"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirror"
)

// mirrorParts are what mirroring adds to a node; no other file of this package names them.
type mirrorParts struct {
	n       *Node
	states  *mirrorstate.Service
	cluster *mirror.Cluster
	manager *mirror.Manager
	local   *kgo.Client
	once    sync.Once
}

func (n *Node) mirrorCommands() mirrors.Commands {
	m := n.o.Config.Mirror
	return mirrors.Commands{StatePartitions: m.StatePartitions, StateFactor: m.StateReplicationFactor}
}

// mirrorGuards refuse what a mirror owns; with the prototype's numbers its clients know the mirror codes (spec D10).
func (n *Node) mirrorGuards() []controller.Guard {
	if n.codePoints() == api.Prototype {
		return []controller.Guard{mirrors.PrototypeGuard}
	}
	return []controller.Guard{mirrors.Guard}
}

func (n *Node) readOnly() api.Code {
	if n.codePoints() == api.Prototype {
		return api.ReadOnlyTopic
	}
	return api.PolicyViolation
}

func (n *Node) mirrorControllerAPIs() map[api.Key]cluster.ControllerAPI {
	return handlemirror.ControllerAPIs(handlemirror.ControllerOptions{
		CodePoints: n.codePoints(),
		Do:         func(ctx context.Context, cmd controller.Command) (any, error) { return n.control.Do(ctx, cmd) },
		Commands:   n.mirrorCommands(),
	})
}

// heldByMirror says that a committed offset must not expire, since a mirror's source holds it (spec D8).
func (n *Node) heldByMirror(g string, t group.TopicRef, partition int32) bool {
	return n.mirrors != nil && n.mirrors.manager.Held(g, t.Name, partition)
}

func (n *Node) buildMirrors() error {
	c := n.o.Config
	p := &mirrorParts{n: n}
	open := coord.Replicas(n.replicas, mirrorstate.Topic)
	p.states = mirrorstate.NewService(mirrorstate.ServiceOptions{
		NodeID: c.ID, Open: open, WriteTimeout: c.Mirror.CoordinatorWriteTimeout, MaxAttempts: int16(c.Mirror.RetryMaxAttempts), Logger: n.log, Registerer: n.o.Registry,
		Loaded: func(partition int32) { p.manager.CoordinatorLoaded(partition) },
	})
	p.cluster = mirror.NewCluster(mirror.ClusterOptions{
		NodeID: c.ID, Image: n.image, Local: p.states, Dial: n.DialBroker, Timeout: c.Mirror.CoordinatorWriteTimeout,
	})
	// The mirror's admin client on this cluster goes to this broker's own listener, in memory.
	var err error
	p.local, err = kgo.NewClient(kgo.SeedBrokers("local:0"), kgo.Dialer(p.dialLocal), kgo.ClientID("mirror-dst-admin-"+itoa(c.ID)), kgo.MaxVersions(nil), client.OwnSoftware())
	if err != nil {
		return err
	}
	p.manager, err = mirror.New(mirror.Options{
		NodeID: c.ID, ClusterID: n.clusterID, Replicas: n.replicas, States: p.cluster, Controller: n.toController(n.links.forward), Local: kadm.NewClient(p.local),
		ClampOffsets: p.clampOffsets, FS: n.o.FS, Dial: n.o.Dial,
		Retry:           mirror.Retry{Initial: c.Mirror.RetryInitialBackoff, Max: c.Mirror.RetryMaxBackoff, MaxAttempts: c.Mirror.RetryMaxAttempts},
		RefreshInterval: func() time.Duration { return n.live.Node().Mirror.RefreshInterval }, FetchMemory: c.Mirror.FetchMemory, Fetchers: func() int { return n.live.Node().Mirror.Fetchers }, ReadOnly: n.readOnly(),
		LogDirs: c.LogDirs, CutRetention: func() mirror.CutRetention {
			m := n.live.Node().Mirror
			return mirror.CutRetention{Age: m.CutRetention, Bytes: m.CutRetentionBytes}
		},
		Logger: n.log, Registerer: n.o.Registry,
	})
	if err != nil {
		return err
	}
	n.replicas.SetGateFactory(p.manager.Gate)
	n.replicas.SetAlignments(p.manager.Alignment)
	n.replicas.OnSelfCut(p.manager.SetAside)
	n.mirrors = p
	return nil
}

// dialLocal connects to this broker for its own addresses; the addresses of other brokers are dialled.
func (p *mirrorParts) dialLocal(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr == "local:0" || addr == p.n.Addr() {
		if s := p.n.serving.Load(); s != nil {
			return s.dial(ctx)
		}
		return nil, errors.New("the broker does not serve yet")
	}
	return p.n.o.Dial(ctx, network, addr)
}

func (p *mirrorParts) apply(d *meta.Delta) {
	p.states.Apply(d)
	p.manager.Apply(d)
}

func (p *mirrorParts) close() {
	p.once.Do(func() {
		p.manager.Close()
		p.states.Close()
		p.cluster.Close()
		p.local.Close()
	})
}

// handlers answer the mirror APIs of the broker's listeners.
func (p *mirrorParts) handlers(broker *cluster.Broker) handle.Registrar {
	return handlemirror.New(handlemirror.Options{
		Image: p.n.image, States: p.states, Cluster: p.cluster, Manager: p.manager, Controller: broker, Clamp: p.clampHere, CodePoints: p.n.codePoints(), Logger: p.n.log,
	})
}

// clampOffsets takes committed offsets of a cut partition back to its end, wherever their groups are coordinated, and tells whose they
// were. The error says that some could not be reached.
func (p *mirrorParts) clampOffsets(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error) {
	groups, err := p.clampHere(ctx, topic, id, partition, end, epoch)
	errs := []error{err}
	t := p.n.image().TopicByName(group.Topic)
	if t == nil {
		return groups, err
	}
	asked := map[int32]bool{p.n.o.Config.ID: true}
	for i, x := range t.Partitions {
		switch {
		case x.Leader < 0:
			errs = append(errs, api.Errorf(api.CoordinatorNotAvailable, "%s-%d has no leader now", group.Topic, i))
		case !asked[x.Leader]:
			asked[x.Leader] = true
			more, err := p.cluster.ClampOffsets(ctx, x.Leader, topic, id, partition, end, epoch)
			groups, errs = append(groups, more...), append(errs, err)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), errors.Join(errs...)
}

// clampHere is clampOffsets of the groups that this broker coordinates.
func (p *mirrorParts) clampHere(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error) {
	type answer struct {
		groups []string
		err    error
	}
	ch := make(chan answer, 1)
	p.n.groups.ClampOffsets(group.TopicRef{Name: topic, ID: id}, partition, end, epoch, func(err error, clamped []group.Clamped) {
		a := answer{err: err}
		for _, c := range clamped {
			a.groups = append(a.groups, c.Group)
		}
		ch <- a
	})
	select {
	case a := <-ch:
		return a.groups, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
