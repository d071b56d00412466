package node

import (
	"context"
	"net"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/peer"
	"milena/internal/quorum"
)

// links are the connections to controllers: what waits and what must not wait use their own. The follow link reads from any
// controller, the others reach the active one.
type links struct{ follow, session, forward, isr *metafollow.Link }

// connectControllers makes the finder of the active controller and the links that use it. Nothing is dialled yet.
func (n *Node) connectControllers(context.Context) error {
	c := n.o.Config
	n.finder = metafollow.NewFinder(n.finderOptions())
	name := func(what string) string { return "broker-" + itoa(c.ID) + "-" + what }
	n.links = links{
		follow: n.finder.Any(name("metadata")), session: n.finder.Active(name("heartbeat")),
		forward: n.finder.Active(name("forward")), isr: n.finder.Active(name("isr")),
	}
	directory := n.observerDirectory()
	n.follower = metafollow.New(metafollow.Options{
		NodeID: c.ID, Directory: directory, ClusterID: n.clusterID, Controller: n.links.follow, Finder: n.finder, Timeout: c.Quorum.RequestTimeout, Logger: n.log,
	})
	return nil
}

func (n *Node) finderOptions() metafollow.FinderOptions {
	c := n.o.Config
	return metafollow.FinderOptions{
		NodeID: c.ID, ClusterID: n.clusterID, Dial: n.dialController, Inside: c.Controller, Voters: n.knownControllers, Bootstrap: c.BootstrapServers,
		Timeout: c.Quorum.RequestTimeout, Backoff: c.Quorum.RetryBackoff, Logger: n.log,
	}
}

// observerDirectory is the id by which this node's readings of the metadata are told from another disk's (KIP-853):
// a voter's own, else that of the metadata log directory, as Kafka's observers say it; zero if it has none.
func (n *Node) observerDirectory() ids.UUID {
	if n.quorum != nil {
		return n.quorum.Self().Directory
	}
	id, err := n.metadataDirID()
	if err != nil {
		return ids.UUID{} // it is none of log.dirs and holds nothing: a broker alone needs no such directory
	}
	return id
}

// dialController connects to a controller at host:port, or to the one in this process if the address is empty.
func (n *Node) dialController(ctx context.Context, addr, clientID string) (metafollow.Conn, error) {
	o := peer.Options{Dial: n.dialer(), Addr: addr, ClientID: clientID, Logger: n.log, RequestTimeout: n.o.Config.Quorum.SocketTimeout, CodePoints: api.Milena}
	if addr == "" {
		o.Dial, o.Addr = memDialer(n.dialInside), "controller:0"
	}
	c, err := peer.Dial(ctx, o)
	if err != nil {
		return nil, err // not c: a nil *peer.Conn is no nil Conn
	}
	return c, nil
}

// dialVoter connects the raft transport to another controller.
func (n *Node) dialVoter(ctx context.Context, e quorum.Endpoint) (*peer.Conn, error) {
	return peer.Dial(ctx, peer.Options{
		Dial: n.dialer(), Addr: net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), ClientID: "controller-" + itoa(n.o.Config.ID), Logger: n.log,
		RequestTimeout: n.o.Config.Quorum.RequestTimeout, CodePoints: api.Milena,
	})
}

// DialBroker connects to another broker of the cluster, over the listener that brokers use among themselves.
func (n *Node) DialBroker(ctx context.Context, broker int32, clientID string) (*peer.Conn, error) {
	c := n.o.Config
	b := n.image().Broker(broker)
	if b == nil {
		return nil, api.Errorf(api.BrokerIDNotRegistered, "broker %d is not registered", broker)
	}
	e, ok := b.Endpoint(c.InterBrokerListener)
	if !ok {
		return nil, api.Errorf(api.ListenerNotFound, "broker %d has no listener %s (inter.broker.listener.name)", broker, c.InterBrokerListener)
	}
	return peer.Dial(ctx, peer.Options{
		Dial: n.dialer(), Addr: endpointAddr(e), ClientID: clientID, Logger: n.log, RequestTimeout: c.Replica.FetchTimeout, CodePoints: n.codePoints(),
	})
}

func endpointAddr(e meta.Endpoint) string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// dialer is the node's dialer for connections to other nodes: each gets a limited time to come up, and ends when the other
// side isn't heard.
func (n *Node) dialer() client.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if timeout := n.o.Config.Client.SetupTimeout; timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		c, err := n.o.Dial(ctx, network, addr)
		if err == nil {
			n.leash(c)
		}
		return c, err
	}
}

// knownControllers are the controllers by configuration, or by the quorum in this process, which names its own listeners too.
func (n *Node) knownControllers() []metafollow.Controller {
	var out []metafollow.Controller
	for _, v := range n.o.Config.Voters {
		out = append(out, metafollow.Controller{ID: v.ID, Addr: net.JoinHostPort(v.Host, strconv.Itoa(v.Port))})
	}
	if n.quorum == nil {
		return out
	}
	for _, v := range n.quorum.VoterSet() {
		if len(v.Endpoints) > 0 {
			e := v.Endpoints[0]
			out = append(out, metafollow.Controller{ID: v.ID, Addr: net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))})
		}
	}
	return out
}

// toController sends requests of this broker's own until the active controller has answered them.
func (n *Node) toController(l *metafollow.Link) metafollow.Retry {
	return metafollow.Retry{Link: l, Timeout: min(n.o.Config.Client.RequestTimeout, 30*time.Second)}
}
