package group

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/machine"
	"milena/internal/meta"
)

// Topic is the topic that holds the coordinators' logs.
const Topic = "__consumer_offsets"

// Options configure a Service.
type Options struct {
	NodeID int32
	Open   coord.OpenLog
	Config func() Config // asked at each use; nil: the defaults
	Logger *slog.Logger  // nil: discards
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Rand is for member ids and may be read on several goroutines at once; nil:
	// crypto/rand.
	Rand io.Reader
	// Held, if not nil, says that a committed offset must not expire though its
	// retention has passed. It is called on the coordinators' goroutines.
	Held func(group string, t TopicRef, partition int32) bool
}

// errTimeout is what a caller gets whose records are not committed in time.
var errTimeout = &api.Error{Code: api.RequestTimedOut, Message: "the group coordinator's write was not committed in time"}

// errNotCoordinator is for groups of partitions that aren't led here.
var errNotCoordinator = &api.Error{Code: api.NotCoordinator}

// Service finds the shard of a group and runs requests on it. Its methods may be
// called on any goroutine and don't block; done functions are called once, on
// any goroutine, the caller's too.
type Service struct {
	o       Options
	metrics *metrics
	hosts   *coord.Hosts[*serving]
}

// NewService returns a service without shards: Apply brings them.
func NewService(o Options) *Service {
	if o.Config == nil {
		o.Config = DefaultConfig
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{o: o}
	s.hosts = coord.NewHosts(coord.Options[*serving]{
		Topic:         Topic,
		NodeID:        o.NodeID,
		Open:          o.Open,
		New:           s.newServing,
		MaxBatchBytes: func() int { return o.Config().MaxBatchBytes },
		Logger:        o.Logger,
		LoadTime:      func(d time.Duration) { s.metrics.loaded(d) },
		Ended:         ended,
	})
	s.metrics = newMetrics(s, o.Registerer)
	return s
}

func (s *Service) newServing(partition int32) *serving {
	return &serving{s: s, m: NewMachine(MachineOptions{
		Config: s.o.Config,
		Logger: s.o.Logger.With("topic", Topic, "partition", partition),
		Rand:   s.o.Rand,
		Held:   s.o.Held,
	})}
}

// ended answers those who wait in a machine that has ended.
func ended(sv *serving) {
	for _, reply := range sv.m.Drain() {
		reply(machine.ErrLost)
	}
}

// Close unloads all shards; requests that wait get NOT_COORDINATOR. It waits
// until they are unloaded.
func (s *Service) Close() { s.hosts.Close() }

// Apply brings the shards in line with the metadata: a shard is loaded when this
// broker becomes the leader of its partition, and at each new leader epoch, and
// unloaded when it ceases to be. It also removes the offsets of deleted topics.
// Deltas come in order, each after the replicas have taken it.
func (s *Service) Apply(d *meta.Delta) {
	s.hosts.Apply(d)
	var deleted []TopicRef
	for _, t := range d.Topics {
		if t.Deleted() && t.Prev.Name != Topic {
			deleted = append(deleted, TopicRef{t.Prev.Name, t.Prev.ID})
		}
	}
	if len(deleted) == 0 {
		return
	}
	for _, sh := range s.hosts.All() {
		// A shard that is loading or can't append keeps these offsets till they
		// expire. They can't be taken for a new topic's of that name, whose id
		// differs.
		s.submit(sh, func(now time.Time, m *Machine) Effects {
			return m.TopicsDeleted(now, deleted, func(error) {})
		}, func(error) {})
	}
}

// shard returns the shard of a group.
func (s *Service) shard(group string) (*coord.Shard[*serving], error) {
	p, ok := s.Partition(group)
	if !ok {
		return nil, errNotCoordinator
	}
	return s.hosts.Shard(p)
}

// Partition returns the partition of __consumer_offsets that a group belongs to,
// false while the topic doesn't exist.
func (s *Service) Partition(group string) (int32, bool) {
	n := s.hosts.Count()
	if n == 0 {
		return 0, false
	}
	return PartitionOf(group, n), true
}

// CodeOf maps an error of this service to what clients of a coordinator get.
func CodeOf(err error) api.Code {
	switch {
	case err == nil:
		return api.NoError
	case errors.Is(err, machine.ErrLoading):
		return api.CoordinatorLoadInProgress
	case errors.Is(err, machine.ErrLost), errors.Is(err, machine.ErrClosed):
		return api.NotCoordinator
	}
	switch code, _ := api.CodeOf(err); code {
	case api.UnknownTopicOrPartition, api.NotEnoughReplicas, api.NotEnoughReplicasAfterAppend, api.RequestTimedOut:
		return api.CoordinatorNotAvailable
	case api.NotLeaderOrFollower, api.KafkaStorageError, api.FencedLeaderEpoch:
		return api.NotCoordinator
	case api.MessageTooLarge, api.RecordListTooLarge, api.InvalidFetchSize:
		return api.UnknownServerError
	default:
		return code
	}
}
