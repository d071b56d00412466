package mirrorstate

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// Topic is the internal topic that holds the states.
const Topic = "__mirror_state"

// ServiceOptions configure a Service. NodeID, Open and Logger are required.
type ServiceOptions struct {
	NodeID int32
	Open   coord.OpenLog
	// Check is asked before each command whether the partition would take an append; nil: always.
	Check func(partition int32) error
	// WriteTimeout is mirror.coordinator.write.timeout.ms.
	WriteTimeout time.Duration
	// MaxAttempts is mirror.failed.retry.max.attempts.
	MaxAttempts int16
	Logger      *slog.Logger
	// Registerer gets the metrics; nil: none.
	Registerer prometheus.Registerer
	// Loaded is told when a shard has loaded, so that its partitions look again.
	Loaded func(partition int32)
}

// Service reads and writes the states whose coordinator this broker is. Its methods may be called from any goroutine.
type Service struct {
	o     ServiceOptions
	hosts *coord.Hosts[*Shard]
	// metrics of the shards here.
	metrics *metrics

	image atomic.Pointer[meta.Image] // the newest
}

// NewService returns a Service without shards: Apply brings them.
func NewService(o ServiceOptions) *Service {
	s := &Service{o: o}
	s.image.Store(meta.Empty(""))
	s.metrics = newMetrics(s, o.Registerer)
	s.hosts = coord.NewHosts(coord.Options[*Shard]{
		LoadTime: s.metrics.loaded,
		Topic:    Topic, NodeID: o.NodeID, Open: o.Open, Check: o.Check, Logger: o.Logger,
		New: func(int32) *Shard { return NewShard(Options{MaxAttempts: o.MaxAttempts, Logger: o.Logger}) },
		Loaded: func(p int32) {
			s.forgetGone(p)
			if o.Loaded != nil {
				o.Loaded(p)
			}
		},
	})
	return s
}

// Close unloads all shards.
func (s *Service) Close() { s.hosts.Close() }

// Apply follows the metadata: the leadership of shards, and deleted mirrors and topics, of which nothing is kept: a topic that is
// mirrored again has the same id, and begins with other leader epochs.
func (s *Service) Apply(d *meta.Delta) {
	s.image.Store(d.Next) // first: a shard that loads asks which mirrors exist
	s.hosts.Apply(d)
	gone := map[string]bool{}
	for _, r := range d.Configs {
		if r.Type == meta.ResourceClusterMirror && !s.exists(r.Name) {
			gone[r.Name] = true
		}
	}
	deleted := map[ids.UUID]bool{}
	for _, t := range d.Topics {
		if t.Deleted() {
			deleted[t.Prev.ID] = true
		}
	}
	if len(gone)+len(deleted) == 0 {
		return
	}
	// Enqueued here, the removals come before whatever a new mirror of the same name writes.
	for _, sh := range s.hosts.All() {
		s.forget(sh, func(k Key) bool { return gone[k.Mirror] || deleted[k.TopicID] })
	}
}

func (s *Service) exists(mirror string) bool {
	return len(s.image.Load().Config(meta.ResourceClusterMirror, mirror)) > 0
}

// forgetGone removes from a freshly loaded shard the partitions of mirrors and topics that don't exist: those that a shard which was
// loading, or led elsewhere, at the time of the deletion still holds.
func (s *Service) forgetGone(partition int32) {
	if sh, err := s.hosts.Shard(partition); err == nil {
		img := s.image.Load()
		s.forget(sh, func(k Key) bool { return !s.exists(k.Mirror) || img.TopicByID(k.TopicID) == nil })
	}
}

// forget writes tombstones for the partitions that gone reports. What fails is tried at the next load.
func (s *Service) forget(sh *coord.Shard[*Shard], gone func(Key) bool) {
	sh.Submit(func(m *Shard) machine.Command { return m.Forget(gone) }, func(_ any, err error) {
		if err != nil && !errors.Is(err, machine.ErrLoading) && !errors.Is(err, machine.ErrClosed) && !errors.Is(err, machine.ErrLost) {
			s.o.Logger.Warn("states of deleted mirrors or topics could not be removed", "partition", sh.Partition(), "error", err)
		}
	})
}

// Read returns the status of a partition. A leader of the data partition gives its leader epoch, -1 otherwise.
func (s *Service) Read(ctx context.Context, k Key, leaderEpoch int32) (Status, error) {
	out, err := s.do(ctx, k, func(m *Shard) machine.Command { return m.Read([]Key{k}, []int32{leaderEpoch}) })
	if err != nil {
		return NoStatus(), err
	}
	return out.([]Status)[0], nil
}

// Write makes one change; a refusal is an *api.Error. The mirror has to exist.
func (s *Service) Write(ctx context.Context, w Write) (Status, error) {
	if !s.exists(w.Key.Mirror) {
		return NoStatus(), api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", w.Key.Mirror)
	}
	out, err := s.do(ctx, w.Key, func(m *Shard) machine.Command { return m.Write([]Write{w}) })
	if err != nil {
		return NoStatus(), err
	}
	r := out.([]WriteResult)[0]
	if code, _ := api.CodeOf(r.Err); code == api.FencedLeaderEpoch || code == api.FencedStateEpoch {
		s.metrics.fenced.Inc()
	}
	return r.Status, r.Err
}

func (s *Service) do(ctx context.Context, k Key, cmd func(*Shard) machine.Command) (any, error) {
	n := s.hosts.Count()
	if n == 0 {
		return nil, api.Errorf(api.CoordinatorNotAvailable, "%s does not exist yet", Topic)
	}
	sh, err := s.hosts.Shard(mirrormsg.Slot(k.Slot(), n))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.WriteTimeout)
	defer cancel()
	out, err := sh.Do(ctx, cmd)
	return out, coded(err)
}

// coded maps errors of the runtime to what a client of a coordinator gets.
func coded(err error) error {
	switch {
	case errors.Is(err, machine.ErrLoading):
		return &api.Error{Code: api.CoordinatorLoadInProgress, Message: "the mirror state coordinator is loading", Err: err}
	case errors.Is(err, machine.ErrLost), errors.Is(err, machine.ErrClosed):
		return &api.Error{Code: api.NotCoordinator, Message: "the mirror state coordinator has moved", Err: err}
	}
	return err
}
