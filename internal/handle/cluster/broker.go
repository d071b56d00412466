package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/meta"
	"milena/internal/server"
)

// Caller sends a request to the active controller; *metafollow.Link is one.
type Caller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	// Reset makes the next call look for the active controller anew.
	Reset()
}

// BrokerOptions of a Broker.
type BrokerOptions struct {
	NodeID    int32
	ClusterID string
	// Image returns the broker's current metadata.
	Image func() *meta.Image
	// WaitOffset waits until the broker's metadata holds the record at offset.
	WaitOffset func(ctx context.Context, offset int64) error
	// Controller is where requests are forwarded to. It must not be a connection on which
	// anything waits for long.
	Controller Caller
	// AutoCreate says whether topics that clients ask for are created
	// (auto.create.topics.enable, which is dynamic).
	AutoCreate func() bool
	// InternalTopics describes the internal topics that are created when they are first
	// needed; at least GroupOffsetsTopic.
	InternalTopics map[string]InternalTopic
	// MaxDescribedPartitions bounds a DescribeTopicPartitions answer
	// (max.request.partition.size.limit). Default 2000.
	MaxDescribedPartitions int32
	// ForwardTimeout bounds forwarding a request. Default 30 s.
	ForwardTimeout time.Duration
	// CodePoints are the numbers of mirror APIs and errors that clients use.
	CodePoints api.CodePoints
	Logger     *slog.Logger // default: discards
}

// InternalTopic says how an internal topic is made.
type InternalTopic struct {
	Partitions int32
	// ReplicationFactor is reduced to the number of brokers if there are fewer.
	ReplicationFactor int16
	Configs           map[string]string
}

// Names of internal topics.
const (
	GroupOffsetsTopic     = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
	ShareStateTopic       = "__share_group_state"
	MirrorStateTopic      = "__mirror_state"
)

// IsInternal reports whether the topic is one the cluster keeps its own state in.
func IsInternal(topic string) bool {
	switch topic {
	case GroupOffsetsTopic, TransactionStateTopic, ShareStateTopic, MirrorStateTopic:
		return true
	default:
		return false
	}
}

// Broker answers the cluster APIs of a broker's listeners.
type Broker struct{ o BrokerOptions }

// NewBroker returns the handlers.
func NewBroker(o BrokerOptions) *Broker {
	if o.MaxDescribedPartitions <= 0 {
		o.MaxDescribedPartitions = 2000
	}
	if o.ForwardTimeout <= 0 {
		o.ForwardTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Broker{o: o}
}

// Register adds the handlers to the table of a broker's listener. APIs that are only
// passed on to the controller are among them; one that needs a look before (by Forward)
// is registered over it.
func (b *Broker) Register(t server.Table) {
	t[api.Metadata] = b.metadata
	t[api.FindCoordinator] = b.findCoordinator
	t[api.DescribeCluster] = b.describeCluster
	t[api.DescribeTopicPartitions] = b.describeTopicPartitions
	for _, row := range api.Table() {
		if row.Broker && row.Forward && !row.Key.IsMirror() {
			t[row.Key] = b.Forward
		}
	}
}

// operations is the bit set of the ACL operations.
func operations(ops ...int) int32 {
	var bits int32
	for _, op := range ops {
		bits |= 1 << op
	}
	return bits
}

// ACL operations by Kafka's numbers, as far as "authorized operations" list them.
const (
	opRead            = 3
	opWrite           = 4
	opCreate          = 5
	opDelete          = 6
	opAlter           = 7
	opDescribe        = 8
	opClusterAction   = 9
	opDescribeConfigs = 10
	opAlterConfigs    = 11
	opIdempotentWrite = 12
)

// topicOperations and clusterOperations are what everybody may do where nothing is
// forbidden.
func topicOperations() int32 {
	return operations(opRead, opWrite, opCreate, opDelete, opAlter, opDescribe, opDescribeConfigs, opAlterConfigs)
}

func clusterOperations() int32 {
	return operations(opCreate, opAlter, opDescribe, opClusterAction, opDescribeConfigs, opAlterConfigs, opIdempotentWrite)
}

// notAsked is the authorized operations of a response whose request didn't ask for them.
const notAsked int32 = -1 << 31
