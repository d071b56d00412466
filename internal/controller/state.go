package controller

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// Options of a State.
type Options struct {
	ClusterID string
	// Random gives topic ids and the start of placements. Required.
	Random io.Reader
	// Defaults returns num.partitions and default.replication.factor, which are dynamic.
	// Required.
	Defaults func(img *meta.Image) (partitions int32, replicationFactor int16)
	// Configs are the rules for config entries. Required.
	Configs ConfigRules
	// Guards may refuse changes. They run in order, the first refusal wins.
	Guards []Guard
	// SessionTimeout is how long a broker may be silent before it is fenced
	// (broker.session.timeout.ms). Default 9 s.
	SessionTimeout time.Duration
	// Grace is how much longer a broker has that this controller hasn't heard from yet: it has to find the new
	// controller first. Two election timeouts of the quorum are meant; default none.
	Grace time.Duration
	// DeleteTopics allows deleting topics (delete.topic.enable).
	DeleteTopics bool
	// MinISR is min.insync.replicas where the metadata doesn't set it. Default 1.
	MinISR int
	// UncleanElection is unclean.leader.election.enable where the metadata doesn't set it.
	UncleanElection bool
	// UncleanInterval is how often partitions without a leader are tried again
	// (unclean.leader.election.interval.ms). Default 5 min.
	UncleanInterval time.Duration
	// RebalanceInterval is how often leaderships are moved back to the preferred replicas
	// (leader.imbalance.check.interval.seconds), 0 for never (auto.leader.rebalance.enable).
	RebalanceInterval time.Duration
	// InternalTopics returns the topics whose replication factor is raised as brokers join;
	// nil: none.
	InternalTopics func(img *meta.Image) []InternalTopic
	// Features are the levels this controller supports. Default [Features].
	Features []meta.FeatureRange
	// Bootstrap are the first records of an empty metadata log: the feature levels the
	// cluster was formatted with.
	Bootstrap []meta.Record
	Logger    *slog.Logger // default: discards
}

// ConfigRules say which config entries are valid. Package config implements them.
type ConfigRules interface {
	// Validate checks the value of a key of a resource. Its error's text is for the
	// client.
	Validate(resourceType int8, name, key, value string) error
	// ValidateAll checks the rules that concern several keys, on all entries that a
	// resource is about to have.
	ValidateAll(resourceType int8, name string, entries map[string]string) error
	// Canonical is the name under which a key is stored, which may be given by another.
	Canonical(resourceType int8, key string) string
	// List reports whether the key's value is a list, and its default, which APPEND and
	// SUBTRACT start from if the resource has no entry.
	List(resourceType int8, key string) (def string, ok bool)
}

// OpKind names a kind of change to a Guard.
type OpKind int

// Kinds of changes that guards are asked about.
const (
	OpCreatePartitions OpKind = iota + 1
	OpDeleteTopic
	OpAlterConfigs
	OpUpdateFeature
)

// Op is a change that a client asked for.
type Op struct {
	Kind OpKind
	// Topic is the topic concerned; nil for a config resource that is none.
	Topic *meta.Topic
	// Resource and Keys are set for OpAlterConfigs: the keys that would change.
	Resource meta.Resource
	Keys     []string
	// Feature and Level are set for OpUpdateFeature: the level it would get.
	Feature string
	Level   int16
}

// Guard refuses a change by returning an error. It must depend on nothing but its
// arguments.
type Guard func(img *meta.Image, op Op) *api.Error

// State is the controller's state machine. It implements machine.Machine and
// machine.Binder, and is owned by the goroutine that runs it.
type State struct {
	o        Options
	draft    *meta.Draft
	timers   machine.Timers
	sessions map[int32]*session
	broken   error // of the log that was replayed; every command is refused
}

// New returns an empty state.
func New(o Options) *State {
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 9 * time.Second
	}
	if o.MinISR <= 0 {
		o.MinISR = 1
	}
	if o.UncleanInterval <= 0 {
		o.UncleanInterval = 5 * time.Minute
	}
	if o.Features == nil {
		o.Features = Features()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &State{o: o, draft: meta.Empty(o.ClusterID).Untracked(), sessions: map[int32]*session{}}
}

// Bind implements machine.Binder.
func (s *State) Bind(t machine.Timers) { s.timers = t }

// Apply implements machine.Machine. A record that can't be applied would let the replicas
// of the metadata drift apart, so from then on every command is refused.
func (s *State) Apply(offset int64, r machine.Record) {
	if s.broken != nil {
		return
	}
	rec, err := meta.Decode(r.Value)
	if err == nil {
		err = s.draft.Apply(offset, s.draft.Epoch(), rec)
	}
	if err != nil {
		s.broken = fmt.Errorf("offset %d of the metadata log: %w", offset, err)
		s.o.Logger.Error("the metadata log can't be applied; the controller refuses all changes", "error", err, "offset", offset)
	}
}

// Loaded implements machine.Machine: every broker's session begins afresh, and so do the
// periodic tasks.
func (s *State) Loaded(now time.Time) {
	for b := range s.Image().Brokers() {
		if !b.Fenced {
			s.watch(b.ID, now)
		}
	}
	s.startPeriodic()
}

// Activate is the first command of a leadership: it takes back a transaction that an
// earlier leader left open, begins an empty log with the bootstrap records, and fixes
// min.insync.replicas for the cluster.
func (s *State) Activate(time.Time) machine.Result {
	var recs []meta.Record
	switch {
	case s.draft.InTransaction():
		reason := "the controller changed"
		recs = []meta.Record{&meta.AbortTransactionRecord{Reason: &reason}}
	case s.Image().Offset < 0:
		recs = slices.Clone(s.o.Bootstrap)
	}
	if rec := s.fixMinISR(); rec != nil {
		recs = append(recs, rec)
	}
	if len(recs) == 0 {
		return machine.Result{}
	}
	return s.result(nil, recs...)
}

// fixMinISR is the record that makes the controller's min.insync.replicas the cluster's, as Kafka does with KIP-966: what a
// leader may commit with and whom the controller takes for eligible must go by one value, so the properties files of brokers and
// other controllers no longer count once the metadata has one. Above 1 only: with 1 nobody is eligible outside of the ISR, and a
// broker whose file asks for more just waits for more.
func (s *State) fixMinISR() meta.Record {
	if _, ok := s.Image().Config(meta.ResourceBroker, "")[minISRKey]; ok || s.o.MinISR <= 1 {
		return nil
	}
	value := strconv.Itoa(s.o.MinISR)
	return &meta.ConfigRecord{ResourceType: meta.ResourceBroker, Key: minISRKey, Value: &value}
}

// Image returns the speculative image: everything appended so far, committed or not. What
// a command replies from it is held back until it is committed.
func (s *State) Image() *meta.Image { return s.draft.Speculative() }

// result encodes the records of a command.
func (s *State) result(reply any, recs ...meta.Record) machine.Result {
	if s.broken != nil {
		return machine.Result{Err: s.broken}
	}
	out := machine.Result{Reply: reply}
	for _, r := range recs {
		b, err := meta.Encode(r)
		if err != nil {
			return machine.Result{Err: &api.Error{Code: api.InvalidRequest, Message: err.Error(), Err: err}}
		}
		out.Records = append(out.Records, machine.Record{Value: b})
	}
	return out
}

// Result is what a command of another command set returns: it appends the records and
// answers reply once they are committed.
func (s *State) Result(reply any, recs ...meta.Record) machine.Result {
	return s.result(reply, recs...)
}

// Validate checks a config entry by the rules of the state's options.
func (s *State) Validate(resourceType int8, name, key, value string) error {
	if err := checkLength(key, value); err != nil { // first: rules cost time by the byte, and this is everybody's goroutine
		return err
	}
	return s.o.Configs.Validate(resourceType, name, key, value)
}

// checkLength refuses what a config record can't hold. The error is INVALID_CONFIG.
func checkLength(key, value string) error {
	if len(key) > math.MaxInt16 || len(value) > math.MaxInt16 {
		return api.Errorf(api.InvalidConfig, "config %.100s has a value of %d bytes: %d are the most that a config may have", key, len(value), math.MaxInt16)
	}
	return nil
}

// guard asks all guards.
func (s *State) guard(op Op) *api.Error {
	for _, g := range s.o.Guards {
		if err := g(s.Image(), op); err != nil {
			return err
		}
	}
	return nil
}

// NewID returns a new random id for a topic, which no topic has.
func (s *State) NewID() (ids.UUID, error) {
	for {
		id, err := ids.New(s.o.Random)
		if err != nil {
			return ids.UUID{}, fmt.Errorf("topic id: %w", err)
		}
		if s.Image().TopicByID(id) == nil {
			return id, nil
		}
	}
}

// random returns a number in [0, n).
func (s *State) random(n int) (int, error) {
	var b [8]byte
	if _, err := io.ReadFull(s.o.Random, b[:]); err != nil {
		return 0, fmt.Errorf("random placement: %w", err)
	}
	return int(binary.BigEndian.Uint64(b[:]) % uint64(n)), nil
}
