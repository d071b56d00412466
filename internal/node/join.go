package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/metafollow"
)

// newSession makes the broker's session with the active controller; join starts it.
func (n *Node) newSession() error {
	c := n.o.Config
	incarnation, err := ids.New(n.o.Random)
	if err != nil {
		return err
	}
	var dirs []ids.UUID
	for _, d := range n.dirs.Dirs() {
		if d.Online { // the id of one that failed may not even be known
			dirs = append(dirs, d.ID)
		}
	}
	var rack *string
	if c.Rack != "" {
		rack = &c.Rack
	}
	n.session = metafollow.NewSession(metafollow.SessionOptions{
		NodeID: c.ID, ClusterID: n.clusterID, Incarnation: incarnation, Endpoints: n.advertise, Features: controller.Features(), Rack: rack, LogDirs: dirs,
		PreviousEpoch: n.dirs.CleanShutdownEpoch(), Controller: n.links.session, Follower: n.follower, Heartbeat: c.Quorum.BrokerHeartbeat, Timeout: c.Quorum.BrokerSession,
		Suspend: n.replicas.Suspend, Resume: n.replicas.Resume, Retry: 2 * time.Millisecond, OfflineDirs: n.offlineDirs, Logger: n.log,
	})
	return nil
}

// join follows the metadata. A broker registers first, so that nothing older than its registration is applied, and waits
// until the controller has let it in.
func (n *Node) join(ctx context.Context) error {
	c := n.o.Config
	if err := n.registerController(); err != nil {
		return err
	}
	if !c.Broker {
		n.run("metadata", n.follower.Run)
		return nil
	}
	n.run("session with the controller", n.session.Run)
	n.run("metadata", func(ctx context.Context) error {
		select {
		case <-n.session.Registered():
			n.follower.NotBefore(n.session.Epoch())
			return n.follower.Run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	late := time.NewTimer(c.Quorum.RegistrationTimeout)
	defer late.Stop()
	for registered := n.session.Registered(); ; {
		select {
		case <-registered:
			registered = nil
			late.Stop()
		case <-n.session.Ready():
			return n.replicas.Settled(n.dirs.SetAside)
		case <-late.C:
			return fmt.Errorf("no controller has registered this broker within %s (initial.broker.registration.timeout.ms): are the controllers running, and is the majority of voters up?", c.Quorum.RegistrationTimeout)
		case <-n.failed:
			return n.failure
		case <-ctx.Done():
			return errors.Join(errors.New("the node was stopped before it was ready"), ctx.Err())
		}
	}
}

// ready is nil when clients can be served, or by a controller alone, when it knows who leads the quorum.
func (n *Node) ready() error {
	if err := n.Err(); err != nil {
		return err
	}
	if n.ctx.Err() != nil {
		return errors.New("shutting down")
	}
	c := n.o.Config
	if !c.Broker {
		if !n.quorum.Status().HasLeader {
			return errors.New("the metadata quorum has no leader: a majority of the voters must be up")
		}
		return nil
	}
	switch {
	case n.serving.Load() == nil && n.session.Epoch() < 0:
		return errors.New("no controller has registered this broker yet")
	case !n.image().Alive(c.ID):
		return errors.New("the controller has not let this broker in")
	case n.serving.Load() == nil:
		return errors.New("starting")
	case time.Since(n.session.LastContact()) > c.Quorum.BrokerSession:
		return fmt.Errorf("no heartbeat was answered by a controller for %s (broker.session.timeout.ms): this broker leads nothing", c.Quorum.BrokerSession)
	}
	return nil
}

// degraded says what isn't as it is configured to be, a sentence each, though clients are served.
func (n *Node) degraded() []string {
	img := n.image()
	var out []string
	if n.dirs != nil {
		for _, d := range n.dirs.Dirs() {
			if !d.Online {
				out = append(out, fmt.Sprintf("log directory %s is offline: its partitions have no replica here", d.Path))
			}
		}
	}
	for _, it := range n.internalTopics(img) {
		t := img.TopicByName(it.Name)
		if t == nil {
			continue
		}
		least := int(it.ReplicationFactor)
		for _, p := range t.Partitions {
			least = min(least, len(p.Replicas))
		}
		if least < int(it.ReplicationFactor) {
			out = append(out, fmt.Sprintf("%s has %d of %d replicas: more are made when brokers join", it.Name, least, it.ReplicationFactor))
		}
	}
	return out
}
