package mirror

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/peer"
)

// Links reach sources: over the network unless Options.Links says otherwise.
type Links interface {
	// Cluster returns a client of a source cluster as a whole; nothing is dialled before the first request.
	Cluster(s *Settings, clientID string) (ClusterLink, error)
	// Broker connects to a source's broker.
	Broker(ctx context.Context, s *Settings, addr string) (BrokerLink, error)
}

// ClusterLink reaches a source cluster: each request goes to whichever of its brokers can answer it, and is tried again where that may help.
type ClusterLink interface {
	kmsg.Requestor
	DescribeTopicConfigs(ctx context.Context, topics ...string) (kadm.ResourceConfigs, error)
	ListGroups(ctx context.Context, states ...string) (kadm.ListedGroups, error)
	FetchManyOffsets(ctx context.Context, groups ...string) kadm.FetchOffsetsResponses
	Close()
}

// BrokerLink is a connection to a source's broker. Its requests are answered in order.
type BrokerLink interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	// Fetch sends a request whose answer is waited for later.
	Fetch(ctx context.Context, version int16, req *fetchwire.Request) (Answer, error)
	// MaxVersion is the newest version of an API from low to high that the broker serves.
	MaxVersion(key, low, high int16) (int16, error)
	Close() error
}

// Answer is the answer to come of a fetch request. WaitPooled or Abandon must be called.
type Answer interface {
	WaitPooled(ctx context.Context) (peer.Pooled, error)
	Abandon()
}

// LocalAdmin is what a Manager asks of its own cluster as a client: a *kadm.Client.
type LocalAdmin interface {
	DescribeTopicConfigs(ctx context.Context, topics ...string) (kadm.ResourceConfigs, error)
	FetchOffsets(ctx context.Context, group string) (kadm.OffsetResponses, error)
	CommitOffsets(ctx context.Context, group string, os kadm.Offsets) (kadm.OffsetResponses, error)
	ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
	ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
}

// kafkaCluster is the ClusterLink of a process.
type kafkaCluster struct {
	*kadm.Client
	cl *kgo.Client
}

func (k kafkaCluster) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return k.cl.Request(ctx, req)
}

func (k kafkaCluster) Close() { k.cl.Close() }

// kafkaBroker is the BrokerLink of a process.
type kafkaBroker struct{ *peer.Conn }

func (k kafkaBroker) Fetch(ctx context.Context, version int16, req *fetchwire.Request) (Answer, error) {
	body, err := fetchwire.AppendRequest(nil, req, version)
	if err != nil {
		return nil, err
	}
	return k.SendPooled(ctx, int16(api.Fetch), version, body)
}

// dialBroker connects to a source's broker over the network.
func (mi *mirror) dialBroker(ctx context.Context, s *Settings, addr string) (BrokerLink, error) {
	c, err := peer.Dial(ctx, peer.Options{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.Client.Dial(ctx, mi.dial, network, addr)
		},
		Addr: addr, SASL: s.Client.SASL, ClientID: "MirrorReplica", RequestTimeout: s.SocketTimeout + s.FetchWait,
		Logger: mi.log.With("source", addr), Pool: mi.mgr.pool,
	})
	if err != nil {
		return nil, err
	}
	return kafkaBroker{c}, nil
}
